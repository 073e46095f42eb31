"""Stored measurements made again: one, step by step, or a random share of all."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from torch import Tensor

from sdp_ref.laws import Law
from sdp_ref.rules import Propagator

from ...oracles.estimate.tails import heavy_tailed
from ..errors import RunFailedError, UserError, one_line
from ..executors import WorkerError
from ..executors.local import Limits, in_separate_process, limited
from ..experiments import chosen
from ..experiments.base import Group, Plan
from ..experiments.law_group import LawGroup, measured
from ..experiments.own_net import own_experiment
from ..experiments.plan import plan_of
from ..metrics.oracle import Oracle, Prediction
from ..metrics.references import Reference
from ..nets.net import Net, net_from_bytes
from ..nets.own import net as own_nets
from ..nets.own.net import OwnNet
from ..noise import GAUSSIAN
from ..plugins.plugin import Plugin, plugin_of
from ..results.columns import CELL, MEASURED, NUMBERS, records
from ..results.folder import Run, Stored, net_of
from ..results.joined import find, joined_measurements
from ..rules import PEERS, resolve
from ..rules import find as find_rule
from ..runs.driver import run_group
from ..settings import Settings
from ..text import printable, public


@dataclass(frozen=True, eq=False)
class StoredMeasurement:
    """A stored measurement that can be made again.

    `rows`: its components as stored. `settings`: those of its `run`. The group, and with it the input, is
    loaded when it is first used: a RunFailedError is raised if the key of the oracle cannot be reproduced,
    for example because the data have changed.
    """

    rows: list[dict[str, Any]]
    run: Run
    settings: Settings
    net: Net

    @property
    def first(self) -> dict[str, Any]:
        """The first component as stored."""
        return self.rows[0]

    @property
    def options(self) -> tuple[str, ...]:
        """Options of ``replay`` that give the user's rule and net."""
        plugin = plugin_of(self.first["rule"], plugins_of(self.run))
        rule = () if plugin is None else ("--rule", plugin.address)
        net = ("--net", public(self.net.code.address)) if isinstance(self.net, OwnNet) else ()
        return rule + net

    @functools.cached_property
    def group_and_index(self) -> tuple[LawGroup, int]:
        """The group that it was measured in, and the index of its input there.

        Rules get the same batch again, because another batch size may round differently.
        """
        unit, rule = self.first["unit"], self.first["rule"]
        plan = planned(self.run, self.settings, [self.net])
        rows = plan.rows.astype(dict.fromkeys(CELL, str))
        same = rows[(rows["unit"] == unit) & (rows["rule"] == rule)]
        if same.empty:
            raise RunFailedError(
                f"net, input or settings no longer give the key {unit}; the data or code has changed"
            )
        group = cast(LawGroup, plan.groups[same["group"].iloc[0]])
        return group, [key.hex for key in group.keys].index(unit)

    @functools.cached_property
    def oracle(self) -> Oracle:
        """Its samples are drawn when they are first used."""
        group, index = self.group_and_index
        sampling = group.settings.sampling
        net = group.net.build().to(sampling.device)
        return Oracle(net, group.law[index], group.keys[index], sampling)

    @property
    def rule(self) -> Propagator | Reference:
        """The measured rule or reference; a ValueError if it does not exist."""
        return self.settings.rule(self.first["rule"])

    def prediction(self, oracle: Oracle) -> tuple[Prediction, float]:
        """Return the prediction, from the same batch of inputs as before, and its time (s) per input."""
        group, index = self.group_and_index
        law = group.law.to(device=group.settings.sampling.device)
        predict = group.predictor(self.first["rule"], oracle.net, law)
        return predict(oracle, index)


def stored_measurement(
    stored: Stored, key: str, plugins: Sequence[Plugin] = (), nets: Sequence[str] = ()
) -> StoredMeasurement:
    """Find a stored measurement that can be made again.

    `key` is ``unit/rule/metric`` as in the exported table, or a prefix of one. Results do not hold the code
    of users: `plugins` are their rules, and `nets` are addresses of their nets. Raises UserError if the key
    is unknown or ambiguous, the measurement has no oracle, or its rule or net is missing or has another hash,
    and RunFailedError without weights, or if the run is damaged.
    """
    rows = _rows_of_key(records(find(stored, key)), key)
    first = rows[0]
    run = _run_of(stored, first["run"])
    rules = _given_rules(run, [(first["rule"], first["fingerprint"])], plugins)
    if first["net"] is None:
        raise UserError("this measurement has no oracle; run its experiment again to repeat it")
    weights = net_of(stored.folders, first["net"])
    if weights is None:
        raise RunFailedError("the results do not contain the weights of this net; there is nothing to replay")
    net = _given_net(first["net"], weights, nets)
    return StoredMeasurement(rows, run, settings_of(run, rules), net)


def _run_of(stored: Stored, number: str) -> Run:
    if number not in stored.runs:
        raise RunFailedError(f"the run {number}, which made this measurement, is missing or damaged")
    return stored.runs[number]


def threads_of(stored: Stored, key: str) -> int:
    """Return the BLAS threads that a measurement was made with; another number may round differently."""
    rows = find(stored, key)
    return int(_run_of(stored, rows["run"].iloc[0]).environment["blas threads"]) if len(rows) else 1


def _given_rules(
    stored_run: Run,
    measured_rules: Iterable[tuple[str, str]],
    given: Sequence[Plugin],
    folder: Path | None = None,
) -> tuple[Plugin, ...]:
    """Return the plug-ins among rules, given with their stored versions, after a check of their hashes.

    A rule that is not `given` is looked up in `folder`, under the file name of its address.
    """
    stored_plugins = {plugin.name: plugin for plugin in plugins_of(stored_run)}
    plugins: dict[str, Plugin] = {}
    for name, versions in measured_rules:
        stored = stored_plugins.get(name)
        if stored is None:  # a built-in rule
            continue
        if name not in plugins:
            plugins[name] = plugin_of(name, given) or _missing_rule(stored, given, folder)
        current_hash = plugins[name].version
        measured_hash = versions.partition(",")[0].removeprefix("rule ")
        if current_hash != measured_hash:
            raise UserError(
                f"rule '{name}' of {plugins[name].address} has the hash {current_hash}, but was measured as "
                f"{measured_hash} ({printable(stored.address)}); its source, modules or parameters have "
                "changed"
            )
    return tuple(plugins.values())


def _missing_rule(stored: Plugin, given: Sequence[Plugin], folder: Path | None) -> Plugin:
    """Find a rule that was not given: an adapter of this package, or a file in a folder."""
    name, address = printable(stored.name), printable(stored.address)
    if stored.name.partition(":")[0] in PEERS:
        return resolve([stored.name])[1][0]
    module, _, attribute = address.partition(":")
    if folder is not None and module.endswith(".py"):
        path = folder / Path(module).name
        if path.is_file():
            return find_rule(f"{path}:{attribute}")
    if stored.is_of_notebook:
        raise UserError(
            f"rule '{name}' was defined in a notebook and can be measured again only there; define it in a "
            "file to replay its measurements"
        )
    also = f", or copy its file {Path(module).name} into {folder}" if folder else ""
    others = f" and is not one of {', '.join(plugin.name for plugin in given)}" if given else ""
    raise UserError(f"rule '{name}' is not built in{others}; name its file: --rule {address}{also}")


def _given_net(digest: str, weights: bytes, given: Sequence[str]) -> Net:
    """Return a stored net; that of a user is found at one of the `given` addresses."""
    net = net_from_bytes(weights, "stored")
    if not isinstance(net, OwnNet):
        return net
    if not given:
        raise UserError(
            f"the net {printable(net.architecture.name)} is not built in; name its file: "
            f"--net {printable(net.code.address)}"
        )
    same_name = [address for address in given if Path(address).name == Path(net.code.address).name]
    return own_nets.again(net, (same_name or given)[0], digest)


def _rows_of_key(rows: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """Return the rows with this key, or those of the only key that begins with it; a UserError otherwise."""
    names = ["/".join(str(row[column]) for column in CELL) for row in rows]
    matches = [key] if key in names else sorted(set(names))
    if not matches or not key:
        raise UserError(f"no measurement has a key that begins with '{key}'; the report's table lists them")
    if len(matches) > 1:
        shown = "\n  ".join(matches[:10]) + ("\n  ..." if len(matches) > 10 else "")
        raise UserError(f"'{key}' begins the keys of {len(matches)} measurements; name one:\n  {shown}")
    return [row for row, name in zip(rows, names, strict=True) if name == matches[0]]


def planned(stored_run: Run, settings: Settings, nets: Sequence[Net]) -> Plan:
    """Return the plan of a stored run's experiments that have an oracle, for some of its nets.

    Without nets, it has the experiments that bring their own.
    """
    parts: list[Plan] = []
    for net in nets:
        if isinstance(net, OwnNet):
            experiment, settings_of_net, _ = own_experiment(net, settings)
            parts.append(plan_of([experiment], settings_of_net, [net]))
    built_in = [net for net in nets if not isinstance(net, OwnNet)]
    if built_in or not nets:
        experiments = [item for item in chosen(list(stored_run.experiments)) if item.has_oracle]
        parts.append(plan_of(experiments, settings, built_in))
    rows = pd.concat([part.rows for part in parts], ignore_index=True)
    groups: dict[str, Group] = {}
    for part in parts:
        groups |= part.groups
    return Plan(rows, groups)


def settings_of(stored_run: Run, plugins: Sequence[Plugin] = ()) -> Settings:
    """Return the settings of a stored run, without its plug-in rules other than `plugins`."""
    settings = Settings.from_dict(stored_run.settings)
    left_out = {plugin.name for plugin in settings.plugins} - {plugin.name for plugin in plugins}
    rules = settings.rules and tuple(rule for rule in settings.rules if rule not in left_out)
    return replace(settings, rules=rules, plugins=tuple(plugins))


def plugins_of(stored_run: Run) -> tuple[Plugin, ...]:
    """Return the plug-in rules of a run, without their code."""
    return Settings.from_dict(stored_run.settings).plugins


def replay(
    stored: Stored,
    key: str,
    say: Callable[[str], None],
    plugins: Sequence[Plugin] = (),
    nets: Sequence[str] = (),
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Make one stored measurement again from its net, input and seeds.

    Return pairs of the stored and the new row, one for each component. `say` is called with lines that
    describe each step. Other arguments and errors are those of `stored_measurement`.
    """
    measurement = stored_measurement(stored, key, plugins, nets)
    rule, metric = measurement.first["rule"], measurement.first["metric_spec"]
    group, index = measurement.group_and_index
    _say_setting(measurement.net, group, index, say)
    oracle = measurement.oracle
    say(f"oracle  {oracle.key.hex}: {oracle.key.samples} samples ({oracle.key.sampler}), {oracle.precision}")
    prediction, seconds = measurement.prediction(oracle)
    say(f"        {_described(oracle.samples, oracle.law)}")
    say(f"rule    {rule}: {seconds * 1e3:.2f} ms")
    say(f"        {_described(prediction.outputs, oracle.law, prediction.law)}")
    stored_rows = {row["component"]: row for row in measurement.rows}
    new_rows = measured(oracle, prediction, rule, metric, seconds)
    return [(stored_rows[row["component"]], row) for row in new_rows if row["component"] in stored_rows]


def _say_setting(net: Net, group: LawGroup, index: int, say: Callable[[str], None]) -> None:
    """Describe net, input and noise of a measurement in three lines."""
    say(f"net     {net.architecture.label} {net.architecture.activation}, seed {net.seed}, {net.digest}")
    accuracy = "" if net.accuracy is None else f", accuracy {net.accuracy:.3f}"
    say(f"        {net.recipe}{accuracy}")
    location = group.inputs[index].location
    values = f": {_row(location)}" if location.ndim == 1 else ""
    family = "" if group.noise == GAUSSIAN else f"{group.noise.name} noise, "
    scale = f"{group.noise.parameter} {group.sigma:g}"
    say(f"input   row {group.inputs[index].row}{values}, {family}{scale}")


def identical(stored: Mapping[str, Any], again: Mapping[str, Any]) -> bool:
    """Return whether value, floor, 95 % point and standard error are equal to the last bit."""
    return all(
        stored[name] == again[name] or (math.isnan(stored[name]) and math.isnan(again[name]))
        for name in NUMBERS
    )


# A share of all measurements ------------------------------------------------------------------------


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
tolerance in standard errors, because results with large standard errors would then pass any check.
"""


def replay_share(
    stored: Stored,
    share: float,
    seed: int = 0,
    *,
    rules: Sequence[str] = (),
    nets: Sequence[str] = (),
    folder: Path | None = None,
    limits: Limits | None = None,
    on_group: Callable[[int, int, str], object] = lambda *_: None,
) -> Replayed:
    """Measure a random share of the measurements against an oracle again, and report the differences.

    A measurement is one metric of one rule for one unit. The share is at least one measurement. `rules` and
    `nets` are addresses of users' rules and nets; files of other rules are looked up in `folder`. Each group
    runs in a separate process within `limits`, and `on_group` gets the number of finished groups, the number
    of all groups, and a title.

    Raises UserError if there is no measurement against an oracle, or if a rule or net of the drawn ones is
    missing or has another hash.
    """
    frame = joined_measurements(stored, [*stored.runs.values()])
    frame = frame[frame["net"].notna()].astype(dict.fromkeys([*CELL, "component"], str))
    cells = sorted(set(frame[CELL].itertuples(index=False, name=None)))
    if not cells:
        raise UserError("no measurement has an oracle; there is nothing to measure again")
    drawn = random.Random(seed).sample(cells, max(1, round(share * len(cells))))  # noqa: S311
    frame = frame[pd.MultiIndex.from_frame(frame[CELL]).isin(drawn)]
    tasks: list[tuple[_Task | None, pd.DataFrame]] = []
    with limited(limits or Limits()):
        _, plugins = resolve(rules)
        for run, rows in frame.groupby("run", observed=True):
            tasks += _tasks(stored, str(run), rows, plugins, nets, folder)
    differences: list[str] = []
    for done, (task, rows) in enumerate(tasks, 1):
        differences += _differences(task, rows, limits)
        on_group(done, len(tasks), task[0].title if task else "")
    return Replayed(len(drawn), len(cells), tuple(differences))


def _tasks(
    stored: Stored,
    run_id: str,
    rows: pd.DataFrame,
    given: Sequence[Plugin],
    net_addresses: Sequence[str],
    folder: Path | None,
) -> Iterator[tuple[_Task | None, pd.DataFrame]]:
    """Yield tasks with stored rows of measurements of a run; None with rows that its plan lacks now."""
    run = _run_of(stored, run_id)
    plan = _plan_of_rows(stored, run, rows, given, net_addresses, folder)
    # A cell of several experiments is measured once, in the first group.
    planned_rows = plan.rows.drop_duplicates(CELL).astype(dict.fromkeys(CELL, str))
    planned_cells = pd.MultiIndex.from_frame(planned_rows[CELL])
    groups = rows[CELL].merge(planned_rows[[*CELL, "group"]], on=CELL, how="left")["group"].to_numpy()
    is_unknown = pd.isna(groups)
    if is_unknown.any():
        yield None, rows[is_unknown]
    for name in pd.unique(groups[~is_unknown]):
        rows_of_group = rows[groups == name]
        is_drawn = planned_cells.isin(pd.MultiIndex.from_frame(rows_of_group[CELL]))
        yield (plan.groups[name], planned_rows[is_drawn]), rows_of_group


def _plan_of_rows(
    stored: Stored,
    run: Run,
    rows: pd.DataFrame,
    given: Sequence[Plugin],
    net_addresses: Sequence[str],
    folder: Path | None,
) -> Plan:
    """Return the plan of a run, with the rules and the nets of some of its measurements."""
    measured_rules = rows[["rule", "fingerprint"]].astype(str).drop_duplicates()
    plugins = _given_rules(run, measured_rules.itertuples(index=False, name=None), given, folder)
    nets = []
    for digest in rows["net"].astype(str).unique():
        weights = net_of(stored.folders, digest)
        if weights is not None:
            nets.append(_given_net(digest, weights, net_addresses))
    try:
        plan = planned(run, settings_of(run, plugins), nets)
    except UserError as error:
        if nets:
            raise
        raise RunFailedError(_NO_WEIGHTS) from error
    if not nets:  # experiments that bring their nets need no weights
        planned_cells = set(plan.rows[CELL].astype(str).itertuples(index=False, name=None))
        if not planned_cells.issuperset(rows[CELL].itertuples(index=False, name=None)):
            raise RunFailedError(_NO_WEIGHTS)
    return plan


_Task = tuple[Group, pd.DataFrame]
"""A group, and the rows of its plan to measure."""

_NO_WEIGHTS = "the results do not contain the nets' weights, so they cannot be measured again"


def _differences(task: _Task | None, rows: pd.DataFrame, limits: Limits | None) -> Iterator[str]:
    """Measure the rows of a task again, and describe differences from the stored `rows`."""
    stored = _by_key(rows)
    if task is None:
        for cell in dict.fromkeys(key[:3] for key in stored):
            yield f"{'/'.join(cell)}: its experiment has no such measurement"
        return
    group, plan = task
    try:
        measurements = in_separate_process(run_group, group, plan, limits=limits)
    except WorkerError as error:
        yield f"{group.title}: {one_line(error)}"
        return
    measurements["component"] = measurements["component"].where(measurements["component"].notna(), "")
    is_measured = measurements["status"] == MEASURED
    not_measured = set()
    for row in records(measurements[~is_measured]):
        cell = (row["unit"], row["rule"], row["metric_spec"])
        not_measured.add(cell)
        yield f"{'/'.join(cell)}: cannot be measured again: {row['reason'] or 'no result'}"
    again = _by_key(measurements[is_measured])
    for key in sorted(stored.keys() | again.keys()):
        old, new = stored.get(key), again.get(key)
        if key[:3] not in not_measured and (difference := _difference(old, new)):
            note = ""
            if old and new and old["fingerprint"] != new["fingerprint"]:
                note = f" (stored with {old['fingerprint']}; this version has {new['fingerprint']})"
            unit, rule, metric, component = key
            yield f"{unit}/{rule}/{metric} {component}".rstrip() + f": {difference}{note}"


def _by_key(rows: pd.DataFrame) -> dict[tuple[str, str, str, str], dict[str, Any]]:
    """Return rows by unit, rule, metric and component."""
    return {(row["unit"], row["rule"], row["metric_spec"], row["component"]): row for row in records(rows)}


def _difference(stored: Mapping[str, Any] | None, again: Mapping[str, Any] | None) -> str:
    """Describe a difference larger than rounding; empty without one."""
    if stored is None:
        return "is missing from the results"
    if again is None:
        return "is in the results, but is not measured"
    error = 0.0 if math.isnan(again["stderr"]) else again["stderr"]
    for name, relative, errors in _FIELDS:
        old, new = float(stored[name]), float(again[name])
        if math.isnan(old) and math.isnan(new):
            continue
        if not math.isclose(old, new, rel_tol=relative, abs_tol=max(1e-9, errors * error)):
            return f"{name} is {old:.7g} in the results, and {new:.7g} when measured again"
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
