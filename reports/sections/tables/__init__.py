"""The section with every table by noise level and rule, for each experiment."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from ....bench.experiments import experiments
from ...numbers import Number, NumberGroup, Page, slug
from ...results import Results
from ...section import Context, Section
from ...site import SitePage, suite
from ...style import labels
from ...style.names import RuleTraits
from ...tables import files
from ...tables.tables import Table, by_experiment, suite_title

MOST_CELLS = 3000
"""Number of table cells on one page, some 700 kB."""


def file_of(table: Table) -> str:
    """Return the address of a table's CSV file inside the report's folder."""
    nets = table.experiment, table.activation, str(table.depth), table.network
    name = slug(*nets, table.metric.name, table.under, table.variant, table.recipe)
    return f"{files.FOLDER}/{name}.csv"


class Tables(Section):
    name = "tables"
    title = "Tables"
    order = 60

    def build(self, results: Results) -> Context | None:
        return {"experiments": _experiments(results.tables, results.traits)} if results.tables else None

    def spread(self, context: Context) -> Iterator[tuple[SitePage, Context]]:
        """Yield a page for each experiment, or for each kind of net if it has too many cells for one page."""
        for experiment in context["experiments"]:
            title, kinds = experiment["title"], experiment["kinds"]
            tables = [table for kind in kinds for table in kind["tables"]]
            if sum(len(row.cells) for table in tables for row in table.rows) <= MOST_CELLS:
                yield suite(experiment["name"], title), {"experiments": [experiment]}
                continue
            for index, kind in enumerate(kinds):
                # the first page is the target of links to the whole experiment
                anchor = experiment["anchor"] if index == 0 else f"{kind['anchor']}-tables"
                title_of_kind = f"{title}: {kind['network']}"
                part = {**experiment, "anchor": anchor, "title": title_of_kind, "kinds": [kind]}
                yield suite(slug(kind["anchor"]), title_of_kind), {"experiments": [part]}

    def navigation(self, context: Context) -> list[tuple[str, str]]:
        return [(experiment["anchor"], experiment["title"]) for experiment in context["experiments"]]

    def files(self, results: Results, context: Context) -> dict[str, str]:  # noqa: ARG002
        return {file_of(table): files.as_csv(table, results.traits) for table in results.tables}

    def numbers(self, results: Results, context: Context) -> Iterator[Number]:  # noqa: ARG002
        for table in results.tables:
            page = Page(
                file=f"{slug(table.experiment, table.activation, str(table.depth), table.network)}.html",
                title=f"{table.kind.label} ({table.network})",
                small=table.experiment,
                section=table.experiment,
            )
            anchor = slug(table.metric.name, table.under, table.variant, table.recipe)
            group = NumberGroup(page, anchor, table.title, table.metric)
            for row in table.rows:
                for cell in filter(None, row.cells):
                    title = f"{results.traits.label(cell.rule)}, {table.scale} = {row.sigma:g}"
                    if row.component:
                        title += f", {table.metric.component or 'component'} {row.component}"
                    anchor = slug(group.anchor, f"{row.sigma:g}", row.component, cell.rule)
                    yield Number(group, anchor, title, cell.mean, cell.rows)


def _experiments(tables: Sequence[Table], traits: RuleTraits) -> list[Context]:
    contexts: list[Context] = []
    for name, tables_of_experiment in by_experiment(tables).items():
        kinds: dict[tuple[str, int, str], list[Table]] = {}
        for table in tables_of_experiment:
            kinds.setdefault((table.activation, table.depth, table.network), []).append(table)
        contexts.append(
            {
                "name": name,
                "anchor": name,
                "title": suite_title(name),
                "about": experiments()[name].about if name in experiments() else "",
                "kinds": [_kind(tables_of_kind, traits) for tables_of_kind in kinds.values()],
            }
        )
    return contexts


def _kind(tables: Sequence[Table], traits: RuleTraits) -> Context:
    first = tables[0]
    eigenvalues = [table for table in tables if table.metric.name == "min_eigenvalue"]
    return {
        "anchor": f"{first.experiment}-{first.activation}-{first.depth}-{first.network}",
        "title": first.kind.label,
        "network": first.network,
        "tables": [table for table in tables if table not in eigenvalues],
        "file_of": file_of,
        "indefinite": [note for table in eigenvalues for note in _indefinite(table, traits)],
    }


def _indefinite(table: Table, traits: RuleTraits) -> Iterable[str]:
    """Yield sentences on rules with covariances that have negative eigenvalues."""
    for column, rule in enumerate(table.rules):
        total = count = 0
        lowest = math.inf
        sigmas = []
        for row in table.rows:
            cell = row.cells[column]
            if cell is None:
                continue
            total += cell.count
            if cell.negative:
                count += cell.negative
                lowest = min(lowest, cell.lowest)
                sigmas.append(f"{row.sigma:g}")
        if sigmas:
            where = ", ".join(
                filter(None, (table.recipe, table.under, f"{table.scale} = {', '.join(sigmas)}"))
            )
            yield (
                f"{traits.label(rule)} gave an indefinite covariance in {count} of {total} predictions "
                f"({where}; smallest eigenvalue {labels.number(lowest)} of the largest). It is clipped "
                "only where samples of the prediction are drawn."
            )
