"""The history that asv keeps, as a table: each method's time as a multiple of the regular pass, by commit.

python benchmarks/history.py [results] [benchmark]
"""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from asv.results import Results, iter_results

from sdp_bench.bench.runtime.timing import REGULAR

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / ".asv" / "results"
BENCHMARK = "propagation.Forward.time_pass"


def version_at(commit: str) -> str:
    """Version of the project at a commit."""
    shown = subprocess.run(
        ["git", "show", f"{commit}:pyproject.toml"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return str(tomllib.loads(shown.stdout)["project"]["version"])


def times(results: Results, benchmark: str) -> dict[tuple[str, ...], float]:
    """Seconds by parameters, without those that were skipped or failed."""
    if benchmark not in results.get_all_result_keys():
        return {}
    params = results.get_result_params(benchmark)
    values = results.get_result_value(benchmark, params)
    named = (tuple(each.strip("'") for each in key) for key in itertools.product(*params))
    return {key: value for key, value in zip(named, values, strict=True) if value and math.isfinite(value)}


def rows(folder: Path, benchmark: str) -> Iterator[list[str]]:
    """Lines of the table, the oldest commit first; above them its head."""
    every = sorted(iter_results(str(folder)), key=lambda each: int(each.date))
    timed = {results.commit_hash: times(results, benchmark) for results in every}
    columns = dict.fromkeys(key[:2] for own in timed.values() for key in own if key[1] != REGULAR)
    yield ["version", "commit", *(f"{net}, `{method}`" for net, method in columns)]
    for commit, own in timed.items():
        by_work = {key[:2]: seconds for key, seconds in own.items()}
        ratios = [
            by_work[net, method] / by_work[net, REGULAR]
            if {(net, method), (net, REGULAR)} <= by_work.keys()
            else math.nan
            for net, method in columns
        ]
        cells = ("–" if math.isnan(ratio) else f"{ratio:.2f}" for ratio in ratios)
        yield [version_at(commit), commit[:7], *cells]


def main(folder: str = str(RESULTS), benchmark: str = BENCHMARK) -> None:
    """Print the table as Markdown."""
    head, *lines = rows(Path(folder), benchmark)
    for line in (head, ["---"] * len(head), *lines):
        print("|", " | ".join(line), "|")


if __name__ == "__main__":
    main(*sys.argv[1:])
