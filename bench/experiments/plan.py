"""The plan of a run: the measurements that its experiments request, and the groups of work."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import astuple, replace

import pandas as pd
import torch
from torch import nn

from sdp_ref.errors import on_one_line
from sdp_ref.laws import DiagonalGaussian
from sdp_ref.rules import Propagator, Traits, traits

from ..datasets.download import DataMissingError
from ..errors import MeasuredCodeError, UserError, measured_code
from ..executors.local import in_separate_process
from ..identity import digest
from ..metrics.references import Reference
from ..nets.net import Net
from ..plugins.code import no_exit
from ..plugins.plugin import Plugin, plugin_of
from ..results.columns import PLAN, typed
from ..results.folder import LeftOut
from ..rules import rule_of
from ..settings import Settings
from .base import Experiment, Group, Plan

_COLOUR = "#[0-9A-Fa-f]{6}"  # a call here would make the list of experiments import this module
_MOST = 10**9
"""Limit of ranks and sample counts, which results store in 64 bits."""

_TRAITS = ["rule_label", "colour", "sampling", "marginal", "reference", "rank"]


def plan_of(experiments: Sequence[Experiment], settings: Settings, nets: Sequence[Net]) -> Plan:
    """Return the work of experiments; those with the same law share its group.

    An experiment without its data is skipped if there is other work; otherwise a DataMissingError is raised.
    A UserError is raised if a setting is invalid or there is nothing to do.
    """
    parts: list[Plan] = []
    left_out: list[LeftOut] = []
    missing: list[DataMissingError] = []
    for experiment in experiments:
        try:
            parts.append(experiment.plan(settings, nets))
        except DataMissingError as error:
            missing.append(error)
            left_out.append(LeftOut(None, experiment.name, f"{experiment.name}: {error}"))
    left_out += [line for part in parts for line in part.left_out]
    rows = [part.rows for part in parts if len(part.rows)]
    if not rows:
        if missing:
            raise missing[0]
        if left_out:
            reasons = dict.fromkeys(line.reason for line in left_out)
            raise UserError(f"no rule is left: {'; '.join(reasons)}")
        raise UserError("there is nothing to run: no net fits these experiments and settings")
    groups: dict[str, Group] = {}
    for part in parts:
        for name, group in part.groups.items():
            groups[name] = groups[name].joined(group) if name in groups else group
    whole, groups = _divided(pd.concat(rows, ignore_index=True), groups, settings.plugins)
    described = _traits(whole["rule"].unique(), settings.plugins)
    plan = whole.merge(described, on="rule", how="left")
    return Plan(typed(plan, PLAN), groups, tuple(dict.fromkeys(left_out)))


def _divided(
    rows: pd.DataFrame, groups: dict[str, Group], plugins: Sequence[Plugin]
) -> tuple[pd.DataFrame, dict[str, Group]]:
    """Divide groups into parts that are measured by themselves, and rename the groups of the rows.

    A plug-in has its own part, so that side effects of its code on the process cannot affect other rules.
    """
    plugin_names = {plugin.name for plugin in plugins}
    parts = rows[["group", "unit"]].drop_duplicates()
    parts["part"] = [groups[group].part_of(unit) for group, unit in parts.itertuples(index=False)]
    rows = rows.merge(parts, on=["group", "unit"], how="left").rename(columns={"group": "whole"})
    plugin = rows["rule"].where(rows["rule"].isin(plugin_names), "")  # empty for built-in rules
    description = rows["whole"] + "/" + rows.pop("part").astype(str) + "/" + plugin
    rows["group"] = description.map({text: digest(text)[:16] for text in description.unique()})
    units: dict[tuple[str, str], list[str]] = {}
    members = rows[["group", "whole", "unit"]].drop_duplicates()
    for group, whole, unit in members.itertuples(index=False):
        units.setdefault((group, whole), []).append(unit)
    divided = {group: groups[whole].only(of_group) for (group, whole), of_group in units.items()}
    return rows.drop(columns="whole"), divided


def _traits(rules: Iterable[str], plugins: Sequence[Plugin]) -> pd.DataFrame:
    described = [(rule, *astuple(traits_of(rule, plugins))) for rule in rules]
    return pd.DataFrame(described, columns=["rule", *_TRAITS])


def traits_of(rule: str, plugins: Sequence[Plugin] = ()) -> Traits:
    """Return the traits of a rule or reference; only the name if it is unknown or its traits are invalid."""
    try:
        if plugin := plugin_of(rule, plugins):
            return in_separate_process(_declared, plugin, address=plugin.address)
        made = rule_of(rule)
    except (UserError, ValueError):
        return Traits(rule)
    return made.traits if isinstance(made, Reference) else traits(made)


def _declared(plugin: Plugin) -> Traits:
    """Return the valid traits of a plug-in; one that predicts a DiagonalGaussian is marginal."""
    try:
        with measured_code(), no_exit():
            rule: Propagator = plugin.load()
            declared = traits(rule)
    except MeasuredCodeError:
        return Traits(plugin.name)
    with suppress(MeasuredCodeError), measured_code(), no_exit(), torch.no_grad():
        x = DiagonalGaussian(torch.ones(1, 2), torch.ones(1, 2))
        predicted = rule.propagate(nn.Linear(2, 3), x)
        declared = replace(declared, marginal=declared.marginal or isinstance(predicted, DiagonalGaussian))
    return Traits(
        on_one_line(declared.label),
        declared.colour if re.fullmatch(_COLOUR, str(declared.colour)) else None,
        None if declared.sampling is None else min(max(declared.sampling, 0), _MOST),
        declared.marginal,
        declared.reference,
        min(max(declared.rank, -_MOST), _MOST),
    )
