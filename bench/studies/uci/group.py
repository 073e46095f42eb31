"""One data set and objective: all nets are trained together, and scored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import torch

from sdp_bench.bench.datasets import dataset
from sdp_bench.bench.datasets.base import TabularRegression
from sdp_bench.bench.errors import outside
from sdp_bench.bench.experiments.replicates import ReplicateGroup
from sdp_bench.bench.results.record import Record, Unit
from sdp_bench.bench.studies.uci import METHODS, intervals
from sdp_bench.bench.studies.uci.methods import Selected, evaluate
from sdp_bench.bench.studies.uci.stacked import BATCH, OBJECTIVES, Problem, Setting, get_nets

_STEP = 1.2e-5  # s per net and step, one thread
_PROPAGATED = 2.0  # time factor of the likelihood of the propagated law
_BOTH_ENDS = 1.7  # time factor of two quantile levels per row
_SAMPLE = 4e-9  # s per net, row, input variance and sample


@dataclass(frozen=True, eq=False)
class UciGroup(ReplicateGroup):
    """All seeds and settings of one set under one objective, which are trained together.

    `rows`, `features`: of the set.
    """

    dataset: str
    objective: str
    epochs: int
    # size of the data set
    rows: int
    features: int
    grid: tuple[Setting, ...]

    def unit(self, seed: int) -> Unit:
        replicated = self.replicated
        return Unit(replicated.key(seed), dataset=self.dataset, seed=seed, design=replicated.text)

    @property
    def title(self) -> str:
        return f"UCI {self.dataset} {self.objective}"

    @property
    def seconds(self) -> float:
        nets = len(self.seeds) * len(self.grid)
        train, validation = 0.72 * self.rows, 0.18 * self.rows
        steps = self._members(self.methods) * self.epochs * -(-train // BATCH)
        objective = OBJECTIVES[self.objective]
        factor = _PROPAGATED if objective.propagated else _BOTH_ENDS if objective.fixed else 1.0
        samples = sum(METHODS[name].samples for name in self.methods)
        scanned = len(intervals.DECADES) + 2 * len(intervals.REFINEMENT) - 1
        return 1.0 + nets * (factor * steps * _STEP + validation * scanned * samples * _SAMPLE)

    @staticmethod
    def _members(methods: Sequence[str]) -> int:
        """Return the number of nets for each seed and setting that some methods need."""
        return max(METHODS[name].members for name in methods)

    def records(self, methods: Sequence[str]) -> Iterator[Record]:
        with outside():
            parts = intervals.splits(dataset(self.dataset, TabularRegression).load(), self.seeds)
            features = {part: x.to(self.device) for part, x in parts.features.items()}
            targets = {part: y.to(self.device) for part, y in parts.targets.items()}
            parts = replace(parts, features=features, targets=targets, ranges=parts.ranges.to(self.device))
            asked = OBJECTIVES[self.objective], self.grid, self.epochs
            problems = (
                Problem(features["train"], targets["train"], self.seeds, member)
                for member in range(self._members(methods))
            )
            stacks = [get_nets(self.dataset, problem, *asked) for problem in problems]
        for method in methods:
            with outside(), torch.no_grad():
                own = stacks[: METHODS[method].members]
                found = evaluate(method, own, parts, self.grid, self.seeds)
            for reading, selected in found.items():
                for seed, chosen in zip(self.seeds, selected, strict=True):
                    for metric, value in numbers_of(chosen).items():
                        yield self.record(seed, method, metric, value, reading)


def numbers_of(chosen: Selected) -> dict[str, float]:
    """Return one seed's numbers: how many settings qualified, and the scores of the selected one, if any."""
    numbers = {"qualified": float(chosen.qualified)}
    if chosen.setting is None:
        return numbers
    numbers |= chosen.test
    numbers |= {f"validation_{name}": value for name, value in chosen.validation.items() if name != "nll"}
    numbers |= asdict(chosen.setting)
    if chosen.input_variance == chosen.input_variance:
        numbers["input_variance"] = chosen.input_variance
    return numbers
