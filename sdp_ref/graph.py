"""A net as a list of steps: its torch.fx trace with every op named by a module.

Functional forms (``F.relu``, ``x.relu()``, ``F.linear`` ...) become the module that does the same,
so that a layer-wise rule needs one handler per op and no second one per spelling.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F  # noqa: N812

Net = Callable[[Tensor], Tensor]


class UnsupportedError(NotImplementedError):
    """A rule cannot do what is asked of it.

    Parameters
    ----------
    rule : str
        Name of the rule.
    op : str
        What it has no formula for.
    path : str
        Where that stands in the net ("" for the net as a whole).
    """

    def __init__(self, rule: str, op: str, path: str = "") -> None:
        where = f" (at '{path}' in the net)" if path else ""
        super().__init__(f"rule '{rule}' does not support {op}{where}")
        self.rule, self.op, self.path = rule, op, path

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.rule, self.op, self.path)


class UntraceableError(ValueError):
    """torch.fx cannot turn the net into a list of ops."""


@dataclass(frozen=True)
class Step:
    """One op of a traced net.

    Attributes
    ----------
    module : nn.Module
        What is computed. Shares its parameters with the net.
    inputs : tuple of int
        Which earlier values it takes: 0 is the net's input, k the result of step k.
    path : str
        Where it stands in the net, for messages.
    """

    module: nn.Module
    inputs: tuple[int, ...]
    path: str


class Unknown(nn.Module):
    """An op that no table here knows; `text` says what it is."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class Add(nn.Module):
    """Sum of two values (a residual connection)."""


class _Functional(nn.Module):
    """A function of one tensor as a net."""

    def __init__(self, function: Net) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def _linear(weight: Tensor, bias: Tensor | None = None) -> nn.Module:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    del layer.weight, layer.bias  # plain attributes, so that tensors with a history keep it
    layer.weight, layer.bias = weight, bias  # type: ignore[assignment]
    return layer


def _relu(inplace: bool = False) -> nn.Module:  # noqa: ARG001
    return nn.ReLU()


def _leaky_relu(negative_slope: float = 0.01, inplace: bool = False) -> nn.Module:  # noqa: ARG001
    return nn.LeakyReLU(negative_slope)


def _silu(inplace: bool = False) -> nn.Module:  # noqa: ARG001
    return nn.SiLU()


def _dropout(p: float = 0.5, training: bool = True, inplace: bool = False) -> nn.Module:  # noqa: ARG001
    return nn.Dropout(p).train(training)


def _flatten(start_dim: int = 0, end_dim: int = -1) -> nn.Module:
    return nn.Flatten(start_dim, end_dim)


_FUNCTIONS: dict[Any, Callable[..., nn.Module]] = {
    F.linear: _linear,
    F.relu: _relu,
    torch.relu: _relu,
    torch.relu_: _relu,
    "relu": _relu,
    "relu_": _relu,
    F.leaky_relu: _leaky_relu,
    F.silu: _silu,
    F.gelu: nn.GELU,
    F.sigmoid: nn.Sigmoid,
    torch.sigmoid: nn.Sigmoid,
    "sigmoid": nn.Sigmoid,
    F.tanh: nn.Tanh,
    torch.tanh: nn.Tanh,
    "tanh": nn.Tanh,
    F.dropout: _dropout,
    torch.flatten: _flatten,
    "flatten": _flatten,
    operator.add: Add,
    torch.add: Add,
    "add": Add,
}


def trace(net: Net) -> list[Step]:
    """Trace `net` into steps, in the order in which it computes them.

    Parameters
    ----------
    net : nn.Module or function of one tensor
        Left as it is.

    Returns
    -------
    list of Step
        The last one gives the net's output. Empty for a net that returns its input.

    Raises
    ------
    UntraceableError
        If torch.fx cannot trace the net (its control flow depends on values, say), or the net
        does not map one tensor to one tensor.
    """
    module = net if isinstance(net, nn.Module) else _Functional(net)
    for path, part in module.named_modules():
        if part._forward_hooks or part._forward_pre_hooks:
            raise UntraceableError(f"a net with forward hooks (at '{path}')")
    try:
        graph_module = _trace(module)
    except (fx.proxy.TraceError, TypeError, RuntimeError, AttributeError, NameError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UntraceableError(f"a net that torch.fx cannot trace ({reason})") from error
    modules = dict(graph_module.named_modules())
    value: dict[fx.Node, int] = {}
    steps: list[Step] = []
    constants: dict[fx.Node, Tensor] = {}
    for node in graph_module.graph.nodes:
        if node.op == "placeholder":
            if value:
                raise UntraceableError("a net of several arguments")
            value[node] = 0
        elif node.op == "get_attr":
            constants[node] = operator.attrgetter(str(node.target))(graph_module)
        elif node.op == "output":
            result = node.args[0]
            if not isinstance(result, fx.Node) or result not in value:
                raise UntraceableError("a net that does not return one tensor made from its input")
            if value[result] != len(steps):  # trailing ops that do not reach the output
                steps = steps[: value[result]]
        else:
            steps.append(_step(node, modules, value, constants))
            value[node] = len(steps)
            if _in_place(node, steps[-1].module):  # whoever reads its input from here on reads the result
                value[node.all_input_nodes[0]] = len(steps)
    return steps


def _in_place(node: fx.Node, module: nn.Module) -> bool:
    """Whether an op writes its result over its input."""
    name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
    flagged = node.kwargs.get("inplace", False) or True in node.args[1:]
    named = node.op != "call_module" and str(name).endswith("_")
    return bool(node.all_input_nodes) and bool(getattr(module, "inplace", False) or flagged or named)


def _trace(module: nn.Module) -> fx.GraphModule:
    root = _Wrapped(module)  # a bare layer of torch.nn is a leaf only inside another module
    return fx.GraphModule(root, _Tracer().trace(root))


class _Tracer(fx.Tracer):
    """Takes what a function closes over: parameters and modules that are not the net's own."""

    def path_of_module(self, mod: nn.Module) -> str:
        if not any(mod is m for m in self.root.modules()):
            self.root.add_module(f"closed_over_{len(list(self.root.children()))}", mod)
            self.submodule_paths = {m: name for name, m in self.root.named_modules()}
        return super().path_of_module(mod)

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, nn.Parameter) and not any(a is p for p in self.root.parameters()):
            self.root.register_parameter(f"closed_over_{len(list(self.root.parameters(recurse=False)))}", a)
        return super().create_arg(a)


class _Wrapped(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


def _step(
    node: fx.Node, modules: dict[str, nn.Module], value: dict[fx.Node, int], constants: dict[fx.Node, Tensor]
) -> Step:
    inputs = tuple(value[n] for n in node.all_input_nodes if n in value)
    path = str(node.target).removeprefix("net.") if node.op == "call_module" else _path(node)
    if node.op == "call_module":
        return Step(modules[str(node.target)], inputs, path)
    build = _FUNCTIONS.get(node.target)
    if build is None:
        return Step(Unknown(_describe(node)), inputs, path)
    given = [a for a in node.args if not (isinstance(a, fx.Node) and a in value)]
    options = {k: v for k, v in node.kwargs.items() if not (isinstance(v, fx.Node) and v in value)}
    given = [constants.get(a, a) if isinstance(a, fx.Node) else a for a in given]
    options = {k: constants.get(v, v) if isinstance(v, fx.Node) else v for k, v in options.items()}
    if build is Add and (given or options or len(node.args) != 2):
        return Step(Unknown(f"{_describe(node)} with a constant"), inputs, path)
    if build is Add:  # x + x names its input once in all_input_nodes
        inputs = tuple(value[a] for a in node.args if isinstance(a, fx.Node))
    try:
        return Step(build(*given, **options), inputs, path)
    except TypeError:
        return Step(Unknown(f"{_describe(node)} with these arguments"), inputs, path)


def _describe(node: fx.Node) -> str:
    target = node.target
    if node.op == "call_method":
        return f"Tensor.{target}"
    return getattr(target, "__name__", str(target))


def _path(node: fx.Node) -> str:
    stack = node.meta.get("nn_module_stack") or {}
    inside = next(reversed(stack), "") if stack else ""
    inside = str(inside).removeprefix("net").removeprefix(".")
    return f"{inside}.{node.name}" if inside else node.name
