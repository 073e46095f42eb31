"""Layer, group, instance and RMS norms, which use statistics of a row's own components, in one form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sdp_ref.errors import NoFormulaError, NoLinearPartError

_INSTANCE = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
NORMS = (nn.LayerNorm, nn.GroupNorm, *_INSTANCE, nn.RMSNorm)


@dataclass(frozen=True)
class Norm:
    """Groups of components, each divided by the root of its mean square: (x - mean) / sqrt(square + eps).

    `groups` is the number of consecutive groups per row; if `centred`, the mean of each is subtracted first.
    `gain` and `shift` are applied to the result, broadcast over an event.
    """

    groups: int
    centred: bool
    eps: float
    gain: Tensor | None = None
    shift: Tensor | None = None

    @classmethod
    def of(cls, module: nn.Module, x: Tensor) -> Norm:
        """Form of a module for inputs like `x`, (N, *event)."""
        m: Any = module
        kind = type(module).__name__
        gain, shift = (
            None if each is None else each.to(x.dtype) for each in (m.weight, getattr(m, "bias", None))
        )
        if isinstance(module, nn.LayerNorm | nn.RMSNorm):
            dims = len(m.normalized_shape)
            if dims >= x.ndim:
                raise NoLinearPartError(f"a {kind} over the batch dimension")
            if tuple(x.shape[-dims:]) != tuple(m.normalized_shape):
                raise NoLinearPartError(f"{kind} on an event of shape {tuple(x.shape[1:])}")
            eps = torch.finfo(x.dtype).eps if m.eps is None else m.eps
            groups = x[0].numel() // max(1, x[0].flatten(-dims).shape[-1])
            return cls(groups, isinstance(module, nn.LayerNorm), eps, gain, shift)
        channels = m.num_channels if isinstance(module, nn.GroupNorm) else m.num_features
        if x.ndim < 2 or (isinstance(module, _INSTANCE) and x.ndim != int(kind[-2]) + 2):
            raise NoLinearPartError(f"{kind} on an event of shape {tuple(x.shape[1:])}")
        if isinstance(module, nn.GroupNorm):
            groups = m.num_groups
        elif m.track_running_stats:
            # running it in training mode would change its statistics
            refused = NoLinearPartError if m.training else NoFormulaError
            raise refused(f"{kind} with running statistics (a BatchNorm does the same)")
        else:
            groups = x.shape[1]
        shape = channels, *[1] * (x.ndim - 2)
        return cls(
            groups, True, m.eps, *(None if each is None else each.reshape(shape) for each in (gain, shift))
        )

    def grouped(self, x: Tensor) -> Tensor:
        """Components by group, (..., groups, n); of `x` (N, *event) or (N, R, n)."""
        return x.reshape(*x.shape[:1], self.groups, -1)

    def scores(self, x: Tensor, extra: Tensor | float = 0.0) -> tuple[Tensor, Tensor]:
        """Normalised components before gain and shift, and the reciprocal of the divisor."""
        rows = self.grouped(x)
        if self.centred:
            rows = rows - rows.mean(-1, keepdim=True)
        inverse = (rows.square().mean(-1, keepdim=True) + self.eps + extra).rsqrt()
        return rows * inverse, inverse

    def finished(self, scores: Tensor, like: Tensor) -> Tensor:
        """Apply gain and shift to scores, in the shape of `like`."""
        y = scores.reshape(like.shape)
        y = y if self.gain is None else y * self.gain
        return y if self.shift is None else y + self.shift
