"""Costs of rules: time per input, and the number of Monte Carlo samples that take equally long."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from ..style.names import RuleTraits

SAME = 1.25
"""Times within this factor count as equal, since they stem from few calls on a busy machine."""

_VISIBLE = 0.05
"""Least time of all samples, as a share of the overhead, from which a time per sample is more than noise."""

ARCHITECTURE = ["activation", "depth", "network"]
_PLAIN = re.compile(r"monte_carlo:samples=(\d+)")


def plain_samples(rule: str) -> int | None:
    """Return the sample count of the package's plain Monte Carlo rule, and None for all other rules.

    Only this rule sets the scale of time: a user's sampling rule may have another cost.
    """
    plain = _PLAIN.fullmatch(rule)
    return int(plain[1]) if plain else None


@dataclass(frozen=True)
class Cost:
    """Cost of one rule for one input.

    `seconds` is the minimum of the measured times, since other work on the machine only ever adds to them
    (Chen and Revels, "Robust benchmarking in noisy environments", 2016), and `typical` is their median. Both
    are geometric means over architectures, so that the ratio of two rules is the mean of their ratios
    (Fleming and Wallace, "How not to lie with statistics", Commun. ACM 29, 1986). `samples` is the number of
    Monte Carlo samples that take as long as `seconds`, or NaN if it is unknown.
    """

    seconds: float
    typical: float
    samples: float = math.nan


@dataclass(frozen=True)
class SamplingTime:
    """Time of k Monte Carlo samples for one input: ``overhead + k * per_sample`` seconds."""

    overhead: float
    per_sample: float

    @classmethod
    def fit(cls, seconds: Mapping[int, float]) -> SamplingTime | None:
        """Fit times by sample count: least squares of relative errors, with non-negative coefficients.

        Return None if there are fewer than two sample counts, or if the time per sample is too small to be
        seen against the overhead.
        """
        if len(seconds) < 2:
            return None
        counts, times = np.array(sorted(seconds.items()), dtype=float).T
        # Weights of 1 / time make the residuals relative, as errors of timing are. Otherwise the largest
        # sample count would dominate. Non-negative least squares: Lawson and Hanson 1974, chapter 23.
        design = np.column_stack([np.ones_like(counts), counts]) / times[:, None]
        (overhead, per_sample), _ = nnls(design, np.ones_like(counts))
        visible = per_sample * counts[-1] > _VISIBLE * overhead
        return cls(float(overhead), float(per_sample)) if visible else None

    def seconds(self, samples: float) -> float:
        """Time of a number of samples for one input, in seconds."""
        return self.overhead + self.per_sample * samples

    def samples(self, seconds: float) -> float:
        """Samples that fit into a time; 0 if it is shorter than the overhead."""
        return max(0.0, (seconds - self.overhead) / self.per_sample)


@dataclass(frozen=True)
class Costs:
    """Costs of the timed rules on the nets of one row of the report.

    `sampling` is the fit of plain Monte Carlo to geometric means over nets (None with fewer than two sample
    counts), and `misfit` the largest factor between a measured time and that fit. `batch` is the largest
    number of inputs that were timed together.
    """

    by_rule: Mapping[str, Cost]
    sampling: SamplingTime | None
    misfit: float
    batch: int

    @classmethod
    def from_measurements(cls, frame: pd.DataFrame, traits: RuleTraits) -> Costs:
        """Compute costs from measurements; references are skipped, because their time is that of the oracle.

        Time depends on the architecture and not on sigma, so that all measurements of an architecture are
        pooled. The number of samples at equal time is the median over architectures: a mean would follow the
        one architecture on which the timing of a rule was disturbed. NaN if no architecture has a fit.
        """
        timed = frame[(frame["seconds"] > 0) & ~frame["rule"].map(traits.is_reference).astype(bool)]
        times = timed.groupby([*ARCHITECTURE, "rule"])["seconds"]
        least = times.min().unstack()  # architecture by rule
        medians = times.median().unstack()
        seconds = {str(rule): _geometric(least[rule]) for rule in least}
        samples = _samples_at_equal_time(least)
        by_rule = {}
        for rule in traits.in_order(seconds):
            # The count of plain Monte Carlo is exact; an inverted fit would give it with an error.
            equal = float(plain_samples(rule) or samples[rule])
            by_rule[rule] = Cost(seconds[rule], _geometric(medians[rule]), equal)
        sampling = SamplingTime.fit(_by_count(seconds))
        misfit = _misfit(sampling, _by_count(seconds)) if sampling else math.nan
        batches = timed.drop_duplicates(["net", "sigma", "input"]).groupby(["net", "sigma"]).size()
        return cls(by_rule, sampling, misfit, int(batches.max()) if len(batches) else 0)

    def within(self, rule: str, samples: float) -> bool:
        """Whether a rule takes no longer than `samples` Monte Carlo samples; similar times count as equal."""
        if math.isinf(samples):
            return True
        count = plain_samples(rule)
        if count is not None:
            return count <= samples
        cost = self.by_rule.get(rule)
        return bool(cost and self.sampling and cost.seconds <= SAME * self.sampling.seconds(samples))

    def no_dearer(self, rule: str, other: str) -> bool:
        """Whether `rule` takes no longer than `other`; similar times count as equal."""
        if rule not in self.by_rule or other not in self.by_rule:
            return False
        count, other_count = plain_samples(rule), plain_samples(other)
        if count is not None and other_count is not None:
            return count <= other_count
        return self.by_rule[rule].seconds <= SAME * self.by_rule[other].seconds


def _samples_at_equal_time(least: pd.DataFrame) -> pd.Series:
    """Return the number of Monte Carlo samples that take as long as each rule.

    `least` has the times by architecture (rows) and rule (columns). An architecture counts if its times of
    plain Monte Carlo can be fitted.
    """
    rows = []
    for _, row in least.iterrows():
        times = {str(rule): time for rule, time in row.dropna().items()}
        fit = SamplingTime.fit(_by_count(times))
        if fit:
            rows.append({rule: fit.samples(time) for rule, time in times.items()})
    return pd.DataFrame(rows, columns=[str(rule) for rule in least]).median()


def _misfit(sampling: SamplingTime, seconds: Mapping[int, float]) -> float:
    """Return the largest factor between the time of a sample count and its fit, in either direction."""
    ratios = [time / sampling.seconds(count) for count, time in seconds.items()]
    return max(max(ratio, 1 / ratio) for ratio in ratios)


def _by_count(seconds: Mapping[str, float]) -> dict[int, float]:
    """Return the times of plain Monte Carlo by number of samples."""
    counts = {rule: plain_samples(rule) for rule in seconds}
    return {count: seconds[rule] for rule, count in counts.items() if count is not None}


def _geometric(values: pd.Series) -> float:
    return float(np.exp(np.log(values.dropna()).mean()))
