"""Rules by spec, built in or from outside."""

from __future__ import annotations

from collections.abc import Sequence

import sdp_ref
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.metrics.references import Reference, references
from sdp_bench.bench.plugins.plugin import Kind, Plugin, find, plugin_of
from sdp_ref.rules import Propagator

RULES: Kind[Propagator] = Kind(
    "rule",
    "sdp_bench.rules",
    Propagator,
    "a name and propagate(net, x)",
    lambda: (*sdp_ref.rules(), *references()),
)


def rule_of(spec: str, plugins: Sequence[Plugin] = ()) -> Propagator | Reference:
    """Rule of a spec as records have it: a built-in one, one of `plugins` by its name, or a reference.

    Parameters
    ----------
    spec : str
        ``monte_carlo:samples=100``.
    plugins : sequence of Plugin
        Those that may be meant.

    Returns
    -------
    Propagator or Reference

    Raises
    ------
    ValueError
        If there is no such rule or parameter.
    UserError
        If a plug-in's code cannot be run.
    """
    if spec in references():
        return references()[spec]
    plugin = plugin_of(spec, plugins)
    if plugin is None:
        return sdp_ref.rule(spec)
    rule: Propagator = plugin.load()
    return rule


def is_address(spec: str) -> bool:
    """Whether a spec names a rule that is not built in."""
    return spec.partition(":")[0] not in RULES.built_in()


def resolve(specs: Sequence[str]) -> tuple[tuple[str, ...], tuple[Plugin, ...]]:
    """Specs as records have them, and the plug-ins among them.

    Parameters
    ----------
    specs : sequence of str
        Built-in specs and references, kept as they are, and addresses as
        :func:`sdp_bench.bench.plugins.plugin.find` takes them.

    Returns
    -------
    specs : tuple of str
        Each once, in their order.
    plugins : tuple of Plugin

    Raises
    ------
    UserError
        If an address leads to no rule, or two plug-ins have one name.
    """
    named: dict[str, Plugin | None] = {}
    for spec in specs:
        plugin = find(spec, RULES) if is_address(spec) else None
        name = plugin.name if plugin else spec
        if plugin and named.get(name, plugin) != plugin:
            raise UserError(f"two rules have the name '{name}'; give one of them another")
        named[name] = plugin
    return tuple(named), tuple(plugin for plugin in named.values() if plugin)
