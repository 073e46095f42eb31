"""Write a large results folder, to measure the commands that read all results.

    python benchmarks/big_results.py big-results --records 1000000
    command time -v sdp-bench report --database big-results

The folder repeats the committed results as those of other nets, inputs and noise levels, in one run of all
their experiments. It has as many nets, rules, metrics and components as a run of that size.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from sdp_bench.bench.results.columns import CELL, PLAN
from sdp_bench.bench.results.folder import read, read_plan, write_measurements, write_run
from sdp_bench.reports.results import COMMITTED

SHIFTS = [*itertools.product((0, 1000), (0, 1000), (1.0, 3.0, 7.0))]
"""Shifts of the net's seed and of the input's row, and factors of sigma, for the first copies."""


def make(folder: Path, count: int) -> None:
    """Write a results folder with `count` measurements."""
    stored = read(COMMITTED)
    newest = stored.run()
    names = ["experiment", "group", *CELL]
    requested = pd.concat([read_plan(run, names).astype(object) for run in stored.runs.values()])
    requested = requested.drop_duplicates(["experiment", *CELL])
    measured = stored.measurements.assign(run=newest.id)
    copies = []
    plans = []
    remaining = count
    for number in itertools.count():
        rows = copied(measured.head(remaining), number)
        copies.append(rows)
        plans.append(planned(rows, requested.assign(unit=renamed(requested["unit"], number))))
        remaining -= len(rows)
        if remaining <= 0:
            break
    plan = pd.concat(plans, ignore_index=True)
    run = replace(
        newest,
        folder=folder,
        command="sdp-bench run --all",
        experiments=tuple(plan["experiment"].unique()),
        seconds=3600.0,
        left_out=(),
    )
    write_run(run, plan)
    write_measurements(folder, newest.id, pd.concat(copies, ignore_index=True))


def copied(measured: pd.DataFrame, number: int) -> pd.DataFrame:
    """Return measurements as those of other nets, inputs and noise levels; copy 0 is unchanged."""
    texts = measured.select_dtypes("category")
    rows = measured.astype(dict.fromkeys(texts, object))
    if number == 0:
        return rows
    seeds, inputs, factor = SHIFTS[number % len(SHIFTS)]
    seeds += 10_000 * (number // len(SHIFTS))
    # A little smaller, because a total variation of 1 could not be larger.
    share = 1 - 1e-3 * np.random.default_rng(number).random(len(rows))
    return rows.assign(
        unit=renamed(rows["unit"], number),
        net=renamed(rows["net"], seeds),
        seed=rows["seed"] + np.where(rows["net"].isna(), 100 * number, seeds),
        input=rows["input"] + inputs,
        sigma=rows["sigma"] * factor,
        value=rows["value"] * share,
    )


def planned(measured: pd.DataFrame, requested: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a plan for measurements, in all experiments that requested them."""
    cells = measured.drop_duplicates(CELL)
    return cells.merge(requested, on=CELL)[[*PLAN]]


def renamed(column: pd.Series, number: int) -> pd.Series:
    """Replace the hashes in a column by other hashes; the number 0 leaves them unchanged."""
    hashes = column.astype(object)
    if number == 0:
        return hashes
    names = {
        old: hashlib.sha256(f"{old} {number}".encode()).hexdigest()[:16] for old in hashes.dropna().unique()
    }
    return hashes.map(names)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--records", type=int, default=10**6)
    options = parser.parse_args()
    make(options.folder, options.records)
