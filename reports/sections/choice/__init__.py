"""The section "which rule when": the most accurate rule for a given time."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from sdp_bench.reports.numbers.number import Group, Number, Page, slug
from sdp_bench.reports.results import Results
from sdp_bench.reports.section import Context, Section
from sdp_bench.reports.sections.choice.choice import Choice, choice
from sdp_bench.reports.sections.choice.figure import choice_figures
from sdp_bench.reports.sections.choice.words import by_family, by_nets, names, sentences
from sdp_bench.reports.site import CHOICE


@functools.lru_cache(maxsize=1)
def choices(results: Results) -> Choice | None:
    """Judge rules by accuracy and time, once for all sections; None without two rules to compare."""
    return choice(results.tabled, results.traits)


class WhichRule(Section):
    """Recommended rules by budget, and the accuracy-cost front."""

    name = "choice"
    title = "Which rule when"
    page = CHOICE
    order = 20

    def build(self, results: Results) -> Context | None:
        found = choices(results)
        if found is None:
            return None
        front, other_fronts = choice_figures(found)
        return {
            "choice": found,
            "sentences": [*by_family(found.bands), *sentences(found.bands)],
            "by_nets": list(by_nets(found.bands)),
            "front": front,
            "other_fronts": other_fronts,
            "styles": results.styles,
            "names": functools.partial(names, traits=results.traits),
        }

    def numbers(self, results: Results, context: Context) -> Iterator[Number]:
        """Yield mean accuracies that are not in a table, whose list they would share."""
        tabled = {cell.rows for table in results.tables for row in table.rows for cell in row.cells if cell}
        for band in context["choice"].bands:
            page = Page(f"{slug('choice', band.title)}.html", band.title, "which rule when", self.name)
            group = Group(page, slug(band.metric.name, band.scale), band.metric.title, band.metric)
            varies = ("depth",) if len(band.depths) > 1 else ()
            for condition in band.conditions:
                for standing in condition.standings:
                    if standing.rows not in tabled:
                        anchor = slug(group.anchor, f"{condition.sigma:g}", standing.rule)
                        title = f"{results.traits.label(standing.rule)}, {band.scale} = {condition.sigma:g}"
                        yield Number(group, anchor, title, standing.value, standing.rows, varies)
