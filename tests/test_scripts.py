"""Scripts and notebooks of docs/examples: they run, and give the answers that are known or printed."""

import json
import re
import runpy

import matplotlib as mpl
import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import nn

import sdp_ref as sr
from tests.project import ROOT, python, run_cell

SAMPLES = 200_000


@pytest.fixture(scope="module")
def script(request):
    return runpy.run_path(str(ROOT / "docs" / "examples" / request.param))


def of(name):
    return pytest.mark.parametrize("script", [name], indirect=True, ids=[name])


@of("low_rank.py")
def test_of_a_law_that_is_right_the_errors_are_the_standard_errors(script):
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 1).double().requires_grad_(False)
    x = torch.randn(1, 3, dtype=torch.float64)
    samples, centre = script["Samples"].of(net, x, 0.5, 40_000)
    law = sr.propagate(net, sr.DiagonalGaussian(x, torch.full_like(x, 0.25)), "sdp")
    (off, of_mean), (wrong, _), (low, of_variance), _ = samples.figures(script["errors"](law, centre))
    assert off < 4 / 200
    assert float(of_mean) == pytest.approx(1 / 200, rel=0.5)
    assert float(of_variance) == pytest.approx((2 / 40_000) ** 0.5, rel=0.5)
    assert abs(low - 1) < 4 * of_variance
    assert abs(wrong - abs(1 / low - 1) * low) < 1e-9


@of("recurrent.py")
@torch.no_grad()
def test_the_last_value_is_what_the_cell_gives(script):
    inputs, hidden = script["INPUTS"], script["HIDDEN"]
    torch.manual_seed(0)
    x = torch.randn(5, inputs + 2 * hidden)
    values, state, memory = x.split([inputs, hidden, hidden], 1)
    long, short = nn.LSTMCell(inputs, hidden), nn.GRUCell(inputs, hidden)
    h, c = long(values, (state, memory))
    known = script["Place"](long, "").values(x)
    torch.testing.assert_close(known["c"], c)
    torch.testing.assert_close(known["o * tanh c"], h)
    torch.testing.assert_close(script["Place"](short, "h")(x[:, : inputs + hidden]), short(values, state))


def overlap(ratio):
    """Mass that normal laws of standard deviations 1 and `ratio` share, both around 0."""
    if ratio == 1:
        return 1.0
    meet = np.sqrt(-2 * np.log(ratio) / (ratio**-2 - 1))
    return 1 - 2 * (norm.cdf(meet / ratio) - norm.cdf(meet))


@of("two_tables.py")
@pytest.mark.parametrize("ratio", [0.2, 0.34, 0.8, 1])
def test_of_a_normal_law_the_bound_is_the_overlap(script, ratio):
    values = 3 + 2 * np.random.default_rng(0).standard_normal(SAMPLES)
    # 200 bins lose a little of the difference, and of equal laws the samples' noise is what is left
    noise = np.sqrt(2 / np.pi * script["FINE"] / SAMPLES) / 2
    assert script["most_in_one_output"](values, 2 * ratio) == pytest.approx(overlap(ratio), abs=noise + 0.002)


NOTEBOOKS = sorted((ROOT / "docs" / "examples").glob("*.ipynb"))


def codes(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_small_and_has_no_outputs(path):
    book = json.loads(path.read_text(encoding="utf-8"))
    assert path.stat().st_size < 20_000
    assert book["nbformat"] == 4
    own = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert own
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in own)


@pytest.mark.slow
def test_the_notebook_of_the_committed_results_does_what_it_says(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(mpl, "rcParams", mpl.rcParams.copy())
    mpl.use("agg")
    space = {"__name__": "__main__"}
    with torch.random.fork_rng(devices=[]):
        for source in codes(ROOT / "docs" / "examples" / "committed.ipynb"):
            run_cell(source, space)
    table, exact, found = space["table"], space["exact"], space["found"]
    assert (table.loc["moment_matching"] > exact).all()
    assert table.loc["sdp", 1000.0] > table.loc["moment_matching", 1000.0] + 0.1
    assert len(space["axes"].lines) == len(space["rules"]) + 1
    assert found.exit_code == 0
    assert {"wider_sdp", "sdp"} <= set(space["own"]["rule"])


SCRIPT = ROOT / "docs" / "examples" / "two_moons.py"
PAGE = (ROOT / "docs" / "learning.md").read_text(encoding="utf-8")


def width_and_height(png):
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")


@pytest.mark.slow
def test_it_runs_as_printed(tmp_path):
    picture = tmp_path / "moons.png"
    done = python(SCRIPT, picture, cwd=tmp_path, OMP_NUM_THREADS="1", MPLBACKEND="Agg")
    assert done.returncode == 0, done.stderr
    committed = (ROOT / "docs" / "two_moons.png").read_bytes()
    # matplotlib versions may lay a pixel out differently
    assert width_and_height(picture.read_bytes()) == pytest.approx(width_and_height(committed), abs=3)

    (shown,) = re.findall(r"```text\n(Data uncertainty.*?)```", PAGE, re.DOTALL)
    number = re.compile(r"\d+\.\d+")
    assert number.sub("#", done.stdout) == number.sub("#", shown)
    printed = [tuple(map(float, number.findall(line))) for line in done.stdout.splitlines()]
    promised = [tuple(map(float, number.findall(line))) for line in shown.splitlines()]
    # Rounding differs between CPUs, and 300 steps of training carry it on.
    for got, told in zip(printed, promised, strict=True):
        assert got == pytest.approx(told, abs=0.06)
