"""The command that says how far the laws of the suites are from their own in float64."""

import pytest

from sdp_bench.bench.experiments import experiment
from sdp_bench.bench.identity import Sampling
from sdp_bench.bench.nets.architectures import Architecture
from sdp_bench.bench.nets.fully_connected import committed
from sdp_bench.bench.nets.recipes import recipe_for
from sdp_bench.bench.noise import CAUCHY, GAUSSIAN
from sdp_bench.bench.runs.precision import distance, distances, main

SAMPLING = Sampling(2**17, pilot_samples=2**15)


def net_of(activation, depth):
    architecture = Architecture(depth, activation)
    (net,) = committed(architecture, recipe_for(architecture), 1)
    return net


def test_what_float32_moves_is_not_in_the_law_as_drawn():
    found = distance(net_of("sigmoid", 4), GAUSSIAN, 1000.0, SAMPLING)
    assert found.precision == "float64"
    assert found.drawn == 0 < found.floor95 < found.single
    assert "4" in str(found).split()[0]


@pytest.mark.parametrize("noise", [GAUSSIAN, CAUCHY])
def test_where_float32_is_enough_the_law_as_drawn_is_that_in_float32(noise):
    found = distance(net_of("relu", 1), noise, 1.0, SAMPLING)
    assert found.precision == "float32"
    assert 0 <= found.drawn == found.single < found.rounding.allowed


def test_every_noise_of_every_experiment_on_a_kind_is_looked_at():
    small = Sampling(2**11, pilot_samples=2**10)
    found = {each.noise for each in distances(["relu-1"], small)}
    asked = [experiment(name) for name in ("iris-tv", "iris-w1", "iris-cauchy")]
    assert found >= {
        f"{noise.name} {scale:g}" for each in asked for noise in each.noises for scale in each.sigmas
    }


def test_a_kind_that_no_experiment_has_is_told(capsys):
    assert main(["tanh-99"]) == 2
    assert "tanh-99" in capsys.readouterr().err
