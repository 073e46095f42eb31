"""Value and Jacobian of a net, in reverse or forward mode, and products of vectors with its Hessians."""

from __future__ import annotations

import contextlib
import copy
import inspect
import math
import re
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from sdp_ref.errors import NoFormulaError
from sdp_ref.graph.ops import Unknown
from sdp_ref.graph.trace import Net, UntraceableError, trace
from sdp_ref.jacobian.backward import Walk
from sdp_ref.jacobian.right import RightDerivative

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

    At a kink, the derivative is the one from the right (:mod:`sdp_ref.jacobian.right`), so that ReLU keeps
    the scale at location 0, as eq. 2 of Petersen et al. (2024) does; torch's own convention is 0. The cost is
    min(m, n) backward or forward passes.

    With `spread`, the size of the noise, shape (B, *event), differences are compared with the Jacobian of the
    first row if the net may not be one function of torch's ops: it uses values outside autograd, custom
    autograd functions or TorchScript. A NoFormulaError reports a net that depends on its input by
    computations without a gradient.
    """
    value, jacobian, opaque = _derived(net, x, create_graph, max_bytes, examined=spread is not None)
    if spread is not None and (opaque or _scripted(net)):
        _require_gradient(net, x, value, jacobian, spread)
    return value, jacobian


def _derived(
    net: Net, x: Tensor, create_graph: bool, max_bytes: int, *, examined: bool = False
) -> tuple[Tensor, Tensor, bool]:
    """Value, Jacobian, and if `examined`, whether the derivative of the net may not be that of its values."""
    point = x if create_graph and x.requires_grad else x.detach().requires_grad_()
    value, origin, mode = _run(net, point)
    jumped = mode.jumped
    opaque = (examined or jumped) and (mode.hidden or _defined_in_python(value, origin))
    if jumped and not opaque and (steps := _steps(net, x)) is not None:
        # the traced steps have functions of one value in place of comparisons
        _, origin, _ = run = _run(steps, point)
        derived, net = run[0], steps
    else:
        derived = value
    outputs, inputs = value[0].numel(), x[0].numel()
    with torch.set_grad_enabled(create_graph):
        jacobian = None
        if 0 < inputs < outputs and derived.requires_grad:
            jacobian = _forward_jacobian(net, point, outputs, max_bytes)
        if jacobian is None:
            again = RightDerivative(repeated=True) if mode.recomputed else contextlib.nullcontext()
            with again:
                jacobian = reverse_jacobian(derived, origin, x, max_bytes)
    return (value, jacobian, opaque) if create_graph else (value.detach(), jacobian.detach(), opaque)


def _run(net: Net, point: Tensor) -> tuple[Tensor, Any, RightDerivative]:
    """Value of a net with its graph, the node of its input, and the mode of the run."""
    with torch.enable_grad():
        # Copy: an op may overwrite its input, which autograd does not allow for a leaf.
        start = point.clone()
    origin: Any = start.grad_fn
    mode = RightDerivative(lambda tensor: _made_from(tensor, origin))
    with torch.enable_grad(), mode:
        value = net(start)
    return value, origin, mode


def _steps(net: Net, x: Tensor) -> Net | None:
    """A net as its traced steps, whose functions of one value have derivatives from the right."""
    try:
        steps = trace(net, x)
    except (UntraceableError, NoFormulaError):
        return None
    if any(isinstance(step.module, Unknown) and step.module.function is None for step in steps):
        return None

    def run(v: Tensor) -> Tensor:
        values = [v]
        for step in steps:
            values.append(step.module(*[values[i] for i in step.inputs]))
        return values[-1]

    return run


_BUILT_IN = re.compile(r"\w+Backward\d+|.*Copy(Slices|Backwards)")


def _defined_in_python(value: Tensor, origin: Any) -> bool:
    """Whether a derivative on the way to the input is not torch's own: custom functions, compiled code."""
    if value.grad_fn is None or value.grad_fn is origin:
        return False
    return any(not _BUILT_IN.fullmatch(node.name()) for node in Walk.to(origin, value).nodes)


def _scripted(net: Net) -> bool:
    """Whether parts of a net are TorchScript, whose ops are not visible to modes of Python."""
    net = inspect.unwrap(net)
    modules = net.modules() if isinstance(net, nn.Module) else [net]
    return any(isinstance(m, torch.jit.ScriptModule | torch.jit.ScriptFunction) for m in modules)


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
    module = inspect.unwrap(net)
    if isinstance(module, nn.Module) and x.dtype != torch.float64:
        with contextlib.suppress(Exception):  # copies, casts and the net itself may fail in any way
            if not _refuted(copy.deepcopy(module).double(), x.double(), size.double(), None):
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
    """Whether differences contradict the derivative of each output, (m,); with `kinks`, if none agrees.

    Central differences are taken along `direction` over steps that decrease by a constant factor. Two
    successive steps must agree on a slope other than that of `jacobian` (1, m, *event).
    """
    digits = torch.finfo(point.dtype).eps
    exponents = torch.linspace(1, -0.45 * math.log2(digits), _STEPS, dtype=torch.float64)
    steps = torch.exp2(-exponents).to(point).reshape(-1, *[1] * (point.ndim - 1)) * direction
    tiny = 4 * digits * torch.maximum(point.abs(), direction.abs())
    change, expected, largest = _changes(net, point, torch.cat([steps, tiny, 2 * tiny, 3 * tiny]), jacobian)
    error = (change - expected).abs()
    # the rounding of the net: of its outputs, and what a change of the inputs' last digits shows
    noise = torch.maximum(16 * digits * largest, 4 * error[_STEPS:].amax(0))
    change, expected, error = change[:_STEPS], expected[:_STEPS], error[:_STEPS]
    # A net that rounds inside (autocast, float32 in a float64 net, straight-through estimators) is flat in
    # between, which says nothing of its slope.
    resolved = (torch.maximum(change.abs(), expected.abs()) > 20 * noise) & (change != 0)
    wrong = resolved & (error > _ALIKE * change.abs() + noise)
    if kinks:
        return resolved.any(0) & ~(resolved & ~wrong).any(0)
    per_step = torch.exp2(exponents).unsqueeze(1).to(change.device)
    return (wrong[1:] & wrong[:-1] & _converged(change * per_step, error * per_step)).any(0)


def _changes(net: Net, point: Tensor, steps: Tensor, jacobian: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Changes of the outputs from -step to step, and those by the Jacobian, (steps, m); largest outputs (m,).

    Changes are expected for the differences of the rounded ends, and not for twice the steps.
    """
    count = len(steps)
    ends = torch.cat([point + steps, point - steps])
    values = net(ends.clone()).detach().flatten(1)
    moved = (ends[:count] - ends[count:]).flatten(1)
    change = (values[:count] - values[count:]).double()
    expected = (moved @ jacobian[0].flatten(1).mT.to(moved)).double()
    return change, expected, values.abs().amax(0).double()


def _converged(slope: Tensor, error: Tensor) -> Tensor:
    """Whether the slopes of successive steps agree, compared with their distance from the derivative."""
    change = (slope[1:] - slope[:-1]).abs()
    smaller_error = torch.minimum(error[1:], error[:-1])
    return (change <= 0.2 * smaller_error) & (change <= 0.1 * slope[1:].abs())


def _forward_jacobian(net: Net, x: Tensor, outputs: int, max_bytes: int) -> Tensor | None:
    """Jacobian column by column; None if an op of the net has no forward derivative."""
    n = x[0].numel()
    chunk = max(1, min(n, max_bytes // (_LIVE * max(outputs, n) * len(x) * x.element_size())))
    basis = torch.eye(n, dtype=x.dtype, device=x.device).reshape(n, 1, *x.shape[1:]).expand(n, *x.shape)

    def column(tangent: Tensor) -> Tensor:
        return cast(Tensor, torch.func.jvp(lambda v: net(v.clone()), (x,), (tangent,))[1])  # for one output

    try:
        with RightDerivative(repeated=True):
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


def hessian_of(
    net: Net, x: Tensor, spread: Tensor | None = None
) -> tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]:
    """Value and Jacobian of a net that works row by row, and a function for products with its Hessians."""

    def smooth(v: Tensor) -> Tensor:
        # of torch's attention kernels, only the one made of plain ops has a second derivative
        with _NoKinks(), sdpa_kernel(SDPBackend.MATH):
            return net(v)

    smooth.__wrapped__ = net  # type: ignore[attr-defined]

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
        {
            "relu",
            "relu6",
            "leaky_relu",
            "prelu",
            "rrelu",
            "selu",
            "threshold",
            "hardtanh",
            "hardsigmoid",
            "hardswish",
            "hardshrink",
            "softshrink",
            "max_pool1d",
            "max_pool2d",
            "max_pool3d",
            "adaptive_max_pool1d",
            "adaptive_max_pool2d",
            "adaptive_max_pool3d",
            "fractional_max_pool1d",
            "fractional_max_pool2d",
            "fractional_max_pool3d",
        }
    )

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "").strip("_").removesuffix("_with_indices")
        if name in self._KINKED:
            hint = "unscented, cubature and moment_matching evaluate more than the derivatives at the mean"
            raise NoFormulaError(f"{name}, which has a kink that second derivatives do not include; {hint}")
        return func(*args, **(kwargs or {}))
