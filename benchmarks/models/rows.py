"""Rows of results in a CSV file, which new ones are appended to: what is there is not measured again."""

from __future__ import annotations

import csv
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Generic, TypeVar

RowT = TypeVar("RowT")


class Rows(Generic[RowT]):
    """Rows of one kind.

    Parameters
    ----------
    path : Path
        The file, which need not be there yet.
    kind : type
        A dataclass of text and numbers, or None; the type of each field is named by its annotation.
    """

    def __init__(self, path: Path, kind: type[RowT]) -> None:
        self.path, self.kind = path, kind
        self.all: list[RowT] = []
        if path.exists():
            with path.open(encoding="utf-8", newline="") as file:
                self.all = [self._read(row) for row in csv.DictReader(file)]

    def add(self, row: RowT) -> None:
        """Append a row, to the file too."""
        is_new = not self.path.exists()
        with self.path.open("a", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, [f.name for f in fields(self.kind)], lineterminator="\n")
            if is_new:
                writer.writeheader()
            writer.writerow({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in asdict(row).items()})
        self.all.append(row)

    def of(self, package: str, model: str) -> list[RowT]:
        """Those of one model."""
        return [row for row in self.all if (row.package, row.model) == (package, model)]

    def _read(self, row: dict[str, str]) -> RowT:
        given: dict[str, Any] = {}
        for field in fields(self.kind):
            text, kind = row[field.name], str(field.type)
            number = int if kind == "int" else float
            given[field.name] = text if kind == "str" else number(text) if text else None
        return self.kind(**given)
