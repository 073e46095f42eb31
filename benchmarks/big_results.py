"""Time and peak memory of the commands that read a whole results file.

    python benchmarks/big_results.py make big.sqlite --records 1000000
    python benchmarks/big_results.py measure big.sqlite [report diff ...]

The file is the committed results over and over, as other nets, inputs and noise levels, in one run of all
their experiments: as many nets, rules, metrics and components as a run of that size has. Seconds are of the
clock and of the processor, which other work on the machine does not lengthen; what no command can do without,
the imports of a report, stands before them.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from sdp_bench.bench.results.exchange import opened
from sdp_bench.bench.results.record import Record, RunDescription, Selection, StoredNet, Unit
from sdp_bench.bench.results.store import Store
from sdp_bench.reports.results import BASELINES

SHIFTS = [*itertools.product((0, 1000), (0, 1000), (1.0, 3.0, 7.0))]
"""Of a net's seed, of its input's row and factor of sigma: what a copy of the results is of; then others."""

_MEASURE = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=sys.stderr)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(done.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss)
"""
_RESUME = """
import sys
from pathlib import Path
from sdp_bench.bench.results.store import Store
with Store(Path(sys.argv[1])) as store:
    units = {row[0] for row in store._connection.execute("SELECT key FROM units")}
    print(len(store.measured(units)), "known", file=sys.stderr)
"""
_IMPORTS = "import sdp_bench.reports.page, sdp_bench.reports.results, sdp_bench.reports.drilldown.page, torch"


def make(path: Path, records: int) -> int:
    """Write a results file of so many records; returns how many of them came to be."""
    with opened(BASELINES) as committed, Store(path, writing=True) as store:
        newest = committed.run()
        runs = [committed.run(number) for number in committed.runs()]
        described = RunDescription(
            **{name: getattr(newest, name) for name in ("preset", "settings", "environment")},
            command="sdp-bench run --all",
            experiments=_selections(runs),
            left_out=newest.left_out,
        )
        tables, nets = committed.tables(), list(committed.stored_nets().values())
        rules, made, number = committed.rules(), 0, 0
        batches: list[list[Record]] = []
        its_nets, its_units, members = [], [], []
        for copy in itertools.count():
            if made >= records:
                break
            changed = _Copy(copy)
            its_nets += [changed.net(net) for net in nets]
            its_units += [changed.unit(unit) for unit in _rows(tables["units"], Unit)]
            pairs = tables["members"][["experiment", "unit"]].drop_duplicates()
            members += [(name, changed.key(unit)) for name, unit in pairs.itertuples(index=False)]
            batches.append([])
            table = tables["records"].iloc[: records - made]
            made += len(table)
        number = store.begin_run(described, nets=its_nets, units=its_units, rules=rules, members=members)
        left = records
        for copy in range(len(batches)):
            changed, table = _Copy(copy), tables["records"].iloc[:left]
            left -= len(table)
            own = [changed.record(record) for record in _rows(table.drop(columns="run"), Record)]
            store.write_group(number, own, [], ())
        store.finish_run(number, 3600.0)
    return made


class _Copy:
    """The committed results as if of other nets, inputs or noise."""

    def __init__(self, number: int) -> None:
        self.number = number
        nets, inputs, self.factor = SHIFTS[number % len(SHIFTS)]
        self.seeds, self.inputs = nets + 10_000 * (number // len(SHIFTS)), inputs
        self.random = np.random.default_rng(number)

    def key(self, text: str) -> str:
        return hashlib.sha256(f"{text} {self.number}".encode()).hexdigest()[:16] if self.number else text

    def digest(self, text: str | None) -> str | None:
        if text is None or not self.seeds:
            return text
        return hashlib.sha256(f"{text} {self.seeds}".encode()).hexdigest()[:16]

    def net(self, net: StoredNet) -> StoredNet:
        return replace(net, digest=self.digest(net.digest), seed=net.seed + self.seeds)

    def unit(self, unit: Unit) -> Unit:
        if unit.net is None:
            return replace(unit, key=self.key(unit.key), seed=(unit.seed or 0) + 100 * self.number)
        moved = {"input": (unit.input or 0) + self.inputs, "sigma": unit.sigma * self.factor}
        return replace(unit, key=self.key(unit.key), net=self.digest(unit.net), **moved)

    def record(self, record: Record) -> Record:
        # A little smaller: a total variation of 1 could not be larger.
        value = record.value * (1 - 1e-3 * self.random.random()) if self.number else record.value
        return replace(record, unit=self.key(record.unit), value=float(value))


def _selections(runs) -> dict[str, Selection]:
    metrics: dict[str, dict[str, None]] = {}
    rules: dict[str, dict[str, None]] = {}
    for run in runs:
        for name, part in run.experiments.items():
            metrics.setdefault(name, {}).update(dict.fromkeys(part.metrics))
            rules.setdefault(name, {}).update(dict.fromkeys(part.rules))
    return {name: Selection(tuple(metrics[name]), tuple(rules[name])) for name in metrics}


def _rows(table: pd.DataFrame, kind: type) -> Iterator:
    names = list(table.columns)
    columns = [table[name].astype(object).where(table[name].notna(), None).tolist() for name in names]
    return (kind(**dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True))


def measure(path: Path, wanted: list[str]) -> None:
    """Print seconds and peak memory of each command on a file, and what a report weighs."""
    door = [sys.executable, "-m", "sdp_bench"]
    with tempfile.TemporaryDirectory(dir=path.parent) as place:
        folder = Path(place)
        other = folder / "other.sqlite"
        shutil.copy(path, other)
        first = _first_key(path)
        commands = {
            "imports": [sys.executable, "-c", _IMPORTS],
            "committed page, once": [*door, "report", "--output", str(folder / "empty")],
            "report": [*door, "report", "--database", str(path), "--output", str(folder / "html")],
            "diff": [*door, "diff", str(path), str(other)],
            "merge": [*door, "merge", str(path), str(other), "--output", str(folder / "merged.sqlite")],
            "export": [*door, "export", "--database", str(path), "--output", str(folder / "csv")],
            "import": [*door, "import", str(folder / "csv"), "--database", str(folder / "imported.sqlite")],
            "resume": [sys.executable, "-c", _RESUME, str(path)],
            "list": [*door, "list"],
            "replay": [*door, "replay", first, "--database", str(path)],
        }
        for name in wanted or commands:
            start = time.perf_counter()
            # Another small process between: the peak of one that is begun is at least its parent's size.
            begun = subprocess.run(
                [sys.executable, "-c", _MEASURE, *commands[name]], capture_output=True, text=True, cwd=folder
            )
            took = time.perf_counter() - start
            *_, code, seconds, peak = begun.stdout.split()
            last = ([*begun.stderr.strip().splitlines()] or [""])[-1]
            print(
                f"{name:20} {took:6.1f} s {float(seconds):6.1f} s of CPU {int(peak) / 1024:6.0f} MiB  "
                f"exit {code}  {last[:80]}",
                flush=True,
            )
        for page in sorted(folder.glob("html/*.*")):
            print(f"{page.name}: {page.stat().st_size / 1e6:.1f} MB")
        lists = [each.stat().st_size for each in folder.glob("html/numbers/*.html")]
        print(f"lists behind the numbers: {len(lists)} pages, {sum(lists) / 1e6:.1f} MB")


def _first_key(path: Path) -> str:
    with Store(path) as store:
        row = store._connection.execute("SELECT unit, rule, metric FROM records LIMIT 1").fetchone()
    return "/".join(row)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("action", choices=("make", "measure"))
    parser.add_argument("path", type=Path)
    parser.add_argument("commands", nargs="*")
    parser.add_argument("--records", type=int, default=10**6)
    options = parser.parse_args()
    if options.action == "make":
        print(f"{make(options.path, options.records)} records in {options.path}")
    else:
        measure(options.path.resolve(), options.commands)
