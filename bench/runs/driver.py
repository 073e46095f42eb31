"""A whole run: train missing nets, measure in workers what is not stored yet, and store it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, as_completed, wait
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from .. import environment
from ..errors import UserError, one_line
from ..executors import lost_worker_errors
from ..executors.local import LocalProcesses
from ..experiments import costs
from ..experiments.base import Experiment, Group, Plan, RuleBegun
from ..experiments.law_group import LawGroup
from ..experiments.plan import plan_of
from ..identity import software
from ..nets.architectures import Architecture
from ..nets.fully_connected import committed, get_nets, missing
from ..nets.net import Net, best_classifier
from ..nets.recipes import Recipe
from ..progress import Meter, Progress
from ..reasons import Reason, reasons
from ..results.columns import (
    CELL,
    FAILED,
    MEASURED,
    MEASUREMENT,
    UNDEFINED,
    UNSUPPORTED,
    measurements,
    outcome,
    typed,
)
from ..results.folder import Stored, Writer, new_run, read
from ..settings import Settings


@dataclass(frozen=True)
class Request:
    """The request for a run."""

    experiments: Sequence[Experiment]
    settings: Settings
    # nets to measure; by default those of the experiments, cached or trained
    nets: Sequence[Net] | None = None
    # as the user wrote them, for the record
    command: str = ""
    preset: str = ""
    shard: tuple[int, int] = (1, 1)  # part i of n of the groups, counted from 1


def run_group(group: Group, rows: pd.DataFrame) -> pd.DataFrame:
    """Measure rows of a plan, which belong to one group, and return their measurements."""
    return measurements(rows, group.measure(rows))


def left_to_measure(plan: pd.DataFrame, folder: Path) -> tuple[pd.DataFrame, Stored | None]:
    """Return the rows of a plan that have no measurement of today's versions, and what is stored.

    What was undefined or unsupported is tried again when the code has changed, and what failed in each run.
    A metric for which a method has no number, without an error, counts as measured.
    """
    if not folder.exists():
        return plan, None
    stored = read(folder, columns=(*CELL, "fingerprint", "status", "reason", "run"))
    same_code = [run.id for run in stored.runs.values() if run.code == software()["code"]]
    rows = stored.measurements
    has_no_number = (rows["status"] == UNDEFINED) & rows["reason"].isna()
    is_rejected = rows["status"].isin([UNDEFINED, UNSUPPORTED]) & rows["run"].isin(same_code)
    is_done = (rows["status"] == MEASURED) | has_no_number | is_rejected
    names = [*CELL, "fingerprint"]
    done = rows.loc[is_done, names].astype(object).drop_duplicates().assign(is_done=True)
    matched = plan[names].merge(done, on=names, how="left")["is_done"]
    return plan[matched.isna().to_numpy()], stored


def run(
    folder: Path,
    request: Request,
    jobs: int | None,
    make_executor: Callable[[int, int], Executor],
    progress: Progress,
) -> tuple[str, int]:
    """Do a run, and return its number and the number of failures; current measurements are not repeated.

    `folder` holds the results. A metric that is not defined for a law, or a rule that does not support a net,
    does not count as a failure. `make_executor` returns an executor, given the numbers of workers (by default
    one per core) and of BLAS threads per worker. A UserError is raised if a setting is invalid, there is
    nothing to run, or no rule supports any of the nets.
    """
    start = time.monotonic()
    nets = request.nets
    if nets is None:
        nets = nets_of(request.experiments, request.settings, jobs or environment.cores(), progress)
    plan = _shard(plan_of(request.experiments, request.settings, nets), *request.shard)
    left, stored = left_to_measure(plan.rows, folder)
    rows_by_group = {str(name): rows for name, rows in left.groupby("group", sort=False)}
    for line in _notes(plan, left, stored):
        progress.say(line)
    jobs = max(1, min(jobs or environment.cores(), len(rows_by_group) or 1))
    threads = max(1, environment.cores() // jobs)
    description = new_run(
        folder,
        plan.rows,
        {net.digest: net.to_bytes() for net in _nets(plan, nets)},
        command=request.command,
        preset=request.preset,
        settings=request.settings.as_dict(),
        experiments=tuple(plan.rows["experiment"].unique()),
        left_out=plan.left_out,
        environment=environment.describe(request.settings.sampling.device, jobs, threads),
        code=software()["code"],
    )
    if skipped := len(plan.groups) - len(rows_by_group):
        progress.say(f"{skipped} of {len(plan.groups)} groups are measured already")
    writer = Writer(description)
    failed, statuses = 0, set[str]()
    if rows_by_group:
        seconds = {name: plan.groups[name].seconds(rows) for name, rows in rows_by_group.items()}
        progress.say(_expectation(seconds, jobs))
        executor = make_executor(jobs, threads)
        try:
            failed, statuses = _measure(plan, rows_by_group, seconds, writer, executor, progress)
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
    took = time.monotonic() - start
    writer.finish(took)
    progress.say(f"run {description.id}: {len(rows_by_group)} groups in {took:.1f} s, results in {folder}")
    if failed:
        progress.say(f"failures: {failed}; the next run tries again what failed")
    # Another part of a divided run may have supported rules.
    is_whole = request.shard == (1, 1)
    if is_whole and statuses <= {UNSUPPORTED}:
        _check_rules(plan.rows, folder)
    return description.id, failed


def _notes(plan: Plan, left: pd.DataFrame, stored: Stored | None) -> list[str]:
    """Return lines for the user about a plan and about stored results that make measuring unnecessary."""
    lines = [f"left out: {line.reason}" for line in plan.left_out]
    lines += [group.note for group in plan.groups.values() if group.note]
    lines = list(dict.fromkeys(lines))
    if stored:
        lines += [*stored.notes, *_known_reasons(plan.rows, left, stored)]
    return lines


def _expectation(seconds: dict[str, float], jobs: int) -> str:
    expected = costs.START + costs.elapsed(sorted(seconds.values(), reverse=True), jobs)
    return (
        f"{len(seconds)} groups on {jobs} workers: about {_duration(expected)} (by costs measured on a "
        "2-core AVX-512 CPU)"
    )


def _check_rules(plan: pd.DataFrame, folder: Path) -> None:
    """Raise a UserError if no rule of a plan supports its nets."""
    stored = read(folder, columns=(*CELL, "fingerprint", "status", "reason", "run"))
    of_plan = stored.measurements["unit"].isin(plan["unit"].unique())
    rows = plan[CELL].merge(stored.measurements[of_plan].astype(object), on=CELL)
    if (rows["status"] == UNSUPPORTED).all():
        raise UserError(f"no rule is left: {'; '.join(rows['reason'].unique())}")


def _known_reasons(plan: pd.DataFrame, left: pd.DataFrame, stored: Stored) -> list[str]:
    """Say why rows of a plan that are not tried again have no measurement."""
    others = plan.loc[~plan.index.isin(left.index), CELL]
    refused = stored.measurements[stored.measurements["status"].isin([UNDEFINED, UNSUPPORTED])]
    rows = others.merge(refused.astype(object), on=CELL)
    return list(dict.fromkeys(line for _, line in _lines_of_refusals(rows)))


def _shard(plan: Plan, part: int, parts: int) -> Plan:
    """Return every `parts`-th group from the `part`-th on (from 1): one machine's share of a run."""
    chosen = [*plan.groups][part - 1 :: parts]
    rows = plan.rows[plan.rows["group"].isin(chosen)].reset_index(drop=True)
    return Plan(rows, {name: plan.groups[name] for name in chosen}, plan.left_out)


def _nets(plan: Plan, nets: Sequence[Net]) -> list[Net]:
    """Return the distinct nets that are measured; some experiments bring their own."""
    measured = [group.net for group in plan.groups.values() if isinstance(group, LawGroup)]
    return list({net.digest: net for net in (*nets, *measured)}.values())


def execute(
    plan: Plan, rows_by_group: dict[str, pd.DataFrame], executor: Executor
) -> Iterator[tuple[str, pd.DataFrame]]:
    """Run groups, and yield the name and the measurements of each once it is finished.

    If a worker dies or exceeds its time limit, its rows have failed. If it died during the work for one rule,
    only the rows of this rule have failed, and the others are measured by another worker. Errors in a worker
    outside the measured code are bugs of the project and are raised here.
    """
    running: dict[Future[pd.DataFrame], tuple[str, pd.DataFrame]] = {}
    failed_by_group: dict[str, list[pd.DataFrame]] = {}

    def submit(name: str, rows: pd.DataFrame) -> None:
        running[executor.submit(run_group, plan.groups[name], rows)] = name, rows

    for name, rows in rows_by_group.items():
        submit(name, rows)
    while running:
        finished, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in finished:
            name, rows = running.pop(future)
            try:
                measured = future.result()
            except lost_worker_errors() as error:
                is_cause = _is_cause(rows, error)
                measured = _failed(rows[is_cause], error)
                if not is_cause.all():
                    failed_by_group.setdefault(name, []).append(measured)
                    submit(name, rows[~is_cause])
                    continue
            if name in failed_by_group:
                whole = pd.concat([*failed_by_group.pop(name), measured], ignore_index=True)
                measured = typed(whole, MEASUREMENT)
            yield name, measured


def _is_cause(rows: pd.DataFrame, error: Exception) -> pd.Series:
    """Return which rows may have ended a worker: those of the rule that it was working on, or all."""
    message = getattr(error, "last_message", None)
    if isinstance(message, RuleBegun) and message.rule in set(rows["rule"]):
        return rows["rule"] == message.rule
    return pd.Series(True, rows.index)


def _failed(rows: pd.DataFrame, error: Exception) -> pd.DataFrame:
    cells = rows[CELL].drop_duplicates().itertuples(index=False, name=None)
    reason = one_line(error)
    failed = [outcome(unit, rule, metric, FAILED, reason) for unit, rule, metric in cells]
    return measurements(rows, failed)


def _measure(
    plan: Plan,
    rows_by_group: dict[str, pd.DataFrame],
    seconds: dict[str, float],
    writer: Writer,
    executor: Executor,
    progress: Progress,
) -> tuple[int, set[str]]:
    """Measure and store groups, and return the number of units and rules that failed, and all statuses."""
    # Longest first, so that no worker is left alone with a long group.
    longest_first = sorted(rows_by_group, key=lambda name: -seconds[name])
    ordered = {name: rows_by_group[name] for name in longest_first}
    failures, spent = 0, 0.0
    statuses: set[str] = set()
    reported: set[Reason] = set()
    with progress.meter("groups") as meter:
        meter.done(0, len(ordered), "")
        for count, (name, measured) in enumerate(execute(plan, ordered, executor), 1):
            writer.write(name, measured)
            statuses.update(measured["status"])
            title = plan.groups[name].title
            failures += _say_failures(measured, title, meter, reported)
            spent += seconds[name]
            meter.done(count, len(ordered), title, spent / sum(seconds.values()))
    return failures, statuses


def _say_failures(measured: pd.DataFrame, title: str, meter: Meter, reported: set[Reason]) -> int:
    """Say what was not measured in a group, and return the number of units and rules that failed."""
    failed = measured[measured["status"] == FAILED]
    metrics_of = measured.groupby("rule")["metric_spec"].nunique()
    for reason in _reasons(failed):
        of_rule = failed[(failed["rule"] == reason.rule) & (failed["reason"] == reason.error)]
        has_no_metric = of_rule["metric_spec"].nunique() == metrics_of[reason.rule]
        meter.note(f"failed: {title}: {reason.rule}: {reason.error if has_no_metric else reason.line}")
    for reason, line in _lines_of_refusals(measured):
        if reason not in reported:
            meter.note(line)
        reported.add(reason)
    return len(failed.drop_duplicates(["unit", "rule"]))


def _lines_of_refusals(measured: pd.DataFrame) -> list[tuple[Reason, str]]:
    """Return reasons of undefined metrics and of unsupported rules, each with a line for the user."""
    rows = measured[measured["reason"].fillna("") != ""]
    undefined = _reasons(rows[rows["status"] == UNDEFINED])
    unsupported = _reasons(rows[rows["status"] == UNSUPPORTED].assign(metric_spec=""))
    lines = [(reason, f"not defined: {reason.rule}: {reason.line}") for reason in undefined]
    return lines + [(reason, f"left out: {reason.line}") for reason in unsupported]


def _reasons(rows: pd.DataFrame) -> list[Reason]:
    names = ["rule", "metric_spec", "reason"]
    return reasons((*line, "", 0.0) for line in rows[names].itertuples(index=False, name=None))


def nets_of(
    experiments: Sequence[Experiment], settings: Settings, jobs: int, progress: Progress
) -> list[Net]:
    """Return the nets of experiments, from the cache or trained by `jobs` workers.

    Classifiers are not trained, since that may take hours: missing ones are skipped, and a UserError is
    raised if no net remains.
    """
    kinds = kinds_of(experiments, settings)
    classifiers, reasons_for_missing = _classifiers(experiments, settings)
    brings_nets = any(
        not (experiment.kinds(settings) or experiment.classifiers) for experiment in experiments
    )
    if reasons_for_missing and not (kinds or brings_nets or classifiers):
        raise UserError("; ".join(reasons_for_missing))
    for reason in reasons_for_missing:
        progress.say(f"left out: {reason}")
    if not kinds:
        return classifiers
    if settings.design.net_source == "committed":
        nets, missing_kinds = _committed(kinds)
        nets += classifiers
        if not nets:
            raise UserError(
                f"no net of these experiments is committed ({'; '.join(missing_kinds)}); --preset quick or "
                "--net-source trained trains them"
            )
        if missing_kinds:
            progress.say(f"left out, no net being committed: {'; '.join(missing_kinds)}")
        return nets
    _train(kinds, jobs, progress)
    nets = []
    for (architecture, recipe), seeds in kinds.items():
        nets += get_nets(architecture, recipe, range(seeds))
    return nets + classifiers


def _classifiers(experiments: Sequence[Experiment], settings: Settings) -> tuple[list[Net], list[str]]:
    """Return the trained or committed classifiers of experiments, and a reason for each missing one."""
    source = settings.design.net_source
    architectures = [item for experiment in experiments for item in experiment.classifiers]
    nets: list[Net] = []
    reasons: list[str] = []
    for architecture in dict.fromkeys(architectures):
        if net := best_classifier(architecture, source):
            nets.append(net)
        elif source == "trained":
            hint = f"is in the cache; `sdp-bench train {architecture.name}` trains one"
            reasons.append(f"no {architecture.label} {hint}")
        else:
            reasons.append(f"no {architecture.label} is committed; use --net-source trained")
    return nets, reasons


def _committed(kinds: dict[tuple[Architecture, Recipe], int]) -> tuple[list[Net], list[str]]:
    """Return the committed nets of some kinds, and the names of kinds without one."""
    nets: list[Net] = []
    missing_kinds: list[str] = []
    for (architecture, recipe), seeds in kinds.items():
        nets_of_kind = committed(architecture, recipe, seeds)
        nets += nets_of_kind
        if not nets_of_kind:
            missing_kinds.append(f"{architecture.activation} {architecture.label} ({recipe.label})")
    return nets, missing_kinds


def kinds_of(experiments: Sequence[Experiment], settings: Settings) -> dict[tuple[Architecture, Recipe], int]:
    """Return how many nets of each kind the experiments use together (seeds 0, 1, ...)."""
    counts: dict[tuple[Architecture, Recipe], int] = {}
    for experiment in experiments:
        for kind in experiment.kinds(settings):
            counts[kind] = max(counts.get(kind, 0), experiment.size(settings).nets or 0)
    return counts


def _train(kinds: dict[tuple[Architecture, Recipe], int], jobs: int, progress: Progress) -> None:
    seconds = {}
    for (architecture, recipe), seeds in kinds.items():
        if missing_seeds := missing(architecture, recipe, range(seeds)):
            seconds[architecture, recipe] = costs.training_seconds(
                architecture, recipe.epochs, len(missing_seeds)
            )
    if not seconds:
        return
    total = sum(seconds.values())
    jobs = min(jobs, len(seconds), environment.cores())  # on this machine, wherever the groups are measured
    progress.say(f"training {len(seconds)} kinds of net: about {_duration(total / jobs)}")
    executor = LocalProcesses(jobs, 1)
    try:
        with progress.meter("training") as meter:
            futures = {}
            for kind in sorted(seconds, key=lambda kind: -seconds[kind]):
                architecture, recipe = kind
                future = executor.submit(get_nets, architecture, recipe, range(kinds[kind]))
                futures[future] = kind
            done = 0.0
            for future in as_completed(futures):
                future.result()  # raises the error of a failed training
                architecture, recipe = futures[future]
                done += seconds[architecture, recipe]
                label = f"{architecture.activation} {architecture.label}, {recipe.label}"
                meter.done(round(100 * done / total), 100, f"% of the work; {label}")
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
