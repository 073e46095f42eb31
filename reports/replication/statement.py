"""What the paper says, sentence by sentence, and how a ruling on it is made of results."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from sdp_bench.bench.runtime.table import Row
from sdp_bench.oracles.estimate.multiplicity import holm
from sdp_bench.reports.results import Results
from sdp_bench.reports.statistics.conventions import Outcome, Verdicts
from sdp_bench.reports.statistics.verdicts import (
    LEVEL,
    MIN_NETS,
    MeanTests,
    Verdict,
    decide,
    mean_tests,
    p_of_every_part,
    p_of_some_part,
)
from sdp_bench.reports.style import labels

T = TypeVar("T")

PUBLISHED, REGULAR = "dvia", "dvia:means=regular_covariance"
"""DVIA as published, and with its covariance at the means of the regular pass, as in the paper's numbers."""

Convention = tuple[str, ...]
"""The choices that the paper leaves open, a word for each that matters to a statement."""

OTHER_TRAINING = frozenset({"other recipe", "standardised features"})
"""Conventions for the training of the simulated nets, besides that of all suites."""

Which = tuple[str, Convention]
"""A trial: the key of its statement and the convention."""


@dataclass(frozen=True)
class Effect:
    """One part of a statement: the mean of an effect over replicates is above a threshold.

    Attributes
    ----------
    name : str
        The measured quantity, in `shown` units.
    values : ndarray, shape (replicates,)
        An effect with values that are not finite is not tested.
    threshold : float
    shown : callable of float
        Monotone map from the effect to the number that readers see.
    choices : int
        Number of effects that this one was chosen from for its size (the best of several scales, say). The
        statement is then that one of them is above the threshold.
    sentence : str
        The finding in words, with ``{value}``, or ``{size}`` and ``{side}``; by default the name.
    sigma : str
        Noise levels, where they are not part of the name.
    sources : tuple of (str, str)
        Names and addresses of the lists of measurements behind it.
    """

    name: str
    values: NDArray[np.float64]
    threshold: float = 0.0
    shown: Callable[[float], float] = float
    choices: int = 1
    sentence: str = ""
    sigma: str = ""
    sources: tuple[tuple[str, str], ...] = ()

    @functools.cached_property
    def tests(self) -> MeanTests | None:
        """Tests of the mean; None without two finite replicates."""
        if len(self.values) < 2 or not np.isfinite(self.values).all():
            return None
        return mean_tests(self.values, self.threshold)

    @property
    def p(self) -> tuple[float, float]:
        """p-values of "above the threshold" and of "below it"."""
        # The first counts once for each choice (Bonferroni): the largest of several effects is above zero by
        # noise alone. The second does not, since all of them have to be below and the largest is nearest.
        if self.tests is None:
            return 1.0, 1.0
        return min(1.0, self.choices * float(self.tests.above)), float(self.tests.below)

    @property
    def range(self) -> tuple[float, float, float]:
        """Mean and ends of its 95 % interval as readers see them; NaN where there is no interval."""
        mean = (
            float(np.mean(self.values)) if len(self.values) and np.isfinite(self.values).all() else math.nan
        )
        if self.tests is None or len(self.values) < MIN_NETS:
            return self.shown(mean), math.nan, math.nan
        low, high = sorted((self.shown(float(self.tests.low)), self.shown(float(self.tests.high))))
        return self.shown(mean), low, high

    @property
    def interval(self) -> str:
        """Mean with its interval in brackets, where there are enough replicates for one."""
        return labels.interval(*self.range)

    @property
    def mean(self) -> str:
        """Mean, with as many digits as its interval."""
        return self.interval.partition(" (")[0]

    @property
    def ends(self) -> str:
        """Ends of the interval; empty without one."""
        return self.interval.partition(" (")[2].removesuffix(")")

    @property
    def needed(self) -> str:
        """The threshold as readers see it, with the direction: ``> −0.01``."""
        sign = ">" if self.shown(1.0) > self.shown(-1.0) else "<"
        return f"{sign} {labels.number(self.shown(self.threshold))}"

    @property
    def leaning(self) -> str:
        """On which side of the threshold its 95 % interval lies: "above", "below", or empty."""
        if self.tests is None or len(self.values) < MIN_NETS:
            return ""
        if self.tests.low > self.threshold:
            return "above"
        return "below" if self.tests.high < self.threshold else ""

    @property
    def found(self) -> str:
        """Effect and interval in words."""
        mean, low, high = self.range
        if not self.sentence:
            return f"{self.name}: {self.interval}"
        size = labels.interval(-mean, -high, -low) if mean < 0 else self.interval
        return self.sentence.format(value=self.interval, size=size, side="below" if mean < 0 else "above")


@dataclass(frozen=True)
class Trial:
    """A statement's parts, measured on replicates: the statement is supported if every part is.

    Attributes
    ----------
    effects : tuple of Effect
    replicate : str
        The unit that is drawn independently for each value of an effect: ``net``, ``seed``, ``image``.
    """

    effects: tuple[Effect, ...]
    replicate: str

    @property
    def fewest(self) -> int:
        """Replicates of the part that has the fewest."""
        return min(len(effect.values) for effect in self.effects)

    @functools.cached_property
    def p(self) -> tuple[float, float]:
        """p-values of "every part is above" and of "some part is below", not corrected over statements."""
        above, below = ([effect.p[side] for effect in self.effects] for side in (0, 1))
        return float(p_of_every_part(above)), float(p_of_some_part(below))

    @property
    def deciding(self) -> Effect:
        """The part that is worst for the statement, in standard errors."""

        def surplus(effect: Effect) -> float:
            values = effect.values - effect.threshold
            if not np.isfinite(values).all():
                return -math.inf
            error = float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0
            mean = float(values.mean())
            return mean / error if error else math.copysign(math.inf, mean) if mean else 0.0

        refuted = [effect for effect in self.effects if effect.leaning == "below"]
        return min(refuted or self.effects, key=surplus)

    @property
    def found(self) -> str:
        """The deciding part, with its effect, its interval and the threshold."""
        worst = self.deciding
        parts = f"; of {len(self.effects)} parts this decides" if len(self.effects) > 1 else ""
        few = f", at least {MIN_NETS} are needed" if self.fewest < MIN_NETS else ""
        infinite = int((~np.isfinite(worst.values)).sum())
        gone = f"; not finite in {infinite}" if infinite else ""
        count = labels.plural(len(worst.values), self.replicate)
        chosen = f"; the best of {worst.choices}" if worst.choices > 1 else ""
        return f"{worst.found}, needed {worst.needed} ({count}{few}{gone}{chosen}{parts})"

    def attainable(self) -> tuple[float, float]:
        """The p-values if replicates scattered by only 1 % of an effect in either direction."""
        # They depend on the number of replicates alone: if even these do not decide, it is too small.
        scatter = np.linspace(-1, 1, self.fewest)
        least = float(mean_tests(1 + 0.01 * scatter / scatter.std(ddof=1)).above)
        most_chosen = max(effect.choices for effect in self.effects)
        return min(1.0, most_chosen * least), min(1.0, len(self.effects) * least)


@dataclass(frozen=True)
class Tried:
    """Trials of a statement under each convention, what they rest on and where the numbers are.

    Attributes
    ----------
    trials : mapping of Convention to Trial
    fidelity : str
        The design of the measurements, compared with the paper's.
    address : str
        Where in the report's folder the numbers are; empty where there are none.
    lacking : mapping of Convention to str
        The missing measurements of a convention under which some were made.
    """

    trials: Mapping[Convention, Trial]
    fidelity: str = ""
    address: str = ""
    lacking: Mapping[Convention, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        effects: Mapping[Convention, Iterable[Effect]],
        replicate: str,
        fidelity: str = "",
        address: str = "",
    ) -> Tried | None:
        """Trials under the conventions that have every part measured; None if there are none."""
        parts = {convention: tuple(own) for convention, own in effects.items()}
        trials = {
            convention: Trial(own, replicate)
            for convention, own in parts.items()
            if own and all(len(effect.values) for effect in own)
        }
        return cls(trials, fidelity, address) if trials else None


@dataclass(frozen=True)
class Ruling:
    """The verdict on a statement under one convention.

    Attributes
    ----------
    convention : Convention
    verdict : Verdict
    trial : Trial, optional
        None if something is not measured.
    supported, refuted : float
        p-values, corrected over the family.
    reason : str
        Why an undecided statement is undecided, or what was not measured.
    """

    convention: Convention
    verdict: Verdict
    trial: Trial | None = None
    supported: float = 1.0
    refuted: float = 1.0
    reason: str = ""

    @property
    def name(self) -> str:
        """The convention in words."""
        return ", ".join(self.convention)


@dataclass(frozen=True)
class Answer:
    """What results say to a statement.

    Attributes
    ----------
    verdicts : Verdicts
        Under each convention that the paper leaves open; under one without a name where it leaves none.
    found : str
        Effect and interval in a sentence; without a verdict the reason why there is none.
    fidelity, address : str
        See :class:`Tried`.
    rulings : tuple of Ruling
        By convention; empty where nothing was tested.
    """

    verdicts: Verdicts
    found: str
    fidelity: str = ""
    address: str = ""
    rulings: tuple[Ruling, ...] = ()

    @classmethod
    def certain(cls, *, holds: bool, found: str, fidelity: str = "", address: str = "") -> Answer:
        """An answer that no sample enters, or one so large that its error does not matter."""
        verdict = Verdict.SUPPORTED if holds else Verdict.REFUTED
        return cls(Verdicts({"": verdict}), found, fidelity, address)

    @property
    def measured(self) -> bool:
        """Whether there is a verdict under any convention."""
        return self.verdicts.outcome is not Outcome.NOT_MEASURED

    @property
    def why(self) -> str:
        """Why it is undecided, for each reason the conventions that have it; empty if it is decided."""
        if self.verdicts.outcome is not Outcome.UNDECIDED:
            return ""
        reasons: dict[str, list[str]] = {}
        for ruling in self.rulings:
            if ruling.verdict is Verdict.UNDECIDED:
                reasons.setdefault(ruling.reason, []).append(ruling.name)
        if len(reasons) == 1:
            return next(iter(reasons))
        return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())


class Evidence:
    """Results, as the rulings ask them.

    Parameters
    ----------
    results : Results
    dvia : str
        The rule that statements about DVIA are judged against.
    """

    def __init__(self, results: Results, dvia: str = PUBLISHED) -> None:
        self.results, self.dvia = results, dvia
        self._made: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Something made of the results, on the first call only."""
        if key not in self._made:
            self._made[key] = make()
        made: T = self._made[key]
        return made

    def of(self, experiment: str, **where: object) -> pd.DataFrame:
        """Measurements of an experiment, of these those with given values in some columns."""
        frame = self.results.frame
        own = self.once(experiment, lambda: frame[frame["experiment"] == experiment])
        for column, value in where.items():
            own = own[own[column] == value]
        return own

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
    dvia : bool
        Whether it compares with DVIA, so that it is judged against both.
    """

    key: str
    lines: tuple[int, int]
    quote: str
    reading: str = ""
    rule: Rule | None = None
    reason: str = ""
    dvia: bool = False


@dataclass(frozen=True)
class Topic:
    """Statements of one part of the paper. They are one family: what is tested is corrected over them."""

    key: str
    title: str
    statements: tuple[Statement, ...]


@dataclass(frozen=True)
class Ruled:
    """A statement with its answer, and for statements about DVIA the answer against :data:`REGULAR`."""

    statement: Statement
    answer: Answer
    regular: Answer | None = None

    @property
    def versions(self) -> list[tuple[str, Answer]]:
        """Answers by the version of DVIA."""
        both = [("as published", self.answer), ("regular pass", self.regular)]
        return [(name, answer) for name, answer in both if answer]

    @property
    def rows(self) -> dict[str, list[tuple[str, Ruling]]]:
        """Measured rulings with the version of DVIA: on nets trained as in all suites, and in other ways."""
        every = [(name, r) for name, answer in self.versions for r in answer.rulings if r.trial]
        others = [row for row in every if set(row[1].convention) & OTHER_TRAINING]
        return {"first": [row for row in every if row not in others], "others": others}


@dataclass(frozen=True)
class RuledTopic:
    """A topic with the answers to its statements."""

    topic: Topic
    statements: tuple[Ruled, ...]


def ruled(topic: Topic, evidence: Evidence) -> RuledTopic:
    """Judge every statement of a topic; statements about DVIA against both of its versions."""
    published = _answers(topic, evidence)
    regular = {}
    if any(statement.dvia for statement in topic.statements):
        regular = _answers(topic, Evidence(evidence.results, REGULAR))
    return RuledTopic(
        topic,
        tuple(
            Ruled(
                one, published[one.key], regular[one.key] if one.dvia and regular[one.key].measured else None
            )
            for one in topic.statements
        ),
    )


def _answers(topic: Topic, evidence: Evidence) -> dict[str, Answer]:
    answers: dict[str, Answer] = {}
    tried: dict[str, Tried] = {}
    for statement in topic.statements:
        one = statement.rule(evidence) if statement.rule else None
        if isinstance(one, Tried):
            tried[statement.key] = one
        elif one is None:
            reason = statement.reason or "nothing that it is about is among these results"
            answers[statement.key] = Answer(Verdicts({"": Verdict.NOT_MEASURED}), reason)
        else:
            answers[statement.key] = one
    rulings = _rulings(tried)
    for key, one in tried.items():
        own = rulings[key]
        shown = next((r for r in own if r.verdict is Verdict.REFUTED), own[0])
        if shown.verdict is Verdict.REFUTED:
            shown = max((r for r in own if r.verdict is Verdict.REFUTED), key=_violation)
        found = shown.trial.found if shown.trial else shown.reason
        words = f"{shown.name}: {found}" if len(own) > 1 else found
        verdicts = Verdicts({ruling.name: ruling.verdict for ruling in own})
        answers[key] = Answer(verdicts, words, one.fidelity, one.address, own)
    return answers


def _violation(ruling: Ruling) -> float:
    """How far the deciding part lies on the wrong side of its threshold."""
    if ruling.trial is None:
        return -math.inf
    deciding = ruling.trial.deciding
    return deciding.threshold - float(deciding.values.mean())


def _rulings(tried: Mapping[str, Tried]) -> dict[str, tuple[Ruling, ...]]:
    """Verdicts on statements under conventions, corrected over the statements tried under each (Holm)."""
    every = {(key, each): trial for key, one in tried.items() for each, trial in one.trials.items()}
    enough = {which: trial for which, trial in every.items() if trial.fewest >= MIN_NETS}
    raw = {which: trial.p for which, trial in enough.items()}
    families = _families(enough)
    p = _corrected(raw, families)
    rulings: dict[str, tuple[Ruling, ...]] = {}
    for key, one in tried.items():
        own = []
        for convention in dict.fromkeys((*one.trials, *one.lacking)):
            if convention in one.lacking:
                own.append(Ruling(convention, Verdict.NOT_MEASURED, reason=one.lacking[convention]))
                continue
            trial, which = one.trials[convention], (key, convention)
            verdict = decide(*p[which]) if which in p else Verdict.UNDECIDED
            reason = ""
            if verdict is Verdict.UNDECIDED:
                best = (
                    _corrected(raw | {which: trial.attainable()}, families)[which] if which in p else (1.0,)
                )
                family = max((len(each) for each in families if which in each), default=1)
                reason = _undecided(trial, min(best) <= LEVEL, family)
            own.append(Ruling(convention, verdict, trial, *p.get(which, (1.0, 1.0)), reason))
        rulings[key] = tuple(own)
    return rulings


def _families(tried: Iterable[Which]) -> list[list[Which]]:
    """Trials that are corrected together, for each convention."""
    # A convention may settle less than another: a trial under it belongs to the family of each convention
    # that settles as much and more.
    every = list(tried)
    return [
        [which for which in every if set(which[1]) <= set(convention)]
        for convention in {each for _, each in every}
    ]


def _corrected(
    p: Mapping[Which, tuple[float, float]], families: list[list[Which]]
) -> dict[Which, tuple[float, float]]:
    """p-values by Holm's method, the largest over the families of a trial."""
    largest = dict.fromkeys(p, (0.0, 0.0))
    for family in families:
        sides = (holm([p[which][side] for which in family]).tolist() for side in (0, 1))
        for which, one, other in zip(family, *sides, strict=True):
            largest[which] = (max(largest[which][0], one), max(largest[which][1], other))
    return largest


def _undecided(trial: Trial, could: bool, family: int) -> str:
    """Why a trial decides nothing: too few replicates, the correction, our threshold, or the data."""
    count = labels.plural(trial.fewest, trial.replicate)
    if trial.fewest < MIN_NETS:
        return f"the number of {trial.replicate}s cannot decide: {count}, at least {MIN_NETS} are needed"
    if not could:
        return (
            f"the number of {trial.replicate}s cannot decide: {count} would not, even if they scattered by "
            f"only 1 % of the effect, after correction over {labels.plural(family, 'statement')}"
        )
    deciding = trial.deciding
    if deciding.leaning:
        return (
            f"the data do not decide: the interval excludes the threshold, but not after correction over "
            f"{labels.plural(len(trial.effects), 'part')} and {labels.plural(family, 'statement')} ({count})"
        )
    if deciding.threshold and (tests := deciding.tests) and not tests.low <= 0 <= tests.high:
        return (
            "the threshold decides: the interval excludes equality and contains the threshold, which is ours"
        )
    return "the data do not decide: the interval contains the threshold"


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
