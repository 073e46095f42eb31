"""The script that tells where moment matching errs in recurrent cells."""

import runpy
from pathlib import Path

import pytest
import torch
from torch import nn

SCRIPT = Path(__file__).parents[1] / "docs" / "examples" / "recurrent.py"


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(SCRIPT))


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


def test_of_gaussian_values_an_op_alone_has_no_error(script):
    noise = torch.randn(200_000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    a, b = 0.3 + noise[:, :1], noise.sum(1, keepdim=True) - 1
    known = {"a": a, "b": b, "a * b": a * b, "tanh a": a.tanh(), "c": a + b}
    for place in ("a * b", "tanh a"):
        assert script["percent"](script["of_true_moments"](place, known), known[place]) in {
            "0 / 0",
            "0 / 1",
            "1 / 0",
        }
    assert script["percent"](script["of_true_moments"]("c", known), known["c"]) == ""
