"""Level and power of tests that could decide verdicts, under skewed effects: docs/verdict_tests.csv.

Each test checks whether the effects of n replicates are above a threshold, 0. Most are about the mean; the
sign test is about the median, and the signed-rank and sign-flip tests about the centre of a symmetric law.
Under the null hypothesis the mean is 0, or for the sign test the median. Under the alternatives the mean is
one or two standard deviations above 0 for every test. Each law is used as it is and mirrored.

References: Johnson, J. Amer. Statist. Assoc. 73, 1978 (t corrected for skewness); Hall, J. R. Statist. Soc. B
54, 1992; Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 12 (bootstrap-t).
"""

import functools
import warnings
import zlib

import numpy as np
import pandas as pd
from scipy import stats

from tests.calibration.rate import SIGNIFICANCE
from tests.project import ROOT

DATA = ROOT / "docs/verdict_tests.csv"
REPLICATES = (4, 6, 8, 10, 12, 15, 20, 30, 60)
LEVELS = (0.05, 0.005)  # the second is that of ten statements
SHIFTS = (0.0, 1.0, 2.0)  # standard deviations
_TRIALS = 4000
_RESAMPLES = 999
_LARGE = 1e100  # t of a sample without spread


def _moments(values):
    """Student's t and the sample skewness."""
    n = values.shape[-1]
    error = values.std(-1, ddof=1) / np.sqrt(n)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of samples without spread
        t = values.mean(-1) / error
        skewness = stats.skew(values, axis=-1, bias=False)
    return np.where(error > 0, t, _LARGE * np.sign(values.mean(-1))), np.nan_to_num(skewness)


def _hall(t, skewness, n):
    a = skewness / np.sqrt(n)
    return t + a * t**2 / 3 + a**2 * t**3 / 27 + a / 6


def _reduced_t(values):
    """Larger p-value of t and Hall's t, with the degrees of freedom used up to version 0.41."""
    n = values.shape[-1]
    t, skewness = _moments(values)
    return stats.t.sf(np.fmin(t, _hall(t, skewness, n)), (n - 1) / 3 * min(1, n / 30))


def _t(values):
    return stats.t.sf(_moments(values)[0], values.shape[-1] - 1)


def _satterthwaite(values):
    """t with degrees of freedom from the sample kurtosis, which measures the error of the variance."""
    n = values.shape[-1]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        kurtosis = np.nan_to_num(stats.kurtosis(values, axis=-1, fisher=False), nan=3.0)
        freedom = 2 * n / np.maximum(kurtosis - (n - 3) / (n - 1), 1e-3)
    return stats.t.sf(_moments(values)[0], np.clip(freedom, 1, n - 1))


def _johnson(values):
    n = values.shape[-1]
    t, skewness = _moments(values)
    return stats.t.sf(t + skewness / np.sqrt(n) * (1 / 6 + t**2 / 3), n - 1)


def _hall_t(values):
    n = values.shape[-1]
    t, skewness = _moments(values)
    return stats.t.sf(_hall(t, skewness, n), n - 1)


def _bootstrap_t(values):
    """Share of resamples with a t around the sample mean that is at least the t of the sample."""
    n = values.shape[-1]
    weights = np.random.default_rng(n).multinomial(n, np.full(n, 1 / n), _RESAMPLES).T / n
    centred = values - values.mean(-1, keepdims=True)
    means = centred @ weights
    errors = np.sqrt(np.maximum(centred**2 @ weights - means**2, 1e-24) / (n - 1))
    least = _moments(values)[0][:, np.newaxis]
    return (1 + (means / errors >= least).sum(-1)) / (1 + _RESAMPLES)


@functools.cache
def _null_of_bootstrap_t(n):
    """Sorted p-values for mirrored exponential effects, the adverse direction."""
    return np.sort(_bootstrap_t(1 - np.random.default_rng(n).standard_exponential((10_000, n))))


def _calibrated_bootstrap_t(values):
    """Bootstrap-t at the p-values that it has for mirrored exponential effects."""
    null, p = _null_of_bootstrap_t(values.shape[-1]), _bootstrap_t(values)
    return np.maximum(p, (1 + np.searchsorted(null, p, side="right")) / (1 + len(null)))


def _sign(values):
    n = values.shape[-1]
    return stats.binom.sf((values > 0).sum(-1) - 1, n, 0.5)


def _signed_rank(values):
    n = values.shape[-1]
    counts = np.ones(1)  # number of sets of ranks by their sum
    for rank in range(1, n + 1):
        counts = np.convolve(counts, np.r_[1, np.zeros(rank - 1), 1])
    upper = counts[::-1].cumsum()[::-1] / 2.0**n
    ranks = stats.rankdata(np.abs(values), axis=-1)
    return upper[np.floor((ranks * (values > 0)).sum(-1)).astype(int)]


def _sign_flips(values):
    n = values.shape[-1]
    signs = np.random.default_rng(n).choice([-1.0, 1.0], (n, _RESAMPLES))
    least = values.sum(-1, keepdims=True) * (1 - 1e-12)
    return (1 + (np.abs(values) @ signs >= least).sum(-1)) / (1 + _RESAMPLES)


TESTS = {
    "t, reduced degrees of freedom": _reduced_t,
    "t": _t,
    "t, Satterthwaite": _satterthwaite,
    "t, Johnson": _johnson,
    "t, Hall": _hall_t,
    "bootstrap-t": _bootstrap_t,
    "bootstrap-t, calibrated": _calibrated_bootstrap_t,
    "signed-rank": _signed_rank,
    "sign-flip permutation": _sign_flips,
    "sign": _sign,
}
_OF_MEDIAN = {"sign"}


def _committed_effects():
    """Distinct effects of the committed results with ten nets or more, scaled to standard deviation 1."""
    from sdp_bench.reports.replication.page import topics
    from sdp_bench.reports.results import committed_results
    from sdp_bench.reports.statement import Evidence

    evidence = Evidence(committed_results())
    statements = [statement for topic in topics() for statement in topic.statements if statement.rule]
    answers = [statement.rule(evidence) for statement in statements]
    trials = [trial for answer in answers if answer for trial in answer.trials]
    values = [effect.values for trial in trials for effect in trial.effects if len(effect.values) >= 10]
    finite = [own for own in values if np.isfinite(own).all() and own.std() > 1e-9 * np.abs(own).max()]
    return [np.array(own) / np.std(own) for own in dict.fromkeys(tuple(own.tolist()) for own in finite)]


def laws():
    """Functions that draw effects of mean 0 or median 0, and standard deviation 1, shape (trials, n)."""
    spread = np.sqrt((np.e - 1) * np.e)
    committed = _committed_effects()

    def normal(rng, shape, of_median):
        return rng.standard_normal(shape)

    def exponential(rng, shape, of_median):
        return rng.standard_exponential(shape) - (np.log(2) if of_median else 1)

    def lognormal(rng, shape, of_median):
        return (rng.lognormal(size=shape) - (1 if of_median else np.exp(0.5))) / spread

    def resampled(rng, shape, of_median):
        chosen = [committed[k] for k in rng.integers(len(committed), size=shape[0])]
        centre = np.median if of_median else np.mean
        return np.array([rng.choice(own, shape[1]) - centre(own) for own in chosen])

    return {
        "normal": normal,
        "exponential": exponential,
        "lognormal": lognormal,
        "committed effects": resampled,
    }


def rows():
    for name, law in laws().items():
        for n in REPLICATES:
            for shift in SHIFTS:
                rng = np.random.default_rng(zlib.crc32(f"{name} {n} {shift}".encode()))
                state = rng.bit_generator.state
                drawn = {}
                for of_median in (False, True):
                    rng.bit_generator.state = state
                    drawn[of_median] = law(rng, (_TRIALS, n), of_median and not shift)
                for test, p_of in TESTS.items():
                    values = drawn[test in _OF_MEDIAN]
                    for direction, sign in (("right", 1), ("left", -1)):
                        p = p_of(sign * values + shift)
                        for level in LEVELS:
                            rate = float((p <= level).mean())
                            yield {
                                "test": test,
                                "effects": name,
                                "tail": direction,
                                "replicates": n,
                                "level": level,
                                "shift": shift,
                                "significant": round(rate, 5),
                                "stderr": round(float(np.sqrt(rate * (1 - rate) / _TRIALS)), 5),
                                "trials": _TRIALS,
                            }


def summary(table):
    """Rows of a Markdown table: largest rate, number of conditions with too high a rate, and power."""
    null = table[table["shift"] == 0]
    high = stats.binom.sf((null["significant"] * null["trials"]).round() - 1, null["trials"], null["level"])
    null = null.assign(liberal=high < SIGNIFICANCE)
    lines = []
    for name in TESTS:
        own, others = null[null["test"] == name], table[table["test"] == name]
        largest = own[own["level"] == 0.05]["significant"].max()
        ten = others[others["replicates"] == 10].groupby(["shift", "level"])["significant"].mean()
        lines.append(
            f"| {name} | {largest:.3f} | {own['liberal'].sum()} of {len(own)} | {ten[1.0, 0.05]:.2f} | "
            f"{ten[2.0, 0.005]:.2f} |\n"
        )
    return "".join(lines)


if __name__ == "__main__":
    pd.DataFrame(rows()).to_csv(DATA, index=False)
