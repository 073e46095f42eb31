"""The section with every table by noise level and rule, for each experiment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from sdp_bench.bench.experiments import experiments
from sdp_bench.bench.metrics import Metric
from sdp_bench.bench.metrics.distances import SmallestEigenvalue
from sdp_bench.reports.numbers.number import Group, Number, Page, slug
from sdp_bench.reports.results import Results
from sdp_bench.reports.section import Context, Section
from sdp_bench.reports.site import SitePage, suite
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.rules import RuleTraits
from sdp_bench.reports.tables.tables import Table

MOST_CELLS = 3000
"""Number of table cells on one page, some 700 kB."""


@dataclass(frozen=True)
class NetTables:
    """Tables of one experiment on one kind of net, and notes on indefinite predicted covariances."""

    anchor: str
    title: str
    network: str
    tables: tuple[Table, ...]
    indefinite: tuple[str, ...]


@dataclass(frozen=True)
class ExperimentTables:
    """Tables of one experiment, by kind of net."""

    name: str
    anchor: str
    title: str
    about: str
    kinds: tuple[NetTables, ...]

    @property
    def cells(self) -> int:
        tables = (table for kind in self.kinds for table in kind.tables)
        return sum(len(row.cells) for table in tables for row in table.rows)

    @property
    def metrics(self) -> list[Metric]:
        every = [table.metric for kind in self.kinds for table in kind.tables]
        return list({(metric.name, metric.title): metric for metric in every}.values())


class Tables(Section):
    """Tables of every experiment that no other section displays."""

    name = "tables"
    title = "Tables"
    order = 60

    def build(self, results: Results) -> Context | None:
        return {"experiments": _experiments(results.tables, results.traits)} if results.tables else None

    def spread(self, context: Context) -> Iterator[tuple[SitePage, Context]]:
        """Yield a page for each experiment, or for each kind of net if it has too many cells for one page."""
        for one in context["experiments"]:
            if one.cells <= MOST_CELLS:
                yield suite(one.name, one.title), {"experiments": [one]}
                continue
            for number, kind in enumerate(one.kinds):
                anchor = (
                    f"{kind.anchor}-tables" if number else one.anchor
                )  # target of links to the whole experiment
                part = replace(one, anchor=anchor, title=f"{one.title}: {kind.network}", kinds=(kind,))
                yield suite(slug(kind.anchor), part.title), {"experiments": [part]}

    def navigation(self, context: Context) -> list[tuple[str, str]]:
        return [(experiment.anchor, experiment.title) for experiment in context["experiments"]]

    def numbers(self, results: Results, context: Context) -> Iterator[Number]:
        del context
        for table in results.tables:
            page = Page(
                file=f"{slug(table.experiment, table.activation, str(table.depth), table.network)}.html",
                title=f"{table.kind.label} ({table.network})",
                small=table.experiment,
                section=table.experiment,
            )
            group = Group(
                page,
                slug(table.metric.name, table.under, table.variant, table.recipe),
                table.title,
                table.metric,
            )
            for row in table.rows:
                for cell in filter(None, row.cells):
                    title = f"{results.traits.label(cell.rule)}, {table.scale} = {row.sigma:g}"
                    if row.component:
                        title += f", {table.metric.component or 'component'} {row.component}"
                    anchor = slug(group.anchor, f"{row.sigma:g}", row.component, cell.rule)
                    yield Number(group, anchor, title, cell.mean, cell.rows)


def _experiments(tables: Sequence[Table], traits: RuleTraits) -> list[ExperimentTables]:
    by_name: dict[str, list[Table]] = {}
    for table in tables:
        by_name.setdefault(table.experiment, []).append(table)
    order = [*experiments(), *sorted(set(by_name) - set(experiments()))]
    return [_experiment(name, by_name[name], traits) for name in order if name in by_name]


def _experiment(name: str, tables: Sequence[Table], traits: RuleTraits) -> ExperimentTables:
    known = experiments().get(name)
    title, about = (known.title or name, known.about) if known else (name, "")
    kinds: dict[tuple[str, int, str], list[Table]] = {}
    for table in tables:
        kinds.setdefault((table.activation, table.depth, table.network), []).append(table)
    return ExperimentTables(name, name, title, about, tuple(_kind(own, traits) for own in kinds.values()))


def _kind(tables: Sequence[Table], traits: RuleTraits) -> NetTables:
    first = tables[0]
    eigenvalues = [table for table in tables if table.metric.name == SmallestEigenvalue.name]
    return NetTables(
        anchor=f"{first.experiment}-{first.activation}-{first.depth}-{first.network}",
        title=first.kind.label,
        network=first.network,
        tables=tuple(table for table in tables if table not in eigenvalues),
        indefinite=tuple(note for table in eigenvalues for note in _indefinite(table, traits)),
    )


def _indefinite(table: Table, traits: RuleTraits) -> Iterable[str]:
    for rule in table.rules:
        cells = [(row.sigma, cell) for row in table.rows for cell in row.cells if cell and cell.rule == rule]
        negative = [(sigma, cell) for sigma, cell in cells if cell.negative]
        if negative:
            count = sum(cell.negative for _, cell in negative)
            total = sum(cell.count for _, cell in cells)
            lowest = min(cell.lowest for _, cell in negative)
            sigmas = ", ".join(f"{sigma:g}" for sigma, _ in negative)
            where = ", ".join(filter(None, (table.recipe, table.under, f"{table.scale} = {sigmas}")))
            yield (
                f"{traits.label(rule)} gave an indefinite covariance in {count} of {total} predictions "
                f"({where}; smallest eigenvalue {labels.number(lowest)} of the largest). It is clipped "
                "only where samples of the prediction are drawn."
            )
