"""Value and Jacobian of a net, in reverse or forward mode, and products of vectors with its Hessians."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from sdp_ref.errors import NoFormulaError
from sdp_ref.graph.trace import Net
from sdp_ref.jacobian.backward import Walk

MAX_BYTES = 2**30
"""Default memory limit, in addition to the net's activations and the result."""

# For a stack of cotangents on a CPU: larger ones exceed the cache, which costs more than it saves.
_CACHED_BYTES = 6 * 2**20
_LIVE = 4  # number of stacks alive at once: two branches, an op's input and its output


def jacobian_of(
    net: Net,
    x: Tensor,
    *,
    create_graph: bool = False,
    max_bytes: int = MAX_BYTES,
    spread: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Value and Jacobian of a net that works row by row.

    At a kink of ReLU or leaky ReLU the derivative is the one from the right, so that ReLU keeps the scale at
    location 0, as eq. 2 of Petersen et al. (2024) does; torch's own convention is 0. The cost is min(m, n)
    backward or forward passes.

    With `spread`, the size of the noise, shape (B, *event), differences are compared with the Jacobian of the
    first row. A NoFormulaError reports a net that depends on its input by computations without a gradient.
    """
    value, jacobian = _derived(net, x, create_graph, max_bytes)
    if spread is not None:
        _require_gradient(net, x, value, jacobian, spread)
    return value, jacobian


def _derived(net: Net, x: Tensor, create_graph: bool, max_bytes: int) -> tuple[Tensor, Tensor]:
    point = x if create_graph and x.requires_grad else x.detach().requires_grad_()
    with torch.enable_grad():
        # Copy: an op may overwrite its input, which autograd does not allow for a leaf.
        start = point.clone()
    origin: Any = start.grad_fn
    with torch.enable_grad(), RightDerivative(lambda tensor: _made_from(tensor, origin)):
        value = net(start)
    outputs, inputs = value[0].numel(), x[0].numel()
    with torch.set_grad_enabled(create_graph):
        jacobian = None
        if 0 < inputs < outputs and value.requires_grad:
            jacobian = _forward_jacobian(net, point, outputs, max_bytes)
        if jacobian is None:
            jacobian = reverse_jacobian(value, origin, x, max_bytes)
    return (value, jacobian) if create_graph else (value.detach(), jacobian.detach())


_UNSEEN = (
    "a net that depends on its input by computations without a gradient (torch.no_grad, detach, NumPy, "
    "quantised layers); rules that only call the net, such as unscented and monte_carlo, support it"
)
_STEPS = 4  # numbers of step sizes of differences
_TRIALS, _NEEDED = 12, 8  # random points, and how many of them have to contradict the derivative
_ALIKE = 0.02  # relative to the difference


def _require_gradient(net: Net, x: Tensor, value: Tensor, jacobian: Tensor, spread: Tensor) -> None:
    """Raise a NoFormulaError if differences of a net contradict its Jacobian, in the first row of a batch.

    At a kink, or where the net bends within the smallest step, differences say nothing. A Jacobian is
    therefore contradicted only if, at most random points, differences of two step sizes agree with each
    other, but not with the derivative there. In a wide float32 net even the smallest step crosses kinks, so a
    suspicion is examined in a float64 copy of the net, if that can be run.
    """
    digits = torch.finfo(x.dtype).eps
    if torch.compiler.is_compiling() or digits > 1e-4 or not x.numel() or not value.numel():
        return
    size = torch.maximum(spread[:1].to(x), math.sqrt(digits) * x[:1].detach().abs())
    if not _refuted(net, x, size, jacobian):
        return
    if isinstance(net, nn.Module) and x.dtype != torch.float64:
        with contextlib.suppress(Exception):  # copies, casts and the net itself may fail in any way
            if not _refuted(copy.deepcopy(net).double(), x.double(), size.double(), None):
                return
    raise NoFormulaError(_UNSEEN)


def _refuted(net: Net, x: Tensor, size: Tensor, jacobian: Tensor | None) -> bool:
    """Whether differences contradict the derivative of some output near the first row of `x`."""
    point = x[:1].detach()
    generator = torch.Generator().manual_seed(0)

    def random() -> Tensor:
        return torch.randn(point.shape, generator=generator, dtype=torch.float64).to(point)

    def apply(points: Tensor) -> Tensor:
        try:
            return net(points)
        except Exception:  # it may support the batch size of its input only
            if len(points) == len(x):
                raise
            rows = (row.expand(len(x), *row.shape[1:]).clone() for row in points.split(1))
            return torch.cat([net(row)[:1] for row in rows])

    if jacobian is None:
        jacobian = _derived(apply, point, False, MAX_BYTES)[1]
    if not _contradicted(apply, point, size * random(), jacobian.detach(), kinks=True).any():
        return False
    counts: Tensor | int = 0
    for trial in range(_TRIALS):
        other = point + size * random()
        derivative = _derived(apply, other, False, MAX_BYTES)[1]
        counts = counts + _contradicted(apply, other, size * random(), derivative).int()
        if int(counts.max()) + _TRIALS - trial - 1 < _NEEDED:
            return False
    return True


@torch.no_grad()
def _contradicted(
    net: Net, point: Tensor, direction: Tensor, jacobian: Tensor, *, kinks: bool = False
) -> Tensor:
    """Whether differences contradict the derivative of each output, (m,); with `kinks`, if none agrees."""
    digits = torch.finfo(point.dtype).eps
    exponents = torch.linspace(1, -0.45 * math.log2(digits), _STEPS, dtype=torch.float64)
    steps = torch.exp2(-exponents).to(point).reshape(-1, *[1] * (point.ndim - 1)) * direction
    tiny = 4 * digits * torch.maximum(point.abs(), direction.abs())
    steps = torch.cat([steps, tiny, 2 * tiny, 3 * tiny])
    ends = torch.cat([point + steps, point - steps])
    values = net(ends.clone()).detach().flatten(1)
    moved = (ends[: len(steps)] - ends[len(steps) :]).flatten(1)
    change = (values[: len(steps)] - values[len(steps) :]).double()
    expected = (moved @ jacobian[0].flatten(1).mT.to(moved)).double()
    off = (change - expected).abs()
    # the rounding of the net: of its outputs, and what a change of the inputs' last digits shows
    noise = torch.maximum(16 * digits * values.abs().amax(0).double(), 4 * off[_STEPS:].amax(0))
    change, expected, off = (each[:_STEPS] for each in (change, expected, off))
    # A net that rounds inside (autocast, float32 in a float64 net, straight-through estimators) is flat in
    # between, which says nothing of its slope.
    resolved = (torch.maximum(change.abs(), expected.abs()) > 20 * noise) & (change != 0)
    wrong = resolved & (off > _ALIKE * change.abs() + noise)
    if kinks:
        return resolved.any(0) & ~(resolved & ~wrong).any(0)
    scale = torch.exp2(exponents).unsqueeze(1).to(change.device)
    slope, error = change * scale, off * scale
    apart = (slope[1:] - slope[:-1]).abs()
    agree = (apart <= 0.2 * torch.minimum(error[1:], error[:-1])) & (apart <= 0.1 * slope[1:].abs())
    return (wrong[1:] & wrong[:-1] & agree).any(0)


def _forward_jacobian(net: Net, x: Tensor, outputs: int, max_bytes: int) -> Tensor | None:
    """Jacobian column by column; None if an op of the net has no forward derivative."""
    n = x[0].numel()
    chunk = max(1, min(n, max_bytes // (_LIVE * max(outputs, n) * len(x) * x.element_size())))
    basis = torch.eye(n, dtype=x.dtype, device=x.device).reshape(n, 1, *x.shape[1:]).expand(n, *x.shape)

    def column(tangent: Tensor) -> Tensor:
        return cast(Tensor, torch.func.jvp(lambda v: net(v.clone()), (x,), (tangent,))[1])  # for one output

    try:
        with RightDerivative(lambda _: False):  # checked in the previous run
            columns = torch.func.vmap(column, chunk_size=chunk)(basis)
    except (RuntimeError, NotImplementedError):  # no formula for the op, or none under vmap
        return None
    return columns.flatten(2).permute(1, 2, 0).reshape(x.shape[0], -1, *x.shape[1:])


def reverse_jacobian(value: Tensor, origin: Any, x: Tensor, max_bytes: int) -> Tensor:
    """Jacobian of a value with an existing graph, in one backward pass."""
    batch, outputs = value.shape[0], value[0].numel()
    if value.grad_fn is None:
        return x.new_zeros(batch, outputs, *x.shape[1:])
    walk = Walk.to(origin, value)
    if not walk.nodes and value.grad_fn is not origin:
        return x.new_zeros(batch, outputs, *x.shape[1:])
    bound = max_bytes // _LIVE
    if x.device.type == "cpu":
        bound = min(bound, _CACHED_BYTES)
    basis = torch.eye(outputs, dtype=value.dtype, device=value.device).reshape(outputs, 1, *value.shape[1:])
    return walk.pull_back(basis.expand(-1, *value.shape), x, bound).transpose(0, 1)


def _made_from(tensor: Tensor, origin: Any) -> bool:
    """Whether autograd's graph connects a tensor to the result of node `origin`."""
    nodes, seen = [tensor.grad_fn], {None}
    while nodes:
        node: Any = nodes.pop()
        if node is origin:
            return True
        if node not in seen:
            seen.add(node)
            nodes += [before for before, _ in node.next_functions]
    return False


class RightDerivative(TorchFunctionMode):
    """Computes ReLU and leaky ReLU such that their derivative at 0 is the one from the right.

    It rejects torch's dropout, RReLU and batch normalisation in training mode, which make the result random
    or mix rows. Other implementations of these are not detected. Functions of the weights alone are allowed:
    weight standardisation often uses batch normalisation.

    Parameters
    ----------
    depends : callable
        Whether a tensor that is normalised by its statistics may depend on the net's input.
    """

    _RELUS = frozenset({F.relu, F.relu_, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_})
    _LEAKY = frozenset({F.leaky_relu, F.leaky_relu_})
    _COUPLED = "batch normalisation with batch statistics"
    _REFUSED: ClassVar = (
        ({F.batch_norm: False, torch.batch_norm: True, torch.native_batch_norm: True}, _COUPLED, 5),
        (
            {F.dropout: True, F.dropout1d: True, F.dropout2d: True, F.dropout3d: True}
            | {F.alpha_dropout: False, F.feature_alpha_dropout: False}
            | {torch.dropout: True, torch.alpha_dropout: True, torch.native_dropout: True},
            "dropout in training mode",
            2,
        ),
        ({F.rrelu: False, torch.rrelu: False}, "RReLU in training mode", 3),
    )
    """Functions with the default and the position of their argument `training`."""

    def __init__(self, depends: Callable[[Tensor], bool] = lambda _: True) -> None:
        super().__init__()
        self.depends = depends

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        for functions, op, position in self._REFUSED:
            if func in functions and (
                args[position] if len(args) > position else kwargs.get("training", functions[func])
            ):
                if op == self._COUPLED and not self.depends(args[0] if args else kwargs["input"]):
                    continue
                raise NoFormulaError(op)
        if func not in self._RELUS and func not in self._LEAKY:
            return func(*args, **kwargs)
        x, *options = args or (kwargs["input"],)
        in_place = (
            func.__name__.endswith("_")
            or kwargs.get("inplace", False)
            or any(option is True for option in options)
        )
        if func in self._RELUS:
            return x.clamp_min_(0) if in_place else x.clamp_min(0)  # its derivative at 0 is 1
        slope = options.pop(0) if options else kwargs.get("negative_slope", 0.01)
        result = torch.where(x < 0, slope * x, x)
        return x.copy_(result) if in_place else result


def hessian_of(
    net: Net, x: Tensor, spread: Tensor | None = None
) -> tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]:
    """Value and Jacobian of a net that works row by row, and a function for products with its Hessians."""

    def smooth(v: Tensor) -> Tensor:
        # of torch's attention kernels, only the one made of plain ops has a second derivative
        with _NoKinks(), sdpa_kernel(SDPBackend.MATH):
            return net(v)

    with torch.enable_grad():
        start = x.detach().requires_grad_().clone()
        value, jacobian = jacobian_of(smooth, start, create_graph=True, spread=spread)
        rows = jacobian.flatten(2)

    def product(vectors: Tensor) -> Tensor:
        # Reverse over reverse: some torch functions, or their gradients, have no forward derivative.
        with torch.enable_grad():
            slopes = (rows @ vectors.unsqueeze(2)).squeeze(2)
        with torch.no_grad():
            return reverse_jacobian(slopes, start.grad_fn, x, MAX_BYTES).flatten(2)

    return value.detach(), rows.detach(), product


class _NoKinks(TorchFunctionMode):
    """Rejects functions with kinks, because second derivatives do not include the curvature of a kink."""

    _KINKED = frozenset(
        [
            *("relu", "relu6", "leaky_relu", "prelu", "rrelu", "selu", "threshold"),
            *("hardtanh", "hardsigmoid", "hardswish", "hardshrink", "softshrink"),
            *(f"{kind}max_pool{d}d" for kind in ("", "adaptive_", "fractional_") for d in (1, 2, 3)),
        ]
    )

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "").strip("_").removesuffix("_with_indices")
        if name in self._KINKED:
            hint = "unscented, cubature and moment_matching evaluate more than the derivatives at the mean"
            raise NoFormulaError(f"{name}, which has a kink that second derivatives do not include; {hint}")
        return func(*args, **(kwargs or {}))
