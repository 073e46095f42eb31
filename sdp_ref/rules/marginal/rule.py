"""The base class of marginal rules, which propagate each component's law through affine ops, sums and pools.

Correlations that affine layers create are dropped, so every op sees independent components.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import nn
from torch.nn.utils.parametrize import type_before_parametrizations

from sdp_ref.errors import NoFormulaError
from sdp_ref.graph.affine import AFFINE, Affine
from sdp_ref.graph.nonlinear import MAX_POOLS, NORMS, Attention, max_pool
from sdp_ref.graph.ops import (
    Add,
    Cat,
    MatrixProduct,
    Maximum,
    MaximumOfPairs,
    Multiply,
    Quotient,
    VectorNorm,
)
from sdp_ref.laws import Cauchy, DiagonalGaussian, Law, SymmetricStable
from sdp_ref.laws.stable import stable_scale
from sdp_ref.rules.base import as_marginal
from sdp_ref.rules.layerwise import LayerwiseRule
from sdp_ref.rules.marginal import linearized, products
from sdp_ref.rules.marginal.spread import spread_of, with_spread


@dataclass(frozen=True)
class MarginalRule(LayerwiseRule):
    """A layer-wise rule that propagates a location and a scale for each component, without correlations."""

    marginal: ClassVar[bool] = True

    def start(self, x: Law) -> Law:
        return as_marginal(self.name, x)

    def linearise(self, module: nn.Module) -> Callable[..., Law]:
        """Use squared entries of the Jacobian, computed in chunks."""
        return partial(linearized.linearised, module)


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
    # Spreads add as for independent values: the correlation of the two branches is dropped.
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


@MarginalRule.handles(Maximum, MaximumOfPairs, note="by the larger mean")
def _maximum(_rule: MarginalRule, module: Maximum, a: Law, b: Law) -> Law:
    first = a.location >= b.location
    chosen = torch.where(first, spread_of(a), spread_of(b))
    return with_spread(a, module(a.location, b.location), chosen)


@MarginalRule.handles(*MAX_POOLS, note="by its largest mean")
def _max_pool(_rule: MarginalRule, module: nn.Module, law: Law) -> Law:
    location, index = max_pool(module, law.location)
    spread = spread_of(law).flatten(2).gather(2, index.flatten(2)).reshape(location.shape)
    return with_spread(law, location, spread)


@MarginalRule.handles(Multiply, MatrixProduct, note="linearised")
def _product(_rule: MarginalRule, module: nn.Module, a: Law, b: Law) -> Law:
    return products.linear_product(module, a, b)


@MarginalRule.handles(Quotient, note="linearised")
def _quotient(_rule: MarginalRule, module: nn.Module, a: Law, b: Law) -> Law:
    return products.linear_quotient(module, a, b)


@MarginalRule.handles(nn.Softmax, note="linearised")
def _softmax(_rule: MarginalRule, module: nn.Softmax, law: Law) -> Law:
    return linearized.softmax(module, law)


@MarginalRule.handles(nn.LogSoftmax, note="linearised")
def _log_softmax(_rule: MarginalRule, module: nn.LogSoftmax, law: Law) -> Law:
    return linearized.log_softmax(module, law)


@MarginalRule.handles(*NORMS, note="linearised")
def _norm(_rule: MarginalRule, module: nn.Module, law: Law) -> Law:
    return linearized.norm(module, law)


@MarginalRule.handles(nn.LayerNorm, note="linearised")
def _layer_norm(_rule: MarginalRule, module: nn.LayerNorm, law: Law) -> Law:
    return linearized.layer_norm(module, law)


@MarginalRule.handles(Attention, note="linearised")
def _attention(_rule: MarginalRule, module: Attention, q: Law, k: Law, v: Law) -> Law:
    return linearized.attention(module, q, k, v)


@MarginalRule.handles(VectorNorm, note="linearised")
def _vector_norm(_rule: MarginalRule, module: VectorNorm, law: Law) -> Law:
    return linearized.vector_norm(module, law)
