"""How often the tests of sampling rules alarm: of unchanged rules, and of rules that were made wrong.

``python -m tests.bench.gate.simulation 500`` counts the false alarms of 500 checks of all sampling rules of
the committed baseline in all its cells and probes: some five minutes on an idle core.

Each repetition is a check of rules that draw otherwise than in the baseline: the baseline's draws, today's
and the prediction under the baseline's seed are taken without replacement from a pool of draws of each
rule in each place, the errors against one of several oracles each. Only the draws are made once; all that the
gate does with them is done in each repetition.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

import numpy as np
import torch

from sdp_bench.bench.gate.answers.draws import Units, parts
from sdp_bench.bench.gate.answers.moments import PredictedMoments
from sdp_bench.bench.gate.cells import Cell, Scope
from sdp_bench.bench.gate.check import rules_of
from sdp_bench.bench.gate.comparisons import sampling
from sdp_bench.bench.gate.comparisons.sampling import DRAWS, Sample
from sdp_bench.bench.gate.predictions import draws
from sdp_bench.bench.gate.verdict import STOPPING
from sdp_bench.oracles.moments.draws import moment_errors

RULES = ("monte_carlo:samples=10", "monte_carlo:samples=100", "monte_carlo:samples=100,sampler=sobol")
_POOL, _ORACLES = 5 * DRAWS // 2, 2


@dataclass(frozen=True, eq=False)
class Pool:
    """Many draws of one rule in one place."""

    units: Units
    numbers: np.ndarray
    drawn: list[PredictedMoments]
    errors: list[tuple[np.ndarray, float]]
    metric: str

    @classmethod
    def of(cls, rule, place):
        seeds = [place.root.seed(f"pool {number}") for number in range(_POOL + 1)]
        reference, *drawn = draws(rule, place, seeds)
        units = Units(reference)
        errors, metric = [], ""
        if isinstance(place, Cell):
            laws = [each.law for each in drawn]
            oracles = [place.fresh_moments(10**6 + number) for number in range(_ORACLES)]
            for metric in ("kl", "bures"):
                errors = [moment_errors(oracle, laws, metric) for oracle in oracles]
                if all(np.isfinite(values).all() for values, _ in errors):
                    break
        return cls(units, units.numbers(drawn), drawn, errors, metric)

    def split(self, rng):
        """Draws of a baseline and of a check, and today's prediction under the baseline's seed."""
        order = rng.permutation(len(self.numbers))
        halves = order[:DRAWS], order[DRAWS : 2 * DRAWS]
        chosen = rng.permutation(len(self.errors)) if self.errors else [None, None]
        old, new = (self._sample(rows, oracle) for rows, oracle in zip(halves, chosen, strict=False))
        return old.summary, new, self.drawn[order[-1]]

    def _sample(self, rows, oracle):
        if oracle is None:
            return Sample(self.units, self.numbers[rows])
        values, noise = self.errors[oracle]
        return Sample(self.units, self.numbers[rows], self.metric, values[rows], noise)


def alarms(pools, rng, change=lambda sample, key: sample):
    """Whether one check stops, of rules whose draws today are changed; errors stay those of the unchanged."""
    old, new, today = {}, {}, {}
    for (rule, key), pool in pools.items():
        before, now, law = pool.split(rng)
        old.setdefault(rule, {})[key] = before
        today.setdefault(rule, {})[key] = law
        new[rule, key] = change(now, key)
    found = sampling.evidence(old, new, today)
    return any(sampling.status(each) in STOPPING for each in found.values())


def scaled(factor):
    """Covariances times a factor, in all places."""

    def change(sample, key):
        means, variances, pairs, overall = parts(sample.numbers, len(sample.units.deviation))
        overall = overall * np.array([1, 1, factor, factor])
        return replace(sample, numbers=np.hstack([means, factor * variances, factor * pairs, overall]))

    return change


def shifted(size):
    """Means moved by a share of the mean standard deviation, in all places."""

    def change(sample, key):
        outputs = len(sample.units.deviation)
        _, variances, *_ = parts(sample.numbers, outputs)
        by = size * np.sqrt(variances.mean(0))
        centre = sample.units.reference.mean / sample.units.deviation
        along = by @ centre / (centre @ centre)
        rest = np.zeros(sample.numbers.shape[1] - outputs - 4)
        return replace(sample, numbers=sample.numbers + np.hstack([by, rest, by.mean(), along, 0, 0]))

    return change


def pools_of(scope, specs=RULES):
    """Pools of some rules in all places where they have a law."""
    found = {}
    for spec, rule in rules_of(specs).items():
        for key, place in scope.places.items():
            if "Cauchy" not in place.name and "stable" not in place.name:
                found[spec, key] = Pool.of(rule, place)
        print(f"{spec}: drawn", file=sys.stderr, flush=True)
    return found


def share(pools, repetitions, seed, change=lambda sample, key: sample):
    """Number of alarms in some repetitions."""
    rng = np.random.default_rng(seed)
    return sum(alarms(pools, rng, change) for _ in range(repetitions))


if __name__ == "__main__":
    torch.set_num_threads(1)
    everywhere, checks = pools_of(Scope.of_ci()), int(sys.argv[1])
    print(f"{share(everywhere, checks, 1)} of {checks} checks alarm")
