"""Experiments without an oracle: methods that are trained and scored on data, with seeds as replicates."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from sdp_bench.bench.environment import threads
from sdp_bench.bench.errors import OutsideError
from sdp_bench.bench.experiments.base import Experiment, Group
from sdp_bench.bench.identity import keys
from sdp_bench.bench.results.record import Cell, Failure, Record, Unit
from sdp_bench.bench.settings import Settings, Size


@dataclass(frozen=True, kw_only=True)
class ReplicateExperiment(Experiment):
    """How good methods are on data, by scores.

    The first of its metrics is recorded for every seed and method, the others where there are such numbers.

    Attributes
    ----------
    version : int
        Raised with every change that changes scores. Where trained models are cached, their training has
        a version of its own.
    options : frozenset of str
        Settings that it takes beside `nets`, its seeds, and `device`.
    """

    version: ClassVar[int] = 1
    options: frozenset[str] = frozenset()

    def takes(self, option: str) -> bool:
        """See `Experiment`."""
        return option in {"nets", "device", *self.options}

    @property
    def has_oracle(self) -> bool:
        """See `Experiment`."""
        return False

    def size(self, settings: Settings) -> Size:
        """See `Experiment`: without an oracle, what a user says of samples is how many images there are."""
        own = super().size(settings)
        return replace(own, samples=settings.design.samples or own.samples)

    def extent(self, settings: Settings) -> str:
        """See `Experiment`."""
        return f"{', '.join(self.rules)}; {self.size(settings).nets} seeds"


@dataclass(frozen=True)
class Replicated:
    """What is repeated with several seeds.

    Attributes
    ----------
    experiment : str
        Name.
    label, activation : str
    depth : int
        Of its nets.
    text : str
        Its design, for people: sets, epochs, what was left out.
    identity : str
        Hash of all that the numbers depend on beside the seed, the design's words and the code.
    """

    experiment: str
    label: str
    text: str
    identity: str
    activation: str = "relu"
    depth: int = 1

    def key(self, seed: int) -> str:
        """Key of the unit of one seed, 16 hexadecimal digits.

        In the form that the first results files had, so that what they measured is still known.

        Returns
        -------
        str
        """
        nets = {"label": self.label, "activation": self.activation, "depth": self.depth}
        recipe = {"experiment": self.experiment, "text": self.text, "identity": self.identity}
        root = keys.digest(nets, recipe)[:16]
        return keys.digest({"net": root, "input": f"seed {seed}", "noise": "", "sampler": "", "samples": 0})[
            :16
        ]


@dataclass(frozen=True, eq=False)
class ReplicateGroup(Group):
    """Some methods with some seeds.

    Attributes
    ----------
    name : str
        Of the experiment.
    metrics : tuple of str
        The first is there wherever a method was scored.
    versions : str
        Of experiment, training and rule, as records have them.
    replicated : Replicated
    methods : tuple of str
    seeds : tuple of int
    device : str
    """

    name: str
    metrics: tuple[str, ...] = field(repr=False)
    versions: str = field(repr=False)
    replicated: Replicated
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    device: str

    @abstractmethod
    def unit(self, seed: int) -> Unit:
        """One seed, as a results file keeps it."""

    @abstractmethod
    def records(self, methods: Sequence[str]) -> Iterator[Record]:
        """Train, and score some methods for all seeds, one after the other.

        Parameters
        ----------
        methods : sequence of str

        Yields
        ------
        Record

        Raises
        ------
        OutsideError
            If the training or a method fails.
        """

    @property
    def units(self) -> tuple[Unit, ...]:
        """See `Group`."""
        return tuple(self.unit(seed) for seed in self.seeds)

    @property
    def members(self) -> tuple[tuple[str, str], ...]:
        """See `Group`."""
        return tuple((self.name, unit.key) for unit in self.units)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """See `Group`."""
        return tuple(
            (unit.key, method, metric)
            for unit in self.units
            for metric in self.metrics
            for method in self.methods
        )

    def left(self, current: Collection[Cell]) -> list[Cell]:
        """See `Group`: a method whose first metric is there is there in full."""
        first = self.metrics[0]
        return [cell for cell in self.cells if (cell[0], cell[1], first) not in current]

    def versions_of(self, rule: str, metric: str) -> str:  # noqa: ARG002
        """See `Group`: all methods and metrics rest on the same versions."""
        return self.versions

    def measure(self, cells: Collection[Cell]) -> Iterator[Record | Failure]:
        """See `Group`: what is measured before a failure is kept."""
        begun = time.perf_counter()
        missing = {(unit, method) for unit, method, _ in cells}
        methods = tuple(method for method in self.methods if any(method == other for _, other in missing))
        try:
            with threads(1):  # its matrices are small: more threads would only wait for each other
                for record in self.records(methods):
                    missing.discard((record.unit, record.rule))
                    yield record
        except OutsideError as error:
            took = time.perf_counter() - begun
            for unit, method in sorted(missing):
                yield Failure(unit, method, None, str(error), took)

    def record(
        self, seed: int, method: str, metric: str, value: float, component: str | None = None
    ) -> Record:
        """Record of a number that has no floor and no standard error of its own: seeds are its replicates."""
        unit = "nat" if metric == "nll" else "1"
        key = self.replicated.key(seed)
        return Record(key, method, metric, component, value, None, None, None, unit, None)
