import pytest
import torch
from torch import nn

import sdp_ref as sr

RULES = ["sdp", "moment_matching", "unscented", "second_order", "low_rank", "marginal_sdp"]


def law(inputs=3, dtype=torch.float32):
    return sr.DiagonalGaussian(torch.zeros(2, inputs, dtype=dtype), torch.ones(2, inputs, dtype=dtype))


@pytest.mark.parametrize("rule", [*RULES, "exact"])
@pytest.mark.parametrize("net", [lambda v: v.sum(1), lambda v: v[:, 0].relu()])
def test_one_number_a_row_is_refused(rule, net):
    with pytest.raises((sr.UnsupportedError, ValueError)) as caught:
        sr.propagate(net, law(), rule)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("rule", RULES)
def test_lazy_layers_are_named(rule):
    net = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2))
    with pytest.raises(ValueError, match="lazy"):
        sr.propagate(net, law(), rule)
    net(torch.zeros(1, 3))
    assert sr.propagate(net.eval(), law(), "moment_matching").dimension == 2


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    "net",
    [
        nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.utils.spectral_norm(nn.Linear(4, 2))),
        nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2))),
    ],
)
def test_buffers_are_left_as_they_were(rule, net):
    net.train()
    before = {name: buffer.clone() for name, buffer in net.named_buffers()}
    sr.propagate(net, law(), rule)
    assert before.keys() == dict(net.named_buffers()).keys()
    assert all(torch.equal(buffer, before[name]) for name, buffer in net.named_buffers())


@pytest.mark.parametrize("rule", ["unscented", "divided_difference", "monte_carlo", "control_variate", "sdp"])
def test_points_of_a_rule_are_no_batch_to_normalise_by(rule):
    x = sr.DiagonalGaussian(torch.zeros(2, 3), torch.ones(2, 3))
    for norm in (nn.BatchNorm1d(3, track_running_stats=False).eval(), nn.BatchNorm1d(3).train()):
        with pytest.raises(sr.UnsupportedError, match="batch statistics"):
            sr.propagate(nn.Sequential(nn.Linear(3, 3), norm), x, rule)
    sr.propagate(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).eval(), x, rule)
