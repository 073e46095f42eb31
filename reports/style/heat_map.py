"""Heat maps as SVG, written here: matplotlib takes a hundred times as long for each text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import to_hex
from numpy.typing import NDArray

from sdp_bench.reports.style.drawing import BOTTOM, FONT, INCH, LETTER, POINTS, RIGHT, TOP, on_page, spaced

_EM = 0.62  # width of a digit, in sizes of its font
_RISE = 0.36  # from the baseline of a text to the middle of its digits, in sizes of its font
_GAP = 0.1  # in, between cells and the names beside them, and of the middle of an axis' name from the edge
_LINE = 1.2 * FONT / POINTS  # in, from one line of a name to the next


@dataclass(frozen=True, eq=False)
class HeatMap:
    """Cells of a matrix in colours, the first row on top, and in each its text where it has a value.

    Attributes
    ----------
    values : array, shape (rows, columns)
        NaN where there is none.
    texts : sequence of sequence of str
    rows : sequence of sequence of str
        Names, by lines.
    columns : sequence of str
        Names; one that would run into the one before is left out.
    across, along : str
        What columns and rows are.
    colours : ScalarMappable
        Of the values.
    edges : str
        Colour of the lines between cells.
    height : float
        As a share of the width.
    size : float
        Of the texts (pt), where cells are wide enough.
    """

    values: NDArray[np.float64]
    texts: Sequence[Sequence[str]]
    rows: Sequence[Sequence[str]]
    columns: Sequence[str]
    across: str
    along: str
    colours: ScalarMappable
    edges: str
    height: float
    size: float

    @property
    def svg(self) -> str:
        """SVG element, as :func:`sdp_bench.reports.style.drawing.svg_of` makes them."""
        centred = "text-anchor: middle"  # across; Safari lets no group say what is centred down
        lines = (
            f'<svg aria-hidden="true" viewBox="0 0 {" ".join(_points(INCH, INCH * self.height))}">',
            *_group(f"stroke: {on_page(self.edges)}", self._cells()),
            *_group(f"font-size: {self._font:.3g}px; {centred}", self._inscriptions()),
            *_group(f"font-size: {FONT}px; fill: currentColor; {centred}", self._names()),
            "</svg>",
        )
        return "\n".join(lines)

    @cached_property
    def _xs(self) -> NDArray[np.float64]:
        left = 2 * _GAP + _LINE + LETTER * max(len(line) for lines in self.rows for line in lines)
        return np.linspace(left, INCH - RIGHT, len(self.columns) + 1)

    @cached_property
    def _ys(self) -> NDArray[np.float64]:
        return np.linspace(TOP, INCH * self.height - BOTTOM, len(self.rows) + 1)

    @cached_property
    def _painted(self) -> NDArray[np.float64]:
        return np.asarray(self.colours.to_rgba(self.values))

    @cached_property
    def _known(self) -> list[tuple[int, int]]:
        """Places of values."""
        return [(int(row), int(column)) for row, column in np.argwhere(np.isfinite(self.values))]

    @cached_property
    def _font(self) -> float:
        wide = (self._xs[-1] - self._xs[0]) / len(self.columns)
        longest = max(len(text) for row in self.texts for text in row)
        return float(min(self.size, POINTS * wide / (_EM * (longest + 0.5))))

    def _cells(self) -> Iterator[str]:
        right, down = _points(self._xs[1] - self._xs[0], self._ys[1] - self._ys[0])
        for row, column in self._known:
            x, y = _points(self._xs[column], self._ys[row])
            yield f'<path fill="{to_hex(self._painted[row, column])}" d="M{x} {y}h{right}v{down}h-{right}z"/>'

    def _inscriptions(self) -> Iterator[str]:
        xs, ys = _middles(self._xs), _middles(self._ys)
        for row, column in self._known:
            ink = _ink_on(self._painted[row, column])
            yield _text(xs[column], ys[row], self.texts[row][column], self._font, f' fill="{ink}"')

    def _names(self) -> Iterator[str]:
        """Of columns, of what they are, and of rows."""
        xs, bottom, low = _middles(self._xs), self._ys[-1], INCH * self.height - _GAP
        for x, text in zip(xs, spaced(xs, self.columns), strict=True):
            if text:
                yield _text(x, bottom + 1.5 * _GAP, text)
        yield _text(xs.mean(), low, self.across)
        middle = _middles(self._ys).mean()
        upwards = f' transform="rotate(-90 {" ".join(_points(_GAP, middle))})"'
        yield _text(_GAP, middle, self.along, more=upwards)
        yield from _group("text-anchor: end", self._names_of_rows())

    def _names_of_rows(self) -> Iterator[str]:
        for y, lines in zip(_middles(self._ys), self.rows, strict=True):
            for place, text in enumerate(lines):
                yield _text(self._xs[0] - _GAP, y + _LINE * (place - (len(lines) - 1) / 2), text)


def _group(style: str, inside: Iterator[str]) -> Iterator[str]:
    yield f'<g style="{style}">'
    yield from inside
    yield "</g>"


def _text(x: float, y: float, text: str, size: float = FONT, more: str = "") -> str:
    """Text around a place (in), of a size (pt)."""
    across, down = _points(x, y + _RISE * size / POINTS)
    return f'<text x="{across}" y="{down}"{more}>{escape(text)}</text>'


def _points(x: float, y: float) -> tuple[str, str]:
    """Coordinates (in) as a drawing has them, to a tenth of a point."""
    return f"{POINTS * x:.1f}".removesuffix(".0"), f"{POINTS * y:.1f}".removesuffix(".0")


def _middles(edges: NDArray[np.float64]) -> NDArray[np.float64]:
    return (edges[1:] + edges[:-1]) / 2


def _ink_on(colour: NDArray[np.float64]) -> str:
    """Black or white, whichever has the higher contrast on a colour (WCAG relative luminance)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000" if luminance > 0.179 else "#fff"
