"""The command that divides the variance of outputs among inputs."""

import re

import pandas as pd
import pytest

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
