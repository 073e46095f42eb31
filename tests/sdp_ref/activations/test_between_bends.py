"""Moments of functions that are flat near the mean and bend far from it on both sides, against mpmath."""

import mpmath
import pytest
import torch
from torch import nn

import sdp_ref as sr

ZERO = mpmath.mpf(0)


def clip(low, high):
    return lambda x: min(max(x, low), high)


CASES = {
    "clamp from below": (lambda v: v.clamp(min=0.25), lambda x: max(x, 0.25), (0.25,)),
    "clamp from above": (lambda v: v.clamp(max=-2.0), lambda x: min(x, -2), (-2.0,)),
    "hardtanh": (nn.Hardtanh(-2.0, 1.0), clip(-2, 1), (-2.0, 1.0)),
    "relu6": (nn.ReLU6(), clip(0, 6), (0.0, 6.0)),
    "softshrink": (nn.Softshrink(1.5), lambda x: x - min(max(x, -1.5), 1.5), (-1.5, 1.5)),
    "hardshrink": (nn.Hardshrink(0.25), lambda x: x if abs(x) > 0.25 else ZERO, (-0.25, 0.25)),
    "threshold": (nn.Threshold(2.0, 0.5), lambda x: x if x > 2 else mpmath.mpf(0.5), (2.0,)),
}


def moments(function, mean, deviation, bends):
    with mpmath.workdps(60):
        m, s = mpmath.mpf(mean), mpmath.mpf(deviation)
        places = [(b - m) / s for b in bends]
        edges = {
            -45,
            -8,
            0,
            8,
            45,
            *(p + d for p in places for d in (-2, -0.5, -0.1, 0, 0.1, 0.5, 2) if abs(p + d) < 45),
        }
        density, start = mpmath.npdf, function(m)
        first, second = (
            mpmath.quad(lambda z, k=k: (function(m + s * z) - start) ** k * density(z), sorted(edges))
            for k in (1, 2)
        )
        return float(start + first), float(second - first**2)


@pytest.mark.parametrize("steps", [2.5, 6.0, 9.5, 14.0, 24.0])
@pytest.mark.parametrize("deviation", [2.0**-4, 2.0**-14])
@pytest.mark.parametrize("name", CASES)
def test_variances_are_right_however_small(name, deviation, steps):
    net, function, bends = CASES[name]
    for bend in bends:
        for side in (-1, 1):
            mean = bend + side * steps * deviation
            right = moments(function, mean, deviation, bends)
            x = sr.DiagonalGaussian(torch.tensor([[mean]]).double(), torch.tensor([[deviation**2]]).double())
            for rule in ("marginal_moment_matching", "moment_matching"):
                law = sr.propagate(net, x, rule)
                assert law.mean.item() == pytest.approx(right[0], rel=1e-11)
                assert law.variance.item() == pytest.approx(right[1], rel=1e-7)
