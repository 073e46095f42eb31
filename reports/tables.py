"""Tables by sigma and rule: means, spreads, floors, what is best, and what the paper prints."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bench.noise import GAUSSIAN
from bench.suites import SUITES
from reports import labels
from reports.metrics import METRICS, Metric, metric_of
from reports.published import Printed, printed
from reports.ranking import UNIT, Scores

_TEXT = ("suite", "network", "activation", "net", "rule", "metric", "component", "unit")
_NUMBERS = ("depth", "seed", "input", "sigma", "value", "floor", "floor95", "stderr", "seconds", "accuracy")
COLUMNS = _TEXT + _NUMBERS

BOUNDS = ("lower", "upper")
"""Components that are proven bounds of the number itself."""

_ROUNDING = 1e-10  # an eigenvalue this far below zero, relative to the largest, may be float64's doing


@dataclass(frozen=True)
class Cell:
    """One rule at one sigma: statistics, over nets and inputs, of what is shown.

    `sd` has n - 1 in its denominator (NaN for a single measurement). Of `count` measurements,
    `indistinguishable` lie at or below the floor's 95 % point, `infinite` are infinite, `negative` below
    zero by more than rounding.
    `bracket` is the widest relative distance between proven bounds (NaN where there are none).
    `score` is the mean of what is ranked (lower is better; NaN where nothing is). `best` holds for the row's
    lowest score and those within one paired standard error of it; `leads` likewise among rules that do not
    sample.
    """

    rule: str
    mean: float
    sd: float
    count: int
    lowest: float = math.nan
    score: float = math.nan
    best: bool = False
    leads: bool = False
    indistinguishable: int = 0
    infinite: int = 0
    negative: int = 0
    also: float = math.nan
    corrected: float = math.nan
    bracket: float = math.nan
    printed: Printed | None = None


@dataclass(frozen=True)
class Row:
    """One sigma (and component): a cell for every rule, None where it was not measured.

    `floor` and `floor95` are what a rule with the exact law shows, mean and 95 % point, on the table's scale.
    """

    sigma: float
    component: str
    cells: tuple[Cell | None, ...]
    floor: float
    floor95: float

    @property
    def winner(self) -> Cell | None:
        """Cell with the lowest score; None where nothing is ranked."""
        return _lowest([cell for cell in self.cells if cell])

    @property
    def leader(self) -> Cell | None:
        """Cell with the lowest score among rules that do not sample."""
        return _lowest([cell for cell in self.cells if cell and not labels.is_sampling(cell.rule)])


@dataclass(frozen=True)
class Table:
    """One metric of one suite on one kind of net."""

    suite: str
    network: str
    activation: str
    depth: int
    metric: Metric
    rules: tuple[str, ...]
    rows: tuple[Row, ...]
    nets: int
    units: int
    unit: str

    @property
    def scale(self) -> str:
        """Symbol of the noise's scale, by which rows are."""
        suite = SUITES.get(self.suite)
        return labels.scale_label((suite.noise if suite else GAUSSIAN).parameter)

    @property
    def has_floor(self) -> bool:
        """Whether any row has a floor to show."""
        return any(math.isfinite(row.floor) for row in self.rows)

    @property
    def has_components(self) -> bool:
        """Whether rows are split by component."""
        return any(row.component for row in self.rows)

    @property
    def behind(self) -> str:
        """How many nets and inputs a mean is over, for people."""
        nets = labels.plural(self.nets, "net")
        if self.units % self.nets:
            return f"{nets}, {labels.plural(self.units, 'input')} in all"
        return f"{nets} × {labels.plural(self.units // self.nets, 'input')}"

    @property
    def sources(self) -> list[str]:
        """Tables of the paper that cells are shown beside."""
        cells = [cell for row in self.rows for cell in row.cells if cell]
        return sorted(
            {cell.printed.label for cell in cells if cell.printed}, key=lambda label: (len(label), label)
        )


def checked(frame: pd.DataFrame) -> pd.DataFrame:
    """Measurements with the columns and types the report relies on; those without a number are left out.

    Columns that the report does not need are kept as they are.

    Raises
    ------
    ValueError
        If a non-empty frame lacks columns.
    """
    if frame.empty:
        frame = frame.reindex(columns=list(COLUMNS))
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise ValueError(f"the results lack the columns {', '.join(missing)}")
    frame = frame[frame["value"].notna()].reset_index(drop=True)
    text = {name: frame[name].astype(object).where(frame[name].notna(), "").map(str) for name in _TEXT}
    numbers = {name: pd.to_numeric(frame[name]).astype(float) for name in _NUMBERS}
    return frame.assign(**text, **numbers)


def tables(frame: pd.DataFrame) -> Iterator[Table]:
    """Every table of the report: by suite, then kind of net, then metric.

    Parameters
    ----------
    frame
        Measurements as :func:`checked` gives them.
    """
    frame = with_brackets(largest_difference(frame))
    order = {metric.name: place for place, metric in enumerate(METRICS)}
    also = {metric.also for metric in METRICS if metric.name in set(frame["metric"])}
    for _, kind in frame.groupby(["suite", "activation", "depth", "network"], sort=True):
        names = sorted(kind["metric"].unique(), key=lambda name: (order.get(name, len(order)), name))
        for name in names:
            if name not in also:
                yield _table(metric_of(name), kind)


def _table(metric: Metric, kind: pd.DataFrame) -> Table:
    chosen = kind[kind["metric"] == metric.name]
    companions = kind[kind["metric"] == metric.also]
    activation, depth = str(kind["activation"].iloc[0]), int(kind["depth"].iloc[0])
    rules = tuple(labels.in_order(chosen["rule"]))
    rows = []
    for sigma in sorted(chosen["sigma"].unique()):
        for component, part in chosen[chosen["sigma"] == sigma].groupby("component", sort=True):
            same = (companions["sigma"] == sigma) & (companions["component"] == component)
            beside = companions[same]
            row = _row(metric, rules, part, beside, float(sigma), str(component))
            rows.append(_with_printed(metric, activation, depth, row))
    return Table(
        suite=str(kind["suite"].iloc[0]),
        network=str(kind["network"].iloc[0]),
        activation=activation,
        depth=depth,
        metric=metric,
        rules=rules,
        rows=tuple(rows),
        nets=chosen["net"].nunique(),
        units=len(chosen.drop_duplicates(UNIT)),
        unit=next((unit for unit in chosen["unit"] if unit), ""),
    )


def largest_difference(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep, of the pairwise score differences of each measurement, the one with the largest distance."""
    pairs = frame[frame["metric"] == "tv_difference"]
    subject = ["suite", "network", "activation", "depth", "net", "input", "sigma", "rule"]
    worst = pairs.loc[pairs.groupby(subject)["value"].idxmax()].assign(component="")
    return pd.concat([frame[frame["metric"] != "tv_difference"], worst], ignore_index=True)


def with_brackets(frame: pd.DataFrame) -> pd.DataFrame:
    """Proven bounds of each distance as a column `bracket`: their relative distance; NaN without any."""
    bounds = frame[frame["component"].isin(BOUNDS)]
    rest = frame[~frame["component"].isin(BOUNDS)].assign(bracket=math.nan)
    if bounds.empty:
        return rest
    place = ["suite", "net", "input", "sigma", "rule", "metric"]
    sides = bounds.pivot_table(index=place, columns="component", values="value")
    width = ((sides["upper"] - sides["lower"]) / sides["upper"]).fillna(0.0).rename("bracket")
    return rest.drop(columns="bracket").merge(width.reset_index(), on=place, how="left")


def shown(metric: Metric, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values on the scale of the table: 1 - TV for a total variation."""
    return 1 - values if metric.complement else values


def _row(
    metric: Metric,
    rules: tuple[str, ...],
    row: pd.DataFrame,
    companions: pd.DataFrame,
    sigma: float,
    component: str,
) -> Row:
    scores = Scores.of(metric, row, rules)
    ranked = [rule for rule in rules if metric.better and not labels.is_reference(rule)]
    means = {rule: mean for rule, mean in scores.means().items() if rule in ranked}
    best = scores.best(ranked)
    leads = scores.best([rule for rule in ranked if not labels.is_sampling(rule)])
    beside = {rule: part["value"].to_numpy() for rule, part in companions.groupby("rule")}
    cells = {
        str(rule): replace(
            _cell(metric, str(rule), measured, beside.get(rule, np.empty(0))),
            score=means.get(str(rule), math.nan),
            best=rule in best,
            leads=rule in leads,
        )
        for rule, measured in row.groupby("rule")
    }
    floor, floor95 = (_mean(shown(metric, row[name].to_numpy())) for name in ("floor", "floor95"))
    if not metric.floor:
        floor = floor95 = math.nan
    return Row(sigma, component, tuple(cells.get(rule) for rule in rules), floor, floor95)


def _cell(metric: Metric, rule: str, measured: pd.DataFrame, companions: NDArray[np.float64]) -> Cell:
    value, floor, floor95 = (measured[name].to_numpy() for name in ("value", "floor", "floor95"))
    values = shown(metric, value)
    infinite = int(np.isinf(values).sum())
    # A ratio's floor is 1, and errors lie on both sides of it: floor95 - floor is the half-width.
    below = np.abs(value - floor) <= floor95 - floor if metric.better == "one" else value <= floor95
    corrected = np.sqrt(np.clip(value**2 - floor**2, 0, None))
    return Cell(
        rule=rule,
        mean=math.inf if infinite else float(values.mean()),
        sd=math.nan if infinite or len(values) < 2 else float(values.std(ddof=1)),
        count=len(values),
        lowest=float(values.min()),
        indistinguishable=int(below.sum()) if metric.floor else 0,
        infinite=infinite,
        negative=int((values < -_ROUNDING).sum()),
        also=_mean(shown(metric, companions)),
        corrected=_mean(corrected) if metric.corrected else math.nan,
        bracket=float(measured["bracket"].max()),
    )


def _mean(values: NDArray[np.float64]) -> float:
    """Mean of what is known; NaN where nothing is."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan


def _with_printed(metric: Metric, activation: str, depth: int, row: Row) -> Row:
    if not metric.published:
        return row
    cells = tuple(
        cell
        and replace(
            cell, printed=printed(metric.published, activation, depth, row.sigma, cell.rule, row.component)
        )
        for cell in row.cells
    )
    return replace(row, cells=cells)


def _lowest(cells: list[Cell]) -> Cell | None:
    ranked = [cell for cell in cells if not math.isnan(cell.score)]
    return min(ranked, key=lambda cell: cell.score, default=None)
