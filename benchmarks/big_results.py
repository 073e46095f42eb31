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
import json
from pathlib import Path

import numpy as np
import pandas as pd

from sdp_bench.bench.results.exchange import Export
from sdp_bench.bench.results.store import Store
from sdp_bench.reports.results import BASELINES

SHIFTS = [*itertools.product((0, 1000), (0, 1000), (1.0, 3.0, 7.0))]
"""Of a net's seed, of its input's row and factor of sigma: what a copy of the results is of; then others."""


def make(path: Path, records: int) -> None:
    """Write a results file of so many records."""
    committed = in_one_run(Export(BASELINES).tables())
    copies = [copied(committed, number) for number in range(-(-records // len(committed["records"])))]
    tables = {name: pd.concat([copy[name] for copy in copies], ignore_index=True) for name in committed}
    for name, key in {"runs": "id", "rules": "spec", "nets": "digest"}.items():
        tables[name] = tables[name].drop_duplicates(key)
    with Store(path, writing=True) as store:
        store.add(tables | {"records": tables["records"].head(records)})


def in_one_run(tables: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The tables as if the newest run had measured all experiments."""
    experiments: dict[str, dict[str, list[str]]] = {}
    for text in tables["runs"]["experiments"]:
        for name, selection in json.loads(text).items():
            own = experiments.setdefault(name, {"metrics": [], "rules": []})
            for part, specs in selection.items():
                own[part] += [spec for spec in specs if spec not in own[part]]
    described = {"command": "sdp-bench run --all", "experiments": json.dumps(experiments), "seconds": 3600.0}
    run = tables["runs"].nlargest(1, "id").assign(id=1, **described)
    members = tables["members"].assign(run=1).drop_duplicates()
    of_run = {"members": members, "records": tables["records"].assign(run=1)}
    return tables | of_run | {"runs": run, "failures": tables["failures"].head(0)}


def copied(tables: dict[str, pd.DataFrame], number: int) -> dict[str, pd.DataFrame]:
    """The tables as if of other nets, inputs or noise."""
    seeds, inputs, factor = SHIFTS[number % len(SHIFTS)]
    seeds += 10_000 * (number // len(SHIFTS))
    nets, units, records = (tables[name] for name in ("nets", "units", "records"))
    # A little smaller: a total variation of 1 could not be larger.
    share = 1 - 1e-3 * np.random.default_rng(number).random(len(records)) if number else 1.0
    return tables | {
        "nets": nets.assign(digest=renamed(nets["digest"], seeds), seed=nets["seed"] + seeds),
        "units": units.assign(
            key=renamed(units["key"], number),
            net=renamed(units["net"], seeds),
            input=units["input"] + inputs,
            sigma=units["sigma"] * factor,
            seed=units["seed"] + 100 * number,
        ),
        "members": tables["members"].assign(unit=renamed(tables["members"]["unit"], number)),
        "records": records.assign(unit=renamed(records["unit"], number), value=records["value"] * share),
    }


def renamed(column: pd.Series, number: int) -> pd.Series:
    """Other hashes in place of those of a column, except for copy 0."""
    texts = column.astype(object)
    names = {t: hashlib.sha256(f"{t} {number}".encode()).hexdigest()[:16] for t in texts.dropna().unique()}
    return texts.map(names) if number else texts


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--records", type=int, default=10**6)
    options = parser.parse_args()
    make(options.path, options.records)
