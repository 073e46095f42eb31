"""Numbers of a page that link to the measurements behind them, and the pages with these lists."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sdp_bench.bench.metrics import Metric
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.names import RuleTraits

_LONGEST = 160  # bytes; file systems allow some 255 for a name, and more is added to this part

FOLDER = "numbers"
"""Folder of the lists in that of the report."""


@dataclass(frozen=True)
class Page:
    """A page of lists of measurements, linked from the report's section `section`.

    `small` is shown in small type next to the title. `about` describes the numbers in a sentence; it is empty
    for plain means.
    """

    file: str
    title: str
    small: str
    section: str
    about: str = ""


@dataclass(frozen=True)
class Group:
    """Numbers of one metric under a common anchor and heading of a page of lists."""

    page: Page
    anchor: str
    heading: str
    metric: Metric


@dataclass(frozen=True, eq=False)
class Number:
    """One number of the report, and the frame's rows behind it.

    `mean` is the number as the report shows it, NaN if it is not a mean. `varies` names the columns, other
    than net and input, in which the rows differ. If `ordered`, the rows are already in order of interest;
    otherwise those farthest from exact come first.
    """

    group: Group
    anchor: str
    title: str
    mean: float
    rows: Sequence[int]
    varies: tuple[str, ...] = ()
    ordered: bool = False

    @property
    def address(self) -> str:
        """Address of the list of measurements, relative to the report's folder."""
        return f"{FOLDER}/{self.group.page.file}#{self.anchor}"


def slug(*parts: str) -> str:
    """Join the non-empty texts into an anchor or file name; one that is too long ends in a digest."""
    whole = re.sub(r"[^\w.-]+", "-", "-".join(filter(None, parts))).strip("-")
    content = whole.encode()
    if len(content) <= _LONGEST:
        return whole
    return f"{content[:_LONGEST].decode(errors='ignore')}-{hashlib.sha256(content).hexdigest()[:8]}"


MOST_ROWS = 20
"""Largest number of measurements listed for one number."""
MOST_BYTES = 4_000_000
"""Approximate total size of all lists of a report; fewer measurements are listed to stay below it."""
_ROW_BYTES, _NUMBER_BYTES = 110, 135

_NAMED = ("unit", "rule", "metric_spec")
_SHOWN = ("seed", "input", "value", "floor", "floor95", "stderr", *_NAMED)


@dataclass(frozen=True)
class Listing:
    """The measurements behind one number, `shown` of `count`; `rows` are HTML rows of a table."""

    anchor: str
    title: str
    mean: float
    count: int
    shown: int
    rows: str


@dataclass(frozen=True)
class Sheet:
    """One page of lists, by group.

    `varying` are the groups with lists whose measurements differ in more than net and input; `drilled` says
    whether any measurement has a drill-down page.
    """

    page: Page
    parts: tuple[tuple[Group, tuple[Listing, ...]], ...]
    varying: frozenset[Group]
    drilled: bool

    @property
    def cut(self) -> bool:
        return any(listing.shown < listing.count for _, listings in self.parts for listing in listings)


def sheets(
    numbers: Iterable[Number],
    frame: pd.DataFrame,
    drilled: Mapping[str, str],
    traits: RuleTraits,
    most_bytes: int = MOST_BYTES,
) -> Iterator[Sheet]:
    """Yield pages with the measurements behind numbers, in the order in which the numbers name their pages.

    `frame` holds all measurements; numbers refer to its rows by position. `drilled` maps keys of measurements
    to addresses of drill-down pages, relative to the pages' folder. `most_bytes` is an approximate bound on
    the size of all pages together; at least one measurement is listed for each number.
    """
    numbers = list(numbers)
    columns = _Columns(frame, traits)
    rows = _rows_per_number([len(number.rows) for number in numbers], _key_length(frame), most_bytes)
    varying = frozenset(number.group for number in numbers if number.varies)
    pages: dict[Page, dict[Group, list[Listing]]] = {}
    for number in numbers:
        several = number.group in varying
        listing = _listing(number, np.asarray(number.rows, dtype=np.intp), columns, rows, drilled, several)
        pages.setdefault(number.group.page, {}).setdefault(number.group, []).append(listing)
    for page, groups in pages.items():
        parts = tuple((group, tuple(own)) for group, own in groups.items())
        yield Sheet(page, parts, varying, bool(drilled))


class _Columns:
    """Columns of the measurements, decoded only for the requested rows: as text all would take gigabytes."""

    def __init__(self, frame: pd.DataFrame, traits: RuleTraits) -> None:
        own = {name: frame[name] for name in {*_SHOWN, *_VARIES} if name in frame}
        coded = {name: column.cat for name, column in own.items() if hasattr(column, "cat")}
        self._texts = {name: list(column.categories) for name, column in coded.items()}
        plain = own | {name: column.codes for name, column in coded.items()}
        self._columns: dict[str, NDArray[Any]] = {name: column.to_numpy() for name, column in plain.items()}
        self._traits = traits

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def numbers(self, name: str, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        values: NDArray[np.float64] = self._columns[name][rows]
        return values

    def at(self, name: str, rows: NDArray[np.intp]) -> list[Any]:
        """Values of some rows of a column; rules by their labels."""
        values = self._columns[name][rows].tolist()
        texts = [self._texts[name][code] for code in values] if name in self._texts else values
        return list(map(self._traits.label, texts)) if name == "rule" else texts

    def keys(self, rows: NDArray[np.intp]) -> list[str]:
        """Drill-down keys of some rows; empty for references, which are not rules."""
        if "unit" not in self:
            return [""] * len(rows)
        codes = (self._columns[name][rows].tolist() for name in _NAMED)
        unit, rule, spec = (self._texts[name] for name in _NAMED)
        return [
            "" if self._traits.is_reference(rule[b]) else f"{unit[a]}/{rule[b]}/{spec[c]}"
            for a, b, c in zip(*codes, strict=True)
        ]


def _key_length(frame: pd.DataFrame) -> float:
    if "unit" not in frame or frame.empty:
        return 0.0
    lengths = sum(int(frame[name].map(len).astype(int).sum()) for name in _NAMED)
    return lengths / len(frame) + len(_NAMED) - 1


def _rows_per_number(counts: Sequence[int], key_length: float, most_bytes: int) -> int:
    row, every = _ROW_BYTES + key_length, np.array(counts)
    for rows in range(MOST_ROWS, 1, -1):
        if _NUMBER_BYTES * len(every) + row * float(np.minimum(every, rows).sum()) <= most_bytes:
            return rows
    return 1


def _listing(
    number: Number,
    positions: NDArray[np.intp],
    columns: _Columns,
    rows: int,
    drilled: Mapping[str, str],
    several: bool,
) -> Listing:
    metric = number.group.metric
    if not number.ordered:
        value, floor = (columns.numbers(name, positions) for name in ("value", "floor"))
        positions = positions[np.argsort(-_error(metric, value, floor), kind="stable")]
    top = positions[:rows]
    value, floor, floor95 = (columns.numbers(name, top) for name in ("value", "floor", "floor95"))
    shown = metric.shown(value), metric.shown(floor), metric.indistinguishable(value, floor, floor95)
    rest = (columns.numbers("seed", top), columns.numbers("input", top))
    error = metric.known_error(columns.numbers("stderr", top))
    measured = zip(*(column.tolist() for column in (*shown, *rest, error)), columns.keys(top), strict=True)
    distinctions = _distinctions(metric, number.varies, columns, top) if several else [None] * len(top)
    return Listing(
        number.anchor,
        number.title,
        number.mean,
        len(positions),
        len(top),
        "\n".join(
            _html(metric, distinction, _Measurement(*numbers), drilled)
            for distinction, numbers in zip(distinctions, measured, strict=True)
        ),
    )


_VARIES: dict[str, Callable[[Metric, Any], str]] = {
    "depth": lambda _, value: labels.plural(int(value), "layer"),
    "rule": lambda _, label: label,
    "sigma": lambda _, value: f"σ = {value:g}",
    "component": lambda metric, value: f"{metric.component or 'component'} {value}" if value else "",
    "samples": lambda _, value: f"{int(value):,} samples",
}
"""Formatters of the columns in which the measurements of a list may differ."""


def _distinctions(
    metric: Metric, varies: Sequence[str], columns: _Columns, rows: NDArray[np.intp]
) -> list[str]:
    """HTML that distinguishes each measurement from the others in its list."""
    known = [name for name in varies if name in columns]
    values = zip(*(columns.at(name, rows) for name in known), strict=True)
    return [
        escape(
            ", ".join(
                filter(None, (_VARIES[name](metric, one) for name, one in zip(known, own, strict=True)))
            )
        )
        for own in values
    ]


def _error(metric: Metric, values: NDArray[np.float64], floor: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distance from exact, by which lists are sorted."""
    return metric.score(values, floor) if metric.better else np.abs(values)


class _Measurement(NamedTuple):
    """One row of a list: value and floor on the metric's own scale."""

    value: float
    floor: float
    indistinguishable: bool
    seed: float
    input: float
    stderr: float
    key: str


def _html(metric: Metric, distinction: str | None, one: _Measurement, drilled: Mapping[str, str]) -> str:
    level = " ≈" if metric.has_floor and one.indistinguishable else ""
    cells = [
        "–" if math.isnan(one.seed) else f"{one.seed:.0f}",
        f"{one.input:.0f}",
        *([] if distinction is None else [distinction]),
        labels.number(one.value, metric.decimals) + level,
        labels.number(one.floor, metric.decimals) if metric.has_floor else "–",
        labels.number(one.stderr),
        *([_link(drilled, one.key)] if drilled else []),
        escape(one.key) or "–",
    ]
    return "<tr><td>" + "<td>".join(f"{cell}</td>" for cell in cells) + "</tr>"


def _link(drilled: Mapping[str, str], key: str) -> str:
    return f'<a href="{escape(drilled[key])}">drill-down</a>' if key in drilled else ""
