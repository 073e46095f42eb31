"""What figures are drawn with: rules' styles, the look, and SVG that follows the page's width and colours."""

from __future__ import annotations

import io
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from sdp_bench.reports.style.rules import RuleTraits

INK, GRID = "#010203", "#010204"
"""Stand for the page's colours of text and lines, which depend on the colour scheme."""

Marker = str | tuple[int, Literal[0, 1, 2], int]
"""As matplotlib has it: a letter, or corners, 1 for a star and 0 for a polygon, and the angle."""

INCH = 4.0
"""Width of a panel."""

LETTER = 0.09
"""Width of a letter of a label, about (in)."""

POINTS = 72.0
"""Of an inch."""

FONT = 10.5
"""Of labels (pt)."""

TOP, RIGHT, BOTTOM = 0.1, 0.24, 0.48
"""Margins (in): half a label; an axis with its labels and its name."""

_MARKERS = {
    "sdp": "o",
    "dvia": "s",
    "moment_matching": "D",
    "unscented": "P",
    "marginal_sdp": "o",
    "marginal_moment_matching": "D",
}
_DASHES = {"moment_matching": (6.0, 2.5)}  # DVIA, often the same to the eye, shows through the gaps
_REFERENCE = "#7a7a2e"
_OTHERS = (
    *("#8c564b", "#7f3c8d", "#117733", "#aa4466", "#5b2be0", "#5fae00"),
    *("#c4002b", "#00848c", "#b59f00", "#d81bd8", "#f26d6d", "#a58be8"),
)
_OTHER_MARKERS: tuple[Marker, ...] = (
    *("X", "*", "h", "8", (4, 1, 0), (4, 1, 45)),
    *((3, 1, 0), (3, 1, 180), (6, 1, 0), (8, 1, 0), (5, 0, 180), (7, 1, 0)),
)
"""Of rules that are not ours: twelve before one comes again."""
_GREYS = ("#b4b4b4", "#a0a0a0", "#8c8c8c", "#787878", "#646464", "#505050")
_SAMPLING_MARKERS = ("v", "<", ">", "^", "d", "p")


@dataclass(frozen=True)
class Style:
    """How one rule is called and drawn, in every figure."""

    label: str
    colour: str
    marker: Marker
    dashes: tuple[float, ...]


@dataclass(frozen=True)
class Panel:
    """One drawing: its title, the SVG and what it shows, in words."""

    title: str
    svg: str
    alt: str


@dataclass(frozen=True)
class Figure:
    """Small multiples under one caption; `legend` pairs labels with swatches."""

    anchor: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    legend: tuple[tuple[str, str], ...] = ()


def styles(rules: Iterable[str], traits: RuleTraits) -> dict[str, Style]:
    """Style of each rule, in order: its own colour; sampling rules in greys, darker with more samples."""
    styled = {}
    greys = itertools.cycle(zip(_GREYS, _SAMPLING_MARKERS, strict=True))
    markers = itertools.cycle(_OTHER_MARKERS)
    taken: set[str] = set()
    for rule in traits.in_order(rules):
        label = traits.label(rule)
        if traits.is_sampling(rule):
            colour, marker = next(greys)
            styled[rule] = Style(label, colour, marker, (1.0, 1.5))
        elif traits.is_reference(rule):
            styled[rule] = Style(label, _REFERENCE, "H", (5.0, 1.5, 1.0, 1.5))
        else:
            own = traits[rule].colour  # which variants of a rule share
            free = (each for each in (own, *_OTHERS) if each and each not in taken)
            colour = next(free, _OTHERS[len(styled) % len(_OTHERS)])
            taken.add(colour)
            dashes = (2.5, 1.5) if traits[rule].marginal else _DASHES.get(rule, ())
            styled[rule] = Style(label, colour, _MARKERS.get(rule) or next(markers), dashes)
    return styled


def canvas_of(height: float, left: float = 0.52, top: float = TOP) -> tuple[Canvas, Axes]:
    """Canvas of one panel and its axes: `height` as a share of the width, `left` and `top` margins (in)."""
    # Fixed margins: finding them takes matplotlib as long as the drawing.
    tall = INCH * height
    canvas = Canvas(figsize=(INCH, tall))
    axes = canvas.add_axes((left / INCH, BOTTOM / tall, 1 - (left + RIGHT) / INCH, 1 - (BOTTOM + top) / tall))
    return canvas, axes


def legend_of(styled: Iterable[Style], prefix: str) -> tuple[tuple[str, str], ...]:
    """Labels with their swatches; `prefix` keeps the ids of these apart on the page."""
    swatches = []
    for number, style in enumerate(styled):
        canvas = Canvas(figsize=(0.42, 0.16))
        line = Line2D([0.05, 0.95], [0.5, 0.5], color=style.colour, linewidth=1.8)
        if style.dashes:
            line.set_dashes(style.dashes)
        marker: Any = style.marker  # a shape, or a tuple that makes one, which the stubs do not know
        point = Line2D([0.5], [0.5], color=style.colour, marker=marker, markersize=6, markeredgewidth=0)
        canvas.add_artist(line)
        canvas.add_artist(point)
        swatches.append((style.label, svg_of(canvas, f"{prefix}-{number}")))
    return tuple(swatches)


@contextmanager
def look() -> Iterator[None]:
    """Matplotlib's settings for every figure, while it is drawn."""
    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "sdp-bench",
        "font.size": FONT,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": GRID,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.grid": True,
        "grid.color": GRID,
        "grid.linewidth": 0.6,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "axes.facecolor": "none",
        "figure.facecolor": "none",
        "lines.linewidth": 1.6,
    }
    with mpl.rc_context(settings):
        yield


def label_x(axes: Axes, places: Sequence[float], texts: Sequence[str]) -> None:
    """Ticks along x, where limits are set; a text that would run into the one before is left out."""
    inches = axes.transData - axes.figure.dpi_scale_trans
    axes.set_xticks(places, spaced([inches.transform((place, 0))[0] for place in places], texts))


def spaced(middles: Iterable[float], texts: Iterable[str]) -> list[str]:
    """Texts around places (in); an empty one for each that would run into the one before."""
    end, shown = -math.inf, []
    for middle, text in zip(middles, texts, strict=True):
        half = LETTER * len(text) / 2
        fits = middle - half > end
        end = middle + half if fits else end
        shown.append(text if fits else "")
    return shown


def svg_of(canvas: Canvas, prefix: str) -> str:
    """SVG element without declarations, fixed size, metadata or ids that could clash on the page.

    Coordinates are to a tenth of a point, and what the page's style says of texts is left to it.

    Returns
    -------
    str
    """
    buffer = io.StringIO()
    canvas.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r'\s(?:xmlns(?::\w+)?|version)="[^"]*"', "", text)
    text = re.sub(r'(<svg[^>]*?)\swidth="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?)\sheight="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'\sid="[\w.]+_\d+"', "", text)
    text = re.sub(r'(\sid="|href="#|url\(#)', rf"\g<1>{prefix}-", text)
    text = re.sub(r" font-family: [^;\"]*;", "", text)
    text = re.sub(r' transform="rotate\(-0 [^"]*"', "", text)
    # in attributes alone: labels keep their digits
    text = re.sub(r' (?:d|x|y)="[^"]*"', lambda found: re.sub(r"(\d\.\d)\d+", r"\1", found.group()), text)
    text = re.sub(r"\s*\n(?=[LMCQz\"])", "", text)
    text = re.sub(r"\n\s*", "\n", on_page(text))
    return text.replace("<svg", '<svg aria-hidden="true"', 1)


def on_page(drawn: str) -> str:
    """With the page's own colours of text and lines."""
    return drawn.replace(INK, "currentColor").replace(GRID, "var(--line)")
