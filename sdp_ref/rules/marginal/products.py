"""Products, quotients and maxima of values with independent components."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sdp_ref.activations.relu import ReLU
from sdp_ref.graph.ops import MatrixProduct
from sdp_ref.laws import DiagonalGaussian, Law, unchecked
from sdp_ref.rules.marginal.spread import additive, raised, with_spread


def linear_product(module: nn.Module, a: Law, b: Law) -> Law:
    """Linearised product of two values, elementwise or of matrices; a value times itself is its square."""
    location = module(a.location, b.location)
    (left, right), exponent, back = additive(a, b)
    by_left, by_right = (raised(law.location, exponent) for law in (a, b))
    if a is b and not isinstance(module, MatrixProduct):
        return with_spread(a, location, back(left * raised(2 * a.location, exponent)))
    return with_spread(a, location, back(module(left, by_right) + module(by_left, right)))


def product_moments(module: nn.Module, a: DiagonalGaussian, b: DiagonalGaussian) -> Law:
    """Mean and variance of a product of two values, elementwise or of matrices.

    Exact for independent components, Var XY = E[X]^2 Var Y + E[Y]^2 Var X + Var X Var Y, and for the
    square of a value, Var X^2 = 4 E[X]^2 Var X + 2 Var(X)^2.
    """
    mean: Tensor = module(a.mean, b.mean)
    if a is b and not isinstance(module, MatrixProduct):
        variance = a.variance * (4 * a.mean.square() + 2 * a.variance)
        return unchecked(DiagonalGaussian, mean + a.variance, variance)
    first = module(a.variance, b.mean.square() + b.variance)
    return unchecked(DiagonalGaussian, mean, first + module(a.mean.square(), b.variance))


def linear_quotient(module: nn.Module, a: Law, b: Law) -> Law:
    """Linearised a / b; a value divided by itself is 1."""
    location = module(a.location, b.location)
    if a is b:
        return with_spread(a, location, 0 * additive(a)[0][0])
    (above, below), exponent, back = additive(a, b)
    by_above = raised(1 / b.location, exponent)
    return with_spread(a, location, back(above * by_above + below * raised(location, exponent) * by_above))


def maximum_moments(a: DiagonalGaussian, b: DiagonalGaussian) -> Law:
    """Mean and variance of the larger of two values, exact for independent components.

    Clark (1961), "The greatest of a finite set of random variables": max(X, Y) = X + (Y - X)_+, with X the
    one with the larger mean, and Cov(X, (Y - X)_+) = -P(Y > X) Var X by Stein's lemma.
    """
    if a is b:
        return a
    first = a.mean >= b.mean
    means, variances = (
        torch.broadcast_tensors(*pair) for pair in ((a.mean, b.mean), (a.variance, b.variance))
    )
    (high, low), (of_high, of_low) = (
        (torch.where(first, x, y), torch.where(first, y, x)) for x, y in (means, variances)
    )
    both = of_high + of_low
    gain, spread = ReLU().mean_variance(low - high, both)
    passed = torch.where(both > 0, ReLU().mean_derivative(low - high, both), 0.0)
    return unchecked(DiagonalGaussian, high + gain, of_high * (1 - 2 * passed) + spread)
