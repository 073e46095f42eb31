import pytest
import torch
from torch import nn

import sdp_ref as sr


@pytest.fixture
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


@pytest.mark.parametrize(
    "rule", ["sdp", "marginal_sdp", "moment_matching", "unscented", "monte_carlo:samples=50"]
)
def test_it_gives_what_propagate_gives_and_gradients_reach_the_net(net, rule):
    x = torch.randn(5, 4)
    law = sr.Propagated(net, rule, std=0.3)(x)
    same = sr.propagate(net, sr.DiagonalGaussian(x, torch.full_like(x, 0.3**2)), rule)
    torch.testing.assert_close(law.mean, same.mean)
    torch.testing.assert_close(law.variance, same.variance)
    law.variance.sum().backward()
    assert all(float(p.grad.abs().max()) > 0 for p in net[0].parameters())


def test_noise_may_differ_by_feature_and_a_law_is_taken_as_it_is(net):
    x, std = torch.randn(5, 4), torch.tensor([0.1, 0.0, 0.2, 0.3])
    module = sr.Propagated(net, std=std)
    law = sr.DiagonalGaussian(x, std.square().expand(5, 4))
    torch.testing.assert_close(module(x).covariance, module(law).covariance)
    cauchy = module(sr.Cauchy(x, torch.full_like(x, 0.1)))
    assert isinstance(cauchy, sr.Cauchy)


def test_it_is_the_net_to_whoever_stores_and_moves_it(net):
    module = sr.Propagated(net, sr.rule("marginal_sdp"), std=0.1)
    assert set(module.state_dict()) == {f"net.{name}" for name in net.state_dict()}
    double = module.double()(torch.zeros(1, 4, dtype=torch.float64))
    assert double.mean.dtype == torch.float64
    assert "marginal_sdp" in repr(module)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"net": torch.relu}, "net must be a torch module"),
        ({"rule": "nothing"}, "rule 'nothing' not found"),
        ({"std": -1.0}, "std must be finite and >= 0"),
        ({"std": "wide"}, "std must be a number or a tensor"),
    ],
)
def test_an_unsupported_input_is_refused_in_one_line(net, arguments, message):
    with pytest.raises(ValueError, match=message):
        sr.Propagated(**{"net": net, **arguments})


def test_noise_of_another_shape_is_refused(net):
    with pytest.raises(ValueError, match="std"):
        sr.Propagated(net, std=torch.ones(3))(torch.zeros(2, 4))
