"""ReLU: the leaky ReLU of slope 0."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torch import nn

from sdp_ref.activations.leaky_relu import LeakyReLU


@dataclass(frozen=True)
class ReLU(LeakyReLU):
    """max(x, 0)."""

    name: ClassVar[str] = "relu"
    label: ClassVar[str] = "ReLU"
    rank: ClassVar[int] = 10
    module: ClassVar[type[nn.Module]] = nn.ReLU
    ops: ClassVar[tuple[str, ...]] = ("relu",)
    value_seconds: ClassVar[float] = 0.0  # computed in place while the product of the layer is in cache
    negative_slope: float = field(default=0.0, init=False)
