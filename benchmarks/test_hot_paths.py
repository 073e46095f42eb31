"""Speed of the hot paths on the CI nets: `make hot-paths`, which saves it as JSON.

Plain times, to compare one saved file with another (`pytest-benchmark compare`). test_speed.py compares two
implementations in one run, which is more reliable on a shared machine. Nothing is asserted about time. One
thread.
"""

import pytest
import torch
from torch import nn

import sdp_ref as sr
from sdp_bench import oracles
from sdp_bench.bench.environment import threads
from sdp_bench.bench.experiments import ci
from sdp_bench.bench.experiments.law_group import LawGroup
from sdp_bench.bench.metrics.oracle import Oracle
from sdp_bench.bench.metrics.total_variation import HeadlineTotalVariation
from sdp_bench.bench.runs import driver as run
from sdp_bench.oracles.estimate.estimate import Floor

SAMPLES, POINTS = 2**17, 1000


@pytest.fixture(autouse=True)
def _one_thread():
    with threads(1):
        yield


def group_of(depth: int) -> LawGroup:
    """The group of the net with so many hidden layers, at noise of 1."""
    return next(group for group in ci.groups(sigmas=(1.0,)) if group.net.architecture.depth == depth)


def first_oracle(group: LawGroup) -> Oracle:
    """The oracle of the first input of a group, not drawn yet."""
    return Oracle(group.net.build(), group.law[0], group.keys[0], group.settings.sampling)


@pytest.mark.benchmark(group="oracle, 2^17 samples")
@pytest.mark.parametrize("depth", [1, 4])
@pytest.mark.parametrize("sampler", ["mc", "sobol"])
def test_oracle_draw_forward_and_bin(benchmark, depth, sampler):
    """2^17 samples, counted in the frozen cells."""
    group = group_of(depth)
    oracle = first_oracle(group)
    cells = HeadlineTotalVariation.of({}, group.settings.metric_options).partition(oracle)

    def draw():
        return cells.counts(oracles.sample_outputs(oracle.net, oracle.law, SAMPLES, seed=1, sampler=sampler))

    assert benchmark(draw).sum() == SAMPLES


@pytest.mark.benchmark(group="group of 3 inputs, all rules")
def test_one_group(benchmark):
    """Three inputs, all rules, the metrics of the gate; four hidden layers."""
    group, rounds = group_of(4), 3 if benchmark.enabled else 1
    result = benchmark.pedantic(run.run_group, (group, group.cells), rounds=rounds)
    assert not result.failures
    assert len(result.records) == 3 * len(ci.RULES) * len(ci.EXPERIMENT.metrics)


@pytest.mark.benchmark(group="propagation of 32 inputs")
@pytest.mark.parametrize("method", ["regular", "marginal_sdp", "sdp", "moment_matching"])
def test_propagation(benchmark, method):
    """A batch through four hidden layers, float64, once prepared; the regular pass is the baseline."""
    group = group_of(4)
    net, x = group.net.build().double(), group.locations[:1].double().expand(32, -1)
    law = sr.DiagonalGaussian(x, torch.ones_like(x))
    with torch.no_grad():
        run = (lambda _: net(x)) if method == "regular" else sr.rule(method).prepare(net)
        result = benchmark(run, law)
    assert (result if method == "regular" else result.location).shape == (32, 3)


@pytest.mark.benchmark(group="moment matching of one layer")
def test_full_moment_matching_of_one_layer(benchmark):
    """100 ReLU units with a full covariance: every pair's bivariate integral; one input, float64."""
    generator = torch.Generator().manual_seed(0)
    factor = torch.randn(100, 100, generator=generator, dtype=torch.float64)
    mean = torch.randn(1, 100, generator=generator, dtype=torch.float64)
    law = sr.Gaussian(mean, (factor @ factor.T)[None] / 100)
    propagate = sr.rule("moment_matching").prepare(nn.Sequential(nn.ReLU()))
    assert benchmark(propagate, law).covariance.shape == (1, 100, 100)


@pytest.mark.benchmark(group="W1 of 1000 points")
def test_w1(benchmark):
    """Exact W1 between 1000 points of an oracle and of a second one."""
    oracle = first_oracle(group_of(4))
    samples = oracle.samples, oracle.redrawn("again"), POINTS
    floor = {"floor": Floor(0.0, 0.0)}
    result = benchmark.pedantic(oracles.wasserstein, samples, floor, rounds=5, warmup_rounds=1)
    assert result.value > 0
