"""A function of several values at a point: its linear part applied to rows, and to spreads of components."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from sdp_ref.errors import NoFormulaError, NoLinearPartError
from sdp_ref.jacobian.jacobian import jacobian_of
from sdp_ref.jacobian.right import RightDerivative
from sdp_ref.laws.location_scale import raised

Function = Callable[..., Tensor]

_CHUNK = 2**24  # entries of derivatives in memory at once
_ROUNDING = 1e-3  # difference between values of a row in batches of several sizes, at worst in float32
_MOST = 2**29
"""Largest Jacobian, in entries, that is evaluated column by column: more would take hours."""


def linear_part(function: Function, points: Sequence[Tensor]) -> tuple[Tensor, Function]:
    """Value and linear part of a function of several values that works row by row.

    If autograd is enabled, both are differentiable with respect to the points and the function's parameters.
    """
    value = _value(function, points)
    points = tuple(points)
    whole = functools.cache(lambda: _jacobian(function, points))

    def rows(*given: Tensor) -> Tensor:
        if not given[0].shape[1]:
            return value.new_zeros(len(value), 0, *value.shape[1:])

        def directional(*tangents: Tensor) -> Tensor:
            return torch.func.jvp(function, points, tangents)[1]

        widest = max(x[0].numel() for x in (value, *points))
        chunk = max(1, _CHUNK // max(1, len(value) * widest))
        try:
            with RightDerivative(repeated=True):
                return torch.func.vmap(directional, 1, 1, chunk_size=chunk)(*given)
        except NoFormulaError:
            raise
        except (RuntimeError, NotImplementedError):  # no formula for an op, or none under vmap
            pass
        concatenated = torch.cat([x.flatten(2) for x in given], 2)
        image = concatenated @ whole().mT
        return image.reshape(*concatenated.shape[:2], *value.shape[1:])

    return value, rows


def spread_through(
    function: Function,
    points: Sequence[Tensor],
    spreads: Sequence[Tensor],
    exponent: float,
    pointwise: bool = False,
) -> Tensor:
    """Sums of abs(J)^exponent times the spread of each component, (B, *out), J the Jacobian at the points.

    `points` and `spreads` are (B, *event) per argument. If `pointwise`, J is diagonal.
    """
    value, rows = linear_part(function, points)
    if not pointwise or any(x.shape != value.shape for x in points):
        return spread_by_rows(rows, spreads, exponent, value)
    zeros = [torch.zeros_like(x).unsqueeze(1) for x in points]
    total = torch.zeros_like(value)
    for i, spread in enumerate(spreads):
        tangents = list(zeros)
        tangents[i] = torch.ones_like(zeros[i])
        total = total + raised(rows(*tangents).squeeze(1), exponent) * spread
    return total


def spread_by_rows(rows: Function, spreads: Sequence[Tensor], exponent: float, value: Tensor) -> Tensor:
    """Sums of abs(J)^exponent times the spread of each component, (B, *out), J by its products with rows.

    `spreads` are (B, *event) per argument, and `value` (B, *out) is the output.
    """
    m = value[0].numel()
    inputs = sum(spread[0].numel() for spread in spreads)
    if m * inputs > _MOST:
        text = f"a Jacobian of {m} by {inputs} components, more than {_MOST:,} entries"
        raise NoFormulaError(text)
    total = torch.zeros_like(value)
    for argument, spread in enumerate(spreads):
        n = spread[0].numel()
        chunk = max(1, _CHUNK // max(1, len(value) * max(n, m)))
        for components in torch.arange(n, device=value.device).split(chunk):
            count = len(components)
            tangents = [value.new_zeros(len(value), count, *x.shape[1:]) for x in spreads]
            tangents[argument].flatten(2)[:, torch.arange(count), components] = 1
            weights = spread.flatten(1)[:, components].reshape(-1, count, *[1] * (value.ndim - 1))
            total = total + (raised(rows(*tangents), exponent) * weights).sum(1)
    return total


def _value(function: Function, points: Sequence[Tensor]) -> Tensor:
    with RightDerivative():
        value = function(*points)
    if not isinstance(value, Tensor) or value.ndim < 1 or len(value) != len(points[0]):
        raise NoLinearPartError("an op that does not give one value, a row for each row of what it takes")
    if len(value) > 1 and not _rows_are_separate(function, points, value.detach()):
        raise NoLinearPartError("an op that couples the rows of a batch")
    return value


def _rows_are_separate(function: Function, points: Sequence[Tensor], value: Tensor) -> bool:
    """Whether the last row does not depend on the others, up to rounding."""
    with torch.no_grad():
        row = function(*[x[-1:] for x in points])
    largest = value[-1:].abs().amax().item() if value.numel() else 0.0
    return row.shape == value[-1:].shape and torch.allclose(
        row, value[-1:], rtol=_ROUNDING, atol=_ROUNDING * largest, equal_nan=True
    )


def _jacobian(function: Function, points: Sequence[Tensor]) -> Tensor:
    """Jacobian (B, m, n) with respect to the concatenated components of all points."""
    sizes = [x[0].numel() for x in points]

    def of_concatenated(concatenated: Tensor) -> Tensor:
        parts = concatenated.split(sizes, 1)
        return function(*[part.reshape(x.shape) for part, x in zip(parts, points, strict=True)])

    concatenated = torch.cat([x.flatten(1) for x in points], 1)
    size = concatenated.detach().abs()
    size = size + size.mean(1, keepdim=True)
    create_graph = torch.is_grad_enabled()
    return jacobian_of(of_concatenated, concatenated, create_graph=create_graph, spread=size)[1].flatten(2)


def in_dtype(module: nn.Module, *values: Tensor) -> Tensor:
    """Output of a module in the dtype of its values, whatever that of its parameters is."""
    dtype = values[0].dtype

    def cast(tensors: Any) -> dict[str, Tensor]:
        return {
            name: value.to(dtype)
            for name, value in tensors
            if isinstance(value, Tensor) and value.is_floating_point() and value.dtype != dtype
        }

    if plain := cast(vars(module).items()):
        module = copy.copy(module)  # shallow: parameters are shared
        vars(module).update(plain)
    tensors = {**cast(module.named_parameters()), **cast(module.named_buffers())}
    return functional_call(module, tensors, values) if tensors else module(*values)
