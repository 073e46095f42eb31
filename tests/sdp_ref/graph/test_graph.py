"""The trace: every spelling of an op becomes the module that does the same."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sdp_ref.graph import ops, trace


class Spelled(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        h = F.relu(self.first(x))
        h = h + self.first(h).sigmoid()
        return F.leaky_relu(self.second(h), 0.2)


def run(steps, x):
    """What the steps compute, by their own modules."""
    values = [x]
    for step in steps:
        values.append(step.module(*(values[i] for i in step.inputs)))
    return values[-1]


@pytest.mark.rounding
@pytest.mark.parametrize(
    "net",
    [
        nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Sequential(nn.Linear(3, 2), nn.Tanh())),
        Spelled(),
        nn.ReLU(),
        nn.Linear(4, 2),
        torch.relu,
        F.silu,
        lambda x: torch.tanh(x) + x,
        lambda x: x + x,
        lambda x: F.gelu(torch.flatten(x, 1)),
        nn.Sequential(),
    ],
)
def test_steps_compute_what_the_net_computes(net):
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(run(trace.trace(net), x), net(x))


def test_steps_share_the_parameters_and_name_their_place():
    net = nn.Sequential(nn.Linear(4, 3), nn.Sequential(nn.ReLU(), nn.Linear(3, 2)))
    steps = trace.trace(net)
    assert [step.path for step in steps] == ["0", "1.0", "1.1"]
    assert steps[2].module is net[1][1]
    weight = nn.Parameter(torch.ones(2, 4))
    (step,) = trace.trace(lambda x: F.linear(x, weight))
    assert step.module.weight is weight
    assert step.module.bias is None


def test_ops_without_an_entry_are_kept_as_unknown_with_their_name():
    (step,) = trace.trace(lambda x: x.cumsum(1))
    assert isinstance(step.module, ops.Unknown)
    assert step.module.text == "Tensor.cumsum"
    (step,) = trace.trace(lambda x: x * x)
    assert step.module.text == "a product of two values"
    (step,) = trace.trace(lambda x: 1 / x)
    assert step.module.text == "a division by a value"


def test_a_dead_branch_is_not_the_output():
    def net(x):
        y = torch.relu(x)
        torch.tanh(x)
        return y

    (step,) = trace.trace(net)
    assert isinstance(step.module, nn.ReLU)


def test_a_dead_branch_is_left_out_and_the_rest_numbered_anew():
    def net(x):
        torch.tanh(x).cumsum(1)
        y = torch.relu(x)
        return y + torch.sigmoid(y)

    steps = trace.trace(net)
    assert [type(step.module) for step in steps] == [nn.ReLU, nn.Sigmoid, ops.Add]
    assert [step.inputs for step in steps] == [(0,), (1,), (1, 2)]


class Constants(nn.Module):
    """Parameters, buffers, numbers and what is computed from them."""

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
    """A forward pass that reads shapes."""

    def forward(self, x):
        b, c, h, w = x.shape
        x = x.reshape(-1, c, h * w)
        x = x.view(x.size(0), x.shape[1] // 2, x.shape[-2], -1)
        x = x.view(b, c, 3, 4).flatten(1).unsqueeze(1).squeeze(1)
        return torch.reshape(x, (b, x.size()[1])).contiguous().clone()


class Images(nn.Module):
    """Functional forms on images."""

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
def test_spellings_of_constants_sizes_and_images(net, shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    steps = trace.trace(net)
    assert not [step.module.text for step in steps if isinstance(step.module, ops.Unknown)]
    assert torch.allclose(run(steps, x), net(x), rtol=1e-5, atol=1e-6)


class BasicBlock(nn.Module):
    """The residual block of ResNet-18 as torchvision writes it, in-place ops included."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outputs))

    def forward(self, x):
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


@pytest.mark.rounding
def test_a_residual_net_of_blocks_and_their_paths():
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, 1, 1),
        BasicBlock(4, 4, 1),
        BasicBlock(4, 6, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    ).eval()
    steps = trace.trace(net)
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(run(steps, x), net(x))
    assert {"1.conv1", "2.downsample.1"} <= {step.path for step in steps}
    assert sum(isinstance(step.module, ops.Add) for step in steps) == 2


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
    for net in (through_names, inplace_constants):
        assert torch.equal(run(trace.trace(net), x), net(x))
    for net in (over_a_view_read_later, through_a_view):
        steps = trace.trace(net)
        assert any("view is read later" in getattr(step.module, "text", "") for step in steps), net


def test_a_positional_one_does_not_make_an_op_in_place():
    def net(x):
        y = x.flatten(1)
        z = x.add(1)
        return torch.cat([y, z.flatten(1), x.flatten(1)], 1)

    x = torch.randn(5, 2, 2, generator=torch.Generator().manual_seed(0))
    assert torch.equal(run(trace.trace(net), x), net(x))


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
    steps = trace.trace(net)
    assert torch.equal(net.offset, torch.ones(4))
    assert torch.equal(run(steps, torch.zeros(1, 4)), torch.full((1, 4), -2.0))


class Drawing(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return x * F.dropout(self.weight)


def test_draws_are_no_constants():
    state = torch.get_rng_state()
    steps = trace.trace(Drawing())
    assert torch.equal(torch.get_rng_state(), state)
    assert any(isinstance(step.module, ops.Unknown) for step in steps)


@pytest.mark.parametrize(
    ("net", "words"),
    [
        (lambda x: x.view(1, -1), "does not keep the batch"),
        (lambda x: x.reshape(-1), "does not keep the batch"),
        (lambda x: x[0], "index into the batch"),
        (lambda x: (-x).view(x.size(0), x.size(1), x.size(2)), "sizes of another value"),
        (lambda x: x[:, [0, 1], [0, 1]], "getitem with these arguments"),
        (lambda x: F.pad(x, (1, 1), value=2.0), "padding with anything but zeros"),
        (lambda x: torch.cat([x, torch.ones(5, 4)], 1), "concatenation with a constant"),
        (lambda x: x.mean(), "mean with these arguments"),
        (lambda x: F.linear(torch.ones(2, 4), x), "linear with these arguments"),
        (lambda x: x.softmax(1, torch.float64), "softmax with these arguments"),
    ],
)
def test_arguments_without_a_module_are_named(net, words):
    assert any(words in getattr(step.module, "text", "") for step in trace.trace(net))


@pytest.mark.parametrize(
    "net",
    [
        lambda x: x if x.sum() > 0 else -x,
        lambda x, y: x,
        lambda x: (x, x),
        lambda x: torch.ones(3),
    ],
)
def test_what_cannot_be_traced_is_said(net):
    with pytest.raises(trace.UntraceableError):
        trace.trace(net)
