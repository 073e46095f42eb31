"""Tables by sigma and rule: means, spreads, floors, the best rules, and the paper's numbers."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...bench.experiments import experiments
from ...bench.metrics import Metric, recorded_metric
from ...bench.metrics.total_variation import (
    AxisTotalVariation,
    ClassTotalVariation,
    HeadlineTotalVariation,
)
from ..paper import Printed, printed
from ..statistics.ranking import UNIT, Replicates, Scores, labels_of
from ..style import labels
from ..style.names import NetKind, RuleTraits, activation_rank, noise_symbol, noise_words
from .frame import COLUMNS, VARIANTS, own_noises, places, with_brackets, with_largest


@dataclass(frozen=True)
class ClassDistance(ClassTotalVariation):
    """The total variation of the decision as a distance, as in the paper's tables of image classifiers."""

    title = "Total variation of the class"
    label = "TV of the class"
    about = (
        "Between the distributions of the arg max, as the paper’s tables have it. Few samples make for a "
        "floor as large as its smallest values."
    )
    better = "lower"
    complement = False
    decimals = 5  # the paper's smallest values would all read 1 − TV = 1.000
    published = "tv_class"
    companion = companion_label = ""


def displayed(name: str, kind: NetKind) -> Metric:
    """Return a recorded metric, by name or spec, as tables show it for nets of this kind."""
    of_classes = name == ClassTotalVariation.name and kind.is_classifier
    return ClassDistance() if of_classes else recorded_metric(name)


def variants(specs: Collection[str]) -> dict[str, str]:
    """Return names for the variants of one metric, by spec: the options in which they differ, as words.

    An example is ``bins 20, bin range joint``. The variant with default options comes first. A single variant
    has an empty name.
    """
    options = pd.DataFrame({spec: _options(spec) for spec in specs})  # a row for each option
    differing = options[options.nunique(axis=1, dropna=False) > 1]
    usual = _options(next(iter(specs)).partition(":")[0])
    return {
        spec: ", ".join(
            f"{str(name).replace('_', ' ')} {value}" for name, value in differing[spec].dropna().items()
        )
        for spec in sorted(specs, key=lambda spec: (_options(spec) != usual, spec))
    }


def _options(spec: str) -> dict[str, str]:
    """Options of a metric as text; only the written ones if its code is not available here."""
    _, _, written = (spec if ":" in spec else recorded_metric(spec).spec).partition(":")
    pairs = (item.partition("=") for item in written.split(",") if item)
    return {name: value for name, _, value in pairs}


_NEEDED = [name for name in (*COLUMNS, *VARIANTS) if name not in ("seed", "seconds", "accuracy")]
_PLACE = ("sigma", "component")
"""Columns that identify a row of a table."""
_CELL = [*_PLACE, "rule"]
_ROUNDING = 1e-10  # an eigenvalue this far below zero, relative to the largest, may be float64 rounding


@dataclass(frozen=True)
class Cell:
    """One rule at one sigma: statistics of the displayed value over nets and inputs.

    `sd` has n - 1 in its denominator (NaN for a single measurement). Of `count` measurements,
    `indistinguishable` lie at or below the floor's 95 % point, `infinite` are infinite, and `negative` are
    below zero by more than rounding. `bracket` is the largest relative distance between proven bounds.
    `score` is the mean that ranks rules (lower is better; NaN without a rank). `best` marks the
    lowest score of the row and those statistically tied with it; `leads` does so among rules that do not
    sample. `rows` are the labels of the measurements.
    """

    rule: str
    mean: float
    sd: float
    count: int
    sampling: bool = False
    lowest: float = math.nan
    score: float = math.nan
    best: bool = False
    leads: bool = False
    indistinguishable: int = 0
    infinite: int = 0
    negative: int = 0
    companion: float = math.nan
    corrected: float = math.nan
    bracket: float = math.nan
    printed: Printed | None = None
    rows: bytes = b""


@dataclass(frozen=True)
class Row:
    """One sigma (and component): a cell for every rule, None if it was not measured.

    `floor` and `floor95` are the mean and the 95 % point of a rule with the exact distribution, on the
    table's scale.
    """

    sigma: float
    component: str
    cells: tuple[Cell | None, ...]
    floor: float
    floor95: float

    def ranked(self, *, sampling: bool = True) -> list[Cell]:
        """Cells of rules that are ranked, best first; without `sampling`, of those that do not sample."""
        cells = [cell for cell in self.cells if cell and not math.isnan(cell.score)]
        return sorted((cell for cell in cells if sampling or not cell.sampling), key=lambda cell: cell.score)

    def shown_best(self, *, sampling: bool = True) -> frozenset[str]:
        """Rules tied for the lowest score among the ranked ones; empty if all of several rules are tied."""
        ranked = self.ranked(sampling=sampling)
        best = [cell.rule for cell in ranked if (cell.best if sampling else cell.leads)]
        return frozenset(best if len(best) < len(ranked) or len(ranked) == 1 else ())


@dataclass(frozen=True)
class Table:
    """One metric of one experiment on one kind of net.

    `variant` describes the options of the metric if the experiment has several, and `recipe` the training of
    the nets if there are several recipes. Both are empty otherwise. `noise` is the family as stored.
    """

    experiment: str
    network: str
    activation: str
    depth: int
    metric: Metric
    rules: tuple[str, ...]
    rows: tuple[Row, ...]
    nets: int
    units: int
    unit: str
    variant: str = ""
    recipe: str = ""
    noise: str = ""

    @property
    def title(self) -> str:
        """Metric, and what distinguishes this table from others of that metric on the same kind of net."""
        return ", ".join(filter(None, (self.metric.title, self.under, self.variant, self.recipe)))

    @property
    def label(self) -> str:
        return ", ".join(filter(None, (self.metric.label, self.variant)))

    @property
    def nets_label(self) -> str:
        return ", ".join(filter(None, (self.kind.label, self.under, self.recipe)))

    @property
    def kind(self) -> NetKind:
        return NetKind(self.activation, self.depth)

    @property
    def scale(self) -> str:
        return noise_symbol(self.noise)

    @property
    def under(self) -> str:
        """Noise family in words, unless it is Gaussian or the only one of its experiment."""
        return "" if own_noises(self.experiment) == (self.noise,) else noise_words(self.noise)

    @property
    def has_floor(self) -> bool:
        return any(math.isfinite(row.floor) for row in self.rows)

    @property
    def has_components(self) -> bool:
        return any(row.component for row in self.rows)

    @property
    def design(self) -> str:
        """Numbers of nets and inputs over which means are taken, in words."""
        nets = labels.plural(self.nets, "net")
        if self.units % self.nets:
            return f"{nets}, {labels.plural(self.units, 'input')} in all"
        return f"{nets} × {labels.plural(self.units // self.nets, 'input')}"

    @property
    def sources(self) -> list[str]:
        """Tables of the paper with numbers that are shown, ``Table 9`` before ``Table 21``."""
        found = {cell.printed.label for row in self.rows for cell in row.cells if cell and cell.printed}
        return sorted(found, key=lambda label: (len(label), label))


def tables(
    frame: pd.DataFrame, traits: RuleTraits, experiments: Sequence[str] | None = None
) -> Iterator[Table]:
    """Yield every table of the report, sorted by experiment (default: all), kind of net and metric.

    Variants of a metric and recipes of nets have separate tables; the companion of a metric is shown in the
    metric's table.
    """
    shown = sorted(frame["experiment"].unique()) if experiments is None else experiments
    metrics = frame["metric"][frame["experiment"].isin(shown)].unique()
    companions = {recorded_metric(name).companion for name in metrics}
    for experiment in shown:
        own = frame[_NEEDED][frame["experiment"] == experiment]
        own = with_brackets(with_largest(own.assign(row=own.index)))
        for _, kind in own.groupby(["activation", "depth", "network"], sort=True):
            several = kind["recipe"].nunique() > 1
            found = [
                replace(table, recipe=str(recipe)) if several else table
                for (recipe, _), own_nets in kind.groupby(["recipe", "noise"], observed=True)
                for table in _tables(own_nets, companions, traits)
            ]
            # families of noise next to each other
            yield from sorted(found, key=lambda table: (table.recipe, table.metric.rank, table.metric.name))


def _tables(own: pd.DataFrame, companions: set[str], traits: RuleTraits) -> Iterator[Table]:
    """Tables of nets of one kind and recipe under one noise family."""
    by_spec = {str(spec): rows for spec, rows in own.groupby("metric_spec", sort=False, observed=True)}
    by_name: dict[str, list[str]] = {}
    for spec, rows in by_spec.items():
        by_name.setdefault(str(rows["metric"].iloc[0]), []).append(spec)
    specs = {name: variants(own_specs) for name, own_specs in by_name.items()}
    nets = NetKind(str(own["activation"].iloc[0]), int(own["depth"].iloc[0]))
    for name in sorted(specs.keys() - companions, key=lambda name: (recorded_metric(name).rank, name)):
        for spec, variant in specs[name].items():
            metric = displayed(spec if variant else name, nets)
            # Only the first variant of a companion is shown: a cell has room for one.
            beside = by_spec.get(next(iter(specs.get(metric.companion, ())), ""))
            yield replace(_table(metric, nets, by_spec[spec], beside, traits), variant=variant)


def _table(
    metric: Metric, nets: NetKind, chosen: pd.DataFrame, companions: pd.DataFrame | None, traits: RuleTraits
) -> Table:
    experiment, network = str(chosen["experiment"].iloc[0]), str(chosen["network"].iloc[0])
    family = str(chosen["noise"].iloc[0])
    rules = tuple(traits.in_order(chosen["rule"].unique()))
    statistics_of = _statistics(metric, chosen, companions)
    is_in_paper = metric.published and not noise_words(family)
    ranked = [rule for rule in rules if metric.better and not traits.is_reference(rule)]
    scored = chosen[[*UNIT, "rule", "value", "floor", "stderr"]]
    rows = []
    for (sigma, component), positions in places(chosen, _PLACE):
        scores = Scores.measured(metric, scored.iloc[positions], rules)
        replicates = Replicates.of_scores(metric, scores, traits)
        best = replicates.contest(ranked)
        leads = replicates.contest([rule for rule in ranked if not traits.is_sampling(rule)])
        cells: list[Cell | None] = []
        floors, floors95 = [], []  # of the rules
        for rule in rules:
            numbers = statistics_of.get((sigma, component, rule))
            if numbers is None:
                cells.append(None)
                continue
            floors.append(numbers.pop("floor"))
            floors95.append(numbers.pop("floor95"))
            paper = None
            if is_in_paper:
                paper = printed(metric.published, nets.activation, nets.depth, sigma, rule, component)
            cells.append(
                Cell(
                    **numbers,
                    rule=rule,
                    sampling=traits.is_sampling(rule),
                    score=scores.means.get(rule, math.nan) if rule in ranked else math.nan,
                    best=best is not None and rule in best.best,
                    leads=leads is not None and rule in leads.best,
                    printed=paper,
                )
            )
        floor, floor95 = _median_floor(metric, floors), _median_floor(metric, floors95)
        rows.append(Row(sigma, component, tuple(cells), floor, floor95))
    net, input_ = pd.factorize(chosen["net"])[0], pd.factorize(chosen["input"])[0]
    return Table(
        experiment=experiment,
        network=network,
        activation=nets.activation,
        depth=nets.depth,
        metric=metric,
        rules=rules,
        rows=tuple(rows),
        nets=int(net.max()) + 1,
        units=len(np.unique(net * (input_.max() + 1) + input_)),
        noise=family,
        unit=next(filter(None, chosen["unit_of_measure"].unique()), ""),
    )


def _statistics(
    metric: Metric, chosen: pd.DataFrame, companions: pd.DataFrame | None
) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Statistics of each cell and its mean floors, by sigma, component and rule, for all cells at once."""
    cells = list(places(chosen, _CELL))
    # Rows in the order of their cells: sums over cells are then sums over slices.
    order = np.concatenate([positions for _, positions in cells])
    counts = np.array([len(positions) for _, positions in cells])
    starts = np.cumsum(counts) - counts
    value = chosen["value"].to_numpy()[order]
    floor = chosen["floor"].to_numpy()[order]
    floor95 = chosen["floor95"].to_numpy()[order]
    bracket = chosen["bracket"].to_numpy()[order]
    row = chosen["row"].to_numpy()[order]
    shown = metric.shown(value)

    def count(condition: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.asarray(np.add.reduceat(condition.astype(int), starts))

    def mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
        known = ~np.isnan(values)
        return np.asarray(np.add.reduceat(np.where(known, values, 0.0), starts) / count(known))

    infinite = count(np.isinf(shown))
    # Means of infinite values, deviations of single ones, and means of missing floors are NaN.
    with np.errstate(invalid="ignore", divide="ignore"):
        average = mean(shown)
        squares = np.add.reduceat((shown - np.repeat(average, counts)) ** 2, starts)
        corrected = np.sqrt(np.clip(value**2 - floor**2, 0, None))
        columns = {
            "mean": np.where(infinite, math.inf, average),
            "sd": np.where(infinite, math.nan, np.sqrt(squares / (counts - 1))),
            "count": counts,
            "lowest": np.minimum.reduceat(shown, starts),
            "indistinguishable": count(metric.indistinguishable(value, floor, floor95)) * metric.has_floor,
            "infinite": infinite,
            "negative": count(shown < -_ROUNDING),
            "corrected": mean(corrected) if metric.corrects_floor else np.full(len(cells), math.nan),
            "bracket": np.fmax.reduceat(bracket, starts),
            "floor": mean(floor),
            "floor95": mean(floor95),
        }
    companion_means = {}
    if companions is not None:
        values = metric.shown(companions["value"].to_numpy())
        for key, positions in places(companions, _CELL):
            companion_means[key] = float(values[positions].mean())
    lists = {name: column.tolist() for name, column in columns.items()}
    by_cell = {}
    for number, ((key, _), rows) in enumerate(zip(cells, np.split(row, starts[1:]), strict=True)):
        numbers = {name: values_of_cells[number] for name, values_of_cells in lists.items()}
        numbers["rows"] = labels_of(rows)
        numbers["companion"] = companion_means.get(key, math.nan)
        by_cell[key] = numbers
    return by_cell


def _median_floor(metric: Metric, floors: Iterable[float]) -> float:
    """Median of the rules' mean floors, as shown: rules that predict draws have higher floors."""
    known = [floor for floor in floors if not math.isnan(floor)]
    if not (known and metric.has_floor):
        return math.nan
    return float(metric.shown(np.array(statistics.median_low(known))))


def distinct_names(tables: Sequence[Table]) -> list[str]:
    """Return names of the tables' nets; equal ones are extended by network, experiment and metric."""
    names = [table.nets_label for table in tables]
    distinctions = (
        [table.network.removeprefix(f"{table.activation} ") for table in tables],
        [suite_title(table.experiment) for table in tables],
        [table.label for table in tables],
    )
    for words in distinctions:
        pairs = list(zip(names, words, strict=True))
        several = {name for name, word in pairs for other in pairs if other[0] == name and other[1] != word}
        names = [f"{name}, {word}" if name in several else name for name, word in pairs]
    return names


def suite_title(experiment: str) -> str:
    known = experiments().get(experiment)
    return (known.title if known else "") or experiment


def by_experiment(tables: Iterable[Table]) -> dict[str, list[Table]]:
    by_name: dict[str, list[Table]] = {}
    for table in tables:
        by_name.setdefault(table.experiment, []).append(table)
    return {name: by_name[name] for name in (*experiments(), *sorted(by_name)) if name in by_name}


_HEADLINES = (HeadlineTotalVariation, AxisTotalVariation)


def headline(tables: Sequence[Table]) -> list[Table]:
    """Tables that decide which rule is best: headline, else paper-like metric; Gaussian noise if present.

    Of several variants of a metric on the same nets, the first counts.
    """
    tables = [table for table in tables if not noise_words(table.noise)] or tables
    chosen: list[Table] = []
    for kind in _HEADLINES:
        chosen = chosen or [table for table in tables if isinstance(table.metric, kind)]
    first: dict[tuple[object, ...], Table] = {}
    for table in chosen:
        nets = (table.experiment, table.network, table.activation, table.depth)
        first.setdefault((table.metric.name, *nets, table.recipe, table.noise), table)
    return sorted(first.values(), key=lambda t: (activation_rank(t.activation), t.activation, t.depth))


@dataclass(frozen=True)
class Difference:
    table: Table
    row: Row
    cell: Cell
    printed: Printed

    @property
    def gap(self) -> float:
        """Run minus paper."""
        return self.cell.mean - self.printed.mean

    @property
    def spread(self) -> float:
        """Standard deviations of both, over nets and inputs, added in quadrature; NaN if neither is known."""
        known = [sd for sd in (self.cell.sd, self.printed.spread) if math.isfinite(sd)]
        return math.hypot(*known) if known else math.nan

    @property
    def differs(self) -> bool:
        return abs(self.gap) > self.spread

    @property
    def where(self) -> str:
        text = f"{self.table.nets_label}, σ\u00a0=\u00a0{self.row.sigma:g}"
        if self.row.component:
            text += f", {self.table.metric.component or 'component'} {self.row.component}"
        return text


class Order(NamedTuple):
    """The best of the paper's own rules in one setting, in the paper and in the run."""

    paper: Difference
    run: Difference

    @property
    def agrees(self) -> bool:
        """Whether the best rules of paper and run are the same, or tie in the paper or in the run."""
        paper, run = self.paper, self.run
        tied = math.isclose(paper.printed.mean, run.printed.mean) or (paper.cell.leads and run.cell.leads)
        return tied or paper.cell.rule == run.cell.rule


def differences(tables: Sequence[Table]) -> list[Difference]:
    """Return every cell that the paper prints as well, in the order of the tables."""
    return [
        Difference(table, row, cell, cell.printed)
        for table in tables
        for row in table.rows
        for cell in row.cells
        if cell and cell.printed
    ]


def orders(tables: Sequence[Table]) -> list[Order]:
    """Compare the best rules of rows with two or more deterministic rules that the paper has too."""
    found = []
    for _, group in itertools.groupby(differences(tables), lambda one: (one.table, one.row)):
        both = [one for one in group if not one.cell.sampling]
        if len(both) > 1:
            metric, means = both[0].table.metric, np.array([one.printed.mean for one in both])
            scores = metric.score(metric.shown(means), np.nan * means)  # 1 - (1 - TV) is the TV again
            found.append(Order(both[np.argmin(scores)], min(both, key=lambda one: one.cell.score)))
    return found
