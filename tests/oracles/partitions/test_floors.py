import numpy as np
import pytest

from sdp_bench import oracles
from sdp_bench.oracles.partitions.floors import scrambled_floor


def coverage(law, samples, trials):
    generator = np.random.default_rng(1)
    first, second = generator.multinomial(samples, law, size=(2, trials))
    distances = np.abs(first - second).sum(1) / 2 / samples
    floors = [oracles.total_variation_floor(row, samples, seed=k).upper95 for k, row in enumerate(first)]
    return float(np.mean(distances <= np.array(floors) + 1e-12))


def topped(top, cells):
    return np.append(top, np.full(cells - 1, (1 - top) / (cells - 1)))


def even(cells):
    return np.full(cells, 1 / cells)


@pytest.mark.parametrize(
    ("law", "samples", "most"),
    [
        # 1 where the distance has a few values only, and those beside the 95 % point are far from 95 %
        pytest.param(topped(0.999, 10), 1000, 1, id="one cell and nine rare ones"),
        pytest.param(topped(0.99, 2), 100, 1, id="one cell and a rare one, few samples"),
        pytest.param(topped(0.9, 10), 100, 0.96, id="one cell and nine of one count each, few samples"),
        pytest.param(even(512), 1000, 0.96, id="cells of two counts each"),
        pytest.param(0.5 ** np.arange(10) / 1.998, 1000, 0.96, id="from full to empty cells"),
    ],
)
def test_the_95_point_covers_where_cells_are_sparse(law, samples, most):
    trials = 250 if len(law) < 100 else 40
    noise = 3 * np.sqrt(0.95 * 0.05 / trials)
    assert 0.94 - noise <= coverage(law, samples, trials) <= most + noise


def test_cells_that_were_never_seen_have_their_part_in_the_floor():
    """1728 even cells, 1000 samples: most of what a second sample shows, the first has not seen."""
    generator = np.random.default_rng(2)
    first, second = generator.multinomial(1000, even(1728), size=(2, 20))
    distance = np.abs(first - second).sum(1).mean() / 2000
    floors = [oracles.total_variation_floor(counts, 1000, seed=k) for k, counts in enumerate(first)]
    assert np.mean([floor.mean for floor in floors]) == pytest.approx(distance, rel=0.02)


def test_empty_cells_that_hold_nothing_add_little():
    """Three even cells among 1728, say those of a law that lies on a line."""
    alone = oracles.total_variation_floor([33_000, 33_500, 33_500], 10**5, pairs=2000)
    among = oracles.total_variation_floor([33_000, 33_500, 33_500] + 1725 * [0], 10**5, pairs=2000)
    assert among.upper95 == pytest.approx(alone.upper95, rel=0.05)


def test_one_cell_that_holds_all_may_share_its_mass_with_others():
    assert oracles.total_variation_floor([100], 100) == oracles.Floor(0, 0)
    floor = oracles.total_variation_floor([100, 0], 100)
    assert 0.01 <= floor.upper95 <= 0.05
    assert 0 < floor.mean < floor.upper95


def steady_counts(generator, law, each, scrambles):
    """Counts of points that are spread more evenly than by chance: one in each step of mass."""
    steps = (np.arange(each) + generator.random((scrambles, each))) / each
    return np.stack([np.bincount(np.searchsorted(law.cumsum()[:-1], s), minlength=len(law)) for s in steps])


@pytest.mark.parametrize("cells", [3, 16])
def test_scrambles_show_how_steady_their_union_is(cells):
    law = np.random.default_rng(0).dirichlet(np.full(cells, 5.0))
    generator = np.random.default_rng(1)
    distances, floors, plains = [], [], []
    for trial in range(100):
        first = steady_counts(generator, law, 256, 16)
        second = steady_counts(generator, law, 256, 16)
        distances.append(np.abs(first.sum(0) - second.sum(0)).sum() / 2 / first.sum())
        plains.append(oracles.total_variation_floor(first.sum(0), int(first.sum()), seed=trial))
        floors.append(scrambled_floor(first, plains[-1], seed=trial))
    assert np.mean([floor.mean for floor in floors]) == pytest.approx(np.mean(distances), rel=0.1)
    assert np.mean([floor.mean for floor in plains]) > 2 * np.mean(distances)
    below = np.mean([d <= floor.upper95 for d, floor in zip(distances, floors, strict=True)])
    assert below == pytest.approx(0.95, abs=3 * np.sqrt(0.95 * 0.05 / 100))


def test_plain_samples_in_parts_have_the_plain_floor():
    generator = np.random.default_rng(2)
    parts = generator.multinomial(10_000, even(512), size=16)
    plain = oracles.total_variation_floor(parts.sum(0), 160_000)
    assert scrambled_floor(parts, plain).mean == pytest.approx(plain.mean, rel=0.03)
    with pytest.raises(ValueError, match="scrambles must be 4 or more rows"):
        scrambled_floor(parts[:3], plain)
