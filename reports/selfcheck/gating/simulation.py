"""Alarm rates of the tests of sampling rules, for unchanged and for faulty rules.

``python -m sdp_bench.reports.selfcheck.gating.simulation 500`` counts the false alarms in 500 checks of all
sampling rules of the committed baseline in all its cells and probes. It takes about three minutes on an idle
core.

Each repetition is a check of rules with new draws. The draws of the baseline and those of the run are
taken without replacement from a pool for each rule and setting;
errors refer to different oracles. Only the draws are reused; the gate's computations run in each repetition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import click
import numpy as np
from numpy.typing import NDArray

import sdp_ref
from sdp_bench.bench.environment import threads
from sdp_bench.bench.gate import sampling
from sdp_bench.bench.gate.cells import Cell, Scope
from sdp_bench.bench.gate.predictions import draws
from sdp_bench.bench.gate.probes import Probe
from sdp_bench.bench.gate.sampling import DRAWS, Draws, Sample, Units, parts
from sdp_bench.bench.gate.verdict import STOPPING
from sdp_bench.oracles.moments.draws import moment_errors
from sdp_ref.laws import DiagonalGaussian, Gaussian
from sdp_ref.rules import Propagator

Array = NDArray[np.float64]
Change = Callable[[Sample], Sample]
"""A change of a rule's draws."""

RULES = ("monte_carlo:samples=10", "monte_carlo:samples=100", "monte_carlo:samples=100,sampler=sobol")
_POOL, _ORACLES = 5 * DRAWS // 2, 2


@dataclass(frozen=True, eq=False)
class Pool:
    """Many draws of one rule in one setting.

    `numbers`, shape (draws, numbers), are in `units`. `errors` has, for each oracle, the errors of the draws
    in `metric` and the oracle's noise; it is empty without an oracle.
    """

    units: Units
    numbers: Array
    errors: list[tuple[Array, float]]
    metric: str

    @classmethod
    def of(cls, rule: Propagator, place: Cell | Probe) -> Pool:
        seeds = [place.root.seed(f"pool {number}") for number in range(_POOL + 1)]
        reference, *drawn = draws(rule, place, seeds)
        units = Units(reference)
        errors: list[tuple[Array, float]] = []
        metric = ""
        if isinstance(place, Cell):
            laws = [each.law for each in drawn]
            oracles = [place.fresh_moments(10**6 + number) for number in range(_ORACLES)]
            for metric in ("kl", "bures"):
                errors = [moment_errors(oracle, laws, metric) for oracle in oracles]
                if all(np.isfinite(values).all() for values, _ in errors):
                    break
        return cls(units, units.numbers(drawn), errors, metric)

    @property
    def outputs(self) -> int:
        return len(self.units.deviation)

    @property
    def draws(self) -> Draws:
        """The first draws, summarised as in a baseline."""
        return self._sample(np.arange(DRAWS), 0 if self.errors else None).summary

    def split(self, rng: np.random.Generator) -> tuple[Draws, Sample]:
        """Sample the draws of a baseline and of a run."""
        order = rng.permutation(len(self.numbers))
        chosen = rng.permutation(len(self.errors)).tolist() if self.errors else [None, None]
        old = self._sample(order[:DRAWS], chosen[0])
        return old.summary, self._sample(order[DRAWS : 2 * DRAWS], chosen[1])

    def _sample(self, rows: NDArray[np.int64], oracle: int | None) -> Sample:
        if oracle is None:
            return Sample(self.units, self.numbers[rows])
        values, noise = self.errors[oracle]
        return Sample(self.units, self.numbers[rows], self.metric, values[rows], noise)


Pools = Mapping[tuple[str, str], Pool]
"""Pools by rule and setting."""


def pools_of(scope: Scope, specs: Sequence[str] = RULES) -> Pools:
    """Pools of rules in all settings of a scope whose distributions have moments."""
    places = {
        key: place for key, place in scope.cases.items() if isinstance(place.law, Gaussian | DiagonalGaussian)
    }
    rules = {rule.spec: rule for rule in map(sdp_ref.rule, specs)}
    return {(spec, key): Pool.of(rules[spec], place) for spec in rules for key, place in places.items()}


def unchanged(sample: Sample) -> Sample:
    return sample


def scaled(factor: float) -> Change:
    """Multiply covariances by a factor in all settings."""

    def change(sample: Sample) -> Sample:
        means, variances, pairs, overall = parts(sample.numbers, len(sample.units.deviation))
        overall = overall * np.array([1, 1, factor, factor])
        return replace(sample, numbers=np.hstack([means, factor * variances, factor * pairs, overall]))

    return change


def shifted(size: float) -> Change:
    """Shift means by a share of the mean standard deviation in all settings."""

    def change(sample: Sample) -> Sample:
        outputs = len(sample.units.deviation)
        _, variances, *_ = parts(sample.numbers, outputs)
        by = size * np.sqrt(variances.mean(0))
        centre = sample.units.reference.mean / sample.units.deviation
        along = by @ centre / (centre @ centre)
        rest = np.zeros(sample.numbers.shape[1] - outputs - 4)
        return replace(sample, numbers=sample.numbers + np.hstack([by, rest, by.mean(), along, 0, 0]))

    return change


def alarms(pools: Pools, trials: int, seed: int, change: Change = unchanged) -> int:
    """Count simulated checks that raise an alarm for changed draws; errors are those of unchanged rules."""
    rng = np.random.default_rng(seed)
    return sum(_alarm(pools, rng, change) for _ in range(trials))


def _alarm(pools: Pools, rng: np.random.Generator, change: Change) -> bool:
    old: dict[str, dict[str, Draws]] = {}
    new = {}
    for (rule, key), pool in pools.items():
        before, now = pool.split(rng)
        old.setdefault(rule, {})[key] = before
        new[rule, key] = change(now)
    found = sampling.evidence(old, new)
    return any(sampling.status(each) in STOPPING for each in found.values())


@click.command()
@click.argument("checks", type=click.IntRange(min=1))
def _main(checks: int) -> None:
    """Count the false alarms of so many CHECKS."""
    with threads(1):
        click.echo(f"{alarms(pools_of(Scope.of_ci()), checks, 1)} of {checks} checks alarm")


if __name__ == "__main__":
    _main()
