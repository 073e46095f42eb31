"""The check of rules that evaluate a net at points: it must map each row by itself."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from sdp_ref.errors import UnsupportedError
from sdp_ref.graph.consistency import inconsistency
from sdp_ref.graph.recording import by_ordinary_attention
from sdp_ref.graph.state import attributes_of, watched
from sdp_ref.graph.trace import Net
from sdp_ref.laws import Law
from sdp_ref.rules.base import unchanged_buffers

Propagate = Callable[[Law], Law]

_CHECKED: WeakKeyDictionary[nn.Module, dict[Any, Callable[[], bool]]] = WeakKeyDictionary()
"""For modules and the kind of their inputs, whether a check that they passed still holds."""


def evaluates(rule: str, net: Net) -> Callable[[Propagate], Propagate]:
    """Decorate the function that a rule prepares, if it evaluates the net at points or its derivatives.

    The first call raises an :class:`~sdp_ref.UnsupportedError` if the net does not map each row by itself.
    Attention is computed as in training, without torch's fast path.
    """
    _require_uncoupled(rule, net)

    def decorate(propagate: Propagate) -> Propagate:
        checked = set()

        @functools.wraps(propagate)
        def wrapper(x: Law) -> Law:
            kind = _kind(net, x)
            if kind not in checked and not torch.compiler.is_compiling():
                _require_rows(rule, net, x)
                checked.add(kind)
            with by_ordinary_attention():
                return propagate(x)

        return wrapper

    return decorate


def _kind(net: Net, x: Law) -> tuple[Any, ...]:
    return x.event_shape, x.location.dtype, x.location.device, getattr(net, "training", False)


def _require_rows(rule: str, net: Net, x: Law) -> None:
    """Raise an UnsupportedError unless a net maps each row by itself, near the first location."""
    kind = _kind(net, x)
    passed = _CHECKED.setdefault(net, {}) if isinstance(net, nn.Module) else {}
    if kind in passed and passed[kind]():
        return
    modules = list(net.modules()) if isinstance(net, nn.Module) else []
    attributes = attributes_of(modules)  # before the run: those that it replaces are not compared later
    devices = [x.location.device] if x.location.device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices), unchanged_buffers(net):
            reason = inconsistency(net, x.location, x.spread)
    except Exception:  # noqa: BLE001  it may support one size of batch only, or raise this in the rule, too
        return
    if reason is not None:
        raise UnsupportedError(rule, f"a net that {reason[0]}", hint=reason[1])
    if isinstance(net, nn.Module):
        passed[kind] = watched(modules, attributes, (), ())


def _require_uncoupled(rule: str, net: Net) -> None:
    """Reject batch normalisation by batch statistics: points of a rule are not a batch of inputs."""
    for path, module in net.named_modules() if isinstance(net, nn.Module) else ():
        coupled = isinstance(module, nn.modules.batchnorm._BatchNorm)
        if coupled and (module.training or module.running_mean is None):
            raise UnsupportedError(rule, f"{type(module).__name__} with batch statistics", path)
