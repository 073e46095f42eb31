"""Statements of the paper, and how results decide on them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
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
    Outcome,
    SignTests,
    Verdict,
    Verdicts,
    decide,
    p_of_every_part,
    p_of_signs,
    p_of_some_part,
    sign_tests,
)
from .style import labels

PUBLISHED, REGULAR = "dvia", "dvia:means=regular_covariance"
"""DVIA as published, and with its covariance at the means of the regular pass, as in the paper's numbers."""

Convention = tuple[str, ...]
"""Choices that the paper leaves open, a word for each that matters to a statement."""

_NAMED = 3  # at most this many conventions with the same reason are named; more are only counted

TrialKey = tuple[str, Convention]
"""Key of a trial: the key of its statement, and the convention."""


@dataclass(frozen=True, eq=False)
class Effect:
    """One part of a statement: for more than half of all replicates an effect is above a threshold.

    `shown` is a monotone function from the effect to the number for readers. `choices` is the number of
    effects from which this one was chosen for its size (the best of several scales, say), and `against` the
    number of alternatives from which the best was chosen for comparison. `sentence` is the finding in words,
    with ``{value}``, or ``{size}`` and ``{side}`` (default: the name). `ours` says whether the threshold is a
    margin of ours around 0. `sigma` are noise levels that are not part of the name. `sources` are names and
    addresses of the lists of measurements.
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
    def tests(self) -> SignTests | None:
        """Sign tests of the values; None without values."""
        return sign_tests(self.values, self.threshold) if len(self.values) else None

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
        """Median and ends of its 95 % interval as shown to readers; NaN without an interval."""
        if self.tests is None:
            return math.nan, math.nan, math.nan
        low, high = sorted((self._shown(float(self.tests.low)), self._shown(float(self.tests.high))))
        return self._shown(float(self.tests.median)), low, high

    def _shown(self, effect: float) -> float:
        return math.nan if math.isnan(effect) else self.shown(effect)

    @property
    def interval(self) -> str:
        """Median with its interval in brackets, if there are enough replicates."""
        return labels.interval(*self.range)

    @property
    def needed(self) -> str:
        """Threshold as shown to readers, with the direction: ``> −0.01``."""
        sign = ">" if self.shown(1.0) > self.shown(-1.0) else "<"
        return f"{sign} {labels.number(self.shown(self.threshold))}"

    @property
    def sides(self) -> tuple[int, int]:
        """Numbers of replicates above and below the threshold."""
        return (int(self.tests.more), int(self.tests.less)) if self.tests else (0, 0)

    @property
    def balance(self) -> float:
        """Share of replicates above the threshold less that below it."""
        more, less = self.sides
        return (more - less) / max(1, len(self.values))

    @property
    def surplus(self) -> float:
        """Distance of the median above the threshold, in median absolute deviations."""
        if self.tests is None or not np.isfinite(self.tests.median):
            return float(self.tests.median) if self.tests else 0.0
        distance = float(self.tests.median) - self.threshold
        spread = float(np.median(np.abs(self.values - self.tests.median)))
        return distance / spread if spread else math.copysign(math.inf, distance) if distance else 0.0

    @property
    def leaning(self) -> str:
        """Side of the threshold on which the 95 % interval lies: "above", "below", or empty."""
        if self.tests is None:
            return ""
        if self.tests.above <= LEVEL / 2:
            return "above"
        return "below" if self.tests.below <= LEVEL / 2 else ""

    def in_words(self, sentence: str = "") -> str:
        """Return a sentence (default: that of the effect) with ``{value}``, ``{size}`` and ``{side}``."""
        median, low, high = self.range
        size = labels.interval(-median, -high, -low) if median < 0 else self.interval
        words = {"{value}": self.interval, "{size}": size, "{side}": "below" if median < 0 else "above"}
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
        return " / ".join(self.convention)

    @property
    def fewest(self) -> int:
        return min(len(effect.values) for effect in self.effects)

    @functools.cached_property
    def uncorrected(self) -> tuple[float, float]:
        """p-values of "every effect is above" and "some effect is below", not corrected over statements."""
        above, below = zip(*(effect.p for effect in self.effects), strict=True)
        return float(p_of_every_part(above)), float(p_of_some_part(below))

    @property
    def deciding(self) -> Effect:
        """The least favourable effect: by the balance of its replicates, then by its surplus."""
        return min(self.effects, key=lambda effect: (effect.balance, effect.surplus))

    @property
    def mean(self) -> Effect | None:
        """Mean of the effects over their noise levels; None if they have different replicates."""
        if len({len(effect.values) for effect in self.effects}) != 1:
            return None
        mean = np.mean([effect.values for effect in self.effects], 0)
        return replace(self.effects[0], values=mean, sigma="")

    @property
    def finding(self) -> str:
        if not self.effects:
            return self.reason
        worst = self.deciding
        parts = f"; the least favourable of {len(self.effects)} parts" if len(self.effects) > 1 else ""
        infinite = int((~np.isfinite(worst.values)).sum())
        gone = f"; not finite in {infinite}" if infinite else ""
        count = f"in {worst.sides[0]} of {labels.plural(len(worst.values), self.replicate)}"
        chosen = f"; the best of {worst.choices}" if worst.choices > 1 else ""
        if worst.against > 1:
            chosen += f"; compared with the best of {worst.against}"
        return f"{worst.in_words()}, needed {worst.needed} ({count}{gone}{chosen}{parts})"

    @functools.cached_property
    def attainable(self) -> tuple[float, float]:
        """p-values if for every effect all replicates were on one side: the smallest ones."""
        agreeing = [float(p_of_signs(len(effect.values), len(effect.values))) for effect in self.effects]
        above = [effect.choices * p for effect, p in zip(self.effects, agreeing, strict=True)]
        below = [effect.against * p for effect, p in zip(self.effects, agreeing, strict=True)]
        return min(1.0, float(p_of_every_part(above))), float(p_of_some_part(below))

    def repeated(self, counts: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """p-values of other numbers of replicates, if the shares on either side are those of these."""
        above, below = [], []
        for effect in self.effects:
            # Rounded down, since one replicate less on a side is the less favourable case.
            more, less = (counts * number // len(effect.values) for number in effect.sides)
            above.append(effect.choices * p_of_signs(more, counts))
            below.append(effect.against * p_of_signs(less, counts))
        return p_of_every_part(np.stack(above, -1)), p_of_some_part(np.stack(below, -1))


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
        known = {convention: tuple(own) for convention, own in effects.items()}
        trials = [
            Trial(own, replicate, convention)
            for convention, own in known.items()
            if own and all(len(effect.values) for effect in own)
        ]
        trials += [
            Trial((), replicate, convention, Verdict.NOT_MEASURED, reason=words)
            for convention, words in lacking.items()
        ]
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
        first = next(iter(self.verdicts.counts))
        shown, *others = (trial for trial in self.trials if trial.verdict is first)
        if first is Verdict.REFUTED and others:  # deviations compare effects of different units
            shown = min(shown, *others, key=lambda trial: trial.deciding.surplus)
        return f"{shown.name}: {shown.finding}" if len(self.trials) > 1 else shown.finding

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
        return "; ".join(f"{_listed(names)}: {reason}" for reason, names in reasons.items())


def _listed(names: Sequence[str]) -> str:
    if len(names) <= _NAMED:
        return ", ".join(names)
    return f"{names[0]} and {len(names) - 1} other conventions"


class Evidence:
    """Results, as rules use them; `dvia` is the version for statements about DVIA."""

    def __init__(self, results: Results, dvia: str = PUBLISHED) -> None:
        self.results, self.dvia = results, dvia
        self._made: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def of(self, experiment: str, **where: object) -> pd.DataFrame:
        """Measurements of an experiment with given values in some columns."""
        frame = self.results.frame
        own = self.once(experiment, lambda: frame[frame["experiment"] == experiment])
        for column, value in where.items():
            own = own[own[column] == value]
        return own

    def timed(self, architecture: str, method: str, phase: str = "forward") -> Row | None:
        wanted = (architecture, method, phase)
        rows = (row for row in self.results.runtime if (row.architecture, row.method, row.phase) == wanted)
        return next(rows, None)


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
        versions = {"DVIA": self.answer.trials, "DVIA*": self.regular and self.regular.trials}
        return [(name, one) for name, trials in versions.items() for one in trials or () if one.effects]


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


def _judged(topic: Topic, evidence: Evidence, of_regular: Evidence) -> Topic:
    answers, regular = _answers(topic, evidence), dict[str, Answer]()
    if about_dvia := {one.key for one in topic.statements if one.dvia}:
        regular = _answers(topic, of_regular)
    measured = {
        key: answer
        for key, answer in regular.items()
        if key in about_dvia and answer.verdicts.outcome is not Outcome.NOT_MEASURED
    }
    statements = (
        replace(one, answer=answers[one.key], regular=measured.get(one.key)) for one in topic.statements
    )
    return replace(topic, statements=tuple(statements))


def _answers(topic: Topic, evidence: Evidence) -> dict[str, Answer]:
    """Answers with verdicts, corrected over the statements tried under each convention (Holm)."""
    answers = {}
    for one in topic.statements:
        reason = one.reason or "not measured in these results"
        nothing = Answer((Trial(verdict=Verdict.NOT_MEASURED, reason=reason),))
        answers[one.key] = (one.rule and one.rule(evidence)) or nothing
    tried = {
        (key, trial.convention): trial
        for key, answer in answers.items()
        for trial in answer.trials
        if trial.verdict is None
    }
    # A convention may settle less than another. A trial under it belongs to the family of each convention
    # that settles as much and more.
    families = [
        [which for which in tried if set(which[1]) <= set(convention)]
        for convention in {convention for _, convention in tried}
    ]
    # p-values of "supported" and of "refuted". A trial with too few replicates to be significant at all can
    # be in no error, and takes no part in the correction.
    corrected = [
        _corrected(
            {which: trial.uncorrected[k] for which, trial in tried.items() if trial.attainable[k] <= LEVEL},
            families,
        )
        for k in range(2)
    ]

    def decided(which: TrialKey, trial: Trial) -> Trial:
        if trial.verdict is not None:
            return trial
        p = corrected[0].get(which, 1.0), corrected[1].get(which, 1.0)
        verdict, reason = decide(*p), ""
        if verdict is Verdict.UNDECIDED:
            reason = _undecided(
                trial, (_open(which, corrected[0], families), _open(which, corrected[1], families))
            )
        return replace(trial, verdict=verdict, p=p, reason=reason)

    return {
        key: replace(answer, trials=tuple(decided((key, trial.convention), trial) for trial in answer.trials))
        for key, answer in answers.items()
    }


def _corrected(p: Mapping[TrialKey, float], families: list[list[TrialKey]]) -> dict[TrialKey, float]:
    """p-values corrected within each family, the largest of all families."""
    largest = dict.fromkeys(p, 0.0)
    for family in families:
        tested = [which for which in family if which in p]
        for which, adjusted in zip(tested, holm([p[which] for which in tested]).tolist(), strict=True):
            largest[which] = max(largest[which], adjusted)
    return largest


def _open(which: TrialKey, corrected: Mapping[TrialKey, float], families: list[list[TrialKey]]) -> int:
    """Number of statements over which Holm's method corrects a trial: those that it does not reject."""
    return max(
        sum(other == which or corrected.get(other, 0.0) > LEVEL for other in family)
        for family in families
        if which in family
    )


_MOST = 1000
"""Replicates from which the data are said to lie at the threshold."""


def _undecided(trial: Trial, statements: tuple[int, int]) -> str:
    """What leaves a trial undecided, and how many more replicates like these would decide it.

    `statements` are the numbers of statements over which "supported" and "refuted" are corrected.
    """
    critical = [LEVEL / number for number in statements]
    over = labels.plural(max(statements), "statement")
    if not any(least <= p for least, p in zip(trial.attainable, critical, strict=True)):
        reason = (
            f"the number of {trial.replicate}s decides: {trial.fewest} are too few for a significant result, "
            f"even if all agreed{f', after correction over {over}' if max(statements) > 1 else ''}"
        )
    elif min(trial.uncorrected) <= LEVEL:
        verdict = decide(*trial.uncorrected)
        reason = f"the correction over {over} decides: this one alone would be {verdict}"
    else:
        reason = _of_values(trial.deciding, trial.replicate)
    counts = np.arange(trial.fewest + 1, _MOST + 1)
    supported, refuted = trial.repeated(counts)
    deciding = counts[(supported <= critical[0]) | (refuted <= critical[1])]
    if not len(deciding):
        return f"{reason}; the data lie at the threshold"
    more = int(deciding[0]) - trial.fewest
    return f"{reason}; {labels.plural(more, f'more {trial.replicate}')} like these would decide"


def _of_values(effect: Effect, replicate: str) -> str:
    """Whether a threshold of ours, the resolution or the data themselves leave an effect undecided."""
    more, less = effect.sides
    number = len(effect.values)
    equal, count = number - more - less, labels.plural(number, replicate)
    from_zero = sign_tests(effect.values)
    if effect.ours and min(from_zero.above, from_zero.below) <= LEVEL:
        side, beyond = max(("above", int(from_zero.more)), ("below", int(from_zero.less)), key=itemgetter(1))
        return (
            f"our threshold decides: {more} of {count} are above it, and {beyond} would be {side} a "
            "threshold of zero"
        )
    if min(p_of_signs(more + equal, number), p_of_signs(less + equal, number)) <= LEVEL:
        return f"the resolution of the measurement decides: {equal} of {count} equal the threshold"
    return f"the data do not decide: {more} of {count} are above the threshold"


def paired(frame: pd.DataFrame, replicate: Sequence[str]) -> pd.DataFrame:
    return frame.pivot_table("value", list(replicate), "rule", aggfunc="mean", observed=True)


def finite(values: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(values, dtype=float)
    return values[np.isfinite(values)]
