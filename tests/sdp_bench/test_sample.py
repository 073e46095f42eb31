import re

import numpy as np
import pandas as pd
import pytest

from tests.attacks.calls import called

NET = """
import torch

def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))

class Law(torch.nn.Module):
    def forward(self, x):
        return {"loc": x.sum(1, keepdim=True), "scale": 0.1 * x.sum(1, keepdim=True).exp()}
"""


@pytest.fixture
def sampled(tmp_path, monkeypatch):
    (tmp_path / "net.py").write_text(NET)
    np.save(tmp_path / "x.npy", np.float32([[0.5, 1.0], [-1.0, 2.0]]))
    monkeypatch.chdir(tmp_path)

    def run(*arguments, net="net.py:build"):
        return called(["sample", net, "--inputs", "x.npy", "--sigma", "0.1", *arguments])

    return run


def test_the_table_has_a_row_for_each_input_and_output_and_the_verdict_is_last(sampled, tmp_path):
    words = "--until", "5%", "--quantity", "mean,class", "--output", "o.csv"
    code, out, err = sampled(*words)
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].split() == ["σ", "input", "output", "mean", "class", "samples"]
    assert [line.split()[:3] for line in lines[1:5]] == [
        ["0.1", str(i), str(o)] for i in (0, 1) for o in (0, 1)
    ]
    assert lines[5].startswith("limits: events rarer than about 1 in ")
    assert lines[6].startswith("verdict: all 8 estimates are within 5 %")
    assert "left" in err
    table = pd.read_csv(tmp_path / "o.csv")
    assert len(table) == 8
    assert table["reached"].all()
    shares = table[table["quantity"] == "class"].groupby("input")["estimate"].sum()
    np.testing.assert_allclose(shares, 1)
    again, repeated, silent = sampled(*words)
    assert (again, repeated) == (0, out)
    assert "left" not in silent  # nothing is drawn


def test_one_estimate_is_singular_and_numbers_have_the_same_format(sampled):
    code, out, _ = sampled("--until", "10%", "--rows", "1", "--net-output", "loc", net="net.py:Law")
    assert code == 0
    row, *_, verdict = out.splitlines()[-3:]
    assert re.fullmatch(r"\s*0.1\s+0\s+0\s+0\.\d+ \(0\.\d+ to 0\.\d+\)\s+[\d,]+", row)
    assert verdict.startswith("verdict: the estimate is within 10 % (")


def test_a_rare_exceedance_has_an_interval_and_its_mean_has_none(sampled, tmp_path):
    (tmp_path / "step.py").write_text(
        "import torch\n\nclass Step(torch.nn.Module):\n"
        "    def forward(self, x):\n        return (x[:, :1] > 51).to(x)\n"
    )
    words = "--rows", "1", "--max-samples", "5000", "--quantity", "above:0.5,mean", "--until", "5%"
    code, out, _ = sampled(*words, net="step.py:Step")
    assert code == 0
    header, row = out.splitlines()[1:3]  # after a note on --rows
    assert header.split() == ["σ", "input", "output", "above:0.5", "mean", "samples"]
    assert re.search(r"0\.0+ % \(0\.0+ to 0\.\d+\) +0 \(-inf to inf\) !", row)
    assert "1 estimate of mean or sd has no interval, first mean of output 0 at input 0" in out
    assert out.splitlines()[-1].startswith(
        "verdict: all estimates except 1 of constant outputs are within 5 % ("
    )


def test_a_tolerance_that_is_not_reached_has_exit_code_3_and_the_number_of_samples_that_may_suffice(sampled):
    code, out, _ = sampled("--until", "1%", "--max-samples", "10000", "--rows", "1")
    assert code == 3
    lines = out.splitlines()
    assert lines[-3:-1] == [
        "! is not within the tolerance",
        "limits: events rarer than about 1 in 3,333 can be missed",
    ]
    assert "estimates are not within 1 % after 10,000 samples" in lines[-1]
    assert "--max-samples" in lines[-1]


def test_one_of_several_outputs_is_named_by_its_key_and_the_keys_are_listed(sampled):
    code, out, err = sampled("--until", "5%", "--net-output", "scale", net="net.py:Law")
    assert code == 0, err
    # 0.1 exp(s) for s = N(sum of the input, 2 * 0.1^2): a log-normal law
    spread = 0.1 * np.sqrt(2)
    for line, total in zip(out.splitlines()[1:3], (1.5, 1.0), strict=True):
        exact = 0.1 * np.exp(total + spread**2 / 2) * np.sqrt(np.expm1(spread**2))
        estimate, low, high = (float(line.split()[place].strip("()")) for place in (3, 4, 6))
        assert abs(estimate - exact) < high - low
    for words, message in (
        ((), "must return one tensor, got dict of loc (4, 1), scale (4, 1) (for a trial"),
        (("--net-output", "sigma"), "there is no output 'sigma': there are loc, scale"),
    ):
        code, _, err = sampled(*words, net="net.py:Law")
        assert code == 2
        assert message in err
        assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--until", "0"), "'0' is not above 0 and at most 100%"),
        (("--until", "1"), "'1' needs a percent sign: 1% or 100%"),
        (("--until", "0.5"), "'0.5' needs a percent sign: 0.5% or 50%"),
        (("--quantity", "sd,mode"), "unknown quantity 'mode'"),
        (("--noise", "split_normal:0.2/0.1"), "must be the standard deviations above and below, as +0.2-0.1"),
        (("--max-samples", "100"), "but the maximum is 100"),
    ],
)
def test_bad_input_is_one_line(sampled, words, message):
    code, out, err = sampled(*words)
    assert code == 2
    assert out == ""
    assert message in err.splitlines()[-1]
