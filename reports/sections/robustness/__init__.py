"""The section on robustness against noise and attacks, compared with the paper's figures."""

from __future__ import annotations

import itertools
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

    def content(self, measurements: pd.DataFrame, traits: RuleTraits) -> Context:  # noqa: ARG002
        measurements = measurements[measurements["rule"].isin(METHODS)]
        measurements = measurements.assign(scale=measurements["sigma"].astype(float).fillna(0.0))
        sets = []
        for name in RADII:
            rows = measurements[measurements["dataset"] == name]
            if len(rows):
                sets.append(_set_of_images(name, rows))
        return {"sets": sets, "noise": NOISE}


def _set_of_images(name: str, measurements: pd.DataFrame) -> Context:
    """One set of images: each objective at its best scale by the paper's count, and all scales."""
    keys, columns = ["objective", "scale"], ["rule", "metric", "component"]
    # Per cent, by method, metric and strength.
    table = 100 * measurements.pivot_table("value", keys, columns, aggfunc="mean", observed=True)
    spread = 100 * measurements.pivot_table("value", keys, columns, aggfunc="std", observed=True)
    counts = measurements.groupby(keys, observed=True)["seed"].nunique()
    radius = f"{RADII[name][-1]}/255"
    rows: list[dict[str, Any]] = []
    best: list[dict[str, Any]] = []
    for objective in OBJECTIVES:
        if objective not in table.index:
            continue
        rows_of_objective = []
        for scale in table.loc[objective].index:
            row = _row(table, objective, scale, radius)
            rows_of_objective.append(row | {"runs": int(counts[objective, scale])})
        rows += rows_of_objective
        best.append(max(rows_of_objective, key=_count_and_accuracy))
    return {
        "title": SETS[name],
        "radius": radius,
        "best": best,
        "rows": rows,
        "finding": _finding(SETS[name], best, radius),
        "figures": list(_figures(name, radius, table, spread)),
        # that of softmax, if measured
        "recipe": str(measurements.sort_values("sigma", na_position="first")["recipe"].iloc[0]),
    }


def _count_and_accuracy(row: Mapping[str, Any]) -> list[float]:
    """The paper's count first, then accuracy; missing values come last."""
    numbers: list[float] = np.nan_to_num([row["required"], row["clean"]], nan=-1).tolist()
    return numbers


def _row(table: pd.DataFrame, objective: str, scale: float, radius: str) -> dict[str, Any]:
    """Return the accuracies (per cent) of an objective at a scale, NaN if not measured.

    "clean" is without noise, "own" under PGD on the objective's loss, "cross_entropy" under PGD on the cross
    entropy, "square" under the square attack, "weakest" the lowest of these, and "noise" a list by noise
    level. "required" and "pixel" count an image as fooled if its gradient, or a pixel of it, vanishes.
    """
    accuracies, attack = dict(table.xs((objective, scale))), attacked(objective)
    columns = {
        "clean": ("clean", METRICS[0], ""),
        "required": (attack, METRICS[1], radius),
        "pixel": (attack, METRICS[2], radius),
        "own": (attack, METRICS[0], radius),
        "cross_entropy": ("pgd_ce", METRICS[0], radius),
        "square": ("square", METRICS[0], radius),
    }
    row = {name: float(accuracies.get(column, math.nan)) for name, column in columns.items()}
    under_attack = [row[name] for name in ("own", "cross_entropy", "square") if not math.isnan(row[name])]
    under_noise = [accuracies.get(("noise", METRICS[0], f"{sigma:g}"), math.nan) for sigma in NOISE]
    return row | {
        "objective": OBJECTIVES[objective].label,
        "scale": float(scale),
        "noise": [float(accuracy) for accuracy in under_noise],
        "weakest": min(under_attack, default=math.nan),
    }


def _finding(title: str, best: Sequence[Mapping[str, Any]], radius: str) -> str:
    printed = {OBJECTIVES[name].label: accuracy for name, accuracy in PAPER.items()}
    under_pgd = [row for row in best if not math.isnan(row["required"])]
    parts = []
    for row in under_pgd:
        if row["objective"] in printed:
            part = f"{number(row['required'], 1)} % for {row['objective']}"
            if row["scale"]:
                part += f" at scale {row['scale']:g}"
            if title == SETS["mnist"]:
                part += f" (the paper: {printed[row['objective']]} %)"
            parts.append(part)
    sentences = []
    if parts:
        sentences.append(
            f"On {title}, accuracy under PGD within {radius}, if an attack with a zero gradient counts as "
            f"successful, is {labels.listed(parts)}."
        )
    under_square = [row for row in under_pgd if not math.isnan(row["square"])]
    lower = [row for row in under_square if row["square"] < row["required"] - _HIDDEN]
    if lower:
        accuracies = ", ".join(f"{row['objective']} {number(row['square'], 1)} %" for row in lower)
        sentences.append(
            f"The Square attack, which needs no gradient, is stronger for {len(lower)} of "
            f"{len(under_square)}: {accuracies}."
        )
    elif under_square:
        sentences.append(
            "The Square attack, which needs no gradient, lowers none of them by more than 5 points."
        )
    attacked_rows = [row for row in best if not math.isnan(row["weakest"])]
    if attacked_rows:
        first = max(attacked_rows, key=lambda row: row["weakest"])
        accuracy = f"{number(first['weakest'], 1)} %"
        sentences.append(f"Under the strongest attack, {first['objective']} is most accurate, {accuracy}.")
    return " ".join(sentences)


def _figures(name: str, radius: str, table: pd.DataFrame, spread: pd.DataFrame) -> Iterator[Figure]:
    """Accuracies over the scale: by strength of noise and attack, and by objective and attack.

    `table` and `spread` have means and standard deviations over runs, by objective and scale (rows), and
    method, metric and strength (columns).
    """
    by_strength = _lines_by_strength(name, radius, table, spread)
    if by_strength:
        yield over_scale(
            f"figure-robustness-{name}",
            f"{SETS[name]}: accuracy and robust accuracy",
            "Solid: test accuracy. Dashed: accuracy under noise or attack; of PGD, on the model’s own loss, "
            "an attack with a zero gradient counts as successful. Softmax has no scale.",
            by_strength,
            [style for objective, style in OBJECTIVES.items() if objective in table.index],
        )
    by_objective: dict[str, list[Line]] = {}
    for objective, model in OBJECTIVES.items():
        if objective == "softmax":
            continue
        lines = []
        for method, metric, style in _ATTACKS:
            column = (method, metric, "" if method == "clean" else radius)
            lines.append(_line(table, spread, objective, column, style))
        if any(lines):
            by_objective[model.label] = [line for line in lines if line]
    if by_objective:
        yield over_scale(
            f"figure-attacks-{name}",
            f"{SETS[name]}: accuracy under each attack",
            f"Accuracy within {radius} of the images: attacks on the loss that a model "
            "was trained by and on cross-entropy, with and without the requirement that gradients are not "
            "zero, and one without gradients.",
            by_objective,
            [style for _, _, style in _ATTACKS],
        )


def _lines_by_strength(
    name: str, radius: str, table: pd.DataFrame, spread: pd.DataFrame
) -> dict[str, list[Line]]:
    """Lines of the objectives by title of the panel: one panel for each strength of noise and attack."""
    panels_of_set = [(f"noise of σ = {sigma}", "noise", sigma) for sigma in _NOISE]
    panels_of_set += [(f"PGD within {size}/255", "pgd", f"{size}/255") for size in reversed(RADII[name])]
    panels_of_set.append((f"Square attack within {radius}", "square", radius))
    lines_by_title = {}
    for title, method, strength in panels_of_set:
        lines = []
        is_measured = False
        for objective, style in OBJECTIVES.items():
            column = (method, METRICS[0], strength)
            if method == "pgd":
                column = (attacked(objective), METRICS[1], strength)
            clean = _line(table, spread, objective, ("clean", METRICS[0], ""), style)
            dashed = replace(style, label=f"{style.label}, left", dashes=DASHED)
            disturbed = _line(table, spread, objective, column, dashed)
            lines += [line for line in (clean, disturbed) if line]
            is_measured = is_measured or disturbed is not None
        if is_measured:
            lines_by_title[title] = lines
    return lines_by_title


def _line(
    table: pd.DataFrame, spread: pd.DataFrame, objective: str, column: tuple[str, str, str], style: Style
) -> Line | None:
    """Line of an objective's accuracies over its scales; None if they were not measured."""
    if objective not in table.index or column not in table:
        return None
    means = table.loc[objective][column].dropna()
    if means.empty:
        return None
    return Line(style, means, spread.loc[objective].get(column) if objective in spread.index else None)


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
_COUNTS = {
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
    rows = evidence.of(EXPERIMENT.name, dataset="mnist", **where)
    rows = rows.assign(scale=rows["sigma"].astype(float).fillna(0.0))
    return 100 * rows.pivot_table("value", "seed", "scale", observed=True)


def _robust_accuracies(evidence: Evidence, objective: str, attack: str) -> pd.DataFrame:
    """Accuracy under attack by one of the counts; under noise without an attack."""
    if not attack:
        return _accuracies(evidence, objective, "noise", strength=_STRENGTH)
    method, metric = _COUNTS[attack]
    return _accuracies(evidence, objective, method or attacked(objective), metric, _RADIUS)


def _answer(evidence: Evidence, trials: Mapping[Convention, Iterable[Effect]]) -> Answer | None:
    rows = evidence.of(EXPERIMENT.name)
    run_count = int(rows["seed"][rows["dataset"] == "mnist"].nunique()) if len(rows) else 0
    fidelity = (
        f"{labels.plural(run_count, 'run')} of MNIST; the paper: 3 runs of 100 epochs at fourteen scales"
    )
    return Answer.of(trials, "run", fidelity, "#robustness")


def _best_scale(table: pd.DataFrame) -> float:
    """Scale of the largest mean over runs; NaN without any."""
    return float(str(table.mean().idxmax())) if table.size else math.nan


def _at_best_scale(table: pd.DataFrame) -> pd.Series:
    return table[_best_scale(table)] if table.size else pd.Series(dtype=float)


def _difference(
    accuracies: pd.DataFrame, others: pd.DataFrame, words: str, needed: float = 0.0, *, tables: int = 1
) -> Effect:
    """Difference of two accuracies in points, by run, each at its best scale.

    `accuracies` are the best of several `tables`.
    """
    gap = _at_best_scale(accuracies) - _at_best_scale(others)
    choices, against = tables * max(1, accuracies.shape[1]), max(1, others.shape[1])
    return Effect(f"{words}, in points", finite(gap), needed, choices=choices, against=against)


def _name(objective: str) -> str:
    return OBJECTIVES[objective].label


def _gain(
    objectives: Sequence[str],
    over: Sequence[str],
    needed: float = 0.0,
    *,
    noise: bool = False,
    attacks: Iterable[str] = _COUNTS,
) -> Rule:
    """Objectives have higher accuracy than others under each attack, and with `noise` also under noise."""
    pairs = [pair for pair in itertools.product(objectives, over) if pair[0] != pair[1]]

    def rule(evidence: Evidence) -> Answer | None:
        trials: dict[Convention, list[Effect]] = {}
        for attack in attacks:
            effects = []
            if noise:
                effects += [_lead(evidence, *pair, "", needed) for pair in pairs]
            if attack:
                effects += [_lead(evidence, *pair, attack, needed) for pair in pairs]
            trials[(attack,) if attack else ()] = effects
        return _answer(evidence, trials)

    return rule


def _lead(evidence: Evidence, objective: str, other: str, attack: str, needed: float) -> Effect:
    """Lead of an objective over another one under attack, or under noise without an attack."""
    disturbance = f"PGD or Square within {_RADIUS}" if attack else f"noise of {_STRENGTH}"
    return _difference(
        _robust_accuracies(evidence, objective, attack),
        _robust_accuracies(evidence, other, attack),
        f"accuracy under {disturbance}: {_name(objective)} less {_name(other)}",
        needed,
    )


def _competitive(evidence: Evidence) -> Answer | None:
    baseline = _accuracies(evidence, "softmax", "clean")
    tables = {objective: _accuracies(evidence, objective, "clean") for objective in _PROPOSED}
    effects = [
        _difference(table, baseline, f"accuracy: {_name(objective)} less {_name('softmax')}", -_SLIGHT)
        for objective, table in tables.items()
    ]

    def best_accuracy(table: pd.DataFrame) -> float:
        return float(_at_best_scale(table).mean()) if table.size else -math.inf

    best = max(tables.values(), key=best_accuracy)
    words = f"accuracy: the best of the three less {_name('softmax')}"
    effects.append(_difference(best, baseline, words, tables=len(_PROPOSED)))
    return _answer(evidence, {(): effects})


def _by_attack(evidence: Evidence) -> Answer | None:
    """Attacks on cross-entropy leave a higher accuracy than those on the own loss, at the best scales."""
    trials: dict[Convention, list[Effect]] = {}
    for attack, (method, metric) in _COUNTS.items():
        if method is not None:  # an attack without gradients has no loss
            continue
        effects = []
        for objective in _PROPOSED:
            own_loss = _accuracies(evidence, objective, "pgd_own", metric, _RADIUS)
            cross_entropy = _accuracies(evidence, objective, "pgd_ce", metric, _RADIUS)
            gap = pd.Series(dtype=float)
            if own_loss.size and cross_entropy.size:
                gap = cross_entropy[_best_scale(own_loss)] - _at_best_scale(own_loss)
            words = (
                f"{_name(objective)}: accuracy under PGD on cross-entropy less that on its own loss, "
                "in points"
            )
            effects.append(Effect(words, finite(gap), against=max(1, own_loss.shape[1])))
        trials[attack,] = effects
    return _answer(evidence, trials)


def _best_scales_differ(evidence: Evidence) -> Answer | None:
    """Marginal SDP: the best scale under attack is above the best scale under noise."""
    under_noise = _robust_accuracies(evidence, "pairwise_marginal", "")
    trials: dict[Convention, list[Effect]] = {}
    for attack in _COUNTS:
        under_attack = _robust_accuracies(evidence, "pairwise_marginal", attack)
        if under_attack.size and under_noise.size:
            best_under_attack = under_attack.idxmax(axis=1).astype(float)
            decades = np.log10(best_under_attack / under_noise.idxmax(axis=1).astype(float))
            words = "decades from the best scale under noise to that under attack"
            trials[attack,] = [Effect(words, finite(decades))]
    return _answer(evidence, trials)


def _range(evidence: Evidence) -> Answer | None:
    """Decades of scales that gain over cross-entropy under noise at a small cost in accuracy."""
    softmax_under_noise = _at_best_scale(_robust_accuracies(evidence, "softmax", ""))
    softmax_clean = _at_best_scale(_accuracies(evidence, "softmax", "clean"))
    effects = []
    for objective in _PROPOSED:
        under_noise = _robust_accuracies(evidence, objective, "")
        clean = _accuracies(evidence, objective, "clean")
        decades = np.log10(under_noise.columns.to_numpy(float))
        if not under_noise.size or np.diff(decades).max(initial=0) > _COARSE:
            return None
        gains = under_noise.gt(softmax_under_noise, axis=0)
        costs_little = clean.gt(softmax_clean - _SUBSTANTIAL, axis=0)
        is_good = (gains & costs_little).to_numpy()  # runs by scales
        widths = [np.ptp(decades[scales]) if scales.any() else 0.0 for scales in is_good]
        words = f"decades of good scales, {_name(objective)}"
        effects.append(Effect(words, finite(widths), _DECADES[0]))
        effects.append(Effect(words, -finite(widths), -_DECADES[1], lambda effect: -effect))
    return _answer(evidence, {(): effects})


_GAUSS = ("pairwise_gaussian",)

RULES: Mapping[str, Rule] = {
    "robust-meaningful": _gain(_GAUSS, ["softmax"], _SUBSTANTIAL, noise=True),
    "robust-range": _range,
    "robust-noise": _gain(_PROPOSED, ["softmax"], _SUBSTANTIAL, noise=True, attacks=[""]),
    "robust-accuracy": _competitive,
    "robust-baselines": _gain(_PROPOSED, ["softmax", "dirichlet"], noise=True),
    "robust-most": _gain(_GAUSS, list(OBJECTIVES)),
    "robust-dirichlet": _gain(["softmax"], ["dirichlet"], -_SLIGHT),
    "robust-scales": _best_scales_differ,
    "robust-attack": _by_attack,
    "robust-improvement": _gain(_PROPOSED, ["softmax"], _SUBSTANTIAL),
}
