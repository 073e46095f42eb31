"""Tables by sigma and rule: means, spreads, floors, the best rules, and the paper's numbers."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
from .frame import COLUMNS, VARIANTS, noises_of, positions_by, with_brackets, with_largest


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
    metric_name, _, _ = next(iter(specs)).partition(":")
    defaults = _options(metric_name)
    names = {}
    for spec in sorted(specs, key=lambda spec: (_options(spec) != defaults, spec)):
        words = [f"{str(name).replace('_', ' ')} {value}" for name, value in differing[spec].dropna().items()]
        names[spec] = ", ".join(words)
    return names


def _options(spec: str) -> dict[str, str]:
    """Options of a metric as text; only the written ones if its code is not available here."""
    full_spec = spec if ":" in spec else recorded_metric(spec).spec
    _, _, text = full_spec.partition(":")
    options = {}
    for item in filter(None, text.split(",")):
        name, _, value = item.partition("=")
        options[name] = value
    return options


_NEEDED = [name for name in (*COLUMNS, *VARIANTS) if name not in ("seed", "seconds", "accuracy")]
_ROW = ("sigma", "component")
"""Columns that identify a row of a table."""
_CELL = [*_ROW, "rule"]
_ROUNDING = 1e-10  # an eigenvalue this far below zero, relative to the largest, may be float64 rounding


SHADES = 5
"""Number of shades of cells, in addition to that of the page."""


@dataclass(frozen=True)
class Cell:
    """One rule at one sigma: statistics of the displayed value over nets and inputs.

    `sd` has n - 1 in its denominator (NaN for a single measurement). Of `count` measurements,
    `indistinguishable` lie at or below the floor's 95 % point, `infinite` are infinite, and `negative` are
    below zero by more than rounding. `bracket` is the largest relative distance between proven bounds.
    `floor` and `floor95` are means over the measurements, not on the displayed scale. `score` is the mean
    that ranks rules (lower is better; NaN without a rank). `best` marks the lowest score of the row and
    those statistically tied with it; `leads` does so among rules that do not sample. `rows` are the labels of
    the measurements.
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
    floor: float = math.nan
    floor95: float = math.nan
    indistinguishable: int = 0
    infinite: int = 0
    negative: int = 0
    companion: float = math.nan
    corrected: float = math.nan
    bracket: float = math.nan
    printed: Printed | None = None
    rows: bytes = b""


@dataclass(frozen=True)
class TableRow:
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
        if not sampling:
            cells = [cell for cell in cells if not cell.sampling]
        return sorted(cells, key=lambda cell: cell.score)

    def shown_best(self, *, sampling: bool = True) -> frozenset[str]:
        """Rules tied for the lowest score among the ranked ones; empty if all of several rules are tied."""
        ranked = self.ranked(sampling=sampling)
        best = [cell.rule for cell in ranked if (cell.best if sampling else cell.leads)]
        all_tied = len(best) == len(ranked) > 1
        return frozenset() if all_tied else frozenset(best)


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
    rows: tuple[TableRow, ...]
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
        """Short name of the metric with its variant, for axes."""
        return ", ".join(filter(None, (self.metric.label, self.variant)))

    @property
    def nets_label(self) -> str:
        """Kind of net, noise family and recipe."""
        return ", ".join(filter(None, (self.kind.label, self.under, self.recipe)))

    @property
    def kind(self) -> NetKind:
        return NetKind(self.activation, self.depth)

    @property
    def scale(self) -> str:
        """Symbol of the noise level."""
        return noise_symbol(self.noise)

    @property
    def under(self) -> str:
        """Noise family in words, unless it is Gaussian or the only one of its experiment."""
        return "" if noises_of(self.experiment) == (self.noise,) else noise_words(self.noise)

    @property
    def sigmas(self) -> list[float]:
        return sorted({row.sigma for row in self.rows})

    @property
    def by_component(self) -> dict[str, list[TableRow | None]]:
        """Rows at each of :attr:`sigmas`, None if not measured, by component."""
        rows = {(row.component, row.sigma): row for row in self.rows}
        components = dict.fromkeys(row.component for row in self.rows)
        return {
            component: [rows.get((component, sigma)) for sigma in self.sigmas] for component in components
        }

    @property
    def sigmas_in_paper(self) -> frozenset[float]:
        """Noise levels for which the paper prints a number."""
        return frozenset(row.sigma for row in self.rows if any(cell and cell.printed for cell in row.cells))

    def shade(self, row: TableRow, cell: Cell) -> int:
        """Shade of a cell, from 0 to `SHADES` for the best.

        Shared mass has the same shades everywhere. Other metrics are shaded from the worst to the best score
        at the noise level, logarithmically.
        """
        goodness = cell.mean
        if not self.metric.complement:
            scores = [ranked.score for ranked in row.ranked() if 0 < ranked.score < math.inf]
            if not (0 < cell.score < math.inf) or max(scores) == min(scores):
                return 0
            goodness = math.log(max(scores) / cell.score) / math.log(max(scores) / min(scores))
        return max(0, min(SHADES, int((SHADES + 1) * goodness))) if math.isfinite(goodness) else 0

    def remarks(self, cell: Cell) -> str:
        """What a cell shows on hover: spread, ties, and comparisons with the floor."""
        metric = self.metric
        remarks = []
        if cell.infinite:
            remarks.append(f"infinite in {cell.infinite} of {cell.count}")
        elif not math.isnan(cell.sd):
            remarks.append(
                f"± {labels.spread(cell.sd, cell.mean, metric.decimals)} "
                f"(standard deviation over {self.design})"
            )
        if cell.count != self.units:
            remarks.append(labels.plural(cell.count, "measurement"))
        if cell.indistinguishable:
            remarks.append(f"{cell.indistinguishable} of {cell.count} indistinguishable from exact")
        if not math.isnan(cell.corrected):
            remarks.append(f"{labels.number(cell.corrected)} corrected for the floor")
        if not math.isnan(cell.bracket):
            remarks.append(f"proven within {labels.number(100 * cell.bracket, 1)} %")
        if not math.isnan(cell.companion):
            remarks.append(f"{metric.companion_label} {labels.number(cell.companion, metric.decimals)}")
        if cell.printed:
            remarks.append(f"paper {cell.printed.value} ({cell.printed.label})")
        return "; ".join(remarks)

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
        cells = [cell for row in self.rows for cell in row.cells if cell]
        sources = {cell.printed.label for cell in cells if cell.printed}
        return sorted(sources, key=lambda label: (len(label), label))


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
        rows = frame[_NEEDED][frame["experiment"] == experiment]
        rows = with_brackets(with_largest(rows.assign(row=rows.index)))
        for _, kind in rows.groupby(["activation", "depth", "network"], sort=True):
            has_recipes = kind["recipe"].nunique() > 1
            tables_of_kind: list[Table] = []
            for (recipe, _), nets in kind.groupby(["recipe", "noise"], observed=True):
                tables_of_nets = _tables(nets, companions, traits)
                if has_recipes:
                    tables_of_nets = (replace(table, recipe=str(recipe)) for table in tables_of_nets)
                tables_of_kind += tables_of_nets
            # families of noise next to each other
            yield from sorted(tables_of_kind, key=lambda t: (t.recipe, t.metric.rank, t.metric.name))


def _tables(chosen: pd.DataFrame, companions: set[str], traits: RuleTraits) -> Iterator[Table]:
    """Tables of nets of one kind and recipe under one noise family."""
    by_spec = {str(spec): rows for spec, rows in chosen.groupby("metric_spec", sort=False, observed=True)}
    specs_of_metric: dict[str, list[str]] = {}
    for spec, rows in by_spec.items():
        specs_of_metric.setdefault(str(rows["metric"].iloc[0]), []).append(spec)
    variants_of_metric = {name: variants(specs) for name, specs in specs_of_metric.items()}
    nets = NetKind(str(chosen["activation"].iloc[0]), int(chosen["depth"].iloc[0]))
    names = variants_of_metric.keys() - companions
    for name in sorted(names, key=lambda name: (recorded_metric(name).rank, name)):
        for spec, variant in variants_of_metric[name].items():
            metric = displayed(spec if variant else name, nets)
            companion = None
            if metric.companion in variants_of_metric:
                # Only the first variant of a companion is shown: a cell has room for one.
                companion = by_spec[next(iter(variants_of_metric[metric.companion]))]
            yield replace(_table(metric, nets, by_spec[spec], companion, traits), variant=variant)


def _table(
    metric: Metric, nets: NetKind, chosen: pd.DataFrame, companions: pd.DataFrame | None, traits: RuleTraits
) -> Table:
    noise = str(chosen["noise"].iloc[0])
    rules = tuple(traits.in_order(chosen["rule"].unique()))
    statistics_of = _statistics(metric, chosen, companions)
    is_in_paper = metric.published and not noise_words(noise)
    scored = chosen[[*UNIT, "rule", "value", "floor", "stderr"]]
    rows = []
    for (sigma, component), positions in positions_by(chosen, _ROW):
        cells: dict[str, Cell | None] = {}
        for rule in rules:
            numbers = statistics_of.get((sigma, component, rule))
            if numbers is None:
                cells[rule] = None
                continue
            paper = None
            if is_in_paper:
                paper = printed(metric.published, nets.activation, nets.depth, sigma, rule, component)
            cells[rule] = Cell(**numbers, rule=rule, sampling=traits.is_sampling(rule), printed=paper)
        floor = _median_floor(metric, [cell.floor for cell in cells.values() if cell])
        floor95 = _median_floor(metric, [cell.floor95 for cell in cells.values() if cell])
        ranked_cells = _with_ranks(metric, scored.iloc[positions], cells, traits)
        rows.append(TableRow(sigma, component, ranked_cells, floor, floor95))
    net_codes, _ = pd.factorize(chosen["net"])
    input_codes, _ = pd.factorize(chosen["input"])
    return Table(
        experiment=str(chosen["experiment"].iloc[0]),
        network=str(chosen["network"].iloc[0]),
        activation=nets.activation,
        depth=nets.depth,
        metric=metric,
        rules=rules,
        rows=tuple(rows),
        nets=int(net_codes.max()) + 1,
        units=len(np.unique(net_codes * (input_codes.max() + 1) + input_codes)),
        noise=noise,
        unit=next(filter(None, chosen["unit_of_measure"].unique()), ""),
    )


def _with_ranks(
    metric: Metric, scored: pd.DataFrame, cells: Mapping[str, Cell | None], traits: RuleTraits
) -> tuple[Cell | None, ...]:
    """Complete the cells of a row, by rule, by their scores and the best rules; references have no rank."""
    ranked = [rule for rule in cells if metric.better and not traits.is_reference(rule)]
    scores = Scores.from_measurements(metric, scored, tuple(cells))
    replicates = Replicates.of_scores(metric, scores, traits)
    ranking = replicates.contest(ranked)
    best = ranking.best if ranking else ()
    deterministic_ranking = replicates.contest([rule for rule in ranked if not traits.is_sampling(rule)])
    leads = deterministic_ranking.best if deterministic_ranking else ()
    completed = []
    for rule, cell in cells.items():
        if cell is not None:
            score = scores.means.get(rule, math.nan) if rule in ranked else math.nan
            cell = replace(cell, score=score, best=rule in best, leads=rule in leads)
        completed.append(cell)
    return tuple(completed)


def _statistics(
    metric: Metric, chosen: pd.DataFrame, companions: pd.DataFrame | None
) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Fields of :class:`Cell` that the measurements determine, by sigma, component and rule."""
    cells = list(positions_by(chosen, _CELL))
    numbers = chosen[["value", "floor", "floor95", "bracket"]].to_numpy().T
    # Rows in the order of their cells, so that one call computes the sums of all cells.
    order = np.concatenate([positions for _, positions in cells])
    counts = np.array([len(positions) for _, positions in cells])
    value, floor, floor95, bracket = numbers[:, order]
    columns = _statistics_of_slices(metric, value, floor, floor95, bracket, counts)
    lists = {name: column.tolist() for name, column in columns.items()}
    companion_means = {}
    if companions is not None:
        companion_values = metric.shown(companions["value"].to_numpy())
        for key, positions in positions_by(companions, _CELL):
            companion_means[key] = float(companion_values[positions].mean())
    row_labels = chosen["row"].to_numpy()
    statistics_of = {}
    for index, (key, positions) in enumerate(cells):
        fields = {name: values[index] for name, values in lists.items()}
        fields["rows"] = labels_of(row_labels[positions])
        fields["companion"] = companion_means.get(key, math.nan)
        statistics_of[key] = fields
    return statistics_of


def _statistics_of_slices(
    metric: Metric,
    value: NDArray[np.float64],
    floor: NDArray[np.float64],
    floor95: NDArray[np.float64],
    bracket: NDArray[np.float64],
    counts: NDArray[np.int64],
) -> dict[str, NDArray[Any]]:
    """Statistics of consecutive slices of measurements; `counts` are the lengths of the slices."""
    starts = np.cumsum(counts) - counts
    shown = metric.shown(value)

    def count(condition: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.asarray(np.add.reduceat(condition.astype(int), starts))

    def mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
        known = ~np.isnan(values)
        return np.asarray(np.add.reduceat(np.where(known, values, 0.0), starts) / count(known))

    infinite = count(np.isinf(shown))
    indistinguishable = np.zeros_like(counts)
    if metric.has_floor:
        indistinguishable = count(metric.indistinguishable(value, floor, floor95))
    # Means of infinite values, deviations of single ones, and means of missing floors are NaN.
    with np.errstate(invalid="ignore", divide="ignore"):
        means = mean(shown)
        squares = np.add.reduceat((shown - np.repeat(means, counts)) ** 2, starts)
        corrected = np.full(len(counts), math.nan)
        if metric.corrects_floor:
            corrected = mean(np.sqrt(np.clip(value**2 - floor**2, 0, None)))
        return {
            "mean": np.where(infinite, math.inf, means),
            "sd": np.where(infinite, math.nan, np.sqrt(squares / (counts - 1))),
            "count": counts,
            "lowest": np.minimum.reduceat(shown, starts),
            "indistinguishable": indistinguishable,
            "infinite": infinite,
            "negative": count(shown < -_ROUNDING),
            "corrected": corrected,
            "bracket": np.fmax.reduceat(bracket, starts),
            "floor": mean(floor),
            "floor95": mean(floor95),
        }


def _median_floor(metric: Metric, floors: Iterable[float]) -> float:
    """Median of the rules' mean floors, as shown: rules that predict draws have higher floors."""
    known = [floor for floor in floors if not math.isnan(floor)]
    if not (known and metric.has_floor):
        return math.nan
    return float(metric.shown(np.array(statistics.median_low(known))))


def setting_of(tables: Sequence[Table]) -> str:
    """Return nets, noise and design of some tables in words, for figures that leave their page."""
    parts = (
        [table.kind.label for table in tables],
        [f"{noise_words(table.noise) or 'Gaussian noise'} at {_levels(table)}" for table in tables],
        [table.recipe for table in tables],
        [table.design for table in tables],
    )
    return "; ".join(filter(None, map(labels.abridged, parts)))


def _levels(table: Table) -> str:
    sigmas = sorted({row.sigma for row in table.rows})
    return f"{table.scale} = {labels.span(sigmas) if len(sigmas) > 1 else f'{sigmas[0]:g}'}"


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
        words_of_name: dict[str, set[str]] = {}
        for name, word in pairs:
            words_of_name.setdefault(name, set()).add(word)
        names = [f"{name}, {word}" if len(words_of_name[name]) > 1 else name for name, word in pairs]
    return names


def suite_title(experiment: str) -> str:
    """Return the title of an experiment; its name if it is unknown here or has no title."""
    known = experiments().get(experiment)
    return (known.title if known else "") or experiment


def by_experiment(tables: Iterable[Table]) -> dict[str, list[Table]]:
    """Return tables by name of the experiment: known experiments in their order, then the others."""
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
    for metric_class in _HEADLINES:
        if not chosen:
            chosen = [table for table in tables if isinstance(table.metric, metric_class)]
    first: dict[tuple[object, ...], Table] = {}
    for table in chosen:
        nets = (table.experiment, table.network, table.activation, table.depth)
        first.setdefault((table.metric.name, nets, table.recipe, table.noise), table)
    return sorted(first.values(), key=lambda t: (activation_rank(t.activation), t.activation, t.depth))


@dataclass(frozen=True)
class Difference:
    """A cell of a table, and the number that the paper prints for it."""

    table: Table
    row: TableRow
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
        """Whether the gap is larger than the spread; False if no spread is known."""
        return abs(self.gap) > self.spread

    @property
    def where(self) -> str:
        """Nets, noise level and component, in words."""
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
    compared = []
    for (table, _), row in itertools.groupby(differences(tables), lambda cell: (cell.table, cell.row)):
        deterministic = [difference for difference in row if not difference.cell.sampling]
        if len(deterministic) < 2:
            continue
        means = np.array([difference.printed.mean for difference in deterministic])
        # The paper prints 1 - TV; `shown` is its own inverse and returns the TV.
        scores = table.metric.score(table.metric.shown(means), np.full_like(means, math.nan))
        best_of_paper = deterministic[np.argmin(scores)]
        best_of_run = min(deterministic, key=lambda difference: difference.cell.score)
        compared.append(Order(best_of_paper, best_of_run))
    return compared
