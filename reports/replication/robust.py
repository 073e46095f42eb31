"""Statements of the paper on robustness against noise and attacks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from sdp_bench.bench.studies.robustness import EXPERIMENT, METRICS, RADII
from sdp_bench.reports.replication.statement import Convention, Effect, Evidence, Rule, Tried, finite
from sdp_bench.reports.sections.robustness.robustness import attacked
from sdp_bench.reports.sections.robustness.words import OBJECTIVES
from sdp_bench.reports.style import labels

_SET = "mnist"
"""Data set that the paper's text discusses."""
_RADIUS = f"{RADII[_SET][-1]}/255"
_NOISE = "0.5"
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
        return self.of(objective, "noise", METRICS[0], _NOISE)

    def left(self, objective: str, look: str) -> pd.DataFrame:
        """Accuracy under attack by one of the counts."""
        method, metric = _LOOKS[look]
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


def _tried(trials: Mapping[Convention, Iterable[Effect]], measured: _Measured) -> Tried | None:
    return Tried.of(trials, "run", measured.fidelity, "#robustness")


def _name(objective: str) -> str:
    return OBJECTIVES[objective].label


def _gains(
    measured: _Measured, objectives: Iterable[str], over: Iterable[str], look: str, needed: float
) -> list[Effect]:
    """Gains of objectives over others under attack; without `look`, under noise."""
    what = f"PGD or Square within {_RADIUS}" if look else f"noise of {_NOISE}"

    def table(objective: str) -> pd.DataFrame:
        return measured.left(objective, look) if look else measured.noisy(objective)

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

    def rule(evidence: Evidence) -> Tried | None:
        measured = _Measured(evidence)
        beside = _gains(measured, chosen, others, "", needed) if noise else []
        trials: dict[Convention, list[Effect]] = {
            (look,): [*beside, *_gains(measured, chosen, others, look, needed)] for look in _LOOKS
        }
        return _tried(trials, measured)

    return rule


def _under_noise(evidence: Evidence) -> Tried | None:
    measured = _Measured(evidence)
    return _tried({(): _gains(measured, _PROPOSED, ("softmax",), "", _SUBSTANTIAL)}, measured)


def _competitive(evidence: Evidence) -> Tried | None:
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
    return _tried({(): effects}, measured)


def _no_gain(evidence: Evidence) -> Tried | None:
    """The Dirichlet likelihood is not more accurate under attack than cross-entropy."""
    measured = _Measured(evidence)
    trials: dict[Convention, list[Effect]] = {
        (look,): _gains(measured, ("softmax",), ("dirichlet",), look, -_SLIGHT) for look in _LOOKS
    }
    return _tried(trials, measured)


def _by_attack(evidence: Evidence) -> Tried | None:
    """Attacks on cross-entropy leave a higher accuracy than those on the own loss, at the best scales."""
    measured = _Measured(evidence)
    trials: dict[Convention, list[Effect]] = {}
    for look, metric in (("gradients not zero", METRICS[1]), ("gradients as they are", METRICS[0])):
        effects = []
        for one in _PROPOSED:
            own = measured.of(one, "pgd_own", metric, _RADIUS)
            other = measured.of(one, "pgd_ce", metric, _RADIUS)
            gap = other[_best(own)] - _at_best(own) if own.size and other.size else pd.Series(dtype=float)
            words = f"{_name(one)}: accuracy under PGD on cross-entropy less that on its own loss, in points"
            effects.append(Effect(words, finite(gap), against=max(1, own.shape[1])))
        trials[look,] = effects
    return _tried(trials, measured)


def _scales_part(evidence: Evidence) -> Tried | None:
    """Marginal SDP: the best scale under attack is above the best scale under noise."""
    measured = _Measured(evidence)
    noisy = measured.noisy("pairwise_marginal")
    trials: dict[Convention, list[Effect]] = {}
    for look in _LOOKS:
        left = measured.left("pairwise_marginal", look)
        if left.size and noisy.size:
            apart = np.log10(left.idxmax(axis=1).astype(float) / noisy.idxmax(axis=1).astype(float))
            trials[look,] = [
                Effect("decades from the best scale under noise to that under attack", finite(apart))
            ]
    return _tried(trials, measured)


def _range(evidence: Evidence) -> Tried | None:
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
    return _tried({(): effects}, measured)


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
