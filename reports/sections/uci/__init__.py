"""The section on prediction intervals for UCI sets, compared with the paper's tables."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from string import ascii_lowercase

import numpy as np
import pandas as pd

from ....bench.studies import uci
from ....bench.studies.uci import EXPERIMENT
from ...paper import experiment
from ...section import Context, Study
from ...statement import Answer, Convention, Effect, Evidence, Rule, finite
from ...statistics.ranking import best_of
from ...style import labels
from ...style.names import RuleTraits

_ENSEMBLE = "ensemble:members=5"
_LABELS = {
    "sdp": "SDP",
    "sdp_nll": "SDP trained by its likelihood",
    "sdp+pnn": "SDP + PNN",
    "pnn": "PNN",
    _ENSEMBLE: "five PNNs",
    "sqr_ends": "SQR",
    "sqr": "SQR trained at all levels",
}
_OURS = ("sdp_nll", _ENSEMBLE, "sqr_ends", "sqr")
"""Methods with a column if they were run; all others are the paper's."""
READINGS = {
    "": "a scan for each seed and configuration",
    "set_scan": "one scan for each data set",
    "set_variance": "one variance for each data set",
}
"""Readings of the scan of input variances, by component; the first has its own tables."""
CANDIDATES = {"set_scan": 165, "set_variance": 15, "": 285}
"""Candidates from which each seed selects: 15 configurations, times the remaining variances."""
_SAMPLES = ("monte_carlo:samples=10", "monte_carlo:samples=100")
_EXTREMES = ("monte_carlo:samples=5", "monte_carlo:samples=1000")
_BOTH = ("picp", "mpiw")
_TABLES = (
    ("Coverage and width", "Table 4", ("sdp", "sdp_nll", "sdp+pnn", "pnn", _ENSEMBLE), _BOTH),
    ("Coverage and width, samples and quantiles", "Table 4", (*_SAMPLES, "sqr_ends", "sqr"), _BOTH),
    ("Coverage and width, fewest and most samples", "Table 40", _EXTREMES, _BOTH),
    ("Negative log-likelihood", "Table 38", tuple(uci.METHODS), ("nll",)),
)
"""Title, the paper's table, methods and metrics of each table."""

SETS = ("concrete", "power", "wine", "yacht", "naval", "energy", "boston", "kin8nm")
_SCANNED = ("sdp", "sdp+pnn")
"""Methods whose readings are compared."""
_BEST = ("mpiw", "nll")
"""Metrics whose smallest value is the best."""

Measured = dict[tuple[str, str, str], pd.Series]
"""Values by seed, of each set, method and metric."""


class PredictionIntervals(Study):
    name = "uci"
    title = "UCI intervals"
    order = 100
    experiments = (EXPERIMENT.name,)

    def content(self, own: pd.DataFrame, traits: RuleTraits) -> Context:
        # A set that was run in several ways has a letter for each.
        ways = own.groupby("dataset")["recipe"].unique()
        names = {
            (name, recipe): f"{name} ({letter})" if len(recipes) > 1 else str(name)
            for name, recipes in ways.items()
            for letter, recipe in zip(ascii_lowercase, recipes, strict=False)
        }
        pairs = zip(own["dataset"], own["recipe"], strict=True)
        own = own.assign(dataset=[names[pair] for pair in pairs])
        components = set(own["component"])
        readings = [reading for reading in READINGS if reading in components]
        by_reading = {reading: by_seed(of_reading(own, reading)) for reading in readings}
        measured = by_reading[readings[0]]
        sets = sorted(names.values(), key=lambda name: (SETS.index(name.partition(" ")[0]), name))
        run = {rule for _, rule, _ in measured}
        printed = _printed(run)
        made = []
        for title, paper, asked, metrics in _TABLES:
            rules = [rule for rule in asked if rule in run or rule not in _OURS]
            cells = {name: _row(name, rules, metrics, measured, printed) for name in sets}
            rows = [{"dataset": name, "cells": own} for name, own in cells.items()]
            methods = tuple(label(rule, traits) for rule in rules)
            made.append({"title": title, "paper": paper, "methods": methods, "rows": rows})
        return {
            "tables": made,
            "scanned": _scanned(sets, by_reading, traits) if len(readings) > 1 else None,
            "reading": READINGS[readings[0]],
            "runs": [
                (name, int(part["seed"].nunique()), "; ".join(part["recipe"].unique()))
                for name in sets
                for part in [own[own["dataset"] == name]]
            ],
            "sentences": (*_sentences(sets, measured, traits), *_selection_effect(by_reading)),
        }


def of_reading(frame: pd.DataFrame, reading: str) -> pd.DataFrame:
    """Measurements under one reading of the scan, and those of methods without a scan."""
    unscanned = [method for method, how in uci.METHODS.items() if not how.propagates]
    own = frame["component"] == reading
    return frame[own | ((frame["component"] == "") & frame["rule"].isin(unscanned))]


def by_seed(frame: pd.DataFrame) -> Measured:
    names = [frame[column].astype(str).to_numpy() for column in ("dataset", "rule", "metric")]
    return dict(iter(frame.set_index("seed")["value"].groupby(names, sort=False)))


def label(method: str, traits: RuleTraits) -> str:
    return _LABELS.get(method) or traits.label(method)


def _printed(run: Collection[str]) -> dict[tuple[str, str, str], str]:
    # The paper uses the evaluation code of SQR's authors, which trains two levels.
    quantiles = "sqr_ends" if "sqr_ends" in run else "sqr"
    texts = {}
    for name in ("interval_uci_main", "interval_uci_mc", "nll_uci"):
        for row in experiment(name).to_dict("records"):
            text = row["value"] + (f" ± {row['sd']}" if row["sd"] else "")
            method = quantiles if row["method"] == "sqr" else row["method"]
            texts[row["dataset"], method, row["metric"]] = text
    return texts


def _row(
    name: str,
    rules: Sequence[str],
    metrics: Sequence[str],
    measured: Measured,
    printed: Mapping[tuple[str, str, str], str],
    marked: Collection[str] = _BEST,
) -> list[Context | None]:
    """Numbers of methods on a set over seeds, with those of the paper; the best of `marked` metrics."""
    seeds = {rule: own for rule in rules if (own := measured.get((name, rule, "qualified"))) is not None}
    # A mean over the seeds with a qualifying setting is not comparable with a mean over all seeds.
    rivals = [rule for rule, own in seeds.items() if (own > 0).all()]
    best = {
        metric: best_of({rule: measured[key] for rule in rivals if (key := (name, rule, metric)) in measured})
        for metric in marked
    }
    cells: dict[str, Context] = {}
    for rule, own in seeds.items():
        numbers = []
        for metric in metrics:
            values = measured.get((name, rule, metric), pd.Series(dtype=float))
            numbers.append(
                {
                    "metric": metric,
                    "mean": float(values.mean()),
                    "sd": float(values.std(ddof=0)) if len(values) > 1 else math.nan,
                    "paper": printed.get((name.partition(" ")[0], rule, metric), ""),
                    "best": rule in best.get(metric, ()),
                }
            )
        cells[rule] = {"numbers": numbers, "qualified": int((own > 0).sum()), "seeds": len(own)}
    return [cells.get(rule) for rule in rules]


def _scanned(sets: Sequence[str], by_reading: Mapping[str, Measured], traits: RuleTraits) -> Context:
    columns = [(rule, reading) for rule in _SCANNED for reading in by_reading]
    metrics = ("picp", "mpiw", "validation_picp")
    rows = []
    for name in sets:
        cells = [_row(name, [rule], metrics, by_reading[reading], {}, ())[0] for rule, reading in columns]
        rows.append({"dataset": name, "cells": cells})
    titles = tuple(f"{label(rule, traits)}, {READINGS[reading]}" for rule, reading in columns)
    return {"title": "Coverage in validation and test", "paper": "", "methods": titles, "rows": rows}


def _selection_effect(by_reading: Mapping[str, Measured]) -> list[str]:
    """Decrease of coverage from validation to test, by number of candidates."""
    columns = {}
    for reading, measured in by_reading.items():
        falls = {
            (name, rule): measured[name, rule, "validation_picp"] - measured[name, rule, "picp"]
            for name, rule, metric in measured
            if metric == "validation_picp" and uci.METHODS[rule].propagates
        }
        if falls:
            columns[reading] = pd.concat(falls)
    # Only cases with a qualifying setting under every reading, so that sets and seeds are the same.
    falls_of = pd.concat(columns, axis=1, join="inner").mean() if columns else pd.Series(dtype=float)
    if len(falls_of) < 2 or falls_of.isna().any():
        return []
    by_count = falls_of.rename(CANDIDATES).sort_index()
    listed = labels.listed(
        [f"{labels.number(fall)} with {count} candidates" for count, fall in by_count.items()]
    )
    said = (
        "For each seed, the qualified candidate with the narrowest validation intervals is selected. From "
        f"validation to test rows, its coverage decreases by {listed}. These are means over data sets, seeds "
        "and methods with noisy inputs."
    )
    if by_count.is_monotonic_increasing and by_count.iloc[0] > 0:
        said += " This selection bias increases with the number of candidates."
    return [said]


def _sentences(sets: Sequence[str], measured: Measured, traits: RuleTraits) -> list[str]:
    """Sets on which a deterministic method is the narrowest, among methods that qualify for every seed."""
    methods = dict.fromkeys(rule for _, rule, _ in measured)
    rules = [rule for rule in methods if not traits.is_sampling(rule)]
    wins: dict[tuple[str, ...], list[str]] = {}
    for name in sets:
        measured_rules = [rule for rule in rules if (name, rule, "mpiw") in measured]
        qualified = [rule for rule in measured_rules if (measured[name, rule, "qualified"] > 0).all()]
        widths = {rule: measured[name, rule, "mpiw"].mean() for rule in qualified}
        if widths:
            shown = {rule: f"{width:.3g}" for rule, width in widths.items()}  # as in the table
            narrowest = shown[min(widths, key=lambda rule: widths[rule])]
            wins.setdefault(tuple(rule for rule in widths if shown[rule] == narrowest), []).append(name)
    parts = "; ".join(
        f"those of {labels.listed([label(rule, traits) for rule in rules])} on {labels.listed(names)}"
        for rules, names in wins.items()
    )
    among = (
        "Among the methods that do not sample and for which every seed qualified, the narrowest intervals are"
    )
    return [f"{among} {parts}."] if parts else []


_COVERAGE = 0.95
_LEAST = 0.925
"""Coverage in validation from which a setting qualifies."""
_BASELINES = ("pnn", "sqr_ends")
_STAND_IN = {"sqr_ends": "sqr"}
"""Substitutes for methods that were not run on a set."""
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
        self._series = by_seed(self.frame)
        self.run = {(name, method) for name, method, _ in self._series}
        self.sets = sorted({name for name, _ in self.run})

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
                one, two = label(method, self.traits), label(other, self.traits)
                yield Effect(
                    f"MPIW of {one} over that of {two} on {name}",
                    finite(np.log(both)),
                    shown=lambda effect: math.exp(-effect),
                    choices=choices,
                )

    def errors(self, method: str) -> pd.Series:
        """Mean distance of the coverage from 95 % over the sets, by seed."""
        own = [(self.of(name, method, "picp") - _COVERAGE).abs() for name in self.sets]
        return pd.concat(own, axis=1).mean(axis=1, skipna=False).dropna() if own else pd.Series(dtype=float)


def _under_each_reading(effects_of: Callable[[_Measured], Iterable[Effect]]) -> Rule:
    """Rule by effects under each measured reading of the scan of input variances."""

    def rule(evidence: Evidence) -> Answer | None:
        components = evidence.of(EXPERIMENT.name)["component"].unique()
        present = {words: component for component, words in READINGS.items() if component in components}
        measured = {
            words: evidence.once((_Measured, component), functools.partial(_Measured, evidence, component))
            for words, component in present.items()
        }
        effects: dict[Convention, Iterable[Effect]] = {(w,): effects_of(one) for w, one in measured.items()}
        fidelities = {words: one.fidelity for words, one in measured.items()}
        if len(set(fidelities.values())) > 1:
            fidelities = {words: f"{words}: {each}" for words, each in fidelities.items()}
        said = "; ".join((*dict.fromkeys(fidelities.values()), _PAPER))
        return Answer.of(effects, "seed", said, "#uci")

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
        # NaN if no seed qualified
        best = min(widths, key=lambda method: (math.isnan(widths[method]), widths[method]))
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


def _few_samples(measured: _Measured) -> Iterator[Effect]:
    own = [measured.of(name, "monte_carlo:samples=5", "picp") for name in measured.sets]
    if own:
        coverage = finite(pd.concat(own, axis=1).mean(axis=1))
        words = "coverage with 5 samples, mean over sets"
        yield Effect(words, _LEAST - coverage, shown=lambda effect: _LEAST - effect)


def _ensemble(evidence: Evidence) -> Answer | None:
    """Ensembles have no input variance, and therefore a single reading."""
    measured = _Measured(evidence)
    sets = [name for name in measured.sets if (name, _ENSEMBLE) in measured.run]
    effects = (effect for name in sets for effect in measured.narrower(name, "pnn", (_ENSEMBLE,)))
    return Answer.of({(): effects}, "seed", f"{', '.join(sets)}; {_PAPER}", "#uci")


RULES: Mapping[str, Rule] = {
    "uci-sdp": _narrowest({"sdp": _BOLD["sdp"]}, _BASELINES),
    "uci-pnn": _narrowest({"sdp+pnn": _BOLD["sdp+pnn"]}, (*_BASELINES, "sdp")),
    "uci-coverage": _better_covered(("sdp", *_BASELINES, *_SAMPLES)),
    "uci-either": _under_each_reading(_either),
    "uci-trend": _better_covered(("sdp", "pnn")),
    "uci-boston": _narrowest({_SAMPLES[1]: ("boston",)}, ("sdp", "sdp+pnn", *_BASELINES, _SAMPLES[0])),
    "uci-complementary": _narrowest({"sdp+pnn": SETS}, ("pnn",)),
    "uci-few": _under_each_reading(_few_samples),
    "uci-ensemble": _ensemble,
}
