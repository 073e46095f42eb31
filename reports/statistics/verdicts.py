"""The statistics of a verdict: tests of net means, joined over the parts of a claim, corrected over claims.

A part says "the mean effect is above a threshold". A claim is the conjunction of its parts. It *holds* if
every part's one-sided test rejects "at or below" (intersection-union, Berger 1982: the claim's p is the
largest of its parts, with no correction), and *fails* if some part lies significantly below its threshold
(the smallest p, times the number of parts). Both kinds of p are corrected over claims by Holm's method, each
kind on its own, so that any false "holds" has a probability of at most `LEVEL`, and any false "fails" too,
as far as the tests of the parts keep their level.

Effects are skewed over nets, and Student's t is then too sure on the side away from the long tail: where
most nets are good and few are bad, many samples miss the bad ones and look all alike. So a part has to be
rejected by Student's t and by t after Hall's transformation, which takes the skewness out of it, both with a
third of the degrees of freedom, since a sample that misses a tail shows too little spread and skewness at
once. Hall's transformation is a cubic that never falls, so that it has an inverse, and the interval says the
same as the test. How often verdicts are wrong under effects as they were measured is the table of
``sdp-bench selfcheck verdicts``; the third was chosen by it, with half of the degrees
the errors exceed `LEVEL`. That is so with `MANY_NETS`; ten nets would err in .14 of all cases, so that with
fewer nets the tests (not the interval, which is of one effect alone) take fewer degrees again, in proportion,
and the sign test fewer signs: where three nets in thirty differ from the rest, ten are alike in a third of
all samples. Nothing knows of nets that are not in the sample: where one in fifty carries everything, half of
all samples of thirty have none of it.

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

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr, stdtrit

LEVEL = 0.05
"""Of each kind of false verdict, over all claims together."""
MIN_NETS = 3
"""Two show no skewness."""
MANY_NETS = 30
"""From here on a third of the degrees of freedom keeps the level; with fewer nets it takes fewer."""

_ROUNDING = 1e-12  # differences this small, relative to the values themselves, are float64's doing


class Verdict(StrEnum):
    """What became of a claim under one convention; the values are the words that people read."""

    SUPPORTED = "supported"
    REFUTED = "refuted"
    UNDECIDED = "undecided"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, eq=False)
class MeanTests:
    """Tests of means against a threshold, one for each leading index of what was tested.

    `low` to `high` is a two-sided 95 % interval of the mean: thresholds that neither side rejects at 2.5 %.
    `above` is the p-value of "the mean is above the threshold" (its null: at or below), `below` that of "the
    mean is below it".
    """

    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    above: NDArray[np.float64]
    below: NDArray[np.float64]


def mean_tests(effects: ArrayLike, thresholds: ArrayLike = 0.0) -> MeanTests:
    """Test means over nets, from both sides: by Student's t, and by t with the skewness taken out of it.

    p is the larger of the two, both with a third of the degrees of freedom, and with less where there are
    fewer nets than `MANY_NETS`. Where all n nets show the same effect, t is undefined and the sign test
    stands in for both: p is 2^-n on the side where the effect lies (the exponent, too, is less for few nets),
    and 1 on both sides where it lies on the threshold.

    Parameters
    ----------
    effects
        Finite effects, shape (..., nets), at least two nets.
    thresholds
        What means are tested against; broadcasts to the shape (...).

    Returns
    -------
    MeanTests
        Arrays of the shape (...); p-values are one-sided and not corrected.

    Raises
    ------
    ValueError
        If there are fewer than two nets.
    """
    values = np.asarray(effects, dtype=float)
    nets = values.shape[-1]
    if nets < 2:
        raise ValueError(f"a test of means needs two nets or more, not {nets}")
    thresholds = np.asarray(thresholds, dtype=float)
    # Nets are the replicates. Inputs of one net share its weights: counted as replicates too they would make
    # intervals too narrow (Hurlbert 1984), so that they are averaged within each net before this.
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
    signs = 0.5 ** (
        few * nets
    )  # of signs that are + or - with equal probability, all one given way (sign test)
    quantile = float(stdtrit(freedom, 1 - LEVEL / 2))
    error = sd / np.sqrt(nets)
    return MeanTests(
        mean=mean,
        low=mean - np.maximum(quantile, _skewed(quantile, skewness, nets)) * error,
        high=mean - np.minimum(-quantile, _skewed(-quantile, skewness, nets)) * error,
        above=np.where(
            still, np.where(excess > negligible, signs, 1.0), stdtr(tested, -np.minimum(t, skewless))
        ),
        below=np.where(
            still, np.where(excess < -negligible, signs, 1.0), stdtr(tested, np.maximum(t, skewless))
        ),
    )


def _skewness(standardised: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sample skewness G1 along the last axis (Joanes and Gill 1998); of two values it is 0."""
    nets = standardised.shape[-1]
    skewness: NDArray[np.float64] = (standardised**3).sum(-1) * nets / ((nets - 1) * max(nets - 2, 1))
    return skewness


def _skewless(t: NDArray[np.float64], skewness: NDArray[np.float64], nets: int) -> NDArray[np.float64]:
    """Hall's transformation of t, which never falls with t."""
    a = skewness / np.sqrt(nets)
    transformed: NDArray[np.float64] = t * (1 + a * t / 3 * (1 + a * t / 9)) + a / 6
    return transformed


def _skewed(skewless: float, skewness: NDArray[np.float64], nets: int) -> NDArray[np.float64]:
    """Inverse of `_skewless`: the t that it comes from."""
    a = skewness / np.sqrt(nets)
    z = skewless - a / 6
    root = np.cbrt(1 + a * z)
    t: NDArray[np.float64] = 3 * z / (1 + root * (1 + root))  # 3 (root - 1) / a, which has no value at a = 0
    return t


def p_of_every_part(p: ArrayLike) -> NDArray[np.float64]:
    """p-value of "every part", from those of the parts along the last axis (intersection-union)."""
    # The claim is false if one part is, and that part alone has to be rejected in error: no correction.
    largest: NDArray[np.float64] = np.asarray(p, dtype=float).max(-1)
    return largest


def p_of_some_part(p: ArrayLike) -> NDArray[np.float64]:
    """p-value of "some part", from those of the parts along the last axis (Bonferroni)."""
    # Parts share nets and rules, so that nothing but the sum of their errors bounds that of any of them.
    p = np.asarray(p, dtype=float)
    adjusted: NDArray[np.float64] = np.minimum(1.0, p.shape[-1] * p.min(-1))
    return adjusted


def decide(holds: float, fails: float) -> Verdict:
    """Verdict from a claim's two adjusted p-values."""
    # Both cannot be this small: a part is not both above its threshold and below it.
    if holds <= LEVEL:
        return Verdict.SUPPORTED
    return Verdict.REFUTED if fails <= LEVEL else Verdict.UNDECIDED
