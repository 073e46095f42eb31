"""Statements of the paper on prediction intervals on UCI sets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from sdp_bench.bench.studies.uci import EXPERIMENT
from sdp_bench.reports.replication.statement import Convention, Effect, Evidence, Rule, Tried, finite, tried
from sdp_bench.reports.sections.uci import READINGS, SETS, by_seed, label, of_reading

_COVERAGE = 0.95
_LEAST = 0.925
"""Coverage in validation from which a setting qualifies."""
_BASELINES = ("pnn", "sqr_ends")
_STAND_IN = {"sqr_ends": "sqr"}
"""Substitutes for methods that were not run on a set."""
_ENSEMBLE = "ensemble:members=5"
_SAMPLES = ("monte_carlo:samples=10", "monte_carlo:samples=100")
_BOLD = {
    "sdp": ("concrete", "naval", "energy"),
    "sdp+pnn": ("power", "wine", "yacht", "boston", "kin8nm"),
}
"""Sets on which Table 4 marks a method's intervals as the narrowest."""
_PAPER = "the paper: eight sets, 20 seeds"
_FEWEST = 3
"""Smallest number of seeds with a qualifying setting of both methods, for a set to count."""


class _Measured:
    """Values by set and method over qualifying seeds, under one reading of the scan of input variances."""

    def __init__(self, evidence: Evidence, reading: str = "") -> None:
        self.frame = of_reading(evidence.of(EXPERIMENT.name), reading)
        self.traits = evidence.results.traits
        self._series = (
            by_seed(self.frame) if len(self.frame) else {}
        )  # otherwise the column of sets may not exist
        self.run = {(name, method) for name, method, _ in self._series}

    @property
    def sets(self) -> list[str]:
        return sorted({name for name, _, _ in self._series})

    @property
    def fidelity(self) -> str:
        return f"{', '.join(self.sets)}, {self.frame['seed'].nunique()} seeds"

    def of(self, name: str, method: str, metric: str) -> pd.Series:
        """Values over seeds of the method or its substitute."""
        return self._series.get((name, self.speaker(name, method), metric), pd.Series(dtype=float))

    def speaker(self, name: str, method: str) -> str:
        """The method if it was run on a set, otherwise its substitute."""
        return method if (name, method) in self.run else _STAND_IN.get(method, method)

    def narrower(self, name: str, method: str, others: Iterable[str], choices: int = 1) -> Iterator[Effect]:
        """Widths of others over that of a method on a set, by seed; the best of `choices`."""
        for other in (self.speaker(name, each) for each in others):
            both = (self.of(name, other, "mpiw") / self.of(name, method, "mpiw")).dropna()
            if other != method and len(both) >= _FEWEST:
                words = (
                    f"MPIW of {label(method, self.traits)} over that of {label(other, self.traits)} on {name}"
                )
                yield Effect(
                    words, finite(np.log(both)), shown=lambda effect: math.exp(-effect), choices=choices
                )

    def errors(self, method: str) -> pd.Series:
        """Mean distance of the coverage from 95 % over the sets, by seed."""
        own = [(self.of(name, method, "picp") - _COVERAGE).abs() for name in self.sets]
        return pd.concat(own, axis=1).mean(axis=1, skipna=False).dropna() if own else pd.Series(dtype=float)


def _under_each_reading(effects_of: Callable[[_Measured], Iterable[Effect]]) -> Rule:
    """Rule by effects under each measured reading of the scan of input variances."""

    def rule(evidence: Evidence) -> Tried | None:
        components = evidence.of(EXPERIMENT.name)["component"].unique()
        measured = {
            words: _Measured(evidence, each) for each, words in READINGS.items() if each in components
        }
        effects: dict[Convention, Iterable[Effect]] = {
            (words,): effects_of(one) for words, one in measured.items()
        }
        fidelities = {words: one.fidelity for words, one in measured.items()}
        if len(set(fidelities.values())) > 1:
            fidelities = {words: f"{words}: {each}" for words, each in fidelities.items()}
        said = "; ".join((*dict.fromkeys(fidelities.values()), _PAPER))
        return Tried.of(effects, "seed", said, "#uci")

    return rule


def _narrowest(places: Mapping[str, Sequence[str]], others: Sequence[str]) -> Rule:
    return _under_each_reading(
        lambda measured: [
            effect
            for method, names in places.items()
            for name in names
            if name in measured.sets
            for effect in measured.narrower(name, method, others)
        ]
    )


def _either(measured: _Measured) -> Iterator[Effect]:
    """On each set, the narrower of SDP and SDP + PNN against all other methods."""
    for name in measured.sets:
        widths = {method: measured.of(name, method, "mpiw").mean() for method in ("sdp", "sdp+pnn")}
        best = min(
            widths, key=lambda method: (math.isnan(widths[method]), widths[method])
        )  # NaN: none qualified
        yield from measured.narrower(name, best, (*_BASELINES, *_SAMPLES), len(widths))


def _better_covered(others: Sequence[str]) -> Rule:
    """The coverage of SDP + PNN is closer to 95 % than that of others, over sets."""

    def effects(measured: _Measured) -> Iterator[Effect]:
        own = measured.errors("sdp+pnn")
        for other in others:
            lead = (measured.errors(other) - own).dropna()
            if len(lead) >= _FEWEST:
                words = f"distance of the coverage from 95 %: {label(other, measured.traits)} less SDP + PNN"
                yield Effect(words, finite(lead))

    return _under_each_reading(effects)


def _on_boston(measured: _Measured) -> Iterator[Effect]:
    others = ("sdp", "sdp+pnn", *_BASELINES, _SAMPLES[0])
    yield from measured.narrower("boston", _SAMPLES[1], others)


def _few_samples(measured: _Measured) -> Iterator[Effect]:
    own = [measured.of(name, "monte_carlo:samples=5", "picp") for name in measured.sets]
    if own:
        coverage = finite(pd.concat(own, axis=1).mean(axis=1))
        words = "coverage with 5 samples, mean over sets"
        yield Effect(words, _LEAST - coverage, shown=lambda effect: _LEAST - effect)


def _ensemble(evidence: Evidence) -> Tried | None:
    """Ensembles have no input variance, and therefore a single reading."""
    measured = _Measured(evidence)
    sets = [name for name in measured.sets if (name, _ENSEMBLE) in measured.run]
    effects = (effect for name in sets for effect in measured.narrower(name, "pnn", (_ENSEMBLE,)))
    return tried(effects, "seed", f"{', '.join(sets)}; {_PAPER}", "#uci")


RULES: Mapping[str, Rule] = {
    "uci-sdp": _narrowest({"sdp": _BOLD["sdp"]}, _BASELINES),
    "uci-pnn": _narrowest({"sdp+pnn": _BOLD["sdp+pnn"]}, (*_BASELINES, "sdp")),
    "uci-coverage": _better_covered(("sdp", *_BASELINES, *_SAMPLES)),
    "uci-either": _under_each_reading(_either),
    "uci-trend": _better_covered(("sdp", "pnn")),
    "uci-boston": _under_each_reading(_on_boston),
    "uci-complementary": _narrowest({"sdp+pnn": SETS}, ("pnn",)),
    "uci-few": _under_each_reading(_few_samples),
    "uci-ensemble": _ensemble,
}
