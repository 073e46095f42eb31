"""Records measured again, kept beside a results file until there is a verdict about all of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sdp_bench.bench.environment import LIBRARIES
from sdp_bench.bench.errors import RunFailedError
from sdp_bench.bench.results.record import Cell, Record

_MACHINE = ("cpu", "device", *LIBRARIES)


@dataclass
class MeasuredAgain:
    """What was measured again.

    Attributes
    ----------
    records : list of Record
    cells : set of (unit, rule, metric)
        Measurements that went through, with records or without.
    failures : list of str
        What did not, one line each.
    """

    records: list[Record] = field(default_factory=list)
    cells: set[Cell] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)


class Unfinished:
    """What was measured by an earlier verification that was interrupted.

    A line of JSON for each group, so that one which was cut short spoils no other. What was measured on
    another machine, or is of other code than today's, is as if it were not there.

    Parameters
    ----------
    results : Path
        The results file; this one is beside it.
    environment : mapping
        The machine, as :func:`sdp_bench.bench.environment.describe` gives it.
    """

    def __init__(self, results: Path, environment: Mapping[str, Any]) -> None:
        self.path = results.with_name(f"{results.name}.unfinished")
        self._machine = [environment.get(name) for name in _MACHINE]

    def read(self, marks: Mapping[Cell, str]) -> MeasuredAgain:
        """What is there already of some measurements.

        Parameters
        ----------
        marks : dict of (unit, rule, metric) to str
            Today's fingerprints.

        Returns
        -------
        MeasuredAgain
        """
        found: dict[Cell, list[Record]] = {}
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        for line in lines:
            try:
                content = json.loads(line)
            except ValueError:
                continue
            if content["machine"] != self._machine:
                continue
            fresh = {(u, r, m) for u, r, m, mark in content["marks"] if marks.get((u, r, m)) == mark}
            records = [Record(**record) for record in content["records"]]
            for cell in fresh:
                found[cell] = [one for one in records if (one.unit, one.rule, one.metric) == cell]
        return MeasuredAgain([record for records in found.values() for record in records], set(found))

    def add(self, marks: Mapping[Cell, str], records: Iterable[Record]) -> None:
        """Keep what a group gave, with today's fingerprints of what was measured.

        Raises
        ------
        RunFailedError
            If it cannot be written.
        """
        content = {
            "machine": self._machine,
            "marks": sorted([*cell, mark] for cell, mark in marks.items()),
            "records": [asdict(record) for record in records],
        }
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"\n{json.dumps(content)}")
        except OSError as error:
            raise RunFailedError(f"cannot write {self.path}: {error.strerror or error}") from error

    def remove(self) -> None:
        """Forget all of it: there is a verdict."""
        self.path.unlink(missing_ok=True)
