"""The rendered page of the committed results, which come with the package."""

from __future__ import annotations

import functools
import io
import json
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd

from sdp_bench.reports.folder import inside, write
from sdp_bench.reports.numbers.number import FOLDER as NUMBERS
from sdp_bench.reports.parts import KIND, PAGE, Beside, Cover, Data, Part, pages, shared, single, write_beside
from sdp_bench.reports.site import write_pages

FOLDER = "committed"
"""Folder of their page inside the report's."""
TITLE = "Committed results"
DATA = "results.csv.gz"
_PAGE = "page.json"


@dataclass(frozen=True)
class Committed:
    """The parts of the page, the lists behind its numbers by file name, and all measurements.

    `finished` is the time of the newest measurement (ISO 8601), `beside` are files next to the page, and
    `table` holds the measurements as compressed CSV for readers. `load` returns them as a frame.
    """

    finished: str
    parts: Sequence[Part]
    beside: Sequence[Beside]
    lists: Mapping[str, str]
    table: bytes
    load: Callable[[], pd.DataFrame]

    @functools.cached_property
    def frame(self) -> pd.DataFrame:
        """All measurements, validated for a report."""
        return self.load()

    def packed(self) -> bytes:
        """Return all but the frame as a zip file, which has a checksum of each part."""
        content = {
            "finished": self.finished,
            "parts": [asdict(part) for part in self.parts],
            "beside": [asdict(file) for file in self.beside],
            "lists": dict(self.lists),
        }
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as file:
            # a fixed time, so that the same page gives the same bytes
            file.writestr(zipfile.ZipInfo(_PAGE), json.dumps(content), zipfile.ZIP_DEFLATED)
            file.writestr(zipfile.ZipInfo(DATA), self.table)
        return archive.getvalue()

    @classmethod
    def unpacked(cls, path: Path, load: Callable[[], pd.DataFrame]) -> Committed | None:
        """Read what :meth:`packed` returned; None if the file does not exist or is damaged."""
        try:
            with zipfile.ZipFile(path) as file:
                content, table = json.loads(file.read(_PAGE)), file.read(DATA)
            parts = [Part.of_dict(part) for part in content["parts"]]
            beside = [Beside(**file) for file in content["beside"]]
            return cls(content["finished"], parts, beside, content["lists"], table, load)
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            EOFError,
            RuntimeError,
            zipfile.BadZipFile,
            zlib.error,
        ):
            return None

    def show(self, folder: Path, more: Sequence[Part] = (), links: Sequence[tuple[str, str]] = ()) -> Path:
        """Write the page into the folder of a report, with lists and measurements, and return its path.

        `more` are parts that the run on this machine adds; `links` are addresses and titles of other pages.
        Raises RunFailedError if the folder is not writable.
        """
        write_pages(inside(folder, NUMBERS), self.lists, NUMBERS)
        write(folder / DATA, self.table)
        write_beside(folder, [*shared(), *self.beside])
        cover = Cover(TITLE, {"finished": self.finished}, Data(DATA), tuple(links))
        write_pages(folder, pages([*self.parts, *more], cover), KIND)
        return folder / PAGE

    def show_single(self, folder: Path) -> Path:
        """Write the results as a single page without other files, and return its path."""
        return write(folder / PAGE, single(self.parts, Cover(TITLE, {"finished": self.finished}, Data(""))))
