"""Stored measurements made again: one, step by step, or a random share of a results file."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from sdp_bench.bench.errors import RunFailedError, UserError, one_line
from sdp_bench.bench.executors import WorkerError
from sdp_bench.bench.executors.local import Limits, apart
from sdp_bench.bench.experiments.law_group import LawGroup, measured
from sdp_bench.bench.noise import GAUSSIAN
from sdp_bench.bench.plugins.plugin import plugin_of
from sdp_bench.bench.replay.stored import (
    check_trust,
    groups_of,
    net_of,
    plugins_of,
    settings_of,
    stored_measurement,
)
from sdp_bench.bench.results.queries import Queries
from sdp_bench.bench.results.record import Record
from sdp_bench.bench.rules import is_address
from sdp_bench.bench.runs.driver import run_group
from sdp_bench.bench.text import printable
from sdp_bench.oracles.estimate.tails import heavy_tailed
from sdp_ref.laws import Law


def replay(
    store: Queries, key: str, say: Callable[[str], None], *, trusted: bool = False
) -> list[tuple[Record, Record]]:
    """Make one stored measurement again from its net, input and seeds.

    Return pairs of the stored and the new record, one for each component. `say` is called with lines that
    describe each step. Other arguments and errors are those of `stored_measurement`.
    """
    made = stored_measurement(store, key, trusted=trusted)
    first, net, (group, place) = made.first, made.net, made.place
    subject, location = group.subjects[place], group.locations[place]
    say(f"net     {net.architecture.label} {net.architecture.activation}, seed {net.seed}, {net.digest}")
    accuracy = "" if net.accuracy is None else f", accuracy {net.accuracy:.3f}"
    say(f"        {net.recipe}{accuracy}")
    values = f": {_row(location)}" if location.ndim == 1 else ""
    noise = group.noise
    under = "" if noise == GAUSSIAN else f"{noise.name} noise, "
    say(f"input   row {subject.row}{values}, {under}{noise.parameter} {group.sigma:g}")
    oracle = made.oracle
    law = subject.key
    say(f"oracle  {law.hex}: {law.samples} samples ({law.sampler}), {oracle.precision}")
    prediction, seconds = made.prediction(oracle)
    say(f"        {_described(oracle.samples, oracle.law)}")
    say(f"rule    {first['rule']}: {seconds * 1e3:.2f} ms")
    say(f"        {_described(prediction.outputs, oracle.law, prediction.law)}")
    again = measured(oracle, prediction, first["rule"], first["metric"], seconds)
    stored = {r["component"]: Record(**{f.name: r[f.name] for f in fields(Record)}) for r in made.rows}
    return [(stored[record.component], record) for record in again if record.component in stored]


def identical(stored: Record, again: Record) -> bool:
    """Return whether value, floor and standard error are equal to the last bit."""
    names = ("value", "floor", "floor95", "stderr")
    return all(getattr(stored, name) == getattr(again, name) for name in names)


# A share of a results file ------------------------------------------------------------------------


@dataclass(frozen=True)
class Replayed:
    """The result of measuring `drawn` of `measurements` again: a line for each difference."""

    drawn: int
    measurements: int
    differences: tuple[str, ...]


_FIELDS = (
    ("value", 1e-5, 0.1),
    ("floor", 0.2, 1.0),
    ("floor95", 0.2, 1.0),
    ("stderr", 0.1, 0.0),
)
"""Fields with their tolerance: a relative one, and one in standard errors of the value.

Another processor rounds differently, which moves a few samples across the edge of a cell. Floors are
simulated from counts, so that one moved sample changes their random numbers. The standard error has no
tolerance in standard errors, because a file with large standard errors would then pass any check.
"""


def replay_share(
    store: Queries,
    share: float,
    seed: int = 0,
    *,
    trusted: bool = False,
    limits: Limits | None = None,
    on_group: Callable[[int, int, str], object] = lambda *_: None,
) -> Replayed:
    """Measure a random share of the measurements against an oracle again, and report the differences.

    A measurement is one metric of one rule for one unit. The share is at least one measurement. Each group
    runs in a separate process within `limits`, and `on_group` gets the number of finished groups, the number
    of all groups, and a title.

    Raises UserError if there is no measurement against an oracle, or the drawn ones need code that is not
    `trusted` or that has the name of a built-in rule.
    """
    names = ["unit", "rule", "metric_spec"]
    frame = store.frame(*map(store.run, store.runs()))
    frame = frame[frame["net"].notna()].astype(dict.fromkeys(names, str))
    cells = sorted(set(frame[names].itertuples(index=False, name=None)))
    if not cells:
        raise UserError("no measurement has an oracle; there is nothing to measure again")
    drawn = random.Random(seed).sample(cells, max(1, round(share * len(cells))))  # noqa: S311
    frame = frame[pd.MultiIndex.from_frame(frame[names]).isin(drawn)]
    frame["component"] = frame["component"].fillna("")
    tasks = [task for run, rows in frame.groupby("run") for task in _tasks(store, run, rows, trusted=trusted)]
    differences: list[str] = []
    for done, (group, rows) in enumerate(tasks, 1):
        differences += _differences(group, rows, limits)
        on_group(done, len(tasks), group.title if group else "")
    return Replayed(len(drawn), len(cells), tuple(differences))


def _tasks(
    store: Queries, number: Any, rows: pd.DataFrame, *, trusted: bool
) -> Iterator[tuple[LawGroup | None, pd.DataFrame]]:
    """Yield the groups of some rows of one run; None for rows that its experiments do not have."""
    run = store.run(int(number))
    plugins = plugins_of(run)
    for rule in sorted(rows["rule"].unique()):
        plugin = plugin_of(rule, plugins)
        if plugin is None:
            continue
        if not is_address(rule):
            raise UserError(f"code is stored under the name of the built-in rule '{rule}'")
        check_trust(plugin, trusted=trusted)
        if printable(plugin.code.source) != plugin.code.source:
            # A change of the direction of writing, say, shows reviewers other code than is run.
            raise UserError(f"the code of rule '{rule}' has characters that are not shown")
    stored = (net.weights for net in store.stored_nets().values())
    nets = [net_of(weights, trusted=trusted) for weights in stored if weights is not None]
    try:
        groups = groups_of(run, settings_of(run, trusted=trusted), nets)
    except UserError as error:
        if nets:
            raise
        raise RunFailedError(_NO_WEIGHTS) from error
    places = {cell: place for place, group in enumerate(groups) for cell in group.cells}
    cells = zip(rows["unit"], rows["rule"], rows["metric_spec"], strict=True)
    own = np.array([places.get(cell, -1) for cell in cells])
    if -1 in own and not nets:
        raise RunFailedError(_NO_WEIGHTS)
    for place in np.unique(own):
        yield (groups[place] if place >= 0 else None), rows[own == place]


_NO_WEIGHTS = "the results do not contain the nets' weights, so they cannot be measured again"


def _differences(group: LawGroup | None, rows: pd.DataFrame, limits: Limits | None) -> Iterator[str]:
    stored: dict[tuple[str, str, str, str], Mapping[Any, Any]] = {
        (row["unit"], row["rule"], row["metric_spec"], row["component"]): row
        for row in rows.to_dict("records")
    }
    cells = dict.fromkeys(key[:3] for key in stored)
    if group is None:
        yield from (f"{'/'.join(cell)}: its experiment has no such measurement" for cell in cells)
        return
    try:
        result = apart(run_group, group, frozenset(cells), limits=limits)
    except WorkerError as error:
        yield f"{group.title}: {one_line(error)}"
        return
    again = {(each.unit, each.rule, each.metric, each.component or ""): each for each in result.records}
    reasons = {(failure.unit, failure.rule): failure.error for failure in result.failures}
    missing = cells.keys() - {key[:3] for key in again}
    for unit, rule, metric in sorted(missing):
        reason = reasons.get((unit, rule)) or reasons.get((unit, None), "no result")
        yield f"{unit}/{rule}/{metric}: cannot be measured again: {reason}"
    for key in sorted(stored.keys() | again.keys()):
        unit, rule, metric, component = key
        if key[:3] not in missing and (reason := _difference(stored.get(key), again.get(key))):
            old, versions = stored.get(key, {}).get("fingerprint"), group.versions_of(rule, metric)
            other = old not in (None, versions)
            note = f" (stored with {old}; this version has {versions})" if other else ""
            yield f"{unit}/{rule}/{metric} {component}".rstrip() + f": {reason}{note}"


def _difference(stored: Mapping[Any, Any] | None, again: Record | None) -> str:
    """Describe a difference larger than rounding; empty without one."""
    if stored is None:
        return "is missing from the file"
    if again is None:
        return "is in the file, but is not measured"
    error = 0.0 if again.stderr is None else again.stderr
    for name, relative, errors in _FIELDS:
        old, new = (
            math.nan if number is None else float(number) for number in (stored[name], getattr(again, name))
        )
        if math.isnan(old) and math.isnan(new):
            continue
        if not math.isclose(old, new, rel_tol=relative, abs_tol=max(1e-9, errors * error)):
            return f"{name} is {old:.7g} in the file, and {new:.7g} when measured again"
    return ""


def _described(samples: Tensor, noise: Law, law: Law | None = None) -> str:
    """Describe centre and spread of the outputs, by moments if the noise has them, otherwise by quartiles."""
    if law is not None and not heavy_tailed(law):
        return f"mean {_row(law.mean[0])}, sd {_row(law.variance[0].sqrt())}"
    if not heavy_tailed(noise):
        return f"mean {_row(samples.double().mean(0))}, sd {_row(samples.double().std(0))}"
    low, median, high = np.quantile(samples.numpy(), (0.25, 0.5, 0.75), axis=0)
    return f"median {_row(median)}, half the interquartile range {_row((high - low) / 2)}"


def _row(tensor: Any) -> str:
    return "(" + ", ".join(f"{value:.6g}" for value in tensor.tolist()) + ")"
