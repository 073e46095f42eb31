"""Rules by spec, built in or from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import sdp_ref
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.metrics.references import Reference, references
from sdp_bench.bench.peers.base import Peer
from sdp_bench.bench.plugins.plugin import Kind, Plugin, find, plugin_of
from sdp_ref.registry import members
from sdp_ref.rules import Propagator

PEERS: Mapping[str, type[Peer]] = members("sdp_bench.bench.peers", "sdp_bench.bench.peers.base.Peer")
"""Adapters of other people's packages, by name. What they run is not ours, so they run as plug-ins do."""

GROUP = "peers"
"""Stands for all of those whose package is installed."""

RULES: Kind[Propagator] = Kind(
    "rule",
    "sdp_bench.rules",
    Propagator,
    "a name and propagate(net, x)",
    lambda: (*sdp_ref.rules(), *references()),
    lambda: (*PEERS, GROUP),
)


def rule_of(spec: str, plugins: Sequence[Plugin] = ()) -> Propagator | Reference:
    """Rule of a spec as records have it: a built-in one, one of `plugins` by its name, or a reference.

    Parameters
    ----------
    spec : str
        ``monte_carlo:samples=100``.
    plugins : sequence of Plugin
        Those that may be meant.

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


def resolve(specs: Sequence[str | Plugin]) -> tuple[tuple[str, ...], tuple[Plugin, ...]]:
    """Specs as records have them, and the plug-ins among them.

    Parameters
    ----------
    specs : sequence of str or Plugin
        Built-in specs and references, kept as they are, names of :data:`PEERS` or of all of them,
        addresses as :func:`sdp_bench.bench.plugins.plugin.find` takes them, and what these lead to.

    Returns
    -------
    specs : tuple of str
        Each once, in their order.
    plugins : tuple of Plugin

    Raises
    ------
    UserError
        If an address leads to no rule, two plug-ins have one name, or a peer's package is not installed.
    """
    named: dict[str, Plugin | None] = {}
    for spec in (each for given in specs for each in (_installed() if given == GROUP else [given])):
        plugin = spec if isinstance(spec, Plugin) else _found(spec)
        name = plugin.name if plugin else str(spec)
        if plugin and named.get(name, plugin) != plugin:
            raise UserError(f"two rules have the name '{name}'; give one of them another")
        named[name] = plugin
    return tuple(named), tuple(plugin for plugin in named.values() if plugin)


def _found(spec: str) -> Plugin | None:
    """Plug-in at an address, or None where a spec is none."""
    return find(_address(spec), RULES) if is_address(spec) else None


def _installed() -> list[str]:
    """Names of the peers whose packages are installed."""
    here = []
    for name, peer in PEERS.items():
        with suppress(ValueError):
            peer.installed()
            here.append(name)
    if not here:
        names = ", ".join(dict.fromkeys(peer.package for peer in PEERS.values()))
        raise UserError(f"none of the packages {names} is installed: pip install 'sdp-bench[peers]'")
    return here


def _address(spec: str) -> str:
    """Of a peer's adapter, with the version of the package that is installed; other specs as they are."""
    name, _, options = spec.partition(":")
    if name not in PEERS:
        return spec
    peer = PEERS[name]
    try:
        return f"{peer.__module__}:{peer.__name__}:{options or f'version={peer.installed()}'}"
    except ValueError as error:
        raise UserError(str(error)) from error
