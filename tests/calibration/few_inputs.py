"""How often a mean error over few inputs is called small although it exceeds the limit, or the reverse.

``python -m tests.calibration.few_inputs`` prints the rates of several intervals and their power.
"""

import functools
import itertools

import numpy as np
import pandas as pd
import torch
from scipy import stats

from sdp_bench.bench.metrics import recorded_metric
from sdp_bench.bench.metrics.references import references
from sdp_bench.reports.recommendation.answers import USES
from sdp_bench.reports.recommendation.comparisons import one_row_per_measurement
from sdp_bench.reports.results import committed_results
from sdp_bench.reports.statistics.bounds import lower_bound, upper_bound
from sdp_bench.reports.statistics.ranking import SETTING, Replicates
from tests.calibration.rate import Rate

LEVEL = 0.05
INPUTS = (1, 2, 3, 5, 10, 20, 50, 100, 300)
MANY = (600, 1000)
STUDENT, BETTING = "Student's t", "betting (ours)"
STORED = "committed errors"
WORST = "made-up errors"


def student(values, largest, side):
    count = len(values[0])
    mean = values.mean(1)
    if count == 1:
        return mean
    return mean + side * stats.t.ppf(0.975, count - 1) * values.std(1, ddof=1) / np.sqrt(count)


def bootstrap(values, largest, side):
    """Percentiles of the means of 500 resamples."""
    count = len(values[0])
    shares = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), 500) / count
    return np.quantile(values @ shares.T, 0.5 + side * (0.5 - LEVEL), axis=1)


def bernstein(values, largest, side):
    """Empirical Bernstein bounds (Maurer and Pontil 2009, theorem 4)."""
    count = len(values[0])
    if count == 1:
        return np.full(len(values), largest if side > 0 else 0.0)
    log = np.log(2 / LEVEL)
    half = np.sqrt(2 * values.var(1, ddof=1) * log / count) + 7 * largest * log / (3 * (count - 1))
    return values.mean(1) + side * half


def gaffke(values, largest, side):
    """Means of the sorted values under uniform spacings (Gaffke 2005; Learned-Miller and Thomas 2019).

    No proof is known that these bounds hold.
    """
    count = len(values[0])
    spacings = np.random.default_rng(0).dirichlet(np.ones(count + 1), 500)
    ordered = np.sort(values, 1)
    if side < 0:
        return np.quantile(ordered @ spacings[:, 1:].T, LEVEL, axis=1)
    return np.quantile(ordered @ spacings[:, :-1].T + largest * spacings[:, -1], 1 - LEVEL, axis=1)


def betting(values, largest, side):
    bounds = [upper_bound(row, largest) if side > 0 else lower_bound(row) for row in values]
    return np.array(bounds)


INTERVALS = {
    STUDENT: student,
    "percentile bootstrap": bootstrap,
    "empirical Bernstein": bernstein,
    "Gaffke": gaffke,
    BETTING: betting,
}


def made_up(mean, largest):
    """Families of errors with this mean: the largest error or less at a share of the inputs, and beta."""
    shares = (0.02, 0.05, 0.1, 0.3, 0.6, 0.9)
    for share in (mean / largest, *(share for share in shares if share > mean / largest)):
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
    return one_row_per_measurement(committed_results().frame)


def resampled(use, mean):
    """Families of committed errors with means within a factor of three of the limit, scaled to a mean."""
    for errors in stored_errors(use):
        if use.small / 3 < errors.mean() < 3 * use.small:
            scaled = errors * (mean / errors.mean())
            if scaled.max() <= use.largest:
                yield functools.partial(_drawn, scaled)


def _drawn(errors, rng, shape):
    return errors[rng.integers(len(errors), size=shape)]


def families(use, mean):
    return {STORED: list(resampled(use, mean)), WORST: list(made_up(mean, use.largest))}


ACCURATE = "false “accurate”"


def says(name, values, use, side):
    """Whether an interval shows that the mean error is "accurate" or "inaccurate" for a use."""
    if side == "accurate":
        return INTERVALS[name](values, use.largest, 1) <= use.small
    return INTERVALS[name](values, use.largest, -1) > use.small


def wrong(use, side, name, condition, inputs, rng):
    """Wrong answers and trials, of all committed families together, or of the worst made-up family.

    Means are just on the other side of the limit.
    """
    mean = use.small * (1.0001 if side == "accurate" else 0.9999)
    trials = 20 if condition == STORED else 300
    if side == "inaccurate":  # lower bounds take longer
        trials //= 4
    counts = [
        int(says(name, draw(rng, (trials, inputs)), use, side).sum())
        for draw in families(use, mean)[condition]
    ]
    if condition == STORED:
        return sum(counts), trials * len(counts)
    return max(counts), trials


def few_inputs(rng):
    """Rates of the published answers and, without a claim, of Student's t, which they replaced."""
    for use in USES[:3]:
        for condition in (STORED, WORST):
            for inputs in INPUTS:
                text = f"{use.name}, {condition}, {inputs} inputs"
                for side in ("accurate", "inaccurate"):
                    errors, trials = wrong(use, side, BETTING, condition, inputs, rng)
                    yield Rate(f"false “{side}”", text, LEVEL, errors, trials)
                errors, trials = wrong(use, "accurate", STUDENT, condition, inputs, rng)
                yield Rate(f"{ACCURATE} by t", text, None, errors, trials)


def equal_rules(rng):
    """How often one of two rules is called better, on committed class errors shifted to equal means.

    A shift keeps the skewness of the differences, but errors can become negative.
    """
    rows = _numbers()
    rows = rows[(rows["metric"] == "tv_class") & ~rows["rule"].isin(references())]
    pairs = []
    for _, setting in rows.groupby(list(SETTING), observed=True):
        errors = setting.pivot_table("value", ["net", "input"], "rule", observed=True).dropna(axis=1)
        if len(errors) >= 40:
            errors = (errors - errors.mean()).iloc[:, :4].to_numpy()
            pairs += [errors[:, [i, j]] for i, j in itertools.combinations(range(errors.shape[1]), 2)]
    trials = 5
    for inputs in INPUTS[2:7]:
        wrong_trials = 0
        for pair in pairs:
            for _ in range(trials):
                values = pair[rng.integers(len(pair), size=inputs)]
                one_net = np.zeros(inputs, dtype=np.int64)
                rules = ("one", "other")
                unknown = np.full(values.shape, np.nan)
                compared = Replicates(
                    rules, values, unknown, one_net, np.arange(inputs), frozenset(), signs=True
                )
                wrong_trials += any(compared.beats(*names, comparisons=2) for names in (rules, rules[::-1]))
        text = f"class errors shifted to equal means, {inputs} inputs"
        yield Rate("one of two equal rules better", text, None, wrong_trials, trials * len(pairs))


def paired_t(errors, largest):
    gains = errors[:, :, 1] - errors[:, :, 0]
    count = len(gains[0])
    stderr = gains.std(1, ddof=1) / np.sqrt(count)
    with np.errstate(divide="ignore", invalid="ignore"):
        return stats.t.sf(gains.mean(1) / stderr, count - 1) <= LEVEL / 2


def sign_test(errors, largest):
    gains = errors[:, :, 1] - errors[:, :, 0]
    wins, losses = (gains > 0).sum(1), (gains < 0).sum(1)
    return stats.binom.sf(wins - 1, wins + losses, 0.5) <= LEVEL / 2


def betting_on_gains(errors, largest):
    """The lower bound of the mean gain, which is at least minus the largest error, at half the level."""
    ratios = ((errors[:, :, 1] - errors[:, :, 0]) / largest + 1).clip(min=0)
    bets = 0.5 ** np.arange(6)[:, np.newaxis, np.newaxis]
    with np.errstate(divide="ignore"):
        log_wealth = np.log1p(bets * (ratios - 1)).sum(2)
    return np.logaddexp.reduce(log_wealth) - np.log(len(bets)) >= -np.log(LEVEL / 2)


def both_tests(errors, largest):
    inputs = errors.shape[1]
    one_net, numbers = np.zeros(inputs, dtype=np.int64), np.arange(inputs)
    unknown = np.full(errors.shape[1:], np.nan)
    compared = [
        Replicates(("one", "other"), trial, unknown, one_net, numbers, frozenset(), signs=True)
        for trial in errors
    ]
    return np.array([replicates.beats("one", "other", comparisons=2) for replicates in compared])


BOTH = "t and sign test (ours)"
COMPARISONS = {"t": paired_t, "sign test": sign_test, "betting": betting_on_gains, BOTH: both_tests}
FALSE_BETTER, RIGHT_BETTER = "false “better” by ", "right “better” by "


@functools.cache
def pairs_of_rules(use):
    """Committed errors of pairs of rules in one setting, on at least 40 pairs of net and input."""
    rows = _numbers()
    rows = rows[(rows["metric"] == use.metrics[0]) & ~rows["rule"].isin(references())]
    metric = recorded_metric(use.metrics[0])
    rows = rows.assign(score=metric.score(rows["value"].to_numpy(), rows["floor"].to_numpy()))
    pairs = []
    for _, setting in rows.groupby(list(SETTING), observed=True):
        errors = setting.pivot_table("score", ["net", "input"], "rule", observed=True).dropna(axis=1)
        if len(errors) >= 40:
            errors = errors.loc[:, errors.mean() > 0].iloc[:, :4].to_numpy()
            pairs += [errors[:, [i, j]] for i, j in itertools.combinations(range(errors.shape[1]), 2)]
    return [pair for pair in pairs if np.isfinite(pair).all()]


def compared_rules(rng):
    """Level and power of several comparisons of two rules on inputs of one net, on committed errors.

    For the level, the errors of one rule are scaled to the mean of the other. The power is for means that
    differ by more than the limit of the use.
    """
    trials = 3
    for use in USES[:3]:
        for inputs in INPUTS[2:7]:
            wrong, right = [], []
            for pair in pairs_of_rules(use):
                means = pair.mean(0)
                equal = pair * (means.min() / means)
                drawn = equal[rng.integers(len(pair), size=(trials, inputs))]
                wrong += [drawn, drawn[:, :, ::-1]]
                if abs(means[0] - means[1]) > use.small:
                    ordered = pair[:, np.argsort(means)]
                    right.append(ordered[rng.integers(len(pair), size=(trials, inputs))])
            for name, test in COMPARISONS.items():
                text = f"{use.name}, {inputs} inputs"
                errors = int(test(np.concatenate(wrong), use.largest).sum())
                nominal = LEVEL if name == BOTH else None
                # A trial has two tests, one in each direction.
                yield Rate(FALSE_BETTER + name, text, nominal, errors, len(wrong) * trials // 2)
                found = test(np.concatenate(right), use.largest)
                yield Rate(RIGHT_BETTER + name, text, None, int(found.sum()), len(found))


def main():
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    for use in USES[:3]:
        print(f"\n{use.name}: {len(families(use, use.small)[STORED])} committed families", flush=True)
        for side in ("accurate", "inaccurate"):
            for condition in (STORED, WORST):
                print(f"\n{use.name}: false “{side}”, {condition} at the limit, by number of inputs")
                rows = {
                    name: [np.divide(*wrong(use, side, name, condition, inputs, rng)) for inputs in INPUTS]
                    for name in INTERVALS
                }
                print(pd.DataFrame(rows, INPUTS).T.round(3).to_string(), flush=True)
        for factor in (0.1, 0.5, 2.0, 5.0):
            print(f"\n{use.name}: right answers, committed errors with a mean of {factor:g} limits")
            side = "accurate" if factor < 1 else "inaccurate"
            rows = {name: [] for name in INTERVALS}
            for inputs in (*INPUTS, *MANY):
                drawn = [draw(rng, (5, inputs)) for draw in resampled(use, factor * use.small)]
                for name, shares in rows.items():
                    shares.append(says(name, np.concatenate(drawn), use, side).mean())
            print(pd.DataFrame(rows, (*INPUTS, *MANY)).T.round(2).to_string(), flush=True)


SIMULATIONS = (few_inputs, equal_rules, compared_rules)

if __name__ == "__main__":
    main()
