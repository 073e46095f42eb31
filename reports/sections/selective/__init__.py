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
from sdp_bench.reports.statistics.ranking import best_of
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.figure import Figure, look, panels
from sdp_bench.reports.style.names import RuleTraits
from sdp_bench.reports.style.theme import GREY, LIGHT, Style, shade
from sdp_bench.reports.tables.frame import by_kind

MODELS: dict[str, tuple[str, tuple[float, ...]]] = {
    "softmax": ("softmax", ()),
    "dirichlet": ("Dirichlet", (4.0, 1.5)),
    "pairwise_gaussian": ("PD loss Gauss", ()),
    "pairwise_marginal": ("PD loss Gauss, marginal", (1.5, 1.5)),
    "pairwise_cauchy": ("PD loss Cauchy", (6.0, 1.5, 1.5, 1.5)),
}
"""Label of the model and dashes of its curves, by training objective."""
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
_PAIRWISE = ("pairwise_gaussian", "pairwise_cauchy")
_BORROWED = "sd_"
"""Prefix of readings of Cauchy pairs that use the scales of a propagated Gaussian."""
_LABELS = {
    "orthonormal_certificates": "{} certificates",
    "law": "entropy of the law",
    "mean": "entropy of its mean",
    "concentration": "total concentration",
}


def reading_label(score: str, reading: str) -> str:
    """Label of a reading of a score; empty if there is only one."""
    if score in _PAIRWISE:
        plain = reading.removeprefix(_BORROWED)
        return reading if plain == reading else f"{plain}, Gaussian scales"
    return _LABELS.get(score, _LABELS.get(reading, "")).format(reading)


class _Line(NamedTuple):
    """Training objective and score, and the scale of the noise if it is not the objective's own."""

    objective: str
    score: str
    scale: float | None = None


def _of_line(frame: pd.DataFrame, line: _Line) -> pd.DataFrame:
    at_scale = frame["sigma"].isna() if line.scale is None else frame["sigma"] == line.scale
    return frame[at_scale & (frame["objective"] == line.objective) & (frame["rule"] == line.score)]


def _areas(own: pd.DataFrame, reading: str) -> pd.Series:
    """RCAUC of a line by seed, in one reading of its score."""
    return own[(own["metric"] == "rcauc") & (own["component"] == reading)].set_index("seed")["value"]


def _by_reading(own: pd.DataFrame, score: str) -> list[Context]:
    """Mean area and standard deviation over seeds (NaN for one), in per cent, in the order of `READINGS`."""
    areas = {reading: 100 * _areas(own, reading) for reading in READINGS[score]}
    return [
        {"name": reading_label(score, reading), "mean": float(area.mean()), "sd": float(area.std())}
        for reading, area in areas.items()
    ]


def _accuracy(own: pd.DataFrame) -> float:
    return 100 * float(own[own["metric"] == "accuracy"]["value"].mean())


def _by_scale(frame: pd.DataFrame) -> list[Context]:
    """Dirichlet models by ascending scale; empty if there is only the paper's.

    Only seeds with all scales count. Otherwise the seeds of scales would be compared, too.
    """
    parts = {
        scale: _of_line(frame, _MATCHED._replace(scale=None if scale == SCALE else scale))
        for scale in sorted((SCALE, *OTHER_SCALES))
    }
    parts = {scale: part for scale, part in parts.items() if len(part)}
    seeds = set.intersection(*(set(part["seed"]) for part in parts.values())) if len(parts) > 1 else set()
    rows: list[Context] = []
    for scale, part in parts.items() if seeds else ():
        own = part[part["seed"].isin(seeds)]
        areas = _by_reading(own, "dirichlet")
        rows.append({"scale": scale, "areas": areas, "accuracy": _accuracy(own), "seeds": len(seeds)})
    return rows


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


@dataclass
class ScoreRow:
    """A row of the table: a model, its propagation rule, and the score that ranks predictions.

    `area` is the RCAUC of the first reading, with its values by seed in `areas`, and `others` those of other
    readings. `paper` is what the paper prints, or empty. `risk` is the mean risk by coverage (shares), with
    the deviation over seeds. `best` marks the smallest of its half and those statistically tied with it,
    unless these are all rows.
    """

    line: _Line
    method: str
    area: Context
    others: list[Context]
    seeds: int
    paper: str
    areas: pd.Series
    risk: pd.Series
    spread: pd.Series
    best: bool = False

    @property
    def objective(self) -> str:
        return MODELS[self.line.objective][0]

    @property
    def score(self) -> str:
        return SCORE_STYLES[self.line.score].label

    @property
    def style(self) -> Style:
        style = SCORE_STYLES[self.line.score]
        label, dashes = MODELS[self.line.objective]
        return replace(style, label=f"{style.label} ({label})", dashes=dashes)


def selective(frame: pd.DataFrame, traits: RuleTraits | None = None) -> Context | None:
    """Content of the section, from measurements of all experiments; None if it was not run.

    `traits` are those of the rules (default: only the package's own).
    """
    every = frame[frame["experiment"] == EXPERIMENT.name]
    own = every[every["sigma"].isna()]  # at the scales of the objectives
    if own.empty:
        return None
    halves: list[tuple[str, str, list[ScoreRow]]] = []
    for title, part, objectives in _HALVES:
        lines = [_Line(objective, score) for objective in objectives for score in SCORES[objective]]
        rows = [row for line in lines if (row := _row(_of_line(own, line), line, traits or RuleTraits()))]
        best = best_of({str(place): row.areas for place, row in enumerate(rows)})
        for place, row in enumerate(rows):
            row.best = str(place) in best
        if rows:
            halves.append((title, part, rows))
    if not halves:
        return None
    trained = {objective: own[own["objective"] == objective] for objective in SCORES}
    return {
        "halves": [{"title": title, "part": part, "rows": rows} for title, part, rows in halves],
        "runs": [
            {
                "objective": MODELS[objective][0],
                "seeds": int(models["seed"].nunique()),
                "accuracy": _accuracy(models),
                "recipe": "; ".join(dict.fromkeys(models["recipe"])),
            }
            for objective, models in trained.items()
            if len(models)
        ],
        "scales": _by_scale(every),
        "finding": _finding([row for _, _, rows in halves for row in rows]),
        "figure": _figure({f"{part} {title}".strip(): rows for title, part, rows in halves}),
        "perfect": PERFECT,
    }


def _row(own: pd.DataFrame, line: _Line, traits: RuleTraits) -> ScoreRow | None:
    measured = own[own["metric"] == "rcauc"]
    if measured.empty:
        return None
    printed = experiment("rcauc_mnist").astype(str).set_index(["objective", "score"]).to_dict("index")
    paper = printed.get((line.objective, line.score))
    rule = paper["method"] if paper else _RULES[line.objective]
    area, *others = _by_reading(own, line.score)
    risks = own[own["metric"] == "risk"]
    by_coverage = risks.groupby(by_kind(risks["component"], float))["value"]
    return ScoreRow(
        line,
        "–" if rule == "none" else traits.label(rule),
        area,
        others,
        int(measured["seed"].nunique()),
        f"{paper['value']} ± {paper['sd']}" if paper else "",
        _areas(own, READINGS[line.score][0]),
        by_coverage.mean(),
        by_coverage.std(),
    )


def _finding(rows: Sequence[ScoreRow]) -> str:
    """Smallest area, and the pairwise scores below the softmax entropy of the same model, in words."""
    best = min(rows, key=lambda row: row.area["mean"])
    spread = "" if math.isnan(best.area["sd"]) else f" ± {best.area['sd']:.2f}"
    text = (
        f"Of {labels.plural(len(rows), 'pair')} of model and score, {best.score} on the "
        f"{best.objective} model gives the smallest area, {best.area['mean']:.2f}{spread} %. Perfect is "
        f"{PERFECT:.1f} %; the paper’s best is PD Cauchy on the PD loss Gauss model, 18.3 %."
    )
    entropy = {row.objective: row.area["mean"] for row in rows if row.line.score == "softmax_entropy"}
    pairs = [row for row in rows if row.line.score in _PAIRWISE and row.objective in entropy]
    if pairs:
        below = sum(row.area["mean"] < entropy[row.objective] for row in pairs)
        some = sum(min(n["mean"] for n in (row.area, *row.others)) < entropy[row.objective] for row in pairs)
        text += (
            f" {below} of {labels.plural(len(pairs), 'pairwise score')} {'is' if below == 1 else 'are'} "
            f"below the softmax entropy of the same model, {some} under some reading."
        )
    if any(row.seeds == 1 for row in rows):
        text += " Values without ± are of one seed."
    return text


@look()
def _figure(halves: Mapping[str, Sequence[ScoreRow]]) -> Figure | None:
    parts = {
        title: sorted((row for row in rows if len(row.risk)), key=lambda row: row.risk.mean(), reverse=True)
        for title, rows in halves.items()
    }
    parts = {title: rows for title, rows in parts.items() if rows}
    if not parts:
        return None
    legend = dict.fromkeys(row.style for rows in parts.values() for row in rows)
    drawing, every = panels(list(parts), [*legend, _PERFECT], height=2.1)
    ideal, words = perfect(0.5), []
    for axes, (title, rows) in zip(every, parts.items(), strict=True):
        axes.plot(100 * ideal.coverage, 100 * ideal.risk, **_PERFECT.line | {"linewidth": 2.2})
        for row in rows:
            coverage, risk, spread = (
                100 * np.asarray(x, float) for x in (row.risk.index, row.risk, row.spread)
            )
            axes.plot(coverage, risk, **row.style.line | {"markersize": 3}, markevery=0.12)
            if np.isfinite(spread).any():
                around = risk - spread, risk + spread
                axes.fill_between(coverage, *around, color=row.style.colour, alpha=0.22, linewidth=0)
        axes.set(xlabel="coverage (%)", ylabel="risk (%)", xlim=(0, 100))
        axes.set_ylim(bottom=0)
        at_half = [
            f"{row.score} on {row.objective} {100 * float(np.interp(0.5, row.risk.index, row.risk)):.1f} %"
            for row in rows
        ]
        words.append(
            f"Line chart for {title}: risk over coverage. Risk at half coverage: {'; '.join(at_half)}."
        )
    return Figure(
        "figure-selective",
        "Risk over coverage",
        "Accepted errors, as a share of all images, when the surest predictions are accepted; mean "
        "over seeds, and one standard deviation to either side. Grey: a perfect predictor, which is right on "
        "all digits and abstains from all letters. Each score has its risks in one reading: 100 "
        "certificates, the entropy of the Dirichlet law, or the mean of pairwise probabilities. Names are in "
        "the order of the areas below the curves, the largest first.",
        " ".join(words),
        drawing,
    )


class SelectivePrediction(Section):
    """Risk over coverage by score and model."""

    name = "selective"
    title = "Selective prediction"
    order = 110
    experiments = (EXPERIMENT.name,)

    def build(self, results: Results) -> Context | None:
        section = selective(results.frame, results.traits)
        return {"section": section} if section else None


def _words(line: _Line) -> str:
    at = f" at σ = {line.scale:g}" if line.scale else ""
    return f"{SCORE_STYLES[line.score].label} on the {MODELS[line.objective][0]} model{at}"


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
            effects[convention] = []
            for better, worse in pairs:
                high, low = (_areas(_of_line(frame, line), reading[line.score]) for line in (worse, better))
                words = f"RCAUC of {_words(worse)} less that of {_words(better)}, in points"
                effects[convention].append(Effect(words, finite(100 * (high - low))))
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
