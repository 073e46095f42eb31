"""What a run may be asked for, suites and tasks, and all the work that this makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sdp_bench.bench.datasets.download import DataMissingError
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.experiments.selective.experiment import TASK as SELECTIVE
from sdp_bench.bench.experiments.suites import SUITES, Group, Plan, Suite, expand
from sdp_bench.bench.experiments.task import Task, TaskGroup
from sdp_bench.bench.experiments.uci.experiment import TASK as UCI
from sdp_bench.bench.metrics.references import Reference
from sdp_bench.bench.nets.net import Net
from sdp_bench.bench.plugins.plugin import Plugin
from sdp_bench.bench.plugins.rules import rule_of
from sdp_bench.bench.results.record import LeftOut, Selection, Unit
from sdp_bench.bench.results.store import Store
from sdp_bench.bench.runs import group as run
from sdp_bench.bench.settings import Settings
from sdp_ref.rules import Traits, traits

TASKS: dict[str, Task] = {task.name: task for task in (UCI, SELECTIVE)}
"""Experiments without an oracle, by name."""


def names() -> tuple[str, ...]:
    """All suites and tasks."""
    return (*SUITES, *TASKS)


def chosen(wanted: Sequence[str]) -> tuple[list[Suite], list[Task]]:
    """Suites and tasks by name.

    Raises
    ------
    UserError
        If a name is unknown; the message lists the valid ones.
    """
    for name in wanted:
        if name not in names():
            raise UserError(f"unknown suite '{name}'; choose from {', '.join(names())}")
    once = dict.fromkeys(wanted)
    return [SUITES[n] for n in once if n in SUITES], [TASKS[n] for n in once if n in TASKS]


@dataclass(frozen=True, eq=False)
class Work:
    """All that a run is to do.

    Attributes
    ----------
    plan : Plan
        Of the suites; empty if there are none.
    trials : dict of str to list of TaskGroup
        By task.
    left_out : tuple of LeftOut
        What cannot be done, and why.
    """

    plan: Plan
    trials: dict[str, list[TaskGroup]] = field(default_factory=dict)
    left_out: tuple[LeftOut, ...] = ()

    @property
    def groups(self) -> list[Group | TaskGroup]:
        """Of suites and tasks."""
        return [*self.plan.groups, *(group for groups in self.trials.values() for group in groups)]

    @property
    def experiments(self) -> dict[str, Selection]:
        """Metrics and rules of each suite and task."""
        tasks = {name: (TASKS[name].metrics, TASKS[name].rules) for name in self.trials}
        return {name: Selection(*parts) for name, parts in (self.plan.suites | tasks).items()}

    @property
    def units(self) -> list[Unit]:
        """What is measured on, each once."""
        return list(dict.fromkeys(unit for group in self.groups for unit in group.units))

    @property
    def rules(self) -> dict[str, Traits]:
        """Traits of all rules, by spec."""
        plugins = self.groups[0].settings.plugins if self.groups else ()
        specs = dict.fromkeys(rule for part in self.experiments.values() for rule in part.rules)
        return {spec: traits_of(spec, plugins) for spec in specs}

    @property
    def members(self) -> list[tuple[str, str]]:
        """Pairs of a suite or task and the key of a subject, each once."""
        own = [(n, t.key.hex) for n, groups in self.trials.items() for g in groups for t in g.subjects]
        return [*self.plan.members, *dict.fromkeys(own)]

    def shard(self, part: int, parts: int) -> Work:
        """Every `parts`-th group from the `part`-th on (counted from 1): a machine's share of a run."""
        kept = {id(group) for group in self.groups[part - 1 :: parts]}
        groups = [group for group in self.plan.groups if id(group) in kept]
        keys = {subject.key.hex for group in groups for subject in group.subjects}
        plan = replace(self.plan, groups=groups, members=[m for m in self.plan.members if m[1] in keys])
        trials = {n: [g for g in groups if id(g) in kept] for n, groups in self.trials.items()}
        return replace(self, plan=plan, trials={n: groups for n, groups in trials.items() if groups})

    def fresh(self, store: Store) -> run.Fresh:
        """Measurements that the store holds as today's code would make them."""
        done = run.fresh(store, self.plan)
        for name, groups in self.trials.items():
            done |= run.fresh_trials(store, TASKS[name], groups)
        return done


def work_of(suites: Sequence[Suite], tasks: Sequence[Task], settings: Settings, nets: Sequence[Net]) -> Work:
    """Work of suites and tasks; a task whose data are not there is left out, if there is other work.

    Raises
    ------
    UserError
        If a setting does not fit, or there is nothing to do.
    DataMissingError
        If the data of all that was asked for are missing.
    """
    plan = expand(suites, settings, nets) if suites else Plan({}, [], [], ())
    trials: dict[str, list[TaskGroup]] = {}
    left_out = list(plan.left_out)
    missing = []
    for task in tasks:
        try:
            trials[task.name] = list(task.expand(task, settings))
        except DataMissingError as error:
            missing.append(error)
            left_out.append(LeftOut(None, task.name, f"{task.name}: {error}"))
    if missing and not (plan.groups or trials):
        raise missing[0]
    return Work(plan, trials, tuple(left_out))


def traits_of(rule: str, plugins: Sequence[Plugin] = ()) -> Traits:
    """Traits of a rule or reference; of a method of a task, which is no rule, its name alone."""
    try:
        made = rule_of(rule, plugins)
    except ValueError:
        return Traits(rule)
    return made.traits if isinstance(made, Reference) else traits(made)
