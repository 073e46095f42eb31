import pytest
import torch
from torch import nn

import sdp_ref as sr

RULES = [
    *("sdp", "second_order", "unscented", "cubature", "divided_difference", "moment_matching"),
    *("low_rank", "exact", "marginal_sdp", "marginal_moment_matching"),
    *("control_variate:samples=64", "monte_carlo:samples=100,sampler=whitened"),
]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("scale", [2.0**-70, 2.0**-90])
def test_small_variances_are_noted(rule, scale):
    net = nn.Linear(3, 2, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[scale, 0.0, scale], [1.0, 1.0, 1.0]]))
    x = sr.DiagonalGaussian(torch.ones(1, 3), torch.ones(1, 3))
    law = sr.propagate(net, x, rule)
    assert any("float32" in note for note in law.notes)
    law = sr.propagate(net.double(), x.to(torch.float64), rule)
    assert not law.notes
    assert law.variance[0, 0].item() == pytest.approx(2 * scale**2, rel=1e-6, abs=0)


@pytest.mark.parametrize("rule", RULES)
def test_constant_and_ordinary_outputs_are_not_noted(rule):
    net = nn.Linear(3, 2)
    with torch.no_grad():
        net.weight[1] = 0
    x = sr.DiagonalGaussian(torch.ones(1, 3), torch.full((1, 3), 1e-6))
    assert not sr.propagate(net, x, rule).notes


@pytest.mark.parametrize("rule", ["marginal_sdp", "marginal_moment_matching"])
def test_a_variance_lost_in_a_hidden_layer_is_noted(rule):
    net = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 2))
    with torch.no_grad():
        net[0].weight.mul_(2.0**-80)
    x = sr.DiagonalGaussian(torch.ones(1, 3), torch.ones(1, 3))
    assert any("float32" in note for note in sr.propagate(net, x, rule).notes)
    assert not sr.propagate(net.double(), x.to(torch.float64), rule).notes


@pytest.mark.parametrize("rule", ["marginal_sdp", "marginal_moment_matching"])
def test_constant_units_and_dead_units_are_not_noted(rule):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    with torch.no_grad():
        net[0].weight[0] = 0
        net[0].bias[1] = -100
        net[2].weight[0, 1:] = 0  # reads the constant unit alone
    x = sr.DiagonalGaussian(torch.ones(1, 3), torch.ones(1, 3))
    law = sr.propagate(net, x, rule)
    assert not law.notes
    assert law.variance[0, 0] == 0 < law.variance[0, 1]
