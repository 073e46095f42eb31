import numpy as np
import pytest
import torch
from torch import nn

import sdp_ref as sr
from sdp_ref.rules import Split, traits
from tests.sdp_ref.common import mlp


@pytest.fixture(autouse=True)
def _double():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def net(*widths, activation=nn.ReLU, seed=0):
    return mlp(*widths, activation=activation, seed=seed).requires_grad_(False)


def law(*shape, variance=4.0, seed=0):
    torch.manual_seed(seed)
    return sr.DiagonalGaussian(torch.randn(shape), torch.full(shape, variance))


class Seen:
    name = "seen"

    def __init__(self):
        self.laws = []

    def propagate(self, net, x):
        self.laws.append(x)
        return sr.rule("sdp").propagate(net, x)


def full(x):
    root = torch.randn(x.batch, x.dimension, x.dimension)
    return sr.Gaussian(x.mean, root @ root.mT)


@pytest.mark.parametrize("k", [2, 9, 30])
@pytest.mark.parametrize("of", [lambda x: x, full])
def test_pieces_have_the_mean_and_the_covariance_of_the_law_together(k, of):
    base, x = Seen(), of(law(3, 4))
    y = sr.rule("split", base=base, k=k).propagate(net(4, 20, 20, 3), x)
    together = sr.Mixture(y.weights, base.laws[-1])
    assert torch.allclose(together.mean, x.mean)
    assert torch.allclose(together.covariance, x.covariance)


@pytest.mark.parametrize("k", [2, 3, 8, 9, 30, 100])
def test_there_are_k_pieces_at_most_and_nearly_as_many(k):
    y = sr.propagate(net(4, 20, 20, 3), law(2, 4), sr.rule("split", base="sdp", k=k))
    assert k - 1 <= y.pieces <= k


@pytest.mark.parametrize(
    ("function", "variance"), [(net(4, 3), 4.0), (net(4, 20, 3), 1e-8), (net(4, 20, 3), 0.0)]
)
def test_where_the_net_does_not_bend_the_law_stays_whole(function, variance):
    x = law(2, 4, variance=variance)
    y = sr.propagate(function, x, sr.rule("split", base="sdp", k=9))
    z = sr.propagate(function, x, "sdp")
    assert isinstance(y, sr.Gaussian)
    assert torch.equal(y.mean, z.mean)
    assert torch.equal(y.covariance, z.covariance)


def shared(true, drawn):
    """Mass that two samples share on equal cells of the first along each output, on average."""
    found = []
    for a, b in zip(true.T, drawn.T, strict=True):
        edges = np.quantile(a, np.linspace(0, 1, 33)[1:-1])
        p = np.bincount(np.searchsorted(edges, a), minlength=32) / len(a)
        q = np.bincount(np.searchsorted(edges, b), minlength=32) / len(b)
        found.append(1 - np.abs(p - q).sum() / 2)
    return np.mean(found)


def gain(function, x, base, k):
    generator = torch.Generator().manual_seed(1)
    true = function(x.sample(20_000, generator)[:, 0]).numpy()

    def overlap(rule):
        predicted = sr.propagate(function, x, rule).sample(20_000, generator)
        return shared(true, predicted[:, 0].numpy())

    split = overlap(sr.rule("split", base=base, k=k))
    return split - overlap(base)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.GELU])
@pytest.mark.parametrize("variance", [0.01, 100.0])
@pytest.mark.parametrize("base", ["sdp", "marginal_sdp"])
def test_pieces_are_never_worse_than_the_whole(activation, variance, base):
    function = net(4, 20, 20, 3, activation=activation)
    assert gain(function, law(1, 4, variance=variance), base, 9) > -0.01


@pytest.mark.parametrize("base", ["sdp", "marginal_sdp"])
@pytest.mark.parametrize(
    "x",
    [
        sr.Cauchy(torch.ones(1, 3), torch.ones(1, 3)),
        sr.SymmetricStable(torch.zeros(2, 3), torch.ones(2, 3), 1.9),
        sr.SymmetricStable(torch.zeros(1, 3), 1e-3 * torch.ones(1, 3), 0.4),
        sr.Mixture(torch.ones(1, 2) / 2, sr.Cauchy(torch.ones(2, 3), torch.ones(2, 3))),
    ],
)
def test_heavy_tailed_laws_are_whole_or_refused(x, base):
    """Far out, P(X > t) of a Cauchy law would be multiplied by the width of the pieces."""
    function = net(3, 20, 2).float()
    with pytest.raises(sr.UnsupportedError, match="lighter tails"):
        sr.propagate(function, x, sr.rule("split", base=base, k=9))
    if not isinstance(x, sr.Mixture):
        y = sr.propagate(function, x, sr.rule("split", base=base, k=1))
        assert torch.equal(y.scale, sr.propagate(function, x, base).scale)


def test_a_stable_law_of_index_two_is_split_as_the_gaussian_that_it_is():
    function, zero = net(3, 20, 2), torch.zeros(1, 3)
    stable = sr.propagate(function, sr.SymmetricStable(zero, torch.ones(1, 3), 2.0), "split")
    gaussian = sr.propagate(function, sr.DiagonalGaussian(zero, 2 * torch.ones(1, 3)), "split")
    assert stable.pieces > 1
    assert torch.equal(stable.covariance, gaussian.covariance)


def test_images_are_split_along_directions_that_reach_the_outputs():
    torch.manual_seed(0)
    convolution = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)).eval()
    x = law(2, 1, 8, 8)
    seen = Seen()
    y = Split(seen, 9).propagate(convolution, x)
    assert 1 < y.pieces <= 9
    together = sr.Mixture(y.weights, seen.laws[-1])
    assert torch.allclose(together.mean, x.mean)
    assert torch.allclose(together.covariance, x.covariance)
    jacobian = torch.autograd.functional.jacobian(lambda v: convolution(v[None])[0], x.mean[0]).flatten(1)
    moved = (seen.laws[-1].mean.flatten(1) - x.mean[0].flatten())[: y.pieces]
    basis = torch.linalg.qr(jacobian.mT)[0]
    assert torch.allclose(moved @ basis @ basis.mT, moved)


def test_a_mixture_is_split_component_by_component():
    weights = torch.tensor([[0.2, 0.8]])
    parts = law(2, 4)
    x = sr.Mixture(weights, parts)
    function = net(4, 20, 3)
    y = sr.propagate(function, x, sr.rule("split", base="sdp", k=18))
    alone = sr.propagate(function, parts, sr.rule("split", base="sdp", k=9))
    assert torch.allclose(y.mean[0], weights[0] @ alone.mean)


def test_specs_name_base_and_pieces_both_ways():
    rule = sr.rule("split:base=unscented:kappa=2.0,k=4")
    assert rule.spec == "split:base=unscented:kappa=2.0,k=4"
    assert sr.rule(rule.spec) == rule
    assert sr.rule("split:base=sdp,k=64") == sr.rule("split", base="sdp", k=64) == Split(sr.rule("sdp"), 64)
    assert traits(sr.rule("split", base="marginal_sdp")).marginal
    assert not traits(sr.rule("split", base="sdp")).marginal


def test_split_refuses_nets_that_its_base_refuses():
    with pytest.raises(sr.UnsupportedError, match="dvia"):
        sr.propagate(net(3, 20, 2, activation=nn.Tanh), law(1, 3), "split:base=dvia")


def test_covariances_of_many_inputs_are_refused_by_their_size():
    flat = nn.Sequential(nn.Flatten(), nn.Linear(2**14, 20), nn.ReLU(), nn.Linear(20, 2))
    with pytest.raises(sr.UnsupportedError, match=r"covariances of 16384 inputs, .* GB; take fewer pieces"):
        sr.propagate(flat, law(1, 128, 128), "split:base=sdp,k=9")


def test_one_piece_is_the_law_of_the_base():
    x = law(2, 4)
    split = sr.propagate(net(4, 20, 3), x, "split:base=sdp,k=1")
    whole = sr.propagate(net(4, 20, 3), x, "sdp")
    assert isinstance(split, sr.Gaussian)
    assert torch.equal(split.covariance, whole.covariance)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_many_pieces_come_nearer_to_the_true_law(seed):
    """By more than three times the sampling error of the shared mass, which is about 0.01."""
    function = net(4, 20, 20, 3, seed=seed)
    assert gain(function, law(1, 4, variance=25.0, seed=seed), "divided_difference", 64) > 0.03
