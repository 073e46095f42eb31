"""Covariances between different elementwise functions of jointly normal units."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sdp_ref.activations.base import Activation
from sdp_ref.activations.numerics.quadrature import Units, cross_covariance
from sdp_ref.activations.relu import PReLU, ReLU


@dataclass(frozen=True, eq=False)
class Branch:
    """A function of normal units: their means and variances (B, n), and the variances of the results.

    All are float64. A unit of variance 0 is a point mass.
    """

    activation: Activation
    mean: Tensor
    variance: Tensor
    outputs: Tensor

    @property
    def slope(self) -> Tensor:
        """Mean derivatives (B, n)."""
        return self.activation.mean_derivative(self.mean, self.variance)


def branch_covariance(first: Branch, second: Branch, block: Tensor, tolerance: float) -> Tensor:
    """Return Cov(f(X), g(Y)) for jointly normal X and Y with Cov(X, Y) = `block`, all (B, n, m).

    Errors are at most `tolerance` times the standard deviations of X and Y. The method is the Hermite series
    with its bound (:mod:`sdp_ref.activations.numerics.quadrature`), for any two functions and any correlation
    from -1 to 1.
    """
    if not (first.activation.moments and second.activation.moments):
        return torch.zeros_like(block)  # such a function has moments at point masses only
    if isinstance(first.activation, PReLU):
        # f(x) = a x + (1 - a) max(x, 0), with one a per unit
        slope = torch.as_tensor(first.activation.weight, dtype=block.dtype, device=block.device)
        slope = slope.expand(first.mean.shape[-1]).unsqueeze(-1)
        ramp = ReLU()
        outputs = ramp.mean_variance(first.mean.detach(), first.variance.detach())[1]
        of_ramp = Branch(ramp, first.mean, first.variance, outputs)
        linear = block * second.slope.unsqueeze(1)  # Cov(X, g(Y)), by Stein's lemma
        return slope * linear + (1 - slope) * branch_covariance(of_ramp, second, block, tolerance)
    if isinstance(second.activation, PReLU):
        return branch_covariance(second, first, block.mT, tolerance).mT
    units = [
        Units(b.activation.curve_of(b.variance.sqrt().detach()), b.mean, b.variance, b.outputs.detach())
        for b in (first, second)
    ]
    return cross_covariance(units[0], units[1], block, tolerance)
