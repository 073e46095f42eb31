import copy
import functools
import itertools

import numpy as np
import pytest
import torch
from torch import nn

import sdp_ref
from sdp_bench import oracles
from sdp_bench.bench.replay.error_by_layer import error_by_layer, halves
from sdp_bench.bench.replay.layers import (
    BLOCKS,
    Gaussians,
    Laws,
    layers_of,
    merged,
    moments_after,
    sample_layers,
    squared_distance,
)
from sdp_bench.oracles.moments.moments import Moments
from sdp_ref.laws import DiagonalGaussian
from tests.sdp_ref.common import mlp

X = DiagonalGaussian(torch.tensor([[0.3, -1.2, 0.8]]), torch.tensor([[0.5, 2.0, 1.0]]))
SAMPLES = 2**16
chain = functools.partial(mlp, seed=3, dtype=torch.float32)


def squared(a, b):
    return squared_distance(Gaussians.of(a), Gaussians.of(b))


def moments_of(law):
    return Laws(law.mean.detach(), law.covariance.detach())  # type: ignore[attr-defined]


def w2(a, b):
    return float(squared(a, b).sum().sqrt())


def of_rule(net, rule, samples=SAMPLES, *, whitened=False):
    layer_moments = sample_layers(layers_of(net, X.location), X, samples, seed=1)
    double = layers_of(net.double(), X.location)
    wide = X.to(dtype=torch.float64)
    propagator = sdp_ref.rule(rule)
    laws = [moments_of(wide)]
    for count in range(1, len(double) + 1):
        law = propagator.propagate(nn.Sequential(*double[:count]), wide)
        laws.append(moments_of(law))
    independent = rule.startswith("marginal")
    return error_by_layer(double, layer_moments, laws, independent=independent, whitened=whitened)


def test_moments_of_layers_do_not_depend_on_the_precision_of_the_net():
    net = chain(3, 7, 5, 2)
    single = sample_layers(layers_of(net, X.location), X, 20_011, seed=4)
    double_input = X.to(dtype=torch.float64)
    double = sample_layers(layers_of(net.double(), double_input.location), double_input, 20_011, seed=4)
    for of_single, of_double in zip(single.moments, double.moments, strict=True):
        # The samples differ in rounding only.
        np.testing.assert_allclose(of_double.mean, of_single.mean, rtol=0, atol=1e-5)
        np.testing.assert_allclose(of_double.covariance, of_single.covariance, rtol=0, atol=1e-4)


@pytest.mark.parametrize("sampler", ["mc", "sobol"])
def test_moments_of_layers_are_those_of_the_oracles_samples(sampler):
    net, samples = chain(3, 7, 5, 2), 20_011  # no multiple of the number of blocks
    layer_moments = sample_layers(layers_of(net, X.location), X, samples, seed=4, sampler=sampler)
    for index, layer in enumerate(range(1, len(net) + 1), start=1):
        with torch.no_grad():
            drawn = oracles.sample_outputs(net[:layer], X, samples, seed=4, sampler=sampler).double().numpy()
        moments = layer_moments.moments[index]
        assert moments.samples == samples
        np.testing.assert_allclose(moments.mean, drawn.mean(0), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(moments.covariance, np.cov(drawn.T, bias=True), rtol=1e-4, atol=1e-5)
        blocks = Moments.from_samples(drawn, BLOCKS)
        np.testing.assert_allclose(moments.block_means, blocks.block_means, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(moments.block_covariances, blocks.block_covariances, rtol=1e-4, atol=1e-5)


def test_standard_errors_cover_the_exact_moments_of_a_linear_layer():
    net = chain(3, 4)
    weight = net[0].weight.detach().double()
    exact_mean = (net[0](X.mean)[0]).detach().double().numpy()
    exact = (weight @ X.covariance[0].double() @ weight.T).numpy()
    moments = sample_layers(layers_of(net, X.location), X, SAMPLES, seed=8).moments[1]
    errors = moments.block_covariances.std(0, ddof=1) / np.sqrt(BLOCKS)
    assert (np.abs(moments.covariance - exact) < 5 * errors).all()
    assert (np.abs(moments.mean - exact_mean) < 5 * np.sqrt(np.diag(exact) / SAMPLES)).all()


def test_the_net_is_cut_where_everything_is_one_value():
    first, inner, last = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def net(x):
        y = first(x)
        return last(y + torch.relu(inner(y)))

    layers = layers_of(net, X.location)
    assert [layer.label for layer in layers] == ["Linear", "3 ops up to Add", "Linear"]
    assert [layer.exact for layer in layers] == [True, False, True]
    x = torch.randn(5, 3)
    torch.testing.assert_close(nn.Sequential(*layers)(x), net(x))
    torch.testing.assert_close(merged(layers)(x), net(x))


def test_a_residual_block_without_a_formula_is_referred_to_samples():
    inner = chain(3, 3).double()

    def net(x):
        return x + torch.relu(inner(x.to(inner[0].weight.dtype)))

    wide = X.to(dtype=torch.float64)
    (layer,) = layers_of(net, wide.location)
    sampled = moments_after(layer, moments_of(wide), torch.Size([3]), seed=5)
    exact = sdp_ref.propagate(net, wide, "moment_matching")  # exact for a skip around one hidden layer
    np.testing.assert_allclose(sampled.mean, exact.mean.detach(), atol=0.03)  # type: ignore[attr-defined]
    np.testing.assert_allclose(sampled.covariance, exact.covariance.detach(), atol=0.1)  # type: ignore[attr-defined]


@pytest.mark.rounding
@pytest.mark.parametrize("activation", [nn.ReLU, nn.GELU])
def test_moment_matching_has_no_rule_error(activation):
    errors = of_rule(chain(3, 12, 12, 2, activation=activation), "moment_matching")
    assert errors["rule_error"].max() < 1e-6
    assert errors["formula_at_output"].max() < 1e-6
    assert not errors["dropped_at_output"].any()
    assert errors.attrs["total"] > errors.attrs["floor95"]  # closure at the second activation


def test_an_affine_net_has_no_closure_error():
    errors = of_rule(chain(3, 6, 4, 2, activation=nn.Identity), "sdp")
    # Of the values, one often exceeds the 95 % point of a correct rule.
    assert (errors["closure_error"] < 1.5 * errors["floor95"]).all()
    assert (errors["total"] < 1.5 * errors["floor95"]).all()
    assert errors["rule_error"].max() < 1e-6


def test_with_one_hidden_layer_all_error_is_the_rules_own():
    errors = of_rule(chain(3, 16, 2), "sdp")
    assert (errors["closure_error"] < 2 * errors["floor95"]).all()
    assert errors["rule_error"][1] > 0.05  # the linearised ReLU
    assert errors["rule_error"][0] == pytest.approx(0, abs=1e-6)
    assert errors["formula_at_output"][1] == pytest.approx(
        errors.attrs["total"], abs=3 * errors.attrs["floor95"]
    )
    assert errors["share"][1] > 0.9


def test_a_marginal_rule_errs_by_the_covariances_it_drops():
    errors = of_rule(chain(3, 6, 2, activation=nn.Identity), "marginal_moment_matching")
    assert errors["formula_at_output"].max() < 1e-6
    assert errors["dropped_at_output"][0] > 0.05
    np.testing.assert_allclose(errors["rule_error"], errors["dropped"], atol=1e-9)
    # The true law is replaced by one with independent components, which loses as much.
    assert errors["closure_error"][1] > 0.05


@pytest.mark.parametrize("whitened", [False, True])
@pytest.mark.parametrize("rule", ["marginal_sdp", "unscented"])
def test_contributions_of_layers_are_at_least_the_error_of_the_output(rule, whitened):
    errors = of_rule(chain(3, 10, 10, 2), rule, samples=2**14, whitened=whitened)
    assert errors["at_output"].sum() >= errors.attrs["total"] - 1e-9
    causes = errors[["formula_at_output", "dropped_at_output", "closure_at_output"]]
    np.testing.assert_allclose(causes.sum(axis=1), errors["at_output"])
    assert errors["share"].sum() == pytest.approx(1)
    if not whitened:  # the output is the last layer
        names = ["total", "floor", "floor95", "stderr"]
        assert [errors.attrs[name] for name in names] == pytest.approx(list(errors.iloc[-1][names]), rel=1e-9)


def test_whitened_errors_do_not_depend_on_linear_maps_of_the_output():
    net = chain(3, 10, 2)
    skewed = copy.deepcopy(net)
    matrix = torch.tensor([[30.0, 2.0], [0.1, -0.5]])
    with torch.no_grad():
        skewed[2].weight.copy_(matrix @ net[2].weight)
        skewed[2].bias.copy_(matrix @ net[2].bias)
    # Whitened outputs differ by a rotation, under which W2 does not change.
    plain = of_rule(net, "sdp", samples=2**12, whitened=True)
    mapped = of_rule(skewed, "sdp", samples=2**12, whitened=True)
    assert plain.attrs["total"] > 0.1
    assert mapped.attrs["total"] == pytest.approx(plain.attrs["total"], rel=1e-3)
    assert mapped["share"][1] == pytest.approx(plain["share"][1], rel=1e-3)


def test_closure_at_the_output_is_between_true_laws_carried_on():
    net = chain(3, 8, 8, 2)
    contributions = of_rule(net, "sdp", samples=2**13)["closure_at_output"]
    double, wide = layers_of(net, X.location), X.to(dtype=torch.float64)
    layer_moments = sample_layers(layers_of(copy.deepcopy(net).float(), X.location), X, 2**13, seed=1)
    truths = [moments_of(wide), *map(Laws.true, layer_moments.moments[1:])]

    def carried(start, laws):
        for index in range(start, len(double)):
            laws = moments_after(double[index], laws, layer_moments.shapes[index], seed=0)
        return laws

    ends = [carried(index, laws) for index, laws in enumerate(truths)]
    exact = sdp_ref.propagate(net, wide, "moment_matching")
    torch.testing.assert_close(ends[0].mean, exact.mean.detach())  # type: ignore[attr-defined]
    torch.testing.assert_close(ends[0].covariance, exact.covariance.detach())  # type: ignore[attr-defined]
    spread = float(ends[-1].covariance[0].trace()) ** 0.5
    expected = [w2(a, b) / spread for a, b in itertools.pairwise(ends)]
    np.testing.assert_allclose(contributions, expected, rtol=1e-6, atol=1e-7)


def test_distances_of_known_pairs():
    eye = torch.eye(3, dtype=torch.float64)[None]
    zeros, ones = torch.zeros(1, 3, dtype=torch.float64), torch.ones(1, 3, dtype=torch.float64)
    mean, spread = squared(Laws(ones, 4 * eye), Laws(zeros, eye))[:, 0]
    assert float(mean) == pytest.approx(3)
    assert float(spread) == pytest.approx(3)  # sum of (2 - 1)^2
    # between N(0, diag(a)) and N(0, diag(b)): sum of (sqrt(a) - sqrt(b))^2, singular ones too
    a, b = torch.tensor([[4.0, 0.0, 9.0]]).double(), torch.tensor([[1.0, 0.0, 0.0]]).double()
    _, spread = squared(Laws(zeros, torch.diag_embed(a)), Laws(zeros, torch.diag_embed(b)))[:, 0]
    assert float(spread) == pytest.approx(1 + 9)
    torch.manual_seed(0)
    root = torch.randn(1, 30, 30, dtype=torch.float64)
    root[:, :, 10:] = 0  # of rank 10
    matrix, origin = root @ root.mT, torch.zeros(1, 30, dtype=torch.float64)
    near = matrix * (1 + 1e-15)
    relative = squared(Laws(origin, matrix), Laws(origin, near))[1, 0] / matrix[0].trace()
    assert float(relative.sqrt()) < 1e-6


def test_the_floor_is_what_an_exact_law_shows():
    net = chain(3, 5, 2)
    layers, exact = (
        layers_of(net, X.location),
        sdp_ref.propagate(net.double(), X.to(dtype=torch.float64), "moment_matching"),
    )
    law = moments_of(exact)
    net.float()
    distances, noises = [], []
    for seed in range(24):
        moments = sample_layers(layers, X, 2**12, seed=seed).moments[-1]
        distances.append(w2(law, Laws.true(moments)))
        noises.append(float(squared(*halves(moments)).sum(0).sqrt().mean() / 2))
    assert np.mean(noises) == pytest.approx(np.mean(distances), rel=0.25)


def test_nets_that_are_too_wide_are_refused_in_a_line():
    net = nn.Sequential(nn.Linear(3, 4000), nn.ReLU(), nn.Linear(4000, 2)).eval()
    with pytest.raises(ValueError, match=r"4,000 units.*more than 2\.15 GB"):
        sample_layers(layers_of(net, X.location), X, 1000, seed=1)
    with pytest.raises(ValueError, match="no layers"):
        layers_of(lambda x: x, X.location)


def test_errors_of_rounding_are_known_as_such():
    """SDP is exact for a linear net: under little noise what is seen is the oracle's float32."""
    ratios = []
    for scale in (1e-7, 1e-6, 1e-2):
        net = chain(3, 4, seed=0)
        x = DiagonalGaussian(X.mean, scale**2 * X.variance)
        layer_moments = sample_layers(layers_of(net, X.location), x, SAMPLES, seed=1)
        double, wide = layers_of(net.double(), X.location), x.to(dtype=torch.float64)
        law = sdp_ref.rule("sdp").propagate(net, wide)
        laws = [moments_of(wide), moments_of(law)]
        output = error_by_layer(double, layer_moments, laws, independent=False).attrs
        assert output["total"] < max(output["rounding"], output["floor95"] * 1.5)
        ratios.append(output["rounding"])
    assert ratios[1] > 0.05
    assert ratios[2] < 1e-4
