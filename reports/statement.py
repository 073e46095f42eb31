"""Statements of the paper, and how results decide on them."""

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
from sdp_bench.reports.statistics.verdicts import (
    LEVEL,
    MANY_NETS,
    MIN_NETS,
    ORDER,
    MeanTests,
    Outcome,
    Verdict,
    Verdicts,
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
"""Choices that the paper leaves open, a word for each that matters to a statement."""

OTHER_TRAINING = frozenset({"other recipe", "standardised features"})
"""Conventions for training the simulated nets that differ from that of all experiments."""

Which = tuple[str, Convention]
"""A trial: the key of its statement, and the convention."""


@dataclass(frozen=True, eq=False)
class Effect:
    """One part of a statement: the mean of an effect over replicates is above a threshold.

    `name` is the measured quantity in `shown` units; `shown` is a monotone function from the effect to the
    number for readers. `values` has the shape (replicates,); an effect with values that are not finite is not
    tested. `choices` is the number of effects from which this one was chosen for its size (the best of
    several scales, say); the statement is then that one of them is above the threshold. `against` is the
    number of alternatives from which the best was chosen for comparison, which makes the effect smaller.
    `sentence` is the finding in words, with ``{value}``, or ``{size}`` and ``{side}`` (default: the name).
    `ours` says whether the threshold is a margin of ours around 0. `sigma` are noise levels that are not part
    of the name. `sources` are names and addresses of the lists of measurements.
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
        """Tests of the mean; None without two finite replicates."""
        if len(self.values) < 2 or not np.isfinite(self.values).all():
            return None
        return mean_tests(self.values, self.threshold)

    @property
    def p(self) -> tuple[float, float]:
        """p-values of "above the threshold" and of "below it"."""
        # By noise alone the largest of several effects is above zero, and an effect is below zero if it is
        # compared with the best of several alternatives. Each p-value is multiplied by the number of choices
        # that favour it (Bonferroni). Choices on the other side make it larger.
        if self.tests is None or len(self.values) < MIN_NETS:
            return 1.0, 1.0
        above, below = float(self.tests.above), float(self.tests.below)
        return min(1.0, self.choices * above), min(1.0, self.against * below)

    @property
    def range(self) -> tuple[float, float, float]:
        """Mean and ends of its 95 % interval as shown to readers; NaN without an interval."""
        mean = (
            float(np.mean(self.values)) if len(self.values) and np.isfinite(self.values).all() else math.nan
        )
        if self.tests is None or len(self.values) < MIN_NETS:
            return self.shown(mean) if math.isfinite(mean) else mean, math.nan, math.nan
        low, high = sorted((self.shown(float(self.tests.low)), self.shown(float(self.tests.high))))
        return self.shown(mean), low, high

    @property
    def interval(self) -> str:
        """Mean with its interval in brackets, if there are enough replicates."""
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
        return mean / error if error else math.copysign(math.inf, mean) if mean else 0.0

    @property
    def leaning(self) -> str:
        """Side of the threshold on which the 95 % interval lies: "above", "below", or empty."""
        if self.tests is None or len(self.values) < MIN_NETS:
            return ""
        if self.tests.low > self.threshold:
            return "above"
        return "below" if self.tests.high < self.threshold else ""

    @property
    def found(self) -> str:
        mean, low, high = self.range
        if not self.sentence:
            return f"{self.name}: {self.interval}"
        size = labels.interval(-mean, -high, -low) if mean < 0 else self.interval
        words = {"{value}": self.interval, "{size}": size, "{side}": "below" if mean < 0 else "above"}
        sentence = self.sentence
        for name, text in words.items():  # rule labels may contain braces
            sentence = sentence.replace(name, text)
        return sentence


@dataclass(frozen=True, eq=False)
class Trial:
    """Parts of a statement, measured on replicates: the statement is supported if every part is.

    `replicate` is the unit that is drawn independently for each value of an effect: ``net``, ``seed``,
    ``image``.
    """

    effects: tuple[Effect, ...]
    replicate: str

    @property
    def fewest(self) -> int:
        """Smallest number of replicates of a part."""
        return min(len(effect.values) for effect in self.effects)

    @property
    def most(self) -> int:
        """Largest number of replicates of a part: a single part can refute the statement."""
        return max(len(effect.values) for effect in self.effects)

    @functools.cached_property
    def p(self) -> tuple[float, float]:
        """p-values of "every part is above" and "some part is below", not corrected over statements."""
        above, below = ([effect.p[side] for effect in self.effects] for side in (0, 1))
        return float(p_of_every_part(above)), float(p_of_some_part(below))

    @property
    def deciding(self) -> Effect:
        """The least favourable part, in standard errors."""
        refuted = [effect for effect in self.effects if effect.leaning == "below"]
        return min(refuted or self.effects, key=lambda effect: effect.surplus)

    @property
    def found(self) -> str:
        worst = self.deciding
        parts = f"; the least favourable of {len(self.effects)} parts" if len(self.effects) > 1 else ""
        few = f", at least {MIN_NETS} are needed" if self.fewest < MIN_NETS else ""
        infinite = int((~np.isfinite(worst.values)).sum())
        gone = f"; not finite in {infinite}" if infinite else ""
        count = labels.plural(self.fewest if few else len(worst.values), self.replicate)
        chosen = f"; the best of {worst.choices}" if worst.choices > 1 else ""
        if worst.against > 1:
            chosen += f"; compared with the best of {worst.against}"
        return f"{worst.found}, needed {worst.needed} ({count}{few}{gone}{chosen}{parts})"

    def attainable(self) -> tuple[float, float]:
        """p-values that replicates with a scatter of 1 % of an effect would have, in either direction."""

        # They depend only on the numbers of replicates: if even these do not decide, they are too small.
        def least(count: int) -> float:
            scatter = np.linspace(-1, 1, count)
            return (
                float(mean_tests(1 + 0.01 * scatter / scatter.std(ddof=1)).above)
                if count >= MIN_NETS
                else 1.0
            )

        above = max(effect.choices for effect in self.effects) * least(self.fewest)
        below = min(effect.against * least(len(effect.values)) for effect in self.effects)
        return min(1.0, above), min(1.0, len(self.effects) * below)


@dataclass(frozen=True)
class Tried:
    """Trials of a statement by convention, and their sources.

    `fidelity` compares the design of the measurements with the paper's. `address` is that of the numbers in
    the report's folder, empty without any. `lacking` are the missing measurements of conventions with some.
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
        """Trials of the conventions for which every part was measured; None without any."""
        parts = {convention: tuple(own) for convention, own in effects.items()}
        trials = {
            convention: Trial(own, replicate)
            for convention, own in parts.items()
            if own and all(len(effect.values) for effect in own)
        }
        return cls(trials, fidelity, address) if trials else None


@dataclass(frozen=True, eq=False)
class Ruling:
    """Verdict on a statement under one convention.

    `trial` is None if something was not measured. `supported` and `refuted` are p-values, corrected over the
    family. `reason` says why a statement is undecided, or what was not measured.
    """

    convention: Convention
    verdict: Verdict
    trial: Trial | None = None
    supported: float = 1.0
    refuted: float = 1.0
    reason: str = ""

    @property
    def name(self) -> str:
        return ", ".join(self.convention)


@dataclass(frozen=True)
class Answer:
    """Verdicts of the results on a statement.

    `verdicts` are by convention, with an empty name if the paper leaves nothing open. `found` is a sentence
    with effect and interval, or the reason why there is no verdict. `rulings` are by convention, and empty if
    nothing was tested. `fidelity` and `address` are those of :class:`Tried`.
    """

    verdicts: Verdicts
    found: str
    fidelity: str = ""
    address: str = ""
    rulings: tuple[Ruling, ...] = ()

    @classmethod
    def certain(cls, *, holds: bool, found: str, fidelity: str = "", address: str = "") -> Answer:
        """Answer without samples, or with so many that their error does not matter."""
        verdict = Verdict.SUPPORTED if holds else Verdict.REFUTED
        return cls(Verdicts({"": verdict}), found, fidelity, address)

    @property
    def measured(self) -> bool:
        return self.verdicts.outcome is not Outcome.NOT_MEASURED

    @property
    def why(self) -> str:
        """Reasons why it is undecided, each with its conventions; empty if it is decided."""
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
    """Results, as rules use them; `dvia` is the version for statements about DVIA."""

    def __init__(self, results: Results, dvia: str = PUBLISHED) -> None:
        self.results, self.dvia = results, dvia
        self._made: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Cache something made from the results."""
        if key not in self._made:
            self._made[key] = make()
        made: T = self._made[key]
        return made

    def of(self, experiment: str, **where: object) -> pd.DataFrame:
        """Measurements of an experiment with given values in some columns."""
        frame = self.results.frame
        own = self.once(experiment, lambda: frame[frame["experiment"] == experiment])
        for column, value in where.items():
            own = own[own[column] == value]
        return own

    def timed(self, architecture: str, method: str, phase: str = "forward") -> Row | None:
        for row in self.results.runtime:
            if (row.architecture, row.method, row.phase) == (architecture, method, phase):
                return row
        return None


Rule = Callable[[Evidence], "Answer | Tried | None"]


@dataclass(frozen=True)
class Statement:
    """A testable statement of the paper.

    `key` is its anchor on the page. `lines` are the first and last lines in the paper's source, and `quote`
    is the text without markup. `reading` says what is measured and which outcome supports it. `rule` decides
    on the statement and returns None if nothing was measured; a statement without a rule has a `reason`. With
    `dvia` it is judged for both versions of DVIA.
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
    """Statements of one part of the paper: a family over which tests are corrected."""

    key: str
    title: str
    statements: tuple[Statement, ...]


@dataclass(frozen=True)
class Ruled:
    """A statement with its answer, and for statements about DVIA the answer for :data:`REGULAR`."""

    statement: Statement
    answer: Answer
    regular: Answer | None = None

    @property
    def versions(self) -> list[tuple[str, Answer]]:
        both = [("as published", self.answer), ("regular pass", self.regular)]
        return [(name, answer) for name, answer in both if answer]

    @property
    def rows(self) -> dict[str, list[tuple[str, Ruling]]]:
        """Measured rulings by version of DVIA, on nets trained as in all experiments and otherwise."""
        every = [(name, r) for name, answer in self.versions for r in answer.rulings if r.trial]
        others = [row for row in every if set(row[1].convention) & OTHER_TRAINING]
        return {"first": [row for row in every if row not in others], "others": others}


@dataclass(frozen=True)
class RuledTopic:
    """A topic with the answers to its statements."""

    topic: Topic
    statements: tuple[Ruled, ...]


def ruled(topic: Topic, evidence: Evidence) -> RuledTopic:
    """Judge every statement of a topic; statements about DVIA for both versions."""
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
            reason = statement.reason or "not measured in these results"
            answers[statement.key] = Answer(Verdicts({"": Verdict.NOT_MEASURED}), reason)
        else:
            answers[statement.key] = one
    rulings = _rulings(tried)
    for key, one in tried.items():
        own = rulings[key]
        first = min((ruling.verdict for ruling in own), key=ORDER.index)
        candidates = [ruling for ruling in own if ruling.verdict is first]
        shown = min(candidates, key=_surplus) if first is Verdict.REFUTED else candidates[0]
        found = shown.trial.found if shown.trial else shown.reason
        words = f"{shown.name}: {found}" if len(own) > 1 else found
        verdicts = Verdicts({ruling.name: ruling.verdict for ruling in own})
        answers[key] = Answer(verdicts, words, one.fidelity, one.address, own)
    return answers


def _surplus(ruling: Ruling) -> float:
    """Standard errors between the deciding part and its threshold, which compare parts of different units."""
    return ruling.trial.deciding.surplus if ruling.trial else math.inf


def _rulings(tried: Mapping[str, Tried]) -> dict[str, tuple[Ruling, ...]]:
    """Verdicts by statement and convention, corrected over the statements tried under each (Holm)."""
    every = {(key, each): trial for key, one in tried.items() for each, trial in one.trials.items()}
    enough = {which: trial for which, trial in every.items() if trial.most >= MIN_NETS}
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
    # A convention may settle less than another. A trial under it belongs to the family of each convention
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
    """Reason why a trial is undecided: replicates, correction, our threshold, or the data."""
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
        few = f" and for only {count}" if trial.fewest < MANY_NETS else ""
        return (
            "the data do not decide: the interval of this effect alone excludes the threshold, the test does "
            f"not, which is corrected over {labels.plural(family, 'statement')}{few}"
        )
    if not np.isfinite(deciding.values).all():
        return "the data do not decide: some effects are not finite"
    tests = deciding.tests
    # Known so well that another threshold of this size would have decided.
    precise = tests and tests.high - tests.low <= 2 * abs(deciding.threshold)
    if deciding.ours and tests and precise and not tests.low <= 0 <= tests.high:
        return "the threshold decides: the effect is known to within our threshold, and lies close to it"
    return "the data do not decide: the interval contains the threshold"


def paired(frame: pd.DataFrame, replicate: Sequence[str]) -> pd.DataFrame:
    """Mean values by replicate (rows) and rule (columns)."""
    return frame.pivot_table("value", list(replicate), "rule", aggfunc="mean", observed=True)


def finite(values: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(values, dtype=float)
    known: NDArray[np.float64] = values[np.isfinite(values)]
    return known


def tried(effects: Iterable[Effect], replicate: str, fidelity: str = "", address: str = "") -> Tried | None:
    """Trial without open conventions; None if a part has no replicates."""
    return Tried.of({(): effects}, replicate, fidelity, address)
