"""Validation of new rules, or of a user's net: conformance checks, measurements and advice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..advice.advice import advise_on
from ..budget.budget import budget_on
from ..budget.groups import groups_of
from ..environment import cores
from ..errors import RunFailedError, UserError, one_line
from ..executors.local import Limits, LocalProcesses, limited, limits_here, main_hidden
from ..experiments import Experiment, preset
from ..experiments import chosen as chosen_experiments
from ..experiments import own_net as cells
from ..experiments.laws import COMPARED_RULES, LawExperiment, canonical_rules
from ..files import check_writable
from ..nets.own.net import OwnNet
from ..plugins.plugin import Plugin, plugin_of
from ..progress import Progress
from ..runs import conformance as kit
from ..runs.driver import Request, nets_of
from ..runs.driver import run as run_all
from ..settings import Settings
from .result import Candidate, Validation


@dataclass(frozen=True, kw_only=True)
class ValidationRequest:
    """Rules or net to validate, and options.

    `rules` are under test: built-in specs, plug-in addresses, or loaded plug-ins. `net` builds a user's net
    with its inputs, which replaces those of the experiments. `experiments` replaces the default cells, and
    `compare_with` the usual built-in rules. `options` are those of
    :meth:`sdp_bench.bench.settings.Settings.but`. `budget` adds an uncertainty budget of the net, for
    `groups` of its inputs, which are named by `columns`. `kit_limit` and `group_limit` are time limits in
    seconds. `jobs` is the number of processes (default: one per core). `command` is recorded.
    """

    rules: tuple[str | Plugin, ...] = ()
    net: Callable[[], OwnNet] | None = None
    experiments: tuple[str, ...] = ()
    preset: str = "quick"
    compare_with: tuple[str | Plugin, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    conformance: bool = True
    budget: bool = False
    groups: str = ""
    columns: tuple[str, ...] = ()
    kit_limit: float
    group_limit: float
    jobs: int | None = None
    command: str = ""


@dataclass(frozen=True)
class _Plan:
    """What to measure; `net` is the user's, and `notes` are on the choices made for it."""

    net: OwnNet | None
    experiments: list[Experiment]
    settings: Settings
    notes: list[str]


def validate(
    request: ValidationRequest, database: Path, progress: Progress, page: Path | None = None
) -> Validation:
    """Check rules by the conformance kit, and measure them together with others.

    `database` is a folder of results; its current measurements are not repeated. `page` is a file that will
    be written afterwards. Raises UserError for options that do not fit together, and RunFailedError if `page`
    or the database cannot be written.
    """
    if not (request.rules or request.net):
        raise UserError("name a rule, path/to/my_rule.py:MyRule, or a net, --net path/to/net.py:build")
    if request.net is None and (request.budget or request.groups):
        raise UserError("an uncertainty budget (--budget, --groups) is of your net (--net FILE.py:build)")
    if request.groups and not request.budget:
        raise UserError("groups (--groups) are those of an uncertainty budget (--budget)")
    with main_hidden(), limited(Limits(min(request.kit_limit, request.group_limit))):
        plan = _plan(request, progress)
        if request.budget and plan.net:  # invalid groups are reported before the measurements
            groups_of(request.groups, tuple(plan.net.inputs.shape[1:]), request.columns)
        # Report what cannot be measured or written before the kit takes its time.
        candidates = _candidates(request, plan.settings)
        if page is not None:
            check_writable(page)
        workers = request.jobs or cores()
        nets = [plan.net] if plan.net else nets_of(plan.experiments, plan.settings, workers, progress)
        plugins = plan.settings.plugins
        if request.conformance:
            candidates = [_conformed(each, plugins, request.kit_limit, progress) for each in candidates]
        # A rule that hangs or crashes the kit would do the same to the driver.
        stuck = {each.name for each in candidates if each.trouble}
        number: str | None = None
        failures = 0
        if not stuck or any(each.name not in stuck for each in candidates):
            settings = _without(stuck, plan.settings)
            measured = Request(plan.experiments, settings, nets, request.command, request.preset)
            number, failures = run_all(database, measured, request.jobs, _executor(request), progress)
        advice = _advice(plan.net, plan.settings, progress) if plan.net else []
        budget = _budget(plan.net, request, plan.settings, progress) if plan.net and request.budget else []
    return Validation(
        candidates=tuple(candidates),
        plugins=plugins,
        run=number,
        notes=tuple(plan.notes),
        own_net=plan.net is not None,
        advice=tuple(advice),
        budget=tuple(budget),
        is_whole=not (failures or stuck),
        command=request.command,
    )


def _plan(request: ValidationRequest, progress: Progress) -> _Plan:
    given = dict(request.options)
    if request.net is None and not request.experiments:
        smoke = request.preset == "smoke"
        given = {"depths": cells.DEPTHS} | ({} if smoke else {"nets": cells.NETS}) | given
    if request.net and (request.experiments or {"depths", "activation", "nets"} & set(given)):
        raise UserError(
            "experiments, depths, activation and nets (--experiment, --depth, --activation, --nets) are for "
            "the experiments' own nets, not yours"
        )
    net = request.net() if request.net else None
    compare_with = request.compare_with or (cells.compared_rules(net) if net else COMPARED_RULES)
    settings = preset(request.preset, given | {"rules": (*dict.fromkeys(request.rules), *compare_with)})
    experiments, notes = chosen_experiments(request.experiments or cells.EXPERIMENTS), list[str]()
    if net is not None:
        experiment, settings, notes = cells.own_experiment(net, settings)
        experiments = [experiment]
    if net is not None and settings.design.noise is not None:
        notes = [*notes, *settings.design.noise.scale_notes]
    for note in notes:
        progress.say(note)
    for each in experiments:
        each.check(settings)
    laws = [each for each in experiments if isinstance(each, LawExperiment)]
    families = dict.fromkeys(noise for each in laws for noise in each.families(settings))
    # The driver of the run prints these notes.
    notes = [*notes, *(noise.note for noise in families if noise.note)]
    return _Plan(net, experiments, settings, notes)


def _candidates(request: ValidationRequest, settings: Settings) -> list[Candidate]:
    specs = (settings.rules or ())[: len(dict.fromkeys(request.rules))]
    candidates = []
    for name in canonical_rules(specs, settings.plugins):
        plugin = plugin_of(name, settings.plugins)
        code = (plugin.address, plugin.version) if plugin else ()
        candidates.append(Candidate(name, *code))
    return candidates


def _conformed(
    candidate: Candidate, plugins: tuple[Plugin, ...], limit: float, progress: Progress
) -> Candidate:
    progress.say(f"conformance kit on {candidate.name}")
    try:
        report = kit.conformance(candidate.name, plugins, Limits(limit))
    except Exception as error:  # noqa: BLE001  a rule may raise anything, and the kit's process may die of it
        return replace(candidate, trouble=one_line(error))
    progress.say(f"{candidate.name}: {report.summary}")
    return replace(candidate, report=report)


def _without(names: set[str], settings: Settings) -> Settings:
    rules = tuple(rule for rule in settings.rules or () if rule not in names)
    plugins = tuple(plugin for plugin in settings.plugins if plugin.name not in names)
    return replace(settings, rules=rules, plugins=plugins)


def _executor(request: ValidationRequest) -> Callable[[int, int], LocalProcesses]:
    return lambda jobs, threads: LocalProcesses(jobs, threads, request.group_limit)


def _advice(net: OwnNet, settings: Settings, progress: Progress) -> list[dict[Any, Any]]:
    """Advice without an oracle, to compare it with the measurements; empty if it cannot be given."""
    try:
        limits, design = limits_here(), settings.design
        table = advise_on(net, design.noise, design.sigmas, progress, hint="", limits=limits)
        return table.to_dict("records")
    except (UserError, RunFailedError) as error:
        progress.say(f"no advice without an oracle to compare with: {error}")
        return []


def _budget(
    net: OwnNet, request: ValidationRequest, settings: Settings, progress: Progress
) -> list[dict[Any, Any]]:
    """Uncertainty budget; empty if it was not requested."""
    progress.say("uncertainty budget")
    design = settings.design
    try:
        table = budget_on(
            net, design.noise, design.sigmas, request.groups, request.columns, progress=progress
        )
    except (UserError, RunFailedError) as error:
        progress.say(f"no uncertainty budget: {error}")
        return []
    return table.to_dict("records")
