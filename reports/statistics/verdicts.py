"""The statistics of a verdict: sign tests over replicates, combined over parts, corrected over claims.

A part states "for more than half of all nets, the effect is above a threshold", or in other words that the
median over nets is. A claim is the conjunction of its parts. It *holds* if the one-sided test of every part
rejects "for half or fewer" (intersection-union, Berger 1982: the p-value of the claim is the largest of its
parts, without correction). It *fails* if for some part more than half of all nets lie significantly below the
threshold (the smallest p-value, times the number of parts). Both kinds of p-values are corrected over claims
by Holm's method, each kind separately. Any false "holds" then has a probability of at most `LEVEL`, and so
has any false "fails".

Effects are skewed over nets. No test of their mean keeps its level for all laws and has power (Bahadur and
Savage 1956): if one net in fifty carries the whole mean, half of all samples of thirty do not contain it. The
sign test keeps its level for every law and number of nets, and does not depend on the scale on which
an effect is expressed. ``tests/calibration/candidates.py`` compares it with nine other tests.

References
----------
Dixon and Mood, "The statistical sign test", J. Amer. Statist. Assoc. 41, 1946.
Bahadur and Savage, "The nonexistence of certain statistical procedures in nonparametric problems", Ann. Math.
Statist. 27, 1956.
Berger, "Multiparameter hypothesis testing and acceptance sampling", Technometrics 24, 1982.
Dunn, "Multiple comparisons among means", J. Amer. Statist. Assoc. 56, 1961 (Bonferroni's inequality).
Holm, "A simple sequentially rejective multiple test procedure", Scand. J. Statist. 6, 1979.
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
from scipy.stats import binom

LEVEL = 0.05
"""Probability of any false verdict of one kind, over all claims together."""

_ROUNDING = 1e-12  # smaller differences, relative to the values themselves, are float64 rounding


class Verdict(StrEnum):
    """Verdict on a claim under one convention; the values are the words shown to readers."""

    SUPPORTED = "supported"
    REFUTED = "refuted"
    UNDECIDED = "undecided"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, eq=False)
class SignTests:
    """Sign tests of effects against thresholds, one for each leading index of the effects.

    `median` is that of the sample, and `low` to `high` its 95 % interval: the thresholds that neither side
    rejects at 2.5 %. Fewer than six effects have no such interval, and its ends are NaN. `more` and `less`
    are the numbers of effects above and below the threshold. `above` is the p-value of "more than half of all
    effects are above the threshold" (null hypothesis: at most half), and `below` that of "more than half are
    below it".
    """

    median: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    more: NDArray[np.int64]
    less: NDArray[np.int64]
    above: NDArray[np.float64]
    below: NDArray[np.float64]


def sign_tests(effects: ArrayLike, thresholds: ArrayLike = 0.0) -> SignTests:
    """Test from both sides whether effects are above thresholds for more than half of all nets.

    `effects` have the shape (..., nets); `thresholds` broadcast to the leading shape, which the results have.
    Infinite effects lie on their side of the threshold. Effects that equal it up to rounding, and NaN, count
    as neither above nor below. Each p-value is one-sided and not corrected for multiple tests.
    """
    # Nets are the replicates. Inputs of one net share its weights, so that counting them as replicates would
    # make intervals too narrow (Hurlbert 1984). They are averaged within each net beforehand.
    values = np.asarray(effects, dtype=float)
    nets = values.shape[-1]
    if not nets:
        raise ValueError("a sign test needs one net or more, not 0")
    thresholds = np.asarray(thresholds, dtype=float)[..., np.newaxis]
    negligible = _ROUNDING * (np.abs(np.where(np.isfinite(values), values, 0)) + np.abs(thresholds))
    more = (values > thresholds + negligible).sum(-1)
    less = (values < thresholds - negligible).sum(-1)
    # The interval lies between the effects of this rank from either end (Dixon and Mood 1946).
    rank = int(np.sum(binom.cdf(np.arange(nets), nets, 0.5) <= LEVEL / 2)) - 1
    ordered = np.sort(values, -1)
    nothing = np.full(values.shape[:-1], np.nan)
    with np.errstate(invalid="ignore"):  # between opposite infinities
        median = np.median(values, -1)
    return SignTests(
        median=median,
        low=ordered[..., rank] if rank >= 0 else nothing,
        high=ordered[..., nets - 1 - rank] if rank >= 0 else nothing,
        more=more,
        less=less,
        above=p_of_signs(more, nets),
        below=p_of_signs(less, nets),
    )


def p_of_signs(count: ArrayLike, nets: ArrayLike) -> NDArray[np.float64]:
    """Probability that at least `count` of `nets` signs, each + or - with equal probability, are +."""
    return np.asarray(binom.sf(np.asarray(count) - 1, np.asarray(nets), 0.5), dtype=float)


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
