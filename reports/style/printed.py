"""Figures in print: matplotlib draws the data that pages show as SVG."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sdp_bench.bench.files import write
from sdp_bench.reports.folder import PRINTED
from sdp_bench.reports.style.axis import Axis
from sdp_bench.reports.style.chart import SMALL, Chart, Guide, Series
from sdp_bench.reports.style.colours import GRID, INK, shades
from sdp_bench.reports.style.drawing import Style
from sdp_bench.reports.style.figure import Figure
from sdp_bench.reports.style.heat_map import HeatMap
from sdp_bench.reports.style.markers import SHAPES
from sdp_bench.reports.style.svg import FONT, INCH

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS = ("pdf", "svg", "png")
"""Suffixes of files that :func:`save` writes."""

_PAPER = {INK: "#1f2328", GRID: "#d8dbdf"}
_COLUMNS = 3
_LEGEND = 0.22  # in, of a line of the legend
_ERRORS = 0.55  # opacity of bars
_BAND = 0.22


def save(figure: Figure, path: Path) -> Path:
    """Write a figure for print, with its panels side by side and the legend below; return the path.

    Title and caption are left to the paper. Texts stay texts, and the same figure gives the same bytes. The
    suffix selects the format, one of :data:`KINDS`. An existing file is replaced atomically.
    """
    kind = path.suffix.removeprefix(".").lower()
    if kind not in KINDS:
        raise ValueError(f"{path.name}: a figure is written as one of {', '.join(KINDS)}")
    return write(path, content(figure, kind))


def content(figure: Figure, kind: str) -> bytes:
    """Return what :func:`save` writes.

    A marker of our files is in the last comment of a PDF and in the title of an SVG.
    """
    from matplotlib.figure import Figure as Canvas

    columns = min(_COLUMNS, len(figure.panels))
    rows = math.ceil(len(figure.panels) / columns)
    legend = math.ceil(len(figure.styles) / (2 * columns)) * _LEGEND
    tall = max(panel.drawing.height for panel in figure.panels) * INCH + 2 * _LEGEND
    with _look():
        canvas = Canvas(figsize=(columns * INCH, rows * tall + legend), layout="constrained")
        grid = canvas.subplots(rows, columns, squeeze=False)
        for axes, panel in zip_longest(grid.flat, figure.panels):
            if panel is None:
                axes.set_axis_off()
            elif isinstance(panel.drawing, HeatMap):
                _draw_cells(axes, panel.drawing)
            else:
                _draw(axes, panel.drawing)
            if panel is not None:
                axes.set_title("\n".join((panel.title, *_above(panel.drawing))), fontsize=FONT, loc="left")
        if figure.styles:
            handles = [_handle(style) for style in figure.styles]
            canvas.legend(
                handles=handles, loc="outside lower left", ncols=2 * columns, frameon=False, fontsize=SMALL
            )
        named = {"Creator": "sdp-bench", "Title": f"sdp-bench: {figure.title}"}
        metadata = {"pdf": named | {"CreationDate": None}, "svg": named | {"Date": None}}.get(kind)
        file = io.BytesIO()
        canvas.savefig(file, format=kind, metadata=metadata)
    return file.getvalue() + (PRINTED.encode() if kind == "pdf" else b"")


@contextmanager
def _look() -> Iterator[None]:
    import matplotlib as mpl

    ink, grid = _PAPER[INK], _PAPER[GRID]
    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "sdp-bench",
        "pdf.fonttype": 42,
        "font.size": FONT,
        **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), ink),
        **dict.fromkeys(("axes.edgecolor", "grid.color"), grid),
        "axes.grid": True,
        "grid.linewidth": 0.6,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "savefig.dpi": 300,
    }
    with mpl.rc_context(settings):
        yield


def _colour(colour: str) -> str:
    """Colour on (light) paper."""
    return _PAPER.get(colour) or shades(colour)[0]


def _marker(style: Style, size: float) -> dict[str, Any]:
    corners = SHAPES[style.marker] if style.marker else ()
    shape: Any = [(x, -y) for x, y in (*corners, corners[0])] if corners else "o" if style.marker else ""
    # matplotlib scales a polygon by its largest coordinate
    extent = max((abs(each) for corner in corners for each in corner), default=1.0)
    return {"marker": shape, "markersize": 2 * size * extent, "markeredgewidth": 0}


def _dashed(dashes: tuple[float, ...]) -> Any:
    return (0, dashes) if dashes else "solid"


def _handle(style: Style) -> Any:
    from matplotlib.lines import Line2D

    colour = _colour(style.colour)
    line = _dashed(tuple(each / 1.6 for each in style.dashes))
    return Line2D([], [], color=colour, linestyle=line, linewidth=1.6, label=style.label, **_marker(style, 3))


def _above(drawing: Chart | HeatMap) -> tuple[str, ...]:
    return drawing.note if isinstance(drawing, Chart) else ()


def _draw(axes: Axes, chart: Chart) -> None:
    for guide in chart.guides:
        _draw_guide(axes, guide)
    for series in chart.series:
        _draw_series(axes, series)
    _set(axes.xaxis, chart.x, axes.set_xlim, axes.set_xscale)
    _set(axes.yaxis, chart.y, axes.set_ylim, axes.set_yscale)
    if chart.gridless:
        axes.grid(visible=False, axis="x")
    if chart.inclined:
        axes.tick_params(axis="x", labelrotation=55)
    if chart.top:
        above = axes.secondary_xaxis("top")
        places, texts = zip(*chart.top, strict=True)
        above.set_xticks(places, texts, fontsize=SMALL)
        above.minorticks_off()


def _set(axis: Any, own: Axis, limit: Any, scale: Any) -> None:
    scale("log" if own.log else "linear")
    limit(*((own.high, own.low) if own.flipped else (own.low, own.high)))
    ticks = own.ticks or ()
    axis.set_ticks([place for place, _ in ticks], labels=[text for _, text in ticks])
    axis.set_ticks([], minor=True)
    axis.set_label_text(own.name)


def _draw_guide(axes: Axes, guide: Guide) -> None:
    x, y, colour = np.asarray(guide.x, float), np.asarray(guide.y, float), _colour(guide.colour)
    if guide.filled:
        axes.add_patch(_area(x, y, colour, guide.opacity))
    else:
        width = guide.width
        line = _dashed(tuple(each / width for each in guide.dashes))
        axes.plot(x, y, color=colour, linestyle=line, linewidth=width, alpha=guide.opacity, zorder=1.5)


def _area(x: Any, y: Any, colour: str, opacity: float) -> Any:
    """Filled polygon; if it is broken by NaN, the other parts are holes."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    known = np.isfinite(x) & np.isfinite(y)
    starts = known & ~np.concatenate([[False], known[:-1]])
    codes = np.where(starts, Outline.MOVETO, Outline.LINETO)[known]
    outline = Outline(np.column_stack([x, y])[known], codes.astype(np.uint8))
    return PathPatch(outline, facecolor=colour, alpha=opacity, linewidth=0, zorder=1)


def _draw_series(axes: Axes, series: Series) -> None:
    colour, x, y = _colour(series.style.colour), series.xs, series.ys
    if series.reach and series.band:
        axes.fill_between(x, *series.reach, color=colour, alpha=_BAND, linewidth=0)
    elif series.reach:
        axes.vlines(x, *series.reach, colors=colour, linewidth=1, alpha=_ERRORS)
    if series.until is not None:
        axes.hlines(y, x, np.asarray(series.until, float), colors=colour, linewidth=1, alpha=_ERRORS)
    if series.wide:
        axes.bar(x, y - series.feet, series.wide, bottom=series.feet, color=colour)
        return
    if series.lined and len(x) > 1:
        line = _dashed(tuple(each / series.width for each in series.style.dashes))
        axes.plot(x, y, color=colour, linestyle=line, linewidth=series.width)
    look = _marker(series.style, series.size)
    if series.hollow:
        look |= {"markerfacecolor": "white", "markeredgewidth": 1}
    if series.ringed:
        look |= {"markeredgecolor": _PAPER[INK], "markeredgewidth": 1.3}
    axes.plot(x, y, color=colour, linestyle="none", markevery=series.every, zorder=2.5, **look)
    for place, value, note in zip(x, y, series.notes, strict=False):
        below: dict[str, Any] = {"textcoords": "offset points", "fontsize": SMALL, "ha": "center"}
        axes.annotate(note, (place, value), (0, -13), **below)


def _draw_cells(axes: Axes, cells: HeatMap) -> None:
    rows, columns = cells.values.shape
    painted = np.ma.masked_invalid(cells.values)
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("cells", cells.colours.stops)
    low, high = cells.colours.low, cells.colours.high
    axes.pcolormesh(
        painted, cmap=colours, vmin=low, vmax=high, edgecolors=_colour(cells.edges), linewidth=0.5
    )
    for (row, column), ink in zip(cells.known, cells.inks, strict=True):
        text = cells.texts[row][column]
        axes.text(column + 0.5, row + 0.5, text, color=ink, fontsize=cells.font, ha="center", va="center")
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.set_xticks(np.arange(columns) + 0.5, cells.columns)
    axes.set_yticks(np.arange(rows) + 0.5, ["\n".join(lines) for lines in cells.rows])
    axes.tick_params(length=0)
    axes.set(xlabel=cells.across, ylabel=cells.along)
