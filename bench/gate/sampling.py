"""Statistical comparison of sampling rules whose predictions changed under the baseline's seeds.

A single draw says little, but the distribution of many does. In each case, and over all cases together, the
means and covariances predicted under 512 fresh seeds are compared with those of the baseline's 512 seeds and,
where there is an oracle, the logarithms of the distances to its moments; all by Welch's t, two-sided.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from scipy.special import stdtr

from sdp_bench.bench.gate.cases import Case
from sdp_bench.bench.gate.predictions import THRESHOLD, Answer, Array, null_variance
from sdp_bench.bench.gate.verdict import Status
from sdp_bench.oracles.estimate.multiplicity import holm
from sdp_bench.oracles.moments.draws import moment_errors
from sdp_bench.oracles.moments.moments import Moments

DRAWS = 512
"""Seeds per case: over all 55 cases, a change of the variance of 10 samples is detected to 0.4 %."""

SIGNIFICANCE = 0.01
"""Level of all tests of a run together, by Holm's method. At most 4 alarms in 200 unchanged runs certify 5 %;
a run with a false alarm rate of 1 % passes that with probability 0.95.
"""

PRACTICAL_ERROR = 0.05
"""In the logarithm of a squared distance: errors 2.5 % larger, as with 5 % fewer samples."""

ERROR, MEAN, MEAN_FACTOR = "log error", "mean", "factor of the mean"
VARIANCE, COVARIANCE = "variance", "covariance"

OVERALL = 4
"""Number of summaries of a draw over all outputs, the last columns of `numbers_of`."""
LEVEL, FACTOR, SPREAD, SLANT = range(OVERALL)
"""Their order: the mean's shift in standard deviations, the mean along the reference's, the variances, and
the covariances along the reference's correlations.
"""

K = TypeVar("K")


def fresh_seeds(spec: str, case: Case, draw: int, number: int = DRAWS) -> list[int]:
    """Return seeds of a rule for one case, derived from a run's seed `draw`."""
    return [case.root.seed(f"gate {draw} {spec} {index}") for index in range(number)]


def numbers_of(drawn: Sequence[Answer], reference: Answer) -> Array:
    """Return a row of numbers for each draw: means, variances, covariances, and the four overall ones.

    They are in units of the mean and standard deviations of a reference, one prediction under a separate
    seed, so that the units depend neither on the baseline's draws nor on new ones.
    """
    # for a constant output its rounding error
    deviation = np.sqrt(np.maximum(reference.variance, null_variance(reference)))
    scale, centre = np.outer(deviation, deviation), reference.mean / deviation
    pairs = np.triu_indices(len(deviation), 1)
    means = np.array([answer.mean for answer in drawn]) / deviation - centre
    covariances = np.array([answer.covariance for answer in drawn]) / scale
    variances = np.diagonal(covariances, axis1=1, axis2=2)
    correlations = covariances[:, *pairs]
    # 1 plus the component of the shift along the reference's mean: a factor of the mean
    factor = 1 + means @ centre / max(float(centre @ centre), np.finfo(float).tiny)
    direction = (reference.covariance / scale)[pairs]
    norm = float(np.linalg.norm(direction))
    direction = direction / norm if norm else np.full(direction.shape, 1 / max(1, len(direction)))
    overall = np.stack([means.mean(1), factor, variances.mean(1), correlations @ direction], 1)
    return np.hstack([means, variances, correlations, overall])


@dataclass(frozen=True)
class Draws:
    """Summary of draws with many seeds in one case."""

    number: int  # seeds
    # mean and standard deviation over seeds of the columns of `numbers_of`
    mean: list[float]
    sd: list[float]
    # "kl" or "bures" if there is an oracle; the error is the logarithm of that distance to its moments
    metric: str = ""
    # mean and standard deviation of the error; infinite if a draw has no distance, or an infinite one
    error: float = 0.0
    error_sd: float = 0.0
    noise: float = field(default=0.0, compare=False)  # standard error of the error by the oracle; not stored

    @property
    def outputs(self) -> int:
        """Number of outputs m, with m (m + 3) / 2 columns in addition to the overall ones."""
        return (math.isqrt(8 * (len(self.mean) - OVERALL) + 9) - 3) // 2

    def to_json(self) -> dict[str, Any]:
        stored = vars(replace(self, noise=0.0))
        return {name: value for name, value in stored.items() if value not in ("", 0.0)}


def summary_of(
    drawn: Sequence[Answer], reference: Answer, oracle: Moments | None = None, metric: str = ""
) -> Draws:
    """Return the summary of some draws; `oracle` has the moments for errors in `metric`.

    Without a `metric` it is KL or, if that is infinite for a draw, Bures.
    """
    numbers = numbers_of(drawn, reference)
    draws = Draws(len(numbers), numbers.mean(0).tolist(), numbers.std(0, ddof=1).tolist())
    if oracle is None:
        return draws
    errors, noise = moment_errors(oracle, [answer.law for answer in drawn], metric or "kl")
    is_finite = bool(np.isfinite(errors).all())
    if not metric and not is_finite:
        return summary_of(drawn, reference, oracle, "bures")
    error_sd = float(errors.std(ddof=1)) if is_finite else math.inf
    return replace(draws, metric=metric or "kl", error=float(errors.mean()), error_sd=error_sd, noise=noise)


@dataclass(frozen=True)
class Evidence:
    """One measure of a change; positive differences of the error are for the worse."""

    measure: str
    difference: float
    stderr: float
    p: float  # two-sided p-value; `adjust` corrects it for all tests of the run

    @property
    def significant(self) -> bool:
        return self.p <= SIGNIFICANCE

    @property
    def relevant(self) -> bool:
        """Whether the change is significant and larger than what has no practical relevance."""
        limit = PRACTICAL_ERROR if self.measure == ERROR else THRESHOLD
        return self.significant and abs(self.difference) > limit

    @property
    def text(self) -> str:
        """Description: ``log error +0.102 ± 0.01``."""
        return f"{self.measure} {self.difference:+.3g} ± {self.stderr:.1g}"

    @property
    def numbers(self) -> dict[str, float]:
        values = {"difference": self.difference, "stderr": self.stderr, "adjusted p": self.p}
        return {f"{self.measure} {name}": value for name, value in values.items()}


def p_value(difference: float, stderr: float, freedom: float) -> float:
    """Return the two-sided p-value of "the difference is 0" by Student's t; without noise it is 1 or 0."""
    if difference == 0 or math.isnan(difference):
        return 1.0
    if math.isinf(difference) or stderr == 0:
        return 0.0
    return float(2 * stdtr(freedom, -abs(difference) / stderr))


def compare(old: Draws, new: Draws) -> list[Evidence]:
    """Return evidence in one case for changed errors, means, variances and covariances.

    Of several outputs, the most significant counts, with its p-value corrected for their number.
    """
    difference, stderr = _differences(old, new)
    freedom = min(old.number, new.number) - 1
    found = []
    if old.metric:
        moved, error = _error(old, new)
        found.append(Evidence(ERROR, moved, error, p_value(moved, error, freedom)))
    ends = [0, new.outputs, 2 * new.outputs, len(stderr) - OVERALL]
    for measure, start, end in zip((MEAN, VARIANCE, COVARIANCE), ends[:-1], ends[1:], strict=True):
        outputs = [
            Evidence(measure, d, s, min(1.0, (end - start) * p_value(d, s, freedom)))
            for d, s in zip(difference[start:end].tolist(), stderr[start:end].tolist(), strict=True)
        ]
        found += sorted(outputs, key=lambda one: one.p)[:1]
    return found


def _error(old: Draws, new: Draws) -> tuple[float, float]:
    """Return the difference of the errors and its standard error, to which both oracles contribute."""
    variance = old.error_sd**2 / old.number + new.error_sd**2 / new.number
    return new.error - old.error, math.sqrt(variance + 2 * new.noise**2)


def _differences(old: Draws, new: Draws) -> tuple[Array, Array]:
    """Return differences of the numbers and their standard errors; those of variances are relative."""
    means = np.array([old.mean, new.mean])
    stderr = np.sqrt(np.square(old.sd) / old.number + np.square(new.sd) / new.number)
    relative = np.ones_like(stderr)
    # relative to the mean of both, so that swapping them gives the opposite difference
    overall = len(stderr) - OVERALL
    variances = [*range(new.outputs, 2 * new.outputs), overall + SPREAD]
    relative[variances] = np.maximum(means.mean(0)[variances], np.finfo(float).tiny)
    return (means[1] - means[0]) / relative, stderr / relative


def pooled(old: Mapping[str, Draws], new: Mapping[str, Draws]) -> list[Evidence]:
    """Return evidence over all cases for changes that are too small to detect in a single one."""
    freedom = sum(draws.number - 1 for draws in new.values())
    found = []
    errors = [_error(old[key], draws) for key, draws in new.items() if old[key].metric]
    if errors:
        difference, stderr = np.array(errors).T
        mean, error = float(difference.mean()), float(np.linalg.norm(stderr)) / len(errors)
        found.append(Evidence(ERROR, mean, error, p_value(mean, error, freedom)))
    overall = np.array([[x[-OVERALL:] for x in _differences(old[key], new[key])] for key in new])
    for measure, column in ((MEAN, LEVEL), (MEAN_FACTOR, FACTOR), (VARIANCE, SPREAD), (COVARIANCE, SLANT)):
        differences, stderrs = overall[:, 0, column], overall[:, 1, column]
        # Weighted by precision; the threshold keeps a case without noise from dominating.
        weights = 1 / (np.square(stderrs) + THRESHOLD**2)
        weights /= weights.sum()
        mean, error = float(weights @ differences), float(np.linalg.norm(weights * stderrs))
        found.append(Evidence(measure, mean, error, p_value(mean, error, freedom)))
    return found


def adjust(evidence: Mapping[K, Sequence[Evidence]], level_share: float = 1.0) -> dict[K, list[Evidence]]:
    """Return the evidence with p-values adjusted for their number (Holm 1979), at a share of the level."""
    raw = [one.p for several in evidence.values() for one in several]
    adjusted = iter(np.minimum(1.0, holm(raw) / level_share).tolist())
    return {key: [replace(one, p=next(adjusted)) for one in several] for key, several in evidence.items()}


def evidence(
    old: Mapping[str, Mapping[str, Draws]], new: Mapping[tuple[str, str], Draws]
) -> dict[tuple[str, str], list[Evidence]]:
    """Return evidence for all rules of a run, with p-values adjusted over all of it.

    `old` has the baseline's draws by rule and case, `new` those of the rules that changed. The result is by
    rule and case, with an empty key for all cases together.
    """
    single = {(rule, key): compare(old[rule][key], draws) for (rule, key), draws in new.items()}
    together = {}
    for rule in dict.fromkeys(rule for rule, _ in new):
        together[rule, ""] = pooled(old[rule], {key: s for (name, key), s in new.items() if name == rule})
    # half of the level for the few tests of all cases together, which detect the smallest changes
    return {**adjust(single, 0.5), **adjust(together, 0.5)}


def status(evidence: Sequence[Evidence]) -> Status:
    """Return the status by the table in ``docs/ci.md``."""
    errors = [one for one in evidence if one.measure == ERROR]
    if any(one.relevant and one.difference > 0 for one in errors):
        return Status.WORSE
    if any(one.relevant for one in evidence if one.measure != ERROR):
        return Status.CHANGED
    if any(one.significant and one.difference < 0 for one in errors):
        return Status.BETTER
    return Status.REDRAWN
