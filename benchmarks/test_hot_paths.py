"""Speed of the hot paths on the CI nets: `make hot-paths`, which saves it as JSON.

Plain times, to compare one saved file with another (`pytest-benchmark compare`). test_speed.py compares two
implementations in one run, which is more reliable on a shared machine.
Nothing is asserted about time. One thread.
"""

import pytest
import torch
from torch import nn

import sdp_ref as sr
from sdp_bench import oracles
from sdp_bench.bench.environment import threads
from sdp_bench.bench.experiments import ci
from sdp_bench.bench.manifests import oracles as oracles_of
from sdp_bench.bench.metrics.total_variation import HeadlineTotalVariation
from sdp_bench.bench.runs import driver as run
from sdp_bench.oracles.estimate.estimate import Floor

SAMPLES = 2**17
POINTS = 1000


@pytest.fixture(autouse=True)
def _one_thread():
    with threads(1):
        yield


@pytest.fixture(scope="module")
def groups():
    """One for each net, at noise of 1."""
    found = ci.groups(sigmas=(1.0,))
    return {group.net.architecture.depth: group for group in found}


@pytest.fixture(scope="module")
def oracle(groups):
    """Oracle of the first input of the net with four hidden layers."""
    return next(each for _, _, each in oracles_of([groups[4]]))


@pytest.mark.benchmark(group="oracle, 2^17 samples")
@pytest.mark.parametrize("depth", [1, 4])
@pytest.mark.parametrize("sampler", ["mc", "sobol"])
def test_oracle_draw_forward_and_bin(benchmark, groups, depth, sampler):
    """2^17 samples, counted in the frozen cells."""
    own = next(each for _, _, each in oracles_of([groups[depth]]))
    headline = HeadlineTotalVariation.of({}, groups[depth].settings.metric_options)
    cells = headline.partition(own)

    def draw():
        return cells.counts(oracles.sample_outputs(own.net, own.law, SAMPLES, seed=1, sampler=sampler))

    counts = benchmark(draw)
    assert counts.sum() == SAMPLES


@pytest.mark.benchmark(group="group of 3 inputs, all rules")
def test_one_group(benchmark, groups):
    """Three inputs, all rules, the metrics of the gate; four hidden layers."""
    result = benchmark.pedantic(
        run.run_group, (groups[4], groups[4].cells), rounds=3 if benchmark.enabled else 1
    )
    assert not result.failures
    assert len(result.records) == 3 * len(ci.RULES) * len(ci.EXPERIMENT.metrics)


@pytest.mark.benchmark(group="propagation of 32 inputs")
@pytest.mark.parametrize("method", ["regular", "marginal_sdp", "sdp", "moment_matching"])
def test_propagation(benchmark, groups, method):
    """A batch through four hidden layers, float64, once prepared; the regular pass is the baseline."""
    net = groups[4].net.build().double()
    x = groups[4].locations[:1].double().expand(32, -1)
    with torch.no_grad():
        if method == "regular":
            location = benchmark(net, x)
        else:
            law = sr.DiagonalGaussian(x, torch.ones_like(x))
            location = benchmark(sr.rule(method).prepare(net), law).location
    assert location.shape == (32, 3)


@pytest.mark.benchmark(group="moment matching of one layer")
def test_full_moment_matching_of_one_layer(benchmark):
    """100 ReLU units with a full covariance: every pair's bivariate integral; one input, float64."""
    generator = torch.Generator().manual_seed(0)
    factor = torch.randn(100, 100, generator=generator, dtype=torch.float64) / 10
    law = sr.Gaussian(
        torch.randn(1, 100, generator=generator, dtype=torch.float64), (factor @ factor.T)[None]
    )
    propagate = sr.rule("moment_matching").prepare(nn.Sequential(nn.ReLU()))
    found = benchmark(propagate, law)
    assert found.covariance.shape == (1, 100, 100)


@pytest.mark.benchmark(group="W1 of 1000 points")
def test_w1(benchmark, oracle):
    """Exact W1 between 1000 points of the oracle and of a second one."""
    other = oracle.redrawn("again")
    floor = Floor(0.0, 0.0)
    found = benchmark.pedantic(
        oracles.wasserstein, (oracle.samples, other, POINTS), {"floor": floor}, rounds=5, warmup_rounds=1
    )
    assert found.value > 0
