"""What drawings are written with: texts, groups and coordinates of SVG, in points."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from sdp_bench.bench.text import printable, public

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

GAP = 0.1
"""Between a drawing and the names beside it, and of the middle of an axis' name from the edge (in)."""

LINE = 1.2 * FONT / POINTS
"""From one line of a name to the next (in)."""

RISE = 0.36
"""From the baseline of a text to the middle of its digits, in sizes of its font."""


def opened(height: float) -> str:
    """Start of a drawing as high as a share of its width; what it shows is said by what stands around it."""
    return f'<svg class="chart" aria-hidden="true" viewBox="0 0 {" ".join(at(INCH, INCH * height))}">'


def at(x: float, y: float) -> tuple[str, str]:
    """Coordinates (in) as a drawing has them, to a tenth of a point."""
    return short(POINTS * x), short(POINTS * y)


def short(points: float) -> str:
    """A length in points, to a tenth, with no zero that need not be there."""
    whole, _, tenths = f"{abs(points):.1f}".partition(".")
    digits = f"{whole.lstrip('0')}.{tenths}".removesuffix(".0") or "0"
    return f"-{digits}" if points < 0 and digits != "0" else digits


def group(attributes: str, inside: Iterable[str]) -> Iterator[str]:
    """Some elements in a group, without one if there are none."""
    elements = list(inside)
    if elements:
        yield f"<g {attributes}>"
        yield from elements
        yield "</g>"


def shown(words: str) -> str:
    """Text as HTML, without what a browser would obey, and folders of this machine; lines stay lines."""
    return escape("\n".join(printable(public(line)) for line in words.split("\n")))


def text(x: float, y: float, words: str, size: float = FONT, more: str = "") -> str:
    """Text around a place (in), of a size (pt)."""
    across, down = at(x, y + RISE * size / POINTS)
    return f'<text x="{across}" y="{down}"{more}>{shown(words)}</text>'


def upwards(x: float, y: float, words: str) -> str:
    """Text around a place (in), read from below."""
    return text(x, y, words, more=f' transform="rotate(-90 {" ".join(at(x, y))})"')


def spaced(middles: Iterable[float], texts: Sequence[str]) -> list[str]:
    """Texts around places (in); an empty one for each that would run into the one before."""
    end, shown = -math.inf, []
    for middle, words in zip(middles, texts, strict=True):
        half = LETTER * len(words) / 2
        fits = middle - half > end
        end = middle + half if fits else end
        shown.append(words if fits else "")
    return shown
