import mpmath
import pytest
import torch
from torch.distributions import (
    Independent,
    Laplace,
    LowRankMultivariateNormal,
    MultivariateNormal,
    Normal,
    StudentT,
    Uniform,
)

import sdp_ref as sr


@pytest.mark.parametrize("steps", [-9.0, -5.5, 0.3, 4.9, 5.1, 7.5, 12.0, 25.0, 37.0])
def test_survival_of_gaussian_laws_is_right_however_far(steps):
    right = float(mpmath.ncdf(-steps))
    mean, deviation = 3.0, 0.25
    value = torch.tensor([[mean + steps * deviation, mean]], dtype=torch.float64)
    location = torch.full((1, 2), mean, dtype=torch.float64)
    variance = torch.full_like(location, deviation**2)
    diagonal = sr.DiagonalGaussian(location, variance)
    full = sr.Gaussian(location, torch.diag_embed(variance))
    mixed = sr.Mixture(torch.ones(1, 1).double(), diagonal)
    for law in (diagonal, full, mixed):
        assert law.survival(value)[0].tolist() == pytest.approx([right, 0.5], rel=2e-10, abs=0)


@pytest.mark.parametrize("scale", [3e-23, 1e-30])
def test_variances_that_float32_cannot_store_are_refused(scale):
    mean, deviation = torch.zeros(2, 3), torch.full((2, 3), scale)
    for given in (
        lambda m, s: Independent(Normal(m, s), 1),
        lambda m, s: MultivariateNormal(m, scale_tril=torch.diag_embed(s)),
        lambda m, s: LowRankMultivariateNormal(m, s.unsqueeze(2), s.square() + 1e-300),
    ):
        wide = sr.law_of(given(mean.double(), deviation.double()))
        assert wide.variance.min() > 0.9 * scale**2
    for given in (
        Independent(Normal(mean, deviation), 1),
        MultivariateNormal(mean, scale_tril=torch.diag_embed(deviation)),
        Independent(Laplace(mean, deviation), 1),
        Independent(StudentT(5.0, mean, deviation), 1),
        Independent(Uniform(mean, deviation), 1),
    ):
        with pytest.raises(ValueError, match=r"too small for .*float32"):
            sr.law_of(given)
