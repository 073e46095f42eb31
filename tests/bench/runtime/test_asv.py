import json
import math
import os
import re
import subprocess
import sys
from datetime import UTC, datetime

import numpy as np
import pytest
from asv.results import Results
from asv.runner import BenchmarkResult

from benchmarks import history
from benchmarks.continuous import exit_code, skipped_environments
from sdp_bench.bench.runtime.ratios import cost
from sdp_bench.reports.style.labels import number
from tests.project import ROOT
from tests.reports.helpers import outline, plain_text


def test_marginal_sdp_takes_two_regular_passes_of_products():
    """One for the location and one for the scale."""
    ratio, counted = cost("mlp-4x100", "marginal_sdp", "forward")
    assert counted == 2
    assert 1 < ratio.lower <= ratio.median <= ratio.upper


def said(row, end="BENCHMARKS NOT SIGNIFICANTLY CHANGED."):
    """What asv prints of one benchmark."""
    head = "| Change | Before [95f3bf4d] <main~1> | After [d29677b3] <main> | Ratio | Benchmark (Parameter) |"
    return f"\n{head}\n{re.sub('[^|]+', '---', head)}\n| {row} | x.A.track_a(1) |\n\n{end}\n"


@pytest.mark.parametrize(
    ("status", "output", "expected"),
    [
        (0, said("  | 1.00 | 1.04 |  1.04"), 0),
        (0, said("  | 1.00 | 1.40 | ~1.40"), 0),
        (1, said("+ | 1.00 | 6.00 |  6.00", "PERFORMANCE DECREASED."), 1),
        (2, "x.A.track_a  failed\n", 2),
        (1, "Unknown commit deadbeef\n", 2),
        (1, "No benchmarks selected\n", 3),
        (0, said("  | n/a | n/a | n/a"), 3),
        (1, "· Unknown environment type 'rattler'. Allowed are ['uv'].\n· No environments selected\n", 3),
        (1, "No available environments\n", 3),
        (0, "· No executable found for python 3.14\n" + said("  | 1.00 | 1.04 |  1.04"), 0),
    ],
)
def test_regression_failure_and_missing_measurement_have_different_exit_codes(status, output, expected):
    assert exit_code(status, output) == expected


def test_environments_that_are_left_out_are_named_once():
    output = (
        "· No executable found for python 3.14\n· Creating environments\n"
        "· No executable found for python 3.14\n"
        "·· Building 1a2b3c4d <main> for virtualenv-py3.12-torch2.6.0.\n"
        "·· Skipping virtualenv-py3.12-torch2.6.0\n··· ratios.Ratio.track_ratio skipped\n"
    )
    assert skipped_environments(output + said("  | 1.00 | 1.04 |  1.04")).splitlines() == [
        "environment not measured: No executable found for python 3.14",
        "environment not measured: Skipping virtualenv-py3.12-torch2.6.0",
    ]
    assert not skipped_environments(said("  | 1.00 | 1.04 |  1.04"))


@pytest.mark.slow
def test_asv_without_an_environment_measures_nothing(tmp_path):
    """asv itself, for a Python that does not exist."""
    home = {**os.environ, "HOME": str(tmp_path), "USERPROFILE": str(tmp_path)}
    subprocess.run([sys.executable, "-m", "asv", "machine", "--yes"], cwd=ROOT, env=home, check=True)
    command = [sys.executable, "benchmarks/continuous.py", "HEAD", "HEAD", "-E", "virtualenv:3.98"]
    run = subprocess.run(command, cwd=ROOT, env=home, capture_output=True, text=True, check=False)
    assert run.returncode == 3, run.stdout
    assert run.stdout.splitlines()[-1] == "environment not measured: No executable found for python 3.98"


HASHES = [f"{number:x}".ljust(40, "0") for number in range(0xABCD0000, 0xABCD0000 + 24)]
"""Commits that no repository has."""


def asv_results(folder, **series):
    """A folder of results of asv, with a series of values over the commits for each benchmark."""
    machine = folder / "mine"
    machine.mkdir(parents=True)
    (machine / "machine.json").write_text('{"machine": "mine", "cpu": "a processor", "version": 1}')
    count = len(next(iter(series.values())))
    for position, commit in enumerate(HASHES[:count]):
        values = {name: numbers[position] for name, numbers in series.items()}
        results = Results(
            {"machine": "mine", "cpu": "a processor", "python": "3.11"},
            {},
            commit,
            1_795_000_000_000 + 86_400_000 * position,
            "3.11",
            "3.11",
            {},
        )
        for name, value in values.items():
            benchmark = {"name": name, "params": [], "version": "1"}
            result = BenchmarkResult([value], [None], [None], 0, "", None)
            results.add_result(benchmark, result, datetime(2026, 11, 20, tzinfo=UTC), 1.0)
        results.save(str(folder))
    return folder


def test_asv_imports_the_suite_under_its_own_name():
    """It imports the folder as the package `runtime`, outside of sdp_bench."""
    code = "from asv_runner.discovery import list_benchmarks; list_benchmarks(sys.argv[1], sys.stdout)"
    command = [sys.executable, "-P", "-c", f"import sys; {code}", history.ROOT / "bench" / "runtime"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
    names = {one["name"] for one in json.loads(listed.stdout) if "name" in one}
    assert "ratios.RelativeCost.track_ratio" in names


def test_the_page_has_the_last_step_of_each_benchmark_with_its_commits(tmp_path):
    rng = np.random.default_rng(0)
    steps = np.repeat([1.0, 3.0, 6.0], 8) * rng.uniform(0.99, 1.01, 24)
    flat = rng.uniform(0.99, 1.01, 24)
    folder = asv_results(tmp_path / "results", **{"a.time_steps": steps, "b.time_flat": flat})
    history.page(str(folder), str(tmp_path / "page.html"))
    page = outline((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert set(page.fetched) == {"data:,"}
    frame = history.table(str(folder))
    found = {one["benchmark"]: one for one in history.series(frame)}
    assert found["b.time_flat"]["step"] is None
    step = found["a.time_steps"]["step"]
    assert (step["last"], step["first"]) == (HASHES[15], HASHES[16])
    assert step["before"] == pytest.approx(3, rel=0.01)
    assert step["after"] == pytest.approx(6, rel=0.01)
    text = plain_text((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert f"{HASHES[15][:8]} {HASHES[16][:8]}" in text
    assert f"a.time_steps, {step['change']} in {HASHES[16][:8]}" in text
    names = [row["name"] for row in history.baselines(frame)]
    assert names[0] == "speed of versions: asv, mine"
    assert all((history.ROOT / name.partition(": ")[2]).is_file() for name in names[1:])
    baseline = history.baselines(frame)[0]
    assert (baseline["day"], baseline["since"], baseline["label"]) == ("2026-11-20", None, HASHES[-1][:8])


def test_missing_values_and_commits_are_skipped(tmp_path):
    values = [1.0, math.nan, None, 1.0, 1.0, math.nan, 1.0, 1.0, 1.0, None]
    (found,) = history.series(history.table(str(asv_results(tmp_path / "results", name=values))))
    known = [commit for commit, value in zip(HASHES, values, strict=False) if value == 1.0]
    assert found["values"] == dict.fromkeys(known, 1.0)
    assert found["commit"] == known[-1]


@pytest.mark.parametrize("exists", [True, False])
def test_a_folder_without_results_is_named(tmp_path, exists):
    folder = tmp_path / "results"
    if exists:
        folder.mkdir()
    with pytest.raises(SystemExit, match="has no results of asv; `make asv` measures the current commit"):
        history.page(str(folder), str(tmp_path / "page.html"))
    assert not (tmp_path / "page.html").exists()


@pytest.mark.slow
def test_the_page_shows_the_committed_ratios(tmp_path):
    history.page(str(history.COMMITTED), str(tmp_path / "ratios.html"))
    text = (tmp_path / "ratios.html").read_text(encoding="utf-8")
    frame = history.table(str(history.COMMITTED))
    ratios = frame[frame["benchmark"].str.endswith("track_ratio")]
    assert {"cnn3, marginal_sdp, forward", "cnn3, sdp, forward"} <= set(ratios["parameters"])
    versions = {history.label(commit) for commit in ratios["commit"]}
    assert {"0.25.0"} <= versions <= set(history.releases().values())
    for value in ratios["value"]:
        assert f"<td>{number(value)}</td>" in text
