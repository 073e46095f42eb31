"""Affine ops, y = A x + b, applied to values, to scales and to the rows of a matrix without building A.

Every op is a linear function of its input, and the entries of its matrix are entries of a small weight, or 0.
The same function with ``weight.square()`` therefore maps variances of independent components, with
``weight.abs()`` Cauchy scales, with ``weight.abs()**alpha`` the alpha-th powers of stable scales, and with
the weight itself and no bias the rows of a covariance matrix.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.utils.parametrize import type_before_parametrizations

from sdp_ref.errors import NoFormulaError, NoLinearPartError
from sdp_ref.graph.ops import (
    BatchNorm,
    Divide,
    Folded,
    Interpolate,
    LinearFunction,
    Mean,
    Rearrange,
    Reshape,
    Scale,
    Shift,
    Sum,
)
from sdp_ref.laws.base import power
from sdp_ref.laws.location_scale import bounded, raised, stable_scale

CHUNK = 2**25  # elements of a temporary when an op is applied to the rows of a matrix


class Affine(ABC):
    """An affine op of a net.

    `module` is the op; its parameters are read at each call. Options that are not affine or not supported
    raise :class:`~sdp_ref.errors.NoFormulaError`.
    """

    diagonal = False
    """Whether each output depends on the corresponding input only."""

    copies = False
    """Whether :meth:`spread` takes copies of an input component for independent components."""

    homogeneous = False
    """Whether the module has no constant term, so that it maps rows itself."""

    def __init__(self, module: nn.Module) -> None:
        self.module: Any = module

    def value(self, x: Tensor) -> Tensor:
        """Return A x + b for x of shape (N, *event), in the dtype of `x`."""
        return self.module(x)

    @abstractmethod
    def weight(self, x: Tensor) -> Tensor:
        """Return the entries of A for inputs like `x`, in their own dtype."""

    @abstractmethod
    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return A x for x of shape (N, *event), with `weight` for the entries of A."""

    def check(self, x: Tensor) -> None:  # noqa: B027 - most ops take any event
        """Raise a NoFormulaError for inputs that the op would not treat as a batch."""

    def rows(self, x: Tensor) -> Tensor:
        """Return A x for x of shape (N, *event), in the dtype of `x`."""
        return self.module(x) if self.homogeneous else self.linear(x, self.weight(x).to(x.dtype))

    def spread(self, x: Tensor, exponent: float) -> Tensor:
        """Return abs(A)^exponent x, with an elementwise power, for x of shape (N, *event)."""
        return self.linear(x, raised(cast(self.weight(x), x), exponent))

    def stable_scale(self, scale: Tensor, alpha: float) -> Tensor:
        """Scales of A x for independent symmetric alpha-stable x, (abs(A)^alpha scale^alpha)^(1/alpha).

        `scale` has shape (N, *event). The sum is computed relative to the largest scale of each input, so
        that powers of the relevant scales neither over- nor underflow. A scale that overflows its dtype
        raises a ValueError.
        """
        if self.diagonal:
            return bounded(self.spread(bounded(scale), 1))
        top = bounded(scale.flatten(1).amax(1))
        top = torch.where(top > 0, top, 1.0)
        sums = self.spread(power(scale / top.reshape(-1, *[1] * (scale.ndim - 1)), alpha), alpha)
        return bounded(top.reshape(-1, *[1] * (sums.ndim - 1)) * power(sums, 1 / alpha))


TensorT = TypeVar("TensorT", Tensor, Tensor | None)


def cast(tensor: TensorT, like: Tensor) -> TensorT:
    """Convert a parameter, if there is one, to the dtype of a value."""
    if tensor is None or tensor.dtype == like.dtype:  # a call of `to` takes longer than the test
        return tensor
    return tensor.to(like.dtype)


class Elementwise(Affine):
    """Multiplication or division by a constant, or its addition."""

    diagonal = True

    def weight(self, x: Tensor) -> Tensor:
        constant: Tensor = self.module.of(x)
        match self.module:
            case Scale():
                return constant
            case Divide():
                return 1 / constant
        return torch.ones_like(constant)

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        # A shift may also broadcast components, as the product with ones does.
        if isinstance(self.module, Shift) and torch.broadcast_shapes(x.shape, weight.shape) == x.shape:
            return x
        return x * weight


class Rearrangement(Affine):
    """Reshape, permute, slice, zero-pad: every output is one input or 0."""

    diagonal = True

    @property
    def keeps_order(self) -> bool:
        """Whether flattened components keep their order, so that covariances (B, n, n) do not change."""
        return isinstance(self.module, nn.Flatten | nn.Unflatten | nn.Identity | Reshape)

    def weight(self, x: Tensor) -> Tensor:
        return torch.ones((), dtype=x.dtype, device=x.device)

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:  # noqa: ARG002
        return self.module(x)


class ConstantPadding(Rearrangement):
    """Padding of an event with a constant, which is the b of A x + b."""

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:  # noqa: ARG002
        padding = self.module.padding
        if len(padding) == 2 * x.ndim and any(padding[-2:]):  # (1, -1) shifts examples and keeps their number
            raise NoLinearPartError("padding of the batch dimension")
        return F.pad(x, padding)


_DENSE = 2**26
"""Maximum number of entries of an explicit matrix: 512 MB in float64."""


class Dense(Affine):
    """An affine function whose matrix, and its powers, are built from a basis of its inputs."""

    def weight(self, x: Tensor) -> Tensor:
        n = x[0].numel()
        zero: Tensor = self.module(x.new_zeros(1, *x.shape[1:]))
        if n * zero.numel() > _DENSE:
            text = f"a matrix of {zero.numel()} by {n} components, more than {_DENSE:,} entries"
            raise NoFormulaError(f"{self.module.text} with {text}")
        step = max(1, CHUNK // max(n, zero.numel()))
        parts = torch.eye(n, dtype=x.dtype, device=x.device).split(step)
        columns = [(self.module(part.reshape(-1, *x.shape[1:])) - zero).flatten(1) for part in parts]
        return torch.cat(columns).mT

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        y: Tensor = F.linear(x.flatten(1), weight)
        shape: tuple[int, ...] = self.module(x[:1]).shape[1:]
        return y.reshape(len(x), *shape)

    def rows(self, x: Tensor) -> Tensor:
        return self.module(x) - self.module(torch.zeros_like(x[:1]))


class Interpolation(Affine):
    """Resizing of images: one matrix per spatial dimension, whose product is A."""

    homogeneous = True

    def weight(self, x: Tensor) -> Tensor:
        """The matrices of all dimensions, concatenated."""
        weight = torch.cat([matrix.flatten() for matrix in self._matrices(x)])
        probe = torch.linspace(0, 9, x[0, 0].numel(), dtype=x.dtype, device=x.device).sin()
        probe = probe.reshape(1, 1, *x.shape[2:])
        if not torch.allclose(self.module(probe), self.linear(probe, weight), atol=1e-4):
            raise NoFormulaError("an interpolation that does not take the dimensions of space one by one")
        return weight

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        space = self.module(x[:1, :1]).shape[2:]
        shapes = [torch.Size(pair) for pair in zip(space, x.shape[2:], strict=True)]
        parts = weight.split([shape.numel() for shape in shapes])
        for dim, (shape, part) in enumerate(zip(shapes, parts, strict=True), start=2):
            x = torch.tensordot(x, part.reshape(shape), ([dim], [1])).movedim(-1, dim)
        return x

    def _matrices(self, x: Tensor) -> list[Tensor]:
        """For each dimension, the image (out, in) of its basis, constant along the others."""
        space, matrices = x.shape[2:], []
        for d, n in enumerate(space):
            basis = torch.eye(n, dtype=x.dtype, device=x.device)
            shape = [n if other == d else 1 for other in range(len(space))]
            images = basis.reshape(n, 1, *shape).expand(n, 1, *space)
            columns = self.module(images).squeeze(1).movedim(d + 1, -1)  # (in, *others, out)
            matrices.append(columns.reshape(n, -1, columns.shape[-1])[:, 0].mT)
        return matrices


class LinearMap(Affine):
    """`nn.Linear`: W x + b for x (..., n) and W (m, n), in the dtype of x."""

    def value(self, x: Tensor) -> Tensor:
        return F.linear(x, cast(self.module.weight, x), cast(self.module.bias, x))

    def weight(self, x: Tensor) -> Tensor:  # noqa: ARG002
        return self.module.weight

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.linear(x, weight)

    def stable_scale(self, scale: Tensor, alpha: float) -> Tensor:
        """The sum is computed relative to the largest term of each output."""
        return stable_scale(self.module.weight, scale, alpha)


class Convolution(Affine):
    """Convolutions with any padding.

    Padding with anything but zeros is a separate op. For powers of the weights, its copies of a component are
    independent components, as in a marginal rule that takes the two ops one by one.
    """

    name = "conv"
    """Name of the function in torch, without the number of dimensions."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self._function: Any = getattr(F, f"{self.name}{self.module.weight.ndim - 2}d")
        mode = self.module.padding_mode
        self.copies = mode != "zeros"
        sizes = self.module._reversed_padding_repeated_twice
        self._pad = None if mode == "zeros" else partial(F.pad, pad=sizes, mode=mode)

    def value(self, x: Tensor) -> Tensor:
        return self._convolved(x, self.module.weight.to(x.dtype), cast(self.module.bias, x))

    def weight(self, x: Tensor) -> Tensor:  # noqa: ARG002
        return self.module.weight

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        return self._convolved(x, weight, None)

    def rows(self, x: Tensor) -> Tensor:
        """Apply in chunks, since torch unfolds a float64 convolution in memory."""
        step = max(1, CHUNK // max(1, x[0].numel() * self.module.weight[0, 0].numel()))
        weight = self.module.weight.to(x.dtype)
        return torch.cat([self.linear(part, weight) for part in x.split(step)])

    def _convolved(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        m = self.module
        if self._pad is not None:
            return self._function(self._pad(x), weight, bias, m.stride, 0, m.dilation, m.groups)
        return self._function(x, weight, bias, m.stride, m.padding, m.dilation, m.groups)


class TransposedConvolution(Convolution):
    """Transposed convolutions; each entry of A is an entry of the weight, or 0."""

    name = "conv_transpose"

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
                "(call net.eval())"
            )

    def value(self, x: Tensor) -> Tensor:
        m = self.module
        mean, variance = m.running_mean.to(x.dtype), m.running_var.to(x.dtype)
        return F.batch_norm(x, mean, variance, cast(m.weight, x), cast(m.bias, x), False, 0.0, m.eps)

    def weight(self, x: Tensor) -> Tensor:
        root = (self.module.running_var.to(x.dtype) + self.module.eps).sqrt()
        gain: Tensor = 1 / root if self.module.weight is None else self.module.weight.to(x.dtype) / root
        return gain.reshape(-1, *[1] * (x.ndim - 2))

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        return x * weight


class Pool(Affine):
    """Averages over windows of space, one channel at a time."""

    homogeneous = True

    def check(self, x: Tensor) -> None:
        kind = type(self.module).__name__
        space = int(kind[-2])
        if x.ndim != space + 2:
            shape = tuple(x.shape[1:])
            raise NoLinearPartError(f"{kind} on an event of shape {shape}, not of {space + 1} dimensions")


class AveragePool(Pool):
    """AvgPool1d, AvgPool2d and AvgPool3d in all modes: sums over windows times one weight per output.

    All entries of a row of A are equal, so a power of this weight is the power of all entries.
    """

    def weight(self, x: Tensor) -> Tensor:
        ones = torch.ones_like(x[:1, :1])
        return self.module(ones) / self._summed(ones)  # (inside / divisor) / inside

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        return self._summed(x) * weight

    def _summed(self, x: Tensor) -> Tensor:
        m = self.module
        if not isinstance(m, nn.AvgPool1d):
            pool = F.avg_pool2d if isinstance(m, nn.AvgPool2d) else F.avg_pool3d
            return pool(x, m.kernel_size, m.stride, m.padding, m.ceil_mode, True, 1)
        size, stride, padding = _number(m.kernel_size), _number(m.stride), _number(m.padding)
        summed = F.avg_pool2d(
            x.unsqueeze(-2), (1, size), (1, stride), (0, padding), m.ceil_mode, True, divisor_override=1
        )
        return summed.squeeze(-2)


def _number(option: Any) -> int:
    """An option of a one-dimensional op, which may be given as a tuple of one number."""
    return int(option[0] if isinstance(option, tuple) else option)


class AdaptiveAveragePool(Pool):
    def weight(self, x: Tensor) -> Tensor:
        return 1 / self._counts(x)

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        # A mean times its count, since torch has no adaptive sum.
        return self.module(x) * self._counts(x) * weight

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


class SumOver(Affine):
    """Sums and means over dimensions of an event."""

    homogeneous = True

    def weight(self, x: Tensor) -> Tensor:
        count = math.prod(x.shape[d] for d in self.module.dims) if isinstance(self.module, Mean) else 1
        return torch.full((), 1 / count, dtype=x.dtype, device=x.device)

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        return self.module.summed(x) * weight


class FoldedAffine(Affine):
    """An affine op that is applied to each part of an event separately."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        kind = type_before_parametrizations(self.module.module)
        if kind not in AFFINE:
            raise NoFormulaError(kind.__name__)
        self.op = AFFINE[kind](self.module.module)
        self.diagonal = self.op.diagonal

    def value(self, x: Tensor) -> Tensor:
        return _unfolded(self.op.value(x.flatten(0, 1)), x)

    def check(self, x: Tensor) -> None:
        self.op.check(x.flatten(0, 1))

    def weight(self, x: Tensor) -> Tensor:
        return self.op.weight(x.flatten(0, 1))

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        return _unfolded(self.op.linear(x.flatten(0, 1), weight), x)

    def rows(self, x: Tensor) -> Tensor:
        return _unfolded(self.op.rows(x.flatten(0, 1)), x)


_CONSTANT_PADS = (
    nn.ConstantPad1d,
    nn.ConstantPad2d,
    nn.ConstantPad3d,
    nn.ZeroPad1d,
    nn.ZeroPad2d,
    nn.ZeroPad3d,
)
_COPIES = (
    nn.ReflectionPad1d,
    nn.ReflectionPad2d,
    nn.ReflectionPad3d,
    nn.ReplicationPad1d,
    nn.ReplicationPad2d,
    nn.ReplicationPad3d,
    nn.CircularPad1d,
    nn.CircularPad2d,
    nn.CircularPad3d,
    nn.PixelShuffle,
    nn.PixelUnshuffle,
    nn.ChannelShuffle,
)

AFFINE: dict[type[nn.Module], type[Affine]] = {
    nn.Linear: LinearMap,
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), Convolution),
    **dict.fromkeys((nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), TransposedConvolution),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, BatchNorm), Normalisation),
    **dict.fromkeys((nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d), AveragePool),
    **dict.fromkeys((nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d), AdaptiveAveragePool),
    **dict.fromkeys((Mean, Sum), SumOver),
    **dict.fromkeys((Scale, Divide, Shift), Elementwise),
    **dict.fromkeys((nn.Flatten, nn.Unflatten, Rearrange, Reshape, *_COPIES), Rearrangement),
    **dict.fromkeys(_CONSTANT_PADS, ConstantPadding),
    LinearFunction: Dense,
    **dict.fromkeys((Interpolate, nn.Upsample), Interpolation),
    Folded: FoldedAffine,
}


def _unfolded(y: Tensor, like: Tensor) -> Tensor:
    return y.reshape(*like.shape[:2], *y.shape[1:])
