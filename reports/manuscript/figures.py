"""Figures of a paper: a metric over the noise level, a panel for each kind of nets, a line for each rule."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure as Canvas

from sdp_bench.reports.folder import PRINTED
from sdp_bench.reports.style.drawing import Style, styles
from sdp_bench.reports.style.latex import escaped
from sdp_bench.reports.style.rules import RuleTraits
from sdp_bench.reports.tables.tables import Table

KINDS = ("pdf", "svg")
"""Of files that a figure is saved as."""
_ACROSS = 3  # panels
_WIDTH, _HEIGHT, _LEGEND = 2.3, 1.9, 0.2  # of a panel, and of a line of the legend (in)
_SETTINGS: dict[Any, Any] = {
    "font.size": 8,
    "pdf.fonttype": 42,
    "svg.hashsalt": "sdp-bench",
    "axes.grid": True,
    "grid.linewidth": 0.4,
    "grid.color": "#d0d0d0",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "legend.frameon": False,
}


@dataclass(frozen=True)
class Drawing:
    """One metric of one experiment, over noise levels, on some kinds of nets."""

    tables: tuple[Table, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """What tells it from the others."""
        first = self.tables[0]
        return (first.experiment, first.metric.name, first.under, first.variant, first.recipe)

    @property
    def caption(self) -> str:
        """What it shows, as LaTeX."""
        first = self.tables[0]
        return escaped(f"{first.title}, mean over nets and inputs, against the noise level ({first.scale}).")


def drawings(tables: Iterable[Table]) -> Iterator[Drawing]:
    """Figures of tables that have several noise levels and one number for each."""
    together: dict[tuple[str, ...], list[Table]] = {}
    for table in tables:
        if not table.has_components and len({row.sigma for row in table.rows}) > 1:
            together.setdefault(Drawing((table,)).words, []).append(table)
    for own in together.values():
        yield Drawing(tuple(own))


def saved(drawing: Drawing, traits: RuleTraits) -> dict[str, bytes]:
    """A figure as a file of each of :data:`KINDS`, the same for the same numbers."""
    metadata = {"Creator": "sdp-bench", "Title": f"sdp-bench: {drawing.tables[0].title}"}
    made = {}
    with mpl.rc_context(_SETTINGS):
        canvas = _drawn(drawing, traits)
        for kind, undated in zip(KINDS, ("CreationDate", "Date"), strict=True):
            file = io.BytesIO()
            canvas.savefig(file, format=kind, metadata=metadata | {undated: None})
            canvas.set_layout_engine("none")  # it is laid out, which takes long
            made[kind] = file.getvalue() + (PRINTED.encode() if kind == "pdf" else b"")
    return made


def _drawn(drawing: Drawing, traits: RuleTraits) -> Canvas:
    styled = styles((rule for table in drawing.tables for rule in table.rules), traits)
    across = min(_ACROSS, len(drawing.tables))
    down = math.ceil(len(drawing.tables) / across)
    columns = max(1, across)
    tall = down * _HEIGHT + _LEGEND * math.ceil(len(styled) / columns)
    canvas = Canvas(figsize=(_WIDTH * across, tall), layout="constrained")
    axes = canvas.subplots(down, across, squeeze=False).flat
    for place, table in zip(axes, drawing.tables, strict=False):
        _panel(place, table, styled)
    for place in list(axes)[len(drawing.tables) :]:
        place.set_axis_off()
    met = {line.get_label(): line for place in canvas.axes for line in place.get_lines()}
    canvas.legend(met.values(), map(str, met), loc="outside lower center", ncols=columns)
    return canvas


def _panel(axes: Any, table: Table, styled: dict[str, Style]) -> None:
    values = []
    for place, rule in enumerate(table.rules):
        style = styled[rule]
        known = [(row.sigma, cell.mean) for row in table.rows if (cell := row.cells[place])]
        points = [(sigma, mean) for sigma, mean in known if math.isfinite(mean)]
        values += [mean for _, mean in points]
        if points:
            axes.plot(
                *zip(*points, strict=True),
                color=style.colour,
                marker=style.marker,
                dashes=style.dashes or (1, 0),
                markeredgewidth=0,
                label=_plain(style.label),
            )
    if all(row.sigma > 0 for row in table.rows):
        axes.set_xscale("log")
    if table.metric.complement:
        axes.set_ylim(0, 1.02)
    elif values and min(values) > 0 and max(values) >= 10 * min(values):
        axes.set_yscale("log")
    axes.set(
        title=_plain(table.nets_label), xlabel=f"input noise {table.scale}", ylabel=_plain(table.metric.label)
    )


def _plain(text: str) -> str:
    """Text that matplotlib takes neither for a formula nor, by its first letter, for no label."""
    return text.replace("$", r"\$").replace("_", "\N{ZERO WIDTH SPACE}_", int(text.startswith("_")))
