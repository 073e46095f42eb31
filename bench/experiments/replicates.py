"""Experiments without an oracle: methods trained and scored on data, with seeds as replicates."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from ..environment import threads
from ..errors import OutsideError, outside
from ..identity import digest
from ..results.record import Cell, Failure, Record, Unit
from ..settings import Settings
from .base import Expansion, Experiment, Group

if TYPE_CHECKING:
    from .predict import Scope


@dataclass(frozen=True, kw_only=True)
class ReplicateExperiment(Experiment):
    """Comparison of methods by their scores on data.

    The first of its metrics is recorded for every seed and method, the others only if they are defined.

    `study`: module that measures it, imported when there is work to plan; its function ``groups(experiment,
    scope)`` yields the groups. `version`: raised with every change that changes scores. Where trained models
    are cached, their training has a separate version. `options`: supported settings; `nets` is the number of
    seeds.
    """

    study: str = ""
    version: int = 1
    options: frozenset[str]
    has_oracle: ClassVar[bool] = False

    def takes(self, option: str) -> bool:
        return option in self.options

    def extent(self, settings: Settings) -> str:
        return f"{', '.join(self.rules)}; {self.size(settings).nets} seeds"

    def expand(self, scope: Scope) -> Expansion:
        return Expansion(list(importlib.import_module(self.study).groups(self, scope)))

    def group(self, settings: Settings, score: Score, seeds: Sequence[int], **fields: Any) -> ReplicateGroup:
        """Return a group of some seeds; `fields` are the other fields of the group."""
        fields = {"methods": self.rules, "device": settings.sampling.device, **fields}
        return ReplicateGroup(name=self.name, metrics=self.metrics, score=score, seeds=tuple(seeds), **fields)

    def by_seed(
        self, settings: Settings, numbers: Numbers, seeds: Iterable[int] | None = None, **fields: Any
    ) -> list[ReplicateGroup]:
        """Return a group for each seed (by default all), which is scored by itself."""
        seeds = range(self.size(settings).nets or 0) if seeds is None else seeds
        return [self.group(settings, partial(_of_seed, numbers), [seed], **fields) for seed in seeds]


Number = tuple[str, str, float, str | None]
"""Method, metric, value and component of a measurement."""
Score = Callable[["ReplicateGroup", Sequence[str]], Iterator[tuple[int, list[Number]]]]
"""Trains, and yields numbers of some methods of a group by seed; numbers yielded before an error are kept."""
Numbers = Callable[["ReplicateGroup", int, Sequence[str]], Iterable[Number]]
"""Trains, and returns the numbers of some methods of a group for one seed."""


def _of_seed(
    numbers: Numbers, group: ReplicateGroup, methods: Sequence[str]
) -> Iterator[tuple[int, list[Number]]]:
    for seed in group.seeds:
        yield seed, list(numbers(group, seed, methods))


@dataclass(frozen=True, eq=False, kw_only=True)
class ReplicateGroup(Group):
    """Some methods with some seeds.

    `name`: name of the experiment. `metrics`: the first is there wherever a method was scored. `versions`: of
    experiment, training and rule, as records have them. `dataset`, `objective`, `sigma`: see `Unit`. `label`:
    data and net. `design`: description: data sets, epochs, omissions. `identity`: hash of everything that
    determines the numbers except the seed, the descriptions and the code. `activation`, `depth`: of the nets.
    `score`: the measurement. `is_shared`: whether groups of other objectives have the same units.
    """

    name: str
    metrics: tuple[str, ...] = field(repr=False)
    versions: str = field(repr=False)
    label: str
    design: str
    identity: str
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    device: str
    dataset: str
    objective: str
    sigma: float | None = None
    activation: str = "relu"
    depth: int = 1
    score: Score = field(repr=False)
    seconds: float = 1.0
    is_shared: bool = False

    def key(self, seed: int) -> str:
        """Return the key of one seed's unit, 16 hexadecimal digits.

        The format of the first results files is kept, so that their measurements are still recognised.
        """
        nets = {"label": self.label, "activation": self.activation, "depth": self.depth}
        recipe = {"experiment": self.name, "text": self.design, "identity": self.identity}
        root = digest(nets, recipe)[:16]
        return digest({"net": root, "input": f"seed {seed}", "noise": "", "sampler": "", "samples": 0})[:16]

    def unit(self, seed: int) -> Unit:
        """Return the unit of one seed, as stored in a results file."""
        return Unit(
            self.key(seed),
            sigma=self.sigma,
            dataset=self.dataset,
            objective=None if self.is_shared else self.objective,
            seed=seed,
            design=self.design,
        )

    @property
    def title(self) -> str:
        scale = "" if self.sigma is None else f" at {self.sigma:g}"
        seeds = f"seed {self.seeds[0]}" if len(self.seeds) == 1 else f"{len(self.seeds)} seeds"
        return f"{self.name} {self.dataset} {self.objective}{scale} {seeds}"

    def records(self, methods: Sequence[str]) -> Iterator[Record]:
        """Yield the records of some methods; errors become OutsideError."""
        scores = self.score(self, methods)
        while True:
            with outside():
                scored = next(scores, None)
            if scored is None:
                return
            seed, numbers = scored
            yield from (self.record(seed, *number) for number in numbers)

    @property
    def units(self) -> tuple[Unit, ...]:
        return tuple(self.unit(seed) for seed in self.seeds)

    @property
    def members(self) -> tuple[tuple[str, str], ...]:
        return tuple((self.name, unit.key) for unit in self.units)

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(
            (unit.key, method, metric)
            for unit in self.units
            for metric in self.metrics
            for method in self.methods
        )

    def left(self, current: Collection[Cell]) -> list[Cell]:
        """Return the cells to measure; a method is complete if its first metric is present."""
        first = self.metrics[0]
        return [cell for cell in self.cells if (cell[0], cell[1], first) not in current]

    def versions_of(self, rule: str, metric: str) -> str:  # noqa: ARG002
        """See `Group`: all methods and metrics rest on the same versions."""
        return self.versions

    def measure(self, cells: Collection[Cell]) -> Iterator[Record | Failure]:
        """Measure cells; records from before a failure are kept."""
        begun = time.perf_counter()
        missing = {(unit, method) for unit, method, _ in cells}
        methods = tuple(method for method in self.methods if any(method == other for _, other in missing))
        try:
            with threads(1):  # the matrices are small, so more threads would only wait for each other
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
        """Return the record of a number without floor and standard error; seeds are its replicates."""
        unit = "nat" if metric == "nll" else "1"
        return Record(self.key(seed), method, metric, component, value, None, None, None, unit, None)
