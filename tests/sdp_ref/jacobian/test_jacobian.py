import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import sdp_ref as sr
from sdp_ref.jacobian.jacobian import jacobian_of
from tests.sdp_ref.common import draw, jacobians, seeded

DOUBLE = torch.float64


def images(batch=3, channels=2, size=8, seed=1):
    return draw(batch, channels, size, size, seed=seed)


def by_torch(net, x):
    return jacobians(net, x).unflatten(2, x.shape[1:])


class Residual(nn.Module):
    def __init__(self, inplace=False):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(2, 6, 3, 2, 1), nn.Conv2d(6, 6, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(6), nn.BatchNorm2d(6, affine=False)
        self.shortcut = nn.Conv2d(2, 6, 1, 2)
        self.inplace = inplace

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)), inplace=self.inplace)))
        if self.inplace:
            y += self.shortcut(x)
            return F.relu_(y)
        return F.relu(y + self.shortcut(x))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.tail = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        steps = 0
        while steps < 3 or (float(x.detach().abs().max()) < 1 and steps < 5):
            x = torch.tanh(self.layer(x)) + x
            steps += 1
        return self.tail(x)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.block(x.flatten(2).mT.reshape(len(x), -1, 8)).mean(1))


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x, x + 1

    @staticmethod
    def backward(ctx, g, _h):
        return 2 * g * ctx.saved_tensors[0]


def writes_over_its_input(x):
    x.mul_(2)
    x[:, 0] += x[:, 1].clone().sin()
    x[:, 1:].exp_()
    return x.flatten(1)[:, :5]


def concatenates(x):
    a, b = x.split([1, 1], 1)
    return torch.cat([a * b, a, x.amax(1, keepdim=True)], 1).flatten(2).sum(2)


def broadcasts(x):
    return (x.mean((2, 3), keepdim=True) * x + x[:, :1] / (1 + x[:1].shape[0])).flatten(1)[:, :7]


def wide_to_narrow(*layers, features):
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, 4))


NETS = {
    "convolutions": wide_to_narrow(
        nn.Conv2d(2, 6, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(6, 8, 2), nn.Tanh(), features=72
    ),
    "strides that leave rows out": wide_to_narrow(
        nn.Conv2d(2, 6, 2, stride=3), nn.SiLU(), nn.Conv2d(6, 5, 2, stride=2), features=5
    ),
    "dilation and groups": wide_to_narrow(
        nn.Conv2d(2, 6, 3, dilation=2, groups=2),
        nn.GELU(),
        nn.Conv2d(6, 6, 3, padding="same", groups=3),
        features=96,
    ),
    "many channels": wide_to_narrow(nn.Conv2d(2, 6, 1), nn.Sigmoid(), nn.Conv2d(6, 3, (3, 1)), features=144),
    "transposed": wide_to_narrow(
        nn.ConvTranspose2d(2, 4, 3, stride=2, padding=1, output_padding=1),
        nn.ReLU(),
        nn.MaxPool2d(4),
        features=64,
    ),
    "one dimension": nn.Sequential(nn.Flatten(2), nn.Conv1d(2, 3, 5, stride=4), nn.ReLU(), nn.Flatten()),
    "three dimensions": nn.Sequential(nn.Unflatten(1, (1, 2)), nn.Conv3d(1, 2, (2, 3, 3), 4), nn.Flatten()),
    "max-pool": wide_to_narrow(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.MaxPool2d(2), features=36),
    "max-pool with overlap": wide_to_narrow(nn.MaxPool2d(3, 2, 1), nn.Softplus(), features=32),
    "average-pool": wide_to_narrow(nn.AvgPool2d(3, 2, 1), nn.LeakyReLU(), features=32),
    "adaptive pool": wide_to_narrow(nn.Conv2d(2, 4, 3), nn.ELU(), nn.AdaptiveAvgPool2d(3), features=36),
    "global pool": wide_to_narrow(nn.Conv2d(2, 4, 3), nn.Mish(), nn.AdaptiveAvgPool2d(1), features=4),
    "batch norm": wide_to_narrow(nn.BatchNorm2d(2), nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), features=108),
    "batch norm of vectors": nn.Sequential(
        nn.Flatten(), nn.Linear(128, 6), nn.BatchNorm1d(6), nn.Linear(6, 2)
    ),
    "instance norm": wide_to_narrow(nn.InstanceNorm2d(2, affine=True), features=128),
    "layer norm": wide_to_narrow(nn.LayerNorm((8, 8)), nn.GroupNorm(1, 2), features=128),
    "residual": nn.Sequential(Residual(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    "residual, in place": nn.Sequential(Residual(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    "in place": wide_to_narrow(nn.Conv2d(2, 4, 3), nn.ReLU(inplace=True), features=144),
    "attention": Attention(),
    "softmax": nn.Sequential(nn.Flatten(), nn.Linear(128, 5), nn.Softmax(-1)),
    "a linear map of each site": nn.Sequential(nn.Linear(8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2)),
    "lstm": nn.Sequential(nn.Flatten(1, 2), nn.LSTM(8, 3, batch_first=True)),
}
FUNCTIONS = {
    "writes over its input": writes_over_its_input,
    "concatenates": concatenates,
    "broadcasts": broadcasts,
    "minus": lambda v: (2 - v.flatten(1)[:, :3]).sub(v.flatten(1)[:, 3:6], alpha=3),
    "itself": lambda v: v,
    "a view of itself": lambda v: v.flatten(1),
    "transposes": lambda v: (v.transpose(0, 2).exp() * v.transpose(0, 2)).permute(2, 3, 1, 0)[:, 0, 0],
    "an autograd.Function": lambda v: Square.apply(v)[0].flatten(1)[:, :4],
    "complex numbers": lambda v: torch.fft.rfft(v).mul(1 + 2j).abs().flatten(1)[:, :6],
    "its input twice": lambda v: (v * v + v).flatten(1)[:, :3],
}


def first_output(net):

    def last_output(v):
        y = net(v)
        return y[0][:, -1] if isinstance(y, tuple) else y

    return last_output


@pytest.mark.rounding
@pytest.mark.parametrize("name", NETS)
def test_nets_agree_with_torch(name):
    net, x = first_output(seeded(NETS[name])), images()
    value, found = jacobian_of(net, x)
    expected = by_torch(net, x)
    assert torch.equal(value, net(x).detach())
    assert found.shape == (3, value[0].numel(), 2, 8, 8)
    assert torch.allclose(found, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_agree_with_torch(name):
    net, x = FUNCTIONS[name], images()
    before = x.clone()
    value, found = jacobian_of(net, x)
    assert torch.equal(x, before)
    expected = by_torch(lambda v: net(v.clone()), x)
    assert torch.allclose(value, net(x.clone()))
    assert torch.allclose(found, expected, rtol=1e-12, atol=1e-13)


def test_nets_that_no_trace_can_follow():
    net = seeded(Recurrent())
    x = images().flatten(1)[:, :4].contiguous() / 10
    value, found = jacobian_of(net, x)
    # The number of steps depends on the largest value of the batch, so that rows are taken together.
    columns = torch.autograd.functional.jacobian(net, x)
    expected = torch.stack([columns[i, :, i] for i in range(3)])
    assert torch.allclose(value, net(x))
    assert torch.allclose(found, expected, rtol=1e-12)


def test_inputs_and_outputs_that_have_no_part():
    x = images().flatten(1)
    _, found = jacobian_of(lambda v: v[:, 3:5] * 2, x)
    assert found.count_nonzero() == 3 * 2
    assert torch.equal(found[:, 0, 3], torch.full((3,), 2.0, dtype=DOUBLE))
    weight = torch.ones(2, requires_grad=True, dtype=DOUBLE)
    for constant in (lambda v: torch.ones(len(v), 2), lambda v: weight.expand(len(v), 2)):
        value, found = jacobian_of(constant, x)
        assert found.shape == (3, value.shape[1], 128)
        assert not found.any()
    _, found = jacobian_of(lambda v: torch.stack([v[:, 0], weight[0].expand(len(v))], 1), x)
    assert found[:, 0, 0].eq(1).all()
    assert not found[:, 1].any()


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("outputs", [3, 40])  # reverse and forward mode
def test_the_derivative_at_a_kink_is_the_one_from_the_right(outputs, inplace):
    x = torch.zeros(2, 5, dtype=DOUBLE)
    spread = torch.ones(5, outputs, dtype=DOUBLE)
    forms = [nn.ReLU(inplace), nn.LeakyReLU(0.1, inplace), lambda v: F.relu(v, inplace)]
    forms += [torch.relu_, torch.Tensor.relu_] if inplace else [torch.relu, lambda v: v.relu()]
    for form in forms:
        _, found = jacobian_of(lambda v, form=form: form(1 * v) @ spread, x)
        assert found.shape == (2, outputs, 5)
        assert found.eq(1).all()


@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 6), st.integers(1, 10**9))
def test_forward_and_reverse_mode_and_every_memory_bound_agree(batch, inputs, outputs, max_bytes):
    net = seeded(nn.Sequential(nn.Linear(inputs, 7), nn.SiLU(), nn.ReLU(True), nn.Linear(7, outputs)))
    x = torch.linspace(-1, 1, batch * inputs, dtype=DOUBLE).reshape(batch, inputs)
    _, found = jacobian_of(net, x, max_bytes=max_bytes)
    assert torch.allclose(found, by_torch(net, x), rtol=1e-10, atol=1e-13)


def test_forward_mode_follows_ops_in_place_and_gives_way_where_it_cannot():
    x = images().flatten(1)[:, :2].contiguous()
    spread = torch.linspace(-1, 1, 10, dtype=DOUBLE).reshape(2, 5)
    for net in (
        lambda v: F.relu_(v.mul_(3)) @ spread,
        lambda v: Square.apply(v)[0] @ spread,
        lambda v: (v @ spread).cumprod(1),
    ):
        _, found = jacobian_of(net, x)
        assert torch.allclose(found, by_torch(lambda v, net=net: net(v.clone()), x), rtol=1e-12)


@pytest.mark.parametrize("kind", ["gaussian", "diagonal", "cauchy", "stable"])
def test_sdp_in_parts_of_the_batch_is_sdp(kind):
    net, x = seeded(NETS["max-pool"]), images()
    scale = torch.rand(x.shape, generator=torch.Generator().manual_seed(2), dtype=DOUBLE)
    law = {
        "gaussian": lambda: sr.Gaussian(x, torch.diag_embed(scale.flatten(1)) + 0.1),
        "diagonal": lambda: sr.DiagonalGaussian(x, scale),
        "cauchy": lambda: sr.Cauchy(x, scale),
        "stable": lambda: sr.SymmetricStable(x, scale, 1.5),
    }[kind]()
    whole = sr.propagate(net, law, "sdp")
    one_row = 2 * x[0].nbytes * whole.dimension
    spread = "covariance" if kind in ("gaussian", "diagonal") else "scale"
    for max_bytes in (one_row, one_row // 2, 1):
        parts = sr.propagate(net, law, sr.rule("sdp", max_bytes=max_bytes))
        assert type(parts) is type(whole)
        assert torch.allclose(parts.location, whole.location)
        assert torch.allclose(getattr(parts, spread), getattr(whole, spread), rtol=1e-12)


class Largest(TorchDispatchMode):
    """Bytes of the largest tensor that any op makes."""

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for each in result if isinstance(result, tuple | list) else [result]:
            if isinstance(each, torch.Tensor) and each._base is None:
                self.bytes = max(self.bytes, each.untyped_storage().nbytes())
        return result


@pytest.mark.parametrize("family", [sr.DiagonalGaussian, sr.Cauchy])
def test_sdp_of_many_outputs_never_holds_the_whole_jacobian(family):
    weight = torch.randn(1, 1, 5, generator=torch.Generator().manual_seed(0))
    net = lambda v: F.conv1d(v.unsqueeze(1), weight, stride=10).flatten(1).tanh()  # noqa: E731
    x = torch.linspace(-2, 2, 2000).unsqueeze(0)
    law = family(x, torch.linspace(0.01, 0.1, 2000).unsqueeze(0))
    whole = sr.propagate(net, law, "sdp")
    outputs = whole.dimension
    assert outputs == 200  # their Jacobian takes 1.6 MB, their covariance 0.32
    bound = 400_000
    with Largest() as largest:
        parts = sr.propagate(net, law, sr.rule("sdp", max_bytes=bound))
    assert largest.bytes <= bound
    name = "covariance" if family is sr.DiagonalGaussian else "scale"
    assert torch.allclose(getattr(parts, name), getattr(whole, name), rtol=1e-6)


def test_float32_agrees_with_float64():
    """Float32 takes the paths of a CPU's convolutions: channels last, and patches where channels are few."""
    for name in ("convolutions", "many channels", "dilation and groups", "residual, in place", "transposed"):
        net, x = seeded(NETS[name]), images()
        _, exact = jacobian_of(net, x)
        _, found = jacobian_of(net.float(), x.float())
        net.double()
        assert found.dtype == torch.float32
        assert (found - exact).abs().max() < 1e-5 * exact.abs().max()


def test_noise_of_a_large_image_needs_no_covariance_of_its_own():
    x = torch.zeros(1, 3, 300, 300)  # whose covariance would take 291 GB
    net = nn.Sequential(nn.AvgPool2d(10), nn.Flatten(), nn.Linear(2700, 2)).eval()
    y = sr.propagate(net, sr.DiagonalGaussian(x, torch.ones_like(x)), "sdp")
    assert torch.allclose(y.covariance[0], net[2].weight @ net[2].weight.mT / 100, rtol=1e-5)


@pytest.mark.parametrize(
    "name", ["convolutions", "residual", "batch norm", "layer norm", "max-pool", "global pool"]
)
def test_gradients_of_the_jacobian_are_torchs_own(name):
    net = seeded(NETS[name])
    x = images(batch=2).requires_grad_()
    parameters = [x, *net.parameters()]
    _, found = jacobian_of(net, x, create_graph=True)
    weight = draw(*found.shape, seed=3)
    gradients = torch.autograd.grad((found * weight).sum(), parameters, materialize_grads=True)
    value = net(x)
    rows = [torch.autograd.grad(value[:, k].sum(), x, create_graph=True)[0] for k in range(value.shape[1])]
    loss = (torch.stack(rows, 1) * weight).sum()
    expected = torch.autograd.grad(loss, parameters, materialize_grads=True)
    for a, b in itertools.zip_longest(gradients, expected):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-11)


class Coupled(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3, **options), nn.Flatten())

    def forward(self, x):
        return self.body(x)


def test_nets_whose_rows_see_each_other_are_refused():
    law = sr.DiagonalGaussian(images().float(), torch.ones(3, 2, 8, 8))
    for net in (Coupled().train(), Coupled(track_running_stats=False).eval()):
        with pytest.raises(sr.UnsupportedError, match=r"BatchNorm2d with batch statistics \(at 'body.1'"):
            sr.propagate(net, law, "sdp")
        with pytest.raises(sr.UnsupportedError, match="batch statistics"):
            sr.propagate(lambda v, net=net: net(v), law, "sdp")
    sr.propagate(lambda v: F.dropout(v, training=False).flatten(1)[:, :2], law, "sdp")


class Standardised(nn.Linear):
    """Its weight by a batch normalisation, as weight standardisation often is."""

    def forward(self, x):
        weight = F.batch_norm(self.weight.reshape(1, len(self.weight), -1), None, None, training=True)
        return F.linear(x, weight.reshape_as(self.weight), self.bias)


@pytest.mark.parametrize("outputs", [2, 9])  # walks backward, and forward
@pytest.mark.parametrize("frozen", [False, True])
def test_statistics_of_weights_are_no_statistics_of_a_batch(outputs, frozen):
    net = nn.Sequential(Standardised(4, 5), nn.Tanh(), Standardised(5, outputs)).double()
    net.requires_grad_(not frozen)
    x = torch.randn(3, 4, dtype=torch.float64)
    _, jacobian = jacobian_of(net, x)
    assert torch.allclose(jacobian, by_torch(net, x), rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("layer", [nn.Dropout(), nn.RReLU()])
def test_nets_that_draw_are_refused_in_training_mode(layer):
    net, law = nn.Sequential(nn.Linear(4, 3), layer), sr.DiagonalGaussian(torch.ones(1, 4), torch.ones(1, 4))
    with pytest.raises(sr.UnsupportedError, match=rf"{type(layer).__name__} in training mode \(at '1'"):
        sr.propagate(net.train(), law, "sdp")
    assert sr.propagate(net.eval(), law, "sdp").covariance.shape == (1, 3, 3)
    with pytest.raises(sr.UnsupportedError, match="LSTM in training mode"):
        sr.propagate(nn.Sequential(nn.LSTM(4, 2, 2, dropout=0.5)), law, "sdp")


def test_nets_and_their_gradients_are_left_as_they_are():
    net = seeded(NETS["residual, in place"])
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    jacobian_of(net, images())
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert all(p.grad.eq(1).all() and p.requires_grad for p in net.parameters())
