"""All work of some experiments, given settings and nets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from torch import nn

from sdp_ref.errors import on_one_line
from sdp_ref.laws import DiagonalGaussian
from sdp_ref.rules import Propagator, Traits, traits

from ..datasets.download import DataMissingError
from ..errors import OutsideError, UserError, outside
from ..executors.local import apart
from ..experiments.base import Experiment, Group
from ..experiments.law_group import LawGroup
from ..experiments.predict import Scope
from ..metrics.references import Reference
from ..nets.net import Net
from ..plugins.code import no_exit
from ..plugins.plugin import Plugin, plugin_of
from ..results.record import LeftOut, Selection, Unit
from ..rules import rule_of
from ..settings import Settings

_COLOUR = re.compile("#[0-9A-Fa-f]{6}")
_MOST = 10**9
"""Limit of ranks and sample counts, which results files store in 64 bits."""


@dataclass(frozen=True, eq=False)
class Plan:
    """All work of a run.

    `experiments`: metrics and rules of each experiment. `left_out`: what cannot be done, with reasons.
    """

    settings: Settings
    groups: Sequence[Group]
    experiments: dict[str, Selection]
    left_out: tuple[LeftOut, ...] = ()

    @property
    def units(self) -> list[Unit]:
        return list(dict.fromkeys(unit for group in self.groups for unit in group.units))

    @property
    def nets(self) -> list[Net]:
        """Return the distinct nets that are measured; some experiments bring their own."""
        groups = [group for group in self.groups if isinstance(group, LawGroup)]
        return list({group.net.digest: group.net for group in groups}.values())

    @property
    def members(self) -> list[tuple[str, str]]:
        """Return the distinct pairs of an experiment and the key of a unit."""
        return list(dict.fromkeys(pair for group in self.groups for pair in group.members))

    @property
    def rules(self) -> dict[str, Traits]:
        specs = dict.fromkeys(rule for selection in self.experiments.values() for rule in selection.rules)
        return {spec: traits_of(spec, self.settings.plugins) for spec in specs}

    def shard(self, part: int, parts: int) -> Plan:
        """Return every `parts`-th group from the `part`-th on (from 1): one machine's share of a run."""
        return replace(self, groups=self.groups[part - 1 :: parts])


def plan_of(experiments: Sequence[Experiment], settings: Settings, nets: Sequence[Net]) -> Plan:
    """Return the work of experiments, with groups sorted by type; experiments share groups of the same law.

    An experiment without its data is skipped if there is other work; otherwise a DataMissingError is raised.
    A UserError is raised if a setting is invalid, no rule supports the nets, or there is nothing to do.
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
            cells = [cell for group in expansion.groups for cell in group.cells]
            _, rules, metrics = (dict.fromkeys(names) for names in zip(*cells, strict=True))
            ordered = list(rules) if experiment.has_oracle else sorted(rules, key=experiment.rules.index)
            selections[experiment.name] = Selection(tuple(metrics), tuple(ordered))
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


def traits_of(rule: str, plugins: Sequence[Plugin] = ()) -> Traits:
    """Return the traits of a rule or reference; only the name if it is unknown or its traits are invalid."""
    try:
        if plugin := plugin_of(rule, plugins):
            return apart(_declared, plugin, address=plugin.address)
        made = rule_of(rule)
    except (UserError, ValueError):
        return Traits(rule)
    return made.traits if isinstance(made, Reference) else traits(made)


def _declared(plugin: Plugin) -> Traits:
    """Return the valid traits of a plug-in; one that predicts a DiagonalGaussian is marginal."""
    try:
        with outside(), no_exit():
            rule: Propagator = plugin.load()
            found = traits(rule)
    except OutsideError:
        return Traits(plugin.name)
    with suppress(OutsideError), outside(), no_exit(), torch.no_grad():
        x = DiagonalGaussian(torch.ones(1, 2), torch.ones(1, 2))
        predicted = rule.propagate(nn.Linear(2, 3), x)
        found = replace(found, marginal=found.marginal or isinstance(predicted, DiagonalGaussian))
    return Traits(
        on_one_line(found.label),
        found.colour if _COLOUR.fullmatch(str(found.colour)) else None,
        None if found.sampling is None else min(max(found.sampling, 0), _MOST),
        found.marginal,
        found.reference,
        min(max(found.rank, -_MOST), _MOST),
    )
