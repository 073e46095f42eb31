"""Figures of pages and papers, drawn by matplotlib and seaborn: SVG for light and dark pages, and PDF."""

from __future__ import annotations

import functools
import html
import io
import math
import re
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...bench.text import printable, public
from .labels import abridged, number, span
from .theme import INK, LIGHT, LINE, QUIET, Style, clean, css, marked

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing


KINDS = ("pdf", "svg")
"""Formats of a figure's file."""

SERIES = 6
"""Lines that stand out in a figure at first; further ones are faint."""

FONT, SMALL = 8.5, 7.0
"""Font sizes of texts in figures (pt)."""

_LETTER, _BOLD = 0.53, 0.58  # mean width of a letter, relative to the font size
_LINE = 0.15  # height of a line of a title (in)
_NARROW = 5.0  # width of a figure (in) up to which its texts can be read on a phone
SIDE = "side|"
"""Mark of texts at the left of a panel (``gid``) that belong to the other panels of its row as well."""
_PAGE = {INK: "currentColor", QUIET: "var(--quiet)", LINE: "var(--line)", LIGHT: "var(--page)"}
_COLOUR = re.compile("#[0-9a-f]{6}")
_ZOOM = 1.2  # of figures on pages
_SLIMMER: tuple[tuple[str, Any], ...] = (
    (r'<g id="[^"]*"/>\s*', ""),
    (r'<g id="[^"]*">', "<g>"),
    (r"font: (\d+) ([\d.]+px) [^;\"]*", r"font-size: \2; font-weight: \1"),
    (r"font: ([\d.]+px) [^;\"]*", r"font-size: \1"),
    (r"font-family: [^;\"]*; ", ""),
    (r' transform="rotate\(-0 [^"]*"', ""),
    (r"; stroke-linecap: square|; stroke-linejoin: miter|stroke-dashoffset: 0; ", ""),
    (r'<path d="[^"]*" style="fill: none"/>\s*', ""),
    (r" ?\n(?=[A-Zz])", " "),
    (r"\s+(?=\"\s)|[ \n]+(?=\"/>)", ""),
    # only in paths without curves, after which numbers would be more points of the curve
    (r'd="[-\d.MLz ]*"', lambda path: re.sub(r"(?<=\d) L ", " ", path[0])),
)
"""Patterns in matplotlib's SVG, and shorter text for them: ids, fonts and zero rotations."""
_STYLE = re.compile('style="[^"]*"')
_TAG, _DIGITS = re.compile(r"<[^>]+>"), re.compile(r"-?\d+\.\d{3,}")
_BLANK = re.compile(
    r'<path d="[^"]*" clip-path="[^"]*" style="fill: none; stroke: #\w{6}; stroke-width: 0.[34]"/>\s*'
)
_MARK = re.compile(r'<g id="(series|legend|panel|side)\|([^"]*)">')
_CELL = re.compile(r'<path d="([^"]*)" clip-path="[^"]*" style="fill: (#\w{6}); stroke: [^"]*"/>')


@dataclass(frozen=True, eq=False)
class Figure:
    """A drawing with its title and caption.

    `anchor` is its id on a page. `cells` marks a heat map; its colours are the same on dark pages. `setting`
    names nets, noise and numbers of inputs, so that its file is understood without its page; by default the
    titles of the panels.
    """

    anchor: str
    title: str
    caption: str
    drawing: Drawing
    cells: bool = False
    setting: str = ""

    @property
    def source(self) -> str:
        """Title, setting and version, which identify the drawing without its page."""
        setting = self.setting or abridged(map(_title_of, self.drawing.axes))
        words = (self.title, setting, f"sdp-bench {version('sdp-bench')}")
        return clean(". ".join(word.removesuffix(".") for word in words if word))

    @functools.cached_property
    def alt(self) -> str:
        """The drawing in words: its title, the axes of panels, and the ranges of lines that have a label."""
        sentences = [self.title]
        for axes in self.drawing.axes:
            quantities = " over ".join(filter(None, (axes.get_ylabel(), axes.get_xlabel())))
            sentences.append(": ".join(filter(None, (_title_of(axes), quantities))))
            sentences.append("; ".join(_ranges_of_lines(axes)))
        return " ".join(f"{sentence}." for sentence in sentences if sentence)

    def content(self, kind: str) -> bytes:
        """File of the figure, one of :data:`KINDS`; the same figure gives the same bytes."""
        date = "CreationDate" if kind == "pdf" else "Date"
        about = "Subject" if kind == "pdf" else "Description"
        metadata = {
            "Creator": "sdp-bench",
            "Title": clean(f"sdp-bench: {self.title}"),
            about: f"{self.source}. {clean(self.caption)}".strip(),
            date: None,
        }
        file = io.BytesIO()
        with look(self.anchor):
            self.drawing.savefig(file, format=kind, metadata=metadata, facecolor="none")
        return file.getvalue()

    @functools.cached_property
    def svg(self) -> str:
        """SVG element that takes its font and the colours of text, lines and background from its page."""
        text = self.content("svg").decode()
        text = text[text.index("</defs>") + len("</defs>") :]  # its style sheet would be that of the page
        marks: list[str] = []  # kept out of the text, so that no pattern changes their numbers

        def placeholder(mark: re.Match[str]) -> str:
            marks.append(self._attributes(*mark.groups()))
            return f"<g data-mark={len(marks) - 1}>"

        text = _MARK.sub(placeholder, text)
        for pattern, replacement in _SLIMMER:
            text = re.sub(pattern, replacement, text)
        text = _TAG.sub(_with_short_coordinates, text)
        if self.cells:
            text = _BLANK.sub("", text)
            text = _CELL.sub(r'<path class="cell" d="\1" fill="\2"/>', text)
        text = _COLOUR.sub(lambda match: self._colour_of_page(match[0]), _without_groups(text))
        text = _STYLE.sub(lambda style: style[0].replace("; fill: currentColor", "").replace(": ", ":"), text)
        text = re.sub(r"data-mark=(\d+)", lambda mark: marks[int(mark[1])], text)
        width, height = self.drawing.get_size_inches() * 72
        size = (
            f'viewBox="0 0 {width:g} {height:g}" style="width:{_ZOOM * width / 72:.2f}in" fill="currentColor"'
        )
        alt = html.escape(printable(public(self.alt)))
        # not a title, which browsers show wherever the pointer is
        desc = f"<desc>{html.escape(self.source)}</desc>"
        name = "chart small" if width <= 72 * _NARROW else "chart"
        return f'<svg class="{name}" role="img" aria-label="{alt}" {size}>\n{desc}\n{text}'

    def _attributes(self, kind: str, content: str) -> str:
        """Attributes of a group in the SVG: of a series its label and tips; see also :func:`panels`."""
        if kind != "series":
            return f'data-{kind}="{content}"'
        label, _, tips = content.partition("|")
        attributes = f'data-series="{label}"'
        if tips:
            attributes += f' data-tips="{tips}"'
        if html.unescape(label) in self._faint:
            attributes += ' class="faint"'
        return attributes

    @functools.cached_property
    def _faint(self) -> frozenset[str]:
        """Labels of the lines after the first :data:`SERIES` ones of the legend."""
        lines = {
            clean(str(line.get_label()))
            for axes in self.drawing.axes
            for line in axes.lines
            if len(np.atleast_1d(line.get_xdata())) > 1
        }
        labels_of_legend = [text.get_text() for legend in self.drawing.legends for text in legend.get_texts()]
        return frozenset([label for label in labels_of_legend if label in lines][SERIES:])

    def _colour_of_page(self, colour: str) -> str:
        if colour in _PAGE:
            return _PAGE[colour]
        return colour if self.cells else css(colour)


def _title_of(axes: Axes) -> str:
    """Title of a panel on one line."""
    return axes.get_title(loc="left").replace("\n", " ")


def _ranges_of_lines(axes: Axes) -> Iterator[str]:
    """Ranges of the lines with a label, and where their largest values are."""
    for line in axes.lines:
        label = str(line.get_label())
        y = np.asarray(line.get_ydata(), dtype=float)
        if label.startswith("_") or not np.isfinite(y).any():
            continue
        text = span(y[~np.isnan(y)])
        if " to " in text and axes.get_xlabel():
            x = np.asarray(line.get_xdata(), dtype=float)
            text += f" (at {number(x[np.nanargmax(y)])})"
        yield f"{label}: {text}"


def _with_short_coordinates(tag: re.Match[str]) -> str:
    """A tag of an SVG with coordinates to a tenth of a point."""
    return _DIGITS.sub(lambda digits: f"{float(digits[0]):.1f}".removesuffix(".0"), tag[0])


def _without_groups(text: str) -> str:
    """Remove groups without attributes, which matplotlib makes for every artist."""
    kept = []
    open_groups = []  # whether each open group is kept
    for part in re.split(r"(<g\b[^>]*>|</g>)", text):
        is_kept = part != "<g>"
        if part.startswith("<g"):
            open_groups.append(is_kept)
        elif part == "</g>":
            is_kept = open_groups.pop()
        if is_kept and part.strip():
            kept.append(part.strip())
    return "\n".join(kept)


@contextmanager
def look(salt: str = "sdp-bench") -> Iterator[None]:
    """Draw in the look of all figures; ids inside an SVG depend on the `salt`."""
    import matplotlib as mpl

    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": salt,
        "pdf.fonttype": 42,
        "text.parse_math": False,
        "text.color": INK,
        "font.size": FONT,
        "axes.titlesize": FONT,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.titley": 1.0,  # else the room that ticks take above the axes is computed, which takes long
        "axes.labelcolor": INK,
        "axes.edgecolor": QUIET,
        "axes.facecolor": "none",
        "axes.linewidth": 0.6,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.unicode_minus": True,
        "axes.grid": True,
        "grid.color": LINE,
        "grid.linewidth": 0.6,
        "xtick.color": INK,
        "xtick.labelsize": FONT - 0.5,
        "xtick.major.size": 0,
        "xtick.minor.size": 0,
        "ytick.color": INK,
        "ytick.labelsize": FONT - 0.5,
        "ytick.major.size": 0,
        "ytick.minor.size": 0,
        "lines.linewidth": 1.4,
        "lines.markersize": 4.2,
        "lines.markeredgewidth": 0,
        "legend.frameon": False,
        "legend.fontsize": FONT - 0.5,
        "legend.handlelength": 2.4,
        "legend.columnspacing": 1.4,
    }
    with mpl.rc_context(settings), warnings.catch_warnings():
        # The text of an SVG is shown by the reader's fonts, which may have a character that ours lack.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        yield


def panels(
    titles: Sequence[str],
    legend: Iterable[Style | Any] = (),
    *,
    columns: int = 3,
    width: float = 2.45,
    height: float = 1.85,
    left: float = 0.55,
    right: float = 0.15,
    below: float = 0.48,
    above: float = 0.32,
    margin: float = 0.0,
    title_size: float = FONT,
    title_start: float = 0.0,
) -> tuple[Drawing, list[Axes]]:
    """Axes of one size side by side, one for each title, above a common legend; lengths are in inches.

    The layout is fixed, since matplotlib's layout engines take longer than the drawing itself. `legend` has
    styles or matplotlib's own handles. `margin` is room at the left of all panels. Titles that are too long
    take several lines; they start at the axes, or `title_start` to the left of them. In the SVG, each panel
    is marked with its box (left, top, width and height in points), so that a narrow page shows panels below
    each other.
    """
    from matplotlib.figure import Figure as Drawing
    from matplotlib.lines import Line2D

    columns = min(columns, len(titles))
    rows = math.ceil(len(titles) / columns)
    most = int(72 * (title_start + width + right) / (_BOLD * title_size))
    titles = [textwrap.fill(clean(title), most) for title in titles]
    above += _LINE * max(title.count("\n") for title in titles)
    handles: list[Any] = []
    for entry in legend:
        if isinstance(entry, Style):
            entry = Line2D([], [], **entry.line | {"label": clean(entry.label)})
        handles.append(entry)
    total_width = margin + columns * (left + width + right)
    longest = max((len(handle.get_label()) for handle in handles), default=0)
    entry_width = 0.62 + longest * _LETTER * FONT / 72
    legend_columns = max(1, int(total_width / entry_width))
    legend_height = 0.19 * math.ceil(len(handles) / legend_columns) + (0.08 if handles else 0)
    total_height = rows * (above + height + below) + legend_height
    drawing = Drawing(figsize=(total_width, total_height))
    for index, title in enumerate(titles):
        row, column = divmod(index, columns)
        x = margin + column * (left + width + right) + left
        y = total_height - row * (above + height + below) - above - height
        axes = drawing.add_axes(
            (x / total_width, y / total_height, width / total_width, height / total_height)
        )
        axes.set_title(title, fontsize=title_size, x=-title_start / width)
        start = 0.0 if column == 0 else x - left
        box = (start, row * (above + height + below), x + width + right - start, above + height + below)
        axes.set_gid("panel|" + " ".join(f"{72 * length:.4g}" for length in box))
    if handles:
        drawing.legend(
            handles=handles,
            ncols=legend_columns,
            borderaxespad=0,
            loc="lower left",
            bbox_to_anchor=(0.08 / total_width, 0),
        ).set_gid(f"legend|{72 * legend_height:g}")
    return drawing, drawing.axes


def log_scale(axis: Any) -> None:
    """Make an axis of matplotlib logarithmic, with labels such as 100, 1e5 and 1e−4."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    def power(value: float, _: Any) -> str:
        if 1e-3 <= value < 1e4:
            return f"{value:g}"
        return f"1e{round(math.log10(value))}".replace("-", "−")

    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    axis.set_major_locator(LogLocator(numticks=6))
    axis.set_major_formatter(FuncFormatter(power))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


_Box = tuple[float, float, float, float]  # left, bottom, right, top, in pixels

_POSITIONS = (
    ("center", 1.8),
    ("center", -1.8),
    ("right", 0),
    ("left", 0),
    ("left", 1.8),
    ("left", -1.8),
    ("right", 1.8),
    ("right", -1.8),
    ("center", 3.6),
    ("left", 3.6),
    ("center", -3.6),
)
"""Positions of a name around its point, in order of preference: alignment, and height in gaps."""
_GAP = 5  # pt, between a point and its name
_RADIUS = 3  # pt, of the box around a point that names do not cover


def label_points(axes: Axes, points: Sequence[tuple[float, float, str, str]]) -> list[str]:
    """Name points (x, y, text, colour) of axes with final limits; return the texts that have no room.

    A point without a text is only kept free of the others' names.
    """
    scale = axes.figure.dpi / 72  # pixels per point
    extent = axes.get_window_extent()
    centres = [axes.transData.transform((x, y)) for x, y, _, _ in points]
    radius = _RADIUS * scale
    occupied = [(x - radius, y - radius, x + radius, y + radius) for x, y in centres]
    skipped = []
    for centre, (x, y, text, colour) in zip(centres, points, strict=True):
        if not text:
            continue
        for alignment, height in _POSITIONS:
            offset, box = _box_of_name(centre, text, alignment, height, scale)
            left, bottom, right, top = box
            fits = left >= extent.x0 and right <= extent.x1 and bottom >= extent.y0 and top <= extent.y1
            if fits and not any(_overlap(box, other) for other in occupied):
                occupied.append(box)
                axes.annotate(
                    clean(text),
                    (x, y),
                    xytext=offset,
                    textcoords="offset points",
                    ha=alignment,
                    va="center_baseline",
                    color=colour,
                    fontsize=SMALL,
                )
                break
        else:
            skipped.append(text)
    return skipped


def _box_of_name(
    centre: NDArray[np.float64], text: str, alignment: str, height: float, scale: float
) -> tuple[tuple[float, float], _Box]:
    """Offset of a name from its point in points, and its box in pixels."""
    width, line_height = _LETTER * SMALL * len(text) * scale, 1.4 * SMALL * scale
    gap = _GAP * scale
    side = {"left": 1, "center": 0, "right": -1}[alignment]  # of the point on which the name is
    start = {"left": 0, "center": -0.5, "right": -1}[alignment]  # of the text, in units of its width
    dx, dy = side * gap, height * gap
    left, bottom = centre[0] + dx + start * width, centre[1] + dy - line_height / 2
    return (dx / scale, dy / scale), (left, bottom, left + width, bottom + line_height)


def _overlap(box: _Box, other: _Box) -> bool:
    left, bottom, right, top = box
    other_left, other_bottom, other_right, other_top = other
    return left < other_right and other_left < right and bottom < other_top and other_bottom < top


DASHED, DOTTED = (4.0, 1.8), (1.0, 1.6)


@dataclass(frozen=True)
class Line:
    """Percentages and standard deviations by scale; a single entry at 0 is drawn as a horizontal line."""

    style: Style
    values: pd.Series
    spread: pd.Series | None = None


@look()
def over_scale(
    anchor: str,
    title: str,
    caption: str,
    drawn: Mapping[str, Iterable[Line]],
    legend: Iterable[Style],
    width: float = 2.45,
    height: float = 1.85,
) -> Figure:
    """Accuracies over the scale in training, in a panel for each title; `drawn` are lines by title."""
    drawing, axes_of_panels = panels(list(drawn), legend, width=width, height=height)
    for axes, lines in zip(axes_of_panels, drawn.values(), strict=True):
        for line in lines:
            values = line.values.sort_index()
            if list(values.index) == [0.0]:
                axes.axhline(values.iloc[0], **line.style.line | {"marker": ""})
            else:
                tips = [f" at {scale:g}: {number(value)} %" for scale, value in values.items()]
                if line.spread is not None:
                    spread = line.spread.reindex(values.index)
                    low, high = values - spread, values + spread
                    axes.vlines(
                        values.index, low, high, color=line.style.colour, linewidth=0.9, alpha=0.6,
                        gid=line.style.series,
                    )  # fmt: skip
                    tips = [
                        f"{tip} ± {number(sd)} (standard deviation)"
                        for tip, sd in zip(tips, spread, strict=True)
                    ]
                mark = {"gid": marked(line.style.label, tips), "markersize": 3}
                axes.plot(values.index, values, **line.style.line | mark)
        log_scale(axes.xaxis)
        axes.set(xlabel="scale in training", ylabel="accuracy (%)", ylim=(0, 100))
    return Figure(anchor, title, caption, drawing)
