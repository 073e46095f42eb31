"""Verdicts on the claims of the paper from the measurements of a run."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sdp_bench.bench.noise import GAUSSIAN
from sdp_bench.oracles.estimate.multiplicity import holm
from sdp_bench.reports.sections.claims.claims import (
    ACTIVATION,
    CLAIMS,
    CONVENTIONS,
    SUITES,
    Claim,
    Part,
    quantity,
)
from sdp_bench.reports.statistics.conventions import ORDER, Verdicts, tally
from sdp_bench.reports.statistics.verdicts import (
    MIN_NETS,
    Verdict,
    decide,
    mean_tests,
    p_of_every_part,
    p_of_some_part,
)
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.rules import RuleTraits
from sdp_bench.reports.tables.frame import by_kind, coded, places

FIRST_RECIPE = "first recipe"
"""What nets trained as in every suite are called beside others."""

NO_DATA = "no data"

_NEEDED = ["experiment", "activation", "depth", "net", "input", "component", "sigma", "rule", "metric"]
_NEEDED += ["metric_spec", "value", "floor"]


@dataclass(frozen=True)
class Finding:
    """What the measurements say to one part; interval two-sided, 95 %; numbers are effects, not rounded.

    `nets` is how many entered, of `among`. `above` and `below` are the p-values of "above the threshold" and
    "below it", uncorrected. `reason` says why there is no test, where there is none (then both are 1). Rules
    are called as their `traits` say.
    """

    part: Part
    nets: int
    among: int
    mean: float = math.nan
    low: float = math.nan
    high: float = math.nan
    above: float = 1.0
    below: float = 1.0
    reason: str = ""
    traits: RuleTraits = field(default_factory=RuleTraits, repr=False, compare=False)

    @property
    def natural(self) -> tuple[float, float, float]:
        """Mean and ends of the interval, in natural units."""
        low, high = sorted((self.part.natural(self.low), self.part.natural(self.high)))
        return self.part.natural(self.mean), low, high

    @property
    def effect(self) -> str:
        """Effect with its interval, in natural units."""
        return _interval(*self.natural)

    @property
    def sentence(self) -> str:
        """What was found, in plain words; where nothing could be, why."""
        value, low, high = self.natural
        size = _interval(-value, -high, -low) if value < 0 else self.effect
        side = "below" if value < 0 else "above"
        words = self.part.words.format(*self._names, value=self.effect, size=size, side=side)
        return f"{words} ({self.reason})" if self.reason else words

    @property
    def quantity(self) -> str:
        """What the effect is, in natural units."""
        return self.part.quantity.format(*self._names)

    @property
    def _names(self) -> list[str]:
        return [self.traits.label(rule) for rule, _ in self.part.cells]

    @property
    def design(self) -> str:
        """How many nets it rests on, for people."""
        among = f" of {self.among}" if self.nets != self.among else ""
        return labels.plural(self.nets, "net") if not among else f"{self.nets}{among} nets"


@dataclass(frozen=True)
class Ruling:
    """Verdict on a claim under one convention, with the p-values that it rests on, corrected over claims."""

    recipe: str
    column: str
    verdict: Verdict
    findings: tuple[Finding, ...]
    holds: float = 1.0
    fails: float = 1.0
    reason: str = ""

    @property
    def convention(self) -> str:
        """Column and recipe, for people: ``headline``, ``headline (other recipe)``, ``first recipe``."""
        if self.column and self.recipe:
            return f"{self.column} ({self.recipe})"
        return self.column or self.recipe or FIRST_RECIPE

    @property
    def comparable(self) -> bool:
        """Whether the paper's own numbers are of the same metric."""
        return not self.column or bool(CONVENTIONS[self.column].published)

    @property
    def violation(self) -> float:
        """How far the part that decides lies on the wrong side of its threshold; NaN where none does."""
        return self.deciding.part.threshold - self.deciding.mean if self.deciding else math.nan

    @property
    def deciding(self) -> Finding | None:
        """The part that decides: the worst for the claim where it fails, else the last to be shown."""
        if not self.findings or self.verdict is Verdict.NOT_MEASURED:
            return None
        if self.verdict is Verdict.FAILS:
            return min(self.findings, key=lambda finding: finding.below)
        return max(self.findings, key=lambda finding: finding.above)


@dataclass(frozen=True)
class Judgement:
    """What a claim comes to over all conventions, and the ruling under each, the paper's own first."""

    claim: Claim
    rulings: tuple[Ruling, ...]

    @functools.cached_property
    def shown(self) -> Ruling:
        """The ruling to put into words: of those with the verdict told first, the one that says most."""
        first = min((ruling.verdict for ruling in self.rulings), key=ORDER.index)
        return max(
            (ruling for ruling in self.rulings if ruling.verdict is first),
            key=lambda ruling: (
                ruling.violation if first is Verdict.FAILS else 0.0,
                ruling.reason != NO_DATA,
            ),
        )

    @functools.cached_property
    def verdicts(self) -> Verdicts:
        """Its verdict over conventions."""
        by_convention = {ruling.convention: ruling.verdict for ruling in self.rulings}
        deciding = self.shown.deciding
        if deciding is None or self.shown.verdict is not Verdict.FAILS:
            return Verdicts(by_convention)
        return Verdicts(by_convention, largest=deciding.effect)

    @property
    def recipes(self) -> Mapping[str, tuple[Ruling, ...]]:
        """Rulings by the recipe of their nets, under a name for people."""
        names = dict.fromkeys(ruling.recipe for ruling in self.rulings)
        return {
            name or FIRST_RECIPE: tuple(ruling for ruling in self.rulings if ruling.recipe == name)
            for name in names
        }

    @property
    def sentence(self) -> str:
        """What is shown, in plain words: ``headline: 1 − TV of SDP is 0.12 (0.09 to 0.15) below ...``."""
        deciding = self.shown.deciding
        words = deciding.sentence if deciding else self.shown.reason
        return f"{self.shown.convention}: {words}" if len(self.rulings) > 1 else words


@dataclass(frozen=True)
class Source:
    """Judgements set side by side: what they rest on, and the folder of its report from this one's."""

    title: str
    judgements: tuple[Judgement, ...]
    folder: str = ""

    @property
    def tally(self) -> str:
        """How many claims come to what, for people, and which conventions nothing was measured under."""
        measured = {
            ruling.column
            for judgement in self.judgements
            for ruling in judgement.rulings
            if ruling.verdict is not Verdict.NOT_MEASURED
        }
        lacking = [name for name in CONVENTIONS if measured and name not in measured]
        said = tally(judgement.verdicts for judgement in self.judgements)
        return f"{said}; nothing was measured under {', '.join(lacking)}" if lacking else said


def judge(frame: pd.DataFrame, traits: RuleTraits | None = None) -> tuple[Judgement, ...]:
    """Judge every claim.

    Parameters
    ----------
    frame
        Measurements as `checked` gives them; only those of `SUITES` count.
    traits : RuleTraits, optional
        Of their rules; by default of the package's own alone.

    Returns
    -------
    tuple of Judgement
        One for each of `CLAIMS`, in their order. A claim on total variation has a ruling for each of
        `CONVENTIONS` and each recipe that is there; others one for each recipe.

    Raises
    ------
    ValueError
        If a measurement is there twice.
    """
    frame = frame[_NEEDED][frame["experiment"].isin(SUITES.keys()) & (frame["noise"] == GAUSSIAN.family)]
    recipes = by_kind(frame["experiment"], SUITES.__getitem__)
    others = sorted(set(SUITES.values()) & set(recipes) - {""})
    measured = {
        recipe: Measured.of(frame[recipes == recipe], traits or RuleTraits()) for recipe in ("", *others)
    }
    rulings = [ruling for recipe, own in measured.items() for ruling in _rulings(recipe, own)]
    return tuple(
        Judgement(claim, tuple(ruling for key, ruling in rulings if key == claim.key)) for claim in CLAIMS
    )


def any_measured(judgements: Iterable[Judgement]) -> bool:
    """Whether any claim could be looked at under any convention."""
    return any(
        ruling.verdict is not Verdict.NOT_MEASURED for judgement in judgements for ruling in judgement.rulings
    )


def _rulings(recipe: str, measured: Measured) -> Iterator[tuple[str, Ruling]]:
    """Rulings on nets of one recipe, with the keys of their claims, in the order of claims and columns."""
    findings: dict[tuple[str, str], tuple[Finding, ...]] = {}
    reasons: dict[tuple[str, str], tuple[Verdict, str]] = {}
    for claim in CLAIMS:
        for column in claim.columns:
            key = (claim.key, column)
            if lacking := measured.lacking(claim, column):
                reasons[key] = (Verdict.NOT_MEASURED, lacking)
                findings[key] = ()
                continue
            findings[key] = tuple(measured.finding(part, column) for part in claim.parts)
            fewest = min(finding.nets for finding in findings[key])
            if fewest < MIN_NETS:
                few = f"{labels.plural(fewest, 'net')}, at least {MIN_NETS} are needed"
                reasons[key] = (Verdict.UNDECIDED, few)
    corrected = _corrected({key: own for key, own in findings.items() if key not in reasons})
    for key, own in findings.items():
        if key in corrected:
            holds, fails = corrected[key]
            reason = next((finding.reason for finding in own if finding.reason), "")
            yield key[0], Ruling(recipe, key[1], decide(holds, fails), own, holds, fails, reason)
        else:
            verdict, reason = reasons[key]
            yield key[0], Ruling(recipe, key[1], verdict, own, reason=reason)


def _corrected(
    findings: Mapping[tuple[str, str], tuple[Finding, ...]],
) -> dict[tuple[str, str], tuple[float, float]]:
    """p-values of "holds" and "fails", corrected over all claims judged under the same convention.

    A claim that has no column belongs to the family of each, and takes the largest of its p-values.

    Parameters
    ----------
    findings : mapping of (str, str) to tuple of Finding
        Of each claim under each column, by the keys of both.

    Returns
    -------
    dict of (str, str) to (float, float)
        p-values of "holds" and of "fails".
    """
    largest: dict[tuple[str, str], tuple[float, float]] = {}
    for column in CONVENTIONS:
        family = [key for key in findings if key[1] in (column, "")]
        if not family:
            continue
        holds = holm([float(p_of_every_part([each.above for each in findings[key]])) for key in family])
        fails = holm([float(p_of_some_part([each.below for each in findings[key]])) for key in family])
        for key, one, other in zip(family, holds.tolist(), fails.tolist(), strict=True):
            before = largest.get(key, (0.0, 0.0))
            largest[key] = (max(before[0], one), max(before[1], other))
    return largest


def _combinations(rows: pd.DataFrame, names: Sequence[str]) -> tuple[pd.DataFrame, NDArray[np.intp]]:
    """What stands together in some columns, each once and in order, and which of these each row has."""
    code = np.zeros(len(rows), dtype=np.int64)
    for name in names:
        own, values = coded(rows[name])
        code = code * len(values) + own
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    return rows[[*names]].iloc[first], which


@dataclass(frozen=True, eq=False)
class _Table:
    """Measurements of one metric at one depth: for each rule and sigma, values and floors, shape (units,).

    A unit is a net, input and component; `nets` (units,) says of which net it is, counted from 0.
    """

    nets: NDArray[np.intp]
    cells: Mapping[tuple[str, float], tuple[NDArray[np.float64], NDArray[np.float64]]]

    @classmethod
    def of(cls, rows: pd.DataFrame) -> _Table:
        units, unit = _combinations(rows, ("net", "input", "component"))
        cells, cell = _combinations(rows, ("rule", "sigma"))
        measured = np.full((2, len(cells), len(units)), math.nan)
        if (np.bincount(cell * len(units) + unit) > 1).any():
            first = rows.iloc[0]
            raise ValueError(f"{first['experiment']} has {first['metric']} of one prediction twice")
        measured[:, cell, unit] = rows["value"], rows["floor"]
        names = zip(cells["rule"].tolist(), cells["sigma"].tolist(), strict=True)
        return cls(
            nets=pd.factorize(units["net"])[0],
            cells=dict(zip(names, zip(*measured, strict=True), strict=True)),
        )

    @property
    def count(self) -> int:
        """Number of nets."""
        return int(self.nets.max()) + 1

    def scores(self, part: Part) -> NDArray[np.float64]:
        """Mean scores of nets, shape (nets, terms), over the units on which every term was measured."""
        if any(cell not in self.cells for cell in part.cells):
            return np.empty((0, len(part.terms)))
        measured = [self.cells[cell] for cell in part.cells]
        scores = np.stack(
            [np.where(np.isnan(value), math.nan, part.scale.score(value, floor)) for value, floor in measured]
        )
        known = ~np.isnan(scores).any(0)
        counts = np.bincount(self.nets[known], minlength=self.count)
        sums = np.stack([np.bincount(self.nets[known], term[known], self.count) for term in scores], axis=1)
        return sums[counts > 0] / counts[counts > 0, np.newaxis]


@dataclass(frozen=True, eq=False)
class Measured:
    """Measurements of nets of one recipe, by what they are judged as and depth, and traits of the rules."""

    tables: Mapping[tuple[str, int], _Table]
    traits: RuleTraits

    @classmethod
    def of(cls, frame: pd.DataFrame, traits: RuleTraits) -> Measured:
        """Those of a frame that claims are about."""
        frame = frame[(frame["activation"] == ACTIVATION) & frame["value"].notna()]
        frame = frame.assign(quantity=by_kind(frame["metric_spec"], quantity))
        tested = {
            (name, part.depth) for claim in CLAIMS for part in claim.parts for name in part.scale.quantities
        }
        tables = {
            kind: _Table.of(frame.iloc[rows])
            for kind, rows in places(frame, ("quantity", "depth"))
            if kind in tested
        }
        return cls(tables, traits)

    def table(self, part: Part, column: str) -> _Table | None:
        """What a part is judged on, under one column."""
        return self.tables.get((part.scale.metric or column, part.depth))

    def lacking(self, claim: Claim, column: str) -> str:
        """What of a claim was not measured, for people; empty where all was."""
        tables = [self.table(part, column) for part in claim.parts]
        if not any(tables):
            return NO_DATA
        lacks: dict[str, set[float]] = {}
        for part, table in zip(claim.parts, tables, strict=True):
            if table is None or not len(table.scores(part)):
                absent = [cell for cell in part.cells if table is None or cell not in table.cells]
                # Where each was measured, but never both on one input, both are named.
                for rule, sigma in absent or part.cells:
                    lacks.setdefault(rule, set()).add(sigma)
        said = [
            f"{self.traits.label(rule)} at σ = {', '.join(f'{sigma:g}' for sigma in sorted(lacks[rule]))}"
            for rule in self.traits.in_order(lacks)
        ]
        return f"lacks {'; '.join(said)}" if said else ""

    def finding(self, part: Part, column: str) -> Finding:
        """Test one part, of which nothing is lacking."""
        table = self.tables[part.scale.metric or column, part.depth]
        effects = part.effects(table.scores(part))
        nets = len(effects)
        made = functools.partial(Finding, part, nets, table.count, traits=self.traits)
        if infinite := int((~np.isfinite(effects)).sum()):
            return made(reason=f"not finite in {infinite} of {nets} nets")
        if nets < MIN_NETS:
            return made(mean=float(effects.mean()), reason=labels.plural(nets, "net"))
        tests = mean_tests(effects, part.threshold)
        mean, low, high = float(tests.mean), float(tests.low), float(tests.high)
        return made(mean=mean, low=low, high=high, above=float(tests.above), below=float(tests.below))


def _interval(value: float, low: float, high: float) -> str:
    """Write a value with its interval, to two digits of the narrower side."""
    if math.isnan(low) or math.isnan(high):
        return labels.number(value)
    side = min(value - low, high - value)
    decimals = None
    if 1e-6 < side < math.inf:
        decimals = max(0, 1 - math.floor(math.log10(side)))
    shown = [value, low, high] if decimals is None else [round(x, decimals) + 0.0 for x in (value, low, high)]
    mean, start, end = (labels.number(x, decimals) for x in shown)
    return f"{mean} ({start} to {end})"
