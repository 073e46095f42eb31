import itertools

import mpmath as mp
import pytest
import torch
from torch import nn

import sdp_ref as sr

CASES = {  # function, its bends, and intercept and slope of each of its pieces
    "clamp from below": (lambda v: v.clamp(min=0.25), (0.25,), ((0.25, 0), (0, 1))),
    "clamp from above": (lambda v: v.clamp(max=-2.0), (-2.0,), ((0, 1), (-2, 0))),
    "hardtanh": (nn.Hardtanh(-2.0, 1.0), (-2.0, 1.0), ((-2, 0), (0, 1), (1, 0))),
    "relu6": (nn.ReLU6(), (0.0, 6.0), ((0, 0), (0, 1), (6, 0))),
    "softshrink": (nn.Softshrink(1.5), (-1.5, 1.5), ((1.5, 1), (0, 0), (-1.5, 1))),
    "hardshrink": (nn.Hardshrink(0.25), (-0.25, 0.25), ((0, 1), (0, 0), (0, 1))),
    "threshold": (nn.Threshold(2.0, 0.5), (2.0,), ((0.5, 0), (0, 1))),
}


def moments(bends, pieces, mean, deviation):
    """Mean and variance by moments of truncated normals, in 400 digits."""
    with mp.workdps(400):
        m, s = mp.mpf(mean), mp.mpf(deviation)
        ends = [mp.mpf(-200), *((bend - m) / s for bend in bends), mp.mpf(200)]
        first = second = mp.mpf(0)
        for (a, b), (intercept, slope) in zip(itertools.pairwise(ends), pieces, strict=True):
            mass, z = mp.ncdf(b) - mp.ncdf(a), mp.npdf(a) - mp.npdf(b)
            square = mass + a * mp.npdf(a) - b * mp.npdf(b)
            value, step = intercept + slope * m, slope * s
            first += value * mass + step * z
            second += value**2 * mass + 2 * value * step * z + step**2 * square
        return float(first), float(second - first**2)


@pytest.mark.parametrize("steps", [2.5, 9.5, 24.0])
@pytest.mark.parametrize("deviation", [2.0**-4, 2.0**-14])
@pytest.mark.parametrize("name", CASES)
def test_variances_are_right_however_small(name, deviation, steps):
    net, bends, pieces = CASES[name]
    for bend in bends:
        for side in (-1, 1):
            mean = bend + side * steps * deviation
            right = moments(bends, pieces, mean, deviation)
            x = sr.DiagonalGaussian(torch.tensor([[mean]]).double(), torch.tensor([[deviation**2]]).double())
            for rule in ("marginal_moment_matching", "moment_matching"):
                law = sr.propagate(net, x, rule)
                assert law.mean.item() == pytest.approx(right[0], rel=1e-11, abs=1e-13 * deviation)
                assert law.variance.item() == pytest.approx(right[1], rel=1e-6 if steps > 20 else 1e-7, abs=0)
