"""The opening section: recommended rules by use, verdicts on the paper, and news."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sdp_bench.bench.metrics import Metric, recorded_metric
from sdp_bench.bench.metrics.distances import (
    CertifiedWasserstein,
    LargestQuantileDistance,
    StandardDeviationRatio,
    Wasserstein,
)
from sdp_bench.bench.metrics.total_variation import (
    CentralTotalVariation,
    ClassTotalVariation,
    HeadlineTotalVariation,
    PrincipalTotalVariation,
)
from sdp_bench.bench.noise import CAUCHY
from sdp_bench.reports.results import MEASUREMENT, Results
from sdp_bench.reports.section import Context, Section
from sdp_bench.reports.sections.choice import (
    PLAIN,
    Band,
    Condition,
    Standing,
    as_accurate,
    description,
    draw,
    front,
)
from sdp_bench.reports.site import OVERVIEW
from sdp_bench.reports.statistics.costs import Costs, plain_samples
from sdp_bench.reports.statistics.ranking import rank
from sdp_bench.reports.statistics.replicates import Overall, Score
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.figure import Figure, label_points, look, panels
from sdp_bench.reports.style.names import NetKind, RuleTraits, activation_label
from sdp_bench.reports.style.theme import styles
from sdp_bench.reports.tables.frame import BOUNDS, by_kind
from sdp_bench.reports.writing import moment

_CAPTION = (
    "Mean 1 − TV of the whole law over all settings, with 95 % intervals, against the rule’s own time for "
    "one input. Up and to the left is better. Ringed: shown to be on the front; hollow: shown to be off it."
)


@look()
def figure(families: Sequence[str], rows: Sequence[Row], traits: RuleTraits) -> Figure | None:
    """Figure of the table's row on the whole distribution; None without verdicts or times.

    `families` are the names of the columns.
    """
    verdicts = next((row.verdicts for row in rows if row.use is WHOLE), ())
    known = [
        (name, verdict)
        for name, verdict in zip(families, verdicts, strict=False)
        if verdict and any(rule in verdict.costs.by_rule for rule in verdict.overall.rules)
    ]
    if not known:
        return None
    styled = styles((rule for _, verdict in known for rule in verdict.overall.rules), traits)
    bands = [_band(verdict, traits) for _, verdict in known]
    unnamed: list[str] = []
    parts = list(zip([name for name, _ in known], bands, strict=True))
    drawing, every = panels(
        [name for name, _ in parts], [PLAIN], columns=1, width=3.0, height=2.1, left=0.42, above=0.44
    )
    words = []
    for axes, (name, band) in zip(every, parts, strict=True):
        (condition,) = band.conditions
        unnamed += label_points(axes, draw(axes, band, condition, styled))
        words.append(description(name, band, condition))
    rest = f" Without a name for lack of room: {', '.join(dict.fromkeys(unnamed))}." if unnamed else ""
    return Figure("figure-overview", "Accuracy against cost", _CAPTION + rest, " ".join(words), drawing)


def _band(verdict: Verdict, traits: RuleTraits) -> Band:
    """All settings as one, for the chart of a single condition."""
    overall, costs = verdict.overall, verdict.costs
    standings = tuple(
        Standing(rule, 1 - overall.mean(rule), overall.half_width(rule), None, *front(rule, overall, costs))
        for rule in overall.rules
    )
    condition = Condition(math.nan, standings, (), math.nan, "", fixed=False)
    metric = recorded_metric(HeadlineTotalVariation.name)
    return Band("", (0,), "", metric, "", (condition,), costs, traits)


_SEVERAL = "images and sequences"


def _own(metric: Metric, values: NDArray[np.float64], floors: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(metric.score(values, floors))


def _over_floor(
    metric: Metric, values: NDArray[np.float64], floors: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Logarithm of a distance relative to its floor, so that distances of all sizes have the same weight."""
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
    """One use of predicted distributions.

    A net has at most one of the `metrics`. `score` is judged by its mean over settings, lower is better;
    `shown` converts the mean for readers. `heavy` marks the use for noise without a variance.
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
"""Uses in the order of the table."""


@dataclass(frozen=True)
class Taken:
    """One rule in a cell: its quality, the equivalent number of samples, and its cost.

    `value`, `low` and `high` are the mean and the ends of its 95 % interval, empty if unknown. `samples` is
    the number of Monte Carlo samples with the same quality, from
    :func:`sdp_bench.reports.sections.choice.as_accurate`. `seconds` is the time for one input, and
    `costs` the number of samples that take as long; NaN if unknown.
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
    """The best deterministic rules for a use on one family of nets.

    `told` says whether the best is significantly better than all others, and `tied` names the rules tied with
    it. `first` is the number of settings in which it has the best mean, `places` of `of` settings have all
    compared rules, and `rules` is the number of these. `overall` compares all rules, including sampling ones.
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
    """One use, with a verdict for each family of nets, None without one."""

    use: Use
    verdicts: tuple[Verdict | None, ...]


def families(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return nets judged together, by name: the most common fully connected kind, and classifiers."""
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
    """Rows of the table: uses with a verdict for any family; `named` is the result of :func:`families`."""
    made = [Row(use, tuple(_verdict(use, frame, traits) for _, frame in named)) for use in USES]
    return [row for row in made if any(row.verdicts)]


def measured(use: Use, frame: pd.DataFrame) -> pd.DataFrame:
    """Measurements by which a use is judged."""
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
    ranking = rank(overall, plain)
    costs = Costs.measured(own, traits)
    best, second = (_taken(use, rule, overall, costs) for rule in plain[:2])
    first = overall.best_at(plain[0], plain)
    return Verdict(
        best,
        second,
        ranking.decided,
        ranking.tied,
        first,
        overall.places,
        overall.of,
        len(plain),
        overall,
        costs,
    )


def _taken(use: Use, rule: str, overall: Overall, costs: Costs) -> Taken:
    mean, half = overall.mean(rule), overall.half_width(rule)
    curve = {
        count: overall.mean(other) for other in overall.rules if (count := plain_samples(other)) is not None
    }
    ends = [use.shown(end) for end in (mean - half, mean + half)] if math.isfinite(half) else ["", ""]
    low, high = reversed(ends) if use.shown is _shared else ends  # more shared mass is better
    cost = costs.by_rule.get(rule)
    return Taken(
        rule,
        use.shown(mean),
        low,
        high,
        as_accurate(mean, curve),
        cost.seconds if cost else math.nan,
        cost.samples if cost else math.nan,
    )


_NAMED = 3  # experiments


class Overview(Section):
    """Verdicts by use; without measurements, how to make some."""

    name = "overview"
    title = "What to take"
    page = OVERVIEW
    order = 5

    def build(self, results: Results) -> Context:
        tabled = results.tabled
        named = families(tabled)
        names, found = [name for name, _ in named], rows(named, results.traits)
        return {
            "measured": len(results.frame) > 0,
            "failed": len(results.failed),
            "families": names,
            "rows": found,
            "figure": figure(names, found, results.traits),
            "styles": results.styles,
            "news": _news(results),
            "unscented": "unscented" in set(tabled["rule"].unique()),
        }


def _news(results: Results) -> str:
    frame = results.frame
    if not {"run", *MEASUREMENT} <= set(frame) or frame.empty:
        return ""
    suites = sorted(frame["experiment"][frame["run"] == frame["run"].max()].unique())
    named = ", ".join(suites) if len(suites) <= _NAMED else labels.plural(len(suites), "suite")
    finished = results.meta.get("finished")
    when = f", finished {moment(finished)}" if finished else ""
    once = frame["run"][~frame.duplicated(MEASUREMENT)]  # shared by several experiments
    newest = once == once.max()
    if newest.all():
        return f"all {labels.plural(len(once), 'measurement')}, of {named}{when}."
    return (
        f"{labels.plural(int(newest.sum()), 'measurement')} of {named}{when}, beside "
        f"{int((~newest).sum()):,} by earlier runs."
    )
