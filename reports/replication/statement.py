"""What the paper says, sentence by sentence, and how a ruling on it is made of results."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from sdp_bench.bench.runtime.table import Row
from sdp_bench.oracles.estimate.multiplicity import holm
from sdp_bench.reports.results import Results
from sdp_bench.reports.sections.claims.judging import Judgement, judge
from sdp_bench.reports.statistics.conventions import Verdicts
from sdp_bench.reports.statistics.verdicts import (
    MIN_NETS,
    Verdict,
    decide,
    mean_tests,
    p_of_every_part,
    p_of_some_part,
)
from sdp_bench.reports.style import labels

NOT_MEASURED = Verdicts({"": Verdict.NOT_MEASURED})


@dataclass(frozen=True)
class Answer:
    """What results say to a statement.

    Attributes
    ----------
    verdicts : Verdicts
        Under each convention that the paper leaves open; under one without a name where it leaves none.
    found : str
        Effect and interval in a sentence; without a ruling the reason why there is none.
    fidelity : str
        What it rests on, beside what the paper rests on.
    address : str
        Where in the report's folder the numbers are; empty where there are none.
    """

    verdicts: Verdicts
    found: str
    fidelity: str = ""
    address: str = ""

    @classmethod
    def certain(cls, *, holds: bool, found: str, fidelity: str = "", address: str = "") -> Answer:
        """Ruling that no sample enters, or one so large that its error does not matter."""
        verdict = Verdict.HOLDS if holds else Verdict.FAILS
        return cls(Verdicts({"": verdict}), found, fidelity, address)


@dataclass(frozen=True)
class Effect:
    """One part of a statement: the mean of an effect over replicates is above a threshold.

    Attributes
    ----------
    name : str
        What is measured, in `shown` units.
    values : ndarray, shape (replicates,)
        Finite.
    threshold : float
    shown : callable of float
        From the effect to what people read; monotone.
    choices : int
        Of how many effects it is one chosen for its size (at the best of so many scales); the statement is
        that one of them is above the threshold.
    """

    name: str
    values: NDArray[np.float64]
    threshold: float = 0.0
    shown: Callable[[float], float] = float
    choices: int = 1

    @functools.cached_property
    def p(self) -> tuple[float, float]:
        """p-values of "above the threshold" and of "below it".

        The first counts once for each choice (Bonferroni): the largest of several effects is above zero by
        noise alone. The second does not, since all of them have to be below and the largest is nearest.
        """
        tests = mean_tests(self.values, self.threshold)
        return min(1.0, self.choices * float(tests.above)), float(tests.below)

    @property
    def interval(self) -> str:
        """Mean with its 95 % interval (in brackets), where there are replicates enough for one."""
        mean = float(np.mean(self.values)) if len(self.values) else math.nan
        text = labels.number(self.shown(mean))
        if len(self.values) < MIN_NETS:
            return text
        found = mean_tests(self.values)
        low, high = sorted((self.shown(float(found.low)), self.shown(float(found.high))))
        return f"{text} ({labels.number(low)} to {labels.number(high)})"

    @property
    def needed(self) -> str:
        """What it has to be, as people read it."""
        sign = ">" if self.shown(1.0) > self.shown(-1.0) else "<"
        return f"{sign} {labels.number(self.shown(self.threshold))}"


@dataclass(frozen=True)
class Trial:
    """A statement's parts, measured on replicates: it holds if every part does.

    Attributes
    ----------
    effects : tuple of Effect
    replicate : str
        What is drawn anew from one value of an effect to the next: ``net``, ``seed``, ``image``.
    """

    effects: tuple[Effect, ...]
    replicate: str

    @property
    def fewest(self) -> int:
        """Replicates of the part that has the fewest."""
        return min(len(effect.values) for effect in self.effects)

    @functools.cached_property
    def p(self) -> tuple[float, float]:
        """p-values of "every part holds" and of "some part fails", not corrected over statements."""
        above, below = ([effect.p[side] for effect in self.effects] for side in (0, 1))
        return float(p_of_every_part(above)), float(p_of_some_part(below))

    @property
    def deciding(self) -> Effect:
        """The part that lies worst for the statement, in standard errors."""

        def surplus(effect: Effect) -> float:
            values = effect.values - effect.threshold
            error = float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0
            mean = float(values.mean())
            return mean / error if error else math.copysign(math.inf, mean)

        return min(self.effects, key=surplus)

    @property
    def found(self) -> str:
        """The part that decides, with its effect, its interval and what it would have to be."""
        worst = self.deciding
        parts = f"; of {len(self.effects)} parts this decides" if len(self.effects) > 1 else ""
        few = f", at least {MIN_NETS} are needed" if self.fewest < MIN_NETS else ""
        count = labels.plural(len(worst.values), self.replicate)
        chosen = f"; the best of {worst.choices}" if worst.choices > 1 else ""
        return f"{worst.name}: {worst.interval}, needed {worst.needed} ({count}{few}{chosen}{parts})"


Convention = tuple[str, ...]
"""How choices that the paper leaves open are made: of those that matter to a statement, each in a word."""


@dataclass(frozen=True)
class Tried:
    """Trials of a statement under each convention, what they rest on and where the numbers are."""

    trials: Mapping[Convention, Trial]
    fidelity: str = ""
    address: str = ""

    @classmethod
    def of(
        cls,
        effects: Mapping[Convention, Iterable[Effect]],
        replicate: str,
        fidelity: str = "",
        address: str = "",
    ) -> Tried | None:
        """Trials under those conventions of which every part was measured; None where there is none."""
        parts = {convention: tuple(own) for convention, own in effects.items()}
        trials = {
            convention: Trial(own, replicate)
            for convention, own in parts.items()
            if own and all(len(effect.values) for effect in own)
        }
        return cls(trials, fidelity, address) if trials else None


class Evidence:
    """Results, as the rulings ask them.

    Parameters
    ----------
    results : Results
    """

    def __init__(self, results: Results) -> None:
        self.results = results
        self._of: dict[str, pd.DataFrame] = {}

    def of(self, experiment: str, **where: object) -> pd.DataFrame:
        """Measurements of an experiment, of these those with given values in some columns."""
        if experiment not in self._of:
            frame = self.results.frame
            self._of[experiment] = frame[frame["experiment"] == experiment]
        own = self._of[experiment]
        for column, value in where.items():
            own = own[own[column] == value]
        return own

    @functools.cached_property
    def judgements(self) -> Mapping[str, Judgement]:
        """Judgements on the claims about the simulation's tables, by their keys."""
        return {one.claim.key: one for one in judge(self.results.frame, self.results.traits)}

    def timed(self, architecture: str, method: str, phase: str = "forward") -> Row | None:
        """What ``sdp-bench runtime`` timed of a method; None where it did not."""
        for row in self.results.runtime:
            if (row.architecture, row.method, row.phase) == (architecture, method, phase):
                return row
        return None


Rule = Callable[[Evidence], "Answer | Tried | None"]


@dataclass(frozen=True)
class Statement:
    """Something that the paper says and that could be otherwise.

    Attributes
    ----------
    key : str
        Anchor on the page.
    lines : tuple of (int, int)
        First and last line of it in the paper's source.
    quote : str
        Its words, without their markup.
    reading : str
        How we read them: what is measured, and what has to come out.
    rule : callable of Evidence, optional
        The ruling; it gives None where nothing was measured. Without it there is none, for a `reason`.
    reason : str
    """

    key: str
    lines: tuple[int, int]
    quote: str
    reading: str = ""
    rule: Rule | None = None
    reason: str = ""


@dataclass(frozen=True)
class Topic:
    """Statements of one part of the paper. They are one family: what is tested is corrected over them."""

    key: str
    title: str
    statements: tuple[Statement, ...]


@dataclass(frozen=True)
class Ruled:
    """A statement with what became of it."""

    statement: Statement
    answer: Answer


@dataclass(frozen=True)
class RuledTopic:
    """A topic with what became of its statements."""

    topic: Topic
    statements: tuple[Ruled, ...]


def ruled(topic: Topic, evidence: Evidence) -> RuledTopic:
    """Rule on every statement of a topic.

    Parameters
    ----------
    topic : Topic
    evidence : Evidence

    Returns
    -------
    RuledTopic
        p-values of trials under one convention are corrected by Holm's method over the topic's statements,
        with those under conventions that settle less (none at all, say).
    """
    answers: dict[str, Answer] = {}
    tried: dict[str, Tried] = {}
    for statement in topic.statements:
        one = statement.rule(evidence) if statement.rule else None
        if isinstance(one, Tried):
            tried[statement.key] = one
        elif one is None:
            reason = statement.reason or "nothing that it is about is among these results"
            answers[statement.key] = Answer(NOT_MEASURED, reason)
        else:
            answers[statement.key] = one
    verdicts = _verdicts(tried)
    for key, one in tried.items():
        fails = [each for each in one.trials if verdicts[key, each] is Verdict.FAILS]
        shown = (fails or list(one.trials))[0]
        found = one.trials[shown].found
        words = f"{_name(shown)}: {found}" if len(one.trials) > 1 else found
        by_convention = {_name(each): verdicts[key, each] for each in one.trials}
        answers[key] = Answer(Verdicts(by_convention), words, one.fidelity, one.address)
    return RuledTopic(topic, tuple(Ruled(one, answers[one.key]) for one in topic.statements))


def _verdicts(tried: Mapping[str, Tried]) -> dict[tuple[str, Convention], Verdict]:
    """Verdicts on statements under conventions, corrected over the statements tried under each."""
    # A convention may settle less than another does: what was tried under it belongs to the family of each
    # that settles as much and more, and takes the largest of its p-values.
    verdicts: dict[tuple[str, Convention], Verdict] = {}
    largest: dict[tuple[str, Convention], tuple[float, float]] = {}
    every = {(key, each): trial for key, one in tried.items() for each, trial in one.trials.items()}
    verdicts |= {which: Verdict.UNDECIDED for which, trial in every.items() if trial.fewest < MIN_NETS}
    for convention in {each for _, each in every}:
        family = [which for which in every if which not in verdicts and set(which[1]) <= set(convention)]
        if not family:
            continue
        holds = holm([every[which].p[0] for which in family])
        fails = holm([every[which].p[1] for which in family])
        for which, one, other in zip(family, holds.tolist(), fails.tolist(), strict=True):
            before = largest.get(which, (0.0, 0.0))
            largest[which] = (max(before[0], one), max(before[1], other))
    return verdicts | {which: decide(*p) for which, p in largest.items()}


def _name(convention: Convention) -> str:
    return ", ".join(convention)


def paired(frame: pd.DataFrame, replicate: Sequence[str]) -> pd.DataFrame:
    """Mean values for each replicate (rows) and rule (columns)."""
    return frame.pivot_table("value", list(replicate), "rule", aggfunc="mean", observed=True)


def finite(values: ArrayLike) -> NDArray[np.float64]:
    """Those of some values that are finite."""
    values = np.asarray(values, dtype=float)
    known: NDArray[np.float64] = values[np.isfinite(values)]
    return known


def tried(effects: Iterable[Effect], replicate: str, fidelity: str = "", address: str = "") -> Tried | None:
    """Trial where the paper leaves no convention open; None where a part has no replicate at all."""
    return Tried.of({(): effects}, replicate, fidelity, address)
