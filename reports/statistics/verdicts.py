"""The statistics of a verdict: t tests on net means, joined over the parts of a claim, corrected over claims.

A part says "the mean effect is above a threshold". A claim is the conjunction of its parts. It *holds* if
every part's one-sided test rejects "at or below" (intersection-union, Berger 1982: the claim's p is the
largest of its parts, with no correction), and *fails* if some part lies significantly below its threshold
(the smallest p, times the number of parts). Both kinds of p are corrected over claims by Holm's method, each
kind on its own, so that any false "holds" has a probability of at most `LEVEL`, and any false "fails" too.

References
----------
Student, "The probable error of a mean", Biometrika 6, 1908.
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
"""With two there is one degree of freedom, and a 95 % interval of 12.7 standard errors to either side."""

_ROUNDING = 1e-12  # differences this small, relative to the values themselves, are float64's doing


class Verdict(StrEnum):
    """What became of a claim under one convention; the values are the words that people read."""

    HOLDS = "holds"
    FAILS = "fails"
    UNDECIDED = "undecided"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, eq=False)
class MeanTests:
    """t tests of means against a threshold, one for each leading index of what was tested.

    `mean` ± `half_width` is a two-sided 95 % interval; `above` is the p-value of "the mean is above the
    threshold" (its null: at or below), `below` that of "the mean is below it".
    """

    mean: NDArray[np.float64]
    half_width: NDArray[np.float64]
    above: NDArray[np.float64]
    below: NDArray[np.float64]


def t_tests(effects: ArrayLike, thresholds: ArrayLike = 0.0) -> MeanTests:
    """Test means over nets, from both sides.

    Where all nets show the same effect, t is undefined and the sign test stands in for it: p is 2^-n on the
    side where the effect lies, and 1 on both sides where it lies on the threshold.

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
        raise ValueError(f"a t test needs two nets or more, not {nets}")
    thresholds = np.asarray(thresholds, dtype=float)
    # Nets are the replicates. Inputs of one net share its weights: counted as replicates too they would make
    # intervals too narrow (Hurlbert 1984), so that they are averaged within each net before this.
    mean, sd = values.mean(-1), values.std(-1, ddof=1)
    error = sd / np.sqrt(nets)
    negligible = _ROUNDING * (np.abs(values).max(-1) + np.abs(thresholds))
    still = sd <= negligible
    excess = mean - thresholds
    t = excess / np.where(still, 1.0, error)
    signs = 0.5**nets  # of n signs that are + or - with equal probability, all one given way (sign test)
    return MeanTests(
        mean=mean,
        half_width=stdtrit(nets - 1, 1 - LEVEL / 2) * error,
        above=np.where(still, np.where(excess > negligible, signs, 1.0), stdtr(nets - 1, -t)),
        below=np.where(still, np.where(excess < -negligible, signs, 1.0), stdtr(nets - 1, t)),
    )


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
        return Verdict.HOLDS
    return Verdict.FAILS if fails <= LEVEL else Verdict.UNDECIDED
