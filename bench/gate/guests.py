"""Plug-ins as rules of the gate: their code never runs in the gate's process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from sdp_bench.bench.errors import outside
from sdp_bench.bench.executors.local import apart
from sdp_bench.bench.plugins.plugin import Plugin
from sdp_ref.rules import Propagator

T = TypeVar("T")


@dataclass(frozen=True)
class Guest:
    """A plug-in in place of a built-in rule."""

    plugin: Plugin

    @property
    def name(self) -> str:
        return self.plugin.name

    @property
    def address(self) -> str:
        return ":".join(filter(None, (self.plugin.address, self.plugin.options)))

    def ask(self, fn: Callable[..., T], /, *args: Any) -> T:
        """Return the plain data that a function of the rule and `args` computes in a separate process.

        An OutsideError is raised if the rule fails, ends the process or takes too long.
        """
        with outside():
            answer: T = apart(_loaded, self.plugin, fn, *args, address=self.plugin.address)
        return answer


def _loaded(plugin: Plugin, fn: Callable[..., T], *args: Any) -> T:
    with outside():
        return fn(plugin.load(), *args)


Asked = Propagator | Guest
"""A rule of the gate."""
