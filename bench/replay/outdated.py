"""What of a results file is not of today's code, and the group that would measure it again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field

import pandas as pd

from sdp_bench.bench.environment import check_device
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.experiments import experiment, fingerprints
from sdp_bench.bench.experiments.base import Group
from sdp_bench.bench.experiments.replicates import ReplicateExperiment
from sdp_bench.bench.nets.net import Net
from sdp_bench.bench.plugins.plugin import Plugin, plugin_of
from sdp_bench.bench.replay.nets import nets_again
from sdp_bench.bench.replay.stored import plugins_of, settings_of, work_of
from sdp_bench.bench.results.record import Cell, Run
from sdp_bench.bench.results.store import Store
from sdp_bench.bench.results.verify import Measurement, measurements
from sdp_bench.bench.runs.driver import Progress

_NO_GROUP = "net, input or settings no longer give its key; the data or code has changed"


@dataclass(frozen=True)
class Outdated:
    """Measurements that are not of today's code.

    Attributes
    ----------
    measurements : list of Measurement
        One for each experiment that asks for it.
    marks : dict of (unit, rule, metric) to str
        Today's fingerprints, where there are such rules and metrics today.
    groups : dict of (unit, rule, metric) to group
        That measure them again.
    reasons : dict of (unit, rule, metric) to str
        Why there is none, for the others.
    """

    measurements: list[Measurement] = field(repr=False)
    marks: dict[Cell, str] = field(repr=False)
    groups: dict[Cell, Group] = field(repr=False)
    reasons: dict[Cell, str] = field(repr=False)

    @functools.cached_property
    def cells(self) -> frozenset[Cell]:
        """All of them."""
        return frozenset(each.cell for each in self.measurements)

    @property
    def repeatable(self) -> list[Measurement]:
        """Those that can be measured again."""
        return [each for each in self.measurements if each.cell in self.groups]


def find_outdated(
    store: Store,
    records: pd.DataFrame,
    asked: pd.DataFrame,
    make_executor: Callable[[], Executor],
    progress: Progress,
    *,
    trusted: bool = False,
) -> Outdated:
    """Find what is not of today's code.

    Parameters
    ----------
    store : Store
    records, asked : DataFrame
        What is looked at, as :meth:`Queries.records` and :meth:`Queries.asked` give it.
    make_executor : callable
        For training nets, if there is need.
    progress : Progress
    trusted : bool
        Whether the code of plug-in rules may be run that is stored in the file.

    Returns
    -------
    Outdated
    """
    runs = {number: store.run(number) for number in store.runs()}
    units = records.drop_duplicates("unit").dropna(subset="net")
    digests: dict[str, str] = dict(zip(units["unit"], units["net"], strict=True))
    every = measurements(records, asked)
    marks, reasons = _marks(every, runs, digests, trusted=trusted)
    old = [each for each in every if marks.get(each.cell) != each.fingerprint]
    needed = {digests[each.unit] for each in old if each.unit in digests and each.cell in marks}
    stored = [net for digest, net in store.stored_nets().items() if digest in needed]
    nets, lost = nets_again(stored, make_executor, progress)
    groups: dict[Cell, Group] = {}
    for number, run in runs.items():
        cells = {each.cell for each in old if each.run == number} - reasons.keys()
        reasons |= {cell: lost[digest] for cell in cells if (digest := digests.get(cell[0])) in lost}
        cells -= reasons.keys()
        if cells:
            own = {digest: nets[digest] for unit, *_ in cells if (digest := digests.get(unit))}
            found, reason = _groups(run, list(own.values()), trusted=trusted)
            groups |= {cell: found[cell] for cell in cells & found.keys()}
            reasons |= dict.fromkeys(cells - found.keys(), reason)
    return Outdated(old, marks, groups, reasons)


def _marks(
    every: Iterable[Measurement], runs: Mapping[int, Run], digests: Mapping[str, str], *, trusted: bool
) -> tuple[dict[Cell, str], dict[Cell, str]]:
    """Today's fingerprints, and why some measurements have none."""
    plugins = {number: plugins_of(run) for number, run in runs.items()}
    marks: dict[Cell, str] = {}
    reasons: dict[Cell, str] = {}
    for each in every:
        if not each.experiment:
            reasons[each.cell] = "no run asks for it"
            continue
        task = None if each.unit in digests else (each.experiment, each.objective)
        plugin = plugin_of(each.rule, plugins[each.run])
        try:
            marks[each.cell] = _mark(each.rule, each.metric, task, plugin, trusted=trusted)
        except (UserError, ValueError) as error:
            reasons[each.cell] = str(error)
    return marks, reasons


def _mark(
    rule: str, metric: str, task: tuple[str, str] | None, plugin: Plugin | None, *, trusted: bool
) -> str:
    """Today's fingerprint of a metric of a rule, or of an experiment without an oracle and its objective.

    Returns
    -------
    str
        16 hexadecimal digits.

    Raises
    ------
    UserError
        If the code of a plug-in is needed and not trusted, or there is no such rule or experiment today.
    """
    if task is not None:
        name, objective = task
        found = experiment(name)
        if not isinstance(found, ReplicateExperiment):
            raise UserError(f"the experiment '{name}' is about nets and an oracle today")
        return found.fingerprint(objective)
    if plugin and not trusted:
        raise UserError(
            f"rule '{plugin.name}' ({plugin.address}) is not built in; --trust-code runs its stored code"
        )
    return fingerprints.of_measurement(rule, metric, (plugin.as_trusted(),) if plugin else ())


def _groups(run: Run, nets: list[Net], *, trusted: bool) -> tuple[dict[Cell, Group], str]:
    """Groups of a run by what they measure, and why there may be none for the rest."""
    try:
        settings = settings_of(run, trusted=trusted)
        check_device(settings.sampling.device)
        work = work_of(run, settings, nets)
    except UserError as error:
        return {}, str(error)
    reasons = [each.reason for each in work.left_out]
    groups = {cell: group for group in work.groups for cell in group.cells}
    return groups, "; ".join(dict.fromkeys([_NO_GROUP, *reasons]))
