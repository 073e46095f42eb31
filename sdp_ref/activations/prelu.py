"""PReLU: the leaky ReLU with learned slopes, one for all values or one per channel."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from sdp_ref.activations.leaky_relu import LeakyReLU
from sdp_ref.activations.numerics.covariances import ramp_covariance
from sdp_ref.errors import NoFormulaError


@dataclass(frozen=True, eq=False)
class PReLU(LeakyReLU):
    """max(x, 0) + a min(x, 0) with learned a. Moments are closed forms; gradients flow to the slopes as well.

    Parameters
    ----------
    weight : float or Tensor, shape (1,) or (C,)
        a, or one a per channel of values (B, C, ...).
    """

    name: ClassVar[str] = "prelu"
    label: ClassVar[str] = "PReLU"
    rank: ClassVar[int] = 100
    module: ClassVar[type[nn.Module]] = nn.PReLU
    ops: ClassVar[tuple[str, ...]] = ("prelu", "_prelu_kernel")
    negative_slope: float = field(default=0.0, init=False, repr=False)
    weight: float | Tensor = 0.25

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PReLU):
            return NotImplemented
        a, b = self.weight, other.weight
        if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
            return a is b or (type(a), a) == (type(b), b)
        return a is b or (not a.requires_grad and not b.requires_grad and torch.equal(a, b))

    def __hash__(self) -> int:
        return hash((PReLU, self.weight.shape if isinstance(self.weight, Tensor) else self.weight))

    @classmethod
    def from_op(cls, name: str, weight: Any) -> nn.Module:
        """The module holds the given tensor itself, with its graph."""
        if not isinstance(weight, Tensor):
            raise NoFormulaError(f"{name} with slopes that are no tensor")
        module = nn.PReLU(weight.numel(), device="meta")
        del module.weight
        setattr(module, "weight", weight.reshape(-1))  # noqa: B010  # a traced one is of shape (1, C, 1, 1)
        return module.eval()

    def build(self) -> nn.Module:
        weight = torch.as_tensor(self.weight).reshape(-1)
        module = nn.PReLU(weight.numel(), dtype=weight.dtype if weight.is_floating_point() else None)
        with torch.no_grad():
            module.weight.copy_(weight)
        return module

    @property
    def uniform(self) -> bool:
        return not isinstance(self.weight, Tensor) or self.weight.numel() == 1

    def flattened(self, event: torch.Size) -> PReLU:
        if self.uniform:
            return self
        return replace(self, weight=self._slope(torch.empty(1, *event)).expand(1, *event).flatten())

    def _slope(self, x: Tensor) -> Any:
        if not isinstance(self.weight, Tensor):
            return self.weight
        weight = self.weight.to(x.dtype)
        return weight.reshape(-1, *[1] * (x.ndim - 2))

    def function(self, x: Tensor) -> Tensor:
        return torch.where(x > 0, x, self._slope(x) * x)

    def _covariance(self, mean: Tensor, variance: Tensor, covariance: Tensor, _tolerance: float) -> Tensor:
        slope = torch.as_tensor(self._slope(mean), dtype=mean.dtype, device=mean.device)
        return ramp_covariance(mean, variance, covariance, (slope.expand(mean.shape[-1]), 1.0))
