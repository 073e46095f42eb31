import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sdp_bench import oracles
from sdp_bench.oracles.partitions.floors import total_variation_floor
from sdp_bench.oracles.partitions.heavy_tails import OutputBins, central_axes
from sdp_bench.oracles.partitions.partition import total_variation_of_counts
from sdp_bench.oracles.partitions.principal import PrincipalCells, floor_of_largest, largest_total_variation
from sdp_bench.oracles.partitions.tree import EqualMassTree, principal_axes


def correlated(samples, seed):
    """Nearly flat outputs: principal standard deviations of about 1, 0.1 and 0.003, far from 0."""
    mixing = np.array([[1.0, 0.5, -0.7], [0.05, -0.1, 0.02], [0.002, 0.001, 0.004]])
    return np.random.default_rng(seed).standard_normal((samples, 3)) @ mixing + [5.0, -3.0, 20.0]


def partitions(pilot):
    return [
        oracles.AxisBins.from_samples(pilot),
        oracles.AxisBins.from_samples(pilot, bin_range="minmax"),
        oracles.EqualMassTree.from_samples(pilot, 64),
        oracles.Classes(pilot.shape[1]),
    ]


def test_the_quantile_range_leaves_one_in_a_thousand_outside_an_axis():
    pilot = correlated(200_000, 1)
    partition = oracles.AxisBins.from_samples(pilot)
    counts = partition.counts(pilot).reshape(12, 12, 12)
    for axis in range(3):
        line = counts.sum(tuple({0, 1, 2} - {axis})) / len(pilot)
        assert line[0] == pytest.approx(0.0005, rel=0.02)
        assert line[-1] == pytest.approx(0.0005, rel=0.02)


@pytest.mark.rounding
def test_the_tree_has_cells_of_equal_mass():
    tree = oracles.EqualMassTree.from_samples(correlated(2**17, 1), 512)
    assert tree.counts(correlated(2**17, 1)).tolist() == [2**8] * 512 + [0]
    fresh = tree.counts(correlated(2**17, 2))[:512]
    # the pilot's own noise doubles the variance of a cell's count
    assert abs(((fresh - 256) ** 2 / 512).sum() - 512) < 4 * np.sqrt(2 * 512)


@pytest.mark.parametrize("axes", [principal_axes, central_axes])
def test_the_tree_has_cells_of_equal_mass_under_heavy_tails(axes):
    samples = np.random.default_rng(5).standard_cauchy((2**14, 3)).astype(np.float32)
    tree = oracles.EqualMassTree.from_samples(samples, 64, axes=axes)
    assert tree.counts(samples).tolist() == [2**8] * 64 + [0]


def test_extremes_of_the_pilot_are_within_the_minmax_range():
    pilot = correlated(5000, 1).astype(np.float32)
    counts = oracles.AxisBins.from_samples(pilot, 7, "minmax").counts(pilot).reshape(9, 9, 9)
    assert counts[1:-1, 1:-1, 1:-1].sum() == len(pilot)


def test_the_tree_resolves_thin_directions():
    """A third principal standard deviation wrong by a factor of three is nearly as plain as a first."""
    rng = np.random.default_rng(3)
    rotation = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    sds = np.array([1.0, 0.1, 0.001])

    def draw(scale):
        return rng.standard_normal((100_000, 3)) * sds * scale @ rotation.T + 7

    tree = oracles.EqualMassTree.from_samples(draw(np.ones(3)))
    first = oracles.total_variation(draw(np.ones(3)), draw(np.array([3, 1, 1])), tree).value
    third = oracles.total_variation(draw(np.ones(3)), draw(np.array([1, 1, 3])), tree).value
    crossing = np.sqrt(2 * np.log(3) / (1 - 1 / 9))  # where the densities of scales 1 and 3 are equal
    exact = 2 * (stats.norm.cdf(crossing) - stats.norm.cdf(crossing / 3))
    assert exact - 0.08 < third <= exact + 0.01
    assert exact - 0.08 < first <= exact + 0.01


def test_a_rule_that_spreads_off_the_subspace_is_seen():
    rng = np.random.default_rng(3)
    plane = np.array([[1.0, 2.0, -1.0], [0.3, 0.0, 1.0]])
    flat = (rng.standard_normal((40_000, 2)) @ plane + 3).astype(np.float32)
    tree = oracles.EqualMassTree.from_samples(flat[:20_000], 64)
    assert tree.null.shape == (3, 1)
    assert tree.counts(flat[20_000:])[-1] == 0
    normal = np.cross(plane[0], plane[1]) / np.linalg.norm(np.cross(plane[0], plane[1]))
    off = (flat[20_000:] + 0.01 * rng.standard_normal((20_000, 1)) * normal).astype(np.float32)
    assert oracles.total_variation(flat[20_000:], off, tree).value > 0.99


def test_a_constant_output_is_a_point_mass():
    constant = np.tile(np.float32([0.1, 3.0, -200.0]), (5000, 1))
    neighbour = np.nextafter(constant, np.float32(np.inf))
    elsewhere = constant + np.float32([0, 0.01, 0])
    for partition in partitions(constant)[:3]:
        assert oracles.total_variation(constant, neighbour, partition).value == 0
        assert oracles.total_variation(constant, elsewhere, partition).value == 1
    differences = oracles.ScoreDifferences.from_samples(constant)
    values = [e.value for e in oracles.pairwise_total_variation(constant, elsewhere, differences)]
    assert values == [1.0, 0.0, 1.0]


def test_outputs_that_are_zero_are_a_point_mass():
    """No difference from zero is rounding, however small."""
    zero = np.zeros((600, 2))
    for partition in partitions(zero)[:3]:
        assert oracles.total_variation(zero, zero, partition).value == 0
        assert oracles.total_variation(zero, zero + np.array([0.0, 1e-9]), partition).value == 1


@pytest.mark.parametrize("atom", [0.3, 0.7])
def test_the_tree_keeps_an_atom_apart(atom):
    """An atom at zero, as of a ReLU, against mass moved from it to just above."""
    rng = np.random.default_rng(4)
    x = np.where(rng.random(100_000) < atom, 0.0, rng.exponential(size=100_000))[:, None]
    moved = np.where(x == 0, 0.01, x)
    tree = oracles.EqualMassTree.from_samples(x, 512)
    assert oracles.total_variation(x, moved, tree).value > atom - 0.01


@settings(max_examples=50, deadline=None)
@given(values=st.lists(st.integers(-3, 3), min_size=32, max_size=200), cells=st.sampled_from([2, 4, 16, 32]))
def test_a_tree_on_ties_still_covers_everything(values, cells):
    pilot = np.array(values, dtype=np.float64)[:, None]
    counts = oracles.EqualMassTree.from_samples(pilot, cells).counts(pilot)
    assert counts.sum() == len(values)
    assert counts[-1] == 0
    # cells are no coarser than they must be: a cell of several values has no more than its share
    if len(set(values)) <= 2:
        assert set(counts[counts > 0]) == set(np.unique(values, return_counts=True)[1])


def test_score_differences_have_equal_mass_per_pair():
    pilot = correlated(64_000, 1)
    partition = oracles.ScoreDifferences.from_samples(pilot, 64)
    assert partition.pairs == ((0, 1), (0, 2), (1, 2))
    counts = partition.counts(pilot)
    assert counts.shape == (3, 64)
    assert (np.abs(counts - 1000) <= 1).all()


def normal_cells(edges, mean, sd):
    return np.diff(stats.norm.cdf(np.r_[-np.inf, edges, np.inf], mean, sd))


@pytest.mark.parametrize("kind", ["axis", "tree", "differences"])
def test_total_variation_of_two_normals_is_known(kind):
    """Exact on the cells, since on a line every cell is an interval."""
    pilot = np.random.default_rng(0).standard_normal((20_000, 1))
    second = np.zeros((20_000, 1))
    if kind == "axis":
        bins = oracles.AxisBins.from_samples(pilot)
        edges = np.linspace(bins.low[0], bins.high[0], 11)
    elif kind == "tree":
        tree = oracles.EqualMassTree.from_samples(pilot, 32)
        edges = np.sort(tree.thresholds[1:] * tree.axes[0, 0]) + tree.centre[0]
    else:
        differences = oracles.ScoreDifferences.from_samples(np.hstack([pilot, second]), 32)
        edges = differences.edges[0]
    exact = np.abs(normal_cells(edges, 0, 1) - normal_cells(edges, 0.3, 1.2)).sum() / 2
    rng = np.random.default_rng(1)
    values, stderrs = [], []
    for _ in range(60):
        a, b = rng.standard_normal((4000, 1)), rng.normal(0.3, 1.2, (3000, 1))
        if kind == "differences":
            pair = (np.hstack([y, np.zeros_like(y)]) for y in (a, b))
            (estimate,) = oracles.pairwise_total_variation(*pair, differences)
        else:
            estimate = oracles.total_variation(a, b, bins if kind == "axis" else tree)
        values.append(estimate.value)
        stderrs.append(estimate.stderr)
    spread = np.std(values, ddof=1)
    # the mean of the raw value is above the truth, by no more than the floor and less with distance
    assert -3 * spread / np.sqrt(60) < np.mean(values) - exact < estimate.floor
    assert abs(np.mean(stderrs) / spread - 1) < 3 / np.sqrt(2 * 59)
    corrected = np.sqrt(np.mean(values) ** 2 - estimate.floor**2)
    assert abs(corrected - exact) < 3 * spread / np.sqrt(60) + estimate.floor**2 / exact


def test_the_floor_agrees_with_its_asymptotic_formula():
    p = np.random.default_rng(1).dirichlet(np.ones(200))
    counts = np.random.default_rng(2).multinomial(10**6, p)
    p = counts / counts.sum()
    floor = oracles.total_variation_floor(counts, 10**6, pairs=2000)
    assert floor.mean == pytest.approx(np.sqrt(p * (1 - p) / (np.pi * 10**6)).sum(), rel=0.01)
    assert floor.upper95 > floor.mean


def test_the_floor_depends_on_its_seed_alone():
    counts = np.arange(50)
    first = oracles.total_variation_floor(counts, 100, seed=1)
    assert first == oracles.total_variation_floor(counts, 100, seed=1)
    assert first != oracles.total_variation_floor(counts, 100, seed=2)


PILOT = correlated(1000, 1)
NAN = np.where(np.arange(3) == 1, np.nan, PILOT)
DIFFERENCES = oracles.ScoreDifferences.from_samples(PILOT)
FLOOR = oracles.Floor(0.0, 0.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: oracles.AxisBins.from_samples(PILOT, 0), "bins must be an integer of at least 1"),
        (lambda: oracles.AxisBins.from_samples(PILOT, bin_range="wide"), "'quantiles' or 'minmax'"),
        (lambda: oracles.AxisBins.from_samples(np.ones((50, 10))), "take fewer bins or an EqualMassTree"),
        (lambda: oracles.AxisBins.from_samples(NAN), "pilot has non-finite"),
        (lambda: oracles.AxisBins.from_samples(PILOT[0]), r"matrix \(samples, m\)"),
        (lambda: oracles.AxisBins.from_samples(PILOT.astype(int)), "floating-point matrix"),
        (lambda: oracles.EqualMassTree.from_samples(PILOT, 100), "power of two, got 100"),
        (lambda: oracles.EqualMassTree.from_samples(PILOT, 1024), "cannot fix 1024 cells"),
        (lambda: oracles.ScoreDifferences.from_samples(PILOT[:, :1]), "at least two outputs"),
        (lambda: oracles.ScoreDifferences.from_samples(PILOT, 2), "bins must be an integer of at least 3"),
        (lambda: oracles.Classes(0), "m must be an integer of at least 1"),
        (lambda: oracles.Classes(3).counts(PILOT[:0]), "got shape"),
        (lambda: oracles.Classes(3).counts(NAN), "samples have non-finite"),
        (lambda: oracles.Classes(4).counts(PILOT), "samples have 3 outputs, the partition 4"),
        (lambda: oracles.total_variation(PILOT, PILOT, DIFFERENCES), "pairwise_total_variation"),
        (lambda: oracles.total_variation_of_counts([1, 2], [1, 2, 3], FLOOR), "of the same cells"),
        (lambda: oracles.total_variation_of_counts([1, -2], [1, 2], FLOOR), "oracle_counts must be"),
        (lambda: oracles.total_variation_of_counts([1, 2], [0, 0], FLOOR), "rule_counts must be"),
        (lambda: OutputBins.from_samples(PILOT, 2), "bins must be an integer of at least 3"),
        (lambda: OutputBins.from_samples(NAN), "the pilot has non-finite entries"),
        (lambda: OutputBins.from_samples(PILOT[0]), "floating-point matrix"),
        (lambda: oracles.total_variation_floor([1, 2], 0), "rule_total must be an integer of at least 1"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def turned(samples, axes, seed):
    """A Gaussian with principal standard deviations from 1 down to .001."""
    rotation = np.linalg.qr(np.random.default_rng(axes).standard_normal((axes, axes)))[0]
    return np.random.default_rng(seed).standard_normal((samples, axes)) * np.logspace(0, -3, axes) @ rotation


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_of_three_axes_the_tree_is_all(axes):
    pilot, samples = turned(5000, axes, 1), turned(3000, axes, 2)
    counts = PrincipalCells.from_samples(pilot).counts(samples)
    assert np.array_equal(counts, EqualMassTree.from_samples(pilot).counts(samples)[None])


@pytest.mark.parametrize("cells", [2, 8, 64])
def test_of_few_cells_an_axis_has_edges_in_its_tails_and_at_its_median(cells):
    partition = PrincipalCells.from_samples(turned(1000, 5, 1), cells)
    assert partition.edges.shape == (5, 7 if cells == 64 else 3)
    counts = partition.counts(turned(3000, 5, 2))
    assert counts.shape == (11, partition.cells)
    assert (counts.sum(1) == 3000).all()


@pytest.mark.parametrize(("axes", "pairs"), [(4, 6), (20, 190), (30, 180), (200, 200)])
def test_every_axis_is_in_a_pair_and_no_pair_is_there_twice(axes, pairs):
    cells = PrincipalCells.from_samples(turned(600, axes, 1), 64)
    assert len(cells.pairs) == pairs
    assert len({frozenset(pair) for pair in cells.pairs}) == pairs
    assert {axis for pair in cells.pairs for axis in pair} == set(range(axes))
    assert all(one != other for one, other in cells.pairs)


def test_a_constant_output_leaves_axes_without_edges():
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
    truth = generator.standard_cauchy((200_000, 2))
    rule = generator.standard_cauchy((200_000, 2))
    pilot = generator.standard_cauchy((200_000, 2))
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
