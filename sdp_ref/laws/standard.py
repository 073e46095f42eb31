"""Standard variates, which laws map to samples: different laws can share one set of random numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Standard:
    """Independent standard variates that are functions of uniform numbers.

    `name` is ``normal``, ``cauchy``, ``stable`` or ``uniform``. `from_uniform` maps uniform numbers inside
    (0, 1), shape (..., uniforms k), to k variates, shape (..., k). If `uniforms` is 1, it is the quantile
    function. `alpha` is the stability of a stable law.
    """

    name: str
    from_uniform: Callable[[Tensor], Tensor]
    uniforms: int = 1
    alpha: float = 2.0


def _normal(uniform: Tensor) -> Tensor:
    import torch

    quantiles: Tensor = torch.special.ndtri(uniform)
    return quantiles


def _cauchy(uniform: Tensor) -> Tensor:
    return (math.pi * (uniform - 0.5)).tan()


NORMAL = Standard("normal", _normal)
CAUCHY = Standard("cauchy", _cauchy)
UNIFORM = Standard("uniform", lambda uniform: uniform)


def stable(alpha: float) -> Standard:
    """Symmetric alpha-stable variates with characteristic function exp(-abs(t)^alpha).

    References
    ----------
    Chambers, Mallows and Stuck, "A method for simulating stable random variables", JASA 1976.
    """

    def draw(uniform: Tensor) -> Tensor:
        angle, other = uniform.unflatten(-1, (-1, 2)).unbind(-1)
        angle = math.pi * (angle - 0.5)
        exponential = -(-other).log1p()
        tail = (((1 - alpha) * angle).cos() / exponential).pow((1 - alpha) / alpha)
        draws: Tensor = (alpha * angle).sin() / angle.cos().pow(1 / alpha) * tail
        return draws

    return Standard("stable", draw, 2, alpha)
