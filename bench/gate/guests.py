"""Plug-ins among the rules that the gate asks: it has their answers, and never runs their code itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from sdp_bench.bench.errors import outside
from sdp_bench.bench.plugins.asking import ask
from sdp_bench.bench.plugins.plugin import Plugin
from sdp_ref.rules import Propagator

T = TypeVar("T")


@dataclass(frozen=True)
class Guest:
    """A rule from outside, in the place of one that is built in.

    Attributes
    ----------
    plugin : Plugin
    """

    plugin: Plugin

    @property
    def name(self) -> str:
        """Its spec."""
        return self.plugin.name

    @property
    def address(self) -> str:
        """As it is written on a command line."""
        return ":".join(filter(None, (self.plugin.address, self.plugin.options)))

    def ask(self, fn: Callable[..., T], /, *args: Any) -> T:
        """What a function of the rule and of `args` gives, in a process of its own.

        Parameters
        ----------
        fn : callable
            Gives plain data.
        *args
            What can be pickled.

        Raises
        ------
        OutsideError
            If the rule fails, be it that it ends the process or takes too long.
        """
        with outside():
            answer: T = ask(self.plugin.address, _told, self.plugin, fn, *args)
        return answer


def _told(plugin: Plugin, fn: Callable[..., T], *args: Any) -> T:
    with outside():
        return fn(plugin.load(), *args)


Asked = Propagator | Guest
"""A rule as the gate takes it."""
