"""The section on robustness against noise and attacks, compared with the paper's figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd

from sdp_bench.bench.studies.robustness import EXPERIMENT, METHODS, METRICS, NOISE, RADII
from sdp_bench.reports.results import Results
from sdp_bench.reports.section import Context, Section
from sdp_bench.reports.statement import Answer, Convention, Effect, Evidence, Rule, finite
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.figure import DASHED, DOTTED, Figure, Line, draw_over_scale, look, panels
from sdp_bench.reports.style.labels import number
from sdp_bench.reports.style.theme import INK, LIGHT, Style, shade


@dataclass(frozen=True)
class ScaleRow:
    """A model, and its accuracies in per cent (NaN if not measured).

    `scale` is that of the noise in training, 0 without. `noise` has accuracies by standard deviation.
    `required`, `own`, `cross_entropy` and `square` are in the larger ball: under PGD on its own loss with
    non-zero gradients, without that condition, under PGD on cross-entropy, and under the Square attack.
    `pixel` is like `required`, with a non-zero gradient at every pixel.
    """

    objective: str
    scale: float
    clean: float
    noise: tuple[float, ...]
    required: float
    pixel: float
    own: float
    cross_entropy: float
    square: float
    runs: int

    @property
    def weakest(self) -> float:
        """Smallest accuracy under an attack: an upper bound on robust accuracy."""
        known = [each for each in (self.own, self.cross_entropy, self.square) if not math.isnan(each)]
        return min(known, default=math.nan)


SETS = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
OBJECTIVES = {
    "softmax": Style("softmax cross-entropy", INK, "p"),
    "dirichlet": Style("Dirichlet, marginal moment matching", shade("#e69f00", LIGHT), "D"),
    "pairwise_gaussian": Style("PD Gauss, SDP", "#009e73", "o"),
    "pairwise_marginal": Style("PD Gauss, marginal SDP", shade("#56b4e9", LIGHT), "s"),
    "pairwise_cauchy": Style("PD Cauchy", "#0072b2", "^"),
}
"""Black is the baseline, as in the paper's figures."""
PAPER = {"pairwise_gaussian": 85, "softmax": 14}
"""Accuracies (per cent) under PGD within 16/255 on MNIST that the paper prints."""
_HIDDEN = 5.0
"""Lead in points of a gradient-free attack that indicates masked gradients."""


def finding(title: str, best: Sequence[ScaleRow], radius: str) -> str:
    """Accuracy of each objective under attack at its best scale, in words."""
    printed = {OBJECTIVES[name].label: accuracy for name, accuracy in PAPER.items()}
    parts = [
        f"{number(row.required, 1)} % for {row.objective}{f' at scale {row.scale:g}' if row.scale else ''}"
        + (f" (the paper: {printed[row.objective]} %)" if title == SETS["mnist"] else "")
        for row in best
        if row.objective in printed and not math.isnan(row.required)
    ]
    text = ""
    if parts:
        text = (
            f"On {title}, accuracy under PGD within {radius}, if an attack with a zero gradient counts as "
            f"successful, is {labels.listed(parts)}."
        )
    searched = [row for row in best if not math.isnan(row.square) and not math.isnan(row.required)]
    lower = [f"{r.objective} {number(r.square, 1)} %" for r in searched if r.square < r.required - _HIDDEN]
    if lower:
        text += (
            f" The Square attack, which needs no gradient, is stronger for {len(lower)} of {len(searched)}: "
            f"{', '.join(lower)}."
        )
    elif searched:
        text += " The Square attack, which needs no gradient, lowers none of them by more than 5 points."
    known = [row for row in best if not math.isnan(row.weakest)]
    if known:
        first = max(known, key=lambda row: row.weakest)
        text += (
            f" Under the strongest attack, {first.objective} is most accurate, {number(first.weakest, 1)} %."
        )
    return text.strip()


_NOISE = ("0.5", "0.75")
_ATTACKS = (
    ("clean", METRICS[0], Style("no attack", "#7a7a7a", "p")),
    ("pgd_own", METRICS[0], Style("PGD, own loss", "#0072b2", "o")),
    ("pgd_own", METRICS[1], Style("the same, gradient not zero", "#0072b2", "s", DASHED)),
    ("pgd_own", METRICS[2], Style("the same, at no pixel", "#0072b2", "^", DOTTED)),
    ("pgd_ce", METRICS[0], Style("PGD, cross-entropy", "#009e73", "D")),
    ("square", METRICS[0], Style("Square attack", "#d55e00", "X")),
)
"""Method, metric, and style of the line."""


def figures(name: str, table: pd.DataFrame, spread: pd.DataFrame) -> Iterator[Figure]:
    """Yield the figures of a data set: accuracies under noise and attack as in the paper, and all attacks.

    `table` and `spread` are means over runs and standard deviations, from `accuracies`.
    """
    strengths = [
        *((f"noise of σ = {sigma}", "noise", sigma) for sigma in _NOISE),
        *((f"PGD within {radius}/255", "pgd", f"{radius}/255") for radius in reversed(RADII[name])),
        *((f"Square attack within {radius}/255", "square", f"{radius}/255") for radius in RADII[name][-1:]),
    ]
    drawn = {
        title: list(_accuracies(table, spread, method, strength)) for title, method, strength in strengths
    }
    drawn = {title: lines for title, lines in drawn.items() if any(line.style.dashes for line in lines)}
    if drawn:
        yield _figure(
            f"figure-robustness-{name}",
            f"{SETS[name]}: accuracy and robust accuracy",
            "Solid: test accuracy. Dashed: accuracy under noise or attack; of PGD, on the model’s own loss, "
            "an attack with a zero gradient counts as successful. Softmax has no scale.",
            drawn,
            [style for objective, style in OBJECTIVES.items() if objective in table.index],
        )
    drawn = dict(_attacks(name, table, spread))
    if drawn:
        yield _figure(
            f"figure-attacks-{name}",
            f"{SETS[name]}: accuracy under each attack",
            f"Accuracy within {RADII[name][-1]}/255 of the images: attacks on the loss that a model "
            "was trained by and on cross-entropy, with and without the requirement that gradients are not "
            "zero, and one without gradients.",
            drawn,
            [style for _, _, style in _ATTACKS],
        )


@look()
def _figure(
    anchor: str, title: str, caption: str, drawn: Mapping[str, list[Line]], legend: Iterable[Style]
) -> Figure:
    drawing, every = panels(list(drawn), legend)
    words = [
        f"Line chart for {name}: {draw_over_scale(axes, lines)}."
        for axes, (name, lines) in zip(every, drawn.items(), strict=True)
    ]
    return Figure(anchor, title, caption, " ".join(words), drawing)


def _accuracies(table: pd.DataFrame, spread: pd.DataFrame, method: str, strength: str) -> Iterator[Line]:
    """Test accuracy of every objective, and accuracy under noise or attack."""
    for objective, style in OBJECTIVES.items():
        if objective not in table.index:
            continue
        own = table.loc[objective]
        attack = ("pgd_ce" if objective == "softmax" else "pgd_own") if method == "pgd" else method
        metric = METRICS[1] if method == "pgd" else METRICS[0]
        for column, dashes, what in (
            (("clean", METRICS[0], ""), (), "accuracy"),
            ((attack, metric, strength), DASHED, "left"),
        ):
            if column in own and own[column].notna().any():
                around = spread.loc[objective].get(column) if objective in spread.index else None
                yield Line(
                    replace(style, dashes=dashes), f"{style.label}, {what}", own[column].dropna(), around
                )


def _attacks(name: str, table: pd.DataFrame, spread: pd.DataFrame) -> Iterator[tuple[str, list[Line]]]:
    radius = f"{RADII[name][-1]}/255"
    for objective, style in OBJECTIVES.items():
        if objective == "softmax" or objective not in table.index:
            continue
        own = table.loc[objective]
        around = spread.loc[objective] if objective in spread.index else pd.DataFrame()
        lines = [
            Line(drawn, drawn.label, own[column].dropna(), around.get(column))
            for method, metric, drawn in _ATTACKS
            if (column := (method, metric, "" if method == "clean" else radius)) in own
            and own[column].notna().any()
        ]
        if lines:
            yield style.label, lines


Accuracies = pd.DataFrame
"""Per cent: rows by objective and scale (0 if it has none), columns by method, metric and strength."""


def accuracies(own: pd.DataFrame, how: Literal["mean", "std"] = "mean") -> Accuracies:
    scaled = own.assign(scale=own["sigma"].astype(float).fillna(0.0))
    columns = ["rule", "metric", "component"]
    return 100 * scaled.pivot_table("value", ["objective", "scale"], columns, aggfunc=how, observed=True)


def attacked(objective: str) -> str:
    """Attack by gradients of the training loss."""
    return "pgd_ce" if objective == "softmax" else "pgd_own"


def robustness(frame: pd.DataFrame) -> Context | None:
    """Content of the section, from measurements of all experiments; None if it was not run."""
    own = frame[(frame["experiment"] == EXPERIMENT.name) & frame["rule"].isin(METHODS)]
    if own.empty:
        return None
    there = own["dataset"].unique()
    sets = [_set_of(name, own[own["dataset"] == name]) for name in RADII if name in there]
    return {"sets": sets, "noise": NOISE}


def _set_of(name: str, own: pd.DataFrame) -> Context:
    """One set of images: each objective at its best scale by the paper's count, and all scales."""
    table = accuracies(own)
    runs = own.assign(scale=own["sigma"].astype(float).fillna(0.0))
    counts = runs.groupby(["objective", "scale"], observed=True)["seed"].nunique()
    radius = f"{RADII[name][-1]}/255"
    rows = tuple(
        _row(table, objective, float(scale), radius, int(counts[objective, scale]))
        for objective in OBJECTIVES
        if objective in table.index.get_level_values(0)
        for scale in table.loc[objective].index
    )
    best = tuple(
        max((row for row in rows if row.objective == title), key=_preference)
        for title in dict.fromkeys(row.objective for row in rows)
    )
    recipe = str(
        own.sort_values("sigma", na_position="first")["recipe"].iloc[0]
    )  # that of softmax, if measured
    return {
        "title": SETS[name],
        "radius": radius,
        "best": best,
        "rows": rows,
        "finding": finding(SETS[name], best, radius),
        "figures": list(figures(name, table, accuracies(own, "std"))),
        "recipe": recipe,
    }


def _preference(row: ScaleRow) -> tuple[float, float]:
    """The paper's count first, then accuracy; missing values come last."""
    return tuple(-1.0 if math.isnan(each) else each for each in (row.required, row.clean))  # type: ignore[return-value]


def _row(table: Accuracies, objective: str, scale: float, radius: str, runs: int) -> ScaleRow:
    known = dict(table.xs((objective, scale)))

    def value(method: str, metric: str = METRICS[0], strength: str = "") -> float:
        return float(known.get((method, metric, strength), math.nan))

    attack = attacked(objective)
    return ScaleRow(
        OBJECTIVES[objective].label,
        scale,
        value("clean"),
        tuple(value("noise", strength=f"{sigma:g}") for sigma in NOISE),
        value(attack, METRICS[1], radius),
        value(attack, METRICS[2], radius),
        value(attack, strength=radius),
        value("pgd_ce", strength=radius),
        value("square", strength=radius),
        runs,
    )


class Robustness(Section):
    """Accuracy under noise and attacks, over the scale of the noise in training."""

    name = "robustness"
    title = "Robustness"
    order = 112
    experiments = (EXPERIMENT.name,)

    def build(self, results: Results) -> Context | None:
        section = robustness(results.frame)
        return {"section": section} if section else None


_SET = "mnist"
"""Data set that the paper's text discusses."""
_RADIUS = f"{RADII[_SET][-1]}/255"
_STRENGTH = "0.5"
_BASELINES = ("softmax", "dirichlet")
_PROPOSED = ("pairwise_gaussian", "pairwise_marginal", "pairwise_cauchy")
_SUBSTANTIAL = 5.0
"""Points of accuracy that count as substantial, or meaningful."""
_SLIGHT = 1.0
"""Points within which accuracies are comparable, and not a gain."""
_DECADES = (3.0, 7.0)
"""Range of "4 to 6 orders of magnitude" if scales are a decade apart."""
_COARSE = 2.0
"""Decades between scales above which a range of scales cannot be determined."""

_LOOKS = {
    "gradients not zero": (None, METRICS[1]),
    "gradients as they are": (None, METRICS[0]),
    "without gradients": ("square", METRICS[0]),
}
"""Accuracies under attack: the paper's count, PGD alone, and Square. None: PGD on the own loss."""

_FIDELITY = "{} of MNIST; the paper: 3 runs of 100 epochs at fourteen scales"


class _Measured:
    """Accuracies on MNIST in per cent: runs by scales."""

    def __init__(self, evidence: Evidence) -> None:
        frame = evidence.of(EXPERIMENT.name)
        self.frame = frame[frame["dataset"] == _SET] if len(frame) else frame

    @property
    def fidelity(self) -> str:
        return _FIDELITY.format(labels.plural(int(self.frame["seed"].nunique()), "run"))

    def of(self, objective: str, method: str, metric: str, strength: str) -> pd.DataFrame:
        """One row per run, one column per scale (0 if the objective has none)."""
        if self.frame.empty:
            return pd.DataFrame()
        own = self.frame[
            (self.frame["objective"] == objective)
            & (self.frame["rule"] == method)
            & (self.frame["metric"] == metric)
            & (self.frame["component"] == strength)
        ]
        own = own.assign(scale=own["sigma"].astype(float).fillna(0.0))
        return 100 * own.pivot_table("value", "seed", "scale", observed=True)

    def clean(self, objective: str) -> pd.DataFrame:
        return self.of(objective, "clean", METRICS[0], "")

    def noisy(self, objective: str) -> pd.DataFrame:
        return self.of(objective, "noise", METRICS[0], _STRENGTH)

    def left(self, objective: str, attack: str) -> pd.DataFrame:
        """Accuracy under attack by one of the counts."""
        method, metric = _LOOKS[attack]
        return self.of(objective, method or attacked(objective), metric, _RADIUS)


def _best(table: pd.DataFrame) -> float:
    """Scale of the largest mean over runs; NaN without any."""
    return float(str(table.mean().idxmax())) if table.size else math.nan


def _at_best(table: pd.DataFrame) -> pd.Series:
    return table[_best(table)] if table.size else pd.Series(dtype=float)


def _more(
    measured: pd.DataFrame, other: pd.DataFrame, words: str, needed: float = 0.0, *, tables: int = 1
) -> Effect:
    """Difference of two accuracies in points, by run, each at its best scale; the best of `tables`."""
    gap = _at_best(measured) - _at_best(other)
    choices, against = tables * max(1, measured.shape[1]), max(1, other.shape[1])
    return Effect(f"{words}, in points", finite(gap), needed, choices=choices, against=against)


def _answer(trials: Mapping[Convention, Iterable[Effect]], measured: _Measured) -> Answer | None:
    return Answer.of(trials, "run", measured.fidelity, "#robustness")


def _name(objective: str) -> str:
    return OBJECTIVES[objective].label


def _gains(
    measured: _Measured, objectives: Iterable[str], over: Iterable[str], attack: str, needed: float
) -> list[Effect]:
    """Gains of objectives over others under attack; without `attack`, under noise."""
    what = f"PGD or Square within {_RADIUS}" if attack else f"noise of {_STRENGTH}"

    def table(objective: str) -> pd.DataFrame:
        return measured.left(objective, attack) if attack else measured.noisy(objective)

    others = tuple(over)
    return [
        _more(table(one), table(other), f"accuracy under {what}: {_name(one)} less {_name(other)}", needed)
        for one in objectives
        for other in others
        if one != other
    ]


def _attacked_more(
    objectives: Iterable[str], over: Iterable[str], needed: float = 0.0, *, noise: bool = False
) -> Rule:
    """Objectives have higher accuracy than others under attack, and with `noise` also under noise."""
    chosen, others = tuple(objectives), tuple(over)

    def rule(evidence: Evidence) -> Answer | None:
        measured = _Measured(evidence)
        beside = _gains(measured, chosen, others, "", needed) if noise else []
        trials: dict[Convention, list[Effect]] = {
            (attack,): [*beside, *_gains(measured, chosen, others, attack, needed)] for attack in _LOOKS
        }
        return _answer(trials, measured)

    return rule


def _under_noise(evidence: Evidence) -> Answer | None:
    measured = _Measured(evidence)
    return _answer({(): _gains(measured, _PROPOSED, ("softmax",), "", _SUBSTANTIAL)}, measured)


def _competitive(evidence: Evidence) -> Answer | None:
    measured = _Measured(evidence)
    baseline = measured.clean("softmax")
    effects = [
        _more(measured.clean(one), baseline, f"accuracy: {_name(one)} less {_name('softmax')}", -_SLIGHT)
        for one in _PROPOSED
    ]
    best = max(
        (measured.clean(one) for one in _PROPOSED),
        key=lambda table: float(_at_best(table).mean()) if table.size else -math.inf,
    )
    words = f"accuracy: the best of the three less {_name('softmax')}"
    effects.append(_more(best, baseline, words, tables=len(_PROPOSED)))
    return _answer({(): effects}, measured)


def _no_gain(evidence: Evidence) -> Answer | None:
    """The Dirichlet likelihood is not more accurate under attack than cross-entropy."""
    measured = _Measured(evidence)
    trials: dict[Convention, list[Effect]] = {
        (attack,): _gains(measured, ("softmax",), ("dirichlet",), attack, -_SLIGHT) for attack in _LOOKS
    }
    return _answer(trials, measured)


def _by_attack(evidence: Evidence) -> Answer | None:
    """Attacks on cross-entropy leave a higher accuracy than those on the own loss, at the best scales."""
    measured = _Measured(evidence)
    trials: dict[Convention, list[Effect]] = {}
    for attack, metric in (("gradients not zero", METRICS[1]), ("gradients as they are", METRICS[0])):
        effects = []
        for one in _PROPOSED:
            own = measured.of(one, "pgd_own", metric, _RADIUS)
            other = measured.of(one, "pgd_ce", metric, _RADIUS)
            gap = other[_best(own)] - _at_best(own) if own.size and other.size else pd.Series(dtype=float)
            words = f"{_name(one)}: accuracy under PGD on cross-entropy less that on its own loss, in points"
            effects.append(Effect(words, finite(gap), against=max(1, own.shape[1])))
        trials[attack,] = effects
    return _answer(trials, measured)


def _scales_part(evidence: Evidence) -> Answer | None:
    """Marginal SDP: the best scale under attack is above the best scale under noise."""
    measured = _Measured(evidence)
    noisy = measured.noisy("pairwise_marginal")
    trials: dict[Convention, list[Effect]] = {}
    for attack in _LOOKS:
        left = measured.left("pairwise_marginal", attack)
        if left.size and noisy.size:
            apart = np.log10(left.idxmax(axis=1).astype(float) / noisy.idxmax(axis=1).astype(float))
            trials[attack,] = [
                Effect("decades from the best scale under noise to that under attack", finite(apart))
            ]
    return _answer(trials, measured)


def _range(evidence: Evidence) -> Answer | None:
    """Decades of scales that gain over cross-entropy under noise at a small cost in accuracy."""
    measured = _Measured(evidence)
    noisy, clean = _at_best(measured.noisy("softmax")), _at_best(measured.clean("softmax"))
    effects = []
    for one in _PROPOSED:
        under, plain = measured.noisy(one), measured.clean(one)
        if not under.size or np.diff(np.log10(under.columns.to_numpy(float))).max(initial=0) > _COARSE:
            return None
        good = under.gt(noisy, axis=0) & plain.gt(clean - _SUBSTANTIAL, axis=0)
        width = good.apply(lambda row: _width(row.index[row].to_numpy(float)), axis=1)
        words = f"decades of good scales, {_name(one)}"
        effects.append(Effect(words, finite(width), _DECADES[0]))
        effects.append(Effect(words, finite(-width), -_DECADES[1], lambda effect: -effect))
    return _answer({(): effects}, measured)


def _width(scales: np.ndarray) -> float:
    return float(np.log10(scales.max() / scales.min())) if len(scales) else 0.0


RULES: Mapping[str, Rule] = {
    "robust-meaningful": _attacked_more(("pairwise_gaussian",), ("softmax",), _SUBSTANTIAL, noise=True),
    "robust-range": _range,
    "robust-noise": _under_noise,
    "robust-accuracy": _competitive,
    "robust-baselines": _attacked_more(_PROPOSED, _BASELINES, noise=True),
    "robust-most": _attacked_more(("pairwise_gaussian",), OBJECTIVES),
    "robust-dirichlet": _no_gain,
    "robust-scales": _scales_part,
    "robust-attack": _by_attack,
    "robust-improvement": _attacked_more(_PROPOSED, ("softmax",), _SUBSTANTIAL),
}
