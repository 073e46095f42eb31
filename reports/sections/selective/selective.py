"""Selective prediction: both halves of the paper's table with its numbers, and risk over coverage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from sdp_bench.bench.studies.selective import EXPERIMENT, SCORES
from sdp_bench.bench.studies.selective.risk_coverage import perfect
from sdp_bench.reports.paper.printed import experiment
from sdp_bench.reports.sections.selective.areas import (
    ScaleRow,
    SeedStatistics,
    at_scale,
    by_reading,
    by_scale,
)
from sdp_bench.reports.sections.selective.words import MODELS, READINGS, SCORE_STYLES
from sdp_bench.reports.statistics.ranking import told_best
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.figure import Figure, look, panels
from sdp_bench.reports.style.rules import RuleTraits
from sdp_bench.reports.style.theme import GREY, Style
from sdp_bench.reports.tables.frame import by_kind

PERFECT = 100 * perfect(0.5).area
"""Area for equal numbers of letters and digits, in per cent."""

_HALVES = (
    ("Off-the-shelf model", "(a)", ("softmax",)),
    ("Trained with propagation", "(b)", ("dirichlet", "pairwise_gaussian")),
    ("Trained by other pairwise losses", "", ("pairwise_marginal", "pairwise_cauchy")),
)
"""The table's halves, and scores that it does not have."""
_RULES = {"dirichlet": "marginal_sdp", "pairwise_marginal": "marginal_sdp", "pairwise_cauchy": "sdp"}
"""Propagation rules of lines that the paper does not print; Cauchy noise on the Dirichlet model."""
_PERFECT = Style("perfect", GREY)


@dataclass(frozen=True)
class ScoreRow:
    """A row of the table: a model, its propagation rule, and the score that ranks predictions.

    `area` is the RCAUC of the first reading, and `others` those of other readings. `paper` is what the paper
    prints, or empty. `best` marks the smallest of its half and those within one paired standard error of it,
    unless these are all rows.
    """

    objective: str
    method: str
    score: str
    area: SeedStatistics
    others: tuple[SeedStatistics, ...]
    seeds: int
    paper: str
    best: bool = False


@dataclass(frozen=True)
class TableHalf:
    """One half of the paper's table as far as it was run; `part` is empty for additional scores."""

    title: str
    part: str
    rows: tuple[ScoreRow, ...]


@dataclass(frozen=True)
class ModelRun:
    """Models of an objective: seeds, mean accuracy on digits (per cent), recipe."""

    objective: str
    seeds: int
    accuracy: float
    recipe: str


@dataclass(frozen=True)
class Selective:
    """Content of the section."""

    halves: tuple[TableHalf, ...]
    runs: tuple[ModelRun, ...]
    scales: tuple[ScaleRow, ...]
    finding: str
    figure: Figure | None
    perfect: float = PERFECT


@dataclass(frozen=True)
class _Measured:
    """A line, its areas by seed, and its mean risk by coverage (shares) with the deviation over seeds."""

    objective: str
    score: str
    row: ScoreRow
    areas: pd.Series
    risk: pd.Series
    spread: pd.Series


def selective(frame: pd.DataFrame, traits: RuleTraits | None = None) -> Selective | None:
    """Content of the section, from measurements of all experiments; None if it was not run.

    `traits` are those of the rules (default: only the package's own).
    """
    every = frame[frame["experiment"] == EXPERIMENT.name]
    own = at_scale(every)
    if own.empty:
        return None
    printed = _printed()
    halves, panels, all_measured = [], [], []
    for title, part, objectives in _HALVES:
        measured = [
            _measured(own, objective, score, printed, traits or RuleTraits())
            for objective in objectives
            for score in SCORES[objective]
            if _is_measured(own, objective, score)
        ]
        if not measured:
            continue
        best = told_best({str(place): each.areas for place, each in enumerate(measured)})
        rows = tuple(replace(each.row, best=str(place) in best) for place, each in enumerate(measured))
        halves.append(TableHalf(title, part, rows))
        panels.append((f"{part} {title}".strip(), measured))
        all_measured += measured
    if not halves:
        return None
    runs = tuple(
        _model_run(own[own["objective"] == objective], objective)
        for objective in SCORES
        if (own["objective"] == objective).any()
    )
    return Selective(tuple(halves), runs, by_scale(every), _on_areas(all_measured), _figure(panels))


def _is_measured(own: pd.DataFrame, objective: str, score: str) -> bool:
    rows = (own["objective"] == objective) & (own["rule"] == score) & (own["metric"] == "rcauc")
    return bool(rows.any())


def _printed() -> dict[tuple[str, str], dict[str, str]]:
    rows = experiment("rcauc_mnist").astype(str).to_dict("records")
    return {(row["objective"], row["score"]): {str(k): v for k, v in row.items()} for row in rows}


def _measured(
    own: pd.DataFrame,
    objective: str,
    score: str,
    printed: dict[tuple[str, str], dict[str, str]],
    traits: RuleTraits,
) -> _Measured:
    part = own[(own["objective"] == objective) & (own["rule"] == score)]
    areas = part[part["metric"] == "rcauc"]
    numbers = by_reading(areas, score)
    paper = printed.get((objective, score))
    rule = paper["method"] if paper else _RULES[objective]
    method = "–" if rule == "none" else traits.label(rule)
    row = ScoreRow(
        MODELS[objective].label,
        method,
        SCORE_STYLES[score].label,
        numbers[0],
        tuple(numbers[1:]),
        int(areas["seed"].nunique()),
        f"{paper['value']} ± {paper['sd']}" if paper else "",
    )
    risks = part[part["metric"] == "risk"]
    by_coverage = risks.groupby(by_kind(risks["component"], float))["value"]
    first = areas[areas["component"] == READINGS[score][0]].set_index("seed")["value"]
    return _Measured(objective, score, row, first, by_coverage.mean(), by_coverage.std())


def _model_run(part: pd.DataFrame, objective: str) -> ModelRun:
    accuracy = part[part["metric"] == "accuracy"]["value"].mean()
    recipe = "; ".join(dict.fromkeys(part["recipe"]))
    return ModelRun(MODELS[objective].label, int(part["seed"].nunique()), 100 * float(accuracy), recipe)


def _on_areas(measured: Sequence[_Measured]) -> str:
    best = min((each.row for each in measured), key=lambda row: row.area.mean)
    seeds = min(each.row.seeds for each in measured)
    spread = "" if math.isnan(best.area.sd) else f" ± {best.area.sd:.2f}"
    text = (
        f"Of {labels.plural(len(measured), 'pair')} of model and score, the smallest area is that of "
        f"{best.score} on the {best.objective} model, {best.area.mean:.2f}{spread} %; perfect is "
        f"{PERFECT:.1f} %, and the paper’s best is PD Cauchy on the PD loss Gauss model, 18.3 %"
    )
    entropy = {each.objective: each.row.area.mean for each in measured if each.score == "softmax_entropy"}
    pairs = [each for each in measured if each.score.startswith("pairwise") and each.objective in entropy]
    if pairs:
        first = sum(each.row.area.mean < entropy[each.objective] for each in pairs)
        lowest = [
            min((n.mean for n in each.row.others if not math.isnan(n.mean)), default=math.inf)
            for each in pairs
        ]
        some = sum(
            min(each.row.area.mean, low) < entropy[each.objective]
            for each, low in zip(pairs, lowest, strict=True)
        )
        text += (
            f"; {first} of {labels.plural(len(pairs), 'pairwise score')} "
            f"{'is' if first == 1 else 'are'} below the softmax entropy of the same model, {some} by some "
            "reading"
        )
    reserve = " (one seed, so no spread is known)" if seeds == 1 else ""
    return f"{text}{reserve}.{_on_readings(measured)}"


def _on_readings(measured: Sequence[_Measured]) -> str:
    """Largest distance between the readings of one score."""

    def span(each: _Measured) -> tuple[float, SeedStatistics, SeedStatistics]:
        readings = [n for n in (each.row.area, *each.row.others) if not math.isnan(n.mean)]
        low, high = min(readings, key=lambda n: n.mean), max(readings, key=lambda n: n.mean)
        return high.mean - low.mean, low, high

    widest = max(measured, key=lambda each: span(each)[0])
    gap, low, high = span(widest)
    if gap == 0:
        return ""
    return (
        f" What the paper leaves open matters most for {widest.row.score} on the {widest.row.objective} "
        f"model: {low.mean:.2f} % ({low.name}) to {high.mean:.2f} % ({high.name})."
    )


@look()
def _figure(parts: Sequence[tuple[str, list[_Measured]]]) -> Figure | None:
    parts = [
        (
            title,
            sorted(
                (each for each in measured if len(each.risk)), key=lambda one: one.risk.mean(), reverse=True
            ),
        )
        for title, measured in parts
    ]
    parts = [(title, curves) for title, curves in parts if curves]
    if not parts:
        return None
    legend = dict.fromkeys(_style(each) for _, curves in parts for each in curves)
    drawing, every = panels([title for title, _ in parts], [*legend, _PERFECT], height=2.1)
    ideal = perfect(0.5)
    for axes, (_, curves) in zip(every, parts, strict=True):
        axes.plot(100 * ideal.coverage, 100 * ideal.risk, **_PERFECT.line | {"linewidth": 2.2})
        for each in curves:
            coverage, risk, spread = (
                100 * np.asarray(x, float) for x in (each.risk.index, each.risk, each.spread)
            )
            style = _style(each)
            axes.plot(coverage, risk, **style.line | {"markersize": 3}, markevery=0.12)
            if np.isfinite(spread).any():
                axes.fill_between(
                    coverage, risk - spread, risk + spread, color=style.colour, alpha=0.22, linewidth=0
                )
        axes.set(xlabel="coverage (%)", ylabel="risk (%)", xlim=(0, 100))
        axes.set_ylim(bottom=0)
    return Figure(
        "figure-selective",
        "Risk over coverage",
        "Accepted errors, as a share of all images, when the surest predictions are accepted; mean "
        "over seeds, and one standard deviation to either side. Grey: a perfect predictor, which is right on "
        "all digits and abstains from all letters. Each score has its risks in one reading: 100 "
        "certificates, the entropy of the Dirichlet law, or the mean of pairwise probabilities. Names are in "
        "the order of the areas below the curves, the largest first.",
        " ".join(_description(title, curves) for title, curves in parts),
        drawing,
    )


def _style(measured: _Measured) -> Style:
    score, model = SCORE_STYLES[measured.score], MODELS[measured.objective]
    return replace(score, label=f"{score.label} ({model.label})", dashes=model.dashes)


def _description(title: str, measured: Sequence[_Measured]) -> str:
    at_half = [
        f"{each.row.score} on {each.row.objective} "
        f"{100 * float(np.interp(0.5, each.risk.index, each.risk)):.1f} %"
        for each in measured
    ]
    return f"Line chart for {title}: risk over coverage. Risk at half coverage: {'; '.join(at_half)}."
