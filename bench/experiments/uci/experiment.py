"""The UCI task: prediction intervals on eight regression sets (paper: Tables 4, 38 and 40)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import torch

from sdp_bench.bench.datasets import dataset
from sdp_bench.bench.datasets.base import TabularRegression
from sdp_bench.bench.experiments.task import Experiment, Recipe, Task, TaskGroup, Topic, Trial
from sdp_bench.bench.experiments.uci import intervals
from sdp_bench.bench.experiments.uci.intervals import GRID
from sdp_bench.bench.experiments.uci.methods import METHODS, Selected, evaluate
from sdp_bench.bench.experiments.uci.stacked import BATCH, OBJECTIVES, Problem, Setting
from sdp_bench.bench.experiments.uci.training import TRAINING, get_nets
from sdp_bench.bench.identity import keys
from sdp_bench.bench.results.record import Record, Unit
from sdp_bench.bench.settings import Settings

NAME = "uci"
PAPER = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "wine", "yacht")
"""Its data sets."""
EPOCHS = 5000
METRICS = (
    *("qualified", "picp", "mpiw", "nll", "validation_picp", "validation_mpiw"),
    *("learning_rate", "weight_decay", "input_variance"),
)

_STEP = 1.2e-5  # s a net and step, one thread
_PROPAGATED = 2.0  # times as long, with the likelihood of the propagated law
_SAMPLE = 4e-9  # s a net, row, input variance and sample


@dataclass(frozen=True, eq=False)
class UciGroup(TaskGroup):
    """All seeds and settings of one set under one objective, which are trained together.

    Attributes
    ----------
    dataset, objective : str
    epochs : int
    rows, features : int
        Of the set.
    grid : tuple of Setting
    """

    dataset: str
    objective: str
    epochs: int
    rows: int
    features: int
    grid: tuple[Setting, ...]

    def unit(self, trial: Trial) -> Unit:
        """See :class:`TaskGroup`."""
        return Unit(trial.key.hex, dataset=self.dataset, seed=trial.row, design=self.net.recipe.text)

    @property
    def task(self) -> Task:
        """See :class:`TaskGroup`."""
        return TASK

    @property
    def title(self) -> str:
        """See :class:`TaskGroup`."""
        return f"UCI {self.dataset} {self.objective}"

    @property
    def methods(self) -> list[str]:
        """Methods wanted that its nets serve."""
        wanted = {rule for trial in self.subjects for _, rule in trial.pairs}
        return [name for name in METHODS if name in wanted]

    @property
    def seconds(self) -> float:
        """See :class:`TaskGroup`."""
        nets = len(self.subjects) * len(self.grid)
        train, validation = 0.72 * self.rows, 0.18 * self.rows
        steps = self.epochs * -(-train // BATCH)
        factor = _PROPAGATED if OBJECTIVES[self.objective].propagated else 1.0
        samples = sum(int(name.partition("=")[2]) for name in self.methods if "samples=" in name)
        scanned = len(intervals.DECADES) + len(intervals.REFINEMENT) - 1
        return 1.0 + nets * (factor * steps * _STEP + validation * scanned * samples * _SAMPLE)

    def measure(self, wanted: Sequence[tuple[str, str, str]]) -> Iterator[Record]:
        """See :class:`TaskGroup`."""
        seeds = tuple(trial.row for trial in self.subjects)
        parts = intervals.splits(dataset(self.dataset, TabularRegression).load(), seeds)
        device = self.settings.device
        features = {part: x.to(device) for part, x in parts.features.items()}
        targets = {part: y.to(device) for part, y in parts.targets.items()}
        parts = replace(parts, features=features, targets=targets, ranges=parts.ranges.to(device))
        problem = Problem(features["train"], targets["train"], seeds)
        nets = get_nets(self.dataset, problem, OBJECTIVES[self.objective], self.grid, self.epochs)
        for method in dict.fromkeys(rule for _, rule, _ in wanted):
            with torch.no_grad():
                found = evaluate(method, nets, parts, self.grid, seeds)
            for trial, chosen in zip(self.subjects, found, strict=True):
                for metric, value in _numbers(chosen).items():
                    yield TASK.record(trial, method, metric, value)


def _numbers(chosen: Selected) -> dict[str, float]:
    """Numbers of one seed: how many settings qualified and, if any did, what the selected one shows."""
    numbers = {"qualified": float(chosen.qualified)}
    if chosen.setting is None:
        return numbers
    numbers |= chosen.test
    numbers |= {f"validation_{name}": value for name, value in chosen.validation.items() if name != "nll"}
    numbers |= asdict(chosen.setting)
    if chosen.input_variance == chosen.input_variance:
        numbers["input_variance"] = chosen.input_variance
    return numbers


def expand(task: Task, settings: Settings) -> list[UciGroup]:
    """Groups of the task: sets times objectives.

    Raises
    ------
    UserError
        If a set or method is unknown.
    DataMissingError
        If the file of a set is not there.
    """
    names = settings.datasets or settings.task_datasets.get(task.name, PAPER)
    names = tuple(dict.fromkeys(names))
    epochs = settings.training.get("epochs") or settings.task_epochs.get(task.name, EPOCHS)
    seeds = range(task.count(settings))
    groups = []
    for name in names:
        data = dataset(name, TabularRegression).load()
        rows, features = data.features.shape
        intervals.splits(data, seeds[:1])  # raises for a set that cannot be used, before anything is trained
        identity = keys.digest(data.features, data.targets, epochs, [asdict(s) for s in GRID])[:16]
        text = f"{data.description}; {len(GRID)} settings, {epochs} epochs"
        experiment = Experiment(Topic(f"{name} {features}-64"), Recipe(task.name, text, identity))
        for objective in dict.fromkeys(METHODS[rule].name for rule in task.rules):
            methods = tuple(rule for rule in task.rules if METHODS[rule].name == objective)
            wanted = [(metric, methods) for metric in task.metrics]
            trials = tuple(task.trial(experiment, seed, wanted) for seed in seeds)
            groups.append(
                UciGroup(experiment, trials, settings, name, objective, epochs, rows, features, GRID)
            )
    return groups


TASK = Task(
    NAME,
    "prediction intervals on eight regression sets (Tables 4, 38, 40)",
    METRICS,
    tuple(METHODS),
    expand,
    (*TRAINING, intervals.splits, evaluate, _numbers),
    20,
)
