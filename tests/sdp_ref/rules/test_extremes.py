"""No laws at all, and stable laws at the ends of what floats hold: one answer from every rule."""

import itertools
import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pytest
import torch
from torch import nn

import sdp_ref as sr
from sdp_bench import oracles

T = TypeVar("T")

ALPHAS = (0.05, 0.1, 0.5, 1.0, 1.5, 2.0)
SCALES = (1e-300, 1e-150, 1.0, 1e150, 1e300)


def net(*widths: int) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
    return nn.Sequential(*layers).double()


def tried(call: Callable[[], T]) -> T | str:
    """What a call gives, or how it refuses."""
    try:
        return call()
    except ValueError as error:
        return str(error)


def stable(alpha: float, scale: float, *shape: int) -> sr.SymmetricStable:
    return sr.SymmetricStable(
        torch.ones(1, *shape, dtype=torch.float64),
        torch.full((1, *shape), scale, dtype=torch.float64),
        alpha,
    )


@pytest.mark.parametrize("rule", sr.rules())
@pytest.mark.parametrize("family", [sr.Gaussian, sr.DiagonalGaussian, sr.Cauchy])
def test_no_rule_is_given_a_batch_of_no_laws(rule: str, family: type[sr.Law]) -> None:
    spread = torch.eye(3).repeat(2, 1, 1) if family is sr.Gaussian else torch.ones(2, 3)
    laws = family(torch.zeros(2, 3), spread).to(dtype=torch.float64)
    prepared = sr.rule(rule).prepare(net(3, 2))
    for propagate in (prepared, lambda x: sr.propagate(net(3, 2), x, rule)):
        with pytest.raises(ValueError, match="a batch has one law or more"):
            propagate(laws[:0])
    with pytest.raises(ValueError, match="a batch has one law or more"):
        family(torch.zeros(0, 3), spread[:0])


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("rule", ["sdp", "marginal_sdp"])
@pytest.mark.parametrize("factor", [1.0, 1e100])
def test_scales_pass_linear_layers_or_are_refused(
    alpha: float, scale: float, rule: str, factor: float
) -> None:
    """Two layers, an input without noise, weights that take the scale beyond the largest float."""
    layers = net(3, 4, 2)
    with torch.no_grad():
        for layer in layers:
            layer.weight *= factor
    x = stable(alpha, scale, 3)
    x.scale[0, 2] = 0
    law = tried(lambda: sr.propagate(layers, x, rule))
    if isinstance(law, str):
        assert "beyond the largest number of torch.float64" in law
        assert scale * factor**2 > 1e280
    else:
        assert torch.isfinite(law.scale).all()
        assert (law.scale > 0).all()


@pytest.mark.parametrize("alpha", ALPHAS)
def test_scales_of_convolutions_are_not_nan(alpha: float) -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv1d(1, 2, 2), nn.AvgPool1d(2), nn.Flatten(), nn.Linear(2, 2)).double()
    for scale in SCALES:
        x = stable(alpha, scale, 1, 3)
        law = tried(lambda x=x: sr.propagate(layers, x, "marginal_sdp"))
        if isinstance(law, str):
            assert "beyond the largest number" in law
            assert scale == 1e300
        else:
            assert torch.isfinite(law.scale).all()


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("scale", SCALES)
def test_draws_are_finite_or_refused(alpha: float, scale: float) -> None:
    outputs = tried(lambda: oracles.sample_outputs(net(2, 2), stable(alpha, scale, 2), 5000, seed=1))
    if isinstance(outputs, str):
        assert "draws too large for torch.float64" in outputs
        assert scale == 1e300 or alpha < 0.2
    else:
        assert torch.isfinite(outputs).all()


@pytest.mark.parametrize("alpha", [0.5, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("scale", SCALES)
def test_densities_and_probabilities_scale(alpha: float, scale: float) -> None:
    centred = [torch.zeros(1, 1, dtype=torch.float64), torch.tensor([[scale]], dtype=torch.float64)]
    unit = oracles.Mixed.of(sr.SymmetricStable(centred[0], torch.ones_like(centred[0]), alpha))
    scaled = oracles.Mixed.of(sr.SymmetricStable(*centred, alpha))
    x = np.array([-3.0, -0.1, 0.0, 0.5, 7.0])
    assert scaled.cdf(scale * x) == pytest.approx(unit.cdf(x), rel=1e-12)
    assert scaled.density(scale * x) * scale == pytest.approx(unit.density(x), rel=1e-12)
    with np.errstate(over="ignore"):
        far = scaled.cdf(np.array([-math.inf, -1e308, 1e308, math.inf]))
    assert far[[0, 3]].tolist() == [0, 1]
    assert (np.diff(far) >= 0).all()
