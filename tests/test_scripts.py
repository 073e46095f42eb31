"""Scripts of docs/examples that print tables, on laws with known answers."""

import runpy

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import nn

import sdp_ref as sr
from tests.project import ROOT

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
