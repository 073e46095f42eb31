import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import sdp_ref as sr
from sdp_ref.activations.pointwise import Apply
from sdp_ref.graph import ops
from sdp_ref.graph.trace import trace
from tests.sdp_ref.common import assert_moments_by_sampling, run
from tests.sdp_ref.common import draw as numbers

SAMPLES = 200_000
RULES = ("moment_matching", "marginal_moment_matching", "dvia", "marginal_sdp")


class Halves(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.SiLU()

    def forward(self, x):
        y = self.act(x)
        return torch.where(x < -1, x.exp(), y).masked_fill(x.abs() > 2.5, 1.0)


ONE_VALUE = {  # and where they bend
    "an ELU": (lambda x: torch.where(x > 0, x, x.exp() - 1), (0.0,)),
    "a leaky ReLU": (lambda x: torch.where(x >= 0, x, 0.1 * x), (0.0,)),
    "a gate": (lambda x: x * (x > 0.5), (0.5,)),
    "a cast gate": (lambda x: x * (x > 0.5).float(), (0.5,)),
    "a gate that is shut": (lambda x: x * (1 - (x > 0.5).float()), (0.5,)),
    "a gate cast twice": (lambda x: x * (x > 0.5).int().float(), (0.5,)),
    "a gate ajar": (lambda x: torch.where(x > 0.5, 1.0, 0.1) * x, (0.5,)),
    "a mask": (lambda x: x.masked_fill(x < -0.25, 2.0), (-0.25,)),
    "a band": (lambda x: torch.where((x > -1) & ~(x >= 2), x.square(), torch.zeros_like(x)), (-1.0, 2.0)),
    "values compared": (lambda x: torch.where(x.square() > x + 2, x.square(), x + 2), (-1.0, 2.0)),
    "an absolute value": (lambda x: torch.maximum(x, -x), (0.0,)),
    "a triangle": (lambda x: torch.minimum(F.relu(x + 1), F.relu(1 - x)), (-1.0, 0.0, 1.0)),
    "a sign": (lambda x: torch.sign(x - 0.5), (0.0,)),
    "a clamp within": (lambda x: torch.where(x > -2, x.clamp(0.3, 1.7), -x), (-2.0, 0.3, 1.7)),
    "a module's": (Halves(), (-2.5, -1.0, 0.0, 2.5)),
}


@pytest.mark.parametrize("name", ONE_VALUE)
def test_comparisons_of_functions_of_one_value_become_one_function(name):
    net, bends = ONE_VALUE[name]
    steps = trace(net, torch.zeros(1, 5))
    (fused,) = (step.module for step in steps if isinstance(step.module, Apply))
    assert fused.kinks == pytest.approx(bends, abs=1e-12)
    x = numbers(64, 5)
    assert torch.equal(run(steps, x), net(x).double())


@pytest.mark.parametrize("name", ONE_VALUE)
def test_moments_of_functions_of_one_value_agree_with_samples(name):
    net, _ = ONE_VALUE[name]
    factor = numbers(3, 3, seed=1)
    x = sr.Gaussian(numbers(1, 3, seed=2), (factor @ factor.mT).unsqueeze(0))
    y = sr.propagate(net, x, "moment_matching")
    assert_moments_by_sampling(y, net(x.mean + numbers(SAMPLES, 3, seed=3) @ factor.mT).double())
    marginal = sr.propagate(net, sr.DiagonalGaussian(x.mean, x.variance), "marginal_moment_matching")
    assert torch.allclose(marginal.mean, y.mean, rtol=1e-9, atol=1e-12)
    assert torch.allclose(marginal.variance, y.variance, rtol=1e-9, atol=1e-12)


def test_gradients_pass_through_a_composed_function():
    net, _ = ONE_VALUE["a band"]

    def outputs(mean, variance):
        y = sr.propagate(net, sr.DiagonalGaussian(mean, variance), "marginal_moment_matching")
        return y.mean, y.variance

    given = (numbers(1, 4, seed=4), numbers(1, 4, seed=5).square() + 0.2)
    assert torch.autograd.gradcheck(outputs, [v.requires_grad_() for v in given], atol=1e-6)


def test_a_function_of_a_value_that_holds_its_batch_elsewhere():
    def net(x):
        y = x.transpose(0, 1)
        return torch.where(y > 0, y, 0.2 * y).transpose(0, 1)

    x = sr.DiagonalGaussian(numbers(2, 3, 4), numbers(2, 3, 4, seed=1).square())
    got = sr.propagate(net, x, "marginal_moment_matching")
    expected = sr.propagate(nn.LeakyReLU(0.2), x, "marginal_moment_matching")
    assert torch.allclose(got.mean, expected.mean, rtol=1e-10)
    assert torch.allclose(got.variance, expected.variance, rtol=1e-9)


def test_a_choice_by_another_value_has_the_fallback():
    def net(x):
        a, b = x.split(2, 1)
        return torch.where(a > 0, 2 * b, 1 - b)

    x = sr.DiagonalGaussian(torch.tensor([[1.0, -1.0, 3.0, 4.0]]).double(), torch.ones(1, 4).double())
    for rule in RULES:
        with pytest.raises(sr.UnsupportedError, match="where by comparisons of several values"):
            sr.propagate(net, x, rule)
        y = sr.propagate(net, x, sr.rule(f"{rule}:fallback=linearise"))
        assert torch.equal(y.mean, torch.tensor([[6.0, -3.0]]).double())
        assert torch.allclose(y.variance, torch.tensor([[4.0, 1.0]]).double(), rtol=1e-12)


def test_a_gate_by_another_value_is_a_product():
    x = sr.DiagonalGaussian(torch.tensor([[0.3, 2.0]]).double(), torch.tensor([[1.0, 0.25]]).double())
    y = sr.propagate(lambda v: v[:, 1:] * (v[:, :1] > 0).float(), x, "marginal_moment_matching")
    open_ = torch.special.ndtr(torch.tensor(0.3).double()).item()
    assert y.mean.item() == pytest.approx(2 * open_, rel=1e-9)
    assert y.variance.item() == pytest.approx(4.25 * open_ - 4 * open_**2, rel=1e-9)


def test_a_function_that_bends_without_end_is_refused():
    x = sr.DiagonalGaussian(torch.zeros(1, 2), torch.ones(1, 2))
    with pytest.raises(sr.UnsupportedError, match="bends more than 64 times"):
        sr.propagate(lambda v: torch.where(v.sin() > 0, v, 0.0), x, "marginal_moment_matching")


@pytest.mark.parametrize(
    "net",
    [
        lambda x: x.floor(),
        lambda x: x.round(decimals=1) + 1,
        lambda x: x.int().to(x.dtype),
        lambda x: x % 1 + 2,
        lambda x: torch.where(x > 0, x.frac() + 3, x),
        lambda x: torch.copysign(torch.ones_like(x), x - 2),
        lambda x: torch.where(x > 3.06, 1 / (x - 3.06), x),
    ],
)
def test_what_jumps_without_end_or_is_infinite_is_refused_also_where_the_law_is_narrow(net):
    x = sr.DiagonalGaussian(torch.tensor([[1.9, 2.9]]).double(), torch.tensor([[0.02, 0.001]]).double())
    for rule in ("moment_matching", "marginal_moment_matching", "low_rank"):
        with pytest.raises(sr.UnsupportedError):
            sr.propagate(net, x, rule)


@pytest.mark.parametrize(
    "net",
    [
        lambda x: torch.where(x > 0, x.log(), 0.0),  # of an infinite mean slope
        lambda x: torch.where(x > 0.2, x.rsqrt(), x),  # of a slope that autograd makes NaN
    ],
)
def test_a_slope_that_has_no_mean_is_refused_where_it_is_asked_for(net):
    x = sr.DiagonalGaussian(torch.tensor([[-1.8]]).double(), torch.tensor([[1.86]]).double())
    y = sr.propagate(net, x, "moment_matching")
    outputs = net(x.mean + numbers(SAMPLES, 1) * x.variance.sqrt())
    assert bool(((outputs.mean(0) - y.mean).abs() <= 4 * outputs.std(0) / math.sqrt(SAMPLES)).all())
    with pytest.raises(sr.UnsupportedError, match="the mean derivative of where"):
        sr.propagate(net, x, "low_rank")


@pytest.mark.parametrize(
    "net",
    [
        lambda x: torch.maximum(x, x.flip(1)),
        lambda x: torch.minimum(x[:, :1], x),
        lambda x: torch.max(x, torch.tensor(0.3)),
        lambda x: torch.minimum(torch.linspace(-1, 1, 6).double(), x),
        lambda x: x.clamp(torch.linspace(-1, 0, 6).double(), torch.linspace(0.5, 1, 6).double()),
        lambda x: x.clamp_max(torch.linspace(-1, 1, 6).double()),
        lambda x: x.clamp(min=x.flip(1)),
        lambda x: x.reshape(-1, 2, 3).amax(1),
        lambda x: x.reshape(-1, 2, 3).amax((1, 2), keepdim=True).flatten(1),
        lambda x: x.reshape(-1, 2, 3).amin((-1,), keepdim=True)[..., 0],
        lambda x: x.max(1, keepdim=True).values,
        lambda x: x.reshape(-1, 3, 2).transpose(0, 2).amax(1).t(),
        lambda x: x.norm(dim=1, keepdim=True),
        lambda x: torch.linalg.vector_norm(x.reshape(-1, 2, 3), dim=(1, 2), keepdim=True)[:, 0],
        lambda x: torch.linalg.vector_norm(x.reshape(-1, 2, 3), 1, dim=1),
        lambda x: torch.linalg.vector_norm(x, math.inf, dim=1, keepdim=True),
        lambda x: F.normalize(x.reshape(-1, 2, 3), dim=1).flatten(1),
        lambda x: x / x.norm(dim=-1, keepdim=True),
    ],
)
def test_maxima_clamps_and_norms_are_read_as_they_compute(net):
    x = numbers(7, 6)
    steps = trace(net, x)
    assert not any(isinstance(step.module, ops.Unknown) for step in steps)
    assert torch.allclose(run(steps, x), net(x), rtol=1e-12, atol=1e-14)


def test_clamps_by_constants_have_exact_moments():
    low, high = torch.tensor([-1.0, 0.0, 0.5]).double(), torch.tensor([0.5, 4.0, 1.0]).double()
    x = sr.DiagonalGaussian(numbers(1, 3), torch.tensor([[0.5, 1.0, 2.0]]).double())
    for rule in ("moment_matching", "marginal_moment_matching", "marginal_sdp"):
        y = sr.propagate(lambda v: v.clamp(low, high), x, rule)
        for k in range(3):
            one = sr.DiagonalGaussian(x.mean[:, k : k + 1], x.variance[:, k : k + 1])
            z = sr.propagate(nn.Hardtanh(float(low[k]), float(high[k])), one, rule)
            assert y.mean[0, k].item() == pytest.approx(z.mean.item(), rel=1e-10)
            assert y.variance[0, k].item() == pytest.approx(z.variance.item(), rel=1e-9)


def test_a_normalised_vector_is_taken_as_an_rms_norm():
    x = sr.DiagonalGaussian(numbers(2, 3, 4), numbers(2, 3, 4, seed=1).square())
    norm = nn.RMSNorm(4, eps=0.0, elementwise_affine=False).double()
    for rule in RULES:
        y = sr.propagate(lambda v: F.normalize(v, dim=-1), x, rule)
        z = sr.propagate(lambda v: norm(v) / 2, x, rule)
        assert torch.allclose(y.mean, z.mean, rtol=1e-12)
        assert torch.allclose(y.variance, z.variance, rtol=1e-12)


def test_a_jump_far_from_the_mean_counts_by_its_probability():
    x = sr.DiagonalGaussian(torch.tensor([[0.3]]).double(), torch.tensor([[1e-4]]).double())
    y = sr.propagate(lambda v: v * (v > 0.5).to(v.dtype), x, "low_rank")
    above = 2.7536241186062337e-89  # P(Z > 20)
    assert y.mean.item() == pytest.approx(0.5 * above, rel=2e-3, abs=0)
    assert y.variance.item() == pytest.approx(0.25 * above, rel=3e-3, abs=0)


@pytest.mark.parametrize("least", [0.05, 1.0])
def test_a_vector_divided_by_a_clamped_length_is_a_quotient(least):
    def net(v):
        return F.normalize(v, dim=1, eps=least)

    mean = torch.tensor([[0.025, -0.05, 0.04], [1.0, -2.0, 0.5]]).double()
    x = sr.DiagonalGaussian(mean, 1e-8 * mean.square())
    for rule in ("moment_matching", "marginal_moment_matching", "marginal_sdp", "low_rank"):
        assert torch.allclose(sr.propagate(net, x, rule).mean, net(mean), rtol=1e-6)
