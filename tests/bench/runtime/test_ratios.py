"""Counted operations and relative times of the asv suite."""

import torch

from sdp_bench.bench.runtime.ratios import cost, operations


def test_operations_are_those_of_the_matrix_products():
    net = torch.nn.Sequential(torch.nn.Linear(4, 100), torch.nn.ReLU(), torch.nn.Linear(100, 3))
    assert operations(lambda: net(torch.zeros(7, 4))) == 2 * 7 * (4 * 100 + 100 * 3)


def test_marginal_sdp_takes_two_regular_passes_of_products():
    """One for the location and one for the scale."""
    ratio, counted = cost("mlp-4x100", "marginal_sdp", "forward")
    assert counted == 2
    assert 1 < ratio.lower <= ratio.median <= ratio.upper
