"""The settings and nets of a run, and the rules that support them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import nn

import sdp_ref
from sdp_bench.bench.errors import OutsideError, RunFailedError, outside
from sdp_bench.bench.executors.local import apart
from sdp_bench.bench.experiments.predict import unsaid
from sdp_bench.bench.metrics.references import Reference
from sdp_bench.bench.nets.net import Net, inputs_of
from sdp_bench.bench.nets.own.net import OwnNet
from sdp_bench.bench.noise import GAUSSIAN, Noise
from sdp_bench.bench.plugins.code import no_exit
from sdp_bench.bench.plugins.plugin import Plugin, plugin_of
from sdp_bench.bench.results.record import LeftOut
from sdp_bench.bench.settings import Settings
from sdp_ref.activations import ACTIVATIONS
from sdp_ref.errors import message_of
from sdp_ref.rules import MomentMatching, Propagator, Rule

_SLOW = 0.02
"""Time (s) per layer of covariances above which moment matching is skipped unless requested."""


@dataclass(frozen=True, eq=False)
class Scope:
    """Settings and nets of a run, with a cache of unsupported rules for all experiments."""

    settings: Settings
    nets: Sequence[Net] = ()
    _refusals: dict[tuple[str, str], str] = field(default_factory=dict, repr=False)

    def left_out(self, rule: str, net: Net, noise: Noise) -> LeftOut | None:
        """Return why a rule does not run on nets with this activation under a family of noise, or None."""
        activation, where = net.architecture.activation, f"{noise.name} noise"
        attempts: tuple[tuple[str, Callable[[], str]], ...] = (
            (activation, lambda: self._refused_net(rule, net)),
            (where, lambda: self._refused_noise(rule, noise)),
        )
        for place, refused in attempts:
            if (rule, place) not in self._refusals:
                self._refusals[rule, place] = refused()
            if reason := self._refusals[rule, place]:
                return LeftOut(rule, place, reason)
        return None

    def _refused_net(self, rule: str, net: Net) -> str:
        if plugin := plugin_of(rule, self.settings.plugins):
            return _asked(plugin.address, plugin, net)
        made, activation = self.settings.rule(rule), net.architecture.activation
        if isinstance(made, Reference):
            return ""
        slow = isinstance(made, MomentMatching) and activation in ACTIVATIONS
        if not self.settings.slow_rules and slow and ACTIVATIONS[activation].layer_seconds > _SLOW:
            return f"rule '{rule}' is slow on {activation} nets; --slow-rules runs it"
        return _asked(net.architecture.name, made, net) if isinstance(net, OwnNet) else _refusal(made, net)

    def _refused_noise(self, rule: str, noise: Noise) -> str:
        if plugin := plugin_of(rule, self.settings.plugins):
            return "" if noise == GAUSSIAN else _asked(plugin.address, plugin, noise)
        made = self.settings.rule(rule)
        if isinstance(made, Reference):
            return made.refusal(noise.example)
        return "" if noise == GAUSSIAN else _refusal(made, noise)


def _asked(address: str, rule: Propagator | Plugin, place: Net | Noise) -> str:
    """Call `_refusal` for user code, a rule or a net, found at `address`."""
    try:
        return apart(_refusal, rule, place, address=address)
    except RunFailedError:
        return ""


def _look_at(rule: Propagator, place: Net | Noise) -> None:
    """Apply a rule to a net or a noise, so that it raises if it has no formula."""
    if isinstance(place, Noise):
        law = place.example
        rule.propagate(nn.Linear(law.dimension, 1), law)
        return
    module, law = place.build(), GAUSSIAN.law(inputs_of(place).batch([0]), 1.0)
    if isinstance(rule, Rule):
        rule.examine(module, law)
    else:
        rule.propagate(module, law)


def _refusal(rule: Propagator | Plugin, place: Net | Noise) -> str:
    """Return why a rule does not support a net or noise, or ''; groups record all other errors."""
    try:
        with outside(), no_exit(), unsaid():
            try:
                _look_at(rule.load() if isinstance(rule, Plugin) else rule, place)
            except sdp_ref.UnsupportedError as error:
                return message_of(error)
    except OutsideError:
        return ""
    return ""
