"""Numbers of a page that link to the measurements behind them, and the pages with these lists."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..bench.metrics import Metric
from ..bench.results.columns import keys
from .statistics.ranking import Labels
from .style import labels
from .style.names import RuleTraits

_LONGEST = 160  # bytes; file systems allow some 255 for a name, and more is added to this part

FOLDER = "numbers"
"""Folder of the lists in that of the report."""


@dataclass(frozen=True)
class Page:
    """A page of lists of measurements, linked from the report's section `section`.

    `small` is shown in small type next to the title. `about` describes the numbers; empty for plain means.
    """

    file: str
    title: str
    small: str
    section: str
    about: str = ""


@dataclass(frozen=True)
class NumberGroup:
    """Numbers of one metric under a common anchor and heading of a page of lists."""

    page: Page
    anchor: str
    heading: str
    metric: Metric


@dataclass(frozen=True, eq=False)
class Number:
    """One number of the report, and the frame's rows behind it.

    `mean` is NaN if the number is not a mean. `varies` names the columns, other than net and input, in which
    the rows differ. If `ordered`, the rows are in order of interest; otherwise those farthest from exact come
    first.
    """

    group: NumberGroup
    anchor: str
    title: str
    mean: float
    rows: Labels
    varies: tuple[str, ...] = ()
    ordered: bool = False

    @property
    def positions(self) -> NDArray[np.int32]:
        return np.frombuffer(self.rows, np.int32)

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
    start = content[:_LONGEST].decode(errors="ignore")
    return f"{start}-{hashlib.sha256(content).hexdigest()[:8]}"


MOST_ROWS = 20
"""Largest number of measurements listed for one number."""
MOST_BYTES = 4_000_000
"""Approximate total size of all lists of a report; fewer measurements are listed to stay below it."""
_ROW_BYTES, _NUMBER_BYTES = 110, 135

_KEY = ("unit", "rule", "metric_spec")
_VARIES: dict[str, Callable[[Metric, Any], str]] = {
    "depth": lambda _, value: labels.plural(int(value), "layer"),
    "rule": lambda _, label: label,
    "sigma": lambda _, value: f"σ = {value:g}",
    "component": lambda metric, value: f"{metric.component or 'component'} {value}" if value else "",
    "samples": lambda _, value: f"{int(value):,} samples",
}
"""Formatters of the columns in which the measurements of a list may differ."""
_SHOWN = ("seed", "input", "value", "floor", "floor95", "stderr", *_KEY)


def sheets(
    numbers: Iterable[Number],
    frame: pd.DataFrame,
    drilled: Mapping[str, str],
    traits: RuleTraits,
    most_bytes: int = MOST_BYTES,
) -> Iterator[dict[str, Any]]:
    """Yield pages with the measurements behind numbers, in the order in which the numbers name their pages.

    A page has its groups in `parts`, each with its lists: `shown` of `count` measurements as HTML `rows`.
    `varying` are groups of measurements that differ in more than net and input. Numbers refer to rows of the
    `frame` by position. `drilled` maps keys of measurements to addresses of drill-down pages. `most_bytes` is
    an approximate bound on the size of all pages; at least one measurement is listed for each number.
    """
    numbers = list(numbers)
    counts = [len(number.positions) for number in numbers]
    most = _rows_per_number(counts, frame, most_bytes)
    positions = [rows[:most] for rows in _in_order(numbers, frame)]
    columns = _columns_of_lists(positions, frame, traits)
    varying = frozenset(number.group for number in numbers if number.varies)
    pages: dict[Page, dict[NumberGroup, list[dict[str, Any]]]] = {}
    for index, number in enumerate(numbers):
        group = number.group
        rows = {name: columns_of_lists[index] for name, columns_of_lists in columns.items()}
        lines = _html(group.metric, rows, number.varies if group in varying else None, drilled)
        listing = {
            "anchor": number.anchor,
            "title": number.title,
            "mean": number.mean,
            "count": counts[index],
            "shown": len(positions[index]),
            "rows": "\n".join(lines),
        }
        pages.setdefault(group.page, {}).setdefault(group, []).append(listing)
    for page, groups in pages.items():
        is_cut = False
        for listings in groups.values():
            is_cut = is_cut or any(listing["shown"] < listing["count"] for listing in listings)
        yield {
            "page": page,
            "parts": list(groups.items()),
            "varying": varying,
            "drilled": bool(drilled),
            "cut": is_cut,
        }


def _columns_of_lists(
    positions: Sequence[NDArray[np.int32]], frame: pd.DataFrame, traits: RuleTraits
) -> dict[str, list[NDArray[Any]]]:
    """Return the shown columns of the frame, by name, as one array for each list of positions.

    Rules are replaced by their labels. The column `key` is empty for references, which cannot be replayed.
    """
    shown = frame[list(dict.fromkeys((*_SHOWN, *_VARIES)))]
    if not positions:
        return {}
    # Only the listed rows are decoded: as text all would take gigabytes.
    listed = shown.iloc[np.concatenate(positions)]
    is_reference = listed["rule"].map(traits.is_reference).astype(bool)
    listed = listed.assign(key=keys(listed).mask(is_reference, ""))
    listed = listed.assign(rule=listed["rule"].map(traits.label).astype(object))
    ends = np.cumsum([len(rows) for rows in positions])[:-1]
    return {str(name): np.split(listed[name].to_numpy(), ends) for name in listed}


def _in_order(numbers: Iterable[Number], frame: pd.DataFrame) -> Iterator[NDArray[np.int32]]:
    """Yield the rows of each number in the order of its list: by default, the largest errors first."""
    value, floor = frame["value"].to_numpy(), frame["floor"].to_numpy()
    for number in numbers:
        rows, metric = number.positions, number.group.metric
        if number.ordered:
            yield rows
            continue
        values = value[rows]
        errors = metric.score(values, floor[rows]) if metric.better else np.abs(values)
        yield rows[np.argsort(-errors, kind="stable")]


def _rows_per_number(counts: Sequence[int], frame: pd.DataFrame, most_bytes: int) -> int:
    """Return the largest number of rows, 1 to `MOST_ROWS`, with which all lists fit into `most_bytes`."""
    row_bytes = float(_ROW_BYTES)
    if len(frame):
        separators = len(_KEY) - 1
        row_bytes += separators + sum(frame[name].map(len).astype(int).mean() for name in _KEY)
    for most in range(MOST_ROWS, 1, -1):
        rows = np.minimum(np.array(counts), most).sum()
        if _NUMBER_BYTES * len(counts) + row_bytes * rows <= most_bytes:
            return most
    return 1


def _html(
    metric: Metric, rows: Mapping[str, NDArray[Any]], varies: Sequence[str] | None, drilled: Mapping[str, str]
) -> Iterator[str]:
    """Yield the rows of a list; `varies` is None if the page has no column for distinctions."""
    indistinguishable = metric.indistinguishable(rows["value"], rows["floor"], rows["floor95"])
    # Lists of Python's numbers: access to single entries of arrays is slow.
    seeds, inputs, keys_of_rows = rows["seed"].tolist(), rows["input"].tolist(), rows["key"].tolist()
    values, floors = metric.shown(rows["value"]).tolist(), metric.shown(rows["floor"]).tolist()
    is_indistinguishable = (indistinguishable & metric.has_floor).tolist()
    errors = metric.known_error(rows["stderr"]).tolist()
    distinctions = {name: rows[name].tolist() for name in varies or ()}
    for row, key in enumerate(keys_of_rows):
        cells = ["–" if math.isnan(seeds[row]) else f"{seeds[row]:.0f}", f"{inputs[row]:.0f}"]
        if varies is not None:
            words = [_VARIES[name](metric, column[row]) for name, column in distinctions.items()]
            cells.append(escape(", ".join(filter(None, words))))
        value = labels.number(values[row], metric.decimals)
        cells.append(f"{value} ≈" if is_indistinguishable[row] else value)
        cells.append(labels.number(floors[row], metric.decimals) if metric.has_floor else "–")
        cells.append(labels.number(errors[row]))
        if drilled:
            cells.append(f'<a href="{escape(drilled[key])}">drill-down</a>' if key in drilled else "")
        cells.append(escape(key) or "–")
        yield "<tr><td>" + "<td>".join(f"{cell}</td>" for cell in cells) + "</tr>"
