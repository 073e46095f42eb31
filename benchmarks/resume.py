"""Seconds from the start of a resumed run to its first group, after a kill.

    python benchmarks/resume.py --groups 2000

A run of many small groups is planned, and the folder of results is left as a kill would leave it: most groups
measured, the last ones in single files. The run is then resumed with an executor that ends it at its first
group.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from sdp_bench.bench.experiments import chosen, preset
from sdp_bench.bench.experiments.plan import plan_of
from sdp_bench.bench.results.columns import CELL, measurements, outcome
from sdp_bench.bench.results.folder import Writer, new_run
from sdp_bench.bench.runs.driver import Request, nets_of, run
from sdp_bench.progress import Screen

EXPERIMENT = "iris-tv"
_NUMBERS: dict[str, Any] = {
    "value": 0.5,
    "floor": 0.1,
    "floor95": 0.2,
    "stderr": 0.01,
    "unit_of_measure": "1",
}


class FirstGroupError(Exception):
    """The first group was submitted."""


class Stopping(Executor):
    """Ends the run at the first group."""

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        raise FirstGroupError


def request(groups: int) -> Request:
    """Return a run of at least so many groups: nets at many noise levels, with all metrics."""
    experiments = chosen([EXPERIMENT])
    given = {"depths": (1,), "nets": 10, "inputs": 1, "samples": 1024, "pilot_samples": 1024}
    given |= {"rules": ("sdp", "dvia", "moment_matching"), "net_source": "committed"}
    plain = preset("smoke", given)
    nets = len(nets_of(experiments, plain, 1, Screen()))
    sigmas = tuple(0.001 * (number + 1) for number in range(-(-groups // nets)))
    return Request(experiments, preset("smoke", {**given, "sigmas": sigmas}))


def killed(folder: Path, asked: Request, share: float) -> tuple[int, int]:
    """Store a share of the groups as a killed run leaves them; return their number and that of all groups."""
    nets = nets_of(asked.experiments, asked.settings, 1, Screen())
    plan = plan_of(asked.experiments, asked.settings, nets)
    described = {"command": "", "preset": "", "settings": {}, "experiments": (), "left_out": ()}
    writer = Writer(new_run(folder, plan.rows, {}, **described, environment={}, code=""))
    names = [*plan.groups][: int(len(plan.groups) * share)]
    rows_of = dict([*plan.rows.groupby("group", sort=False)])
    for name in names:
        writer.write(name, _measured(rows_of[name]))
    return len(names), len(plan.groups)


def _measured(rows: pd.DataFrame) -> pd.DataFrame:
    cells = rows[CELL].drop_duplicates().itertuples(index=False, name=None)
    return measurements(rows, [outcome(*cell, **_NUMBERS) for cell in cells])


def seconds_to_first_group(folder: Path, asked: Request) -> tuple[float, float]:
    """Resume a run; return elapsed and CPU seconds until its first group is submitted."""
    start, spent = time.perf_counter(), time.process_time()
    make_executor: Callable[[int, int], Executor] = lambda jobs, threads: Stopping()  # noqa: ARG005, E731
    try:
        run(folder, asked, 2, make_executor, Screen())
    except FirstGroupError:
        return time.perf_counter() - start, time.process_time() - spent
    raise RuntimeError("all groups are measured already")


def main() -> None:
    """Print the seconds, and with --profile where they are spent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--groups", type=int, default=2000)
    parser.add_argument("--share", type=float, default=0.9495, help="of the groups that are measured")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    asked = request(options.groups)
    with tempfile.TemporaryDirectory() as folder:
        done, groups = killed(Path(folder), asked, options.share)
        files = len([*Path(folder, "measured").iterdir()])
        with cProfile.Profile() as profile:
            if not options.profile:
                profile.disable()
            elapsed, spent = seconds_to_first_group(Path(folder), asked)
    print(f"{groups} groups, {done} of them measured, in {files} files")
    print(f"first group after {elapsed:.2f} s ({spent:.2f} s of CPU)")
    if options.profile:
        pstats.Stats(profile).sort_stats("cumulative").print_stats(40)


if __name__ == "__main__":
    main()
