"""Average pools, means and sums over dimensions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from sdp_ref.graph.affine.base import Affine, check_ndim


class AveragePool(Affine):
    """AvgPool1d, AvgPool2d and AvgPool3d in all modes: sums over windows times one weight per output.

    All entries of a row of A are equal, so a power of this weight is the power of all entries.
    """

    def check(self, x: Tensor) -> None:
        check_ndim(self.module, x, _space(self.module) + 2)

    def weight(self, x: Tensor) -> Tensor:
        ones = torch.ones_like(x[:1, :1])
        weight: Tensor = self.module(ones) / self._summed(ones)  # (inside / divisor) / inside
        return weight

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        return self._summed(x) * weight

    def rows(self, x: Tensor) -> Tensor:
        y: Tensor = self.module(x)
        return y

    def _summed(self, x: Tensor) -> Tensor:
        m = self.module
        if isinstance(m, nn.AvgPool2d):
            return F.avg_pool2d(x, m.kernel_size, m.stride, m.padding, m.ceil_mode, True, 1)
        if isinstance(m, nn.AvgPool3d):
            return F.avg_pool3d(x, m.kernel_size, m.stride, m.padding, m.ceil_mode, True, 1)
        size, stride, padding = (_first(v) for v in (m.kernel_size, m.stride, m.padding))
        summed = F.avg_pool2d(
            x.unsqueeze(-2), (1, size), (1, stride), (0, padding), m.ceil_mode, True, divisor_override=1
        )
        return summed.squeeze(-2)


class AdaptiveAveragePool(Affine):
    def check(self, x: Tensor) -> None:
        check_ndim(self.module, x, _space(self.module) + 2)

    def weight(self, x: Tensor) -> Tensor:
        return 1 / self._counts(x)

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        # A mean times its count, since torch has no adaptive sum.
        y: Tensor = self.module(x) * self._counts(x) * weight
        return y

    def rows(self, x: Tensor) -> Tensor:
        y: Tensor = self.module(x)
        return y

    def _counts(self, x: Tensor) -> Tensor:
        """Numbers of inputs per output: window i of m over n is [i n // m, ceil((i + 1) n / m))."""
        space = x.shape[2:]
        given = self.module.output_size
        wanted = given if isinstance(given, tuple | list) else (given,) * len(space)
        counts = torch.ones((), dtype=x.dtype, device=x.device)
        for n, m in zip(space, wanted, strict=True):
            m = n if m is None else m
            i = torch.arange(m, device=x.device)
            width = ((i + 1) * n + m - 1) // m - i * n // m
            counts = counts.unsqueeze(-1) * width.to(x.dtype)
        return counts


class MeanOver(Affine):
    def weight(self, x: Tensor) -> Tensor:
        count = 1
        for d in self.module.dims:
            count *= x.shape[d]
        return torch.full((), 1 / count, dtype=x.dtype, device=x.device)

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        y: Tensor = x.sum(self.module.dims, self.module.keepdim) * weight
        return y

    def rows(self, x: Tensor) -> Tensor:
        y: Tensor = self.module(x)
        return y


class SumOver(Affine):
    def weight(self, x: Tensor) -> Tensor:
        return torch.ones((), dtype=x.dtype, device=x.device)

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:  # noqa: ARG002
        y: Tensor = self.module(x)
        return y


def _space(module: nn.Module) -> int:
    """Number of spatial dimensions of a pool, from the suffix of its name."""
    return int(type(module).__name__[-2])


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, tuple | list) else value
