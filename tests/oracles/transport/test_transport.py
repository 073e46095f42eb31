import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats
from scipy.spatial.distance import cdist

from sdp_bench import oracles
from sdp_bench.oracles.transport.large import certified
from tests.oracles.repeated import assert_standard_errors_are_the_spread

NO_FLOOR = oracles.Floor(0.0, 0.0)


def normals(seed, samples, m=3):
    return np.random.default_rng(seed).standard_normal((samples, m))


def test_w1_of_a_translated_sample_is_the_translation():
    a, shift = normals(1, 200), np.array([0.3, -2.0, 1.0])
    estimate = oracles.wasserstein(a, a + shift, 200, floor=NO_FLOOR)
    assert estimate.value == pytest.approx(np.linalg.norm(shift), rel=1e-12)
    assert oracles.wasserstein_1d(a[:, 0], a[:, 0] - 0.7, 200, floor=NO_FLOOR).value == pytest.approx(0.7)


@pytest.mark.parametrize("far", [1e3, 1e8, 1e12, 1e15])
def test_w1_to_a_far_point_is_right_or_refused(far):
    a = normals(1, 200, 2)
    a[0] = far
    for shift in (0.0, 1e-12, 5.0):  # where nothing moves, lost digits change nothing
        moved = a + np.array([0.6 * shift, 0.8 * shift])
        if far > 1e8 and shift == 5:
            with pytest.raises(RuntimeError, match="far from the others"):
                oracles.wasserstein(a, moved, 200, floor=NO_FLOOR)
        else:
            estimate = oracles.wasserstein(a, moved, 200, floor=NO_FLOOR)
            assert estimate.value == pytest.approx(shift, rel=1e-3, abs=1e-3)


def test_w1_is_the_optimal_assignment():
    a, b = normals(1, 150), 1.5 * normals(2, 150) + 0.2
    cost = cdist(a, b)
    expected = cost[optimize.linear_sum_assignment(cost)].mean()
    estimate = oracles.wasserstein(torch.tensor(a), torch.tensor(b), 150, floor=NO_FLOOR)
    assert estimate.value == pytest.approx(expected, rel=1e-12)


def test_w1_on_the_line_is_scipys():
    a, b = normals(1, 500, 1), 1.5 * normals(2, 500, 1) + 0.2
    expected = stats.wasserstein_distance(a[:, 0], b[:, 0])
    assert oracles.wasserstein_1d(a, b, 500, floor=NO_FLOOR).value == pytest.approx(expected, rel=1e-12)
    assert oracles.wasserstein(a, b, 500, floor=NO_FLOOR).value == pytest.approx(expected, rel=1e-12)
    assert oracles.sliced_wasserstein(a, b, 500, floor=NO_FLOOR).value == pytest.approx(expected, rel=1e-12)


def test_w1_on_the_line_of_samples_with_ties():
    a, b = np.repeat([0.0, 1.0], 50), np.repeat([0.0, 1.0], [20, 80])
    assert oracles.wasserstein_1d(a, b, 100, floor=NO_FLOOR).value == pytest.approx(0.3)
    assert oracles.wasserstein_1d(a, a[::-1].copy(), 100, floor=NO_FLOOR).value == 0


def test_sliced_w1_is_the_mean_over_directions():
    a, shift = normals(1, 300), np.array([0.0, 2.0, 0.0])
    # E |cos| of a random direction in three dimensions is 1/2, its standard deviation 1/sqrt(12)
    value = oracles.sliced_wasserstein(a, a + shift, 300, directions=256, floor=NO_FLOOR).value
    assert abs(value - 1) < 3 * 2 / np.sqrt(12 * 256)


def first_output(a, b, n, floor):
    return oracles.wasserstein_1d(a[:, 0], b[:, 0], n, floor=floor)


def bracketed(a, b, n, floor):
    return certified(a, b, n, floor=floor, tolerance=0)[0]


DISTANCES = (oracles.wasserstein, oracles.sliced_wasserstein, first_output, bracketed)


@st.composite
def clouds(draw):
    """Points with 20 bits behind the point, so that a whole number is added to them without rounding."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, m = draw(st.integers(2, 60)), draw(st.integers(1, 4))
    a, b = generator.standard_normal((2, n, m)) * draw(st.sampled_from([1.0, 0.01]))
    b = b * draw(st.sampled_from([1.0, 1.3])) + draw(st.sampled_from([0.0, 0.1, 3.0]))
    kind = draw(st.sampled_from(["plain", "one output constant", "all equal", "one a point", "few points"]))
    if kind == "one output constant":
        a[:, 0] = b[:, 0] = 0.5
    elif kind == "all equal":
        a[:] = b[:] = a[0]
    elif kind == "one a point":
        b[:] = b[0]
    elif kind == "few points":
        a, b = np.round(a), np.round(b)
    return np.round(a * 2**20) / 2**20, np.round(b * 2**20) / 2**20


@pytest.mark.parametrize("distance", DISTANCES)
@given(clouds(), st.sampled_from([1e3, -1e7, 1e8, 2.0**32]))
@settings(max_examples=25)
def test_a_common_offset_changes_nothing(distance, pair, offset):
    a, b = pair
    here = distance(a, b, len(a), floor=NO_FLOOR)
    there = distance(a + offset, b + offset, len(a), floor=NO_FLOOR)
    assert there.value == pytest.approx(here.value, rel=1e-9, abs=1e-14)


@pytest.mark.parametrize("distance", DISTANCES)
@given(clouds(), st.floats(-150, 150))
@settings(max_examples=25)
def test_a_distance_is_in_units_of_the_points(distance, pair, power):
    a, b = pair
    scale = 10.0**power
    plain = distance(a, b, len(a), floor=NO_FLOOR)
    scaled = distance(scale * a, scale * b, len(a), floor=NO_FLOOR)
    assert scaled.value == pytest.approx(scale * plain.value, rel=1e-9, abs=1e-14 * scale)


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_standard_errors_and_floors_are_in_units_of_the_points(scale):
    a, b = normals(1, 800), 1.3 * normals(2, 100)
    for distance in (oracles.wasserstein, oracles.sliced_wasserstein):
        plain, scaled = distance(a, b, 50), distance(scale * a, scale * b, 50)
        for name in ("stderr", "floor", "floor95"):
            assert getattr(scaled, name) == pytest.approx(scale * getattr(plain, name), rel=1e-9)


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.5), (2.0, 0.0)])
@pytest.mark.parametrize(
    ("function", "n", "m"),
    [(oracles.wasserstein, 150, 3), (oracles.wasserstein_1d, 400, 1), (oracles.sliced_wasserstein, 200, 3)],
)
def test_the_standard_error_is_the_spread_of_repeated_draws(function, n, m, scale, shift):
    estimates = [
        function(normals(2 * r, n, m), shift + scale * normals(2 * r + 1, n, m), n, floor=NO_FLOOR)
        for r in range(60)
    ]
    assert_standard_errors_are_the_spread(estimates)


def test_the_standard_error_is_not_too_small_for_an_exact_rule():
    estimates = [
        oracles.wasserstein(normals(2 * r, 150), normals(2 * r + 1, 150), 150, floor=NO_FLOOR)
        for r in range(40)
    ]
    spread = np.std([estimate.value for estimate in estimates], ddof=1)
    assert np.mean([estimate.stderr for estimate in estimates]) > spread


def test_without_a_number_all_points_of_the_smaller_sample_are_used():
    a, b = normals(1, 800), normals(2, 500)
    assert oracles.wasserstein(a, b).n == 500
    assert oracles.wasserstein(a, b, 100).n == 100
    translated = b[::-1].copy() + np.array([1.0, 0, 0])
    assert oracles.wasserstein(b, translated).value == pytest.approx(1.0, rel=1e-9)


def test_a_floor_can_be_shared_for_as_many_points():
    a, b = normals(1, 2000), normals(2, 2000) + 0.3
    floor = oracles.wasserstein_floor(a, 100, pairs=3, seed=4)
    own = oracles.wasserstein(a, b, 100, pairs=3, seed=4)
    assert oracles.wasserstein(a, b, 100, floor=floor, seed=4) == own
    with pytest.raises(ValueError, match="Floor for 50 points"):
        oracles.wasserstein(a, b, 50, floor=floor)


def test_float32_samples_lose_nothing():
    a, b = normals(1, 300).astype(np.float32), normals(2, 300).astype(np.float32)
    for function in (oracles.wasserstein, oracles.sliced_wasserstein):
        wide = function(a.astype(np.float64), b.astype(np.float64), 300, floor=NO_FLOOR)
        assert function(a, b, 300, floor=NO_FLOOR) == wide


def test_the_floor_of_a_small_sample_is_near_that_of_independent_draws():
    """300 points, of which no disjoint pairs of 300 can be made: within 10 % of the true floor."""
    true = np.mean(
        [
            oracles.wasserstein(normals(2 * k, 300), normals(2 * k + 1, 300), floor=NO_FLOOR).value
            for k in range(100, 112)
        ]
    )
    assert oracles.wasserstein_floor(normals(1, 300), 300).mean == pytest.approx(true, rel=0.1)


A = normals(1, 100)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: oracles.wasserstein(A, A[:, :2], 5), "3 and 2 outputs"),
        (lambda: oracles.wasserstein(A, A, 0), "n must be at least 2"),
        (lambda: oracles.wasserstein(A, A, 5, pairs=1), "pairs must be at least 2"),
        (lambda: oracles.wasserstein(A, np.full_like(A, np.nan), 5), "b has non-finite entries"),
        (lambda: oracles.wasserstein(A[0], A, 5), r"a must have shape \(samples, m\)"),
        (lambda: oracles.wasserstein(np.sign(A) * 1.7e308, A, 5), "too far apart"),
        (lambda: oracles.wasserstein_1d(A, A, 5), "takes one output, got shape"),
        (lambda: oracles.sliced_wasserstein(A, A, 5, directions=0), "directions must be positive"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
