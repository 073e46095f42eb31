"""The script that sets low-rank covariances beside samples."""

import runpy
from pathlib import Path

import pytest
import torch

import sdp_ref as sr

SCRIPT = Path(__file__).parents[1] / "docs" / "examples" / "low_rank.py"


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(SCRIPT))


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


def test_the_table_of_resnet_has_a_row_for_each_rule_and_noise(script, capsys):
    with torch.no_grad():
        script["resnet"](1, 40, [0.1, 0.3], ("sdp", "low_rank:columns=1"))
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split(" | ")[:2] for line in lines if "`" in line]
    assert rows == [[f"| {s}", f"`{r}`"] for s in (0.1, 0.3) for r in ("sdp", "low_rank:columns=1")]
