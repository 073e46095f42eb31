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
from sdp_ref.laws import DiagonalGaussian, Law
from sdp_ref.rules.layerwise import LayerwiseRule
from sdp_ref.rules.marginal.rule import MarginalRule
from sdp_ref.rules.marginal.spread import spread_of, with_spread


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
    linear: ClassVar[bool] = True


@MarginalSDP.prepares(*ELEMENTWISE)
def _linearise(_rule: LayerwiseRule, module: nn.Module) -> Callable[[Law], Law]:
    activation = activation_of(module)

    def propagate(law: Law) -> Law:
        location = activation.function(law.location)
        spread = spread_of(law)
        if isinstance(activation, ReLU):  # its slope is 0 or 1, which saves a pass
            return with_spread(law, location, _passed(law.location, spread))
        slope = activation.derivative(law.location)
        slope = slope.square() if isinstance(law, DiagonalGaussian) else slope.abs()
        return with_spread(law, location, spread * slope)

    return propagate


def _passed(location: Tensor, spread: Tensor) -> Tensor:
    """Spread where a ramp has slope 1; a product takes a quarter of the time of torch.where."""
    slope = torch.ge(location.detach(), 0, out=torch.empty_like(spread))
    if torch.is_grad_enabled() and spread.requires_grad:
        return spread * slope
    return slope.mul_(spread)  # in place: allocating new memory is slower than the product
