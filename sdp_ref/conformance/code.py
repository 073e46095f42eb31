"""Python code that reproduces a net and an input law."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn

from sdp_ref.conformance.cases import Residual
from sdp_ref.laws import Law
from sdp_ref.rules.base import Rule

CALL = "y = rule.propagate(net, x)\nprint(y.mean, y.covariance)"


def as_code(net: nn.Module, x: Law, rule: Any, calls: str = "") -> str:
    """Python code that builds `net` and `x` and calls the rule."""
    dtype = str(x.location.dtype)
    lines = ["import torch", "from torch import nn", "import sdp_ref as sr"]
    lines += ["torch.set_printoptions(precision=10)"]
    own = dict.fromkeys(type(m) for m in net.modules() if _is_own(m))
    if own:
        lines += ["from torch import Tensor", "from torch.nn import functional as F"]
    for kind in own:
        lines += ["", "", *inspect.getsource(kind).splitlines(), "", ""]
    lines += [f"net = {_module(net)}.to({dtype}).{'train' if net.training else 'eval'}()"]
    state = {name: value for name, value in net.state_dict().items() if value.is_floating_point()}
    if state:
        lines += ["net.load_state_dict({"]
        lines += [f"    {name!r}: {_tensor(value)}," for name, value in state.items()]
        lines += ["}, strict=False)"]
    parts = ", ".join(_tensor(v) if isinstance(v, Tensor) else repr(v) for v in _values(x))
    lines += [f"x = sr.{type(x).__name__}({parts})"]
    built_in = isinstance(rule, Rule) and type(rule).__module__.startswith("sdp_ref.")
    spec = getattr(rule, "spec", None) or getattr(rule, "name", "?")
    lines += [f"rule = sr.rule({spec!r})" if built_in else f"# rule: yours, {spec!r}"]
    return "\n".join([*lines, *(calls or CALL).splitlines()])


def _is_own(net: nn.Module) -> bool:
    """Whether a module's class is defined by the kit rather than by torch."""
    return type(net).__module__.startswith("sdp_ref.")


def _module(net: nn.Module) -> str:
    namespace = "" if _is_own(net) else "nn."
    return f"{namespace}{type(net).__name__}({_arguments(net)})"


def _arguments(net: nn.Module) -> str:
    text = ""
    match net:
        case nn.Sequential():
            text = ", ".join(_module(child) for child in net)
        case Residual():
            text = _module(net.branch)
        case nn.Linear():
            text = f"{net.in_features}, {net.out_features}"
        case nn.Flatten():
            text = ""
        case _:
            text = net.extra_repr()
    return text


def _values(x: Law) -> list[Any]:
    return [getattr(x, f.name) for f in fields(x)]


def _tensor(value: Tensor) -> str:
    # float32 numbers are exact in float64, so this text reproduces all bits
    return f"torch.tensor({value.detach().to(torch.float64).tolist()}, dtype={value.dtype})"
