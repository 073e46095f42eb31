"""What the marginal rules share: each component's own law through affine ops, sums and pools.

Correlations that affine layers create are dropped, so every op sees independent components.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from sdp_ref.errors import NoFormulaError
from sdp_ref.graph.affine import AFFINE, Affine
from sdp_ref.graph.ops import Add, Cat
from sdp_ref.graph.pooling import MAX_POOLS, max_pool
from sdp_ref.laws import Cauchy, DiagonalGaussian, Law, SymmetricStable, unchecked
from sdp_ref.laws.stable import stable_scale
from sdp_ref.rules.base import as_marginal
from sdp_ref.rules.layerwise import LayerwiseRule


@dataclass(frozen=True)
class MarginalRule(LayerwiseRule):
    """A layer-wise rule that keeps a location and a scale for each component, and no correlation."""

    marginal: ClassVar[bool] = True

    def start(self, x: Law) -> Law:
        """See :class:`LayerwiseRule`."""
        return as_marginal(self.name, x)


def spread_of(law: Law) -> Tensor:
    """Variance of a :class:`DiagonalGaussian`, scale of the other marginal families.

    Returns
    -------
    Tensor, shape (B, *event)

    Raises
    ------
    NoFormulaError
        If the law is of no marginal family.
    """
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


@MarginalRule.prepares(*AFFINE)
def _affine(_rule: MarginalRule, module: nn.Module) -> Callable[[Law], Law]:
    op: Affine = AFFINE[type_before_parametrizations(module)](module)

    def propagate(law: Law) -> Law:
        op.check(law.location)
        match law:
            case DiagonalGaussian():
                spread = op.spread(law.variance, 2)
            case Cauchy():
                spread = op.spread(law.scale, 1)
            case SymmetricStable():
                spread = op.stable_scale(law.scale, law.alpha)
            case _:
                raise NoFormulaError(f"{type(law).__name__} input")
        return with_spread(law, op.value(law.location), spread)

    return propagate


@MarginalRule.handles(Add)
def _add(_rule: MarginalRule, _module: nn.Module, a: Law, b: Law) -> Law:
    location = a.location + b.location
    # Spreads add up as those of independent values: what correlates the two branches is dropped.
    first, second = torch.broadcast_tensors(spread_of(a), spread_of(b))
    if isinstance(a, SymmetricStable):
        both = torch.stack([first, second], -1)
        return with_spread(a, location, stable_scale(both.new_ones(1, 2), both, a.alpha).squeeze(-1))
    return with_spread(a, location, first + second)


@MarginalRule.handles(Cat)
def _cat(_rule: MarginalRule, module: Cat, *laws: Law) -> Law:
    return with_spread(
        laws[0], module(*(law.location for law in laws)), module(*(spread_of(law) for law in laws))
    )


@MarginalRule.handles(*MAX_POOLS)
def _max_pool(_rule: MarginalRule, module: nn.Module, law: Law) -> Law:
    location, index = max_pool(module, law.location)
    spread = spread_of(law).flatten(2).gather(2, index.flatten(2)).reshape(location.shape)
    return with_spread(law, location, spread)
