"""The section on prediction intervals for UCI sets, compared with the paper's tables."""

from __future__ import annotations

import functools
import itertools
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

ValuesBySeed = dict[tuple[str, str, str], pd.Series]
"""Values indexed by seed, of each set, method and metric."""


class PredictionIntervals(Study):
    name = "uci"
    title = "UCI intervals"
    order = 100
    experiments = (EXPERIMENT.name,)

    def content(self, measurements: pd.DataFrame, traits: RuleTraits) -> Context:
        measurements = _with_names_of_recipes(measurements)
        components = set(measurements["component"])
        readings = [reading for reading in READINGS if reading in components]
        by_reading = {reading: by_seed(of_reading(measurements, reading)) for reading in readings}
        values = by_reading[readings[0]]
        sets = sorted(
            measurements["dataset"].unique(), key=lambda name: (SETS.index(name.partition(" ")[0]), name)
        )
        runs = []
        for name in sets:
            rows = measurements[measurements["dataset"] == name]
            runs.append((name, int(rows["seed"].nunique()), "; ".join(rows["recipe"].unique())))
        return {
            "tables": _tables(sets, values, traits),
            "scanned": _scanned(sets, by_reading, traits) if len(readings) > 1 else None,
            "reading": READINGS[readings[0]],
            "runs": runs,
            "sentences": (*_sentences(sets, values, traits), *_selection_effect(by_reading)),
        }


def _with_names_of_recipes(measurements: pd.DataFrame) -> pd.DataFrame:
    """Append a letter to the name of a data set for each of its recipes, if it was run with several."""
    names = {}
    for name, recipes in measurements.groupby("dataset")["recipe"].unique().items():
        for letter, recipe in zip(ascii_lowercase, recipes, strict=False):
            names[name, recipe] = f"{name} ({letter})" if len(recipes) > 1 else str(name)
    pairs = zip(measurements["dataset"], measurements["recipe"], strict=True)
    return measurements.assign(dataset=[names[pair] for pair in pairs])


def _tables(sets: Sequence[str], values: ValuesBySeed, traits: RuleTraits) -> list[Context]:
    run_methods = {method for _, method, _ in values}
    printed = _printed(run_methods)
    tables: list[Context] = []
    for title, paper, columns, metrics in _TABLES:
        methods = [method for method in columns if method in run_methods or method not in _OURS]
        rows = [{"dataset": name, "cells": _row(name, methods, metrics, values, printed)} for name in sets]
        labels_of_methods = tuple(label(method, traits) for method in methods)
        tables.append({"title": title, "paper": paper, "methods": labels_of_methods, "rows": rows})
    return tables


def of_reading(frame: pd.DataFrame, reading: str) -> pd.DataFrame:
    """Measurements under one reading of the scan, and those of methods without a scan."""
    without_scan = [name for name, method in uci.METHODS.items() if not method.propagates]
    is_without_scan = (frame["component"] == "") & frame["rule"].isin(without_scan)
    return frame[(frame["component"] == reading) | is_without_scan]


def by_seed(frame: pd.DataFrame) -> ValuesBySeed:
    """Return values indexed by seed, for each set, method and metric."""
    keys = [frame[column].astype(str).to_numpy() for column in ("dataset", "rule", "metric")]
    return dict(iter(frame.set_index("seed")["value"].groupby(keys, sort=False)))


def label(method: str, traits: RuleTraits) -> str:
    """Return the heading of a method's column."""
    return _LABELS.get(method) or traits.label(method)


def _printed(run_methods: Collection[str]) -> dict[tuple[str, str, str], str]:
    """Numbers of the paper as text, by set, method and metric."""
    # The paper uses the evaluation code of SQR's authors, which trains two levels.
    quantiles = "sqr_ends" if "sqr_ends" in run_methods else "sqr"
    texts = {}
    for name in ("interval_uci_main", "interval_uci_mc", "nll_uci"):
        for row in experiment(name).to_dict("records"):
            text = row["value"] + (f" ± {row['sd']}" if row["sd"] else "")
            method = quantiles if row["method"] == "sqr" else row["method"]
            texts[row["dataset"], method, row["metric"]] = text
    return texts


def _row(
    name: str,
    methods: Sequence[str],
    metrics: Sequence[str],
    values: ValuesBySeed,
    printed: Mapping[tuple[str, str, str], str],
    marked: Collection[str] = _BEST,
) -> list[Context | None]:
    """Numbers of methods on a set over seeds, with those of the paper; the best of `marked` metrics."""
    run_methods = [method for method in methods if (name, method, "qualified") in values]
    # A mean over the seeds with a qualifying setting is not comparable with a mean over all seeds.
    comparable = [method for method in run_methods if (values[name, method, "qualified"] > 0).all()]
    best: dict[str, set[str]] = {}
    for metric in marked:
        rivals = [method for method in comparable if (name, method, metric) in values]
        best[metric] = best_of({method: values[name, method, metric] for method in rivals})
    cells: dict[str, Context] = {}
    for method in run_methods:
        numbers = []
        for metric in metrics:
            column = values.get((name, method, metric), pd.Series(dtype=float))
            numbers.append(
                {
                    "metric": metric,
                    "mean": float(column.mean()),
                    "sd": float(column.std(ddof=0)) if len(column) > 1 else math.nan,
                    "paper": printed.get((name.partition(" ")[0], method, metric), ""),
                    "best": method in best.get(metric, ()),
                }
            )
        qualified = values[name, method, "qualified"]
        cells[method] = {
            "numbers": numbers,
            "qualified": int((qualified > 0).sum()),
            "seeds": len(qualified),
        }
    return [cells.get(method) for method in methods]


def _scanned(sets: Sequence[str], by_reading: Mapping[str, ValuesBySeed], traits: RuleTraits) -> Context:
    """Table of the methods in `_SCANNED` under each reading of the scan."""
    columns = list(itertools.product(_SCANNED, by_reading))
    metrics = ("picp", "mpiw", "validation_picp")
    rows = []
    for name in sets:
        cells: list[Context | None] = []
        for method, reading in columns:
            cells += _row(name, [method], metrics, by_reading[reading], {}, ())
        rows.append({"dataset": name, "cells": cells})
    titles = tuple(f"{label(method, traits)}, {READINGS[reading]}" for method, reading in columns)
    return {"title": "Coverage in validation and test", "paper": "", "methods": titles, "rows": rows}


def _selection_effect(by_reading: Mapping[str, ValuesBySeed]) -> list[str]:
    """Decrease of coverage from validation to test, by number of candidates."""
    columns = {}
    for reading, values in by_reading.items():
        decreases = {}
        for name, method, metric in values:
            if metric == "validation_picp" and uci.METHODS[method].propagates:
                validation, test = values[name, method, "validation_picp"], values[name, method, "picp"]
                decreases[name, method] = validation - test
        if decreases:
            columns[reading] = pd.concat(decreases)
    if not columns:
        return []
    # Only cases with a qualifying setting under every reading, so that sets and seeds are the same.
    means = pd.concat(columns, axis=1, join="inner").mean()
    if len(means) < 2 or means.isna().any():
        return []
    by_count = means.rename(CANDIDATES).sort_index()
    listed = labels.listed(
        [f"{labels.number(decrease)} with {count} candidates" for count, decrease in by_count.items()]
    )
    text = (
        "For each seed, the qualified candidate with the narrowest validation intervals is selected. From "
        f"validation to test rows, its coverage decreases by {listed}. These are means over data sets, seeds "
        "and methods with noisy inputs."
    )
    if by_count.is_monotonic_increasing and by_count.iloc[0] > 0:
        text += " This selection bias increases with the number of candidates."
    return [text]


def _sentences(sets: Sequence[str], values: ValuesBySeed, traits: RuleTraits) -> list[str]:
    """Sets on which a deterministic method is the narrowest, among methods that qualify for every seed."""
    run_methods = dict.fromkeys(method for _, method, _ in values)
    deterministic = [method for method in run_methods if not traits.is_sampling(method)]
    sets_by_narrowest: dict[tuple[str, ...], list[str]] = {}
    for name in sets:
        widths = {}
        for method in deterministic:
            if (name, method, "mpiw") in values and (values[name, method, "qualified"] > 0).all():
                widths[method] = values[name, method, "mpiw"].mean()
        if widths:
            smallest = f"{min(widths.values()):.3g}"  # as in the table
            narrowest = tuple(method for method, width in widths.items() if f"{width:.3g}" == smallest)
            sets_by_narrowest.setdefault(narrowest, []).append(name)
    parts = []
    for methods, names in sets_by_narrowest.items():
        listed = labels.listed([label(method, traits) for method in methods])
        parts.append(f"those of {listed} on {labels.listed(names)}")
    if not parts:
        return []
    return [
        "Among the methods that do not sample and for which every seed qualified, the narrowest intervals "
        f"are {'; '.join(parts)}."
    ]


_COVERAGE = 0.95
_LEAST = 0.925
"""Coverage in validation from which a setting qualifies."""
_BASELINES = ("pnn", "sqr_ends")
_SUBSTITUTES = {"sqr_ends": "sqr"}
"""Substitutes for methods that were not run on a set."""
_BOLD = {
    "sdp": ("concrete", "naval", "energy"),
    "sdp+pnn": ("power", "wine", "yacht", "boston", "kin8nm"),
}
"""Sets on which Table 4 marks a method's intervals as the narrowest."""
_PAPER = "the paper: eight sets, 20 seeds"
_FEWEST = 3
"""Smallest number of seeds with a qualifying setting of both methods, for a set to count."""


class _Reading:
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
        key = (name, self.substituted(name, method), metric)
        return self._series.get(key, pd.Series(dtype=float))

    def substituted(self, name: str, method: str) -> str:
        """The method if it was run on a set, otherwise its substitute."""
        return method if (name, method) in self.run else _SUBSTITUTES.get(method, method)

    def narrower(self, name: str, method: str, others: Iterable[str], choices: int = 1) -> Iterator[Effect]:
        """Widths of others over that of a method on a set, by seed; the best of `choices`."""
        for requested in others:
            other = self.substituted(name, requested)
            ratios = (self.of(name, other, "mpiw") / self.of(name, method, "mpiw")).dropna()
            if other != method and len(ratios) >= _FEWEST:
                yield Effect(
                    f"MPIW of {label(method, self.traits)} over that of {label(other, self.traits)} "
                    f"on {name}",
                    finite(np.log(ratios)),
                    shown=lambda effect: math.exp(-effect),
                    choices=choices,
                )

    def errors(self, method: str) -> pd.Series:
        """Mean distance of the coverage from 95 % over all sets, by seed.

        Seeds without a value on some set are left out, so that methods are compared on equal sets. The method
        is replaced by its substitute where it was not run.
        """
        if not self.sets:
            return pd.Series(dtype=float)
        errors = [(self.of(name, method, "picp") - _COVERAGE).abs() for name in self.sets]
        return pd.concat(errors, axis=1).mean(axis=1, skipna=False).dropna()


def _under_each_reading(effects_of: Callable[[_Reading], Iterable[Effect]]) -> Rule:
    """Rule by effects under each measured reading of the scan of input variances."""

    def rule(evidence: Evidence) -> Answer | None:
        components = evidence.of(EXPERIMENT.name)["component"].unique()
        effects: dict[Convention, Iterable[Effect]] = {}
        fidelities = {}
        for component, words in READINGS.items():
            if component in components:
                make = functools.partial(_Reading, evidence, component)
                reading: _Reading = evidence.once((_Reading, component), make)
                effects[words,] = effects_of(reading)
                fidelities[words] = reading.fidelity
        if len(set(fidelities.values())) > 1:
            texts = [f"{words}: {fidelity}" for words, fidelity in fidelities.items()]
        else:
            texts = list(fidelities.values())[:1]
        return Answer.of(effects, "seed", "; ".join([*texts, _PAPER]), "#uci")

    return rule


def _narrowest(sets_of_method: Mapping[str, Sequence[str]], others: Sequence[str]) -> Rule:
    """Methods have narrower intervals than others on some sets."""

    def effects(reading: _Reading) -> Iterator[Effect]:
        for method, names in sets_of_method.items():
            for name in names:
                if name in reading.sets:
                    yield from reading.narrower(name, method, others)

    return _under_each_reading(effects)


def _either(reading: _Reading) -> Iterator[Effect]:
    """On each set, the narrower of SDP and SDP + PNN against all other methods."""
    for name in reading.sets:
        widths = {method: reading.of(name, method, "mpiw").mean() for method in ("sdp", "sdp+pnn")}
        # NaN if no seed qualified
        best = min(widths, key=lambda method: (math.isnan(widths[method]), widths[method]))
        yield from reading.narrower(name, best, (*_BASELINES, *_SAMPLES), len(widths))


def _better_covered(others: Sequence[str]) -> Rule:
    """The coverage of SDP + PNN is closer to 95 % than that of others, over sets."""

    def effects(reading: _Reading) -> Iterator[Effect]:
        errors = reading.errors("sdp+pnn")
        for other in others:
            lead = (reading.errors(other) - errors).dropna()
            if len(lead) >= _FEWEST:
                # A method can be measured on some sets and its substitute on others.
                measured = dict.fromkeys(reading.substituted(name, other) for name in reading.sets)
                names = " or ".join(label(method, reading.traits) for method in measured)
                words = f"distance of the coverage from 95 %: {names} less SDP + PNN"
                yield Effect(words, finite(lead))

    return _under_each_reading(effects)


def _few_samples(reading: _Reading) -> Iterator[Effect]:
    columns = [reading.of(name, "monte_carlo:samples=5", "picp") for name in reading.sets]
    if columns:
        coverage = finite(pd.concat(columns, axis=1).mean(axis=1))
        words = "coverage with 5 samples, mean over sets"
        yield Effect(words, _LEAST - coverage, shown=lambda effect: _LEAST - effect)


def _ensemble(evidence: Evidence) -> Answer | None:
    """Ensembles have no input variance, and therefore a single reading."""
    reading = _Reading(evidence)
    sets = [name for name in reading.sets if (name, _ENSEMBLE) in reading.run]
    effects: list[Effect] = []
    for name in sets:
        effects += reading.narrower(name, "pnn", (_ENSEMBLE,))
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
