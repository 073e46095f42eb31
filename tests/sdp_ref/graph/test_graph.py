import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import sdp_ref as sr
from sdp_ref.graph import ops, trace
from tests.sdp_ref.common import run

X = torch.zeros(1, 4)


class Spelled(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        h = F.relu(self.first(x))
        h = h + self.first(h).sigmoid()
        return F.leaky_relu(self.second(h), 0.2)


@pytest.mark.rounding
@pytest.mark.parametrize(
    "net",
    [
        nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Sequential(nn.Linear(3, 2), nn.Tanh())),
        Spelled(),
        nn.ReLU(),
        nn.Linear(4, 2),
        nn.Sequential(),
        torch.relu,
        F.silu,
        F.rrelu,
        lambda x: torch.tanh(x) + x,
        lambda x: x + x,
        lambda x: F.gelu(torch.flatten(x, 1)),
    ],
)
def test_steps_compute_what_the_net_computes(net):
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(run(trace.trace(net, x), x), net(x))


def test_steps_share_the_parameters_and_name_their_place():
    net = nn.Sequential(nn.Linear(4, 3), nn.Sequential(nn.ReLU(), nn.Linear(3, 2)))
    steps = trace.trace(net, X)
    assert [step.path for step in steps] == ["0", "1.0", "1.1"]
    assert steps[2].module is net[1][1]
    weight = nn.Parameter(torch.ones(2, 4))
    (step,) = trace.trace(lambda x: F.linear(x, weight), X)
    assert step.module.weight is weight
    assert step.module.bias is None


def test_ops_without_an_entry_are_kept_as_unknown_with_their_name():
    (step,) = trace.trace(lambda x: x.cumprod(1), X)
    assert isinstance(step.module, ops.Unknown)
    assert step.module.text == "cumprod"


def test_a_dead_branch_is_left_out_and_the_other_steps_are_renumbered():
    def net(x):
        torch.tanh(x).cumsum(1)
        y = torch.relu(x)
        return y + torch.sigmoid(y)

    steps = trace.trace(net, X)
    assert [type(step.module) for step in steps] == [nn.ReLU, nn.Sigmoid, ops.Add]
    assert [step.inputs for step in steps] == [(0,), (1,), (1, 2)]


def test_moving_the_batch_dimension_is_not_a_step():
    assert trace.trace(lambda x: x.transpose(0, 1).contiguous().transpose(0, 1), X) == []
    (step,) = trace.trace(lambda x: x.t().relu().t(), X)
    assert isinstance(step.module, nn.ReLU)


class Constants(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_gain = nn.Parameter(torch.tensor([0.1, -0.2, 0.3, 0.4]))
        self.register_buffer("offset", torch.tensor([[1.0, 2.0, 3.0, 4.0]]))

    def forward(self, x):
        x = 2 - x * self.log_gain.exp() + self.offset
        x = (x - 1) / self.offset + torch.ones(4)
        x = torch.sub(x, self.offset, alpha=2.0)
        return torch.add(-x, x, alpha=0.5) - 3 * x


class Sizes(nn.Module):
    def forward(self, x):
        b, c, h, w = x.shape
        x = x.reshape(-1, c, h * w)
        x = x.view(x.size(0), x.shape[1] // 2, x.shape[-2], -1)
        x = x.view(b, c, 3, 4).flatten(1).unsqueeze(1).squeeze(1)
        return torch.reshape(x, (b, x.size()[1])).contiguous().clone()


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 1, 3, 3, generator=torch.Generator().manual_seed(1)))
        self.norm = nn.BatchNorm2d(4).eval()
        with torch.no_grad():
            self.norm.running_mean += torch.tensor([0.1, 0.2, 0.3, 0.4])
            self.norm.running_var *= torch.tensor([0.5, 1.0, 2.0, 3.0])

    def forward(self, x):
        x = F.pad(x, (1, 1)).permute(0, 1, 3, 2).transpose(2, 3)[:, :, ::2, 1:-1]
        x = F.conv2d(x, self.weight, padding=1, groups=2)
        n = self.norm
        x = F.batch_norm(x, n.running_mean, n.running_var, n.weight, n.bias, n.training, 0.1, n.eps)
        x = torch.cat([F.avg_pool2d(x, 2, stride=1), F.max_pool2d(x, 2, 1)], dim=1)
        x = torch.cat((F.adaptive_avg_pool2d(x, 2), F.adaptive_max_pool2d(x, (2, 2))), -1)
        y = F.conv1d(x.flatten(2), torch.ones(3, 8, 3), torch.ones(3), 1, 1)
        y = torch.cat([F.avg_pool1d(y, 2), F.max_pool1d(y, 2)], 1)
        y = F.adaptive_avg_pool1d(y, 2) + F.adaptive_max_pool1d(y, 2)
        y = F.dropout(F.softmax(F.layer_norm(y, (2,)), dim=1), 0.5, False)
        return y.mean(2) + y.mean((2,), keepdim=True).squeeze(-1) + torch.mean(y, -1).softmax(1)


@pytest.mark.parametrize(
    ("net", "shape"),
    [(Constants(), (5, 4)), (Sizes(), (5, 2, 3, 4)), (Images(), (5, 2, 8, 8))],
    ids=["constants", "sizes", "images"],
)
def test_every_spelling_of_constants_sizes_and_image_ops_is_traced(net, shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    steps = trace.trace(net, x)
    assert not [step.module.text for step in steps if isinstance(step.module, ops.Unknown)]
    assert torch.allclose(run(steps, x), net(x), rtol=1e-5, atol=1e-6)


def over_a_view_read_later(x):
    x = x + 1
    view = x[:, :2]
    x.relu_()
    return torch.cat([x, view], 1)


def through_a_view(x):
    x = x + 1
    view = x.flatten(1)
    view.relu_()
    return x


def into_a_constant(x):
    y = torch.ones(len(x), 2, 5)
    whole = y.view(len(x), 10)
    y[:, 0, 1:] = x
    y[:, 1] *= 3
    y[:, :, 2:4].add_(x[:, None, :2])
    whole[:, 3] = 0
    return whole + y.flatten(1)


def through_names(x):
    x = x + 1
    y = nn.Identity()(x)
    y *= 2
    x += y
    return torch.cat([x, y], 1)


def inplace_constants(x):
    x = x + 0
    y = x
    x += 1
    y -= 3
    x /= 2
    return x.mul_(3) + y


def test_ops_in_place_write_for_every_name_of_a_value():
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    nets = (through_names, inplace_constants, over_a_view_read_later, through_a_view, into_a_constant)
    for net in (*nets, lambda x: torch.cat([x, x.add(1)], 1)):  # whose 1 is not the option of an op in place
        assert torch.equal(run(trace.trace(net, x), x), net(x)), net


def test_tracing_leaves_parameters_as_they_are():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.offset = nn.Parameter(torch.ones(4), requires_grad=False)

        def forward(self, x):
            offset = self.offset
            offset -= 3
            return x + offset

    net = Net()
    steps = trace.trace(net, X)
    assert torch.equal(net.offset, torch.ones(4))
    assert torch.equal(run(steps, torch.zeros(1, 4)), torch.full((1, 4), -2.0))


def test_draws_are_no_constants():
    state = torch.get_rng_state()
    steps = trace.trace(lambda x: x * F.dropout(torch.ones(4)), X)
    assert torch.equal(torch.get_rng_state(), state)
    assert any(isinstance(step.module, ops.Unknown) for step in steps)


@pytest.mark.parametrize(
    ("net", "words"),
    [
        (lambda x: x * x.mean(), "a mean over the batch dimension"),
        (lambda x: x + x[0], "select that does not keep the batch dimension"),
        (lambda x: x.softmax(0), "Softmax over the batch dimension"),
        (lambda x: x + x.sum(0), "a sum over the batch dimension"),
        (lambda x: x.cumsum(0), "cumsum over the batch dimension"),
        (lambda x: x @ x.mT @ x, "a product that mixes the examples of a batch"),
        (lambda x: torch.cat([x, x.flip(0)], 1), "flip that does not keep the batch dimension"),
        (lambda x: x + torch.arange(len(x)).reshape(-1, 1), "constants that differ from example to example"),
        (lambda x: x[:, None].expand(-1, 4, -1) @ torch.rand(4, 2), "rand, which draws random numbers"),
        (lambda x: torch.linalg.svdvals(x[:, None]), "linalg_svd"),
        (lambda x: x[0], "select that does not keep the batch dimension"),
        (lambda x: x * len(x), "arithmetic with the size of the batch"),
        (lambda x: x + torch.from_numpy(2 * x.detach().numpy()), "constants that differ"),
        (lambda x: torch.where(x > x.flip(1), x, 0.1 * x), "where by comparisons of several values"),
        (lambda x: x.sort(1)[1].float(), "sort, which gives no real numbers"),
        (lambda x: x.div(2, rounding_mode="floor"), "a division with rounding_mode='floor'"),
        (lambda x: x.clamp(max=torch.full(x.shape[1:], torch.inf)), "include an infinite one"),
    ],
)
def test_an_unsupported_op_is_named(net, words):
    texts = [getattr(step.module, "text", "") for step in trace.trace(net, X)]
    assert any(words in text for text in texts), texts


def counting():
    times = itertools.count(1)
    return lambda x: x * (1.5 * next(times))


def written_by_numpy(x):
    y = x + 1
    y.numpy()[:] = 5
    return y


def written_by_another_name(x):
    y = x + 1
    torch.from_dlpack(y).mul_(2)
    return y


@pytest.mark.parametrize(
    ("net", "words"),
    [
        (lambda x: x if x.sum() > 0 else -x, "control flow depends on values"),
        (lambda x: x if len(x) > 2 else -x, "control flow depends on the size of the batch"),
        (counting(), "arithmetic depends on the size of the batch"),
        (lambda x: (x, x), "does not return one tensor"),
        (lambda x: torch.ones(3), "does not return one tensor"),
        (lambda x: x.reshape(-1), "does not keep the batch dimension"),
        (lambda x: x.mT, "does not keep the batch dimension"),
        (written_by_numpy, "other ways than torch's ops"),
        (written_by_another_name, "other ways than torch's ops"),
        (lambda x: x + torch.ones(1 if len(x) == 1 else 2, 4), "cannot be run on a batch of 3"),
    ],
)
def test_a_net_that_cannot_be_traced_is_refused_with_the_reason(net, words):
    with pytest.raises(trace.UntraceableError, match=words):
        trace.trace(net, X)


class SequenceFirst(nn.Module):
    """A net that moves its batch about: sequence first, heads folded into it, windows of an image."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)
        self.token = nn.Parameter(torch.randn(1, 1, 6, generator=torch.Generator().manual_seed(2)))

    def forward(self, x):
        b, s, e = x.shape
        x = torch.cat([self.token.expand(b, -1, -1), x], 1).transpose(0, 1)
        heads = self.project(x).reshape(s + 1, b * 2, e // 2).transpose(0, 1)
        scores = torch.bmm(heads, heads.mT) / e**0.5
        scores = scores.masked_fill(torch.ones(s + 1, s + 1).triu(1).bool(), float("-inf"))
        mixed = torch.bmm(scores.softmax(-1), heads).transpose(0, 1).reshape(s + 1, b, e)
        x = self.norm(x + mixed).permute(1, 0, 2)
        windows = x[:, 1:].reshape(b, 2, 2, e).permute(0, 2, 1, 3).reshape(b * 2, 2, e).mean(1)
        return windows.view(b, -1) + x[:, 0].repeat(1, 2)


def test_a_net_may_hold_its_batch_anywhere():
    net = SequenceFirst().eval()
    x = torch.randn(5, 4, 6, generator=torch.Generator().manual_seed(0))
    steps = trace.trace(net, x)
    assert not [step.module.text for step in steps if isinstance(step.module, ops.Unknown)]
    torch.testing.assert_close(run(steps, x), net(x))


def test_hooks_are_part_of_what_a_net_does():
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    net[0].register_forward_hook(lambda _module, _args, y: 2 * y)
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(run(trace.trace(net, x), x), net(x))


@pytest.mark.parametrize("training", [False, True])
def test_tracing_leaves_buffers_random_numbers_and_modules_as_they_are(training):
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout()).train(training)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    state, hooks = torch.get_rng_state(), len(nn.modules.module._global_forward_hooks)
    trace.trace(net, X)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert len(nn.modules.module._global_forward_hooks) == hooks


def test_scripted_and_exported_nets_are_traced_like_others():
    net = nn.Sequential(nn.Linear(4, 3), nn.GELU(), nn.Linear(3, 2)).eval()
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    exported = torch.export.export(net, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},)).module()
    for other in (torch.jit.trace(net, x), exported):
        steps = trace.trace(other, x)
        assert [type(step.module) for step in steps] == [nn.Linear, nn.GELU, nn.Linear]
        torch.testing.assert_close(run(steps, x), net(x))


class Windows(nn.Module):
    """Convolutions, norms and recurrence on parts of an image that are folded into the batch."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2)
        self.rnn = nn.LSTM(4, 3, batch_first=True, bidirectional=True)

    def forward(self, x):
        b, h, w = x.shape
        parts = x.reshape(b, 2, h // 2, w).reshape(b * 2, 1, h // 2, w)
        parts = F.max_pool2d(self.norm(self.conv(parts)), (1, 2))
        rows = parts.reshape(b * 4, h // 2, w // 2)[..., :4]
        return self.rnn(rows)[0].reshape(b, -1)


def test_parts_that_are_folded_into_the_batch_are_parts_of_an_event():
    torch.manual_seed(0)
    net, x = Windows().eval(), torch.randn(5, 4, 8)
    steps = trace.trace(net, x)
    assert not [step.module.text for step in steps if isinstance(step.module, ops.Unknown)]
    assert any(isinstance(step.module, ops.Folded) for step in steps)
    torch.testing.assert_close(run(steps, x), net(x))
    law = sr.DiagonalGaussian(x, torch.ones_like(x))
    conv = nn.Sequential(Parts(net.conv), nn.Flatten())
    for rule in ("marginal_sdp", "moment_matching"):
        found, expected = (sr.propagate(conv, law, rule), sr.propagate(conv, law, "sdp"))
        torch.testing.assert_close(found.variance, expected.variance)


class Parts(nn.Module):
    def __init__(self, op):
        super().__init__()
        self.op = op

    def forward(self, x):
        b, h, w = x.shape
        return self.op(x.reshape(b * 2, 1, h // 2, w)).reshape(b, 2, -1)


def test_a_net_that_amplifies_rounding_is_traced():
    torch.manual_seed(0)
    depthwise = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, groups=8), nn.Flatten())
    assert trace.trace(lambda x: torch.sin(1e7 * depthwise(x)), torch.randn(1, 3, 8, 8))


@pytest.mark.parametrize("written", [written_by_numpy, written_by_another_name])
def test_each_output_is_looked_at_by_itself(written):
    """However large the others are."""
    with pytest.raises(trace.UntraceableError, match="other ways than torch's ops"):
        trace.trace(lambda x: torch.cat([1e4 * x, written(x)], 1), X)


@pytest.mark.parametrize(
    "net",
    [
        lambda x: torch.cat([x + 1 - x - 1, 1e6 * x], 1),  # what rounding leaves beside what is large
        lambda x: torch.softmax(40 * x, 1),  # some of which are no normal numbers
        lambda x: torch.log((1e3 * x).round()),  # infinite, or none
        lambda x: torch.cat([torch.exp(1e3 * x), x.half().float()], 1),
    ],
)
def test_outputs_that_are_rounding_or_no_numbers_are_no_fault(net):
    assert trace.trace(net, torch.randn(1, 5))
