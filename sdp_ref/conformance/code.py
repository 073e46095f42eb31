"""A net and the law of its input as Python lines that make them again."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn

from sdp_ref import rules
from sdp_ref.conformance.cases import Residual
from sdp_ref.laws import Law

RESIDUAL = """
class Residual(nn.Module):
    def __init__(self, branch):
        super().__init__()
        self.branch = branch

    def forward(self, x):
        return x + self.branch(x)
"""

CALL = "y = rule.propagate(net, x)\nprint(y.mean, y.covariance)"


def as_code(net: nn.Module, x: Law, rule: Any, calls: str = "") -> str:
    """Python lines that build `net` and `x` and call the rule.

    Of a rule that comes with the package they make it too; another is left to the reader as `rule`.
    """
    dtype = str(x.location.dtype)
    lines = ["import torch", "from torch import nn", "import sdp_ref as sr"]
    lines += ["torch.set_printoptions(precision=10)"]
    lines += RESIDUAL.splitlines() if any(isinstance(m, Residual) for m in net.modules()) else []
    lines += [f"net = {_module(net)}.to({dtype}).{'train' if net.training else 'eval'}()"]
    state = {name: value for name, value in net.state_dict().items() if value.is_floating_point()}
    if state:
        lines += ["net.load_state_dict({"]
        lines += [f"    {name!r}: {_tensor(value)}," for name, value in state.items()]
        lines += ["}, strict=False)"]
    parts = ", ".join(_tensor(v) if isinstance(v, Tensor) else repr(v) for v in _values(x))
    lines += [f"x = sr.{type(x).__name__}({parts})"]
    built_in = isinstance(rule, rules.Rule) and type(rule).__module__.startswith("sdp_ref.")
    spec = getattr(rule, "spec", None) or getattr(rule, "name", "?")
    lines += [f"rule = sr.rule({spec!r})" if built_in else f"# rule: yours, {spec!r}"]
    return "\n".join([*lines, *(calls or CALL).splitlines()])


def _module(net: nn.Module) -> str:
    if isinstance(net, nn.Sequential):
        return f"nn.Sequential({', '.join(_module(child) for child in net)})"
    if isinstance(net, nn.Linear):
        return f"nn.Linear({net.in_features}, {net.out_features})"
    if isinstance(net, nn.Conv2d):
        return f"nn.Conv2d({net.in_channels}, {net.out_channels}, {tuple(net.kernel_size)})"
    if isinstance(net, Residual):
        return f"Residual({_module(net.branch)})"
    if isinstance(net, nn.BatchNorm1d):
        return f"nn.BatchNorm1d({net.num_features})"
    if isinstance(net, nn.Dropout):
        return f"nn.Dropout({net.p})"
    return f"nn.{type(net).__name__}()"


def _values(x: Law) -> list[Any]:
    return [getattr(x, f.name) for f in fields(x)]


def _tensor(value: Tensor) -> str:
    # float32 numbers are exact in float64, so this text gives the same bits back
    return f"torch.tensor({value.detach().to(torch.float64).tolist()}, dtype={value.dtype})"
