"""95 % points cover 95 % of further values, for every number of redraws that is accepted."""

import numpy as np
import pytest

from sdp_bench import oracles
from sdp_bench.oracles.estimate.redraws import upper95, upper95_of_few
from sdp_bench.oracles.partitions.logits import energy_distance, pairwise_summary
from sdp_bench.oracles.partitions.partition import ScoreDifferences

TRIALS = 40_000
NOISE = 4 * np.sqrt(0.95 * 0.05 / TRIALS)


def covered(values, method):
    """Share of the last values that are at or below the points of the others, shape (redraws + 1, trials)."""
    return np.mean(values[-1] <= upper95(values[:-1], method))


LAWS = {
    "normal": lambda generator, shape: generator.standard_normal(shape),
    "skewed": lambda generator, shape: generator.standard_normal(shape) ** 2,
    "bounded": lambda generator, shape: np.sin(2 * np.pi * generator.random(shape)),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("number", [19, 20, 39, 57, 100, 200])
def test_the_point_covers_95_per_cent(number, law):
    exact = {"weibull": 0.95, "linear": 0.95, "higher": np.ceil(0.95 * (number + 1)) / (number + 1)}
    if number >= 100:  # NumPy's definition, which stored floors have
        exact["linear"] = 0.95 - 0.9 / (number + 1)
    values = LAWS[law](np.random.default_rng(number), (number + 1, TRIALS))
    next_rank = 1 / (number + 1)  # between two order statistics the coverage depends on the law
    for method, expected in exact.items():
        share = covered(values, method)
        assert abs(share - expected) < NOISE + next_rank / 4
        if number in (19, 39):
            assert abs(share - 0.95) < NOISE


@pytest.mark.parametrize("number", [19, 26, 100])
def test_a_statistic_with_few_values_is_covered(number):
    values = np.random.default_rng(number).binomial(3, 0.2, (number + 1, TRIALS))
    assert covered(values, "higher") > 0.95 - NOISE


@pytest.mark.parametrize("number", [2, 8, 15])
def test_few_redraws_of_a_skewed_statistic_have_a_point(number):
    values = np.random.default_rng(number).gumbel(2.0, 3.0, (4000, number + 1))
    share = np.mean([row[-1] <= upper95_of_few(row[:-1]) for row in values])
    assert abs(share - 0.95) < 4 * np.sqrt(0.95 * 0.05 / len(values))


X = np.random.default_rng(0).standard_normal((60, 3))


@pytest.mark.parametrize("number", [1, 2, 18, 19.0, True])
@pytest.mark.parametrize(
    "call",
    [
        lambda number: energy_distance(X, X, halves=number),
        lambda number: oracles.total_variation_floor([30, 40, 50], 100, pairs=number),
        lambda number: oracles.total_variation_floor([100, 0, 3], 100, pairs=number),
        lambda number: oracles.floor_of_largest([[30, 40, 50]], 100, pairs=number),
        lambda number: pairwise_summary(X, X, ScoreDifferences.from_samples(X, 5), redraws=number),
    ],
)
def test_too_few_redraws_are_refused(call, number):
    with pytest.raises(ValueError, match=r"^(halves|pairs|redraws) must be an integer of at least 19, got "):
        call(number)


@pytest.mark.slow
@pytest.mark.parametrize("number", [19, 20, 39, 100])
def test_floors_of_few_redraws_cover_exact_rules(number):
    generator, trials = np.random.default_rng(number), 600
    energy = total = 0
    for trial in range(trials):
        a, b = generator.standard_exponential((2, 80, 3))
        energy += energy_distance(a, b, halves=number, seed=trial).indistinguishable
        first, second = generator.multinomial(3000, np.full(24, 1 / 24), size=2)
        floor = oracles.total_variation_floor(first, 3000, pairs=number, seed=trial)
        total += oracles.total_variation_of_counts(first, second, floor).indistinguishable
    for share in (energy / trials, total / trials):
        assert abs(share - 0.95) < 4 * np.sqrt(0.95 * 0.05 / trials)
