import math

import numpy as np
import pytest
import torch
from torch import nn

import sdp_ref as sr
from sdp_bench.bench.nets.architectures import ImageArchitecture

RULES = ("sdp", "second_order", "split:base=sdp,k=5", "control_variate:samples=64,coefficient=jacobian")


class Truncated(torch.autograd.Function):
    """A product with a factor, with a backward pass that loses a tenth of it."""

    @staticmethod
    def forward(context, x):
        return 3 * x

    @staticmethod
    def backward(context, gradient):
        return 2.7 * gradient


class Layer(nn.Module):
    def forward(self, x):
        return Truncated.apply(x)


def conv(dtype=torch.float32):
    torch.manual_seed(3)
    return nn.Conv1d(1, 2, 2, dtype=dtype)


def frozen(function):
    """The function with a quarter of it outside autograd."""

    def forward(x):
        with torch.no_grad():
            part = function(x) / 4
        return function(x) * 0.75 + part

    return forward


def through(manager, layer):
    def forward(x):
        with manager():
            return layer(x.unsqueeze(1)).flatten(1)

    return forward


class Reversed(torch.autograd.Function):
    """The identity with a reversed gradient, which calls no function of torch in its forward pass."""

    @staticmethod
    def forward(context, x):
        return x

    @staticmethod
    def backward(context, gradient):
        return -gradient


class Scripted(nn.Module):
    def forward(self, x):
        return x.detach() * x + x


def written(x):
    """Values written into a buffer outside autograd."""
    y = torch.zeros_like(x)
    with torch.no_grad():
        y[:, 1:] = x[:, 1:].exp()
    return y + x


def overwritten(x):
    """A value with a gradient, partly overwritten outside autograd."""
    y = x * 1
    with torch.no_grad():
        y[:, 0] = (3 * x[:, 0]).sin()
    return y


def by_numbers(x):
    factors = [float(number.detach()) for number in x[:, 0]]
    return x * torch.tensor(factors).to(x).unsqueeze(1)


def with_data_replaced(x):
    y = torch.zeros_like(x)
    y.data = 2 * x
    return y + x


def by_vmap(x):
    return torch.func.vmap(lambda row: row * row.detach())(x)


NETS = {
    "a custom identity": lambda _: Reversed.apply,
    "a custom function in a module": lambda dtype: nn.Sequential(nn.Linear(3, 3, dtype=dtype), Layer()),
    "script": lambda _: torch.jit.script(Scripted()),
    "script in a module": lambda dtype: nn.Sequential(
        nn.Linear(3, 3, dtype=dtype), torch.jit.script(Scripted())
    ),
    "a buffer": lambda _: written,
    "a part overwritten": lambda _: overwritten,
    "numbers": lambda _: by_numbers,
    "data replaced": lambda _: with_data_replaced,
    "vmap": lambda _: by_vmap,
    "clone of detached": lambda _: lambda x: x + x.detach().clone().requires_grad_(),
    "no_grad": lambda dtype: through(torch.no_grad, conv(dtype)),
    "inference_mode": lambda dtype: through(torch.inference_mode, conv(dtype)),
    "a branch": lambda _: frozen(torch.tanh),
    "detach": lambda _: lambda x: x * x.detach() + x,
    "data": lambda _: lambda x: torch.cat([x, x.data[:, :1].exp()], 1),
    "numpy": lambda _: lambda x: x + torch.from_numpy(np.sin(x.detach().numpy())) / 8,
    "backward": lambda _: lambda x: Truncated.apply(x).cos(),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", NETS)
def test_dependence_without_a_gradient_is_refused(name, rule):
    for dtype in (torch.float32, torch.float64):
        x = sr.DiagonalGaussian(
            torch.tensor([[0.3, -0.7, 1.1]], dtype=dtype), torch.full((1, 3), 0.04, dtype=dtype)
        )
        with pytest.raises(sr.UnsupportedError, match="without a gradient"):
            sr.propagate(NETS[name](dtype), x, rule)


@pytest.mark.parametrize(("scale", "offset"), [(1e-12, 0.0), (1e-3, 10.0), (1e8, 1.0)])
def test_at_every_scale_of_noise_and_net(scale, offset):
    mean = torch.full((2, 3), offset, dtype=torch.float64)
    net = lambda v: scale * frozen(lambda u: 2 * (u - offset) / scale)(v)  # noqa: E731
    for x in (
        sr.Cauchy(mean, torch.full_like(mean, scale)),
        sr.DiagonalGaussian(mean, torch.full_like(mean, scale**2)),
    ):
        with pytest.raises(sr.UnsupportedError, match="without a gradient"):
            sr.propagate(net, x, "sdp")


def stable_softmax(x):
    powers = (x - x.amax(1, keepdim=True).detach()).exp()
    return powers / powers.sum(1, keepdim=True)


def rounded(step):
    """Steps of a size with the slope of the identity, as nets in training for few bits use them."""
    return lambda x: x + ((x / step).round() * step - x).detach()


def autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (x @ torch.linspace(-1, 1, 15).reshape(3, 5).to(x)).to(x.dtype)


HONEST = {
    "kink at the mean": torch.relu,
    "kinks": lambda x: torch.relu(x @ torch.linspace(-1, 1, 15).reshape(3, 5).to(x)).clamp(max=0.1),
    "dead": lambda x: torch.relu(x - 5),
    "bent at a thousandth": lambda x: torch.relu(x - 1e-3),
    "detached maximum": stable_softmax,
    "steps": lambda x: x + torch.sign(x) + (x > 0).to(x),
    "frequencies": lambda x: torch.cat([torch.sin(2.0**k * math.pi * x) for k in range(8)], 1),
    "constant": lambda x: torch.ones_like(x),
    "offset": lambda x: 1e5 + x,
    "cancelling": lambda x: (x + 1e2) ** 2 - x**2 - 1e4,
    "steep": lambda x: torch.tanh(1e4 * x),
    "steps with a slope": rounded(1 / 8),
    "small steps with a slope": rounded(1e-3),
    "autocast": autocast,
    "lower precision inside": lambda x: torch.tanh(x.bfloat16().to(x.dtype)),
    "digits lost": lambda x: (x + 1e6) - 1e6,
}


@pytest.mark.filterwarnings("ignore::sdp_ref.errors.ReplacedLawWarning")
@pytest.mark.parametrize("name", HONEST)
def test_nets_with_their_derivative_are_served(name):
    for dtype in (torch.float32, torch.float64):
        for seed in range(6):
            mean = torch.zeros(2, 3, dtype=dtype)
            mean[1:] += torch.randn(3, generator=torch.Generator().manual_seed(seed)).to(mean)
            for x in (
                sr.DiagonalGaussian(mean, torch.ones_like(mean)),
                sr.Cauchy(mean[1:], 0.01 + 0 * mean[1:]),
            ):
                sr.propagate(HONEST[name], x, "sdp")


def test_a_net_of_one_batch_size_is_served():
    net = lambda v: (v.reshape(2, 3) * 2).tanh()  # noqa: E731
    x = sr.DiagonalGaussian(torch.ones(2, 3), torch.ones(2, 3))
    slope = 2 / math.cosh(2) ** 2
    assert sr.propagate(net, x, "sdp").variance.numpy() == pytest.approx(slope**2, rel=1e-5)
    with pytest.raises(sr.UnsupportedError, match="without a gradient"):
        sr.propagate(lambda v: frozen(net)(v), x, "sdp")


def test_without_noise_nothing_depends_on_the_derivative():
    x = sr.DiagonalGaussian(torch.ones(1, 3), torch.zeros(1, 3))
    assert not sr.propagate(lambda v: v.detach() * 2, x, "sdp").covariance.any()


@pytest.mark.parametrize("wrap", [lambda net: net, lambda net: lambda x: net(x)], ids=["module", "function"])
def test_a_wide_float32_net_with_kinks_in_every_step_is_accepted(wrap):
    net = ImageArchitecture("cnn3", 1, 28, 10).build(0)
    torch.manual_seed(0)  # differences at this image agree with each other by chance
    x = torch.rand(2, 1, 28, 28)
    assert sr.propagate(wrap(net), sr.DiagonalGaussian(x, torch.ones_like(x)), "sdp").mean.shape == (2, 10)


class Counted(nn.Module):
    """A net that counts the rows that it processes."""

    def __init__(self, function):
        super().__init__()
        self.function, self.rows = function, 0
        self.layer = nn.Linear(6, 5)
        self.eval()

    def forward(self, x):
        self.rows += len(x)
        return self.function(self.layer(x))


def rows_of_a_later_call(net):
    """Rows that `sdp` runs; the first call for a net also checks that the net maps each row by itself."""
    x = sr.DiagonalGaussian(torch.randn(4, 6), torch.ones(4, 6))
    sr.propagate(net, x, "sdp")
    before = net.rows
    sr.propagate(net, x, "sdp")
    return net.rows - before


def masked(x):
    return torch.where(x > 0.1, x.softmax(1), x.abs()) + torch.zeros_like(x) + x.shape[1]


@pytest.mark.parametrize(
    "function", [torch.relu, nn.Hardswish(), masked, lambda x: x.clamp(-1, 1).sort(1)[0]]
)
def test_a_net_of_ops_with_derivatives_is_run_once(function):
    torch.manual_seed(1)
    net = Counted(function)
    assert rows_of_a_later_call(net) == 4


def test_weights_outside_autograd_are_no_suspicion():
    torch.manual_seed(1)
    net = Counted(lambda x: x)
    net.function = lambda x: x / net.layer.weight.detach().norm() + float(net.layer.bias.sum().detach())
    assert rows_of_a_later_call(net) == 4
