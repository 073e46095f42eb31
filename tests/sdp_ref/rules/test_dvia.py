"""DVIA's ReLU moments against the published formula in 40 digits, and its known faults."""

import mpmath as mp
import pytest
import torch
from torch import Tensor

from sdp_ref.activations import activation
from sdp_ref.rules.dvia import dvia_relu


def law(h: float, k: float, rho: float, s1: float = 1.0, s2: float = 1.0) -> tuple[Tensor, Tensor]:
    mean = torch.tensor([[h * s1, k * s2]], dtype=torch.float64)
    c = rho * s1 * s2
    return mean, torch.tensor([[[s1 * s1, c], [c, s2 * s2]]], dtype=torch.float64)


def published(h: float, k: float, rho: float) -> float:
    """The formula as printed, which needs rho != 0."""
    with mp.workdps(40):
        h, k, rho = mp.mpf(h), mp.mpf(k), mp.mpf(rho)
        r = mp.sqrt(1 - rho * rho)
        a = mp.asin(rho) - rho / (1 + r)
        q = -(h * h + k * k) * rho / (2 * a * (1 + r)) + h * k * (mp.asin(rho) - rho) / (a * rho)
        return float(rho * (mp.ncdf(h) * mp.ncdf(k) + a / (2 * mp.pi) * mp.exp(q)))


def grid() -> tuple[Tensor, Tensor]:
    """All h, k in [-4, 4] in steps of 1/4."""
    axis = torch.linspace(-4, 4, 33, dtype=torch.float64)
    h, k = torch.meshgrid(axis, axis, indexing="ij")
    return h.flatten(), k.flatten()


@pytest.mark.parametrize("rho", [1e-12, 1e-3, 0.0999, 0.1001, 0.5, 0.9, 0.999, 1 - 1e-6, 1.0])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_covariance_is_the_published_formula(rho: float, sign: float) -> None:
    for h, k in ((0.0, 0.0), (0.5, -0.3), (-2.0, -2.0), (1.0, 1.001), (3.0, -3.0), (-1.0, 2.0)):
        _, c = dvia_relu(*law(h, k, sign * rho))
        assert c[0, 0, 1].item() == pytest.approx(published(h, k, sign * rho), rel=1e-12, abs=1e-300)


@pytest.mark.rounding
def test_the_mean_is_the_exact_one() -> None:
    mean, covariance = law(-0.7, 1.2, 0.4, 2.0, 3.0)
    want, _ = activation("relu").mean_covariance(mean, covariance)
    assert torch.equal(dvia_relu(mean, covariance)[0], want)


def test_the_diagonal_is_the_same_expression_at_correlation_one() -> None:
    for h in (-4.0, -1.0, 0.0, 2.0):
        _, c = dvia_relu(*law(h, h, 1.0))
        assert c[0, 0, 0] == c[0, 0, 1] == c[0, 1, 1]
        assert c[0, 0, 0].item() == pytest.approx(published(h, h, 1.0), rel=1e-13)


@pytest.mark.parametrize(("h", "error"), [(-2.0, -0.12), (-4.0, -0.82)])
def test_it_loses_variance_in_the_left_tail(h: float, error: float) -> None:
    mean, covariance = law(h, h, 0.0)
    _, c = dvia_relu(mean, covariance)
    _, exact = activation("relu").mean_variance(mean, torch.ones_like(mean))
    assert (c[0, 0, 0] / exact[0, 0] - 1).item() == pytest.approx(error, abs=0.005)


@pytest.mark.parametrize(("rho", "error"), [(0.1, 1.3e-7), (0.5, 1.3e-4), (0.9, 3.7e-3), (0.999, 1.3e-2)])
def test_its_largest_error_grows_with_the_correlation(rho: float, error: float) -> None:
    h, k = grid()
    mean = torch.stack([h, k], -1)
    covariance = torch.tensor([[1.0, rho], [rho, 1.0]], dtype=torch.float64).expand(len(h), 2, 2)
    _, c = dvia_relu(mean, covariance)
    _, exact = activation("relu").mean_covariance(mean, covariance)
    assert (c - exact)[:, 0, 1].abs().max().item() == pytest.approx(error, rel=0.05)


@pytest.mark.parametrize("rho", [-1.0, -0.7, 0.0, 0.3, 1.0])
def test_it_is_exact_for_centred_inputs(rho: float) -> None:
    mean, covariance = law(0.0, 0.0, rho, 2.0, 0.5)
    _, c = dvia_relu(mean, covariance)
    _, exact = activation("relu").mean_covariance(mean, covariance)
    torch.testing.assert_close(c, exact, rtol=1e-12, atol=1e-15)


def test_uncorrelated_units_stay_so() -> None:
    _, c = dvia_relu(*law(0.3, -1.0, 0.0))
    assert c[0, 0, 1] == 0


@pytest.mark.rounding
@pytest.mark.parametrize("exponent", [-498, -10, 7, 498])
def test_scaling_the_input_scales_the_output(exponent: int) -> None:
    mean, covariance = law(0.3, -1.0, 0.8, 1.5, 0.4)
    m, c = dvia_relu(mean, covariance)
    scale = 2.0**exponent
    scaled_m, scaled_c = dvia_relu(mean * scale, covariance * scale**2)
    assert torch.equal(scaled_m, m * scale)
    assert torch.equal(scaled_c, c * scale**2)


def test_extremes_are_finite_and_so_are_their_gradients() -> None:
    for rho in (-1.0, -1 + 1e-9, -0.5, 0.0, 1e-9, 0.5, 1 - 1e-9, 1.0):
        for h, k in ((0.0, 0.0), (1e4, 1e4), (-1e4, 1e4), (40.0, -40.0), (1.0, 1.0), (-8.0, -8.1)):
            for s1 in (0.0, 1e-150, 1.0):
                mean, covariance = (a.requires_grad_() for a in law(h, k, rho, s1))
                m, c = dvia_relu(mean, covariance)
                assert torch.isfinite(m).all()
                assert torch.isfinite(c).all()
                for gradient in torch.autograd.grad(m.sum() + c.sum(), (mean, covariance)):
                    assert torch.isfinite(gradient).all()


def test_zero_variance_is_a_point_mass() -> None:
    mean = torch.tensor([[2.0, 1.0], [-2.0, 1.0]], dtype=torch.float64)
    covariance = torch.tensor([[0.0, 0.0], [0.0, 1.0]], dtype=torch.float64).expand(2, 2, 2)
    m, c = dvia_relu(mean, covariance)
    assert m[:, 0].tolist() == [2.0, 0.0]
    assert (c[:, 0] == 0).all()
    assert (c[:, :, 0] == 0).all()


def test_gradients_agree_with_finite_differences() -> None:
    generator = torch.Generator().manual_seed(0)
    factor = torch.randn(2, 3, 3, generator=generator, dtype=torch.float64)
    mean = torch.randn(2, 3, generator=generator, dtype=torch.float64).requires_grad_()
    covariance = (factor @ factor.mT).requires_grad_()
    assert torch.autograd.gradcheck(lambda m, c: dvia_relu(m, (c + c.mT) / 2), (mean, covariance))


@pytest.mark.parametrize("h", [-1.0, 0.4])
def test_at_full_correlation_the_gradient_is_the_one_sided_derivative(h: float) -> None:
    mean, covariance = law(h, h, 1.0)
    covariance.requires_grad_()
    (gradient,) = torch.autograd.grad(dvia_relu(mean, covariance)[1][0, 0, 1], covariance)
    step = 1e-8  # of rho; the formula's next term is of order sqrt(step)
    want = (published(h, h, 1.0) - published(h, h, 1 - step)) / step
    assert (gradient[0, 0, 1] + gradient[0, 1, 0]).item() == pytest.approx(want, abs=1e-3)


def test_single_precision_comes_back_single() -> None:
    m, c = dvia_relu(*(a.float() for a in law(-6.0, 0.5, 0.3)))
    assert m.dtype == c.dtype == torch.float32
    assert (c.diagonal(dim1=-2, dim2=-1) > 0).all()
