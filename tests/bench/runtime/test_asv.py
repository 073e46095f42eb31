import os
import re
import subprocess
import sys

import pytest

from benchmarks import history
from benchmarks.continuous import exit_code, skipped_environments
from sdp_bench.bench.runtime.ratios import cost
from tests.project import ROOT


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


@pytest.mark.slow
def test_the_page_shows_the_committed_ratios(tmp_path):
    history.page(str(history.COMMITTED), str(tmp_path / "ratios.html"))
    text = (tmp_path / "ratios.html").read_text(encoding="utf-8")
    frame = history.table(str(history.COMMITTED)).query("net == 'cnn3' and phase == 'forward'")
    assert {"0.25.0"} <= set(frame["version"]) <= set(history.releases().values())
    assert {"marginal_sdp", "sdp"} <= set(frame["method"])
    for version, ratio in zip(frame["version"], frame["ratio"], strict=True):
        assert f">{version}</th>" in text
        assert f"<td>{ratio:.4g} (" in text
