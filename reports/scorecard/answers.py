"""Rules for a user's net: for each use the cheapest of the best, and whether linearisation suffices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ...bench.advice.thresholds import DEVIATIONS, LIMITS, outcomes
from ...bench.metrics import Metric, recorded_metric
from ...bench.metrics.references import ORACLE_MOMENTS
from ..statistics.ranking import MIN_LEVELS, Ranking, Replicates
from ..style import labels
from ..style.names import RuleTraits, noise_symbol, noise_words
from .comparisons import one_number
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
        ends = np.array([self.score, low, high])
        if self.metric.better == "one":
            noun = _NOUNS[self.metric.name]
            way = "too large" if self.direction > 0 else "too small"
            if not abs(self.direction) > self.score / 2:
                way = "too large or too small"
            if self.score < math.log(_PERCENT):
                sign = -1 if way == "too small" else 1  # 1 / 1.2 is 17 % too small
                return noun, labels.interval(*100 * sign * np.expm1(sign * ends)), f" % {way}"
            return noun, labels.interval(*np.exp(ends)), f" times {way}"
        if self.metric.name == "tv_class":
            return "class probabilities off by ", labels.interval(*100 * ends), " points"
        exact = f", exact rule {labels.number(self.floor)}" if math.isfinite(self.floor) else ""
        return "total variation ", labels.interval(*ends), exact

    @property
    def worst_text(self) -> str:
        if self.metric.name == "tv_class":
            return f"{labels.number(100 * self.worst)} points"
        if self.metric.better == "one":
            factor = math.exp(self.worst)
            return f"a factor of {labels.number(factor, 3 if factor < 2 else None)}"
        return labels.number(self.worst)

    def is_small(self, use: Use) -> bool | None:
        """Whether the error is small for a use; None if the interval contains the limit."""
        exact = 0.0 if self.metric.better == "one" or math.isnan(self.floor) else self.floor
        beyond = self.score - exact - use.small
        half = 0.0 if math.isnan(self.half_width) else self.half_width
        return None if abs(beyond) <= half else beyond < 0


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
        level = f"{noise_symbol(self.family)}\u00a0=\u00a0{self.sigma:g}"
        return ", ".join(filter(None, (noise_words(self.family), level)))

    @property
    def largest(self) -> float:
        return max(self.error.score, self.linear.score if self.linear else 0.0)

    @property
    def accuracy(self) -> str:
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
    answers = []
    numbers = one_number(frame)
    measured = set(numbers["metric"])
    for use in USES:
        name = next((name for name in use.metrics if name in measured), None)
        if name is None:
            continue
        rows, raw = numbers[numbers["metric"] == name], frame[frame["metric"] == name]
        for _, setting in rows.groupby(["noise", "sigma"], sort=True):
            answer = _recommendation(use, setting, raw, traits, seconds)
            if answer:
                answers.append(answer)
    return answers


def _recommendation(
    use: Use, setting: pd.DataFrame, raw: pd.DataFrame, traits: RuleTraits, seconds: dict[str, float]
) -> Recommendation | None:
    """Recommend a rule from the numbers of a metric in one `setting`; `raw` has those of its components."""
    family, sigma = str(setting["noise"].iloc[0]), float(setting["sigma"].iloc[0])
    metric = recorded_metric(str(setting["metric"].iloc[0]))
    replicates = Replicates.of(metric, setting, traits)
    ranked = [rule for rule in replicates.rules if not traits.is_reference(rule)]
    ranking = replicates.contest(ranked)
    if ranking is None:
        return None
    floors = metric.score(setting["floor"].to_numpy(), setting["floor"].to_numpy())
    floor = float(np.nanmean(floors)) if np.isfinite(floors).any() else math.nan
    values = raw[(raw["noise"] == family) & (raw["sigma"] == sigma)].groupby("rule", observed=True)["value"]

    def error(rule: str) -> Error:
        ratios = values.get_group(rule)
        direction = float(np.log(ratios).mean()) if metric.better == "one" else math.nan
        rows = setting[setting["rule"] == rule]
        scores = metric.score(rows["value"].to_numpy(), rows["floor"].to_numpy())
        # With fewer inputs the largest error is all but the mean.
        worst = float(scores.max()) if replicates.input_count >= MIN_LEVELS else math.nan
        return Error(metric, replicates.mean(rule), replicates.half_width(rule), floor, direction, worst)

    # A weak test ties rules of very different accuracy, so the pick must be nearly as accurate as the best,
    # and accurate enough if any is.
    most = replicates.mean(ranking.leader) + use.small
    near = [rule for rule in ranking.best if replicates.mean(rule) <= most]
    accurate = [rule for rule in near if error(rule).is_small(use)]
    leader, *tied = accurate or near
    rule = Ranking(leader, tuple(tied)).cheapest(seconds)
    cheaper = ranking.cheapest(seconds)
    if cheaper in (rule, LINEAR) or error(cheaper).is_small(use) is False:
        cheaper = ""
    return Recommendation(
        use=use,
        family=family,
        sigma=sigma,
        ranking=ranking,
        rule=rule,
        cheaper=cheaper,
        error=error(rule),
        linear=error(LINEAR) if LINEAR in ranked else None,
        gaussian=error(ORACLE_MOMENTS.name) if ORACLE_MOMENTS.name in replicates.rules else None,
        inputs=replicates.input_count,
    )


def verdict(
    answers: Sequence[Recommendation],
    costs: Sequence[CostTable],
    net: str,
    traits: RuleTraits,
    advice: Sequence[Mapping[str, Any]] = (),
) -> Verdict:
    """Recommend rules for a net, in words, from at least one answer; `advice` is compared with them."""

    def alike(answer: Recommendation) -> tuple[str, ...]:
        return answer.use.name, answer.family, answer.rule, answer.accuracy, answer.trust

    lines = [_line(list(run), costs, traits) for _, run in itertools.groupby(answers, key=alike)]
    uses = {answer.use for answer in answers}
    limits = ", ".join(f"{use.limit} ({use.name})" for use in USES if use in uses)
    count = answers[0].inputs
    inputs = labels.plural(count, "input")
    over = "over" if count >= MIN_LEVELS else "for these very inputs, over"
    lines.append(f"how: means with 95 % intervals {over} {inputs}; limits of the mean errors: {limits}")
    if advice:
        lines.append(f"advice without an oracle (`sdp-bench advise`): {_checked(advice, answers)}")
    conclusion = _conclusion(answers, costs, traits)
    return Verdict(f"which rule for {net}", tuple(lines), f"for {net}, {conclusion}")


def _checked(advice: Sequence[Mapping[str, Any]], recommendations: Sequence[Recommendation]) -> str:
    """Count where the advice on linearisation was right, by the measured errors."""
    given = {(use, sigma): outcome for use, sigma, *_, outcome in outcomes(advice).itertuples(index=False)}
    counts = dict.fromkeys(("right", "wrong", "undecided"), 0)
    for answer in recommendations:
        outcome = given.get((answer.use.name, answer.sigma), "")
        small = answer.linear.is_small(answer.use) if answer.linear else None
        if outcome and small is not None:
            right = "right" if (outcome == "accurate") == small else "wrong"
            counts["undecided" if outcome == "undecided" else right] += 1
    if not any(counts.values()):
        return "compared in no case, as the measurement decides none"
    parts = ", ".join(f"{name} in {number}" for name, number in counts.items())
    return f"{parts} of {sum(counts.values())} pairs of use and noise level at which the measurement decides"


def _line(run: Sequence[Recommendation], costs: Sequence[CostTable], traits: RuleTraits) -> str:
    """The answer for one use at noise levels with the same answer."""
    first, last = run[0], run[-1]
    action, poor = traits.action(first.rule), first.error.is_small(first.use) is False
    if poor:
        action = f"{_samples_of(run)}; best rule: {traits.recommended(first.rule)}"
    noise = first.noise + (f" to {last.sigma:g}" if len(run) > 1 else "")
    errors = _errors([answer.error for answer in run])
    text = f"{first.use.name}, {noise}: {action}{_cost(first.rule, costs)}: {errors}"
    if first.rule == LINEAR:
        return f"{text}; linearisation is statistically tied with the best rule, {first.trust}"
    if not poor:
        text += f", {first.accuracy}"
    for rule in dict.fromkeys(answer.cheaper for answer in run if answer.cheaper):
        text += (
            f"; {traits.recommended(rule)}{_cost(rule, costs)}: cheaper and statistically tied, but "
            "with a larger mean error; measure more inputs to decide"
        )
    if linear := [answer.linear for answer in run if answer.linear]:
        text += (
            f"; linearisation ({traits.label(LINEAR)}{_cost(LINEAR, costs)}): "
            f"{_errors(linear)}, {first.trust}"
        )
    return text


def _samples_of(poor: Sequence[Recommendation]) -> str:
    """What to do where no rule is accurate enough: more samples do not help where no Gaussian is."""
    if all(answer.gaussian and answer.gaussian.is_small(answer.use) is False for answer in poor):
        return "no Gaussian is accurate enough, draw samples and use them without fitting one"
    return "no compared rule is accurate enough, draw more samples"


def _errors(errors: Sequence[Error]) -> str:
    """The mean errors at the first and the last noise level, and the largest error of an input at any."""
    texts = list(dict.fromkeys(error.text for error in (errors[0], errors[-1])))
    if len(texts) == 2 and (texts[0][0], texts[0][2]) == (texts[1][0], texts[1][2]):
        (before, low, after), (_, high, _) = texts
        texts = [(before, f"from {low} to {high}", after)]
    largest = max(errors, key=lambda error: -math.inf if math.isnan(error.worst) else error.worst)
    worst = "" if math.isnan(largest.worst) else f", at worst {largest.worst_text}"
    return ", then ".join("".join(text) for text in texts) + worst


def _cost(rule: str, costs: Sequence[CostTable]) -> str:
    seconds = [table.by_rule[rule].typical for table in costs if rule in table.by_rule]
    return f", {labels.duration(seconds[-1])} per input" if seconds else ""


def _conclusion(
    recommendations: Sequence[Recommendation], costs: Sequence[CostTable], traits: RuleTraits
) -> str:
    """Whether to rely on linearisation, and the rules to use otherwise, each with its uses."""
    clauses = []
    linear: dict[str, list[Recommendation]] = {}
    alternatives: dict[tuple[str, str], list[Recommendation]] = {}
    poor = []
    for answer in recommendations:
        if answer.linear:
            linear.setdefault(answer.trust, []).append(answer)
        if answer.error.is_small(answer.use) is False:
            poor.append(answer)
        elif answer.rule != LINEAR and answer.trust != RELY:
            alternatives.setdefault((answer.rule, answer.accuracy), []).append(answer)
    for trust, answers in linear.items():
        clauses.append(f"{trust} for {_settings(answers, recommendations)}")
    for (rule, accuracy), answers in alternatives.items():
        settings = _settings(answers, recommendations)
        clauses.append(f"{traits.action(rule)} for {settings}{_cost(rule, costs)}, {accuracy}")
    if poor:
        best = labels.listed(list(dict.fromkeys(traits.label(answer.rule) for answer in poor)))
        settings = _settings(poor, recommendations)
        clauses.append(f"for {settings}, {_samples_of(poor)} (best rule: {best})")
    subject = f"linearisation ({traits.label(LINEAR)}{_cost(LINEAR, costs)}): " if linear else ""
    return subject + "; ".join(clauses)


def _settings(answers: Sequence[Recommendation], every: Sequence[Recommendation]) -> str:
    """Uses of some answers, with their noise levels unless these are all."""
    texts = []
    for use in dict.fromkeys(answer.use for answer in answers):
        levels = [answer.noise for answer in answers if answer.use is use]
        count = sum(answer.use is use for answer in every)
        texts.append(use.name if len(levels) == count else f"{use.name} at {', '.join(levels)}")
    return ", ".join(texts)
