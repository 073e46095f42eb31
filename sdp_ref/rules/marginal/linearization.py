"""Marginal stable distribution propagation: each layer linearised at the location.

Petersen et al. (2024), "Uncertainty Quantification via Stable Distribution Propagation",
eqs. 1-2 and the section on computing the scale parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from sdp_ref.activations import ELEMENTWISE, activation_of
from sdp_ref.activations.relu import ReLU
from sdp_ref.errors import NoFormulaError
from sdp_ref.laws import DiagonalGaussian, Law, SymmetricStable
from sdp_ref.laws.stable import stable_scale
from sdp_ref.rules.layerwise import LayerwiseRule
from sdp_ref.rules.marginal.rule import MarginalRule, spread_of, with_spread

_CHUNK = 2**24  # entries of one batch of Jacobians


@dataclass(frozen=True)
class MarginalSDP(MarginalRule):
    """Marginal stable distribution propagation: layer by layer, without correlations.

    Each layer maps location and scale; correlations that affine layers create are dropped. Takes
    Gaussian (by its variances), Cauchy and symmetric alpha-stable inputs and gives the same family.
    """

    name: ClassVar[str] = "marginal_sdp"
    title: ClassVar[str] = "marginal SDP"
    colour: ClassVar[str] = "#56b4e9"
    rank: ClassVar[int] = 50


@MarginalSDP.prepares(*ELEMENTWISE)
def _linearise(_rule: LayerwiseRule, module: nn.Module) -> Callable[[Law], Law]:
    activation = activation_of(module)

    def propagate(law: Law) -> Law:
        location = activation.function(law.location)
        spread = spread_of(law)
        if isinstance(activation, ReLU):  # its slope is 0 or 1: one pass less
            passed = law.location >= 0  # torch.where would take four times as long as the product
            return with_spread(law, location, spread * passed.to(spread.dtype))
        slope = activation.derivative(law.location)
        slope = slope.square() if isinstance(law, DiagonalGaussian) else slope.abs()
        return with_spread(law, location, spread * slope)

    return propagate


@MarginalSDP.handles(nn.Softmax)
def _softmax(_rule: LayerwiseRule, module: nn.Softmax, law: Law) -> Law:
    x = law.location
    dim = module.dim
    if dim is None or dim % x.ndim == 0:
        text = "without a dimension" if dim is None else "over the batch dimension"
        raise NoFormulaError(f"a Softmax {text}")

    def jacobian(rows: Tensor) -> Tensor:
        p = torch.softmax(rows, -1)
        off = (
            -p.unsqueeze(-1) * p.unsqueeze(-2) * (1 - torch.eye(p.shape[-1], dtype=p.dtype, device=p.device))
        )
        return off - torch.diag_embed(off.sum(-1))  # p (1 - p) without its cancellation at p = 1

    spread = spread_of(law).movedim(dim, -1)
    through = _through(jacobian, x.movedim(dim, -1), spread, law).movedim(-1, dim)
    return with_spread(law, module(x), through)


@MarginalSDP.handles(nn.LayerNorm)
def _layer_norm(_rule: LayerwiseRule, module: nn.LayerNorm, law: Law) -> Law:
    x, dims = law.location, len(module.normalized_shape)
    if dims >= x.ndim:
        raise NoFormulaError("a LayerNorm over the batch dimension")

    def jacobian(rows: Tensor) -> Tensor:
        n = rows.shape[-1]
        centred = rows - rows.mean(-1, keepdim=True)
        inverse = (centred.square().mean(-1, keepdim=True) + module.eps).rsqrt()
        z = centred * inverse
        eye = torch.eye(n, dtype=rows.dtype, device=rows.device)
        return inverse.unsqueeze(-1) * (eye - (1 + z.unsqueeze(-1) * z.unsqueeze(-2)) / n)

    through = _through(jacobian, x.flatten(-dims), spread_of(law).flatten(-dims), law).reshape(x.shape)
    if module.weight is not None:
        gain = module.weight
        through = through * (gain.square() if isinstance(law, DiagonalGaussian) else gain.abs())
    return with_spread(law, module(x), through)


def _through(jacobian: Callable[[Tensor], Tensor], x: Tensor, spread: Tensor, law: Law) -> Tensor:
    """Spreads of J x for independent components, J (n, n) made from each of the rows `x` (..., n)."""
    n = x.shape[-1]
    step = max(1, _CHUNK // max(1, n * n))
    parts = []
    for rows, s in zip(x.reshape(-1, n).split(step), spread.reshape(-1, n).split(step), strict=True):
        matrix = jacobian(rows)
        if isinstance(law, SymmetricStable):
            parts.append(stable_scale(matrix, s, law.alpha))
        else:
            matrix = matrix.square() if isinstance(law, DiagonalGaussian) else matrix.abs()
            parts.append((matrix @ s.unsqueeze(-1)).squeeze(-1))
    return torch.cat(parts).reshape(x.shape)
