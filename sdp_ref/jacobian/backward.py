"""Backward pass through autograd's graph for many outputs at once.

The cotangents of K outputs are stacked in front of the batch. An affine op treats the stack as one larger
batch, a pointwise op multiplies it by a slope that is computed once, and gradients of weights are never
computed. Nodes that are not in the tables below process one cotangent at a time by their own formula, so that
every net that autograd can differentiate is supported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.nn import functional as F  # noqa: N812

Node = Any
"""A node of autograd's graph (torch.autograd.graph.Node); its saved attributes depend on the op."""


@dataclass(frozen=True)
class _Cotangents:
    """Cotangents of one value, (K, *value), for K outputs; if `owned`, an op may overwrite the tensor."""

    tensor: Tensor
    owned: bool


Slot = tuple[Node, int]
"""A value in autograd's graph: its node and the index of the node's output."""


@dataclass(frozen=True)
class Walk:
    """The part of autograd's graph that leads from the input to the value.

    `nodes` are topologically sorted from the value (slot `end`) to the input (node `origin`). `wanted` has
    for each node the indices of the arguments that depend on the input, and `slopes` caches those of
    pointwise nodes.
    """

    origin: Node
    end: Slot
    nodes: list[Node]
    wanted: dict[Node, list[int]]
    slopes: dict[Node, tuple[Tensor | None, ...]] = field(default_factory=dict)

    @classmethod
    def to(cls, origin: Node, value: Tensor) -> Walk:
        """Return the walk from `value` to the tensor of node `origin`."""
        end: Node = value.grad_fn
        leads: dict[Node, bool] = {origin: True}
        nodes: list[Node] = []
        stack: list[tuple[Node, Iterator[Any]]] = []
        if end is not origin:
            leads[end] = False
            stack.append((end, iter(end.next_functions)))
        while stack:  # depth first, without recursion: nets may be deeper than Python's stack
            node, edges = stack[-1]
            for before, _ in edges:
                if before is not None and before not in leads:
                    leads[before] = False
                    stack.append((before, iter(before.next_functions)))
                    break
            else:
                stack.pop()
                leads[node] = any(before is not None and leads[before] for before, _ in node.next_functions)
                if leads[node]:
                    nodes.append(node)
        wanted = {
            node: [i for i, (before, _) in enumerate(node.next_functions) if leads.get(before, False)]
            for node in nodes
        }
        return cls(origin, (end, value.output_nr), nodes[::-1], wanted)

    def pull_back(self, basis: Tensor, x: Tensor, bound: int) -> Tensor:
        """Pull cotangents (K, B, *out) of the value back to the input: (K, B, *event).

        Where a stack of cotangents takes more than `bound` bytes at a node, it is split from there on, so
        that the small values near the output are still processed together.
        """
        return self._from(0, {self.end: _Cotangents(basis, False)}, len(basis), x, bound)

    def _from(
        self, position: int, arrived: dict[Slot, _Cotangents], rows: int, x: Tensor, bound: int
    ) -> Tensor:
        """Pull back `rows` cotangents that arrived at slots of the nodes from `position` on."""
        for index in range(position, len(self.nodes)):
            node = self.nodes[index]
            parts = min(rows, math.ceil(rows * self._bytes(node) / max(1, bound)))
            if parts > 1:
                most = math.ceil(rows / parts)
                results = []
                for start in range(0, rows, most):
                    stack = {}
                    for slot, g in arrived.items():
                        stack[slot] = _Cotangents(g.tensor[start : start + most], g.owned)
                    results.append(self._from(index, stack, min(most, rows - start), x, bound))
                return torch.cat(results)
            slots = range(len(node._input_metadata))
            given = {k: arrived.pop((node, k)) for k in slots if (node, k) in arrived}
            wanted = self.wanted[node]
            if not given:
                continue
            for i, result in zip(wanted, self._pull(node, given, wanted), strict=True):
                if result is None:
                    continue
                before, k = node.next_functions[i]
                result = _fitted(result, before._input_metadata[k])
                other = arrived.get((before, k))
                arrived[before, k] = result if other is None else _sum(other, result)
        if (self.origin, 0) not in arrived:
            return x.new_zeros(rows, *x.shape)
        return arrived[self.origin, 0].tensor

    def _bytes(self, node: Node) -> int:
        """Size of the largest input or output of `node`."""
        values = list(node._input_metadata)
        for i in self.wanted[node]:
            before, k = node.next_functions[i]
            values.append(before._input_metadata[k])
        sizes: list[int] = [math.prod(v.shape) * v.dtype.itemsize for v in values]
        return max(sizes)

    def _pull(self, node: Node, given: dict[int, _Cotangents], wanted: list[int]) -> list[_Cotangents | None]:
        name = node.name()
        if list(given) == [0]:
            g = given[0]
            if name in _SUMS:
                return [_summand(node, g, i) for i in wanted]
            if name in _POINTWISE and g.tensor.is_floating_point():
                if node not in self.slopes:
                    self.slopes[node] = _slopes(node)
                slopes = [self.slopes[node][i] for i in wanted]
                if all(s is None or s.shape == g.tensor.shape[1:] for s in slopes):
                    return [_times(g, s, owned=g.owned and len(slopes) == 1) for s in slopes]
            if name in _AFFINE and wanted == [_AFFINE[name][0]]:
                before, k = node.next_functions[wanted[0]]
                result = _AFFINE[name][1](node, g, before._input_metadata[k].shape)
                if result is not None:
                    return [result]
        return _one_by_one(node, given, wanted)


def _one_by_one(node: Node, given: dict[int, _Cotangents], wanted: list[int]) -> list[_Cotangents | None]:
    """Apply a node to one cotangent at a time."""
    results: list[list[Tensor | None]] = [[] for _ in wanted]
    for row in range(len(next(iter(given.values())).tensor)):
        slots = range(len(node._input_metadata))
        cotangents = [given[k].tensor[row] if k in given else None for k in slots]
        pulled = _call(node, cotangents)
        for result, i in zip(results, wanted, strict=True):
            result.append(pulled[i])
    stacked: list[_Cotangents | None] = []
    for result in results:
        parts = [part for part in result if part is not None]
        complete = len(parts) == len(result)
        stacked.append(_Cotangents(torch.stack(parts), True) if complete else None)
    return stacked


def _call(node: Node, cotangents: list[Tensor | None]) -> tuple[Tensor | None, ...]:
    if isinstance(node, BackwardCFunction):  # an autograd.Function, which autograd never calls with None
        values = node._input_metadata  # type: ignore[attr-defined]
        known = zip(cotangents, values, strict=True)
        filled = [torch.zeros(m.shape, dtype=m.dtype, device=m.device) if c is None else c for c, m in known]
        pulled = node.apply(*filled)
    else:
        pulled = node(*cotangents)
    return pulled if isinstance(pulled, tuple) else (pulled,)


def _slopes(node: Node) -> tuple[Tensor | None, ...]:
    """Derivatives of a pointwise node: its result for a cotangent of ones."""
    if node.name() == "ClampMinBackward0":  # ReLU: several times as fast as by its formula
        values = node._saved_self.detach()
        return (values.clone(memory_format=_order(values)).ge_(node._saved_min),)
    (result,) = node._input_metadata
    slopes = _call(node, [torch.ones(result.shape, dtype=result.dtype, device=result.device)])
    return tuple(None if slope is None else _channels_last(slope) for slope in slopes)


def _summand(node: Node, g: _Cotangents, argument: int) -> _Cotangents:
    sign = -1 if node.name() == "SubBackward0" else 1
    factor = sign * node._saved_alpha if argument == 1 else 1
    return _Cotangents(g.tensor, False) if factor == 1 else _Cotangents(g.tensor * factor, True)


def _times(g: _Cotangents, slope: Tensor | None, *, owned: bool) -> _Cotangents | None:
    if slope is None:
        return None
    tensor = g.tensor
    if owned and tensor.dtype == slope.dtype and not torch.is_grad_enabled():
        return _Cotangents(tensor.mul_(slope), True)
    # broadcast over the batch: its memory order becomes that of the slope
    if tensor.ndim > 1 and tensor.stride(1) == 0:
        product = _channels_last(tensor[:, 0]).unsqueeze(1) * slope
        return _Cotangents(product.expand(tensor.shape), product.shape == tensor.shape)
    return _Cotangents(tensor * slope, True)


def _sum(a: _Cotangents, b: _Cotangents) -> _Cotangents:
    if torch.is_grad_enabled() or not (a.owned or b.owned):
        return _Cotangents(a.tensor + b.tensor, True)
    return _Cotangents(a.tensor.add_(b.tensor) if a.owned else b.tensor.add_(a.tensor), True)


def _fitted(g: _Cotangents, value: Any) -> _Cotangents:
    """Sum over broadcast dimensions and convert to the value's dtype, as autograd's engine does."""
    tensor, shape = g.tensor, tuple(value.shape)
    if tuple(tensor.shape[1:]) != shape:
        extra = tensor.ndim - 1 - len(shape)
        if extra:
            tensor = tensor.sum(tuple(range(1, 1 + extra)))
        stretched = [i + 1 for i, n in enumerate(shape) if n == 1 and tensor.shape[i + 1] != 1]
        tensor = tensor.sum(stretched, keepdim=True) if stretched else tensor
    if tensor.dtype != value.dtype:
        tensor = tensor.to(value.dtype)
    return g if tensor is g.tensor else _Cotangents(tensor, True)


def _order(tensor: Tensor) -> torch.memory_format:
    """Memory format of images that convolutions on a CPU prefer; other tensors are unchanged."""
    images = tensor.ndim == 4 and tensor.device.type == "cpu" and tensor.dtype == torch.float32
    return torch.channels_last if images else torch.preserve_format


def _channels_last(tensor: Tensor) -> Tensor:
    order = _order(tensor)
    return tensor if order is torch.preserve_format else tensor.contiguous(memory_format=order)


def _per_row(function: Callable[[Tensor], Tensor], g: Tensor) -> _Cotangents:
    """Apply a function of a stack of rows to cotangents (K, B, ...), only once if all B are equal."""
    if g.stride(1) == 0 and g.shape[1] > 1:
        return _Cotangents(function(g[:, 0]).unsqueeze(1).expand(-1, g.shape[1], *[-1] * (g.ndim - 2)), False)
    return _Cotangents(function(g.flatten(0, 1)).unflatten(0, g.shape[:2]), True)


def _linear(node: Any, g: _Cotangents, _shape: tuple[int, ...]) -> _Cotangents:
    weight = node._saved_mat2
    alpha = getattr(node, "_saved_alpha", 1)
    pulled = _per_row(lambda rows: rows @ weight.mT, g.tensor)
    return pulled if alpha == 1 else _Cotangents(pulled.tensor * alpha, True)


_FEW = 4
"""Number of input channels up to which a CPU's transposed convolution is slower than a product and F.fold."""

_CONVOLVE = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSE = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def _convolution(node: Any, g: _Cotangents, shape: tuple[int, ...]) -> _Cotangents:
    weight, groups = node._saved_weight, node._saved_groups
    stride, padding, dilation = node._saved_stride, node._saved_padding, node._saved_dilation
    kernel = weight.shape[2:]
    if node._saved_transposed:
        convolve = _CONVOLVE[len(kernel)]
        return _per_row(
            lambda rows: convolve(_channels_last(rows), weight, None, stride, padding, dilation, groups),
            g.tensor,
        )
    reached = [
        (n - 1) * s - 2 * p + d * (k - 1) + 1
        for n, s, p, d, k in zip(g.tensor.shape[3:], stride, padding, dilation, kernel, strict=True)
    ]
    beyond = [n - r for n, r in zip(shape[2:], reached, strict=True)]  # rows that the stride skips
    transpose = _TRANSPOSE[len(kernel)]

    def pull(rows: Tensor) -> Tensor:
        rows = _channels_last(rows)
        if len(kernel) == 2 and weight.shape[1] <= _FEW and groups == 1 and rows.device.type == "cpu":
            patches = weight.flatten(1).mT @ rows.flatten(2)  # without a copy in any memory format
            return F.fold(patches, shape[2:], kernel, dilation, padding, stride)
        return transpose(rows, weight, None, stride, padding, beyond, groups, dilation)

    return _per_row(pull, g.tensor)


def _batch_norm(node: Any, g: _Cotangents, shape: tuple[int, ...]) -> _Cotangents | None:
    if node._saved_training:  # statistics of the input itself, as in an instance norm
        return None
    eps = getattr(node, "_saved_eps", None)
    scale = (node._saved_running_var + (node._saved_epsilon if eps is None else eps)).rsqrt()
    if node._saved_weight is not None:
        scale = scale * node._saved_weight
    return _times(g, scale.to(g.tensor.dtype).reshape(-1, *[1] * (len(shape) - 2)), owned=g.owned)


def _view(_node: Any, g: _Cotangents, shape: tuple[int, ...]) -> _Cotangents:
    tensor = g.tensor.reshape(len(g.tensor), *shape)
    return _Cotangents(tensor, g.owned)


def _same(_node: Any, g: _Cotangents, _shape: tuple[int, ...]) -> _Cotangents:
    return g


def _mean(node: Any, g: _Cotangents, shape: tuple[int, ...]) -> _Cotangents:
    dims = sorted((d - 2**64 if d >= 2**63 else d) % len(shape) for d in node._saved_dim) or range(len(shape))
    tensor = g.tensor / math.prod(shape[d] for d in dims)
    if not node._saved_keepdim:
        for d in dims:
            tensor = tensor.unsqueeze(d + 1)
    return _Cotangents(tensor.expand(-1, *shape), False)


_SUMS = frozenset({"AddBackward0", "SubBackward0"})
_POINTWISE = frozenset(
    f"{op}Backward{version}"
    for version in (0, 1, 2)
    for op in (
        "Abs",
        "Clamp",
        "ClampMax",
        "ClampMin",
        "Cos",
        "Div",
        "Elu",
        "Erf",
        "Exp",
        "Expm1",
        "Gelu",
        "Hardsigmoid",
        "Hardswish",
        "Hardtanh",
        "LeakyRelu",
        "Log",
        "Log1P",
        "LogSigmoid",
        "Maximum",
        "Minimum",
        "Mish",
        "Mul",
        "Neg",
        "Pow",
        "Reciprocal",
        "Relu",
        "Rsqrt",
        "Rsub",
        "Sigmoid",
        "Silu",
        "Sin",
        "Softplus",
        "Sqrt",
        "Tanh",
        "Where",
    )
)
"""Nodes whose components depend on the corresponding components of the arguments, after broadcasting."""

_Pull = Callable[[Any, _Cotangents, tuple[int, ...]], "_Cotangents | None"]
_AFFINE: dict[str, tuple[int, _Pull]] = {
    "AddmmBackward0": (1, _linear),
    "MmBackward0": (0, _linear),
    "ConvolutionBackward0": (0, _convolution),
    "NativeBatchNormBackward0": (0, _batch_norm),
    "CudnnBatchNormBackward0": (0, _batch_norm),
    "ViewBackward0": (0, _view),
    "UnsafeViewBackward0": (0, _view),
    "ReshapeAliasBackward0": (0, _view),
    "UnsqueezeBackward0": (0, _view),
    "SqueezeBackward1": (0, _view),
    "CloneBackward0": (0, _same),
    "AliasBackward0": (0, _same),
    "MeanBackward1": (0, _mean),
}
"""Nodes that are affine in one argument: the index of the argument, and their pull-back."""
