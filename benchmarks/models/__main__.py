"""Measures what is missing, writes the tables; see :mod:`benchmarks.models`."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.models import table
from benchmarks.models.agreement import SMALL_MODELS, Agreement, compare
from benchmarks.models.measuring import DEAR, DEAREST, RULES, TRACE, Row, measure
from benchmarks.models.rows import Rows
from benchmarks.models.zoo import FOLDER, Model, choose, models, opened
from sdp_bench.bench.errors import one_line
from sdp_bench.bench.executors.local import _SERVER, Limits, apart

DOCS = Path(__file__).parents[2] / "docs"
PASSES = ((TRACE, *RULES[:-1]), RULES[-1:], (DEAR,))
"""Parts that a process measures; last what takes longest: quadratures, and thousands of runs of a net."""


def run(folder: Path, rows: Rows[Row], limits: Limits) -> None:
    """Measure what is missing of all models, those with fewest weights first."""
    found = models()
    left = [(m, parts) for parts in PASSES for m in found if _missing(rows, m, parts)]
    clock = _Clock([_expected(rows, *each) for each in left])
    for model, parts in left:
        print(f"{clock}: {model.name}, {parts[-1]}", flush=True)
        before = time.monotonic()
        while wanted := _missing(rows, model, parts):
            why = _apart(measure, folder, model, wanted, limits=limits, told=lambda row: rows.add(Row(**row)))
            if still := _missing(rows, model, parts):
                rows.add(Row(model.package, model.name, model.weights, "", still[0], None, note=why))
        clock.took(time.monotonic() - before)


def agree(folder: Path, rows: Rows[Agreement], limits: Limits) -> None:
    """Compare the rules with samples of the small models that are missing."""
    left = [each for each in SMALL_MODELS if not rows.of(*each)]
    clock = _Clock([1.0] * len(left))
    for package, name in left:
        print(f"{clock}: {name}, compared with samples", flush=True)
        before = time.monotonic()
        told: list[dict[str, Any]] = []
        why = _apart(compare, folder, package, name, limits=limits, told=told.append)
        for row in told if not why else ():  # all of a model or none, so that none counts as done in part
            rows.add(Agreement(**row))
        if why:
            print(f"{name}: {why}", flush=True)
        clock.took(time.monotonic() - before)


def _apart(function: Callable[..., None], *args: Any, **options: Any) -> str:
    """Call in a process of its own; gives why it came to no end, or nothing."""
    try:
        apart(function, *args, **options)
    except Exception as error:  # noqa: BLE001  said in the table
        return one_line(error)
    return ""


def _missing(rows: Rows[Row], model: Model, parts: Sequence[str]) -> list[str]:
    known = {row.part for row in rows.of(model.package, model.name)}
    return [part for part in parts if part not in known]


def _expected(rows: Rows[Row], model: Model, parts: Sequence[str]) -> float:
    """Seconds of a part of the work, but for a factor."""
    if DEAR not in parts:
        return 3 + model.weights / (1e7 if TRACE in parts else 1e6)
    drawn = next((r.seconds for r in rows.of(model.package, model.name) if r.part == "monte_carlo"), None)
    seconds = 20.0 if drawn is None else 60 * drawn  # 100 runs of the net, of some 6000
    return 1 + (seconds if seconds <= DEAREST else 0)


class _Clock:
    """How much is left, by what was expected of the rest and what was taken by that which is done."""

    def __init__(self, expected: Sequence[float]) -> None:
        self.expected, self.done, self.seconds = expected, 0, 0.0

    def took(self, seconds: float) -> None:
        self.done += 1
        self.seconds += seconds

    def __str__(self) -> str:
        left = len(self.expected) - self.done
        if not self.done:
            return f"{left} to go"
        factor = self.seconds / sum(self.expected[: self.done])
        return f"{left} to go, about {factor * sum(self.expected[self.done :]) / 60:.0f} min"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=__doc__)
    parser.add_argument("action", choices=("run", "agree", "table", "choose"))
    parser.add_argument("folder", type=Path, nargs="?", help="where the packages are installed")
    parser.add_argument("--limit", type=float, default=240, help="seconds of a process (default 240)")
    parser.add_argument("--memory", type=float, default=8, help="GiB of a process (default 8)")
    options = parser.parse_args()
    rows, compared = Rows(DOCS / "models.csv", Row), Rows(DOCS / "models_agreement.csv", Agreement)
    if options.action != "table":
        if options.folder is None or not (options.folder / "torchvision").is_dir():
            parser.error(f"{options.action} needs the folder in which torchvision, timm and transformers are")
        os.environ[FOLDER] = str(options.folder.resolve())
        _SERVER.context.set_forkserver_preload(["benchmarks.models.preloaded"])
        opened(options.folder)
    if options.action == "choose":
        choose()
        return
    limits = Limits(options.limit, options.memory)
    if options.action == "run":
        run(options.folder, rows, limits)
    if options.action == "agree":
        agree(options.folder, compared, limits)
    table.write(rows.all, compared.all)


if __name__ == "__main__":
    main()
