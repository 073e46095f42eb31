"""ReLU: the leaky one of slope 0."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from sdp_ref.activations.base import Call
from sdp_ref.activations.leaky_relu import LeakyReLU


@dataclass(frozen=True)
class ReLU(LeakyReLU):
    """max(x, 0)."""

    name: ClassVar[str] = "relu"
    label: ClassVar[str] = "ReLU"
    rank: ClassVar[int] = 10
    module: ClassVar[type[nn.Module]] = nn.ReLU
    calls: ClassVar[tuple[Call, ...]] = (F.relu, torch.relu, torch.relu_, "relu", "relu_")
    ops: ClassVar[tuple[str, ...]] = ("relu",)
    value_seconds: ClassVar[float] = 0.0  # in place, while the layer's product is in the cache
    negative_slope: float = field(default=0.0, init=False)
