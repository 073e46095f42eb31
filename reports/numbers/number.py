"""Numbers of a page that lead to the measurements that they rest on."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from sdp_bench.bench.metrics import Metric

_LONGEST = 160  # bytes: with what else a file is called by, file systems take some 250

FOLDER = "numbers"
"""Of the lists, in the report's."""


@dataclass(frozen=True)
class Page:
    """A page of lists.

    Attributes
    ----------
    file, title, small : str
        Its name, its title and what stands small beside that.
    section : str
        Anchor of the report's section that the numbers are in.
    about : str
        What the numbers are, in a sentence; empty for plain means.
    """

    file: str
    title: str
    small: str
    section: str
    about: str = ""


@dataclass(frozen=True)
class Group:
    """Numbers of one metric that stand together on a page of lists, under an anchor and a heading."""

    page: Page
    anchor: str
    heading: str
    metric: Metric


@dataclass(frozen=True, eq=False)
class Number:
    """One number of the report.

    Attributes
    ----------
    group : Group
    anchor, title : str
    mean : float
        As the report shows it, or NaN where it is no mean.
    rows : sequence of int
        Labels of the frame's rows that it rests on.
    varies : tuple of str
        Columns in which these rows differ, beside net and input.
    ordered : bool
        Whether they are in order of interest already; else those farthest from exact come first.
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
        """Where its list is, from the report's folder."""
        return f"{FOLDER}/{self.group.page.file}#{self.anchor}"


def slug(*parts: str) -> str:
    """Anchor or file name from texts; empty ones are left out. One too long for a name ends in a digest."""
    whole = re.sub(r"[^\w.-]+", "-", "-".join(filter(None, parts))).strip("-")
    content = whole.encode()
    if len(content) <= _LONGEST:
        return whole
    return f"{content[:_LONGEST].decode(errors='ignore')}-{hashlib.sha256(content).hexdigest()[:8]}"
