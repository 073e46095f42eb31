"""Charts as data and as SVG; matplotlib would take many times as long and as many bytes."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sdp_bench.reports.style.axis import Axis
from sdp_bench.reports.style.colours import INK, css
from sdp_bench.reports.style.drawing import SIZE, WIDTH, Style, outline
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
    short,
    shown,
    spaced,
    text,
    upwards,
)

Array = NDArray[np.float64]

SMALL = 8.0
"""Font size of texts inside a chart (pt)."""

_FEW = 30  # points that are drawn without simplification
_SEEN = 0.1 / POINTS

_LONG = 0.16  # height of an inclined tick name, in inches per letter


@dataclass(frozen=True, eq=False)
class Series:
    """One rule, or another labelled item, in a chart: points with optional error bars, bands or bars.

    `style.label` is the label in the legend; `name` replaces it as the title if it is not specific enough. A
    point is omitted if its `y` is not finite.

    `error` is written after a value, with ±, and drawn as a bar unless `low` and `high` give the range of
    bars or of a `band` around the line. `until` is the end, along x, of a thin line from each point. `notes`
    are written below the points as far as there is room, from the last to the first. `lined` joins points by
    a line.

    If `wide` is positive, each point has a bar of this width in units of x, standing on `base` (default 0).
    `width` is that of the line (pt) and `size` the radius of the markers (pt). `every` selects the points of
    a long curve that have a marker and can be read. `hollow` and `ringed` are styles of markers.
    """

    style: Style
    x: ArrayLike
    y: ArrayLike
    name: str = ""
    error: ArrayLike | None = None
    low: ArrayLike | None = None
    high: ArrayLike | None = None
    until: ArrayLike | None = None
    notes: Sequence[str] = ()
    lined: bool = True
    band: bool = False
    wide: float = 0.0
    base: ArrayLike | None = None
    width: float = WIDTH
    size: float = SIZE
    every: int = 1
    hollow: bool = False
    ringed: bool = False

    @property
    def title(self) -> str:
        return self.name or self.style.label

    @functools.cached_property
    def xs(self) -> Array:
        return np.asarray(self.x, float)

    @functools.cached_property
    def ys(self) -> Array:
        return np.asarray(self.y, float)

    @functools.cached_property
    def reach(self) -> tuple[Array, Array] | None:
        if self.low is not None and self.high is not None:
            return np.asarray(self.low, float), np.asarray(self.high, float)
        if self.error is None:
            return None
        error = np.asarray(self.error, float)
        return self.ys - error, self.ys + error

    @functools.cached_property
    def feet(self) -> Array:
        return np.where(np.isfinite(self.ys), 0.0 if self.base is None else self.base, math.nan)

    def told(self, x: Axis, y: Axis) -> Iterator[str]:
        """Text of each drawn point: ``σ = 10: 0.532 ± 0.012``."""
        errors = np.full(len(self.ys), math.nan) if self.error is None else np.asarray(self.error, float)
        drawn = np.isfinite(x.shares(self.xs)) & np.isfinite(y.shares(self.ys))
        for place in np.arange(len(self.ys))[:: self.every].tolist():
            if drawn[place]:
                value, error = float(self.ys[place]), float(errors[place])
                around = f" ± {y.written(error, value)}" if math.isfinite(error) else ""
                yield f"{x.written(float(self.xs[place]))}: {y.written(value)}{around}"


@dataclass(frozen=True, eq=False)
class Guide:
    """An auxiliary line or, if `filled`, an area in a chart, without name or points.

    A line is broken where `x` or `y` is not finite. `width` is that of the line (pt).
    """

    x: ArrayLike
    y: ArrayLike
    colour: str = INK
    dashes: tuple[float, ...] = ()
    width: float = 0.9
    opacity: float = 1.0
    filled: bool = False


@dataclass(frozen=True, eq=False)
class Chart:
    """Lines, points and bars over two axes.

    `across` is the x-axis and `along` the y-axis. `guides` are drawn below the series, the first one lowest.
    `height` is relative to the width. `top` marks values of x along the upper edge, and `note` has lines of
    text above the chart. A `gridless` chart has no lines at the ticks of x; `inclined` draws long tick names
    at an angle.
    """

    across: Axis
    along: Axis
    series: tuple[Series, ...]
    guides: tuple[Guide, ...] = ()
    height: float = 0.86
    top: tuple[tuple[float, str], ...] = ()
    note: tuple[str, ...] = ()
    gridless: bool = False
    inclined: bool = False

    @functools.cached_property
    def x(self) -> Axis:
        sides = [(each.xs - each.wide / 2, each.xs + each.wide / 2) for each in self.series]
        reached = [each.until for each in self.series if each.until is not None]
        return self.across.over(_flat([*sides, *reached, *(guide.x for guide in self.guides)]))

    @functools.cached_property
    def y(self) -> Axis:
        drawn = [part for each in self.series for part in (each.ys, *(each.reach or ()))]
        feet = [each.feet for each in self.series if each.wide]
        return self.along.over(_flat([*drawn, *feet, *(guide.y for guide in self.guides)]))

    @functools.cached_property
    def svg(self) -> str:
        """SVG element; each series is a group with a title: its name, then a line for each of its points."""
        lines = (
            opened(self.height),
            *self._axes(),
            *self._below(),
            *(line for each in self.series for line in self._drawn(each)),
            "</svg>",
        )
        return "\n".join(lines)

    @functools.cached_property
    def frame(self) -> tuple[float, float, float, float]:
        """Left, right, top and bottom of the area between the axes (in)."""
        longest = max((len(mark) for _, mark in self.y.marks), default=0)
        left = 2 * GAP + LINE + LETTER * longest if self.y.name else GAP + LETTER * longest
        names = max((len(mark) for _, mark in self.x.marks), default=0)
        bottom = GAP + 0.75 * LETTER * names if self.inclined else BOTTOM
        return left, INCH - RIGHT, TOP + LINE * (bool(self.top) + len(self.note)), INCH * self.height - bottom

    def places(self, x: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
        """Positions of values in the drawing (in)."""
        left, right, top, bottom = self.frame
        across, up = self.x.shares(np.asarray(x, float)), self.y.shares(np.asarray(y, float))
        return left + (right - left) * across, bottom - (bottom - top) * up

    def _axes(self) -> Iterator[str]:
        left, right, top, bottom = self.frame
        xs = [(left + (right - left) * share, mark) for share, mark in self.x.marks]
        ys = [(bottom - (bottom - top) * share, mark) for share, mark in self.y.marks]
        upright = "" if self.gridless else "".join(_vertical(x, bottom, top) for x, _ in xs)
        level = "".join(_horizontal(y, left, right) for y, _ in ys)
        if upright or level:
            yield f'<path class="grid" d="{upright}{level}"/>'
        yield f'<path class="axis" d="{_vertical(left, top, bottom)}H{short(POINTS * right)}"/>'
        yield from group('class="names"', self._names(xs))
        yield from group('class="names ends"', (text(left - GAP / 2, y, mark) for y, mark in ys if mark))
        yield from group('class="names small"', self._above())

    def _names(self, xs: Sequence[tuple[float, str]]) -> Iterator[str]:
        left, right, top, bottom = self.frame
        if self.inclined:
            for x, mark in xs:
                place = " ".join(at(x, bottom + GAP))
                yield text(x, bottom + GAP, mark, more=f' class="ends" transform="rotate(-55 {place})"')
        else:
            shown = spaced([x for x, _ in xs], [mark for _, mark in xs])
            yield from (
                text(x, bottom + 1.5 * GAP, mark) for (x, _), mark in zip(xs, shown, strict=True) if mark
            )
        if self.x.name:
            yield text((left + right) / 2, INCH * self.height - GAP, self.x.name)
        if self.y.name:
            yield upwards(GAP, (top + bottom) / 2, self.y.name)

    def _above(self) -> Iterator[str]:
        left, right, top, _ = self.frame
        for above, line in enumerate(reversed(self.note)):
            yield text(left, top - GAP - LINE * above, line, SMALL, ' class="starts"')
        for share, mark in zip(self.x.shares(np.array([x for x, _ in self.top])), self.top, strict=True):
            x = left + (right - left) * float(share)
            yield text(x, top - GAP, mark[1], SMALL)
            yield f'<path class="l" d="{_vertical(x, top, top + 0.04)}" stroke-width="0.9"/>'

    def _below(self) -> Iterator[str]:
        """Draw guides, clipped to the frame."""
        for guide in self.guides:
            x, y = self.places(guide.x, guide.y)
            left, right, top, bottom = self.frame
            line = f'<path {_look(guide)} d="{_line(x, y)}{"z" if guide.filled else ""}"/>'
            inside = (x >= left - 0.01) & (x <= right + 0.01) & (y >= top - 0.01) & (y <= bottom + 0.01)
            if inside[np.isfinite(x) & np.isfinite(y)].all():
                yield line
            else:
                box = " ".join((*at(left, top), *at(right - left, bottom - top)))
                place = 'x="{}" y="{}" width="{}" height="{}"'.format(*box.split())
                yield f'<svg {place} viewBox="{box}">{line}</svg>'

    def _drawn(self, series: Series) -> Iterator[str]:
        named = "" if series.title == series.style.label else f' data-of="{shown(series.style.label)}"'
        told = "\n".join((series.title, *series.told(self.x, self.y)))
        parts = (f"<title>{shown(told)}</title>", *self._parts(series))
        yield from group(f'class="series"{series.style.attribute}{named}', parts)

    def _parts(self, series: Series) -> Iterator[str]:
        x, y = self.places(series.xs, series.ys)
        if series.reach:
            low, high = (self.places(series.xs, each)[1] for each in series.reach)
            yield _band(x, low, high) if series.band else f'<path class="e" d="{_uprights(x, low, high)}"/>'
        if series.until is not None:
            ends = self.places(series.until, series.ys)[0]
            yield f'<path class="e" d="{_levels(y, x, ends)}"/>'
        if series.wide:
            yield f'<path class="p" d="{self._bars(series)}"/>'
        elif series.lined and len(x) > 1:
            width = "" if series.width == WIDTH else f' stroke-width="{series.width:g}"'
            yield f'<path class="l"{width}{series.style.dashing} d="{_line(x, y)}"/>'
        if not series.wide:
            shape = outline(series.style.marker, series.size)
            points = (f"M{i} {j}{shape}" for i, j in _pairs(x[:: series.every], y[:: series.every]))
            look = " ring" * series.ringed + " hollow" * series.hollow
            yield f'<path class="p{look}" d="{"".join(points)}"/>'
        if series.notes:
            yield from group('class="names small"', _noted(x, y, series.notes))

    def _bars(self, series: Series) -> str:
        left, top = self.places(series.xs - series.wide / 2, series.ys)
        right, foot = self.places(series.xs + series.wide / 2, series.feet)
        return "".join(
            f"M{a} {b}V{c}H{d}V{b}z"
            for (a, b), (d, c) in zip(_pairs(left, top), _pairs(right, foot), strict=True)
        )


def _flat(parts: Iterable[ArrayLike | tuple[Array, Array]]) -> Array:
    return np.concatenate([np.ravel(np.asarray(part, float)) for part in parts] or [np.empty(0)])


def _look(guide: Guide) -> str:
    opacity = "" if guide.opacity == 1 else f' opacity="{guide.opacity:g}"'
    colour = "" if guide.colour == INK else f' style="color:{css(guide.colour)}"'
    if guide.filled:
        return f'class="p"{colour}{opacity}'
    dashes = f' stroke-dasharray="{" ".join(map(short, guide.dashes))}"' if guide.dashes else ""
    return f'class="l" stroke-width="{guide.width:g}"{colour}{dashes}{opacity}'


def _pairs(x: Array, y: Array) -> list[tuple[str, str]]:
    known = np.isfinite(x) & np.isfinite(y)
    return [at(i, j) for i, j in zip(x[known].tolist(), y[known].tolist(), strict=True)]


def _line(x: Array, y: Array) -> str:
    """Simplified path through points, broken at points that are not finite."""
    known = np.isfinite(x) & np.isfinite(y)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], known, [False]])))
    return "".join(
        "".join(
            f"{'L' if place else 'M'}{across} {down}"
            for place, (across, down) in enumerate(_pairs(*_needed(x[start:end], y[start:end])))
        )
        for start, end in edges.reshape(-1, 2).tolist()
    )


def _needed(x: Array, y: Array) -> tuple[Array, Array]:
    """Points without which a line would be visibly different (Douglas and Peucker, 1973)."""
    kept = np.zeros(len(x), bool)
    kept[[0, -1]] = True
    parts = [(0, len(x) - 1)] if len(x) > _FEW else []
    kept |= not parts
    while parts:
        first, last = parts.pop()
        run, rise = x[last] - x[first], y[last] - y[first]
        inside = slice(first + 1, last)
        off = np.abs(run * (y[inside] - y[first]) - rise * (x[inside] - x[first]))
        off = (
            off / (math.hypot(run, rise) or 1)
            if run or rise
            else np.hypot(x[inside] - x[first], y[inside] - y[first])
        )
        if len(off) and off.max() > _SEEN:
            middle = first + 1 + int(off.argmax())
            kept[middle] = True
            parts += [(first, middle), (middle, last)]
    return x[kept], y[kept]


def _band(x: Array, low: Array, high: Array) -> str:
    known = np.isfinite(low) & np.isfinite(high)
    round_trip = np.concatenate([low[known], high[known][::-1]])
    return f'<path class="b" d="{_line(np.concatenate([x[known], x[known][::-1]]), round_trip)}z"/>'


def _uprights(x: Array, low: Array, high: Array) -> str:
    known = np.isfinite(x) & np.isfinite(low) & np.isfinite(high)
    ends = zip(x[known].tolist(), low[known].tolist(), high[known].tolist(), strict=True)
    return "".join(_vertical(place, start, end) for place, start, end in ends)


def _levels(y: Array, start: Array, end: Array) -> str:
    known = np.isfinite(y) & np.isfinite(start) & np.isfinite(end)
    ends = zip(y[known].tolist(), start[known].tolist(), end[known].tolist(), strict=True)
    return "".join(_horizontal(place, first, last) for place, first, last in ends)


def _vertical(x: float, start: float, end: float) -> str:
    across, down = at(x, start)
    return f"M{across} {down}V{short(POINTS * end)}"


def _horizontal(y: float, start: float, end: float) -> str:
    across, down = at(start, y)
    return f"M{across} {down}H{short(POINTS * end)}"


def _noted(x: Array, y: Array, notes: Sequence[str]) -> Iterator[str]:
    """Texts below points, omitted if they would overlap the one to the right."""
    last = math.inf
    for i, j, note in sorted(zip(x.tolist(), y.tolist(), notes, strict=True), reverse=True):
        half = 0.35 * LETTER * len(note)
        if i + half < last:
            last = i - half
            yield text(i, j + 13 / POINTS, note, SMALL)
