"""Experiments without an oracle: methods trained and scored on data, with seeds as replicates."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from ..environment import threads
from ..errors import MeasuredCodeError, measured_code
from ..identity import digest
from ..lazy import pd
from ..results.columns import FAILED, outcome
from ..settings import Settings
from .base import Experiment, Group, Plan

if TYPE_CHECKING:
    from ..nets.net import Net


@dataclass(frozen=True, kw_only=True)
class ReplicateExperiment(Experiment):
    """Comparison of methods by their scores on data.

    The first of its metrics is recorded for every seed and method, the others only if they are defined.

    `study`: module that measures it, imported when there is work to plan; its function ``groups(experiment,
    settings)`` yields the groups. `version`: raised with every change that changes scores. Where trained
    models are cached, their training has a separate version. `options`: supported settings; `nets` is the
    number of seeds.
    """

    study: str = ""
    version: int = 1
    options: frozenset[str]
    has_oracle: ClassVar[bool] = False

    def takes(self, option: str) -> bool:
        return option in self.options

    def extent(self, settings: Settings) -> str:
        return f"{', '.join(self.rules)}; {self.size(settings).nets} seeds"

    def plan(self, settings: Settings, nets: Sequence[Net]) -> Plan:  # noqa: ARG002
        groups = list(importlib.import_module(self.study).groups(self, settings))
        parts = [group.rows for group in groups]
        rows = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
        return Plan(rows, {group.group_name: group for group in groups})

    def group(self, settings: Settings, score: Score, seeds: Sequence[int], **fields: Any) -> ReplicateGroup:
        """Return a group of some seeds; `fields` are the other fields of the group."""
        device = settings.sampling.device
        fields = {"methods": self.rules, "metrics": self.metrics, "device": device, **fields}
        return ReplicateGroup(name=self.name, score=score, seeds=tuple(seeds), **fields)

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
    `score`: the measurement. `cost`: estimated time (s). `is_shared`: whether groups of other objectives have
    the same units.
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
    cost: float = 1.0
    is_shared: bool = False

    def key(self, seed: int) -> str:
        """Return the key of one seed's unit, 16 hexadecimal digits.

        The format of the first results is kept, so that their measurements are still recognised.
        """
        nets = {"label": self.label, "activation": self.activation, "depth": self.depth}
        recipe = {"experiment": self.name, "text": self.design, "identity": self.identity}
        root = digest(nets, recipe)[:16]
        return digest({"net": root, "input": f"seed {seed}", "noise": "", "sampler": "", "samples": 0})[:16]

    @property
    def group_name(self) -> str:
        """Name in the column `group`: a hash of its seeds, objective and methods."""
        return digest(self.key(self.seeds[0]), len(self.seeds), self.objective, list(self.methods))[:16]

    @property
    def rows(self) -> pd.DataFrame:
        """Its rows of the plan."""
        units = pd.DataFrame(
            {
                "unit": [self.key(seed) for seed in self.seeds],
                "seed": self.seeds,
                "sigma": self.sigma,
                "dataset": self.dataset,
                "objective": None if self.is_shared else self.objective,
                "recipe": self.design,
            }
        )
        cells = pd.DataFrame(
            [(method, metric) for metric in self.metrics for method in self.methods],
            columns=["rule", "metric_spec"],
        )
        rows = units.merge(cells, how="cross")
        return rows.assign(experiment=self.name, group=self.group_name, fingerprint=self.versions)

    @property
    def title(self) -> str:
        scale = "" if self.sigma is None else f" at {self.sigma:g}"
        seeds = f"seed {self.seeds[0]}" if len(self.seeds) == 1 else f"{len(self.seeds)} seeds"
        return f"{self.name} {self.dataset} {self.objective}{scale} {seeds}"

    def seconds(self, rows: pd.DataFrame) -> float:  # noqa: ARG002
        return self.cost

    def measure(self, rows: pd.DataFrame) -> list[dict[str, Any]]:
        """Train and score; numbers from before a failure are kept.

        The other metrics of a method may be defined for some of its data only; its first one always is.
        """
        start = time.perf_counter()
        cells = list(dict.fromkeys(zip(rows["unit"], rows["rule"], rows["metric_spec"], strict=True)))
        requested = set(rows["rule"])
        methods = tuple(method for method in self.methods if method in requested)
        outcomes: list[dict[str, Any]] = []
        try:
            with threads(1):  # the matrices are small, so more threads would only wait for each other
                scores = self.score(self, methods)
                while True:
                    with measured_code():  # the generator trains and scores in `next`
                        scored = next(scores, None)
                    if scored is None:
                        break
                    seed, numbers = scored
                    outcomes += [self.outcome(seed, *number) for number in numbers]
        except MeasuredCodeError as error:
            seconds = time.perf_counter() - start
            with_numbers = {(row["unit"], row["rule"]) for row in outcomes}
            for unit, rule, metric in cells:
                if (unit, rule) not in with_numbers:
                    outcomes.append(
                        outcome(unit, rule, metric, status=FAILED, reason=str(error), seconds=seconds)
                    )
        return outcomes

    def outcome(
        self, seed: int, method: str, metric: str, value: float, component: str | None = None
    ) -> dict[str, Any]:
        """Return a number without floor and standard error; seeds are its replicates."""
        unit = "nat" if metric == "nll" else "1"
        key = self.key(seed)
        return outcome(key, method, metric, component=component, value=value, unit_of_measure=unit)
