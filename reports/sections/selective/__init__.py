"""The section on selective prediction, compared with the paper's table."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from sdp_bench.bench.studies import selective as study
from sdp_bench.bench.studies.selective import EXPERIMENT, OTHER_SCALES, SCALE, SCORES
from sdp_bench.bench.studies.selective.risk_coverage import perfect
from sdp_bench.reports.paper import experiment
from sdp_bench.reports.results import Results
from sdp_bench.reports.section import Context, Section
from sdp_bench.reports.statement import Answer, Convention, Effect, Evidence, Rule, finite
from sdp_bench.reports.statistics.replicates import best_of
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.figure import Figure, look, panels
from sdp_bench.reports.style.names import RuleTraits
from sdp_bench.reports.style.theme import GREY, LIGHT, Style, shade
from sdp_bench.reports.tables.frame import by_kind


class _Model(NamedTuple):
    """Label of a model by training objective, and style of its curves."""

    label: str
    dashes: tuple[float, ...] = ()


MODELS = {
    "softmax": _Model("softmax"),
    "dirichlet": _Model("Dirichlet", (4.0, 1.5)),
    "pairwise_gaussian": _Model("PD loss Gauss"),
    "pairwise_marginal": _Model("PD loss Gauss, marginal", (1.5, 1.5)),
    "pairwise_cauchy": _Model("PD loss Cauchy", (6.0, 1.5, 1.5, 1.5)),
}
SCORE_STYLES = {
    "softmax_entropy": Style("softmax entropy", "#d55e00", "s"),
    "orthonormal_certificates": Style("orthonormal certificates", "#8c564b", "X"),
    "dirichlet": Style("Dirichlet", shade("#e69f00", LIGHT), "D"),
    "pairwise_gaussian": Style("PD Gauss", "#009e73", "o"),
    "pairwise_cauchy": Style("PD Cauchy", "#0072b2", "^"),
}
# The paper has entropies of "the categorical probabilities of the Dirichlet outputs", and averages the losses
# of pairs: the geometric mean is the softmax of minus that average.
_FIRST = {"dirichlet": "mean", "pairwise_gaussian": "geometric", "pairwise_cauchy": "geometric"}
READINGS = {
    score: tuple(sorted(readings, key=lambda reading: reading != _FIRST.get(score)))
    for score, readings in study.READINGS.items()
}
"""Readings of each score in the order of tables and rulings, the one closest to the paper's text first."""
_LABELS = {
    "orthonormal_certificates": "{} certificates",
    "law": "entropy of the law",
    "mean": "entropy of its mean",
    "concentration": "total concentration",
}


def reading_label(score: str, reading: str) -> str:
    """Label of a reading of a score; empty if there is only one."""
    if score in ("pairwise_gaussian", "pairwise_cauchy"):
        return f"{reading[3:]}, Gaussian scales" if reading.startswith("sd_") else reading
    return _LABELS.get(score, _LABELS.get(reading, "")).format(reading)


@dataclass(frozen=True)
class SeedStatistics:
    """Mean and standard deviation over seeds (n - 1 in its denominator; NaN for one), in per cent."""

    name: str
    mean: float
    sd: float


@dataclass(frozen=True)
class ScaleRow:
    """The Dirichlet model trained at one scale, and its Dirichlet score.

    `scale` is the standard deviation of the input noise. `areas` are RCAUC by reading, in the order of
    `READINGS`, and `accuracy` is that on digits in per cent.
    """

    scale: float
    areas: tuple[SeedStatistics, ...]
    accuracy: float
    seeds: int


def at_scale(frame: pd.DataFrame, scale: float | None = None) -> pd.DataFrame:
    """Measurements of models trained at another scale; without one, at the objectives' own."""
    return frame[frame["sigma"].isna() if scale is None else frame["sigma"] == scale]


def by_reading(areas: pd.DataFrame, score: str) -> tuple[SeedStatistics, ...]:
    """Areas of a score in each of its readings, in the order of `READINGS`."""
    return tuple(
        _statistics(reading_label(score, reading), areas[areas["component"] == reading]["value"])
        for reading in READINGS[score]
    )


def by_scale(frame: pd.DataFrame) -> tuple[ScaleRow, ...]:
    """Dirichlet models by ascending scale, for seeds with all scales; empty if there is only the paper's.

    With other seeds the seeds of scales would be compared, too.
    """
    own = frame[(frame["objective"] == "dirichlet") & (frame["rule"] == "dirichlet")]
    parts = {SCALE: at_scale(own)} | {scale: at_scale(own, scale) for scale in OTHER_SCALES}
    parts = {scale: part for scale, part in sorted(parts.items()) if len(part)}
    if len(parts) < 2:
        return ()
    seeds = set.intersection(*(set(part["seed"]) for part in parts.values()))
    rows = (_scale_row(scale, part[part["seed"].isin(seeds)]) for scale, part in parts.items())
    return tuple(rows) if seeds else ()


def _scale_row(scale: float, part: pd.DataFrame) -> ScaleRow:
    areas = part[part["metric"] == "rcauc"]
    accuracy = 100 * float(part[part["metric"] == "accuracy"]["value"].mean())
    return ScaleRow(scale, by_reading(areas, "dirichlet"), accuracy, int(areas["seed"].nunique()))


def _statistics(name: str, values: pd.Series) -> SeedStatistics:
    mean = 100 * float(values.mean()) if len(values) else math.nan
    return SeedStatistics(name, mean, 100 * float(values.std()) if len(values) > 1 else math.nan)


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
    prints, or empty. `best` marks the smallest of its half and those statistically tied with it, unless these
    are all rows.
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
class _Measured:
    """A line, its areas by seed, and its mean risk by coverage (shares) with the deviation over seeds."""

    objective: str
    score: str
    row: ScoreRow
    areas: pd.Series
    risk: pd.Series
    spread: pd.Series


def selective(frame: pd.DataFrame, traits: RuleTraits | None = None) -> Context | None:
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
        best = best_of({str(place): each.areas for place, each in enumerate(measured)})
        rows = tuple(replace(each.row, best=str(place) in best) for place, each in enumerate(measured))
        halves.append({"title": title, "part": part, "rows": rows})
        panels.append((f"{part} {title}".strip(), measured))
        all_measured += measured
    if not halves:
        return None
    runs = tuple(
        _model_run(own[own["objective"] == objective], objective)
        for objective in SCORES
        if (own["objective"] == objective).any()
    )
    return {
        "halves": halves,
        "runs": runs,
        "scales": by_scale(every),
        "finding": _on_areas(all_measured),
        "figure": _figure(panels),
        "perfect": PERFECT,
    }


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


def _model_run(part: pd.DataFrame, objective: str) -> Context:
    """Number of seeds, mean accuracy on digits (per cent), and recipe of the models of an objective."""
    accuracy = part[part["metric"] == "accuracy"]["value"].mean()
    return {
        "objective": MODELS[objective].label,
        "seeds": int(part["seed"].nunique()),
        "accuracy": 100 * float(accuracy),
        "recipe": "; ".join(dict.fromkeys(part["recipe"])),
    }


def _on_areas(measured: Sequence[_Measured]) -> str:
    """Smallest area, and the pairwise scores below the softmax entropy of the same model, in words."""
    best = min((each.row for each in measured), key=lambda row: row.area.mean)
    spread = "" if math.isnan(best.area.sd) else f" ± {best.area.sd:.2f}"
    text = (
        f"Of {labels.plural(len(measured), 'pair')} of model and score, {best.score} on the "
        f"{best.objective} model has the smallest area, {best.area.mean:.2f}{spread} %. Perfect is "
        f"{PERFECT:.1f} %; the paper’s best is PD Cauchy on the PD loss Gauss model, 18.3 %."
    )
    entropy = {each.objective: each.row.area.mean for each in measured if each.score == "softmax_entropy"}
    pairs = [each for each in measured if each.score.startswith("pairwise") and each.objective in entropy]
    if pairs:
        below = sum(each.row.area.mean < entropy[each.objective] for each in pairs)
        some = sum(
            any(n.mean < entropy[each.objective] for n in (each.row.area, *each.row.others)) for each in pairs
        )
        text += (
            f" {below} of {labels.plural(len(pairs), 'pairwise score')} {'is' if below == 1 else 'are'} "
            f"below the softmax entropy of the same model, {some} under some reading."
        )
    if min(each.row.seeds for each in measured) == 1:
        text += " There is one seed, so no spread is known."
    return text


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


class SelectivePrediction(Section):
    """Risk over coverage by score and model."""

    name = "selective"
    title = "Selective prediction"
    order = 110
    experiments = (EXPERIMENT.name,)

    def build(self, results: Results) -> Context | None:
        section = selective(results.frame, results.traits)
        return {"section": section} if section else None


_BORROWED = "sd_"
"""Prefix of readings of Cauchy pairs that use the scales of a propagated Gaussian."""
_PAIRWISE = ("pairwise_gaussian", "pairwise_cauchy")


class _Line(NamedTuple):
    """Training objective and score, and the scale of the noise if it is not the objective's own."""

    objective: str
    score: str
    scale: float | None = None


def _words(line: _Line) -> str:
    at = f" at σ = {line.scale:g}" if line.scale else ""
    return f"{SCORE_STYLES[line.score].label} on the {MODELS[line.objective].label} model{at}"


def _areas(frame: pd.DataFrame, line: _Line, reading: str) -> pd.Series:
    frame = at_scale(frame, line.scale)
    own = frame[
        (frame["objective"] == line.objective)
        & (frame["rule"] == line.score)
        & (frame["metric"] == "rcauc")
        & (frame["component"] == reading)
    ]
    return own.set_index("seed")["value"]


def _readings(lines: Iterable[_Line]) -> Iterator[Mapping[str, str]]:
    """All combinations of readings of some scores; the scores of pairs share their reading."""
    scores = list(dict.fromkeys(line.score for line in lines))
    for chosen in itertools.product(*(READINGS[score] for score in scores)):
        reading = dict(zip(scores, chosen, strict=True))
        pairs = {each.removeprefix(_BORROWED) for score, each in reading.items() if score in _PAIRWISE}
        if len(pairs) < len(_PAIRWISE):
            yield reading


def _smaller(*pairs: tuple[_Line, _Line]) -> Rule:
    """Areas of some lines are below those of others, under every reading of the scores."""

    def rule(evidence: Evidence) -> Answer | None:
        frame = evidence.of(EXPERIMENT.name)
        if frame.empty:
            return None
        effects: dict[Convention, list[Effect]] = {}
        for reading in _readings(line for pair in pairs for line in pair):
            convention = tuple(
                f"{SCORE_STYLES[score].label} {each}" for score, each in reading.items() if each
            )
            effects[convention] = [
                Effect(
                    f"RCAUC of {_words(worse)} less that of {_words(better)}, in points",
                    finite(
                        100
                        * (
                            _areas(frame, worse, reading[worse.score])
                            - _areas(frame, better, reading[better.score])
                        )
                    ),
                )
                for better, worse in pairs
            ]
        seeds = labels.plural(int(frame["seed"].nunique()), "seed")
        fidelity = f"{seeds}, fewer images and epochs than the paper’s 10 runs"
        return Answer.of(effects, "seed", fidelity, "#selective")

    return rule


_SOFTMAX = _Line("softmax", "softmax_entropy")
_CERTIFICATES = _Line("softmax", "orthonormal_certificates")
_UNSUITED = _Line("softmax", "dirichlet")
_GAUSS = _Line("softmax", "pairwise_gaussian")
_CAUCHY = _Line("softmax", "pairwise_cauchy")
_MATCHED = _Line("dirichlet", "dirichlet")
_MATCHED_GAUSS = _Line("dirichlet", "pairwise_gaussian")
_MATCHED_CAUCHY = _Line("dirichlet", "pairwise_cauchy")
_PAIRS = _Line("pairwise_gaussian", "pairwise_gaussian")
_BEST = _Line("pairwise_gaussian", "pairwise_cauchy")
_CAUCHY_PAIRS = _Line("pairwise_cauchy", "pairwise_cauchy")

RULES: Mapping[str, Rule] = {
    "selective-training": _smaller((_PAIRS, _GAUSS), (_CAUCHY_PAIRS, _CAUCHY), (_MATCHED, _UNSUITED)),
    "selective-cauchy": _smaller(
        *((_CAUCHY, other) for other in (_SOFTMAX, _CERTIFICATES, _UNSUITED, _GAUSS))
    ),
    "selective-certificates": _smaller((_SOFTMAX, _CERTIFICATES)),
    "selective-dirichlet": _smaller((_SOFTMAX, _UNSUITED)),
    "selective-pairwise": _smaller((_MATCHED_GAUSS, _MATCHED), (_MATCHED_CAUCHY, _MATCHED)),
    "selective-best": _smaller(*((_BEST, other) for other in (_PAIRS, _MATCHED_GAUSS, _MATCHED, _CAUCHY))),
    "selective-scale": _smaller(*((_MATCHED, _MATCHED._replace(scale=scale)) for scale in OTHER_SCALES)),
}
