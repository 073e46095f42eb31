"""The section on robustness against noise and attacks, compared with the paper's figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from ....bench.studies.robustness import EXPERIMENT, METHODS, METRICS, NOISE, RADII
from ...section import Context, Study
from ...statement import Answer, Convention, Effect, Evidence, Rule, finite
from ...style import labels
from ...style.figure import DASHED, DOTTED, Figure, Line, over_scale
from ...style.labels import number
from ...style.names import RuleTraits
from ...style.theme import INK, LIGHT, Style, shade

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


_ATTACKS = (
    ("clean", METRICS[0], Style("no attack", "#7a7a7a", "p")),
    ("pgd_own", METRICS[0], Style("PGD, own loss", "#0072b2", "o")),
    ("pgd_own", METRICS[1], Style("the same, gradient not zero", "#0072b2", "s", DASHED)),
    ("pgd_own", METRICS[2], Style("the same, at no pixel", "#0072b2", "^", DOTTED)),
    ("pgd_ce", METRICS[0], Style("PGD, cross-entropy", "#009e73", "D")),
    ("square", METRICS[0], Style("Square attack", "#d55e00", "X")),
)
"""Method, metric, and style of the line."""
_NOISE = ("0.5", "0.75")
"""Standard deviations in the figures."""


def attacked(objective: str) -> str:
    """Attack by gradients of the training loss."""
    return "pgd_ce" if objective == "softmax" else "pgd_own"


class Robustness(Study):
    name = "robustness"
    title = "Robustness"
    order = 112
    experiments = (EXPERIMENT.name,)

    def content(self, own: pd.DataFrame, traits: RuleTraits) -> Context:  # noqa: ARG002
        own = own[own["rule"].isin(METHODS)].assign(scale=own["sigma"].astype(float).fillna(0.0))
        there = own["dataset"].unique()
        sets = [_set_of(name, own[own["dataset"] == name]) for name in RADII if name in there]
        return {"sets": sets, "noise": NOISE}


def _set_of(name: str, own: pd.DataFrame) -> Context:
    """One set of images: each objective at its best scale by the paper's count, and all scales."""
    keys, columns = ["objective", "scale"], ["rule", "metric", "component"]
    # Per cent, by method, metric and strength.
    table = 100 * own.pivot_table("value", keys, columns, aggfunc="mean", observed=True)
    spread = 100 * own.pivot_table("value", keys, columns, aggfunc="std", observed=True)
    counts = own.groupby(keys, observed=True)["seed"].nunique()
    radius = f"{RADII[name][-1]}/255"
    rows: list[dict[str, Any]] = []
    best: list[dict[str, Any]] = []
    for objective in (name for name in OBJECTIVES if name in table.index):
        scales = [
            _row(table, objective, scale, radius) | {"runs": int(counts[objective, scale])}
            for scale in table.loc[objective].index
        ]
        rows += scales
        # The paper's count first, then accuracy; missing values come last.
        best.append(
            max(scales, key=lambda row: np.nan_to_num([row["required"], row["clean"]], nan=-1).tolist())
        )
    return {
        "title": SETS[name],
        "radius": radius,
        "best": best,
        "rows": rows,
        "finding": _finding(SETS[name], best, radius),
        "figures": list(_figures(name, radius, table, spread)),
        # that of softmax, if measured
        "recipe": str(own.sort_values("sigma", na_position="first")["recipe"].iloc[0]),
    }


def _row(table: pd.DataFrame, objective: str, scale: float, radius: str) -> dict[str, Any]:
    known, attack = dict(table.xs((objective, scale))), attacked(objective)
    columns = {
        "clean": ("clean", METRICS[0], ""),
        "required": (attack, METRICS[1], radius),
        "pixel": (attack, METRICS[2], radius),
        "own": (attack, METRICS[0], radius),
        "cross_entropy": ("pgd_ce", METRICS[0], radius),
        "square": ("square", METRICS[0], radius),
    }
    row = {name: float(known.get(column, math.nan)) for name, column in columns.items()}
    attacks = [row[name] for name in ("own", "cross_entropy", "square") if not math.isnan(row[name])]
    return row | {
        "objective": OBJECTIVES[objective].label,
        "scale": float(scale),
        "noise": [float(known.get(("noise", METRICS[0], f"{sigma:g}"), math.nan)) for sigma in NOISE],
        "weakest": min(attacks, default=math.nan),
    }


def _finding(title: str, best: Sequence[Mapping[str, Any]], radius: str) -> str:
    printed = {OBJECTIVES[name].label: accuracy for name, accuracy in PAPER.items()}
    required = [row for row in best if not math.isnan(row["required"])]
    parts = [
        f"{number(row['required'], 1)} % for {row['objective']}"
        + (f" at scale {row['scale']:g}" if row["scale"] else "")
        + (f" (the paper: {printed[row['objective']]} %)" if title == SETS["mnist"] else "")
        for row in required
        if row["objective"] in printed
    ]
    said = []
    if parts:
        said.append(
            f"On {title}, accuracy under PGD within {radius}, if an attack with a zero gradient counts as "
            f"successful, is {labels.listed(parts)}."
        )
    searched = [row for row in required if not math.isnan(row["square"])]
    stronger = [row for row in searched if row["square"] < row["required"] - _HIDDEN]
    if stronger:
        lower = ", ".join(f"{row['objective']} {number(row['square'], 1)} %" for row in stronger)
        count = f"{len(stronger)} of {len(searched)}"
        said.append(f"The Square attack, which needs no gradient, is stronger for {count}: {lower}.")
    elif searched:
        said.append("The Square attack, which needs no gradient, lowers none of them by more than 5 points.")
    known = [row for row in best if not math.isnan(row["weakest"])]
    if known:
        first = max(known, key=lambda row: row["weakest"])
        left = f"{number(first['weakest'], 1)} %"
        said.append(f"Under the strongest attack, {first['objective']} is most accurate, {left}.")
    return " ".join(said)


def _figures(name: str, radius: str, table: pd.DataFrame, spread: pd.DataFrame) -> Iterator[Figure]:
    def measured(objective: str, column: tuple[str, str, str], style: Style) -> list[Line]:
        if objective not in table.index or column not in table:
            return []
        own = table.loc[objective][column].dropna()
        around = spread.loc[objective].get(column) if objective in spread.index else None
        return [Line(style, own, around)] if len(own) else []

    drawn = {}
    panels_of_set = [(f"noise of σ = {sigma}", "noise", sigma) for sigma in _NOISE]
    panels_of_set += [(f"PGD within {size}/255", "pgd", f"{size}/255") for size in reversed(RADII[name])]
    panels_of_set.append((f"Square attack within {radius}", "square", radius))
    for title, method, strength in panels_of_set:
        lines = []
        for objective, style in OBJECTIVES.items():
            pgd = (attacked(objective), METRICS[1], strength)
            column = pgd if method == "pgd" else (method, METRICS[0], strength)
            dashed = replace(style, label=f"{style.label}, left", dashes=DASHED)
            lines += measured(objective, ("clean", METRICS[0], ""), style)
            lines += measured(objective, column, dashed)
        if any(line.style.dashes for line in lines):
            drawn[title] = lines
    if drawn:
        yield over_scale(
            f"figure-robustness-{name}",
            f"{SETS[name]}: accuracy and robust accuracy",
            "Solid: test accuracy. Dashed: accuracy under noise or attack; of PGD, on the model’s own loss, "
            "an attack with a zero gradient counts as successful. Softmax has no scale.",
            drawn,
            [style for objective, style in OBJECTIVES.items() if objective in table.index],
        )
    drawn = {
        model.label: [
            line
            for method, metric, style in _ATTACKS
            for line in measured(objective, (method, metric, "" if method == "clean" else radius), style)
        ]
        for objective, model in OBJECTIVES.items()
        if objective != "softmax"
    }
    drawn = {title: lines for title, lines in drawn.items() if lines}
    if drawn:
        yield over_scale(
            f"figure-attacks-{name}",
            f"{SETS[name]}: accuracy under each attack",
            f"Accuracy within {radius} of the images: attacks on the loss that a model "
            "was trained by and on cross-entropy, with and without the requirement that gradients are not "
            "zero, and one without gradients.",
            drawn,
            [style for _, _, style in _ATTACKS],
        )


_RADIUS = f"{RADII['mnist'][-1]}/255"
"""On MNIST, which the paper's text discusses."""
_STRENGTH = "0.5"
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


def _accuracies(
    evidence: Evidence, objective: str, method: str, metric: str = METRICS[0], strength: str = ""
) -> pd.DataFrame:
    """Accuracies on MNIST in per cent: one row per run, one column per scale (0 without a scale)."""
    where = {"objective": objective, "rule": method, "metric": metric, "component": strength}
    own = evidence.of(EXPERIMENT.name, dataset="mnist", **where)
    own = own.assign(scale=own["sigma"].astype(float).fillna(0.0))
    return 100 * own.pivot_table("value", "seed", "scale", observed=True)


def _left(evidence: Evidence, objective: str, attack: str) -> pd.DataFrame:
    """Accuracy under attack by one of the counts; under noise without an attack."""
    if not attack:
        return _accuracies(evidence, objective, "noise", strength=_STRENGTH)
    method, metric = _LOOKS[attack]
    return _accuracies(evidence, objective, method or attacked(objective), metric, _RADIUS)


def _answer(evidence: Evidence, trials: Mapping[Convention, Iterable[Effect]]) -> Answer | None:
    own = evidence.of(EXPERIMENT.name)
    runs = labels.plural(int(own["seed"][own["dataset"] == "mnist"].nunique()) if len(own) else 0, "run")
    fidelity = f"{runs} of MNIST; the paper: 3 runs of 100 epochs at fourteen scales"
    return Answer.of(trials, "run", fidelity, "#robustness")


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


def _name(objective: str) -> str:
    return OBJECTIVES[objective].label


def _gain(
    objectives: Sequence[str],
    over: Iterable[str],
    needed: float = 0.0,
    *,
    noise: bool = False,
    attacks: Iterable[str] = _LOOKS,
) -> Rule:
    """Objectives have higher accuracy than others under each attack, and with `noise` also under noise."""
    others, words = tuple(over), (f"noise of {_STRENGTH}", f"PGD or Square within {_RADIUS}")

    def rule(evidence: Evidence) -> Answer | None:
        trials: dict[Convention, list[Effect]] = {}
        for attack in attacks:
            trials[tuple(filter(None, [attack]))] = [
                _more(
                    _left(evidence, one, under),
                    _left(evidence, other, under),
                    f"accuracy under {words[bool(under)]}: {_name(one)} less {_name(other)}",
                    needed,
                )
                for under in ([""] if noise else []) + ([attack] if attack else [])
                for one in objectives
                for other in others
                if one != other
            ]
        return _answer(evidence, trials)

    return rule


def _competitive(evidence: Evidence) -> Answer | None:
    baseline = _accuracies(evidence, "softmax", "clean")
    tables = {one: _accuracies(evidence, one, "clean") for one in _PROPOSED}
    effects = [
        _more(table, baseline, f"accuracy: {_name(one)} less {_name('softmax')}", -_SLIGHT)
        for one, table in tables.items()
    ]
    best = max(tables.values(), key=lambda table: float(_at_best(table).mean()) if table.size else -math.inf)
    words = f"accuracy: the best of the three less {_name('softmax')}"
    effects.append(_more(best, baseline, words, tables=len(_PROPOSED)))
    return _answer(evidence, {(): effects})


def _by_attack(evidence: Evidence) -> Answer | None:
    """Attacks on cross-entropy leave a higher accuracy than those on the own loss, at the best scales."""
    trials: dict[Convention, list[Effect]] = {}
    for attack, (method, metric) in _LOOKS.items():
        if method is None:
            trials[attack,] = []
            for one in _PROPOSED:
                own = _accuracies(evidence, one, "pgd_own", metric, _RADIUS)
                other = _accuracies(evidence, one, "pgd_ce", metric, _RADIUS)
                both = own.size and other.size
                gap = other[_best(own)] - _at_best(own) if both else pd.Series(dtype=float)
                words = (
                    f"{_name(one)}: accuracy under PGD on cross-entropy less that on its own loss, in points"
                )
                trials[attack,].append(Effect(words, finite(gap), against=max(1, own.shape[1])))
    return _answer(evidence, trials)


def _scales_part(evidence: Evidence) -> Answer | None:
    """Marginal SDP: the best scale under attack is above the best scale under noise."""
    noisy = _left(evidence, "pairwise_marginal", "")
    trials: dict[Convention, list[Effect]] = {}
    for attack in _LOOKS:
        left = _left(evidence, "pairwise_marginal", attack)
        if left.size and noisy.size:
            apart = np.log10(left.idxmax(axis=1).astype(float) / noisy.idxmax(axis=1).astype(float))
            words = "decades from the best scale under noise to that under attack"
            trials[attack,] = [Effect(words, finite(apart))]
    return _answer(evidence, trials)


def _range(evidence: Evidence) -> Answer | None:
    """Decades of scales that gain over cross-entropy under noise at a small cost in accuracy."""
    noisy = _at_best(_left(evidence, "softmax", ""))
    clean = _at_best(_accuracies(evidence, "softmax", "clean"))
    effects = []
    for one in _PROPOSED:
        under, plain = _left(evidence, one, ""), _accuracies(evidence, one, "clean")
        if not under.size or np.diff(np.log10(under.columns.to_numpy(float))).max(initial=0) > _COARSE:
            return None
        good = under.gt(noisy, axis=0) & plain.gt(clean - _SUBSTANTIAL, axis=0)
        decades = np.log10(under.columns.to_numpy(float))
        width = [np.ptp(decades[row]) if row.any() else 0.0 for row in good.to_numpy()]
        words = f"decades of good scales, {_name(one)}"
        effects.append(Effect(words, finite(width), _DECADES[0]))
        effects.append(Effect(words, -finite(width), -_DECADES[1], lambda effect: -effect))
    return _answer(evidence, {(): effects})


_GAUSS = ("pairwise_gaussian",)

RULES: Mapping[str, Rule] = {
    "robust-meaningful": _gain(_GAUSS, ["softmax"], _SUBSTANTIAL, noise=True),
    "robust-range": _range,
    "robust-noise": _gain(_PROPOSED, ["softmax"], _SUBSTANTIAL, noise=True, attacks=[""]),
    "robust-accuracy": _competitive,
    "robust-baselines": _gain(_PROPOSED, ["softmax", "dirichlet"], noise=True),
    "robust-most": _gain(_GAUSS, OBJECTIVES),
    "robust-dirichlet": _gain(["softmax"], ["dirichlet"], -_SLIGHT),
    "robust-scales": _scales_part,
    "robust-attack": _by_attack,
    "robust-improvement": _gain(_PROPOSED, ["softmax"], _SUBSTANTIAL),
}
