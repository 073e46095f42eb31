import re

import numpy as np
import pandas as pd
import pytest
import torch

import sdp_bench
from tests.attacks.calls import called

NET = """
import numpy
import torch

def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 30), torch.nn.ReLU(), torch.nn.Linear(30, 3))

class Opaque(torch.nn.Module):
    def forward(self, x):
        return torch.from_numpy(numpy.tanh(x.detach().numpy()))
"""
X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("net")
    (path / "net.py").write_text(NET)
    np.save(path / "x.npy", X)
    return path


@pytest.fixture
def advised(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return lambda *arguments: called(["advise", *arguments])


def test_each_use_and_noise_level_has_a_line_and_the_verdict_is_last(advised):
    code, out, err = advised("net.py:build", "--inputs", "x.npy", "--sigma", "0.0001,10")
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].startswith("advice for net.py:build, mean over 3 inputs, 10,000 passes each (")
    assert len(lines) == 1 + 3 * 2 + 4
    for use in ("class", "standard deviations and intervals", "whole distribution"):
        small, large = (line for line in lines if line.startswith(f"  {use}, σ"))
        assert "linearisation is accurate" in small
        assert re.search(r"linearisation is inaccurate.*draw at least [\d,]+ samples", large)
    assert lines[-1].startswith("verdict: for net.py:build, rely on linearisation (sdp) for ")


def test_the_function_returns_a_row_for_each_noise_level_input_and_use():
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    table = sdp_bench.advise(net, X, sigma=[0.01, 1.0])
    assert isinstance(table, pd.DataFrame)
    assert len(table) == 2 * 3 * 2  # a single output has no class
    assert set(table["outcome"]) <= {"accurate", "inaccurate", "undecided"}
    small = table[table["sigma"] == 0.01]
    assert (small["index"] < 0.05).all()


def test_the_seed_selects_the_samples_and_progress_counts_inputs_and_noise_levels(advised):
    words = "net.py:build", "--inputs", "x.npy", "--sigma", "0.5,1", "--no-class"
    code, out, err = advised(*words)
    assert code == 0
    assert "inputs 6/6 " in err
    again, repeated, _ = advised(*words, "--seed", "0")
    assert (again, repeated) == (0, out)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh())
    tables = [
        sdp_bench.advise(net, X, sigma=1.0, has_class=False, seed=seed, progress=False) for seed in (0, 1)
    ]
    assert not np.isin(tables[0]["index"], tables[1]["index"]).any()


def test_for_regression_the_class_is_left_out(advised):
    _, with_class, _ = advised("net.py:build", "--inputs", "x.npy", "--sigma", "1", "--rows", "1")
    code, out, err = advised("net.py:build", "--inputs", "x.npy", "--sigma", "1", "--rows", "1", "--no-class")
    assert code == 0, err
    assert "--no-class omits it" in with_class
    assert not re.search("^  class", out, re.MULTILINE)
    assert "class" not in out
    other_uses = r"^  (?:standard deviations|whole distribution).*σ.*$"
    assert re.findall(other_uses, out, re.MULTILINE) == re.findall(other_uses, with_class, re.MULTILINE)
    table = sdp_bench.advise(torch.nn.Linear(4, 2), X, sigma=1.0, has_class=False)
    assert "class" not in set(table["use"])


def test_the_scale_of_noise_from_a_file_is_one_by_default(folder):
    np.savetxt(folder / "se.csv", np.full((1, 4), 0.01), delimiter=",")
    table = sdp_bench.advise(torch.nn.Linear(4, 1), X, noise=f"scales:{folder / 'se.csv'}")
    assert set(table["sigma"]) == {1.0}
    assert set(table["outcome"]) == {"accurate"}


def test_a_net_without_gradients_is_an_error_of_one_line(advised):
    code, out, err = advised("net.py:Opaque", "--inputs", "x.npy", "--sigma", "1")
    assert (code, out) == (2, "")
    assert "must be differentiable" in err.splitlines()[-1]
    assert "validate --net" in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "sigma is required"),
        (["--sigma", "1", "--noise", "cauchy"], "calibrated for Gaussian noise, not for cauchy"),
        (["--sigma", "0"], "must be positive, got 0"),
        (["--noise", "scales:1/0.5"], r"noise 'scales:1/0.5' is for inputs of shape \(2,\)"),
        (["--sigma", "1", "--net-output", "logits"], "logits"),
    ],
)
def test_bad_input_is_an_error_of_one_line(advised, arguments, expected):
    code, out, err = advised("net.py:build", "--inputs", "x.npy", *arguments)
    assert (code, out) == (2, "")
    assert re.search(expected, err.splitlines()[-1])
    assert "Traceback" not in err
