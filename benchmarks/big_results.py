"""A large results file, to measure the commands that read a whole file.

    python benchmarks/big_results.py big.sqlite --records 1000000
    command time -v sdp-bench report --database big.sqlite

The file contains the committed results over and over, as other nets, inputs and noise levels, in one run of
all their experiments: as many nets, rules, metrics and components as a run of that size has.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from sdp_bench.bench.results.exchange import Export
from sdp_bench.bench.results.record import Record, RunDescription, Selection, StoredNet, Unit
from sdp_bench.bench.results.store import Store
from sdp_bench.reports.results import BASELINES

SHIFTS = [*itertools.product((0, 1000), (0, 1000), (1.0, 3.0, 7.0))]
"""Of a net's seed, of its input's row and factor of sigma: what a copy of the results is of; then others."""


def make(path: Path, records: int) -> None:
    """Write a results file of so many records."""
    committed = Export(BASELINES)
    with Store(path, writing=True) as store:
        newest = committed.run()
        runs = [committed.run(number) for number in committed.runs()]
        described = RunDescription(
            **{name: getattr(newest, name) for name in ("preset", "settings", "environment")},
            command="sdp-bench run --all",
            experiments=_selections(runs),
            left_out=newest.left_out,
        )
        tables, nets = committed.tables(), list(committed.stored_nets().values())
        pairs = tables["members"][["experiment", "unit"]].drop_duplicates()
        copies = [_Copy(number) for number in range(-(-records // len(tables["records"])))]
        number = store.begin_run(
            described,
            nets=[copy.net(net) for copy in copies for net in nets],
            units=[copy.unit(unit) for copy in copies for unit in _rows(tables["units"], Unit)],
            rules=committed.rules(),
            members=[
                (name, copy.key(unit)) for copy in copies for name, unit in pairs.itertuples(index=False)
            ],
        )
        left = records
        for copy in copies:
            table = tables["records"].iloc[:left].drop(columns="run")
            left -= len(table)
            store.write_group(number, [copy.record(record) for record in _rows(table, Record)], [], ())
        store.finish_run(number, 3600.0)


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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--records", type=int, default=10**6)
    options = parser.parse_args()
    make(options.path, options.records)
