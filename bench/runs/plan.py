"""All the work that experiments make of some settings and nets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sdp_bench.bench.datasets.download import DataMissingError
from sdp_bench.bench.errors import OutsideError, UserError, outside
from sdp_bench.bench.experiments.base import Experiment, Group
from sdp_bench.bench.experiments.scope import Scope
from sdp_bench.bench.metrics.references import Reference
from sdp_bench.bench.nets.net import Net
from sdp_bench.bench.plugins.asking import ask
from sdp_bench.bench.plugins.code import no_exit
from sdp_bench.bench.plugins.plugin import Plugin, plugin_of
from sdp_bench.bench.results.record import LeftOut, Selection, Unit
from sdp_bench.bench.rules import rule_of
from sdp_bench.bench.settings import Settings
from sdp_ref.errors import on_one_line
from sdp_ref.rules import Traits, traits

_COLOUR = re.compile("#[0-9A-Fa-f]{6}")
_MOST = 10**9
"""Of ranks and of samples: results files have 64 bits for a number."""


@dataclass(frozen=True, eq=False)
class Plan:
    """All that a run is to do.

    Attributes
    ----------
    settings : Settings
    groups : sequence of Group
    experiments : dict of str to Selection
        Metrics and rules of each experiment.
    left_out : tuple of LeftOut
        What cannot be done, and why.
    """

    settings: Settings
    groups: Sequence[Group]
    experiments: dict[str, Selection]
    left_out: tuple[LeftOut, ...] = ()

    @property
    def units(self) -> list[Unit]:
        """What is measured on, each once."""
        return list(dict.fromkeys(unit for group in self.groups for unit in group.units))

    @property
    def members(self) -> list[tuple[str, str]]:
        """Pairs of an experiment and the key of a unit, each once."""
        return list(dict.fromkeys(pair for group in self.groups for pair in group.members))

    @property
    def rules(self) -> dict[str, Traits]:
        """Traits of all rules, by spec."""
        specs = dict.fromkeys(rule for selection in self.experiments.values() for rule in selection.rules)
        return {spec: traits_of(spec, self.settings.plugins) for spec in specs}

    def shard(self, part: int, parts: int) -> Plan:
        """Every `parts`-th group from the `part`-th on (counted from 1): a machine's share of a run."""
        return replace(self, groups=self.groups[part - 1 :: parts])


def plan_of(experiments: Sequence[Experiment], settings: Settings, nets: Sequence[Net]) -> Plan:
    """Work of experiments; one whose data are not there is left out, if there is other work.

    Parameters
    ----------
    experiments : sequence of Experiment
    settings : Settings
    nets : sequence of Net
        What they may ask about.

    Returns
    -------
    Plan
        Its groups sorted by their type; those that ask about the same law are shared.

    Raises
    ------
    UserError
        If a setting does not fit, no rule supports the nets, or there is nothing to do.
    DataMissingError
        If the data of all that was asked for are missing.
    """
    scope = Scope(settings, nets)
    groups: dict[type[Group], list[Group]] = {}
    selections: dict[str, Selection] = {}
    left_out: dict[LeftOut, None] = {}
    missing: list[DataMissingError] = []
    for experiment in experiments:
        try:
            expansion = experiment.expand(scope)
        except DataMissingError as error:
            missing.append(error)
            left_out[LeftOut(None, experiment.name, f"{experiment.name}: {error}")] = None
            continue
        left_out |= dict.fromkeys(expansion.left_out)
        if expansion.groups:
            selections[experiment.name] = _selection(experiment, expansion.groups)
        for group in expansion.groups:
            groups.setdefault(type(group), []).append(group)
    if not groups and missing:
        raise missing[0]
    if not groups and left_out:
        raise UserError(f"no rule is left: {'; '.join(dict.fromkeys(each.reason for each in left_out))}")
    if not groups:
        raise UserError("there is nothing to run: no net fits these experiments and settings")
    shared = [group for kind, its in groups.items() for group in kind.shared(its)]
    return Plan(settings, shared, selections, tuple(left_out))


def _selection(experiment: Experiment, groups: Sequence[Group]) -> Selection:
    """Metrics and rules of an experiment's own groups; methods in its own order, rules as asked for."""
    cells = [cell for group in groups for cell in group.cells]
    metrics, rules = dict.fromkeys(cell[2] for cell in cells), dict.fromkeys(cell[1] for cell in cells)
    ordered = list(rules) if experiment.has_oracle else sorted(rules, key=experiment.rules.index)
    return Selection(tuple(metrics), tuple(ordered))


def traits_of(rule: str, plugins: Sequence[Plugin] = ()) -> Traits:
    """Traits of a rule or reference; of what is no rule, or declares traits that are none, its name alone."""
    if plugin := plugin_of(rule, plugins):
        try:
            return ask(plugin.address, _declared, plugin)
        except (UserError, ValueError):
            return Traits(rule)
    try:
        made = rule_of(rule)
    except ValueError:
        return Traits(rule)
    return made.traits if isinstance(made, Reference) else traits(made)


def _declared(plugin: Plugin) -> Traits:
    """Traits of a plug-in, which may declare anything, as figures and results files can take them."""
    try:
        with outside(), no_exit():
            found = traits(plugin.load())
    except OutsideError:
        return Traits(plugin.name)
    return Traits(
        on_one_line(found.label),
        found.colour if _COLOUR.fullmatch(str(found.colour)) else None,
        None if found.sampling is None else min(max(found.sampling, 0), _MOST),
        found.marginal,
        found.reference,
        min(max(found.rank, -_MOST), _MOST),
    )
