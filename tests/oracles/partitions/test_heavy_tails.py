import numpy as np

from sdp_bench import oracles
from sdp_bench.oracles.partitions.floors import total_variation_floor
from sdp_bench.oracles.partitions.heavy_tails import OutputBins, central_axes
from sdp_bench.oracles.partitions.partition import total_variation_of_counts
from sdp_bench.oracles.partitions.tree import principal_axes

ROTATION = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]


def flat_cauchy(seed, samples=2**16, scales=(1.0, 0.1, 0.001)):
    """A nearly flat law with heavy tails and known axes: independent Cauchy variates, rotated.

    As a ReLU net does, it goes another way far out: where the first variate is beyond 100 (0.6 %).
    """
    draws = np.random.default_rng(seed).standard_cauchy((samples, 3)) * np.array(scales)
    draws[:, 2] += np.maximum(np.abs(draws[:, 0]) - 100, 0)
    return draws @ ROTATION.T


def test_central_axes_are_those_of_the_bulk():
    centre, directions = central_axes(flat_cauchy(1))
    assert np.abs(directions.T @ directions - np.eye(3)).max() < 1e-12
    # The thin direction is found to within a fraction of the ratio of the scales.
    assert np.abs(ROTATION[:, 2] @ directions[:, :2]).max() < 1e-3
    assert np.linalg.norm(centre) < 0.1


def test_axes_of_a_covariance_do_not_see_the_thin_direction_of_a_heavy_tailed_law():
    """A third scale wrong by two: nearly unseen along the principal axes, as far as it is along its own."""
    pilot, truth = flat_cauchy(1), flat_cauchy(2)
    wrong = flat_cauchy(3, scales=(1.0, 0.1, 0.002))
    shown = {}
    for axes in (principal_axes, central_axes):
        tree = oracles.EqualMassTree.from_samples(pilot, 64, axes=axes)
        shown[axes] = oracles.total_variation(truth, wrong, tree)
    # Between Cauchy laws of scales 1 and 2: densities meet at +-sqrt(2).
    exact = 2 / np.pi * (np.arctan(np.sqrt(2)) - np.arctan(np.sqrt(0.5)))
    # Four cells along the third axis (level 6 of the tree is its second split): most of it is seen.
    assert 0.8 * exact < shown[central_axes].value < exact + 4 * shown[central_axes].stderr
    assert shown[principal_axes].value < 0.6 * exact


def test_output_bins_have_equal_mass_and_hold_the_tails():
    bins = OutputBins.from_samples(flat_cauchy(1, 2**18), 20)
    assert bins.cells == 20
    counts = bins.counts(flat_cauchy(2))
    assert counts.shape == (3, 20)
    assert (counts.sum(1) == 2**16).all()
    assert np.abs(counts / 2**16 * 20 - 1).max() < 0.1
    extreme = np.array([[1e300, -1e300, 0.0]])
    assert bins.counts(extreme).argmax(1)[:2].tolist() == [19, 0]


def test_output_bins_show_the_total_variation_of_each_output():
    """Cauchy laws one scale apart and two scales apart: the distance has a closed form."""
    generator = np.random.default_rng(4)
    truth, rule, pilot = (generator.standard_cauchy((200_000, 2)) for _ in range(3))
    rule = rule * np.array([2.0, 1.0]) + np.array([0.0, 1.0])
    exact = 2 / np.pi * np.array([np.arctan(np.sqrt(2)) - np.arctan(np.sqrt(0.5)), np.arctan(0.5)])
    bins = OutputBins.from_samples(pilot, 100)
    for oracle, other, value in zip(bins.counts(truth), bins.counts(rule), exact, strict=True):
        floor = total_variation_floor(oracle, 200_000)
        estimate = total_variation_of_counts(oracle, other, floor)
        # Bins may lose some (below one per cent of it here), and noise adds some.
        assert 0.99 * value - 4 * estimate.stderr < estimate.value < value + floor.mean + 4 * estimate.stderr


def test_an_output_that_is_constant_has_one_bin():
    pilot = np.column_stack([np.full(1000, 3.0), np.arange(1000.0)]).astype(np.float32)
    bins = OutputBins.from_samples(pilot, 5)
    counts = bins.counts(np.array([[3.0, 0.0], [3.0000002, 0.0], [2.9, 0.0], [3.1, 0.0]]))
    assert counts[0].tolist() == [1, 2, 1, 0, 0]
