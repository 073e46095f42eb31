"""The notebooks of the documentation: small, without outputs, and run."""

import json

import matplotlib as mpl
import pytest
import torch

from tests.cells import run_cell
from tests.project import ROOT

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
