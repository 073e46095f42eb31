"""What predicted laws are used for, and which rule serves each use best."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sdp_bench.bench.metrics import Metric
from sdp_bench.bench.metrics.moments import StandardDeviationRatio
from sdp_bench.bench.metrics.quantiles import LargestQuantileDistance
from sdp_bench.bench.metrics.total_variation import (
    CentralTotalVariation,
    ClassTotalVariation,
    HeadlineTotalVariation,
    PrincipalTotalVariation,
)
from sdp_bench.bench.metrics.transport import CertifiedWasserstein, Wasserstein
from sdp_bench.bench.noise import CAUCHY
from sdp_bench.reports.sections.choice.choice import as_accurate
from sdp_bench.reports.statistics.costs import Costs, plain_samples
from sdp_bench.reports.statistics.overall import Overall, Score
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.nets import NetKind, activation_label
from sdp_bench.reports.style.rules import RuleTraits
from sdp_bench.reports.tables.frame import BOUNDS, by_kind

_SEVERAL = "images and sequences"


def _own(metric: Metric, values: NDArray[np.float64], floors: NDArray[np.float64]) -> NDArray[np.float64]:
    """A metric's own score."""
    return np.asarray(metric.score(values, floors))


def _over_floor(
    metric: Metric, values: NDArray[np.float64], floors: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How many times its floor a distance is, as a logarithm: distances of all sizes count alike."""
    del metric
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(floors > 0, np.log(values / floors), math.nan)


def _shared(score: float) -> str:
    return labels.number(1 - score, 2)


def _factor(score: float) -> str:
    with np.errstate(over="ignore"):
        factor = float(np.exp(score))
    return labels.number(factor, 3 if factor < 10 else None)


@dataclass(frozen=True)
class Use:
    """One thing that laws are predicted for.

    Attributes
    ----------
    title, about : str
        What it is, and what is shown.
    metrics : tuple of str
        Of which each net has one at most.
    score : callable
        Lower is better; its mean over places is judged.
    shown : callable of float
        Mean score for people.
    heavy : bool
        Whether it is about noise without a variance.
    """

    title: str
    about: str
    metrics: tuple[str, ...]
    score: Score = _own
    shown: Callable[[float], str] = _shared
    heavy: bool = False


WHOLE = Use("The whole law", "1 − TV", (HeadlineTotalVariation.name, PrincipalTotalVariation.name))
USES = (
    Use("Which class", "1 − TV of the decision", (ClassTotalVariation.name,)),
    Use(
        "Standard deviations, intervals",
        "factor by which they are off",
        (StandardDeviationRatio.name,),
        shown=_factor,
    ),
    WHOLE,
    Use(
        "Tails",
        "W1, in multiples of exact",
        (Wasserstein.name, CertifiedWasserstein.name),
        _over_floor,
        _factor,
    ),
    Use("Cauchy noise", "1 − TV", (CentralTotalVariation.name,), heavy=True),
    Use(
        "Cauchy noise, tails",
        "largest distance of a quantile",
        (LargestQuantileDistance.name,),
        shown=labels.number,
        heavy=True,
    ),
)
"""In the order of the table."""


@dataclass(frozen=True)
class Taken:
    """One rule in a cell: how good it is, as how many samples, and what it takes.

    Attributes
    ----------
    rule, value, low, high : str
        The mean and the ends of its 95 % interval, for people; no ends where they are not known.
    samples : tuple of (str, float), optional
        How many Monte Carlo samples are as good, as
        :func:`sdp_bench.reports.sections.choice.choice.as_accurate` has it.
    seconds, costs : float
        Time for one input, and how many samples take as long; NaN where that is not known.
    """

    rule: str
    value: str
    low: str
    high: str
    samples: tuple[str, float] | None
    seconds: float
    costs: float


@dataclass(frozen=True, eq=False)
class Verdict:
    """What serves a use best on one family of nets: of the rules that do not sample.

    Attributes
    ----------
    best, next : Taken
    told : bool
        Whether the best is shown to be better than every other.
    tied : tuple of str
        Rules that it is not told from.
    first : int
        Places at which it has the best mean.
    places, of : int
        Places that all compared rules were measured at, and all that there are.
    rules : int
        That are compared.
    overall : Overall
        Of all rules, sampling ones too.
    costs : Costs
    """

    best: Taken
    next: Taken
    told: bool
    tied: tuple[str, ...]
    first: int
    places: int
    of: int
    rules: int
    overall: Overall
    costs: Costs


@dataclass(frozen=True, eq=False)
class Row:
    """One use, with a verdict for each family of nets, None where there is none."""

    use: Use
    verdicts: tuple[Verdict | None, ...]


def families(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Nets that are judged together, by name: the commonest kind of fully connected ones, and classifiers.

    Parameters
    ----------
    frame : DataFrame
        Measurements.

    Returns
    -------
    list of (str, DataFrame)
    """
    if frame.empty:
        return []
    several = by_kind(frame["activation"], lambda name: NetKind(name, 1).is_classifier).astype(bool)
    plain, found = frame[~several], []
    if len(plain):
        activation = str(plain["activation"].value_counts().idxmax())
        name = NetKind(activation, 1).label if ":" in activation else f"{activation_label(activation)} nets"
        found.append((name, plain[plain["activation"] == activation]))
    if several.any():
        found.append((_SEVERAL, frame[several]))
    return found


def rows(named: Sequence[tuple[str, pd.DataFrame]], traits: RuleTraits) -> list[Row]:
    """The table: a row for each use that any family has a verdict on.

    Parameters
    ----------
    named : sequence of (str, DataFrame)
        What :func:`families` gives.
    traits : RuleTraits
        Of the rules.

    Returns
    -------
    list of Row
    """
    made = [Row(use, tuple(_verdict(use, frame, traits) for _, frame in named)) for use in USES]
    return [row for row in made if any(row.verdicts)]


def measured(use: Use, frame: pd.DataFrame) -> pd.DataFrame:
    """Measurements that a use is judged by."""
    heavy = frame["noise"] == CAUCHY.family
    own = frame[frame["metric"].isin(use.metrics) & ~frame["component"].isin(BOUNDS) & (heavy == use.heavy)]
    return own.drop_duplicates(["net", "input", "noise", "sigma", "rule", "metric", "component"])


def _verdict(use: Use, frame: pd.DataFrame, traits: RuleTraits) -> Verdict | None:
    own = measured(use, frame)
    overall = Overall.measured(own, use.score, traits) if len(own) else None
    if overall is None:
        return None
    plain = [rule for rule in overall.rules if not traits.is_sampling(rule)]
    if len(plain) < 2:
        return None
    costs = Costs.measured(own, traits)
    best, second = (_taken(use, rule, overall, costs) for rule in plain[:2])
    comparisons = 2 * (len(plain) - 1)  # the best is chosen by the same numbers
    tied = tuple(rule for rule in plain[1:] if not overall.beats(plain[0], rule, comparisons))
    first = overall.best_at(plain[0], plain)
    return Verdict(
        best, second, not tied, tied, first, overall.places, overall.of, len(plain), overall, costs
    )


def _taken(use: Use, rule: str, overall: Overall, costs: Costs) -> Taken:
    mean, half = overall.mean(rule), overall.half_width(rule)
    ends = [use.shown(end) for end in (mean - half, mean + half)] if math.isfinite(half) else ["", ""]
    low, high = reversed(ends) if use.shown is _shared else ends  # of shared mass, more is better
    cost = costs.by_rule.get(rule)
    return Taken(
        rule,
        use.shown(mean),
        low,
        high,
        as_accurate(mean, dict(_curve(overall))),
        cost.seconds if cost else math.nan,
        cost.samples if cost else math.nan,
    )


def _curve(overall: Overall) -> Iterator[tuple[int, float]]:
    for rule in overall.rules:
        if (count := plain_samples(rule)) is not None:
            yield count, overall.mean(rule)
