"""Validation of new rules, or of a user's net: conformance checks, measurements and verdicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from sdp_bench.bench.advice.advice import advise_on
from sdp_bench.bench.environment import cores
from sdp_bench.bench.errors import RunFailedError, UserError, one_line
from sdp_bench.bench.executors.local import Limits, LocalProcesses, apart, limited
from sdp_bench.bench.experiments import Experiment, preset
from sdp_bench.bench.experiments import chosen as chosen_experiments
from sdp_bench.bench.experiments import own_net as cells
from sdp_bench.bench.experiments.laws import LawExperiment, canonical_rules
from sdp_bench.bench.experiments.versions import are_current
from sdp_bench.bench.files import check_writable
from sdp_bench.bench.nets.own.net import OwnNet
from sdp_bench.bench.noise import GAUSSIAN
from sdp_bench.bench.plugins.plugin import Plugin, plugin_of
from sdp_bench.bench.results.store import Store
from sdp_bench.bench.runs import conformance as kit
from sdp_bench.bench.runs.driver import Progress, Request, nets_of, run
from sdp_bench.bench.settings import Settings
from sdp_bench.reports.folder import check
from sdp_bench.reports.results import Results, results_of
from sdp_bench.reports.scorecard.judging import Candidate
from sdp_bench.reports.scorecard.page import FILES, Scorecard
from sdp_bench.reports.site import PAGE


@dataclass(frozen=True, kw_only=True)
class Question:
    """Rules or net to validate, and options.

    `rules` are under test: built-in specs, plug-in addresses, or loaded plug-ins. `net` builds a user's net
    with its inputs, which replaces those of the experiments. `experiments` replaces the default cells, and
    `beside` the default of comparing with all built-in rules. `options` are those of
    :meth:`sdp_bench.bench.settings.Settings.but`. `kit_limit` and `group_limit` are time limits in seconds.
    `jobs` is the number of processes (default: one per core). `command` is recorded.
    """

    rules: tuple[str | Plugin, ...] = ()
    net: Callable[[], OwnNet] | None = None
    experiments: tuple[str, ...] = ()
    preset: str = "quick"
    beside: tuple[str | Plugin, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    conformance: bool = True
    kit_limit: float
    group_limit: float
    jobs: int | None = None
    command: str = ""


def validated(
    question: Question, database: Path, progress: Progress, output: Path | None = None
) -> Scorecard:
    """Check rules by the conformance kit, measure them together with others, and judge the results.

    `database` is a results file; its current measurements are not repeated. `output` is the folder in which
    the page will be written; foreign files in it are reported first. Raises UserError for options that do not
    fit together, and RunFailedError if `output` or the database cannot be written.
    """
    if not (question.rules or question.net):
        raise UserError("name a rule, path/to/my_rule.py:MyRule, or a net, --net path/to/net.py:build")
    if output is not None:
        check(output, FILES)
    with limited(Limits(min(question.kit_limit, question.group_limit))):
        return _validated(question, database, progress, output)


def _validated(question: Question, database: Path, progress: Progress, output: Path | None) -> Scorecard:
    net, experiments, settings, notes = _plan(question, progress)
    plugins = settings.plugins
    tested = canonical_rules((settings.rules or ())[: len(dict.fromkeys(question.rules))], plugins)
    candidates = []
    for name in tested:
        plugin = plugin_of(name, plugins)
        code = (plugin.address, plugin.version) if plugin else ()
        candidates.append(Candidate(name, *code))
    # Report what cannot be measured or written before the kit takes its time.
    if output is not None:
        check_writable(output / PAGE)
    workers = question.jobs or cores()
    nets = nets_of(experiments, settings, workers, progress) if net is None else [net]
    if question.conformance:
        candidates = [_conformed(each, plugins, question.kit_limit, progress) for each in candidates]
    # A rule that hangs or crashes the kit would do the same to the driver.
    stuck = {each.name for each in candidates if each.trouble}
    if stuck:
        rules = tuple(rule for rule in settings.rules or () if rule not in stuck)
        unharmed = tuple(plugin for plugin in plugins if plugin.name not in stuck)
        settings = replace(settings, rules=rules, plugins=unharmed)
    request = Request(experiments, settings, nets, question.command, question.preset)
    failures = 0
    with Store(database, writing=True) as store:
        if not stuck or set(tested) - stuck:
            limit = question.group_limit
            executor = lambda jobs, threads: LocalProcesses(jobs, threads, limit)  # noqa: E731
            failures = run(store, request, question.jobs, executor, progress)
            results = results_of(store)
        else:
            results = _before(store, candidates, plugins, question.command)
    measured = set(results.frame["rule"]) if len(results.frame) else set()
    candidates = [replace(each, unmeasured=each.name not in measured | stuck) for each in candidates]
    advice = [] if net is None else _advice(net, settings, progress)
    is_whole = not (failures or stuck)
    return Scorecard.of(results, candidates, notes, own_net=net is not None, advice=advice, is_whole=is_whole)


def _advice(net: OwnNet, settings: Settings, progress: Progress) -> list[dict[str, Any]]:
    """Advice without an oracle, to compare it with the measurements; empty if it cannot be given."""
    try:
        return apart(
            advise_on,
            net,
            settings.design.noise or GAUSSIAN,
            settings.design.sigmas or (1.0,),
            address=net.architecture.name,
        )
    except (UserError, RunFailedError) as error:
        progress.say(f"no advice: {error}")
        return []


def _plan(
    question: Question, progress: Progress
) -> tuple[OwnNet | None, list[Experiment], Settings, list[str]]:
    given = dict(question.options)
    if question.net is None and not question.experiments:
        smoke = question.preset == "smoke"
        given = {"depths": cells.DEPTHS} | ({} if smoke else {"nets": cells.NETS}) | given
    if question.net and (question.experiments or {"depths", "activation", "nets"} & set(given)):
        raise UserError(
            "experiments, depths, activation and nets (--experiment, --depth, --activation, --nets) are for "
            "the experiments' own nets, not yours"
        )
    net = question.net() if question.net else None
    beside = question.beside or (cells.compared_rules(net) if net else cells.BESIDE)
    settings = preset(question.preset, given | {"rules": (*dict.fromkeys(question.rules), *beside)})
    experiments, notes = chosen_experiments(question.experiments or cells.EXPERIMENTS), list[str]()
    if net is not None:
        experiment, settings, notes = cells.own_experiment(net, settings)
        experiments = [experiment]
    for note in notes:
        progress.say(note)
    for each in experiments:
        each.check(settings)
    laws = [each for each in experiments if isinstance(each, LawExperiment)]
    families = dict.fromkeys(noise for each in laws for noise in each.families(settings))
    # The driver of the run prints these notes.
    return net, experiments, settings, [*notes, *(noise.note for noise in families if noise.note)]


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


def _before(
    store: Store, candidates: Sequence[Candidate], plugins: tuple[Plugin, ...], command: str
) -> Results:
    """Earlier measurements from the newest run, if they include the current version of these rules."""
    names = {each.name for each in candidates}
    if store.runs():
        results = results_of(store)
        frame = results.frame[are_current(results.frame, names, plugins)]
        if names & set(frame["rule"]):
            return replace(results, frame=frame)
    return Results(pd.DataFrame(), {"command": command})
