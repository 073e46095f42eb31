import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from sdp_bench import oracles
from sdp_bench.bench.identity import OracleKey, Sampling
from sdp_bench.bench.metrics.oracle import Oracle
from sdp_bench.bench.metrics.total_variation import HeadlineTotalVariation
from sdp_bench.bench.nets.architectures import Architecture
from sdp_bench.bench.nets.fully_connected import committed
from sdp_bench.bench.nets.net import inputs_of
from sdp_bench.bench.nets.recipes import recipe_for
from sdp_bench.bench.noise import GAUSSIAN
from sdp_ref.laws import DiagonalGaussian

SAMPLES = 2**17
SAMPLING = Sampling(SAMPLES, pilot_samples=2**15)
KEY = OracleKey("net", "x", "gaussian:sigma=1", "mc", SAMPLES)
NORMAL = DiagonalGaussian(torch.zeros(1, 2), torch.ones(1, 2))
HEADLINE = HeadlineTotalVariation(pilot_samples=2**15)


def oracle_of(activation, depth, sigma, noise=GAUSSIAN):
    """Oracle of a net of the package, at one flower."""
    architecture = Architecture(depth, activation)
    (net,) = committed(architecture, recipe_for(architecture), 1)
    return Oracle(net.build(), noise.law(inputs_of(net).batch([42]), sigma), KEY, SAMPLING)


def linear(weight, bias=0.0, dtype=torch.float32):
    net = nn.Linear(2, 2)
    with torch.no_grad():
        net.weight.copy_(torch.tensor(weight))
        net.bias.fill_(bias)
    return net.to(dtype)


def in_float64(oracle, purpose):
    net, law = copy.deepcopy(oracle.net).double(), oracle.law.to(dtype=torch.float64)
    return oracles.sample_outputs(net, law, SAMPLES, seed=oracle.key.seed(purpose))


@pytest.mark.parametrize("sigma", [10.0, 1000.0])
def test_no_oracle_of_a_sigmoid_net_is_further_from_its_law_than_chance(sigma):
    """In float32 the saturated net's thin directions are steps: the law itself showed twice the floor."""
    oracle = oracle_of("sigmoid", 4, sigma)
    distance = oracle.total_variation(HEADLINE.partition(oracle), in_float64(oracle, "independent"))
    assert distance.value < distance.floor95 * 1.03
    assert oracle.precision == "float64"
    assert oracle.rounding.moved > 2 * oracle.rounding.allowed


def test_an_oracle_that_float32_is_enough_for_is_drawn_as_ever():
    oracle = oracle_of("relu", 4, 1.0)
    assert oracle.precision == "float32"
    for purpose, samples in (("oracle", oracle.samples), ("again", oracle.redrawn("again"))):
        seed = oracle.key.seed(purpose)
        assert torch.equal(samples, oracles.sample_outputs(oracle.net, oracle.law, SAMPLES, seed=seed))
    assert 0 <= oracle.rounding.moved < oracle.rounding.allowed / 5


def test_a_direction_that_float32_drops_is_kept():
    """Two outputs about 100 that differ by noise of 1e-8, below what float32 resolves there."""
    oracle = Oracle(linear([[1.0, 0.0], [1.0, 1e-8]], 100.0), NORMAL, KEY, SAMPLING)
    assert (oracle.rounding.single, oracle.rounding.double) == (1, 2)
    assert oracle.precision == "float64"
    assert HEADLINE.partition(oracle).axes.shape[1] == 2
    exact = oracle.redrawn("independent")
    wrong = exact.clone()
    wrong[:, 1] = wrong[:, 0] + 10 * (exact[:, 1] - exact[:, 0])
    cells = HEADLINE.partition(oracle)
    assert oracle.total_variation(cells, exact).value < 0.06
    assert oracle.total_variation(cells, wrong).value > 0.5


def test_a_direction_that_no_precision_has_is_no_reason_for_float64():
    oracle = Oracle(linear([[1.0, 0.5], [1.0, 0.5]]), NORMAL, KEY, SAMPLING)
    assert (oracle.rounding.single, oracle.rounding.double) == (1, 1)
    assert oracle.precision == "float32"
    constant = Oracle(linear([[0.0, 0.0], [0.0, 0.0]], 3.0), NORMAL, KEY, SAMPLING)
    assert constant.precision == "float32"


def test_a_large_common_offset_needs_float64_and_a_net_in_float64_has_it():
    """One of 1e4 with noise of 1e-2 added leaves ten steps to a standard deviation."""
    narrow = DiagonalGaussian(torch.zeros(1, 2), torch.full((1, 2), 1e-4))
    oracle = Oracle(linear([[1.0, 0.0], [0.0, 1.0]], 1e4), narrow, KEY, SAMPLING)
    assert oracle.rounding.matters
    assert oracle.pilot(1000).dtype == oracle.samples.dtype == torch.float64
    assert oracle.samples.std(0).tolist() == pytest.approx([0.01, 0.01], rel=0.01)
    double = Oracle(
        linear([[1.0, 0.0], [0.0, 1.0]], 1e4, torch.float64), narrow.to(dtype=torch.float64), KEY, SAMPLING
    )
    assert not double.rounding.matters
    assert torch.equal(double.samples, oracle.samples)


def test_more_samples_ask_for_less_rounding_and_the_seed_alone_decides():
    oracle = oracle_of("relu", 4, 0.01)
    allowed = [
        Oracle(oracle.net, oracle.law, replace(KEY, samples=n), SAMPLING).rounding.allowed
        for n in (10**6, 10**8)
    ]
    assert allowed == [pytest.approx(0.00638, abs=1e-5), pytest.approx(0.000638, abs=1e-6)]
    assert oracle.rounding == Oracle(oracle.net, oracle.law, KEY, SAMPLING).rounding
