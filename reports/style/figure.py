"""Figures of pages and papers, drawn by matplotlib and seaborn: SVG for light and dark pages, and PDF."""

from __future__ import annotations

import functools
import io
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ...bench.text import printable, public
from .labels import number, span
from .theme import INK, LIGHT, LINE, QUIET, Style, css

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing


KINDS = ("pdf", "svg")
"""Formats of a figure's file."""

FONT, SMALL = 8.5, 7.0
"""Font sizes of texts in figures (pt)."""

_LETTER = 0.53  # mean width of a letter, relative to the font size
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
_CELL = re.compile(r'<path d="([^"]*)" clip-path="[^"]*" style="fill: (#\w{6}); stroke: [^"]*"/>')


@dataclass(frozen=True, eq=False)
class Figure:
    """A drawing with its title and caption.

    `anchor` is its id on a page. `cells` marks a heat map; its colours are the same on dark pages.
    """

    anchor: str
    title: str
    caption: str
    drawing: Drawing
    cells: bool = False

    @functools.cached_property
    def alt(self) -> str:
        """The drawing in words: its title, the axes of panels, and the ranges of lines that have a label."""
        said = [self.title]
        for axes in self.drawing.axes:
            words = []
            for line in axes.lines:
                x, y = (np.asarray(each, dtype=float) for each in (line.get_xdata(), line.get_ydata()))
                if np.isfinite(y).any() and not (label := str(line.get_label())).startswith("_"):
                    ends = span(y[~np.isnan(y)])
                    at = f" (at {number(x[np.nanargmax(y)])})" if " to " in ends and axes.get_xlabel() else ""
                    words.append(f"{label}: {ends}{at}")
            over = " over ".join(filter(None, (axes.get_ylabel(), axes.get_xlabel())))
            said += [": ".join(filter(None, (axes.get_title(loc="left"), over))), "; ".join(words)]
        return " ".join(f"{text}." for text in said if text)

    def content(self, kind: str) -> bytes:
        """File of the figure, one of :data:`KINDS`; the same figure gives the same bytes."""
        named = {"Creator": "sdp-bench", "Title": f"sdp-bench: {self.title}"}
        metadata = {"pdf": named | {"CreationDate": None}, "svg": named | {"Date": None}}[kind]
        file = io.BytesIO()
        with look(self.anchor):
            self.drawing.savefig(file, format=kind, metadata=metadata, facecolor="none")
        return file.getvalue()

    @functools.cached_property
    def svg(self) -> str:
        """SVG element that takes its font and the colours of text, lines and background from its page."""
        text = self.content("svg").decode()
        text = text[text.index("</defs>") + len("</defs>") :]  # its style sheet would be that of the page
        for pattern, by in _SLIMMER:
            text = re.sub(pattern, by, text)
        # coordinates to a tenth of a point
        text = _TAG.sub(
            lambda tag: _DIGITS.sub(lambda x: f"{float(x[0]):.1f}".removesuffix(".0"), tag[0]), text
        )
        if self.cells:
            text = _BLANK.sub("", text)
            text = _CELL.sub(r'<path class="cell" d="\1" fill="\2"/>', text)
        themed = (lambda colour: colour) if self.cells else css
        text = _COLOUR.sub(lambda found: _PAGE.get(found[0]) or themed(found[0]), _without_groups(text))
        width, height = self.drawing.get_size_inches() * 72
        text = _STYLE.sub(lambda style: style[0].replace("; fill: currentColor", "").replace(": ", ":"), text)
        size = (
            f'viewBox="0 0 {width:g} {height:g}" style="width:{_ZOOM * width / 72:.2f}in" fill="currentColor"'
        )
        words = escape(printable(public(self.alt)))
        return f'<svg class="chart" role="img" aria-label="{words}" {size}>\n{text}'


def _without_groups(text: str) -> str:
    """Remove groups without attributes, which matplotlib makes for every artist."""
    parts, opened = [], []
    for part in re.split(r"(<g\b[^>]*>|</g>)", text):
        if part.startswith("<g"):
            opened.append(part != "<g>")
        keep = opened.pop() if part == "</g>" else part != "<g>"
        if keep and part.strip():
            parts.append(part.strip())
    return "\n".join(parts)


@contextmanager
def look(salt: str = "sdp-bench") -> Iterator[None]:
    """Draw in the look of all figures; ids inside an SVG depend on the `salt`."""
    import matplotlib as mpl

    settings: dict[Any, Any] = {
        **{"svg.fonttype": "none", "svg.hashsalt": salt, "pdf.fonttype": 42, "text.parse_math": False},
        **{"axes.titlesize": FONT, "axes.titleweight": "bold", "axes.titlelocation": "left"},
        **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), FONT - 0.5),
        **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
        **{"axes.edgecolor": QUIET, "axes.facecolor": "none", "axes.linewidth": 0.6, "axes.axisbelow": True},
        **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
        **{"axes.grid": True, "grid.color": LINE, "grid.linewidth": 0.6, "axes.unicode_minus": True},
        **{"xtick.major.size": 0, "ytick.major.size": 0, "xtick.minor.size": 0, "ytick.minor.size": 0},
        **{"lines.linewidth": 1.4, "lines.markersize": 4.2, "lines.markeredgewidth": 0},
        **{"font.size": FONT, "legend.handlelength": 2.4, "legend.columnspacing": 1.4},
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
) -> tuple[Drawing, list[Axes]]:
    """Axes of one size side by side, one for each title, above a common legend; lengths are in inches.

    The layout is fixed, since matplotlib's layout engines take longer than the drawing itself. `legend` has
    styles or matplotlib's own handles. `margin` is room at the left of all panels.
    """
    from matplotlib.figure import Figure as Drawing
    from matplotlib.lines import Line2D

    columns = min(columns, len(titles))
    rows = math.ceil(len(titles) / columns)
    handles: list[Any] = [
        Line2D([], [], **entry.line | {"label": clean(entry.label)}) if isinstance(entry, Style) else entry
        for entry in legend
    ]
    wide = margin + columns * (left + width + right)
    longest = max((len(entry.get_label()) for entry in handles), default=0)
    across = max(1, int(wide / (0.62 + longest * _LETTER * FONT / 72)))
    foot = 0.19 * math.ceil(len(handles) / across) + (0.08 if handles else 0)
    tall = rows * (above + height + below) + foot
    drawing = Drawing(figsize=(wide, tall))
    for place, title in enumerate(titles):
        row, column = divmod(place, columns)
        x = margin + column * (left + width + right) + left
        y = tall - row * (above + height + below) - above - height
        drawing.add_axes((x / wide, y / tall, width / wide, height / tall)).set_title(clean(title))
    if handles:
        place_of_legend: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.08 / wide, 0)}
        drawing.legend(handles=handles, ncols=across, borderaxespad=0, **place_of_legend)
    return drawing, drawing.axes


def clean(text: str) -> str:
    """Text without control characters and local paths; line breaks are kept."""
    return "\n".join(printable(public(line)) for line in text.split("\n"))


def log_scale(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    def power(value: float, _: Any) -> str:
        return f"{value:g}" if 1e-3 <= value < 1e4 else f"1e{round(math.log10(value))}".replace("-", "−")

    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    axis.set_major_locator(LogLocator(numticks=6))
    axis.set_major_formatter(FuncFormatter(power))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


_SIDES = {"center": (-0.5, 0), "right": (-1, -1), "left": (0, 1)}
_AROUND = (
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
"""Positions of a name around its point, in order of preference: side and height."""


def label_points(axes: Axes, points: Sequence[tuple[float, float, str, str]]) -> list[str]:
    """Name points (x, y, text, colour) of axes with final limits; return the texts that have no room.

    A point without a text is only kept free of the others' names.
    """
    scale = axes.figure.dpi / 72
    box = axes.get_window_extent()
    places = [axes.transData.transform((x, y)) for x, y, _, _ in points]
    taken = [(x - 3 * scale, y - 3 * scale, x + 3 * scale, y + 3 * scale) for x, y in places]
    skipped = []
    for (x, y), (at, value, text, colour) in zip(places, points, strict=True):
        if not text:
            continue
        wide, tall, away = _LETTER * SMALL * len(text) * scale, 1.4 * SMALL * scale, 5 * scale
        for anchor, up in _AROUND:
            across, right = _SIDES[anchor]
            dx, dy = right * away, up * away
            x0, y0 = x + dx + across * wide, y + dy - tall / 2
            x1, y1 = x0 + wide, y0 + tall
            inside = x0 >= box.x0 and x1 <= box.x1 and y0 >= box.y0 and y1 <= box.y1
            if inside and not any(x0 < c and a < x1 and y0 < d and b < y1 for a, b, c, d in taken):
                taken.append((x0, y0, x1, y1))
                where: dict[str, Any] = {"xytext": (dx / scale, dy / scale), "textcoords": "offset points"}
                where |= {"ha": anchor, "va": "center_baseline"}
                axes.annotate(clean(text), (at, value), color=colour, fontsize=SMALL, **where)
                break
        else:
            skipped.append(text)
    return skipped


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
    """Accuracies over the scale in training, in a panel for each title."""
    drawing, every = panels(list(drawn), legend, width=width, height=height)
    for axes, lines in zip(every, drawn.values(), strict=True):
        for line in lines:
            values = line.values.sort_index()
            if list(values.index) == [0.0]:
                axes.axhline(values.iloc[0], **line.style.line | {"marker": ""})
            else:
                axes.plot(values.index, values, **line.style.line | {"markersize": 3})
                if line.spread is not None:
                    spread = line.spread.reindex(values.index)
                    ends = values.index, values - spread, values + spread
                    axes.vlines(*ends, color=line.style.colour, linewidth=0.9, alpha=0.6)
        log_scale(axes.xaxis)
        axes.set(xlabel="scale in training", ylabel="accuracy (%)", ylim=(0, 100))
    return Figure(anchor, title, caption, drawing)
