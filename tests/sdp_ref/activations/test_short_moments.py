import pytest
import torch
from torch import nn

import sdp_ref as sr
from sdp_ref.activations import activation
from sdp_ref.activations.base import SHORT
from sdp_ref.activations.numerics.normal import repeated_integrals

SLOPES = (0.01, 0.5, 3.0, -0.3, -1000.0, 1e4, -1.0)
KINDS = [activation("relu")] + [activation("leaky_relu", negative_slope=slope) for slope in SLOPES]
SPEC = "marginal_moment_matching:precision=1e-5"


def laws(scale, dtype):
    """Means and variances of the dtype, of -40 to 40 deviations, with mantissas of all kinds."""
    generator = torch.Generator().manual_seed(0)
    h = torch.cat([torch.linspace(-40, 40, 40_001), 4 * torch.randn(10_000, generator=generator)])
    deviation = scale * (0.1 + torch.rand(h.shape, generator=generator, dtype=torch.float64))
    return (h * deviation).to(dtype), deviation.square().to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_mean_and_deviation_are_relatively_accurate(kind, scale, dtype):
    mean, variance = laws(scale, dtype)
    m, v = kind.short_mean_variance(mean, variance)
    m = m.double()
    v = v.double()
    mean, variance = mean.double(), variance.double()
    want, spread = kind.mean_variance(mean, variance)
    unit = variance.sqrt()
    smallest = 1e-37 * (unit.clamp(min=1) if dtype == torch.float32 else unit)  # float32 itself ends at 1e-38
    terms = torch.maximum(kind.function(mean).abs(), want.abs())
    assert ((m - want).abs() <= SHORT * terms + smallest).all()
    kept = spread > smallest * unit.clamp(min=1)
    assert ((v.sqrt() - spread.sqrt()).abs() <= SHORT * spread.sqrt())[kept].all()
    assert kept.float().mean() > 0.5
    assert (v >= 0).all()


@pytest.mark.parametrize("kind", KINDS[:-1], ids=str)  # those of abs at 0 cancel
def test_gradients_of_first_and_second_order_are_those_in_full(kind):
    mean = torch.tensor([-9.0, -3.0, -0.4, 0.0, 0.3, 2.0, 7.0, 2.0, -2.0], dtype=torch.float64)
    variance = torch.tensor([1.0, 2.0, 0.01, 1.0, 3.0, 0.5, 1.0, 0.0, 0.0], dtype=torch.float64)
    found = []
    for moments in (kind.mean_variance, kind.short_mean_variance):
        at = mean.clone().requires_grad_(), variance.clone().requires_grad_()
        m, v = moments(*at)
        first = torch.autograd.grad((m.square() + 2 * v.square() + m + v).sum(), at, create_graph=True)
        inside = sum(each[:7].square().sum() for each in first)
        found.append([*first, *torch.autograd.grad(inside, at)])
    for want, got in zip(*found, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-9)


def test_a_slope_for_each_channel_is_served_and_learned():
    net = nn.PReLU(3)
    net.weight.data = torch.tensor([0.1, 0.0, -0.5])
    x = sr.DiagonalGaussian(torch.linspace(-2, 2, 24).reshape(2, 3, 4), torch.full((2, 3, 4), 0.3))
    grads = []
    for spec in ("marginal_moment_matching", SPEC):
        y = sr.rule(spec).propagate(net, x)
        grads.append((y.mean, y.variance, *torch.autograd.grad(y.variance.sum() + y.mean.sum(), net.weight)))
    for full, short in zip(*grads, strict=True):
        torch.testing.assert_close(short, full, rtol=1e-5, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_short_dtypes_come_back_and_lose_nothing_inside(dtype):
    mean, variance = laws(1.0, torch.float32)
    mean = mean.to(dtype)
    variance = variance.to(dtype)
    kind = KINDS[0]
    found = kind.short_mean_variance(mean, variance)
    want = kind.mean_variance(mean, variance)
    for short, full in zip(found, want, strict=True):
        assert short.dtype == dtype
        torch.testing.assert_close(short, full)


def test_the_option_changes_what_has_short_formulas_alone():
    x = sr.DiagonalGaussian(torch.linspace(-2, 2, 8).reshape(2, 4), torch.full((2, 4), 0.5))
    for module, changes in ((nn.ReLU(), True), (nn.PReLU(), True), (nn.GELU(), False), (nn.Tanh(), False)):
        full = sr.propagate(module, x, "marginal_moment_matching")
        short = sr.propagate(module, x, SPEC)
        assert torch.equal(full.variance, short.variance) != changes
    finer = sr.propagate(nn.ReLU(), x, "marginal_moment_matching:precision=1e-6")
    assert torch.equal(finer.variance, sr.propagate(nn.ReLU(), x, "marginal_moment_matching").variance)
    assert sr.rule(sr.rule(SPEC).spec) == sr.rule(SPEC)


@pytest.mark.parametrize("order", [1, 2])
def test_repeated_integrals_differentiate_twice(order):
    h = torch.tensor([-6.0, -3.0, -1.0, 0.0, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: repeated_integrals(x)[order], h)
    assert torch.autograd.gradgradcheck(lambda x: repeated_integrals(x)[order], h)
