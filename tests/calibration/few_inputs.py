"""How often a mean error over few inputs is called small although it exceeds the limit, or the reverse.

``python -m tests.calibration.few_inputs`` prints the rates of several intervals and their power.
"""

import functools

import numpy as np
import pandas as pd
import torch
from scipy import stats

from sdp_bench.bench.metrics import recorded_metric
from sdp_bench.reports.results import committed_results
from sdp_bench.reports.scorecard.answers import USES
from sdp_bench.reports.scorecard.comparisons import one_number
from sdp_bench.reports.statistics.bounds import lower_bound, upper_bound
from sdp_bench.reports.statistics.ranking import SETTING
from tests.calibration.rate import Rate

LEVEL = 0.05
INPUTS = (1, 2, 3, 5, 10, 20, 50)
MANY = (100, 300, 1000)
BETTING = "betting (ours)"
STORED = "committed errors"
WORST = "made-up errors"


def student(values, largest):
    count = len(values[0])
    mean = values.mean(1)
    if count == 1:
        return mean, mean
    half = stats.t.ppf(0.975, count - 1) * values.std(1, ddof=1) / np.sqrt(count)
    return mean - half, mean + half


def bootstrap(values, largest):
    """Percentiles of the means of 500 resamples."""
    count = len(values[0])
    shares = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), 500) / count
    low, high = np.quantile(values @ shares.T, [LEVEL, 1 - LEVEL], axis=1)
    return low, high


def bernstein(values, largest):
    """Empirical Bernstein bounds (Maurer and Pontil 2009, theorem 4)."""
    count = len(values[0])
    if count == 1:
        return np.zeros(len(values)), np.full(len(values), largest)
    log = np.log(2 / LEVEL)
    half = np.sqrt(2 * values.var(1, ddof=1) * log / count) + 7 * largest * log / (3 * (count - 1))
    return values.mean(1) - half, values.mean(1) + half


def gaffke(values, largest):
    """Means of the sorted values under uniform spacings (Gaffke 2005; Learned-Miller and Thomas 2019).

    No proof is known that these bounds hold.
    """
    count = len(values[0])
    spacings = np.random.default_rng(0).dirichlet(np.ones(count + 1), 1000)
    ordered = np.sort(values, 1)
    low = np.quantile(ordered @ spacings[:, 1:].T, LEVEL, axis=1)
    high = np.quantile(ordered @ spacings[:, :-1].T + largest * spacings[:, -1], 1 - LEVEL, axis=1)
    return low, high


def betting(values, largest):
    low = [lower_bound(sample) for sample in values]
    high = [upper_bound(sample, largest) for sample in values]
    return np.array(low), np.array(high)


INTERVALS = {
    "Student's t": student,
    "percentile bootstrap": bootstrap,
    "empirical Bernstein": bernstein,
    "Gaffke": gaffke,
    BETTING: betting,
}


def made_up(mean, largest):
    """Families of errors with this mean: none but at a few inputs, equal ones, and beta distributions."""
    for share in (0.01, 0.02, 0.05, 0.1, 0.3, 0.6, 0.9):
        if mean / share <= largest:
            yield functools.partial(_at_a_share, share, mean / share)
    yield functools.partial(_at_a_share, 1.0, mean)
    for shape in (0.1, 0.5):
        yield functools.partial(_beta, shape, shape * (largest - mean) / mean, largest)


def _at_a_share(share, error, rng, shape):
    return np.where(rng.random(shape) < share, error, 0.0)


def _beta(one, other, largest, rng, shape):
    return largest * rng.beta(one, other, shape)


@functools.cache
def stored_errors(use):
    """Committed errors of each rule in each setting, on at least 20 pairs of net and input."""
    rows = _numbers()
    rows = rows[rows["metric"].isin(use.metrics)]
    scores = pd.Series(0.0, rows.index)
    for name in rows["metric"].unique():
        own, metric = rows["metric"] == name, recorded_metric(str(name))
        values, floors = rows["value"][own].to_numpy(), rows["floor"][own].to_numpy()
        exact = metric.score(floors, floors) * use.in_excess
        scores[own] = metric.score(values, floors) - np.where(np.isfinite(exact), exact, 0.0)
    keys = [rows[name] for name in (*SETTING, "rule")]
    groups = scores.groupby(keys, observed=True, sort=True)
    return [group.to_numpy().clip(0) for _, group in groups if len(group) >= 20 and np.isfinite(group).all()]


@functools.cache
def _numbers():
    return one_number(committed_results().frame)


def resampled(use, mean):
    """Families of committed errors whose mean is within a factor of three of the limit, scaled to a mean."""
    for errors in stored_errors(use):
        if use.small / 3 < errors.mean() < 3 * use.small:
            scaled = errors * (mean / errors.mean())
            if scaled.max() <= use.largest:
                yield functools.partial(_drawn, scaled)


def _drawn(errors, rng, shape):
    return errors[rng.integers(len(errors), size=shape)]


def families(use, mean):
    return {STORED: list(resampled(use, mean)), WORST: list(made_up(mean, use.largest))}


def wrong(use, side, name, condition, inputs, rng):
    """Wrong answers and trials, of all committed families together, or of the worst made-up family.

    Means are just on the other side of the limit.
    """
    mean = use.small * (1.0001 if side == "accurate" else 0.9999)
    trials = 100 if condition == STORED else 1000
    counts = []
    for draw in families(use, mean)[condition]:
        low, high = INTERVALS[name](draw(rng, (trials, inputs)), use.largest)
        said = high <= use.small if side == "accurate" else low > use.small
        counts.append(int(said.sum()))
    if condition == STORED:
        return sum(counts), trials * len(counts)
    return max(counts), trials


def few_inputs(rng):
    """Rates of the published answers and, without a claim, of Student's t, which they replaced."""
    for name in ("Student's t", BETTING):
        for use in USES[:3]:
            for side in ("accurate", "inaccurate"):
                for condition in (STORED, WORST):
                    for inputs in INPUTS:
                        errors, trials = wrong(use, side, name, condition, inputs, rng)
                        nominal = LEVEL if name == BETTING else None
                        text = f"{use.name}, {condition}, {inputs} inputs"
                        yield Rate(f"false “{side}” by {name}", text, nominal, errors, trials)


def main():
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    for use in USES[:3]:
        for side in ("accurate", "inaccurate"):
            for condition in (STORED, WORST):
                print(f"\n{use.name}: false “{side}”, {condition} at the limit, by number of inputs")
                table = {
                    name: [
                        np.divide(*wrong(use, side, name, condition, inputs, rng))
                        for inputs in (*INPUTS, *MANY[:2])
                    ]
                    for name in INTERVALS
                }
                print(pd.DataFrame(table, (*INPUTS, *MANY[:2])).T.round(3).to_string())
        for factor in (0.1, 0.5, 2.0, 5.0):
            print(f"\n{use.name}: right answers, committed errors with a mean of {factor:g} limits")
            rows = {}
            for name, interval in INTERVALS.items():
                shares = []
                for inputs in (*INPUTS, *MANY):
                    said = []
                    for draw in resampled(use, factor * use.small):
                        low, high = interval(draw(rng, (20, inputs)), use.largest)
                        said.append(high <= use.small if factor < 1 else low > use.small)
                    shares.append(np.mean(said))
                rows[name] = shares
            print(pd.DataFrame(rows, (*INPUTS, *MANY)).T.round(2).to_string())


SIMULATIONS = (few_inputs,)

if __name__ == "__main__":
    main()
