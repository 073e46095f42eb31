"""Affine ops, y = A x + b, applied to values, to scales and to the rows of a matrix without building A.

Every op is a linear function of its input, and the entries of its matrix are entries of a small weight, or 0.
The same function with ``weight.square()`` therefore maps variances of independent components, with
``weight.abs()`` Cauchy scales, with ``weight.abs()**alpha`` the alpha-th powers of stable scales, and with
the weight itself and no bias the rows of a covariance matrix.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from sdp_ref.errors import NoLinearPartError
from sdp_ref.laws.stable import bounded, power

CHUNK = 2**25  # elements of a temporary when an op is applied to the rows of a matrix

Power = int | float | None
"""Exponent of the weight's absolute value; None is the weight itself."""


class Affine(ABC):
    """An affine op of a net.

    `module` is the op; its parameters are read at each call. Options that are not affine or not supported
    raise :class:`~sdp_ref.errors.NoFormulaError`.
    """

    diagonal = False
    """Whether each output depends on the corresponding input only."""

    def __init__(self, module: nn.Module) -> None:
        self.module: Any = module
        self._cache: tuple[Any, ...] | None = None

    def value(self, x: Tensor) -> Tensor:
        """Return A x + b for x of shape (N, *event), in the dtype of `x`."""
        y: Tensor = self.module(x)
        return y

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
        return self.linear(x, self.weight(x).to(x.dtype))

    def spread(self, x: Tensor, exponent: Power) -> Tensor:
        """Return abs(A)^exponent x, with an elementwise power, for x of shape (N, *event)."""
        return self.linear(x, self._power(x, exponent))

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
        sums = self.spread(power(scale / _like(top, scale), alpha), alpha)
        return bounded(_like(top, sums) * power(sums, 1 / alpha))

    def _power(self, x: Tensor, exponent: Power) -> Tensor:
        """Power of the weight, cached between calls if it is a parameter that does not require a gradient.

        It has the dtype of `x`, and its precision. Updates by optimisers and ``load_state_dict`` invalidate
        the cache; writing through ``weight.data`` does not.
        """
        weight = self.weight(x).to(x.dtype)
        keep = isinstance(weight, nn.Parameter) and not (
            # a compiled graph cannot distinguish versions of the weight
            torch.compiler.is_compiling() or weight.is_inference()
        )
        if not keep or (torch.is_grad_enabled() and weight.requires_grad):
            return _raised(weight, exponent)
        key = (weight, weight._version, weight.data_ptr(), exponent)
        if self._cache is None or not _same(self._cache[0], key):
            self._cache = (key, _raised(weight.detach(), exponent))
        kept: Tensor = self._cache[1]
        return kept


def _like(x: Tensor, like: Tensor) -> Tensor:
    """Return `x` (N,) with as many dimensions as `like`."""
    return x.reshape(-1, *[1] * (like.ndim - 1))


def _same(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return a[0] is b[0] and a[1:] == b[1:]


def _raised(weight: Tensor, exponent: Power) -> Tensor:
    if exponent is None:
        return weight
    if exponent == 2:
        return weight.square()
    return weight.abs() if exponent == 1 else power(weight.abs(), exponent)


def cast(tensor: Tensor | None, like: Tensor) -> Tensor | None:
    """Convert a parameter, if there is one, to the dtype of a value."""
    return None if tensor is None else tensor.to(like.dtype)


def check_ndim(module: nn.Module, x: Tensor, ndim: int) -> None:
    """Require a number of dimensions, including that of the batch."""
    if x.ndim != ndim:
        text = (
            f"{type(module).__name__} on an event of shape {tuple(x.shape[1:])}, not of {ndim - 1} dimensions"
        )
        raise NoLinearPartError(text)
