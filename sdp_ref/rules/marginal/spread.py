"""Scale parameters of marginal laws, and their sums for independent terms."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sdp_ref.errors import NoFormulaError
from sdp_ref.laws import Cauchy, DiagonalGaussian, Law, SymmetricStable, unchecked
from sdp_ref.laws.stable import bounded, power


def spread_of(law: Law) -> Tensor:
    """Variance of a :class:`DiagonalGaussian`, scale of the other marginal families."""
    match law:
        case DiagonalGaussian():
            return law.variance
        case Cauchy() | SymmetricStable():
            return law.scale
    raise NoFormulaError(f"{type(law).__name__} input")


def with_spread(law: Law, location: Tensor, spread: Tensor) -> Law:
    """Law of the family of `law` with this location and this :func:`spread_of`."""
    if isinstance(law, SymmetricStable):
        return unchecked(SymmetricStable, location, spread, law.alpha)
    return unchecked(type(law), location, spread)


def additive(*laws: Law) -> tuple[list[Tensor], float, Callable[[Tensor], Tensor]]:
    """Convert spreads to a measure that adds for independent terms."""
    spreads = [spread_of(law) for law in laws]
    law = laws[0]
    if not isinstance(law, SymmetricStable):
        return spreads, 2 if isinstance(law, DiagonalGaussian) else 1, lambda total: total
    alpha, scales = law.alpha, [bounded(each) for each in spreads]
    top = torch.stack([each.flatten(1).amax(1) for each in scales]).amax(0)
    top = torch.where(top > 0, top, 1.0)

    def of_rows(x: Tensor) -> Tensor:
        return top.reshape(-1, *[1] * (x.ndim - 1))

    measures = [power(each / of_rows(each), alpha) for each in scales]
    return measures, alpha, lambda total: bounded(of_rows(total) * power(total, 1 / alpha))


def raised(factor: Tensor, exponent: float) -> Tensor:
    """Power of the absolute values of factors, which multiplies such a measure."""
    if exponent == 2:
        return factor.square()
    return factor.abs() if exponent == 1 else power(factor.abs(), exponent)
