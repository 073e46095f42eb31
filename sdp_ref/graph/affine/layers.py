"""Linear maps, convolutions and BatchNorm."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from sdp_ref.errors import NoLinearPartError
from sdp_ref.graph.affine.base import CHUNK, Affine, cast, check_ndim
from sdp_ref.graph.ops import (
    Pad,
)
from sdp_ref.laws.stable import stable_scale


class LinearMap(Affine):
    def value(self, x: Tensor) -> Tensor:
        return F.linear(x, self.module.weight.to(x.dtype), cast(self.module.bias, x))

    def weight(self, x: Tensor) -> Tensor:  # noqa: ARG002
        weight: Tensor = self.module.weight
        return weight

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.linear(x, weight)

    def stable_scale(self, scale: Tensor, alpha: float) -> Tensor:
        """The sum is computed relative to the largest term of each output."""
        return stable_scale(self.module.weight, scale, alpha)


_CONVOLUTIONS: dict[type[nn.Module], Callable[..., Tensor]] = {
    nn.Conv1d: F.conv1d,
    nn.Conv2d: F.conv2d,
    nn.Conv3d: F.conv3d,
    nn.ConvTranspose1d: F.conv_transpose1d,
    nn.ConvTranspose2d: F.conv_transpose2d,
    nn.ConvTranspose3d: F.conv_transpose3d,
}


class Convolution(Affine):
    """Convolutions with any padding.

    Padding with anything but zeros is a separate op. For powers of the weights, its copies of a component are
    independent components, as in a marginal rule that takes the two ops one by one.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self._function = next(f for kind, f in _CONVOLUTIONS.items() if isinstance(module, kind))
        mode = self.module.padding_mode
        self._pad = None if mode == "zeros" else Pad(self.module._reversed_padding_repeated_twice, mode)

    def check(self, x: Tensor) -> None:
        check_ndim(self.module, x, self.module.weight.ndim)

    def value(self, x: Tensor) -> Tensor:
        return self._convolved(x, self.module.weight.to(x.dtype), cast(self.module.bias, x))

    def weight(self, x: Tensor) -> Tensor:  # noqa: ARG002
        weight: Tensor = self.module.weight
        return weight

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        return self._convolved(x, weight, None)

    def rows(self, x: Tensor) -> Tensor:
        """Apply in chunks, since torch unfolds a float64 convolution in memory."""
        step = max(1, CHUNK // max(1, x[0].numel() * self.module.weight[0, 0].numel()))
        weight = self.module.weight.to(x.dtype)
        parts = x.split(step)
        first = self.linear(parts[0], weight)
        if len(parts) == 1:
            return first
        if first.requires_grad:
            return torch.cat([first, *(self.linear(part, weight) for part in parts[1:])])
        # filled part by part, so that the result exists only once
        rows = first.new_empty(len(x), *first.shape[1:])
        for part, place in zip(parts, rows.split(step), strict=True):
            place.copy_(self.linear(part, weight))
        return rows

    def _convolved(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        m = self.module
        if self._pad is not None:
            return self._function(self._pad(x), weight, bias, m.stride, 0, m.dilation, m.groups)
        return self._function(x, weight, bias, m.stride, m.padding, m.dilation, m.groups)


class TransposedConvolution(Convolution):
    """Transposed convolutions; each entry of A is an entry of the weight, or 0."""

    def _convolved(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        m = self.module
        return self._function(x, weight, bias, m.stride, m.padding, m.output_padding, m.groups, m.dilation)


class Normalisation(Affine):
    """BatchNorm with its running statistics: a scale and a shift per channel."""

    diagonal = True

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        if module.training or self.module.running_mean is None:
            raise NoLinearPartError(
                f"{type(module).__name__} with batch statistics, which couple the rows of a batch "
                "(call net.eval())",
            )

    def check(self, x: Tensor) -> None:
        if x.ndim < 2:
            check_ndim(self.module, x, 2)

    def value(self, x: Tensor) -> Tensor:
        m = self.module
        mean, variance = m.running_mean.to(x.dtype), m.running_var.to(x.dtype)
        y: Tensor = F.batch_norm(x, mean, variance, cast(m.weight, x), cast(m.bias, x), False, 0.0, m.eps)
        return y

    def weight(self, x: Tensor) -> Tensor:
        root = (self.module.running_var.to(x.dtype) + self.module.eps).sqrt()
        gain: Tensor = 1 / root if self.module.weight is None else self.module.weight.to(x.dtype) / root
        return gain.reshape(-1, *[1] * (x.ndim - 2))

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        return x * weight
