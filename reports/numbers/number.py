"""Numbers of a page that link to the measurements behind them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from sdp_bench.bench.metrics import Metric

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
