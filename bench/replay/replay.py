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
from ..executors.local import Limits, apart, limited
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
    def place(self) -> tuple[LawGroup, int]:
        """The group that it was measured in, and the position of its input there.

        Rules get the same batch again, because another batch size may round differently.
        """
        cell = tuple(self.first[name] for name in CELL)
        plan = planned(self.run, self.settings, [self.net])
        rows = plan.rows.astype(dict.fromkeys(CELL, str))
        same = rows[(rows["unit"] == cell[0]) & (rows["rule"] == cell[1])]
        if same.empty:
            raise RunFailedError(
                f"net, input or settings no longer give the key {cell[0]}; the data or code has changed"
            )
        group = cast(LawGroup, plan.groups[same["group"].iloc[0]])
        return group, [key.hex for key in group.keys].index(cell[0])

    @functools.cached_property
    def oracle(self) -> Oracle:
        """Its samples are drawn when they are first used."""
        group, place = self.place
        sampling = group.settings.sampling
        net = group.net.build().to(sampling.device)
        return Oracle(net, group.law[place], group.keys[place], sampling)

    @property
    def rule(self) -> Propagator | Reference:
        """The measured rule or reference; a ValueError if it does not exist."""
        return self.settings.rule(self.first["rule"])

    def prediction(self, oracle: Oracle) -> tuple[Prediction, float]:
        """Return the prediction, from the same batch of inputs as before, and its time (s) per input."""
        group, place = self.place
        law = group.law.to(device=group.settings.sampling.device)
        return group.predictor(self.first["rule"], oracle.net, law)(oracle, place)


def stored_measurement(
    stored: Stored, key: str, plugins: Sequence[Plugin] = (), nets: Sequence[str] = ()
) -> StoredMeasurement:
    """Find a stored measurement that can be made again.

    `key` is ``unit/rule/metric`` as in the exported table, or a prefix of one. Results do not hold the code
    of users: `plugins` are their rules, and `nets` are addresses of their nets. Raises UserError if the key
    is unknown or ambiguous, the measurement has no oracle, or its rule or net is missing or has another hash,
    and RunFailedError without weights, or if the run is damaged.
    """
    found = find(stored, key)
    rows = _one(records(found), key)
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
    known = {plugin.name: plugin for plugin in plugins_of(stored_run)}
    found: dict[str, Plugin] = {}
    for name, versions in measured_rules:
        stored = known.get(name)
        if stored is None:
            continue
        if name not in found:
            found[name] = plugin_of(name, given) or _missing_rule(stored, given, folder)
        version, hashed = found[name].version, versions.partition(",")[0].removeprefix("rule ")
        if version != hashed:
            raise UserError(
                f"rule '{name}' of {found[name].address} has the hash {version}, but was measured as "
                f"{hashed} ({printable(stored.address)}); its source, modules or parameters have changed"
            )
    return tuple(found.values())


def _missing_rule(stored: Plugin, given: Sequence[Plugin], folder: Path | None) -> Plugin:
    """Find a rule that was not given: an adapter of this package, or a file in a folder."""
    name, address = printable(stored.name), printable(stored.address)
    if stored.name.partition(":")[0] in PEERS:
        return resolve([stored.name])[1][0]
    place, _, attribute = address.partition(":")
    if folder is not None and place.endswith(".py"):
        path = folder / Path(place).name
        if path.is_file():
            return find_rule(f"{path}:{attribute}")
    if stored.is_of_notebook:
        raise UserError(
            f"rule '{name}' was defined in a notebook and can be measured again only there; define it in a "
            "file to replay its measurements"
        )
    also = f", or copy its file {Path(place).name} into {folder}" if folder else ""
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


def _one(rows: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """Return the rows with this key, or those of the only key that begins with it; a UserError otherwise."""
    names = ["/".join(str(row[column]) for column in CELL) for row in rows]
    found = [key] if key in names else sorted(set(names))
    if not found or not key:
        raise UserError(f"no measurement has a key that begins with '{key}'; the report's table lists them")
    if len(found) > 1:
        shown = "\n  ".join(found[:10]) + ("\n  ..." if len(found) > 10 else "")
        raise UserError(f"'{key}' begins the keys of {len(found)} measurements; name one:\n  {shown}")
    return [row for row, name in zip(rows, names, strict=True) if name == found[0]]


def planned(stored_run: Run, settings: Settings, nets: Sequence[Net]) -> Plan:
    """Return the plan of a stored run's experiments that have an oracle, for some of its nets.

    Without nets, it has the experiments that bring their own.
    """
    parts: list[Plan] = []
    for net in nets:
        if isinstance(net, OwnNet):
            own, own_settings, _ = own_experiment(net, settings)
            parts.append(plan_of([own], own_settings, [net]))
    plain = [net for net in nets if not isinstance(net, OwnNet)]
    if plain or not nets:
        experiments = [each for each in chosen(list(stored_run.experiments)) if each.has_oracle]
        parts.append(plan_of(experiments, settings, plain))
    rows = pd.concat([part.rows for part in parts], ignore_index=True)
    return Plan(rows, {name: group for part in parts for name, group in part.groups.items()})


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
    made = stored_measurement(stored, key, plugins, nets)
    first, net, (group, place) = made.first, made.net, made.place
    location, row = group.inputs[place].location, group.inputs[place].row
    say(f"net     {net.architecture.label} {net.architecture.activation}, seed {net.seed}, {net.digest}")
    accuracy = "" if net.accuracy is None else f", accuracy {net.accuracy:.3f}"
    say(f"        {net.recipe}{accuracy}")
    values = f": {_row(location)}" if location.ndim == 1 else ""
    noise = group.noise
    under = "" if noise == GAUSSIAN else f"{noise.name} noise, "
    say(f"input   row {row}{values}, {under}{noise.parameter} {group.sigma:g}")
    oracle = made.oracle
    law = group.keys[place]
    say(f"oracle  {law.hex}: {law.samples} samples ({law.sampler}), {oracle.precision}")
    prediction, seconds = made.prediction(oracle)
    say(f"        {_described(oracle.samples, oracle.law)}")
    say(f"rule    {first['rule']}: {seconds * 1e3:.2f} ms")
    say(f"        {_described(prediction.outputs, oracle.law, prediction.law)}")
    again = measured(oracle, prediction, first["rule"], first["metric_spec"], seconds)
    before = {row["component"]: row for row in made.rows}
    return [(before[row["component"]], row) for row in again if row["component"] in before]


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
    with limited(limits or Limits()):
        _, plugins = resolve(rules)
        tasks = [
            task
            for number, rows in frame.groupby("run", observed=True)
            for task in _tasks(stored, str(number), rows, plugins, nets, folder)
        ]
    differences: list[str] = []
    for done, (task, rows) in enumerate(tasks, 1):
        differences += _differences(task, rows, limits)
        on_group(done, len(tasks), task[0].title if task else "")
    return Replayed(len(drawn), len(cells), tuple(differences))


def _tasks(
    stored: Stored,
    number: str,
    rows: pd.DataFrame,
    given: Sequence[Plugin],
    net_addresses: Sequence[str],
    folder: Path | None,
) -> Iterator[tuple[_Task | None, pd.DataFrame]]:
    """Yield groups with the rows of a plan for some measurements of one run; None for unknown ones."""
    run = _run_of(stored, number)
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
    asked = plan.rows.drop_duplicates(CELL).astype(dict.fromkeys(CELL, str))
    groups = rows[CELL].merge(asked[[*CELL, "group"]], on=CELL, how="left")["group"].to_numpy()
    unknown = pd.isna(groups)
    if unknown.any() and not nets:
        raise RunFailedError(_NO_WEIGHTS)
    if unknown.any():
        yield None, rows[unknown]
    for name in pd.unique(groups[~unknown]):
        part = rows[groups == name]
        cells = pd.MultiIndex.from_frame(part[CELL])
        yield (plan.groups[name], asked[pd.MultiIndex.from_frame(asked[CELL]).isin(cells)]), part


_Task = tuple[Group, pd.DataFrame]
"""A group, and the rows of its plan to measure."""

_NO_WEIGHTS = "the results do not contain the nets' weights, so they cannot be measured again"


def _differences(task: _Task | None, rows: pd.DataFrame, limits: Limits | None) -> Iterator[str]:
    stored: dict[Any, Any] = {
        (row["unit"], row["rule"], row["metric_spec"], row["component"]): row for row in records(rows)
    }
    if task is None:
        for cell in dict.fromkeys(key[:3] for key in stored):
            yield f"{'/'.join(cell)}: its experiment has no such measurement"
        return
    group, plan = task
    try:
        result = apart(run_group, group, plan, limits=limits)
    except WorkerError as error:
        yield f"{group.title}: {one_line(error)}"
        return
    result["component"] = result["component"].where(result["component"].notna(), "")
    for row in records(result[result["status"] != MEASURED]):
        reason = row["reason"] or "no result"
        yield f"{row['unit']}/{row['rule']}/{row['metric_spec']}: cannot be measured again: {reason}"
    missing = set(result.loc[result["status"] != MEASURED, CELL].itertuples(index=False, name=None))
    again = {
        (row["unit"], row["rule"], row["metric_spec"], row["component"]): row
        for row in records(result[result["status"] == MEASURED])
    }
    for key in sorted(stored.keys() | again.keys()):
        unit, rule, metric, component = key
        if key[:3] in missing:
            continue
        old, new = stored.get(key), again.get(key)
        if reason := _difference(old, new):
            note = ""
            if old and new and old["fingerprint"] != new["fingerprint"]:
                note = f" (stored with {old['fingerprint']}; this version has {new['fingerprint']})"
            yield f"{unit}/{rule}/{metric} {component}".rstrip() + f": {reason}{note}"


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
