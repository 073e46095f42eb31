import numpy as np
import pytest

from sdp_bench.oracles.partitions.principal import PrincipalCells, floor_of_largest, largest_total_variation
from sdp_bench.oracles.partitions.tree import EqualMassTree


def turned(samples, axes, seed):
    """A Gaussian whose principal standard deviations fall from 1 to .001."""
    rotation = np.linalg.qr(np.random.default_rng(axes).standard_normal((axes, axes)))[0]
    return np.random.default_rng(seed).standard_normal((samples, axes)) * np.logspace(0, -3, axes) @ rotation


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_of_three_axes_the_tree_is_all(axes):
    pilot, samples = turned(5000, axes, 1), turned(3000, axes, 2)
    counts = PrincipalCells.from_samples(pilot).counts(samples)
    assert np.array_equal(counts, EqualMassTree.from_samples(pilot).counts(samples)[None])


@pytest.mark.parametrize(("axes", "pairs"), [(4, 6), (20, 190), (30, 180), (200, 200)])
def test_every_axis_is_in_a_pair_and_no_pair_is_there_twice(axes, pairs):
    cells = PrincipalCells.from_samples(turned(600, axes, 1), 64)
    assert len(cells.pairs) == pairs
    assert len({frozenset(pair) for pair in cells.pairs}) == pairs
    assert {axis for pair in cells.pairs for axis in pair} == set(range(axes))
    assert all(one != other for one, other in cells.pairs)


def test_an_output_that_is_constant_leaves_axes_on_which_no_edge_is():
    pilot = turned(1000, 4, 1)
    pilot[:, 0] = 1.7
    counts = PrincipalCells.from_samples(pilot, 64).counts(pilot)
    assert counts.sum(1).tolist() == [len(pilot)] * len(counts)


@pytest.mark.rounding
def test_grids_have_bins_of_equal_mass_and_tails_and_count_as_histogram2d():
    pilot, samples = turned(14_000, 5, 1), turned(20_001, 5, 2)
    cells = PrincipalCells.from_samples(pilot, 256)
    bins = cells.counts(pilot)[1:, :256].reshape(10, 16, 16).sum(2)
    assert (abs(bins - [140, 860, *[1000] * 12, 860, 140]) <= 1).all()
    coordinates = (samples - cells.tree.centre) @ cells.tree.axes
    counts = cells.counts(samples.astype(np.float64))
    assert (counts.sum(1) == len(samples)).all()
    for row, pair in zip(counts[1:], cells.pairs, strict=True):
        bins = [np.r_[-np.inf, cells.edges[axis], np.inf] for axis in pair]
        expected = np.histogram2d(*coordinates[:, pair].T, bins=bins)[0].ravel()
        assert np.array_equal(row, np.r_[expected, 0])


@pytest.mark.rounding
def test_no_edge_is_on_an_atom():
    """There rounding alone would part samples that are equal, as those of dead units are."""
    samples = np.maximum(turned(40_000, 6, 1) * np.logspace(0, 2, 6) - 0.2, 0) + 0.1
    cells = PrincipalCells.from_samples(samples[:20_000])
    counts = cells.counts(samples)
    for noise in (1e-16, -1e-16):
        assert np.array_equal(cells.counts(samples * (1 + noise) + noise), counts)


def test_the_largest_comes_with_its_own_standard_error():
    oracle, rule = np.array([[50, 50], [50, 50]]), np.array([[50, 50], [30, 70]])
    floor = floor_of_largest(oracle, 100)
    estimate = largest_total_variation(oracle, rule, floor)
    assert estimate.value == pytest.approx(0.2)
    assert estimate.stderr == pytest.approx(np.sqrt(0.5 * 0.5 / 100 + 0.3 * 0.7 / 100))
    assert (estimate.floor, estimate.floor95) == (floor.mean, floor.upper95)
