import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sdp_bench import oracles


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
    exact = 2 * (stats.norm.cdf(r := np.sqrt(2 * np.log(3) / (1 - 1 / 9))) - stats.norm.cdf(r / 3))
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
        (lambda: oracles.AxisBins.from_samples(PILOT.astype(int)), "floating-point matrix"),
        (lambda: oracles.EqualMassTree.from_samples(PILOT, 100), "power of two, got 100"),
        (lambda: oracles.EqualMassTree.from_samples(PILOT, 1024), "cannot fix 1024 cells"),
        (lambda: oracles.ScoreDifferences.from_samples(PILOT[:, :1]), "at least two outputs"),
        (lambda: oracles.ScoreDifferences.from_samples(PILOT, 2), "bins must be an integer of at least 3"),
        (lambda: oracles.Classes(3).counts(NAN), "samples have non-finite"),
        (lambda: oracles.Classes(4).counts(PILOT), "samples have 3 outputs, the partition 4"),
        (lambda: oracles.total_variation(PILOT, PILOT, DIFFERENCES), "pairwise_total_variation"),
        (lambda: oracles.total_variation_of_counts([1, 2], [1, 2, 3], FLOOR), "of the same cells"),
        (lambda: oracles.total_variation_of_counts([1, -2], [1, 2], FLOOR), "oracle_counts must be"),
        (lambda: oracles.total_variation_floor([1, 2], 0), "rule_total must be an integer of at least 1"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
