"""Approximate moments of the root of a sum of squares, from those of the sum."""

from __future__ import annotations

import torch
from torch import Tensor

_SERIES = 300.0  # shape above which log gamma cancels and the series is accurate to all digits


def root_moments(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of the square root of a gamma variable with this mean and variance.

    A sum of squares of Gaussian variables is approximated by a gamma variable (Satterthwaite 1946), which is
    exact if they are independent and centred with equal variances. With the shape k = mean^2 / variance, the
    root has the mean sqrt(mean / k) Gamma(k + 1/2) / Gamma(k), and the mean of its square is exact.
    """
    wide, spread = mean.double(), variance.double()
    point = (spread <= 0) | (wide <= 0)
    m, v = torch.where(point, 1.0, wide), torch.where(point, 1.0, spread)
    k = m * (m / v)
    small = k.clamp(max=_SERIES)
    ratio = torch.exp(torch.lgamma(small + 0.5) - torch.lgamma(small)) / small.sqrt()
    t = 1 / k.clamp(min=_SERIES)
    # Tricomi and Erdelyi (1951): Gamma(k + 1/2) / (Gamma(k) sqrt(k)), and one minus its square
    series = 1 - t / 8 + t**2 / 128 + 5 * t**3 / 1024
    rest = t / 4 - t**2 / 32 - t**3 / 128
    far = k > _SERIES
    share = torch.where(far, rest, 1 - ratio.square())
    root = wide.clamp(min=0)
    root = torch.where(point, root.clamp(min=torch.finfo(torch.float64).tiny), root).sqrt()
    found = torch.where(point, root, m.sqrt() * torch.where(far, series, ratio))
    return found.to(mean.dtype), torch.where(point, 0.0, m * share).to(mean.dtype)
