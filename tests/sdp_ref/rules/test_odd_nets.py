import pytest
import torch
from torch import nn

import sdp_ref as sr
from tests.sdp_ref.common import mlp

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


@pytest.mark.parametrize("rule", [*RULES, "divided_difference", "monte_carlo", "control_variate"])
def test_points_of_a_rule_are_no_batch_to_normalise_by(rule):
    x = sr.DiagonalGaussian(torch.zeros(2, 3), torch.ones(2, 3))
    for norm in (nn.BatchNorm1d(3, track_running_stats=False).eval(), nn.BatchNorm1d(3).train()):
        with pytest.raises(sr.UnsupportedError, match="batch statistics"):
            sr.propagate(nn.Sequential(nn.Linear(3, 3), norm), x, rule)
    sr.propagate(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).eval(), x, rule)


@pytest.mark.parametrize("alpha", [0.05, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1.0, 1e150, 1e300])
@pytest.mark.parametrize("rule", ["sdp", "marginal_sdp"])
@pytest.mark.parametrize("factor", [1.0, 1e100])
def test_scales_pass_linear_layers_or_are_refused(alpha, scale, rule, factor):
    """Two layers, an input without noise, weights that take the scale beyond the largest float."""
    net = mlp(3, 4, 2, activation=nn.Identity)
    for layer in net[::2]:
        layer.weight.data *= factor
    scales = torch.tensor([[scale, scale, 0.0]], dtype=torch.float64)
    x = sr.SymmetricStable(torch.ones_like(scales), scales, alpha)
    try:
        law = sr.propagate(net, x, rule)
    except ValueError as error:
        refusal = str(error)
        assert "beyond the largest number of torch.float64" in refusal
        assert scale * factor**2 > 1e280
    else:
        assert torch.isfinite(law.scale).all()
        assert (law.scale > 0).all()


RULES_SMALL_VARIANCES = [
    "sdp",
    "second_order",
    "unscented",
    "cubature",
    "divided_difference",
    "moment_matching",
    "low_rank",
    "exact",
    "marginal_sdp",
    "marginal_moment_matching",
    "control_variate:samples=64",
    "monte_carlo:samples=100,sampler=whitened",
]


@pytest.mark.parametrize("rule", RULES_SMALL_VARIANCES)
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


@pytest.mark.parametrize("rule", RULES_SMALL_VARIANCES)
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


@pytest.mark.parametrize("rule", ["sdp", "second_order"])
@pytest.mark.parametrize("outputs", [1, 4])
def test_a_net_without_inputs_gives_its_constant(rule, outputs):
    bias = torch.arange(float(outputs))

    def net(x):
        return x @ torch.zeros(0, outputs) + bias

    y = sr.propagate(net, law(0), rule)
    assert torch.equal(y.mean, bias.expand(2, -1))
    assert not y.covariance.any()


@pytest.mark.filterwarnings("ignore")  # quantize_dynamic is deprecated
def test_quantised_layers_are_named():
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    quantised = torch.ao.quantization.quantize_dynamic(net, {nn.Linear}, dtype=torch.qint8)
    with pytest.raises(sr.UnsupportedError, match="linear_dynamic"):
        sr.propagate(quantised, law(), "moment_matching")
