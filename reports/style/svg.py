"""Building blocks of SVG drawings: texts, groups and coordinates, in points."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from sdp_bench.bench.text import printable, public

INCH = 4.0
"""Width of a panel (in)."""

LETTER = 0.09
"""Approximate width of a letter of a label (in)."""

POINTS = 72.0
"""Points per inch."""

FONT = 10.5
"""Font size of labels (pt)."""

TOP, RIGHT, BOTTOM = 0.1, 0.24, 0.48
"""Margins (in): half a label; an axis with its labels and its name."""

GAP = 0.1
"""Gap between a drawing and the names next to it, and of an axis name's middle from the edge (in)."""

LINE = 1.2 * FONT / POINTS
"""Line height of names (in)."""

RISE = 0.36
"""From the baseline of a text to the middle of its digits, relative to the font size."""


def opened(height: float) -> str:
    """Start a drawing, with its height relative to the width; it is hidden from screen readers."""
    return f'<svg class="chart" aria-hidden="true" viewBox="0 0 {" ".join(at(INCH, INCH * height))}">'


def at(x: float, y: float) -> tuple[str, str]:
    """Coordinates (in) as written in a drawing, to a tenth of a point."""
    return short(POINTS * x), short(POINTS * y)


def short(points: float) -> str:
    """A length in points, to a tenth, without superfluous zeros."""
    whole, _, tenths = f"{abs(points):.1f}".partition(".")
    digits = f"{whole.lstrip('0')}.{tenths}".removesuffix(".0") or "0"
    return f"-{digits}" if points < 0 and digits != "0" else digits


def group(attributes: str, inside: Iterable[str]) -> Iterator[str]:
    elements = list(inside)
    if elements:
        yield f"<g {attributes}>"
        yield from elements
        yield "</g>"


def shown(words: str) -> str:
    """Text as HTML, without control characters and local paths; line breaks are kept."""
    return escape("\n".join(printable(public(line)) for line in words.split("\n")))


def text(x: float, y: float, words: str, size: float = FONT, more: str = "") -> str:
    """Text centred at a position (in), of a size (pt)."""
    across, down = at(x, y + RISE * size / POINTS)
    return f'<text x="{across}" y="{down}"{more}>{shown(words)}</text>'


def upwards(x: float, y: float, words: str) -> str:
    """Text centred at a position (in), read from below."""
    return text(x, y, words, more=f' transform="rotate(-90 {" ".join(at(x, y))})"')


def spaced(middles: Iterable[float], texts: Sequence[str]) -> list[str]:
    """Texts at positions (in); a text that would overlap the previous one becomes empty."""
    end, shown = -math.inf, []
    for middle, words in zip(middles, texts, strict=True):
        half = LETTER * len(words) / 2
        fits = middle - half > end
        end = middle + half if fits else end
        shown.append(words if fits else "")
    return shown
