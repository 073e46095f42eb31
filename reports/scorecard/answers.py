"""Rules for a user's net: for each use the cheapest of the best, and whether linearisation suffices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...bench.advice.thresholds import DEVIATIONS, LIMITS, outcomes
from ...bench.metrics import Metric, recorded_metric
from ...bench.metrics.references import ORACLE_MOMENTS
from ..statistics.ranking import MIN_LEVELS, Ranking, Replicates
from ..style import labels
from ..style.names import RuleTraits, noise_symbol, noise_words
from .comparisons import one_row_per_measurement
from .judging import CostTable, Verdict

LINEAR = "sdp"
"""The rule that linearises the net."""
RELY = "rely on it"
"""Advice where the error of linearisation is small."""


@dataclass(frozen=True)
class Use:
    """A use of a prediction, the metrics of its error (the first measured one counts), and a small error.

    `small` is an excess over the score of an exact rule: total variation, or the absolute logarithm of a
    ratio; `limit` is the same in words.
    """

    name: str
    metrics: tuple[str, ...]
    small: float
    limit: str


WHOLE = "whole distribution"
USES = (
    Use("class", ("tv_class",), LIMITS["class"], "1 point"),
    Use(DEVIATIONS, ("std_ratio", "iqr_ratio"), LIMITS[DEVIATIONS], "5 %"),
    Use(WHOLE, ("tv_headline", "tv_principal", "tv_joint"), LIMITS[WHOLE], "0.05"),
    Use("tails", ("tails",), math.log(1.25), "a factor of 1.25"),
)

_PERCENT = 1.25
"""Factor from which an error is given as a factor, as percentages then differ between both directions."""

_NOUNS = {
    "std_ratio": "standard deviations ",
    "iqr_ratio": "interquartile ranges ",
    "tails": "tail probabilities ",
}


@dataclass(frozen=True)
class Error:
    """Mean score of a rule at one noise level, half of its 95 % interval, and the score of an exact rule.

    `direction` is the mean logarithm of ratios, NaN for other metrics. `worst` is the largest score of an
    input, NaN for fewer than three inputs.
    """

    metric: Metric
    score: float
    half_width: float
    floor: float
    direction: float
    worst: float

    @property
    def text(self) -> tuple[str, str, str]:
        """Words, the error with its 95 % interval, and its unit with the direction."""
        low = max(0.0, self.score - self.half_width)
        high = self.score + self.half_width
        if not 0 < self.half_width < math.inf:
            low = high = math.nan
        score_and_ends = np.array([self.score, low, high])
        if self.metric.better == "one":
            return self._ratio_text(score_and_ends)
        if self.metric.name == "tv_class":
            points = 100 * score_and_ends
            return "class probabilities off by ", labels.interval(*points), " points"
        exact = f", exact rule {labels.number(self.floor)}" if math.isfinite(self.floor) else ""
        return "total variation ", labels.interval(*score_and_ends), exact

    def _ratio_text(self, logarithms: NDArray[np.float64]) -> tuple[str, str, str]:
        """The text of a ratio, from the absolute logarithm of the ratio and the ends of its interval."""
        noun = _NOUNS[self.metric.name]
        direction = "too large" if self.direction > 0 else "too small"
        if not abs(self.direction) > self.score / 2:
            direction = "too large or too small"
        if self.score >= math.log(_PERCENT):
            return noun, labels.interval(*np.exp(logarithms)), f" times {direction}"
        sign = -1 if direction == "too small" else 1  # 1 / 1.2 is 17 % too small
        percent = 100 * sign * np.expm1(sign * logarithms)
        return noun, labels.interval(*percent), f" % {direction}"

    @property
    def worst_text(self) -> str:
        """The largest score of an input with its unit."""
        if self.metric.name == "tv_class":
            return f"{labels.number(100 * self.worst)} points"
        if self.metric.better == "one":
            factor = math.exp(self.worst)
            return f"a factor of {labels.number(factor, 3 if factor < 2 else None)}"
        return labels.number(self.worst)

    def is_small(self, use: Use) -> bool | None:
        """Whether the error is small for a use; None if the interval contains the limit."""
        exact = 0.0 if self.metric.better == "one" or math.isnan(self.floor) else self.floor
        excess = self.score - exact - use.small
        half_width = 0.0 if math.isnan(self.half_width) else self.half_width
        return None if abs(excess) <= half_width else excess < 0


@dataclass(frozen=True)
class Recommendation:
    """The recommended rule for one use at one noise level, and the error of linearisation.

    `ranking` is that of all rules, sampling ones included. `rule` is the cheapest of the best with a mean
    close to that of the leader, and with an error known to be small if there is one. `cheaper` names the
    cheapest of the best if that is another rule. `linear` is
    None if linearisation was not measured. `gaussian` is the error of the Gaussian with the true moments.
    """

    use: Use
    family: str
    sigma: float
    ranking: Ranking
    rule: str
    cheaper: str
    error: Error
    linear: Error | None
    gaussian: Error | None
    inputs: int

    @property
    def noise(self) -> str:
        """Noise family, unless it is Gaussian, and level."""
        level = f"{noise_symbol(self.family)}\u00a0=\u00a0{self.sigma:g}"
        return ", ".join(filter(None, (noise_words(self.family), level)))

    @property
    def largest(self) -> float:
        """The larger score of the recommended rule and of linearisation."""
        return max(self.error.score, self.linear.score if self.linear else 0.0)

    @property
    def accuracy(self) -> str:
        """Whether the recommended rule is accurate enough for the use, in words."""
        words = {True: "accurate enough", False: "not accurate enough", None: "accuracy undecided"}
        return words[self.error.is_small(self.use)]

    @property
    def trust(self) -> str:
        """What to do about linearisation."""
        words = {True: RELY, False: "do not rely on it", None: "undecided, measure more inputs"}
        return words[self.linear.is_small(self.use)] if self.linear else ""


def recommendations(
    frame: pd.DataFrame, traits: RuleTraits, costs: Sequence[CostTable]
) -> list[Recommendation]:
    """Recommend a rule for each use at each noise level of a net; the frame is that of one net."""
    seconds = {rule: cost.typical for table in costs for rule, cost in table.by_rule.items()}
    recommended = []
    numbers = one_row_per_measurement(frame)
    measured_metrics = set(numbers["metric"])
    for use in USES:
        name = next((name for name in use.metrics if name in measured_metrics), None)
        if name is None:
            continue
        rows, components = numbers[numbers["metric"] == name], frame[frame["metric"] == name]
        for _, setting in rows.groupby(["noise", "sigma"], sort=True):
            recommendation = _recommendation(use, setting, components, traits, seconds)
            if recommendation:
                recommended.append(recommendation)
    return recommended


def _recommendation(
    use: Use, setting: pd.DataFrame, components: pd.DataFrame, traits: RuleTraits, seconds: dict[str, float]
) -> Recommendation | None:
    """Recommend a rule from the numbers of a metric in one `setting`; None if no rule can be ranked.

    `components` has the measurements of all components of the metric.
    """
    family, sigma = str(setting["noise"].iloc[0]), float(setting["sigma"].iloc[0])
    metric = recorded_metric(str(setting["metric"].iloc[0]))
    replicates = Replicates.of(metric, setting, traits)
    ranked = [rule for rule in replicates.rules if not traits.is_reference(rule)]
    ranking = replicates.contest(ranked)
    if ranking is None:
        return None
    components = components[(components["noise"] == family) & (components["sigma"] == sigma)]
    errors = _errors_of_rules(metric, replicates, setting, components)
    recommended = _recommended_rule(use, ranking, errors, seconds)
    cheaper = ranking.cheapest(seconds)
    if cheaper in (recommended, LINEAR) or errors[cheaper].is_small(use) is False:
        cheaper = ""
    return Recommendation(
        use=use,
        family=family,
        sigma=sigma,
        ranking=ranking,
        rule=recommended,
        cheaper=cheaper,
        error=errors[recommended],
        linear=errors.get(LINEAR) if LINEAR in ranked else None,
        gaussian=errors.get(ORACLE_MOMENTS.name),
        inputs=replicates.input_count,
    )


def _errors_of_rules(
    metric: Metric, replicates: Replicates, setting: pd.DataFrame, components: pd.DataFrame
) -> dict[str, Error]:
    """Errors of the compared rules in one setting, references included."""
    floors = metric.score(setting["floor"].to_numpy(), setting["floor"].to_numpy())
    floor = float(np.nanmean(floors)) if np.isfinite(floors).any() else math.nan
    ratios = components.groupby("rule", observed=True)["value"]
    errors = {}
    for rule in replicates.rules:
        rows = setting[setting["rule"] == rule]
        scores = metric.score(rows["value"].to_numpy(), rows["floor"].to_numpy())
        errors[rule] = Error(
            metric,
            replicates.mean(rule),
            replicates.half_width(rule),
            floor,
            direction=float(np.log(ratios.get_group(rule)).mean()) if metric.better == "one" else math.nan,
            # With fewer inputs the largest error is all but the mean.
            worst=float(scores.max()) if replicates.input_count >= MIN_LEVELS else math.nan,
        )
    return errors


def _recommended_rule(
    use: Use, ranking: Ranking, errors: Mapping[str, Error], seconds: Mapping[str, float]
) -> str:
    """The cheapest of the best rules that is nearly as accurate as the leader.

    The condition is necessary because a weak test ties rules of very different accuracy. If the error of any
    of these rules is known to be small, it is chosen among those.
    """
    largest_score = errors[ranking.leader].score + use.small
    candidates = [rule for rule in ranking.best if errors[rule].score <= largest_score]
    leader, *tied = [rule for rule in candidates if errors[rule].is_small(use)] or candidates
    return Ranking(leader, tuple(tied)).cheapest(seconds)


def verdict(
    recommended: Sequence[Recommendation],
    costs: Sequence[CostTable],
    net: str,
    traits: RuleTraits,
    advice: Sequence[Mapping[str, Any]] = (),
) -> Verdict:
    """Recommend rules for a net, in words.

    There is at least one recommendation. `advice` has rows of :func:`sdp_bench.advise`, which are compared
    with the measured errors.
    """

    def conclusions(recommendation: Recommendation) -> tuple[str, ...]:
        return (
            recommendation.use.name,
            recommendation.family,
            recommendation.rule,
            recommendation.accuracy,
            recommendation.trust,
        )

    lines = []
    for _, noise_levels in itertools.groupby(recommended, key=conclusions):
        lines.append(_line(list(noise_levels), costs, traits))
    uses = {recommendation.use for recommendation in recommended}
    limits = ", ".join(f"{use.limit} ({use.name})" for use in USES if use in uses)
    count = recommended[0].inputs
    inputs = labels.plural(count, "input")
    over = "over" if count >= MIN_LEVELS else "for these very inputs, over"
    lines.append(f"how: means with 95 % intervals {over} {inputs}; limits of the mean errors: {limits}")
    if advice:
        lines.append(f"advice without an oracle (`sdp-bench advise`): {_checked(advice, recommended)}")
    conclusion = _conclusion(recommended, costs, traits)
    return Verdict(f"which rule for {net}", tuple(lines), f"for {net}, {conclusion}")


def _checked(advice: Sequence[Mapping[str, Any]], recommendations: Sequence[Recommendation]) -> str:
    """Count where the advice on linearisation was right, by the measured errors."""
    advised = {}
    for row in outcomes(advice).to_dict("records"):
        advised[row["use"], row["sigma"]] = row["outcome"]
    counts = {"right": 0, "wrong": 0, "undecided": 0}
    for recommendation in recommendations:
        outcome = advised.get((recommendation.use.name, recommendation.sigma))
        is_small = recommendation.linear.is_small(recommendation.use) if recommendation.linear else None
        if outcome is None or is_small is None:
            continue
        if outcome == "undecided":
            counts["undecided"] += 1
        elif (outcome == "accurate") == is_small:
            counts["right"] += 1
        else:
            counts["wrong"] += 1
    if not any(counts.values()):
        return "compared in no case, as the measurement decides none"
    parts = ", ".join(f"{name} in {number}" for name, number in counts.items())
    return f"{parts} of {sum(counts.values())} pairs of use and noise level at which the measurement decides"


def _line(recommended: Sequence[Recommendation], costs: Sequence[CostTable], traits: RuleTraits) -> str:
    """The recommendation for one use at noise levels with the same conclusions."""
    first, last = recommended[0], recommended[-1]
    is_inaccurate = first.error.is_small(first.use) is False
    action = traits.action(first.rule)
    if is_inaccurate:
        action = f"{_advice_to_sample(recommended)}; best rule: {traits.recommended(first.rule)}"
    noise = first.noise + (f" to {last.sigma:g}" if len(recommended) > 1 else "")
    errors = _errors_text([recommendation.error for recommendation in recommended])
    text = f"{first.use.name}, {noise}: {action}{_cost(first.rule, costs)}: {errors}"
    if first.rule == LINEAR:
        return f"{text}; linearisation is statistically tied with the best rule, {first.trust}"
    if not is_inaccurate:
        text += f", {first.accuracy}"
    for rule in dict.fromkeys(rec.cheaper for rec in recommended if rec.cheaper):
        text += (
            f"; {traits.recommended(rule)}{_cost(rule, costs)}: cheaper and statistically tied, but "
            "with a larger mean error; measure more inputs to decide"
        )
    if linear := [rec.linear for rec in recommended if rec.linear]:
        text += (
            f"; linearisation ({traits.label(LINEAR)}{_cost(LINEAR, costs)}): "
            f"{_errors_text(linear)}, {first.trust}"
        )
    return text


def _advice_to_sample(inaccurate: Sequence[Recommendation]) -> str:
    """What to do where no rule is accurate enough: more samples do not help where no Gaussian is."""
    if all(rec.gaussian and rec.gaussian.is_small(rec.use) is False for rec in inaccurate):
        return "no Gaussian is accurate enough, draw samples and use them without fitting one"
    return "no compared rule is accurate enough, draw more samples"


def _errors_text(errors: Sequence[Error]) -> str:
    """The mean errors at the first and the last noise level, and the largest error of an input at any."""
    noun, first_error, unit = errors[0].text
    last_noun, last_error, last_unit = errors[-1].text
    text = f"{noun}{first_error}{unit}"
    if errors[0].text != errors[-1].text:
        if (noun, unit) == (last_noun, last_unit):
            text = f"{noun}from {first_error} to {last_error}{unit}"
        else:
            text += f", then {last_noun}{last_error}{last_unit}"
    largest = max(errors, key=lambda error: -math.inf if math.isnan(error.worst) else error.worst)
    if math.isnan(largest.worst):
        return text
    return f"{text}, at worst {largest.worst_text}"


def _cost(rule: str, costs: Sequence[CostTable]) -> str:
    seconds = [table.by_rule[rule].typical for table in costs if rule in table.by_rule]
    return f", {labels.duration(seconds[-1])} per input" if seconds else ""


def _conclusion(
    recommendations: Sequence[Recommendation], costs: Sequence[CostTable], traits: RuleTraits
) -> str:
    """Whether to rely on linearisation, and the rules to use otherwise, each with its uses."""
    by_trust: dict[str, list[Recommendation]] = {}
    alternatives: dict[tuple[str, str], list[Recommendation]] = {}
    inaccurate = []
    for recommendation in recommendations:
        if recommendation.linear:
            by_trust.setdefault(recommendation.trust, []).append(recommendation)
        if recommendation.error.is_small(recommendation.use) is False:
            inaccurate.append(recommendation)
        elif recommendation.rule != LINEAR and recommendation.trust != RELY:
            key = recommendation.rule, recommendation.accuracy
            alternatives.setdefault(key, []).append(recommendation)
    clauses = []
    for trust, some in by_trust.items():
        clauses.append(f"{trust} for {_settings(some, recommendations)}")
    for (rule, accuracy), some in alternatives.items():
        settings = _settings(some, recommendations)
        clauses.append(f"{traits.action(rule)} for {settings}{_cost(rule, costs)}, {accuracy}")
    if inaccurate:
        best_rules = list(dict.fromkeys(traits.label(recommendation.rule) for recommendation in inaccurate))
        settings = _settings(inaccurate, recommendations)
        clauses.append(
            f"for {settings}, {_advice_to_sample(inaccurate)} (best rule: {labels.listed(best_rules)})"
        )
    subject = f"linearisation ({traits.label(LINEAR)}{_cost(LINEAR, costs)}): " if by_trust else ""
    return subject + "; ".join(clauses)


def _settings(some: Sequence[Recommendation], recommendations: Sequence[Recommendation]) -> str:
    """Uses of some recommendations, with their noise levels unless these are all."""
    texts = []
    for use in dict.fromkeys(recommendation.use for recommendation in some):
        levels = [recommendation.noise for recommendation in some if recommendation.use is use]
        level_count = sum(recommendation.use is use for recommendation in recommendations)
        texts.append(use.name if len(levels) == level_count else f"{use.name} at {', '.join(levels)}")
    return ", ".join(texts)
