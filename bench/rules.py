"""Resolution of rule specs: built-in rules, references, peers and plug-ins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import sdp_ref
from sdp_ref.registry import members, spelled
from sdp_ref.rules import Propagator

from .errors import UserError
from .metrics.references import Reference, references
from .peers.base import Peer
from .plugins import plugin
from .plugins.plugin import Plugin, plugin_of

PEERS: Mapping[str, type[Peer]] = members("sdp_bench.bench.peers", "sdp_bench.bench.peers.base.Peer")
"""Adapters of published packages, by name. They run third-party code, so they run as plug-ins do."""

GROUP = "peers"
"""Name that stands for all peers whose package is installed."""


def built_in() -> tuple[str, ...]:
    """Return the names of the rules and references that come with the package."""
    return (*sdp_ref.rules(), *references())


def find(address: str) -> Plugin:
    """Find the rule at an address; see `sdp_bench.bench.plugins.plugin.find`."""
    return plugin.find(address, built_in(), (*PEERS, GROUP))


def rule_of(spec: str, plugins: Sequence[Plugin] = ()) -> Propagator | Reference:
    """Return the rule of a spec as stored in records: built in, a reference, or one of `plugins` by name.

    An unknown rule or parameter raises a ValueError, and plug-in code that cannot be run a UserError.
    """
    if spec in references():
        return references()[spec]
    plugin = plugin_of(spec, plugins)
    rule: Propagator = plugin.load() if plugin else sdp_ref.rule(spec)
    return rule


def is_address(spec: str) -> bool:
    """Return whether a spec names a rule that is not built in."""
    return spec.partition(":")[0] not in built_in()


def resolve(specs: Sequence[str | Plugin]) -> tuple[tuple[str, ...], tuple[Plugin, ...]]:
    """Return the specs as stored in records, each once, and the plug-ins among them.

    `specs` may hold built-in specs and references (kept as they are), names of `PEERS`, `GROUP`, addresses as
    accepted by `sdp_bench.bench.plugins.plugin.find`, and plug-ins. A UserError is raised if an address does
    not lead to a rule, two plug-ins have the same name, or a peer's package is not installed.
    """
    expanded: list[str | Plugin] = []
    for spec in specs:
        expanded += _installed() if spec == GROUP else [spec]
    plugins: dict[str, Plugin | None] = {}  # by spec; None for built-in rules and references
    for spec in expanded:
        plugin = None
        if isinstance(spec, Plugin):
            plugin = spec
        else:
            name, colon, options = spec.partition(":")
            spec = spelled(name, (*built_in(), *PEERS)) + colon + options
            if is_address(spec):
                plugin = find(_address(spec))
        stored_spec = plugin.name if plugin else str(spec)
        if plugin and plugins.get(stored_spec, plugin) != plugin:
            raise UserError(f"two rules have the name '{stored_spec}'; give one of them another")
        plugins[stored_spec] = plugin
    return tuple(plugins), tuple(plugin for plugin in plugins.values() if plugin)


def _installed() -> list[str]:
    """Return the peers whose packages are installed."""
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
    """Return the address of a peer's adapter, with the installed version; other specs are unchanged."""
    name, _, options = spec.partition(":")
    if name not in PEERS:
        return spec
    peer = PEERS[name]
    try:
        return f"{peer.__module__}:{peer.__name__}:{options or f'version={peer.installed()}'}"
    except ValueError as error:
        raise UserError(str(error)) from error
