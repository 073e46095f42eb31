"""Whether recommendations and equal compute agree between published nets and nets trained for the report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ...recommendation.answers import LINEAR, Recommendation
from ...recommendation.comparisons import one_row_per_measurement
from ...results import Results
from ...statistics.costs import Costs, plain_samples
from ...style.names import RuleTraits
from ..choice import as_accurate
from ..compute import MANY, TIED, comparison, shares
from ..overview import RankedUse, UseResult, rows_of

LEVELS = ("lowest", "middle", "highest")
"""Noise levels of each net."""
SUITE_NOISES = {
    "below one kink distance": (0.0, 0.99),
    "at one": (0.99, 1.01),
    "above": (1.01, math.inf),
}
RANKED = ("class", "standard deviations", "whole distribution")
"""Uses of the overview with metrics that are measured on published nets."""
_DRAWS = 2000  # resamples of nets


@dataclass(frozen=True)
class Transfer:
    """A use with the recommended rules on nets of the suite (`family`) and on published nets.

    `supported` and `nets` are the numbers of published nets with the suite's rule, and of all.
    """

    use: RankedUse
    family: str
    suite: UseResult
    published: UseResult
    supported: int
    nets: int

    @property
    def verdict(self) -> str:
        """Whether the suite's recommendation holds on published nets."""
        rule, overall = self.suite.advised, self.published.overall
        if rule == self.published.advised:
            return "same"
        if self.supported < self.nets:
            return f"differs: the rule supports {self.supported} of {self.nets} nets"
        if rule not in overall.rules:
            return "not measured"
        if not self.published.is_resolved:
            return f"undecided: {self.published.ties} of {len(overall.rules)} rules are tied"
        leader = overall.rules[0]
        if not math.isfinite(overall.half_width(leader)):
            return "undecided: too few nets and inputs"
        if rule != leader and overall.beats(leader, rule, len(overall.rules) - 1):
            return "differs: it is less accurate"
        return "differs: a cheaper rule is tied with it"

    @property
    def is_compared(self) -> bool:
        """Whether the suite's rule was measured on all published nets."""
        return self.suite.advised in self.published.overall.rules


def transfers(results: Results, frame: pd.DataFrame, published: Mapping[str, UseResult]) -> list[Transfer]:
    """Compare recommendations; `frame` has the measurements of published nets, `published` the results."""
    named, rows = rows_of(results)
    compared = []
    for row in rows:
        if row.use.title not in published:
            continue
        of_use = frame[frame["metric"].isin(row.use.metrics)]
        nets = of_use.groupby("rule", observed=True)["net"].nunique()
        for (family, _), suite in zip(named, row.results, strict=True):
            if suite:
                result = published[row.use.title]
                supported = int(nets.get(suite.advised, 0))
                compared.append(Transfer(row.use, family, suite, result, supported, of_use["net"].nunique()))
    return compared


def samples_needed(
    frame: pd.DataFrame, answers: Sequence[Recommendation], traits: RuleTraits
) -> Iterator[tuple[Recommendation, str, float, float]]:
    """Yield the Monte Carlo samples that are as accurate as linearisation, for one net.

    Yields a recommendation, the bound and the number of :func:`as_accurate`, and the time of these samples
    relative to that of linearisation (NaN if unknown).
    """
    costs = Costs.from_measurements(frame, traits)
    numbers = one_row_per_measurement(frame)
    for answer in answers:
        if not answer.linear:
            continue
        metric = answer.linear.metric
        setting = numbers[(numbers["metric"] == metric.name) & (numbers["sigma"] == answer.sigma)]
        scores = pd.Series(
            metric.score(setting["value"].to_numpy(), setting["floor"].to_numpy()), index=setting["rule"]
        )
        curve = {}
        for rule, score in scores.groupby(level=0, observed=True).mean().items():
            count = plain_samples(str(rule))
            if count:
                curve[count] = float(score)
        needed = as_accurate(answer.linear.score, curve)
        if needed is None:
            continue
        if needed[1] <= min(curve):  # fewer samples were not measured
            needed = "<", needed[1]
        factor = math.nan
        if costs.sampling and LINEAR in costs.by_rule:
            factor = costs.sampling.seconds(needed[1]) / costs.by_rule[LINEAR].seconds
        yield answer, *needed, factor


def equal_compute(results: Results, judged: pd.DataFrame) -> list[tuple[str, str, Mapping[Any, Any]]]:
    """Return nets, noise and shares of settings that linearisation or sampling wins, on both kinds of nets.

    `judged` is from :func:`judged_settings`. Shares are those of the section on equal compute.
    """
    table: list[tuple[str, str, Mapping[Any, Any]]] = [
        ("published nets", f"{row['noise']} level", row)
        for row in shares(judged, ["noise"]).to_dict("records")
    ]
    compared = comparison(results)
    if compared is None:
        return table
    of_rule = compared[
        (compared["rule"] == LINEAR)
        & (compared["cost"] == MANY)
        & (compared["training"] == "trained")
        & (compared["use"] != "mean")
    ]
    bins = [0.0, *[high for _, high in SUITE_NOISES.values()]]
    noise = pd.cut(of_rule["noise"], bins, labels=list(SUITE_NOISES)).astype(str)
    of_suite = {
        row["noise"]: row for row in shares(of_rule.assign(noise=noise), ["noise"]).to_dict("records")
    }
    return table + [
        ("nets trained for this report", name, of_suite[name]) for name in SUITE_NOISES if name in of_suite
    ]


def judged_settings(
    name: str, needed: Sequence[tuple[Recommendation, str, float, float]]
) -> Iterator[dict[str, object]]:
    """Yield the rows of one net for :func:`~sdp_bench.reports.sections.compute.shares`."""
    sigmas = sorted({answer.sigma for answer, *_ in needed})
    for answer, bound, _, factor in needed:
        is_accurate = answer.linear.is_small_here if answer.linear else None
        is_upper_bound = bound == "<" and factor >= 1 / TIED
        is_unknown = bound == ">" or is_upper_bound or math.isnan(factor)
        yield {
            "activation": name,
            "depth": 0,
            "width": 0,
            "training": "published",
            "seed": 0,
            "noise": LEVELS[min(sigmas.index(answer.sigma), len(LEVELS) - 1)],
            "use": answer.use.name,
            "accurate": is_accurate is True,
            "bound": is_accurate is None or (is_accurate and is_unknown),
            "factor": math.nan if is_accurate is None or is_upper_bound else factor,
        }


def share_interval(outcomes: pd.DataFrame, column: str) -> tuple[float, float]:
    """Return the 95 % interval of the share of rows with a true value, from resamples of nets."""
    counts = outcomes.groupby("net")[column].agg(["sum", "size"]).to_numpy()
    drawn = counts[np.random.default_rng(0).integers(len(counts), size=(_DRAWS, len(counts)))].sum(1)
    low, high = np.quantile(drawn[:, 0] / drawn[:, 1], [0.025, 0.975])
    return float(low), float(high)
