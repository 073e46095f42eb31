"""The section on selective prediction, compared with the paper's table."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ....bench.studies import selective as study
from ....bench.studies.selective import EXPERIMENT, OTHER_SCALES, SCALE, SCORES
from ....bench.studies.selective.risk_coverage import perfect
from ...paper import experiment
from ...section import Context, Study
from ...statement import Answer, Convention, Effect, Evidence, Rule, finite
from ...statistics.ranking import best_of
from ...style import labels
from ...style.figure import Figure, look, panels
from ...style.names import RuleTraits
from ...style.theme import GREY, LIGHT, Style, shade
from ...tables.frame import by_kind

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
        if not reading.startswith(_BORROWED):
            return reading
        return f"{reading.removeprefix(_BORROWED)}, Gaussian scales"
    return _LABELS.get(score, _LABELS.get(reading, "")).format(reading)


class _Line(NamedTuple):
    """Training objective and score, and the scale of the noise if it is not the objective's own."""

    objective: str
    score: str
    scale: float | None = None


def _of_line(frame: pd.DataFrame, line: _Line) -> pd.DataFrame:
    at_scale = frame["sigma"].isna() if line.scale is None else frame["sigma"] == line.scale
    return frame[at_scale & (frame["objective"] == line.objective) & (frame["rule"] == line.score)]


def _areas(rows: pd.DataFrame, reading: str) -> pd.Series:
    """RCAUC as a share, by seed."""
    return rows[(rows["metric"] == "rcauc") & (rows["component"] == reading)].set_index("seed")["value"]


def _by_reading(rows: pd.DataFrame, score: str) -> list[Context]:
    """Mean area and standard deviation over seeds (NaN for one), in per cent, in the order of `READINGS`."""
    numbers: list[Context] = []
    for reading in READINGS[score]:
        areas = 100 * _areas(rows, reading)
        name = reading_label(score, reading)
        numbers.append({"name": name, "mean": float(areas.mean()), "sd": float(areas.std())})
    return numbers


def _accuracy(rows: pd.DataFrame) -> float:
    """Mean accuracy in per cent."""
    return 100 * float(rows[rows["metric"] == "accuracy"]["value"].mean())


def _by_scale(frame: pd.DataFrame) -> list[Context]:
    """Dirichlet models by ascending scale; empty if there is only the paper's.

    Only seeds with all scales count. Otherwise the seeds of scales would be compared, too.
    """
    parts: dict[float, pd.DataFrame] = {}
    for scale in sorted([*OTHER_SCALES, SCALE]):
        line = _MATCHED if scale == SCALE else _MATCHED._replace(scale=scale)
        part = _of_line(frame, line)
        if len(part):
            parts[scale] = part
    if len(parts) < 2:
        return []
    seeds = set.intersection(*[set(part["seed"]) for part in parts.values()])
    if not seeds:
        return []
    table: list[Context] = []
    for scale, part in parts.items():
        rows = part[part["seed"].isin(seeds)]
        areas = _by_reading(rows, "dirichlet")
        table.append({"scale": scale, "areas": areas, "accuracy": _accuracy(rows), "seeds": len(seeds)})
    return table


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


class SelectivePrediction(Study):
    name = "selective"
    title = "Selective prediction"
    order = 110
    experiments = (EXPERIMENT.name,)

    def content(self, measurements: pd.DataFrame, traits: RuleTraits) -> Context | None:
        at_own_scale = measurements[measurements["sigma"].isna()]
        halves: list[dict[str, Any]] = []
        for title, part, objectives in _HALVES:
            rows = _rows_of_half(at_own_scale, objectives, traits)
            if rows:
                halves.append({"title": title, "part": part, "rows": rows})
        if not halves:
            return None
        return {
            "halves": halves,
            "runs": _runs(at_own_scale),
            "scales": _by_scale(measurements),
            "finding": _finding([row for half in halves for row in half["rows"]]),
            "figure": _figure({f"{half['part']} {half['title']}".strip(): half["rows"] for half in halves}),
            "perfect": PERFECT,
        }


def _rows_of_half(
    measurements: pd.DataFrame, objectives: Iterable[str], traits: RuleTraits
) -> list[dict[str, Any]]:
    """Rows of a half of the table, with the best areas marked as `best`."""
    rows = []
    for objective in objectives:
        for score in SCORES[objective]:
            line = _Line(objective, score)
            row = _row(_of_line(measurements, line), line, traits)
            if row:
                rows.append(row)
    best = best_of({str(index): row["areas"] for index, row in enumerate(rows)})
    return [row | {"best": str(index) in best} for index, row in enumerate(rows)]


def _runs(measurements: pd.DataFrame) -> list[Context]:
    """Number of seeds, accuracy and recipe of each objective."""
    runs: list[Context] = []
    for objective in SCORES:
        models = measurements[measurements["objective"] == objective]
        if len(models):
            model, _ = MODELS[objective]
            runs.append(
                {
                    "objective": model,
                    "seeds": int(models["seed"].nunique()),
                    "accuracy": _accuracy(models),
                    "recipe": "; ".join(dict.fromkeys(models["recipe"])),
                }
            )
    return runs


def _row(measurements: pd.DataFrame, line: _Line, traits: RuleTraits) -> dict[str, Any] | None:
    """A model, its propagation rule, and the score that ranks predictions.

    `area` is the RCAUC of the first reading, with its values by seed in `areas`, and `others` those of other
    readings. `paper` is what the paper prints, or empty. `risk` is the mean risk by coverage (shares), with
    the deviation over seeds in `spread`.
    """
    areas = measurements[measurements["metric"] == "rcauc"]
    if areas.empty:
        return None
    printed = experiment("rcauc_mnist").astype(str).set_index(["objective", "score"]).to_dict("index")
    paper = printed.get((line.objective, line.score))
    rule = paper["method"] if paper else _RULES[line.objective]
    area, *others = _by_reading(measurements, line.score)
    risks = measurements[measurements["metric"] == "risk"]
    by_coverage = risks.groupby(by_kind(risks["component"], float))["value"]
    style, (model, dashes) = SCORE_STYLES[line.score], MODELS[line.objective]
    return {
        "objective": model,
        "score": style.label,
        "is_pairwise": line.score in _PAIRWISE,
        "style": replace(style, label=f"{style.label} ({model})", dashes=dashes),
        "method": "–" if rule == "none" else traits.label(rule),
        "area": area,
        "others": others,
        "seeds": int(areas["seed"].nunique()),
        "paper": f"{paper['value']} ± {paper['sd']}" if paper else "",
        "areas": _areas(measurements, READINGS[line.score][0]),
        "risk": by_coverage.mean(),
        "spread": by_coverage.std(),
    }


def _finding(rows: Sequence[Context]) -> str:
    best = min(rows, key=lambda row: row["area"]["mean"])
    mean, sd = best["area"]["mean"], best["area"]["sd"]
    spread = "" if math.isnan(sd) else f" ± {sd:.2f}"
    text = (
        f"Of {labels.plural(len(rows), 'pair')} of model and score, the {best['score']} score on the "
        f"{best['objective']} model has the smallest area, {mean:.2f}{spread} %. In the paper, the PD Cauchy "
        "score on the PD loss Gauss model has the smallest area, 18.3 %."
    )
    softmax = SCORE_STYLES["softmax_entropy"].label
    entropy = {row["objective"]: row["area"]["mean"] for row in rows if row["score"] == softmax}
    pairwise = [row for row in rows if row["is_pairwise"] and row["objective"] in entropy]
    if pairwise:
        below = below_in_best_reading = 0
        for row in pairwise:
            smallest = min(area["mean"] for area in [row["area"], *row["others"]])
            below += row["area"]["mean"] < entropy[row["objective"]]
            below_in_best_reading += smallest < entropy[row["objective"]]
        text += (
            f" For {below} of {labels.plural(len(pairwise), 'pairwise score')}, the area is below that of "
            "the softmax entropy of the same model. With the most favourable interpretation of each score, "
            f"this holds for {below_in_best_reading}."
        )
    if any(row["seeds"] == 1 for row in rows):
        text += " Values without ± are from one seed."
    return text


@look()
def _figure(halves: Mapping[str, Sequence[Context]]) -> Figure | None:
    """Risk over coverage, in a panel for each half of the table; `halves` are rows by title."""
    rows_by_panel: dict[str, list[Context]] = {}
    for title, rows in halves.items():
        with_risks = [row for row in rows if len(row["risk"])]
        if with_risks:
            rows_by_panel[title] = sorted(with_risks, key=lambda row: row["risk"].mean(), reverse=True)
    if not rows_by_panel:
        return None
    legend = dict.fromkeys(row["style"] for rows in rows_by_panel.values() for row in rows)
    drawing, axes_of_panels = panels(list(rows_by_panel), [*legend, _PERFECT], height=2.1)
    ideal = perfect(0.5)
    for axes, rows in zip(axes_of_panels, rows_by_panel.values(), strict=True):
        axes.plot(100 * ideal.coverage, 100 * ideal.risk, **_PERFECT.line | {"linewidth": 2.2})
        for row in rows:
            style = row["style"]
            coverage = 100 * np.asarray(row["risk"].index, float)
            risk = 100 * np.asarray(row["risk"], float)
            spread = 100 * np.asarray(row["spread"], float)
            axes.plot(coverage, risk, **style.line | {"markersize": 3}, markevery=0.12)
            if np.isfinite(spread).any():
                low, high = risk - spread, risk + spread
                axes.fill_between(coverage, low, high, color=style.colour, alpha=0.22, linewidth=0)
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
        drawing,
    )


def _words(line: _Line) -> str:
    model, _ = MODELS[line.objective]
    scale = f" at σ = {line.scale:g}" if line.scale else ""
    return f"{SCORE_STYLES[line.score].label} on the {model} model{scale}"


def _readings(lines: Iterable[_Line]) -> Iterator[Mapping[str, str]]:
    """All combinations of readings of some scores; the scores of pairs share their reading."""
    scores = list(dict.fromkeys(line.score for line in lines))
    for combination in itertools.product(*(READINGS[score] for score in scores)):
        reading_of = dict(zip(scores, combination, strict=True))
        pairwise = [reading_of[score].removeprefix(_BORROWED) for score in scores if score in _PAIRWISE]
        if len(set(pairwise)) <= 1:
            yield reading_of


def _smaller(*pairs: tuple[_Line, _Line]) -> Rule:
    """Areas of some lines are below those of others, under every reading of the scores."""

    def rule(evidence: Evidence) -> Answer | None:
        # few columns, because a selection copies all of them
        columns = ["sigma", "objective", "rule", "metric", "component", "seed", "value"]
        frame = evidence.of(EXPERIMENT.name)[columns]
        if frame.empty:
            return None
        effects: dict[Convention, list[Effect]] = {}
        for reading_of in _readings(itertools.chain.from_iterable(pairs)):
            convention = tuple(
                f"{SCORE_STYLES[score].label} {reading}" for score, reading in reading_of.items() if reading
            )
            effects[convention] = []
            for better, worse in pairs:
                smaller = _areas(_of_line(frame, better), reading_of[better.score])
                larger = _areas(_of_line(frame, worse), reading_of[worse.score])
                words = f"RCAUC of {_words(worse)} less that of {_words(better)}, in points"
                effects[convention].append(Effect(words, finite(100 * (larger - smaller))))
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
        (_CAUCHY, _SOFTMAX), (_CAUCHY, _CERTIFICATES), (_CAUCHY, _UNSUITED), (_CAUCHY, _GAUSS)
    ),
    "selective-certificates": _smaller((_SOFTMAX, _CERTIFICATES)),
    "selective-dirichlet": _smaller((_SOFTMAX, _UNSUITED)),
    "selective-pairwise": _smaller((_MATCHED_GAUSS, _MATCHED), (_MATCHED_CAUCHY, _MATCHED)),
    "selective-best": _smaller((_BEST, _PAIRS), (_BEST, _MATCHED_GAUSS), (_BEST, _MATCHED), (_BEST, _CAUCHY)),
    "selective-scale": _smaller(*[(_MATCHED, _MATCHED._replace(scale=scale)) for scale in OTHER_SCALES]),
}
