"""Verdicts on the claims of the paper from the measurements of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sdp_bench.bench.metrics import metric as metric_of
from sdp_bench.oracles.estimate.multiplicity import holm
from sdp_bench.reports.sections.claims.claims import (
    ACTIVATION,
    CLAIMS,
    RULES,
    SUITES,
    TV_COLUMNS,
    Claim,
    Part,
)
from sdp_bench.reports.statistics.verdicts import (
    MIN_NETS,
    Verdict,
    agree,
    decide,
    mean_tests,
    p_of_every_part,
    p_of_some_part,
)
from sdp_bench.reports.style import labels


@dataclass(frozen=True)
class Finding:
    """What the measurements say to one part; interval two-sided, 95 %; numbers are effects, not rounded.

    `nets` is how many entered, of `among`. `above` and `below` are the p-values of "above the threshold" and
    "below it", uncorrected. `reason` says why there is no test, where there is none (then both are 1).
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
        words = self.part.words.format(value=self.effect, size=size, side="below" if value < 0 else "above")
        return f"{words} ({self.reason})" if self.reason else words

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
        """Column and recipe, for people; empty where there was no choice."""
        return ", ".join(filter(None, (self.label, self.recipe)))

    @property
    def label(self) -> str:
        """Column, for people."""
        return metric_of(self.column).convention if self.column else ""

    @property
    def comparable(self) -> bool:
        """Whether the paper's own numbers are of the same metric."""
        return not self.column or bool(metric_of(self.column).published)

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
    """Verdict on a claim over all conventions, and the ruling under each."""

    claim: Claim
    verdict: Verdict
    rulings: tuple[Ruling, ...]

    @property
    def shown(self) -> Ruling:
        """The ruling to show first: of those with the overall verdict, the first; else the first of all."""
        return next((ruling for ruling in self.rulings if ruling.verdict is self.verdict), self.rulings[0])

    @property
    def deciding(self) -> Finding | None:
        """The deciding part under the convention that is shown."""
        return self.shown.deciding

    @property
    def sentence(self) -> str:
        """What decides, in plain words: ``1 − TV of SDP is 0.12 (0.09 to 0.15) below that of ...``."""
        deciding = self.deciding
        words = deciding.sentence if deciding else self.shown.reason
        return ": ".join(filter(None, (self.shown.convention, words)))


@dataclass(frozen=True)
class Source:
    """Judgements set side by side: what they rest on, and the folder of its report from this one's."""

    title: str
    judgements: tuple[Judgement, ...]
    folder: str = ""

    @property
    def tally(self) -> str:
        """How many claims got which verdict, for people."""
        counts = {verdict: sum(each.verdict is verdict for each in self.judgements) for verdict in Verdict}
        verbs = {Verdict.HOLDS: "hold", Verdict.FAILS: "fail", Verdict.DEPENDS: "depend on convention"}
        said = [
            f"{count} {verbs.get(verdict, verdict) if count != 1 else verdict}"
            for verdict, count in counts.items()
            if count
        ]
        return f"{labels.plural(len(self.judgements), 'claim')}: {', '.join(said)}"


def judge(frame: pd.DataFrame) -> tuple[Judgement, ...]:
    """Judge every claim.

    Parameters
    ----------
    frame
        Measurements as `checked` gives them; only those of `SUITES` count.

    Returns
    -------
    tuple of Judgement
        One for each of `CLAIMS`, in their order. A claim on total variation has a ruling for each of
        `TV_COLUMNS` and each recipe that is there; others one for each recipe.

    Raises
    ------
    ValueError
        If a measurement is there twice.
    """
    recipes = frame["experiment"].map(SUITES)
    others = sorted(set(SUITES.values()) & set(recipes) - {""})
    rulings = [ruling for recipe in ("", *others) for ruling in _rulings(recipe, frame[recipes == recipe])]
    return tuple(
        _judgement(claim, tuple(ruling for key, ruling in rulings if key == claim.key)) for claim in CLAIMS
    )


def any_measured(judgements: Iterable[Judgement]) -> bool:
    """Whether any claim could be looked at under any convention."""
    return any(
        ruling.verdict is not Verdict.NOT_MEASURED for judgement in judgements for ruling in judgement.rulings
    )


def _judgement(claim: Claim, rulings: tuple[Ruling, ...]) -> Judgement:
    # Another recipe may measure less than the first: what it lacks takes nothing away.
    counted = [
        ruling.verdict
        for ruling in rulings
        if not ruling.recipe or ruling.verdict is not Verdict.NOT_MEASURED
    ]
    return Judgement(claim, agree(counted), rulings)


def _rulings(recipe: str, frame: pd.DataFrame) -> Iterator[tuple[str, Ruling]]:
    """Rulings on nets of one recipe, with the keys of their claims, in the order of claims and columns."""
    measured = Measured.of(frame)
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
    for column in TV_COLUMNS:
        family = [key for key in findings if key[1] in (column, "")]
        if not family:
            continue
        holds = holm([float(p_of_every_part([each.above for each in findings[key]])) for key in family])
        fails = holm([float(p_of_some_part([each.below for each in findings[key]])) for key in family])
        for key, one, other in zip(family, holds.tolist(), fails.tolist(), strict=True):
            before = largest.get(key, (0.0, 0.0))
            largest[key] = (max(before[0], one), max(before[1], other))
    return largest


@dataclass(frozen=True, eq=False)
class _Table:
    """Measurements of one metric at one depth: for each rule and sigma, values and floors, shape (units,).

    A unit is a net, input and component; `nets` (units,) says of which net it is, counted from 0.
    """

    nets: NDArray[np.intp]
    cells: Mapping[tuple[str, float], tuple[NDArray[np.float64], NDArray[np.float64]]]

    @classmethod
    def of(cls, rows: pd.DataFrame) -> _Table:
        unit, cell = ["net", "input", "component"], ["rule", "sigma"]
        if rows.duplicated(unit + cell).any():
            first = rows.iloc[0]
            raise ValueError(f"{first['experiment']} has {first['metric']} of one prediction twice")
        value, floor = (rows.pivot(index=unit, columns=cell, values=name) for name in ("value", "floor"))
        names = cast("list[tuple[str, float]]", value.columns.to_list())
        columns = zip(names, value.to_numpy(float).T, floor.to_numpy(float).T, strict=True)
        return cls(
            nets=pd.factorize(value.index.get_level_values("net"))[0],
            cells={name: (one, other) for name, one, other in columns},
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
    """Measurements of nets of one recipe, by metric and depth."""

    tables: Mapping[tuple[str, int], _Table]

    @classmethod
    def of(cls, frame: pd.DataFrame) -> Measured:
        """Those of a frame that claims are about."""
        frame = frame[(frame["activation"] == ACTIVATION) & frame["value"].notna()]
        tested = {
            (metric, part.depth)
            for claim in CLAIMS
            for part in claim.parts
            for metric in ([part.scale.metric] if part.scale.metric else TV_COLUMNS)
        }
        tables = {}
        for metric, depth in sorted(tested):
            rows = frame[(frame["metric"] == metric) & (frame["depth"] == depth)]
            if len(rows):
                tables[metric, depth] = _Table.of(rows)
        return cls(tables)

    def table(self, part: Part, column: str) -> _Table | None:
        """What a part is judged on, under one column."""
        return self.tables.get((part.scale.metric or column, part.depth))

    def lacking(self, claim: Claim, column: str) -> str:
        """What of a claim was not measured, for people; empty where all was."""
        tables = [self.table(part, column) for part in claim.parts]
        if not any(tables):
            return "no data"
        lacks: dict[str, set[float]] = {}
        for part, table in zip(claim.parts, tables, strict=True):
            if table is None or not len(table.scores(part)):
                absent = [cell for cell in part.cells if table is None or cell not in table.cells]
                # Where each was measured, but never both on one input, both are named.
                for rule, sigma in absent or part.cells:
                    lacks.setdefault(rule, set()).add(sigma)
        said = [
            f"{RULES.label(rule)} at σ = {', '.join(f'{sigma:g}' for sigma in sorted(lacks[rule]))}"
            for rule in RULES.in_order(lacks)
        ]
        return f"lacks {'; '.join(said)}" if said else ""

    def finding(self, part: Part, column: str) -> Finding:
        """Test one part, of which nothing is lacking."""
        table = self.tables[part.scale.metric or column, part.depth]
        effects = part.effects(table.scores(part))
        nets, among = len(effects), table.count
        if infinite := int((~np.isfinite(effects)).sum()):
            return Finding(part, nets, among, reason=f"not finite in {infinite} of {nets} nets")
        if nets < MIN_NETS:
            return Finding(part, nets, among, float(effects.mean()), reason=labels.plural(nets, "net"))
        tests = mean_tests(effects, part.threshold)
        mean, low, high = float(tests.mean), float(tests.low), float(tests.high)
        return Finding(part, nets, among, mean, low, high, float(tests.above), float(tests.below))


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
