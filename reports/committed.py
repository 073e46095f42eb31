"""The page of the committed results, which come with the package, as it was once rendered."""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from sdp_bench.bench.results.queries import filled
from sdp_bench.reports.folder import inside, write
from sdp_bench.reports.numbers.number import FOLDER as NUMBERS
from sdp_bench.reports.parts import (
    KIND,
    PAGE,
    Beside,
    Cover,
    Data,
    Part,
    pages,
    shared,
    single,
    write_beside,
)
from sdp_bench.reports.site import write_pages
from sdp_bench.reports.tables.arrays import packed, unpacked
from sdp_bench.reports.tables.data import lines
from sdp_bench.reports.tables.frame import COLUMNS, TEXT, VARIANTS, checked

FOLDER = "committed"
"""Folder of their page inside the report's."""
TITLE = "Committed results"
DATA = "results.csv.gz"
_PARTS = "parts.json"
_FRAME = "frame.npz"


@dataclass(frozen=True)
class Committed:
    """The committed results as :meth:`keep` wrote them to `folder`.

    The folder holds the parts of the page, the lists behind its numbers, and all measurements, both as CSV
    for readers and as arrays for reports.
    """

    folder: Path

    @classmethod
    def keep(
        cls,
        folder: Path,
        frame: pd.DataFrame,
        parts: Sequence[Part],
        finished: str,
        beside: Sequence[Beside] = (),
    ) -> Committed:
        """Write the parts of the page and all measurements; the caller adds the lists.

        `finished` is the time of the newest measurement, as ISO 8601; `beside` are files next to the page.
        """
        # without a timestamp, so that the same results give the same bytes
        with gzip.GzipFile(folder / DATA, "wb", compresslevel=6, mtime=0) as file:
            file.writelines(lines(frame))
        names = [name for name in (*COLUMNS, *VARIANTS, "unit") if name in frame]
        texts = {name: filled(frame[name]) for name in (*TEXT, *VARIANTS, "unit") if name in names}
        np.savez_compressed(folder / _FRAME, **packed(frame[names].assign(**texts)))
        content = {
            "finished": finished,
            "parts": [asdict(part) for part in parts],
            "beside": [asdict(one) for one in beside],
        }
        write(folder / _PARTS, json.dumps(content))
        return cls(folder)

    @functools.cached_property
    def frame(self) -> pd.DataFrame:
        """All measurements with the columns that the report needs, as returned by `checked`."""
        with np.load(self.folder / _FRAME) as kept:
            return checked(unpacked(dict(kept)))

    @functools.cached_property
    def _kept(self) -> tuple[str, list[Part], list[Beside]]:
        content = json.loads((self.folder / _PARTS).read_text(encoding="utf-8"))
        parts = [Part.of_dict(one) for one in content["parts"]]
        return content["finished"], parts, [Beside(**one) for one in content["beside"]]

    def show(self, folder: Path, more: Sequence[Part] = (), links: Sequence[tuple[str, str]] = ()) -> Path:
        """Write the page into the folder of a report, with lists and measurements, and return its path.

        `more` are parts that the run on this machine adds; `links` are addresses and titles of other pages.
        Raises RunFailedError if the folder is not writable.
        """
        lists = sorted((self.folder / NUMBERS).glob("*.html"))
        texts = {each.name: each.read_text(encoding="utf-8") for each in lists}
        write_pages(inside(folder, NUMBERS), texts, NUMBERS)
        write(folder / DATA, (self.folder / DATA).read_bytes())
        finished, parts, beside = self._kept
        write_beside(folder, [*shared(), *beside])
        cover = Cover(TITLE, {"finished": finished}, Data(DATA), tuple(links))
        write_pages(folder, pages([*parts, *more], cover), KIND)
        return folder / PAGE

    def show_single(self, folder: Path) -> Path:
        """Write the results as a single page without other files, and return its path."""
        finished, parts, _ = self._kept
        return write(folder / PAGE, single(parts, Cover(TITLE, {"finished": finished}, Data(""))))
