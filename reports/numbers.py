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
class Group:
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

    group: Group
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
    short = f"{content[:_LONGEST].decode(errors='ignore')}-{hashlib.sha256(content).hexdigest()[:8]}"
    return whole if len(content) <= _LONGEST else short


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
    most = _rows_per_number([len(number.positions) for number in numbers], frame, most_bytes)
    value, floor = (frame[name].to_numpy() for name in ("value", "floor"))
    tops = []
    for number in numbers:
        rows, metric = number.positions, number.group.metric
        if not number.ordered:
            own = value[rows]
            error = metric.score(own, floor[rows]) if metric.better else np.abs(own)
            rows = rows[np.argsort(-error, kind="stable")]
        tops.append(rows[:most])
    # Only the listed rows are decoded: as text all would take gigabytes.
    known = list(dict.fromkeys((*_SHOWN, *_VARIES)))
    listed = frame[known].iloc[np.concatenate(tops)] if tops else frame[known]
    listed = listed.assign(key=keys(listed).mask(listed["rule"].map(traits.is_reference).astype(bool), ""))
    listed = listed.assign(rule=listed["rule"].map(traits.label).astype(object))
    varying = frozenset(number.group for number in numbers if number.varies)
    pages: dict[Page, dict[Group, list[dict[str, Any]]]] = {}
    ends = np.cumsum([len(top) for top in tops])[:-1]
    columns = {str(name): np.split(listed[name].to_numpy(), ends) for name in listed}
    for place, (number, top) in enumerate(zip(numbers, tops, strict=True)):
        group, part = number.group, {name: parts[place] for name, parts in columns.items()}
        html = "\n".join(_html(group.metric, part, number.varies if group in varying else None, drilled))
        listing = {"anchor": number.anchor, "title": number.title, "mean": number.mean}
        listing |= {"count": len(number.positions), "shown": len(top), "rows": html}
        pages.setdefault(group.page, {}).setdefault(group, []).append(listing)
    for page, groups in pages.items():
        cut = any(one["shown"] < one["count"] for listings in groups.values() for one in listings)
        parts = list(groups.items())
        yield {"page": page, "parts": parts, "varying": varying, "drilled": bool(drilled), "cut": cut}


def _rows_per_number(counts: Sequence[int], frame: pd.DataFrame, most_bytes: int) -> int:
    row, every = float(_ROW_BYTES), np.array(counts)
    if len(frame):
        row += len(_KEY) - 1 + sum(frame[name].map(len).astype(int).mean() for name in _KEY)
    sizes = {
        n: _NUMBER_BYTES * len(every) + row * np.minimum(every, n).sum() for n in range(MOST_ROWS, 1, -1)
    }
    return next((rows for rows, size in sizes.items() if size <= most_bytes), 1)


def _html(
    metric: Metric, own: Mapping[str, NDArray[Any]], varies: Sequence[str] | None, drilled: Mapping[str, str]
) -> Iterator[str]:
    value, floor = own["value"], own["floor"]
    level = metric.indistinguishable(value, floor, own["floor95"]) & metric.has_floor
    shown = (metric.shown(value), metric.shown(floor), level, metric.known_error(own["stderr"]))
    columns = (own["seed"], own["input"], own["key"], *shown)
    distinctions = [(name, own[name].tolist()) for name in varies or ()]
    for place, (seed, input_, key, value_, floor_, level_, error) in enumerate(
        zip(*(column.tolist() for column in columns), strict=True)
    ):
        words = (_VARIES[name](metric, values[place]) for name, values in distinctions)
        cells = [
            "–" if math.isnan(seed) else f"{seed:.0f}",
            f"{input_:.0f}",
            *([] if varies is None else [escape(", ".join(filter(None, words)))]),
            labels.number(value_, metric.decimals) + (" ≈" if level_ else ""),
            labels.number(floor_, metric.decimals) if metric.has_floor else "–",
            labels.number(error),
        ]
        if drilled:
            cells.append(f'<a href="{escape(drilled[key])}">drill-down</a>' if key in drilled else "")
        cells.append(escape(key) or "–")
        yield "<tr><td>" + "<td>".join(f"{cell}</td>" for cell in cells) + "</tr>"
