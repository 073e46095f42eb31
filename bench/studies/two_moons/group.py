"""One classifier of two moons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

from sdp_bench.bench.errors import outside
from sdp_bench.bench.experiments.replicates import ReplicateGroup
from sdp_bench.bench.results.record import Record, Unit
from sdp_bench.bench.studies.two_moons.training import RECIPES, SCALE, Moons, moons, numbers, train

_STEP, _PROPAGATED = 0.002, 0.012  # s, one thread
_FIXED = 0.2  # s, for the uncertainties


@dataclass(frozen=True, eq=False)
class TwoMoonsGroup(ReplicateGroup):
    """A recipe and a seed; `objective` is a key of `sdp_bench.bench.studies.two_moons.training.RECIPES`."""

    objective: str
    steps: int

    def unit(self, seed: int) -> Unit:
        return Unit(
            self.replicated.key(seed),
            sigma=SCALE,
            dataset="two moons",
            objective=self.objective,
            seed=seed,
            design=self.replicated.text,
        )

    @property
    def title(self) -> str:
        return f"{self.name} {self.objective} seed {self.seeds[0]}"

    @property
    def seconds(self) -> float:
        return _FIXED + self.steps * (_PROPAGATED if RECIPES[self.objective].propagated else _STEP)

    def records(self, methods: Sequence[str]) -> Iterator[Record]:
        recipe = RECIPES[self.objective]
        for seed in self.seeds:
            with outside():
                data = moons(seed)
                data = replace(
                    data, **{one.name: getattr(data, one.name).to(self.device) for one in fields(Moons)}
                )
                found = numbers(recipe, train(recipe, data, self.steps, seed), data)
            for method in methods:
                for metric, value in found.items():
                    yield self.record(seed, method, metric, value)
