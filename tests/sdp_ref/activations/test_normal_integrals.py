import math

import mpmath as mp
import numpy as np
import pytest
import torch

from sdp_ref.activations.numerics import normal
from sdp_ref.activations.numerics.normal import (
    by_correlation,
    gauss_legendre,
    price_integral,
    repeated_integrals,
)

HS = (-38.0, -37.0, -20.0, -8.0, -4.0, -2.001, -1.999, -1.0, 0.0, 0.3, 2.0, 8.0, 40.0, 1e4)


def repeated_reference(h: float, order: int) -> float:
    with mp.workdps(80):
        x = mp.mpf(h)
        if order == 0:
            return float(mp.ncdf(x))
        first = mp.npdf(x) + x * mp.ncdf(x)
        return float(first if order == 1 else ((1 + x * x) * mp.ncdf(x) + x * mp.npdf(x)) / 2)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_repeated_integrals_keep_relative_accuracy_in_both_tails(order: int) -> None:
    got = repeated_integrals(torch.tensor(HS, dtype=torch.float64))[order].numpy()
    want = np.array([repeated_reference(h, order) for h in HS])
    # the density itself has a relative condition number of h^2 = 1444 at h = -38
    np.testing.assert_allclose(got, want, rtol=5e-13)


@pytest.mark.parametrize("order", [1, 2])
def test_repeated_integrals_differentiate_twice(order: int) -> None:
    h = torch.tensor([-6.0, -3.0, -1.0, 0.0, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: repeated_integrals(x)[order], h)
    assert torch.autograd.gradgradcheck(lambda x: repeated_integrals(x)[order], h)


def test_gauss_legendre_integrates_polynomials_up_to_twice_its_nodes() -> None:
    x, w = gauss_legendre(6, torch.device("cpu"))
    for power in range(12):
        assert (w * x**power).sum().item() == pytest.approx(1 / (power + 1), rel=1e-14)


@pytest.mark.parametrize("rho", [-1.0, -0.999, -0.5, 0.0, 1e-8, 0.3, 0.9, 0.999, 1 - 1e-6, 1.0])
def test_centred_pairs_have_a_closed_form(rho: float) -> None:
    zero, r = torch.zeros(1, dtype=torch.float64), torch.tensor([rho], dtype=torch.float64)
    with mp.workdps(30):
        x = mp.mpf(rho)
        ramp = float((x * mp.asin(x) + mp.sqrt(1 - x * x) - 1) / (2 * mp.pi))
    found = price_integral(zero, zero, r, 96, math.pi / 2).item()
    assert found == pytest.approx(ramp, rel=1e-12, abs=1e-16)


def test_pairs_do_not_depend_on_how_they_are_chunked() -> None:
    generator = torch.Generator().manual_seed(0)
    h, k, u = torch.randn(3, 8000, generator=generator, dtype=torch.float64)
    rho = torch.tanh(2 * u)
    rho[3] = torch.nan
    whole = by_correlation(price_integral, rho, h, k, rho)
    parts = [by_correlation(price_integral, *(v[i::50] for v in (rho, h, k, rho))) for i in range(50)]
    for i, part in enumerate(parts):
        torch.testing.assert_close(part, whole[i::50], rtol=1e-13, atol=1e-17)
    assert whole[3] == 0
    assert (whole[rho.nan_to_num() != 0] > 0).all()


def test_recomputing_gives_the_plain_gradient() -> None:
    x = torch.linspace(0.1, 1, 5, dtype=torch.float64, requires_grad=True)
    (got,) = torch.autograd.grad(normal.recomputed(torch.exp, x).sum(), x)
    torch.testing.assert_close(got, x.exp())
