"""Experiments without an oracle, in the same shape as suites: groups of work that give records."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from sdp_bench.bench.identity import keys
from sdp_bench.bench.identity.fingerprint import reached
from sdp_bench.bench.identity.keys import OracleKey
from sdp_bench.bench.results.record import Record, Unit
from sdp_bench.bench.settings import Settings


@dataclass(frozen=True)
class Topic:
    """What the nets of an experiment are called, in the place of an architecture."""

    label: str
    activation: str = "relu"
    depth: int = 1


@dataclass(frozen=True)
class Recipe:
    """How an experiment trains its nets; the name of the experiment tells it from other recipes.

    Attributes
    ----------
    experiment : str
        Name of the task.
    text : str
        For people: sets, epochs, what was left out.
    identity : str
        Hash of all that the numbers depend on beside the seed and the code.
    """

    experiment: str
    text: str
    identity: str


@dataclass(frozen=True)
class Experiment:
    """What a group of an experiment is about, in the place of a trained net; nothing is kept of its nets.

    Attributes
    ----------
    architecture : Topic
    recipe : Recipe
    """

    architecture: Topic
    recipe: Recipe

    @property
    def digest(self) -> str:
        """Hash of the topic and the recipe, 16 digits."""
        return keys.digest(asdict(self.architecture), asdict(self.recipe))[:16]


@dataclass(frozen=True)
class Trial:
    """One seed of an experiment, in the place of a subject.

    Attributes
    ----------
    key : OracleKey
        Of the experiment and the seed.
    row : int
        The seed.
    wanted : tuple of (str, tuple of str)
        Metrics, each with the methods it is measured for.
    """

    key: OracleKey
    row: int
    wanted: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Metrics and methods."""
        return tuple((metric, rule) for metric, rules in self.wanted for rule in rules)


@dataclass(frozen=True, eq=False)
class TaskGroup(ABC):
    """The unit of work of an experiment, its seeds together; see `Group`.

    Subclasses are frozen dataclasses that can be pickled, and know all that their work needs.

    Attributes
    ----------
    net : Experiment
    subjects : tuple of Trial
    settings : Settings
    """

    net: Experiment
    subjects: tuple[Trial, ...]
    settings: Settings = field(repr=False)
    sigma: ClassVar[float] = 0.0

    @property
    def units(self) -> tuple[Unit, ...]:
        """Its seeds, as a results file keeps them."""
        return tuple(self.unit(trial) for trial in self.subjects)

    @abstractmethod
    def unit(self, trial: Trial) -> Unit:
        """One seed, as a results file keeps it."""

    @property
    @abstractmethod
    def task(self) -> Task:
        """What it is a part of."""

    @property
    @abstractmethod
    def title(self) -> str:
        """For progress lines."""

    @property
    @abstractmethod
    def seconds(self) -> float:
        """Time (s) it takes on one core, about."""

    @abstractmethod
    def measure(self, wanted: Sequence[tuple[str, str, str]]) -> Iterator[Record]:
        """Measure what is `wanted`, (subject key, method, metric); more may be given."""


@dataclass(frozen=True)
class Task:
    """An experiment without an oracle.

    Attributes
    ----------
    name, description : str
    metrics : tuple of str
        The first is recorded for every seed and method, the others where there are such numbers.
    rules : tuple of str
        Its methods, as records have them.
    expand : callable of (Task, Settings)
        Gives its groups.
    code : tuple of object
        Functions, classes and constants that its numbers rest on.
    seeds : int
        By the paper's design.
    """

    name: str
    description: str
    metrics: tuple[str, ...]
    rules: tuple[str, ...]
    expand: Callable[[Task, Settings], Sequence[TaskGroup]]
    code: tuple[object, ...]
    seeds: int

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hash of the code that could change its numbers."""
        return reached(*self.code)

    def count(self, settings: Settings) -> int:
        """Seeds under `settings`."""
        return settings.nets or settings.sizes.get(self.name, (self.seeds, 1))[0]

    def trial(self, experiment: Experiment, seed: int, wanted: Any) -> Trial:
        """Subject of a seed."""
        return Trial(OracleKey(experiment.digest, f"seed {seed}", "", "", 0), seed, tuple(wanted))

    def record(self, trial: Trial, rule: str, metric: str, value: float, component: str = "") -> Record:
        """Record of a number that has no floor and no standard error of its own: seeds are its replicates."""
        unit = "nat" if metric == "nll" else "1"
        return Record(trial.key.hex, rule, metric, component or None, value, None, None, None, unit, None)
