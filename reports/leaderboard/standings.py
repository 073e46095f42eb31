"""Rankings of submissions by use.

A setting is a net under one noise, with three inputs. The score of a rule is the mean over settings of the
mean over inputs. Its interval covers the variation over other inputs in the same settings. A rule is ranked
on the problems that it solved, among the rules that solved all of these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.metrics import metric as metric_of
from sdp_bench.bench.problems.problem_set import ProblemSet
from sdp_bench.bench.submissions.checking import violations
from sdp_bench.bench.submissions.submission import Cost, Guarantee, Numbers, Submission
from sdp_bench.bench.text import printable

_NORMAL = 1.96  # quantile of a two-sided 95 % interval
_WORST = math.log(100.0)
"""Bound on |log ratio|: the ratio is 0 for events that were predicted to be impossible."""


@dataclass(frozen=True)
class Use:
    """A use of predictions.

    `unit` is that of the score, for table headers. `metrics` are alternative metrics, one of which a setting
    has. `heavy` marks the use for noise without a variance. `shown` converts a score for display.
    """

    name: str
    title: str
    about: str
    unit: str
    metrics: tuple[str, ...]
    heavy: bool = False
    shown: Callable[[float], float] = float


USES = (
    Use(
        "law",
        "Whole law",
        "Total variation between the predicted law of all outputs and the true one: the probability that is "
        "in the wrong place. In 128 cells of equal mass; of ten outputs, the largest over pairs of principal "
        "axes.",
        "TV",
        ("tv_headline", "tv_principal"),
    ),
    Use(
        "decision",
        "Class decision",
        "Total variation between the predicted and the true distribution of the class (arg max of the "
        "outputs).",
        "TV",
        ("tv_class",),
    ),
    Use(
        "intervals",
        "Prediction intervals",
        "By how much the true mass of the predicted central intervals of single outputs (50 %, 90 %, 95 %) "
        "misses what they should hold.",
        "|miss|",
        ("coverage",),
    ),
    Use(
        "deviations",
        "Standard deviations",
        "The factor by which the predicted standard deviation of an output is off, up or down (geometric "
        "mean); 1 is right.",
        "factor",
        ("std_ratio",),
        shown=math.exp,
    ),
    Use(
        "tails",
        "Tails",
        "The factor by which the predicted probability of an output beyond its true 90 %, 99 %, 99.9 % and "
        "99.99 % points is off, up or down, at most 100 (geometric mean); 1 is right.",
        "factor",
        ("tails",),
        shown=math.exp,
    ),
    Use(
        "heavy",
        "Heavy tails",
        "Cauchy noise: total variation between the predicted and the true law of all outputs together.",
        "TV",
        ("tv_joint",),
        heavy=True,
    ),
)
"""Uses in the order of the page; the first one orders the table of all entries."""


@dataclass(frozen=True)
class Score:
    """Score of a rule for a use.

    `places` are scores by setting and problem, lower is better, and `asked` is the number of problems.
    """

    places: Mapping[str, Mapping[str, float]]
    asked: int
    shown: Callable[[float], float] = float

    @property
    def measured(self) -> int:
        return sum(map(len, self.places.values()))

    @property
    def whole(self) -> bool:
        return self.measured == self.asked > 0

    @cached_property
    def mean(self) -> float:
        """Mean over settings; NaN without any."""
        return float(np.mean([np.mean(each) for each in self._values])) if self.places else math.nan

    @cached_property
    def error(self) -> float:
        """Standard error of the mean, with inputs as replicates in each setting."""
        return _error(self._values)

    @property
    def value(self) -> float:
        return self.shown(self.mean)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval as displayed."""
        low, high = self.mean - _NORMAL * self.error, self.mean + _NORMAL * self.error
        return self.shown(max(0.0, low)), self.shown(high)

    @property
    def _values(self) -> list[list[float]]:
        return [[*each.values()] for each in self.places.values()]

    def covers(self, other: Score) -> bool:
        """Whether all problems solved by `other` are solved here too."""
        return all(each.keys() <= self.places.get(name, {}).keys() for name, each in other.places.items())

    def where(self, other: Score) -> Score:
        """Restrict the score to the problems of `other`, which it covers."""
        places = {name: {key: self.places[name][key] for key in each} for name, each in other.places.items()}
        return replace(self, places=places)

    def level_with(self, other: Score) -> bool:
        """Whether scores on the same problems do not differ at the 5 % level, by paired differences."""
        gaps = [np.subtract(a, b).tolist() for a, b in zip(self._values, other._values, strict=True)]
        return bool(abs(np.mean([np.mean(each) for each in gaps])) <= _NORMAL * _error(gaps))


def _error(places: Sequence[Sequence[float]]) -> float:
    if not places or min(map(len, places)) < 2:
        return math.nan
    variances = [np.var(each, ddof=1) / len(each) for each in places]
    return float(np.sqrt(np.sum(variances)) / len(places))


@dataclass(frozen=True)
class Broken:
    """A violated guarantee: the number of violations among the values that it covers, and the worst one."""

    guarantee: Guarantee
    count: int
    of: int
    where: str
    value: float


@dataclass(frozen=True, eq=False)
class Entry:
    """A submission with its scores, by name of the use, and violated guarantees."""

    submission: Submission
    scores: Mapping[str, Score]
    broken: tuple[Broken, ...]

    @classmethod
    def of(cls, submission: Submission, problems: ProblemSet) -> Entry:
        scores = {use.name: _score(submission, use, problems) for use in USES}
        broken = tuple(each for one in submission.guarantees if (each := _broken(submission, one)))
        return cls(submission, scores, broken)

    @property
    def slug(self) -> str:
        return self.submission.slug

    @property
    def label(self) -> str:
        return self.submission.rule.label

    @property
    def costs(self) -> Mapping[str, Cost]:
        return self.submission.cost

    @property
    def refusals(self) -> tuple[tuple[str, int], ...]:
        """Reasons why problems were refused, with the number of problems."""
        counts: dict[str, int] = {}
        for reasons in self.submission.refused.values():
            for reason in dict.fromkeys(reasons.values()):
                counts[reason] = counts.get(reason, 0) + 1
        return tuple(counts.items())


def _score(submission: Submission, use: Use, problems: ProblemSet) -> Score:
    places: dict[str, dict[str, float]] = {}
    asked = 0
    for place in problems.places:
        specs = [spec for spec in place.metrics if spec.partition(":")[0] in use.metrics]
        if not specs or place.heavy != use.heavy:
            continue
        asked += len(place.problems)
        found = {name: submission.measurements.get(name, {}).get(specs[0]) for name in place.problems}
        values = {name: _value(specs[0], each) for name, each in found.items() if each}
        if known := {name: value for name, value in values.items() if math.isfinite(value)}:
            places[place.name] = known
    return Score(places, asked, use.shown)


def _value(spec: str, components: Mapping[str, Numbers]) -> float:
    """Mean score over components; NaN if one is unknown."""
    read = metric_of(spec)
    known = [[math.nan if number is None else number for number in each] for each in components.values()]
    values, floors = np.array(known, dtype=float).T[:2]
    return float(np.minimum(read.score(values, floors), _WORST).mean())


def _broken(submission: Submission, guarantee: Guarantee) -> Broken | None:
    found = list(violations(submission, guarantee))
    if not found:
        return None
    problem, component, value = max(found, key=lambda each: guarantee.beyond(each[2]))
    total = sum(1 for _ in submission.meant(guarantee))
    return Broken(guarantee, len(found), total, " ".join(filter(None, (problem, component))), value)


@dataclass(frozen=True)
class Standing:
    """Position of an entry in a table.

    `rank` is that on the solved problems, shared by equal scores; None after a violated guarantee. `among` is
    the number of ranked entries that solved all these problems, including this one. `level` says whether it
    is statistically tied with the best of them.
    """

    entry: Entry
    score: Score
    rank: int | None
    among: int
    level: bool


def entries(submissions: Sequence[Submission], problems: ProblemSet) -> tuple[Entry, ...]:
    """Entries of submissions to one set; raises UserError if two have the same name."""
    found: dict[str, Entry] = {}
    for each in submissions:
        if each.slug in found:
            other = found[each.slug].submission.rule.name
            names = " and ".join(f"'{printable(name)}'" for name in dict.fromkeys((other, each.rule.name)))
            raise UserError(f"two submissions are of {names}; keep one of them")
        found[each.slug] = Entry.of(each, problems)
    return tuple(found.values())


def standings(found: Sequence[Entry], use: Use) -> tuple[Standing, ...]:
    """Entries with solved problems, sorted by rank, then by number of solved problems.

    Entries that violated a guarantee come last.
    """
    taken = [entry for entry in found if entry.scores[use.name].measured]
    ranked = [entry.scores[use.name] for entry in taken if not entry.broken]
    table = [_standing(entry, entry.scores[use.name], ranked) for entry in taken]
    return tuple(
        sorted(table, key=lambda each: (each.rank or math.inf, -each.score.measured, each.score.mean))
    )


def _standing(entry: Entry, score: Score, ranked: Sequence[Score]) -> Standing:
    """Compare an entry with those that solved all problems that it solved."""
    if entry.broken:
        return Standing(entry, score, None, 0, level=False)
    others = [each.where(score) for each in ranked if each.covers(score)]
    best = min(others, key=lambda each: each.mean)
    rank = 1 + sum(each.mean < score.mean for each in others)
    return Standing(entry, score, rank, len(others), level=rank == 1 or score.level_with(best))
