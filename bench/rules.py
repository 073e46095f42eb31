"""Resolution of rule specs: built-in rules, references, peers and plug-ins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import sdp_ref
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.metrics.references import Reference, references
from sdp_bench.bench.peers.base import Peer
from sdp_bench.bench.plugins.plugin import Kind, Plugin, find, plugin_of
from sdp_ref.registry import members, spelled
from sdp_ref.rules import Propagator

PEERS: Mapping[str, type[Peer]] = members("sdp_bench.bench.peers", "sdp_bench.bench.peers.base.Peer")
"""Adapters of published packages, by name. They run third-party code, so they run as plug-ins do."""

GROUP = "peers"
"""Name that stands for all peers whose package is installed."""

RULES: Kind[Propagator] = Kind(
    "rule",
    "sdp_bench.rules",
    Propagator,
    "a name and propagate(net, x)",
    lambda: (*sdp_ref.rules(), *references()),
    lambda: (*PEERS, GROUP),
)


def rule_of(spec: str, plugins: Sequence[Plugin] = ()) -> Propagator | Reference:
    """Return the rule of a spec as stored in records: built in, a reference, or one of `plugins` by name.

    An unknown rule or parameter raises a ValueError, and plug-in code that cannot be run a UserError.
    """
    if spec in references():
        return references()[spec]
    plugin = plugin_of(spec, plugins)
    if plugin is None:
        return sdp_ref.rule(spec)
    rule: Propagator = plugin.load()
    return rule


def is_address(spec: str) -> bool:
    """Return whether a spec names a rule that is not built in."""
    return spec.partition(":")[0] not in RULES.built_in()


def resolve(specs: Sequence[str | Plugin]) -> tuple[tuple[str, ...], tuple[Plugin, ...]]:
    """Return the specs as stored in records, each once, and the plug-ins among them.

    `specs` may hold built-in specs and references (kept as they are), names of `PEERS`, `GROUP`, addresses as
    accepted by `sdp_bench.bench.plugins.plugin.find`, and plug-ins. A UserError is raised if an address does
    not lead to a rule, two plug-ins have the same name, or a peer's package is not installed.
    """
    named: dict[str, Plugin | None] = {}
    for spec in (each for given in specs for each in (_installed() if given == GROUP else [given])):
        if isinstance(spec, str):
            head, colon, options = spec.partition(":")
            spec = spelled(head, (*RULES.built_in(), *PEERS)) + colon + options
        plugin = spec if isinstance(spec, Plugin) else _found(spec)
        name = plugin.name if plugin else str(spec)
        if plugin and named.get(name, plugin) != plugin:
            raise UserError(f"two rules have the name '{name}'; give one of them another")
        named[name] = plugin
    return tuple(named), tuple(plugin for plugin in named.values() if plugin)


def _found(spec: str) -> Plugin | None:
    """Return the plug-in at an address, or None if the spec is not an address."""
    return find(_address(spec), RULES) if is_address(spec) else None


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
