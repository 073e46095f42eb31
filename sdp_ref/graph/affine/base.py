"""Affine ops, y = A x + b, with A never built: what each does to values, to scales and to rows of a matrix.

Every op is a function that is linear in its input and whose matrix has for its entries those of a
small weight, or 0. So the same function with ``weight.square()`` maps variances of independent
components, with ``weight.abs()`` Cauchy scales, with ``weight.abs()**alpha`` the alpha-th powers of
stable scales, and with the weight itself and no bias the rows of a covariance matrix.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from sdp_ref.errors import NoLinearPartError
from sdp_ref.laws.stable import bounded, power

CHUNK = 2**25  # elements of one temporary when an op is applied to the rows of a matrix

Power = int | float | None
"""Which power of the weight's absolute value; None is the weight itself."""


class Affine(ABC):
    """One affine op of a net.

    Parameters
    ----------
    module : nn.Module
        The op; its parameters are read at each call.

    Raises
    ------
    NoFormulaError
        If this op with these options is not affine, or is not handled.
    """

    diagonal = False
    """Whether each output has one input, its own."""

    def __init__(self, module: nn.Module) -> None:
        self.module: Any = module
        self._cache: tuple[Any, ...] | None = None

    def value(self, x: Tensor) -> Tensor:
        """A x + b for x of shape (N, *event), in the dtype of `x`."""
        y: Tensor = self.module(x)
        return y

    @abstractmethod
    def weight(self, x: Tensor) -> Tensor:
        """Entries of A, for inputs like `x`, in a dtype of its own."""

    @abstractmethod
    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        """A x for x of shape (N, *event), with `weight` for the entries of A."""

    def check(self, x: Tensor) -> None:  # noqa: B027 - most ops take any event
        """Refuse inputs that the op would not take for a batch.

        Raises
        ------
        NoFormulaError
            If so.
        """

    def rows(self, x: Tensor) -> Tensor:
        """A x for x of shape (N, *event), in the dtype of `x`."""
        return self.linear(x, self.weight(x).to(x.dtype))

    def spread(self, x: Tensor, exponent: Power) -> Tensor:
        """abs(A)^exponent x, elementwise powers, for x of shape (N, *event)."""
        return self.linear(x, self._power(x, exponent))

    def stable_scale(self, scale: Tensor, alpha: float) -> Tensor:
        """Scales of A x for independent symmetric alpha-stable x, (abs(A)^alpha scale^alpha)^(1/alpha).

        Taken relative to the largest scale of each input, so that powers of the scales that matter
        neither over- nor underflow.

        Parameters
        ----------
        scale : Tensor, shape (N, *event)
        alpha : float
            In (0, 2].

        Raises
        ------
        ValueError
            If a scale is beyond the largest number of its dtype.
        """
        if self.diagonal:
            return bounded(self.spread(bounded(scale), 1))
        top = bounded(scale.flatten(1).amax(1))
        top = torch.where(top > 0, top, 1.0)
        sums = self.spread(power(scale / _like(top, scale), alpha), alpha)
        return bounded(_like(top, sums) * power(sums, 1 / alpha))

    def _power(self, x: Tensor, exponent: Power) -> Tensor:
        """Power of the weight, kept from call to call where it is a parameter that no gradient goes to.

        In the dtype of `x`, and to its precision. Optimisers and ``load_state_dict`` are noticed; writing
        through ``weight.data`` is not.
        """
        weight = self.weight(x).to(x.dtype)
        keep = isinstance(weight, nn.Parameter) and not (
            torch.compiler.is_compiling() or weight.is_inference()  # a graph does not tell one from the next
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
    """A parameter in the dtype of a value, if there is one."""
    return None if tensor is None else tensor.to(like.dtype)


def check_ndim(module: nn.Module, x: Tensor, ndim: int) -> None:
    """Refuse values of another number of dimensions, the batch's included."""
    if x.ndim != ndim:
        text = (
            f"{type(module).__name__} on an event of shape {tuple(x.shape[1:])}, not of {ndim - 1} dimensions"
        )
        raise NoLinearPartError(text)
