"""Heat maps as data and as SVG; matplotlib would take a hundred times as long for each text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sdp_bench.reports.style.colours import Colours, luminance, written
from sdp_bench.reports.style.svg import (
    BOTTOM,
    GAP,
    INCH,
    LETTER,
    LINE,
    POINTS,
    RIGHT,
    TOP,
    at,
    group,
    opened,
    spaced,
    text,
    upwards,
)

_EM = 0.62  # width of a digit, relative to the font size
_BRIGHT = 0.179  # luminance above which black has the higher contrast (WCAG)


@dataclass(frozen=True, eq=False)
class HeatMap:
    """Coloured cells of a matrix, first row on top, each with a text unless its value is NaN.

    `rows` are names of rows, by lines. `columns` are names of columns; a name that would overlap the previous
    one is omitted. `across` and `along` name the quantities of columns and rows. `edges` is the colour of the
    lines between cells, `height` is relative to the width, and `size` is the largest font size of the texts
    (pt).
    """

    values: NDArray[np.float64]
    texts: Sequence[Sequence[str]]
    rows: Sequence[Sequence[str]]
    columns: Sequence[str]
    across: str
    along: str
    colours: Colours
    edges: str
    height: float
    size: float

    @cached_property
    def svg(self) -> str:
        lines = (
            opened(self.height),
            *group(f'stroke="{self.edges}"', self._cells()),
            *group(f'class="inside" font-size="{self.font:.3g}"', self._inscriptions()),
            *group('class="names"', self._names()),
            *group('class="names ends"', self._names_of_rows()),
            "</svg>",
        )
        return "\n".join(lines)

    @cached_property
    def font(self) -> float:
        """Font size of the texts in cells (pt)."""
        wide = (self._xs[-1] - self._xs[0]) / len(self.columns)
        longest = max(len(words) for row in self.texts for words in row)
        return float(min(self.size, POINTS * wide / (_EM * (longest + 0.5))))

    @cached_property
    def _xs(self) -> NDArray[np.float64]:
        left = 2 * GAP + LINE + LETTER * max(len(line) for lines in self.rows for line in lines)
        return np.linspace(left, INCH - RIGHT, len(self.columns) + 1)

    @cached_property
    def _ys(self) -> NDArray[np.float64]:
        return np.linspace(TOP, INCH * self.height - BOTTOM, len(self.rows) + 1)

    @cached_property
    def known(self) -> list[tuple[int, int]]:
        return [(int(row), int(column)) for row, column in np.argwhere(np.isfinite(self.values))]

    @cached_property
    def inks(self) -> list[str]:
        """Colours of texts: black or white, whichever has the higher contrast with the cell."""
        return ["#000" if light > _BRIGHT else "#fff" for light in luminance(self._painted).tolist()]

    @cached_property
    def _painted(self) -> NDArray[np.float64]:
        return self.colours.of(self.values[np.isfinite(self.values)])

    def _cells(self) -> Iterator[str]:
        right, down = at(self._xs[1] - self._xs[0], self._ys[1] - self._ys[0])
        for (row, column), colour in zip(self.known, written(self._painted), strict=True):
            x, y = at(self._xs[column], self._ys[row])
            yield f'<path fill="{colour}" d="M{x} {y}h{right}v{down}h-{right}z"/>'

    def _inscriptions(self) -> Iterator[str]:
        xs, ys = _middles(self._xs), _middles(self._ys)
        for (row, column), ink in zip(self.known, self.inks, strict=True):
            yield text(xs[column], ys[row], self.texts[row][column], self.font, f' fill="{ink}"')

    def _names(self) -> Iterator[str]:
        xs, bottom, low = _middles(self._xs), self._ys[-1], INCH * self.height - GAP
        for x, name in zip(xs, spaced(xs, self.columns), strict=True):
            if name:
                yield text(x, bottom + 1.5 * GAP, name)
        yield text(xs.mean(), low, self.across)
        middle = _middles(self._ys).mean()
        yield upwards(GAP, middle, self.along)

    def _names_of_rows(self) -> Iterator[str]:
        for y, lines in zip(_middles(self._ys), self.rows, strict=True):
            for place, line in enumerate(lines):
                yield text(self._xs[0] - GAP, y + LINE * (place - (len(lines) - 1) / 2), line)


def _middles(edges: NDArray[np.float64]) -> NDArray[np.float64]:
    return (edges[1:] + edges[:-1]) / 2
