"""The command that divides the variance of outputs among inputs."""

import re

import numpy as np
import pandas as pd
import pytest
import torch

import sdp_bench
from sdp_bench.bench.errors import UserError
from tests.attacks.calls import called

NET = """
import torch

def build():
    net = torch.nn.Linear(3, 2)
    net.weight.data = torch.tensor([[2.0, 0.0, 1.0], [0.0, 3.0, 0.0]])
    return net
"""


@pytest.fixture
def budget(tmp_path, monkeypatch):
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "x.csv").write_text("speed,slope,mass\n1,2,3\n2,3,4\n")
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: called(["budget", "net.py:build", "--inputs", "x.csv", *arguments])


def test_each_output_has_a_line_and_the_table_all_shares(budget, tmp_path):
    code, out, err = budget("--noise", "scales:0.1/0.1/0.2", "--output", "budget.csv")
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0] == "note: σ is a factor of the noise scales:0.1/0.1/0.2, not a standard deviation"
    assert lines[1] == "uncertainty budget of net.py:build, mean over 2 inputs"
    assert lines[3].startswith("  σ = 1, output 1: largest slope at 2 of 2 inputs: slope ")
    assert re.search(r"slope [^;]*; first [^;]* linear 100\.0 %\)", lines[3])
    table = pd.read_csv(tmp_path / "budget.csv")
    shares = table[table["output"] == 0].set_index(["input", "group"])["linear"]
    assert shares.round(4).to_list() == [0.5, 0, 0.5] * 2  # variances 4 * 0.01, 0 and 0.04


def test_groups_and_samples_are_chosen(budget):
    code, out, err = budget(
        "--sigma", "0.1", "--groups", "speed+mass,slope", "--samples", "200", "--rows", "1"
    )
    assert code == 0, err
    assert "largest speed+mass" in out


def test_another_seed_gives_other_samples(budget, tmp_path):
    estimates = []
    for seed in ("0", "0", "1"):
        code, _, err = budget("--sigma", "0.1", "--samples", "200", "--seed", seed, "--output", "budget.csv")
        assert code == 0, err
        estimates.append(pd.read_csv(tmp_path / "budget.csv")["total"].to_numpy())
    assert (estimates[0] == estimates[1]).all()
    assert not ((estimates[0] == estimates[2]) & (estimates[0] > 0)).any()
    inputs = np.repeat(np.float32([[1, 2]]), 2, 0) + np.float32([[0], [1]])
    table = sdp_bench.budget(torch.nn.Linear(2, 1), inputs, sigma=1.0, samples=200, seed=1)
    assert table["total"].nunique() == 4  # the rows have samples of their own


def test_too_many_rows_are_an_error_that_names_the_most(budget):
    inputs = np.zeros((300, 2), np.float32)
    with pytest.raises(UserError, match=r"^200 inputs in inputs: at most 100 are possible; .*--rows 100"):
        sdp_bench.budget(torch.nn.Linear(2, 1), inputs, sigma=1.0, rows=200)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "sigma is required"),
        (["--sigma", "1", "--noise", "cauchy"], "Cauchy noise has no variance"),
        (["--sigma", "1", "--groups", "height"], "there is no column 'height': there are speed, slope, mass"),
    ],
)
def test_bad_input_is_an_error_of_one_line(budget, arguments, expected):
    code, out, err = budget(*arguments)
    assert (code, out) == (2, "")
    assert re.search(expected, err.splitlines()[-1])
    assert "Traceback" not in err
