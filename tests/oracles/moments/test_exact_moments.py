import math

import numpy as np
import pytest
import torch

import sdp_ref as sr
from sdp_bench import oracles
from sdp_bench.bench.datasets.base import stratified_rows
from sdp_bench.bench.experiments import ci
from sdp_bench.bench.nets.net import inputs_of

SAMPLES = 10**6
BLOCKS = 200


def cell(depth, flower, sigma):
    """A committed net, and noise about one of its inputs."""
    found = next(net for net in ci.nets() if net.architecture.depth == depth)
    data = inputs_of(found)
    x = data.batch([stratified_rows(data.labels, 3)[flower]]).double()
    return found.build().double(), sr.DiagonalGaussian(x, torch.full_like(x, sigma**2))


@pytest.mark.parametrize(
    ("depth", "flower", "sigma"),
    [
        (1, 2, 0.1),
        pytest.param(1, 0, 0.3, marks=pytest.mark.slow),
        *(pytest.param(2, flower, 0.1, marks=pytest.mark.slow) for flower in range(3)),
        *(pytest.param(4, flower, 0.1, marks=pytest.mark.slow) for flower in range(3)),
        pytest.param(4, 1, 0.03, marks=pytest.mark.slow),
    ],
)
def test_the_oracles_moments_are_the_exact_ones_within_their_standard_errors(depth, flower, sigma):
    """Means and covariances in the axes of the exact covariance: 3 and 6 numbers, none off by 4.5 errors."""
    net, x = cell(depth, flower, sigma)
    law = sr.propagate(net, x, "exact")
    values, axes = np.linalg.eigh(law.covariance[0].numpy())
    assert values.min() > 0
    mean = law.mean[0].numpy()
    drawn = oracles.sample_outputs(net, x, SAMPLES, seed=7).double().numpy()
    whitened = (drawn - mean) @ (axes / np.sqrt(values))
    blocks = np.stack(np.array_split(whitened, BLOCKS))
    upper = np.triu_indices(3)
    products = np.einsum("bni,bnj->bij", blocks, blocks)[:, *upper] / blocks.shape[1]
    # Beside the noise of the samples: what the rule's own integrals may be off.
    own = sr.rule("exact").tolerance
    for found, want in ((blocks.mean(1), np.zeros(3)), (products, np.eye(3)[upper])):
        error = found.std(0, ddof=1) / math.sqrt(BLOCKS)
        assert bool((np.abs(found.mean(0) - want) < 4.5 * error + own).all())
        assert float(error.max()) < 0.01  # else anything would do
