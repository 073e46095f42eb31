"""The statistics of a verdict: tests of net means, combined over parts, corrected over claims.

A part states "the mean effect is above a threshold". A claim is the conjunction of its parts. It *holds* if
the one-sided test of every part rejects "at or below" (intersection-union, Berger 1982: the p-value of the
claim is the largest of its parts, without correction). It *fails* if some part lies significantly below its
threshold (the smallest p-value, times the number of parts). Both kinds of p-values are corrected over claims
by Holm's method, each kind separately. Any false "holds" then has a probability of at most `LEVEL`, and so
has any false "fails", as long as the tests of the parts keep their level.

Effects are skewed over nets, and Student's t is then too confident on the side away from the long tail: if
most nets are good and few are bad, many samples miss the bad nets and look homogeneous. A part is therefore
rejected only if both Student's t and t after Hall's transformation, which removes the skewness, reject it.
Both have a third of the degrees of freedom, since a sample that misses a tail underestimates spread and
skewness at once. Hall's transformation is a cubic that never decreases. It has an inverse, so that interval
and test agree.

``tests/calibration/verdicts.py`` simulates how often verdicts are wrong under the measured effects. The third
was chosen by it; with half of the degrees of freedom the errors exceed `LEVEL`. This holds from
`MANY_NETS` on; with ten nets 0.14 of the verdicts would be wrong. With fewer nets the tests therefore have
proportionally fewer degrees of freedom, and the sign test has fewer signs: if three nets in thirty differ
from the rest, ten nets are alike in a third of all samples. The interval is not reduced, since it covers a
single effect. No test can account for nets outside the sample: if one net in fifty carries the whole effect,
half of all samples of thirty do not contain it.

References
----------
Student, "The probable error of a mean", Biometrika 6, 1908.
Hall, "On the removal of skewness by transformation", J. R. Statist. Soc. B 54, 1992.
Joanes and Gill, "Comparing measures of sample skewness and kurtosis", The Statistician 47, 1998.
Berger, "Multiparameter hypothesis testing and acceptance sampling", Technometrics 24, 1982.
Dunn, "Multiple comparisons among means", J. Amer. Statist. Assoc. 56, 1961 (Bonferroni's inequality).
Holm, "A simple sequentially rejective multiple test procedure", Scand. J. Statist. 6, 1979.
Dixon and Mood, "The statistical sign test", J. Amer. Statist. Assoc. 41, 1946.
Hurlbert, "Pseudoreplication and the design of ecological field experiments", Ecol. Monogr. 54, 1984.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr, stdtrit

LEVEL = 0.05
"""Probability of any false verdict of one kind, over all claims together."""
MIN_NETS = 3
"""Two nets show no skewness."""
MANY_NETS = 30
"""From this number on a third of the degrees of freedom keeps the level; fewer nets need fewer still."""

_ROUNDING = 1e-12  # smaller differences, relative to the values themselves, are float64 rounding


class Verdict(StrEnum):
    """Verdict on a claim under one convention; the values are the words shown to readers."""

    SUPPORTED = "supported"
    REFUTED = "refuted"
    UNDECIDED = "undecided"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, eq=False)
class MeanTests:
    """Tests of means against thresholds, one for each leading index of the effects.

    `low` to `high` is a two-sided 95 % interval of the mean: the thresholds that neither side rejects at 2.5
    %. `above` is the p-value of "the mean is above the threshold" (null hypothesis: at or below), and `below`
    that of "the mean is below it".
    """

    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    above: NDArray[np.float64]
    below: NDArray[np.float64]


def mean_tests(effects: ArrayLike, thresholds: ArrayLike = 0.0) -> MeanTests:
    """Test means over nets from both sides, by Student's t and by t corrected for skewness.

    `effects` are finite and have the shape (..., nets); `thresholds` broadcast to the leading shape, which
    the results have. Each p-value is one-sided, not corrected for multiple tests, and the larger of the two
    tests. Both tests have a third of the degrees of freedom, and less with fewer nets than `MANY_NETS`.

    If all n nets show the same effect, t is undefined and the sign test replaces both tests. Its p-value is
    2^-n on the side of the effect (with a smaller exponent for few nets), and 1 on both sides if the effect
    equals the threshold.
    """
    values = np.asarray(effects, dtype=float)
    nets = values.shape[-1]
    if nets < 2:
        raise ValueError(f"a test of means needs two nets or more, not {nets}")
    thresholds = np.asarray(thresholds, dtype=float)
    # Nets are the replicates. Inputs of one net share its weights, so that counting them as replicates would
    # make intervals too narrow (Hurlbert 1984). They are averaged within each net beforehand.
    mean, sd = values.mean(-1), values.std(-1, ddof=1)
    negligible = _ROUNDING * (np.abs(values).max(-1) + np.abs(thresholds))
    still = sd <= negligible
    unit = np.where(still, 1.0, sd)
    skewness = _skewness((values - mean[..., np.newaxis]) / unit[..., np.newaxis])
    excess = mean - thresholds
    t = np.sqrt(nets) * excess / unit
    skewless = _skewless(t, skewness, nets)
    freedom, few = (nets - 1) / 3, min(1.0, nets / MANY_NETS)
    tested = few * freedom
    # probability that signs, each + or - with equal probability, are all a given one (sign test)
    signs = 0.5 ** (few * nets)
    above, below = stdtr(tested, -np.minimum(t, skewless)), stdtr(tested, np.maximum(t, skewless))
    quantile = float(stdtrit(freedom, 1 - LEVEL / 2))
    error = sd / np.sqrt(nets)
    return MeanTests(
        mean=mean,
        low=mean - np.maximum(quantile, _skewed(quantile, skewness, nets)) * error,
        high=mean - np.minimum(-quantile, _skewed(-quantile, skewness, nets)) * error,
        above=np.where(still, np.where(excess > negligible, signs, 1.0), above),
        below=np.where(still, np.where(excess < -negligible, signs, 1.0), below),
    )


def _skewness(standardised: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sample skewness G1 along the last axis (Joanes and Gill 1998); 0 for two values."""
    nets = standardised.shape[-1]
    return (standardised**3).sum(-1) * nets / ((nets - 1) * max(nets - 2, 1))


def _skewless(t: NDArray[np.float64], skewness: NDArray[np.float64], nets: int) -> NDArray[np.float64]:
    """Hall's transformation of t, which never decreases in t."""
    a = skewness / np.sqrt(nets)
    return t * (1 + a * t / 3 * (1 + a * t / 9)) + a / 6


def _skewed(skewless: float, skewness: NDArray[np.float64], nets: int) -> NDArray[np.float64]:
    """Inverse of `_skewless`."""
    a = skewness / np.sqrt(nets)
    z = skewless - a / 6
    root = np.cbrt(1 + a * z)
    return 3 * z / (1 + root * (1 + root))  # 3 (root - 1) / a, which is undefined at a = 0


def p_of_every_part(p: ArrayLike) -> NDArray[np.float64]:
    """p-value of "every part holds" from the p-values along the last axis (intersection-union)."""
    # The claim is false if one part is, and only that part has to be rejected in error: no correction.
    return np.asarray(p, dtype=float).max(-1)


def p_of_some_part(p: ArrayLike) -> NDArray[np.float64]:
    """p-value of "some part holds" from the p-values along the last axis (Bonferroni)."""
    # Parts share nets and rules. Their dependence is unknown, so that only the sum of their errors is a
    # bound.
    p = np.asarray(p, dtype=float)
    return np.minimum(1.0, p.shape[-1] * p.min(-1))


def decide(holds: float, fails: float) -> Verdict:
    """Verdict from the two adjusted p-values of a claim."""
    # At most one of them is this small: a part cannot be both above and below its threshold.
    if holds <= LEVEL:
        return Verdict.SUPPORTED
    return Verdict.REFUTED if fails <= LEVEL else Verdict.UNDECIDED


ORDER = (Verdict.REFUTED, Verdict.SUPPORTED, Verdict.UNDECIDED, Verdict.NOT_MEASURED)
"""Refutations come first, so that other verdicts cannot hide them."""

_NAMED = 2  # at most this many conventions with the same verdict are named; more are only counted


class Outcome(StrEnum):
    """Summary of the verdicts over all measured conventions; the values are the words shown to readers."""

    SUPPORTED = "supported"
    REFUTED = "refuted"
    SUPPORTED_OR_REFUTED = "supported under some conventions and refuted under others"
    SUPPORTED_OR_UNDECIDED = "supported under some conventions and undecided under others"
    REFUTED_OR_UNDECIDED = "refuted under some conventions and undecided under others"
    UNDECIDED = "undecided"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Verdicts:
    """Verdicts on one claim, by name of the convention, in the order of the conventions."""

    by_convention: Mapping[str, Verdict]

    @functools.cached_property
    def counts(self) -> Mapping[Verdict, int]:
        """Number of conventions by verdict, in the order of `ORDER`."""
        counts = Counter(self.by_convention.values())
        return {verdict: counts[verdict] for verdict in ORDER if counts[verdict]}

    @property
    def outcome(self) -> Outcome:
        """Summary of the measured conventions; those not measured are ignored."""
        known = self.counts.keys() - {Verdict.NOT_MEASURED}
        if {Verdict.SUPPORTED, Verdict.REFUTED} <= known:
            return Outcome.SUPPORTED_OR_REFUTED
        (decided,) = known - {Verdict.UNDECIDED} or {Verdict.UNDECIDED if known else Verdict.NOT_MEASURED}
        return Outcome[f"{decided.name}_OR_UNDECIDED" if len(known) > 1 else decided.name]

    @property
    def words(self) -> str:
        """Summary such as ``refuted in 5 of 6; undecided in decision``."""
        first, *others = self.counts or {Verdict.NOT_MEASURED: 0}
        if first is Verdict.NOT_MEASURED:
            return str(first)
        measured = len(self.by_convention) - self.counts.get(Verdict.NOT_MEASURED, 0)
        extent = {1: "", 2: " in both"}.get(measured, f" in all {measured}")
        if self.counts[first] < measured:
            names = self._names(first)
            extent = f" in {self.counts[first]} of {measured}" + (f" ({names})" if names else "")
        return "; ".join([f"{first}{extent}", *map(self._rest, others)])

    def _rest(self, verdict: Verdict) -> str:
        if verdict is Verdict.NOT_MEASURED:
            return f"{self.counts[verdict]} {verdict}"
        return f"{verdict} in {self._names(verdict) or self.counts[verdict]}"

    def _names(self, verdict: Verdict) -> str:
        """Conventions with this verdict; empty if there are more than `_NAMED`."""
        names = [name for name, other in self.by_convention.items() if other is verdict]
        return " and ".join(names) if len(names) <= _NAMED else ""
