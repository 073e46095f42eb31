"""Statements of the paper, and how results decide on them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ..bench.runtime.table import Row
from ..oracles.estimate.multiplicity import holm
from .results import Results
from .statistics.verdicts import (
    LEVEL,
    MANY_NETS,
    MIN_NETS,
    MeanTests,
    Outcome,
    Verdict,
    Verdicts,
    decide,
    mean_tests,
    p_of_every_part,
    p_of_some_part,
)
from .style import labels

PUBLISHED, REGULAR = "dvia", "dvia:means=regular_covariance"
"""DVIA as published, and with its covariance at the means of the regular pass, as in the paper's numbers."""

Convention = tuple[str, ...]
"""Choices that the paper leaves open, a word for each that matters to a statement."""

TrialKey = tuple[str, Convention]
"""Key of a trial: the key of its statement, and the convention."""


@dataclass(frozen=True, eq=False)
class Effect:
    """One part of a statement: the mean of an effect over replicates is above a threshold.

    `shown` is a monotone function from the effect to the number for readers. An effect with `values` that are
    not finite is not tested. `choices` is the number of effects from which this one was chosen for its size
    (the best of several scales, say), and `against` the number of alternatives from which the best was chosen
    for comparison. `sentence` is the finding in words, with ``{value}``, or ``{size}`` and ``{side}``
    (default: the name). `ours` says whether the threshold is a margin of ours around 0. `sigma` are noise
    levels that are not part of the name. `sources` are names and addresses of the lists of measurements.
    """

    name: str
    values: NDArray[np.float64]
    threshold: float = 0.0
    shown: Callable[[float], float] = float
    choices: int = 1
    against: int = 1
    sentence: str = ""
    ours: bool = False
    sigma: str = ""
    sources: tuple[tuple[str, str], ...] = ()

    @functools.cached_property
    def tests(self) -> MeanTests | None:
        """Tests of the mean; None with too few replicates, or some that are not finite."""
        if len(self.values) < MIN_NETS or not np.isfinite(self.values).all():
            return None
        return mean_tests(self.values, self.threshold)

    @property
    def p(self) -> tuple[float, float]:
        """p-values of "above the threshold" and of "below it"."""
        # By noise alone the largest of several effects is above zero, and an effect is below zero if it is
        # compared with the best of several alternatives. Each p-value is multiplied by the number of choices
        # that favour it (Bonferroni). Choices on the other side make it larger.
        if self.tests is None:
            return 1.0, 1.0
        above, below = float(self.tests.above), float(self.tests.below)
        return min(1.0, self.choices * above), min(1.0, self.against * below)

    @property
    def range(self) -> tuple[float, float, float]:
        """Mean and ends of its 95 % interval as shown to readers; NaN without an interval."""
        if not len(self.values) or not np.isfinite(self.values).all():
            return math.nan, math.nan, math.nan
        mean = self.shown(float(np.mean(self.values)))
        if self.tests is None:
            return mean, math.nan, math.nan
        low, high = sorted((self.shown(float(self.tests.low)), self.shown(float(self.tests.high))))
        return mean, low, high

    @property
    def interval(self) -> str:
        """Mean with its interval in brackets, if there are enough replicates."""
        return labels.interval(*self.range)

    @property
    def needed(self) -> str:
        """Threshold as shown to readers, with the direction: ``> −0.01``."""
        sign = ">" if self.shown(1.0) > self.shown(-1.0) else "<"
        return f"{sign} {labels.number(self.shown(self.threshold))}"

    @property
    def surplus(self) -> float:
        """Distance of the mean above the threshold, in standard errors."""
        values = self.values - self.threshold
        if not np.isfinite(values).all():
            return -math.inf
        error = float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0
        mean = float(values.mean())
        if error:
            return mean / error
        return math.copysign(math.inf, mean) if mean else 0.0

    @property
    def leaning(self) -> str:
        """Side of the threshold on which the 95 % interval lies: "above", "below", or empty."""
        if self.tests is None:
            return ""
        if self.tests.low > self.threshold:
            return "above"
        return "below" if self.tests.high < self.threshold else ""

    def in_words(self, sentence: str = "") -> str:
        """Return a sentence (default: that of the effect) with ``{value}``, ``{size}`` and ``{side}``."""
        mean, low, high = self.range
        size = labels.interval(-mean, -high, -low) if mean < 0 else self.interval
        words = {"{value}": self.interval, "{size}": size, "{side}": "below" if mean < 0 else "above"}
        sentence = sentence or self.sentence or f"{self.name}: {{value}}"
        for name, text in words.items():  # rule labels may contain braces
            sentence = sentence.replace(name, text)
        return sentence


@dataclass(frozen=True, eq=False)
class Trial:
    """A statement under one convention: it is supported if every one of its effects is.

    `replicate` is the unit that is drawn independently for each value of an effect: ``net``, ``seed``,
    ``image``. `verdict` is None until it is judged. `p` are the p-values of "supported" and "refuted",
    corrected over the family. `reason` says why the statement is undecided, or what was not measured.
    """

    effects: tuple[Effect, ...] = ()
    replicate: str = ""
    convention: Convention = ()
    verdict: Verdict | None = None
    p: tuple[float, float] = (1.0, 1.0)
    reason: str = ""

    @property
    def name(self) -> str:
        """Convention in words; empty if the paper leaves nothing open."""
        return " / ".join(self.convention)

    @property
    def fewest(self) -> int:
        """Smallest number of replicates of an effect."""
        return min(len(effect.values) for effect in self.effects)

    @functools.cached_property
    def uncorrected(self) -> tuple[float, float]:
        """p-values of "every effect is above" and "some effect is below", not corrected over statements."""
        above = [effect.p[0] for effect in self.effects]
        below = [effect.p[1] for effect in self.effects]
        return float(p_of_every_part(above)), float(p_of_some_part(below))

    @property
    def deciding(self) -> Effect:
        """The least favourable effect, in standard errors."""
        refuted = [effect for effect in self.effects if effect.leaning == "below"]
        return min(refuted or self.effects, key=lambda effect: effect.surplus)

    @property
    def mean(self) -> Effect | None:
        """Mean of the effects over their noise levels; None if they have different replicates."""
        if len({len(effect.values) for effect in self.effects}) != 1:
            return None
        mean = np.mean([effect.values for effect in self.effects], 0)
        return replace(self.effects[0], values=mean, sigma="")

    @property
    def finding(self) -> str:
        """The deciding effect in words, with its threshold and number of replicates; or the reason."""
        if not self.effects:
            return self.reason
        effect = self.deciding
        if self.fewest < MIN_NETS:
            notes = f"{labels.plural(self.fewest, self.replicate)}, at least {MIN_NETS} are needed"
        else:
            notes = labels.plural(len(effect.values), self.replicate)
        infinite = int((~np.isfinite(effect.values)).sum())
        if infinite:
            notes += f"; not finite in {infinite}"
        if effect.choices > 1:
            notes += f"; the best of {effect.choices}"
        if effect.against > 1:
            notes += f"; compared with the best of {effect.against}"
        if len(self.effects) > 1:
            notes += f"; the least favourable of {len(self.effects)} parts"
        return f"{effect.in_words()}, needed {effect.needed} ({notes})"

    def attainable(self) -> tuple[float, float]:
        """p-values that replicates with a scatter of 1 % of an effect would have, in either direction.

        They depend only on the numbers of replicates: if even these do not decide, they are too small.
        """
        above = max(effect.choices for effect in self.effects) * _smallest_p(self.fewest)
        below = min(effect.against * _smallest_p(len(effect.values)) for effect in self.effects)
        return min(1.0, above), min(1.0, len(self.effects) * below)


def _smallest_p(replicates: int) -> float:
    """p-value of "above zero" for evenly spaced replicates with mean 1 and standard deviation 0.01."""
    if replicates < MIN_NETS:
        return 1.0
    scatter = np.linspace(-1, 1, replicates)
    return float(mean_tests(1 + 0.01 * scatter / scatter.std(ddof=1)).above)


@dataclass(frozen=True, eq=False)
class Answer:
    """What results say about a statement: a trial for each convention.

    `fidelity` compares the design of the measurements with the paper's. `address` is that of the numbers in
    the report's folder, empty without any. `sentence` replaces that about the trials.
    """

    trials: tuple[Trial, ...]
    fidelity: str = ""
    address: str = ""
    sentence: str = ""

    @classmethod
    def of(
        cls,
        effects: Mapping[Convention, Iterable[Effect]],
        replicate: str,
        fidelity: str = "",
        address: str = "",
        lacking: Mapping[Convention, str] = MappingProxyType({}),
    ) -> Answer | None:
        """Trials of the conventions for which every effect was measured; None without any.

        `lacking` are the missing measurements of conventions with some.
        """
        trials = []
        for convention, effects_of_convention in effects.items():
            measured = tuple(effects_of_convention)
            if measured and all(len(effect.values) for effect in measured):
                trials.append(Trial(measured, replicate, convention))
        for convention, reason in lacking.items():
            trials.append(Trial((), replicate, convention, Verdict.NOT_MEASURED, reason=reason))
        return cls(tuple(trials), fidelity, address) if trials else None

    @classmethod
    def certain(cls, *, holds: bool, finding: str, fidelity: str = "", address: str = "") -> Answer:
        """Answer without samples, or with so many that their error does not matter."""
        verdict = Verdict.SUPPORTED if holds else Verdict.REFUTED
        return cls((Trial(verdict=verdict),), fidelity, address, sentence=finding)

    @property
    def verdicts(self) -> Verdicts:
        """Verdicts by convention, with an empty name if the paper leaves nothing open."""
        return Verdicts({trial.name: trial.verdict for trial in self.trials if trial.verdict})

    @property
    def finding(self) -> str:
        """Effect and interval of the trial that decides, as a sentence, or why there is no verdict."""
        if self.sentence:
            return self.sentence
        verdict = next(iter(self.verdicts.counts))
        trials = [trial for trial in self.trials if trial.verdict is verdict]
        decisive = trials[0]
        if verdict is Verdict.REFUTED and len(trials) > 1:
            # standard errors compare effects of different units
            decisive = min(trials, key=lambda trial: trial.deciding.surplus)
        return f"{decisive.name}: {decisive.finding}" if len(self.trials) > 1 else decisive.finding

    @property
    def why(self) -> str:
        """Reasons why it is undecided, each with its conventions; empty if it is decided."""
        if self.verdicts.outcome is not Outcome.UNDECIDED:
            return ""
        reasons: dict[str, list[str]] = {}
        for trial in self.trials:
            if trial.verdict is Verdict.UNDECIDED:
                reasons.setdefault(trial.reason, []).append(trial.name)
        if len(reasons) == 1:
            return next(iter(reasons))
        return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())


class Evidence:
    """Results, as rules use them; `dvia` is the version for statements about DVIA."""

    def __init__(self, results: Results, dvia: str = PUBLISHED) -> None:
        self.results, self.dvia = results, dvia
        self._cache: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the result of `make`, which is called once for a key."""
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]

    def of(self, experiment: str, **where: object) -> pd.DataFrame:
        """Measurements of an experiment with given values in some columns."""
        frame = self.results.frame
        rows: pd.DataFrame = self.once(experiment, lambda: frame[frame["experiment"] == experiment])
        for column, value in where.items():
            rows = rows[rows[column] == value]
        return rows

    def timed(self, architecture: str, method: str, phase: str = "forward") -> Row | None:
        """The time of a method on a net; None if it was not timed."""
        key = (architecture, method, phase)
        for row in self.results.runtime:
            if (row.architecture, row.method, row.phase) == key:
                return row
        return None


Rule = Callable[[Evidence], "Answer | None"]


@dataclass(frozen=True)
class Statement:
    """A testable statement of the paper.

    `key` is its anchor on the page. `lines` are the first and last lines in the paper's source, and `quote`
    is the text without markup. `reading` says what is measured and which outcome supports it. `rule` computes
    the effects and returns None if nothing was measured; a statement without a rule has a `reason`. With
    `dvia` it is judged for both versions of DVIA. `answer` and `regular` are filled by :func:`judged`: the
    answer (for DVIA as published), and that for :data:`REGULAR`.
    """

    key: str
    lines: tuple[int, int]
    quote: str
    reading: str = ""
    rule: Rule | None = None
    reason: str = ""
    dvia: bool = False
    answer: Answer = Answer(())
    regular: Answer | None = None

    @property
    def rows(self) -> list[tuple[str, Trial]]:
        """Measured trials with the version of DVIA."""
        rows = [("as published", trial) for trial in self.answer.trials]
        if self.regular:
            rows += [("regular pass", trial) for trial in self.regular.trials]
        return [(version, trial) for version, trial in rows if trial.effects]


@dataclass(frozen=True)
class Topic:
    """Statements of one part of the paper: a family over which tests are corrected."""

    key: str
    title: str
    statements: tuple[Statement, ...]


def judged(topics: Iterable[Topic], results: Results) -> tuple[Topic, ...]:
    """Judge every statement of some topics; statements about DVIA for both versions."""
    published, regular = Evidence(results), Evidence(results, REGULAR)
    return tuple(_judged(topic, published, regular) for topic in topics)


def _judged(topic: Topic, evidence: Evidence, evidence_of_regular: Evidence) -> Topic:
    answers = _answers(topic, evidence)
    regular: dict[str, Answer] = {}
    if any(statement.dvia for statement in topic.statements):
        regular = _answers(topic, evidence_of_regular)
    statements = []
    for statement in topic.statements:
        regular_answer = regular[statement.key] if statement.dvia else None
        if regular_answer and regular_answer.verdicts.outcome is Outcome.NOT_MEASURED:
            regular_answer = None
        statements.append(replace(statement, answer=answers[statement.key], regular=regular_answer))
    return replace(topic, statements=tuple(statements))


def _answers(topic: Topic, evidence: Evidence) -> dict[str, Answer]:
    """Answers with verdicts, corrected over the statements tried under each convention (Holm)."""
    answers = {statement.key: _unjudged(statement, evidence) for statement in topic.statements}
    uncorrected: dict[TrialKey, tuple[float, float]] = {}
    for key, answer in answers.items():
        for trial in answer.trials:
            # A single effect with enough replicates can refute the statement.
            is_tested = trial.verdict is None and max(len(e.values) for e in trial.effects) >= MIN_NETS
            if is_tested:
                uncorrected[key, trial.convention] = trial.uncorrected
    families = _families(uncorrected)
    corrected = _corrected(uncorrected, families)
    judged_answers = {}
    for key, answer in answers.items():
        trials = []
        for trial in answer.trials:
            if trial.verdict is None:
                trial = _with_verdict(key, trial, uncorrected, corrected, families)
            trials.append(trial)
        judged_answers[key] = replace(answer, trials=tuple(trials))
    return judged_answers


def _unjudged(statement: Statement, evidence: Evidence) -> Answer:
    """Effects under each convention, most of them without verdicts."""
    answer = statement.rule(evidence) if statement.rule else None
    if answer:
        return answer
    reason = statement.reason or "not measured in these results"
    return Answer((Trial(verdict=Verdict.NOT_MEASURED, reason=reason),))


def _families(trials: Iterable[TrialKey]) -> list[list[TrialKey]]:
    """Trials over which tests are corrected, for each convention.

    A convention may settle less than another. A trial under it belongs to the family of each convention that
    settles as much and more.
    """
    trials = list(trials)
    conventions = {convention for _, convention in trials}
    return [[trial for trial in trials if set(trial[1]) <= set(convention)] for convention in conventions]


def _with_verdict(
    key: str,
    trial: Trial,
    uncorrected: Mapping[TrialKey, tuple[float, float]],
    corrected: Mapping[TrialKey, tuple[float, float]],
    families: list[list[TrialKey]],
) -> Trial:
    """Decide on a trial of the statement `key`; one without enough replicates has the p-values 1."""
    trial_key = key, trial.convention
    p = corrected.get(trial_key, (1.0, 1.0))
    verdict = decide(*p)
    reason = ""
    if verdict is Verdict.UNDECIDED:
        attainable = p
        if trial_key in uncorrected:
            best_case = {**uncorrected, trial_key: trial.attainable()}
            attainable = _corrected(best_case, families)[trial_key]
        family_sizes = [len(family) for family in families if trial_key in family]
        reason = _undecided(trial, min(attainable) <= LEVEL, max(family_sizes, default=1))
    return replace(trial, verdict=verdict, p=p, reason=reason)


def _corrected(
    p: Mapping[TrialKey, tuple[float, float]], families: list[list[TrialKey]]
) -> dict[TrialKey, tuple[float, float]]:
    """Holm's correction of both p-values; of several families of a trial, the largest p-value counts."""
    largest = dict.fromkeys(p, (0.0, 0.0))
    for family in families:
        above = holm([p[trial][0] for trial in family]).tolist()
        below = holm([p[trial][1] for trial in family]).tolist()
        for trial, p_above, p_below in zip(family, above, below, strict=True):
            largest[trial] = (max(largest[trial][0], p_above), max(largest[trial][1], p_below))
    return largest


def _undecided(trial: Trial, is_decidable: bool, family_size: int) -> str:
    """Reason why a trial is undecided: replicates, correction, our threshold, or the data.

    `is_decidable` is whether replicates that hardly scatter would decide.
    """
    count = labels.plural(trial.fewest, trial.replicate)
    if trial.fewest < MIN_NETS:
        return f"the number of {trial.replicate}s cannot decide: {count}, at least {MIN_NETS} are needed"
    if not is_decidable:
        return (
            f"the number of {trial.replicate}s cannot decide: {count} would not, even if they scattered by "
            f"only 1 % of the effect, after correction over {labels.plural(family_size, 'statement')}"
        )
    deciding = trial.deciding
    if deciding.leaning:
        few = f" and for only {count}" if trial.fewest < MANY_NETS else ""
        return (
            "the data do not decide: the interval of this effect alone excludes the threshold, the test does "
            f"not, which is corrected over {labels.plural(family_size, 'statement')}{few}"
        )
    if not np.isfinite(deciding.values).all():
        return "the data do not decide: some effects are not finite"
    tests = deciding.tests
    if deciding.ours and tests:
        # Known so well that another threshold of this size would have decided.
        is_precise = tests.high - tests.low <= 2 * abs(deciding.threshold)
        if is_precise and not tests.low <= 0 <= tests.high:
            return "the threshold decides: the effect is known to within our threshold, and lies close to it"
    return "the data do not decide: the interval contains the threshold"


def paired(frame: pd.DataFrame, replicate: Sequence[str]) -> pd.DataFrame:
    """Return mean values by replicate (rows; columns of `frame`) and rule (columns)."""
    return frame.pivot_table("value", list(replicate), "rule", aggfunc="mean", observed=True)


def finite(values: ArrayLike) -> NDArray[np.float64]:
    """Return the finite values, shape (n,)."""
    values = np.asarray(values, dtype=float)
    return values[np.isfinite(values)]
