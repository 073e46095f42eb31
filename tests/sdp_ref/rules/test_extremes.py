import itertools
from collections.abc import Callable
from typing import TypeVar

import pytest
import torch
from torch import nn

import sdp_ref as sr

T = TypeVar("T")

ALPHAS = (0.05, 0.5, 1.0, 2.0)
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
