"""Rules for a user's net: for each use the cheapest of the best, and whether linearisation suffices."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...bench.advice.outcomes import DEVIATIONS, LIMITS, outcomes
from ...bench.metrics import Metric, recorded_metric
from ...bench.metrics.references import ORACLE_MOMENTS
from ..statistics.bounds import inputs_to_show_large, inputs_to_show_small, lower_bound, upper_bound
from ..statistics.ranking import Ranking, Replicates
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

    `small` is a total variation, in excess of that of an exact rule if `in_excess`, or the absolute logarithm
    of a ratio; `limit` is the same in words. `largest` bounds the error of an input. For ratios, which have
    no bound, this is an assumption.
    """

    name: str
    metrics: tuple[str, ...]
    small: float
    limit: str
    in_excess: bool = False
    largest: float = 1.0

    @property
    def assumption(self) -> str:
        """The largest error of an input in words, if that is an assumption."""
        return f"a factor of {math.exp(self.largest):.0f} ({self.name})" if self.largest > 1 else ""


WHOLE = "whole distribution"
USES = (
    Use("class", ("tv_class",), LIMITS["class"], "1 point"),
    Use(DEVIATIONS, ("std_ratio", "iqr_ratio"), LIMITS[DEVIATIONS], "5 %", largest=math.log(3)),
    Use(WHOLE, ("tv_headline", "tv_principal", "tv_joint"), LIMITS[WHOLE], "0.05", in_excess=True),
    Use("tails", ("tails",), math.log(1.25), "a factor of 1.25", largest=math.log(100)),
)

_PERCENT = 1.25
"""Factor from which an error is given as a factor, as percentages then differ between both directions."""

_NOUNS = {
    "std_ratio": "standard deviations ",
    "iqr_ratio": "interquartile ranges ",
    "tails": "tail probabilities ",
}


@dataclass(frozen=True, eq=False)
class Error:
    """Scores of a rule on the inputs of a net at one noise level, and whether they are small for a use.

    `floors` are the scores of an exact rule, 0 if unknown. `inputs` numbers the inputs. `half_width` is half
    of the 95 % interval of the mean over these inputs alone, from the errors of the measurements (0 if
    unknown). `direction` is the mean logarithm of ratios, NaN for other metrics. `worst` is the largest
    score, of a single output if a score is a mean over outputs, and `worst_place` names its output and input;
    it is empty for a single output and input.
    """

    use: Use
    metric: Metric
    scores: NDArray[np.float64]
    floors: NDArray[np.float64]
    inputs: Sequence[float]
    half_width: float
    direction: float
    worst: float
    worst_place: str

    @property
    def score(self) -> float:
        return float(self.scores.mean())

    @functools.cached_property
    def bounds(self) -> tuple[float, float]:
        """Lower and upper bound of the mean error for inputs like these, comparable with the limit.

        Each bound is wrong with a probability of at most 5 %.
        """
        return lower_bound(self._excess, -self.floors.max()), upper_bound(self._limited, self.use.largest)

    @property
    def _excess(self) -> NDArray[np.float64]:
        return self.scores - self.floors

    @property
    def _limited(self) -> NDArray[np.float64]:
        """The errors that must not exceed the limit.

        Finitely many samples can only increase the mean of a score. Noise and a total variation V add up to
        about the root of V² + F², with the floor F; the difference of score and floor would be too small.
        """
        if self.use.in_excess:
            return np.sqrt(np.maximum(self.scores**2 - self.floors**2, 0.0))
        return self.scores

    @property
    def is_small(self) -> bool | None:
        """Whether the mean error for inputs like these is small; None if undecided."""
        low, high = self.bounds
        return _is_small(low, high, self.use.small)

    @property
    def is_small_here(self) -> bool | None:
        """Whether the mean error for these inputs alone is small; None if undecided."""
        low, high = self._excess.mean() - self.half_width, self._limited.mean() + self.half_width
        return _is_small(low, high, self.use.small)

    @property
    def outcome(self) -> tuple[bool | None, bool | None]:
        return self.is_small, self.is_small_here

    @property
    def is_small_so_far(self) -> bool | None:
        """Whether the mean error is small, for these inputs alone if it is undecided for others."""
        return self.is_small_here if self.is_small is None else self.is_small

    @property
    def needed(self) -> float:
        """Number of inputs like these that would decide; infinite if no number is known to be enough."""
        small = inputs_to_show_small(self._limited, self.use.small, self.use.largest)
        large = inputs_to_show_large(self._excess, self.use.small, -self.floors.max())
        return max(min(small, large), len(self.inputs) + 1)

    @property
    def text(self) -> tuple[str, str, str]:
        """Words, the mean error with its bounds, and its unit with the direction."""
        floor = float(self.floors.mean())
        low, high = self.bounds
        ends = np.array([self.score, low + floor, high + floor * self.use.in_excess])
        if self.metric.better == "one":
            return self._ratio_text(ends)
        ends = np.clip(ends, 0.0, 1.0)  # a bound can exceed what a total variation can be
        if self.metric.name == "tv_class":
            return "class probabilities off by ", labels.interval(*100 * ends), " points"
        exact = f", exact rule {labels.number(floor)}" if floor > 0 else ""
        return "total variation ", labels.interval(*ends), exact

    def _ratio_text(self, logarithms: NDArray[np.float64]) -> tuple[str, str, str]:
        """The text of a ratio, from the absolute logarithm of the ratio and its bounds."""
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
        """The largest error and its place; empty for a single output and input."""
        if not self.worst_place:
            return ""
        if self.metric.name == "tv_class":
            text = f"{labels.number(100 * self.worst)} points"
        elif self.metric.better == "one":
            with np.errstate(over="ignore"):
                factor = float(np.exp(self.worst))
            text = f"a factor of {labels.number(factor, 3 if factor < 2 else None)}"
        else:
            text = labels.number(self.worst)
        return f"{text} ({self.worst_place})"


def _is_small(low: float, high: float, limit: float) -> bool | None:
    return True if high <= limit else False if low > limit else None


ACCURATE = {True: "accurate enough", False: "not accurate enough"}
TRUSTED = {True: RELY, False: "do not rely on it"}


def judgement(errors: Sequence[Error], words: Mapping[bool, str]) -> str:
    """Say whether errors with the same outcomes are small, for these inputs alone if more are undecided."""
    error = errors[0]
    if error.is_small is not None:
        return words[error.is_small]
    count = len(error.inputs)
    needed = max(error.needed for error in errors)
    more = "the largest errors of single inputs are too large"
    if math.isfinite(needed):
        unit = 10 ** max(0, math.floor(math.log10(needed)) - 1)  # two digits
        more = f"measure {math.ceil(needed / unit) * unit:,} inputs or more"
    if error.is_small_here is None:
        return f"undecided: {more}"
    here = "this input" if count == 1 else f"these {count} inputs"
    return f"{words[error.is_small_here]} for {here} (undecided for others: {more})"


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
    def errors(self) -> tuple[Error, ...]:
        """Errors of the rule and of linearisation."""
        return (self.error, self.linear) if self.linear else (self.error,)

    @property
    def accuracy(self) -> str:
        """Whether the recommended rule is accurate enough for the use, in words."""
        return judgement([self.error], ACCURATE)

    @property
    def trust(self) -> str:
        """What to do about linearisation."""
        return judgement([self.linear], TRUSTED) if self.linear else ""


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
    replicates = Replicates.of(metric, setting, traits, signs=True)
    ranked = [rule for rule in replicates.rules if not traits.is_reference(rule)]
    ranking = replicates.contest(ranked)
    if ranking is None:
        return None
    components = components[(components["noise"] == family) & (components["sigma"] == sigma)]
    errors = _errors_of_rules(use, metric, replicates, setting, components)
    recommended = _recommended_rule(use, ranking, errors, seconds)
    cheaper = ranking.cheapest(seconds)
    if cheaper in (recommended, LINEAR) or errors[cheaper].is_small_so_far is False:
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
    use: Use, metric: Metric, replicates: Replicates, setting: pd.DataFrame, components: pd.DataFrame
) -> dict[str, Error]:
    """Errors of the compared rules in one setting, references included."""
    errors = {}
    for rule in replicates.rules:
        rows = setting[setting["rule"] == rule]
        values, exact = rows["value"].to_numpy(), rows["floor"].to_numpy()
        floors = metric.score(exact, exact)
        scores = metric.score(values, exact)
        half_width = replicates.half_width_here(rule)
        direction = math.nan
        worst, worst_place = _worst(scores, rows["input"])
        if metric.better == "one":
            components_of_rule = components[components["rule"] == rule]
            logarithms = np.log(components_of_rule["value"])
            direction = float(logarithms.mean())
            if components_of_rule["component"].nunique() > 1:
                worst, worst_place = _worst_component(logarithms, components_of_rule)
        errors[rule] = Error(
            use,
            metric,
            scores=scores,
            floors=np.where(np.isfinite(floors), floors, 0.0),
            inputs=rows["input"].tolist(),
            half_width=0.0 if math.isnan(half_width) else half_width,
            direction=direction,
            worst=worst,
            worst_place=worst_place,
        )
    return errors


def _worst(scores: NDArray[np.float64], inputs: pd.Series) -> tuple[float, str]:
    """The largest score and its input; no name for a single input."""
    row = int(scores.argmax())
    return float(scores[row]), f"input {inputs.iloc[row]:g}" if len(inputs) > 1 else ""


def _worst_component(logarithms: pd.Series, rows: pd.DataFrame) -> tuple[float, str]:
    """The largest logarithm of a ratio in size, and its output and input, if there are several."""
    position = int(logarithms.abs().to_numpy().argmax())
    component = str(rows["component"].iloc[position])
    # Components are an output, and for tails its probability: "0 p=0.01".
    probability = component.partition(" ")[2]
    outputs = rows["component"].astype(str).str.partition(" ")[0]
    parts = []
    if outputs.nunique() > 1:
        parts.append(f"output {component}")
    elif probability:
        parts.append(probability)
    if rows["input"].nunique() > 1:
        parts.append(f"input {rows['input'].iloc[position]:g}")
    return float(abs(logarithms.iloc[position])), " at ".join(parts)


def _recommended_rule(
    use: Use, ranking: Ranking, errors: Mapping[str, Error], seconds: Mapping[str, float]
) -> str:
    """The cheapest of the best rules that is nearly as accurate as the leader.

    The condition is necessary because a weak test ties rules of very different accuracy. If the error of any
    of these rules is known to be small, or is small for these inputs, it is chosen among those.
    """
    largest_score = errors[ranking.leader].score + use.small
    candidates = [rule for rule in ranking.best if errors[rule].score <= largest_score]
    accurate = [rule for rule in candidates if errors[rule].is_small]
    accurate = accurate or [rule for rule in candidates if errors[rule].is_small_here]
    leader, *tied = accurate or candidates
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

    def conclusions(recommendation: Recommendation) -> tuple[object, ...]:
        outcomes_of_errors = [error.outcome for error in recommendation.errors]
        return recommendation.use.name, recommendation.family, recommendation.rule, *outcomes_of_errors

    lines = []
    for _, noise_levels in itertools.groupby(recommended, key=conclusions):
        lines.append(_line(list(noise_levels), costs, traits))
    uses = {recommendation.use for recommendation in recommended}
    limits = ", ".join(f"{use.limit} ({use.name})" for use in USES if use in uses)
    inputs = labels.plural(recommended[0].inputs, "input")
    assumed = [use.assumption for use in USES if use in uses and use.assumption]
    lines.append(
        f"how: means over {inputs}; in parentheses, the lower and the upper 95 % bound of the mean for other "
        f"inputs like these; limits of the mean errors: {limits}"
    )
    if assumed:
        lines.append(f"assumption: the error of an input is at most {labels.listed(assumed)}")
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
        is_small = recommendation.linear.is_small_so_far if recommendation.linear else None
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
    errors = [recommendation.error for recommendation in recommended]
    linear = [recommendation.linear for recommendation in recommended if recommendation.linear]
    action = traits.action(first.rule)
    if first.error.is_small_so_far is False:
        action = f"{_advice_to_sample(recommended)}; best rule: {traits.recommended(first.rule)}"
    noise = first.noise + (f" to {last.sigma:g}" if len(recommended) > 1 else "")
    text = f"{first.use.name}, {noise}: {action}{_cost(first.rule, costs)}: {_errors_text(errors)}"
    if first.rule == LINEAR:
        trust = judgement(linear, TRUSTED)
        return f"{text}; linearisation is statistically tied with the best rule, {trust}"
    text += f", {judgement(errors, ACCURATE)}"
    for rule in dict.fromkeys(rec.cheaper for rec in recommended if rec.cheaper):
        text += (
            f"; {traits.recommended(rule)}{_cost(rule, costs)}: cheaper and statistically tied, but "
            "with a larger mean error; measure more inputs to decide"
        )
    if linear:
        text += (
            f"; linearisation ({traits.label(LINEAR)}{_cost(LINEAR, costs)}): "
            f"{_errors_text(linear)}, {judgement(linear, TRUSTED)}"
        )
    return text


def _advice_to_sample(inaccurate: Sequence[Recommendation]) -> str:
    """What to do where no rule is accurate enough: more samples do not help where no Gaussian is."""
    if all(rec.gaussian and rec.gaussian.is_small_so_far is False for rec in inaccurate):
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
    worst = max(errors, key=lambda error: error.worst).worst_text
    return f"{text}, at worst {worst}" if worst else text


def _cost(rule: str, costs: Sequence[CostTable]) -> str:
    seconds = [table.by_rule[rule].typical for table in costs if rule in table.by_rule]
    return f", {labels.duration(seconds[-1])} per input" if seconds else ""


def _conclusion(
    recommendations: Sequence[Recommendation], costs: Sequence[CostTable], traits: RuleTraits
) -> str:
    """Whether to rely on linearisation, and the rules to use otherwise, each with its uses."""
    by_trust: dict[object, list[Recommendation]] = {}
    alternatives: dict[tuple[str, object], list[Recommendation]] = {}
    inaccurate = []
    for recommendation in recommendations:
        error, linear = recommendation.error, recommendation.linear
        if linear:
            by_trust.setdefault(linear.outcome, []).append(recommendation)
        if error.is_small_so_far is False:
            inaccurate.append(recommendation)
        elif recommendation.rule != LINEAR and not (linear and linear.is_small):
            alternatives.setdefault((recommendation.rule, error.outcome), []).append(recommendation)
    clauses = []
    for some in by_trust.values():
        trust = judgement([rec.linear for rec in some if rec.linear], TRUSTED)
        clauses.append(f"for {_settings(some, recommendations)}, {trust}")
    for (rule, _), some in alternatives.items():
        settings = _settings(some, recommendations)
        accuracy = judgement([recommendation.error for recommendation in some], ACCURATE)
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
