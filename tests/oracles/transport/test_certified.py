import math

import numpy as np
import ot
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

import sdp_ref
from sdp_bench.bench.datasets.base import stratified_rows
from sdp_bench.bench.datasets.sets import IRIS
from sdp_bench.bench.nets.architectures import Architecture
from sdp_bench.bench.nets.fully_connected import committed
from sdp_bench.bench.nets.recipes import Recipe
from sdp_bench.oracles.sampling.outputs import sample_outputs
from sdp_bench.oracles.transport.certified import certified_wasserstein

ROUNDING = 1e-10  # of the costs of a case, far below any tolerance asked for here


def normals(seed, n, m=3):
    return np.random.default_rng(seed).standard_normal((n, m))


def flat(n):
    """Principal standard deviations of 1, 0.1 and 0.003, far from 0, as those of trained nets."""
    mixing = np.array([[1.0, 0.5, -0.7], [0.05, -0.1, 0.02], [0.002, 0.001, 0.004]])
    return normals(1, n) @ mixing + [5.0, -3.0, 20.0], 1.02 * normals(2, n) @ mixing + [5.0, -3.0, 20.0]


def outliers(n):
    generator = np.random.default_rng(3)
    return generator.standard_cauchy((n, 3)), generator.standard_cauchy((n, 3))


def sorted_unequally(n):
    """Few distinct points, each many times, in other numbers on the two sides."""
    generator = np.random.default_rng(4)
    places = generator.standard_normal((20, 3))
    return places[generator.integers(0, 20, n)], places[generator.integers(0, 12, n)]


CASES = {
    "same law": lambda n: (normals(1, n), normals(2, n)),
    "one dimension": lambda n: (normals(1, n, 1), 1.5 * normals(2, n, 1) + 0.2),
    "two dimensions": lambda n: (normals(1, n, 2), normals(2, n, 2) + 0.3),
    "five dimensions": lambda n: (normals(1, n, 5), normals(2, n, 5)),
    "ten dimensions": lambda n: (normals(1, n, 10), 1.2 * normals(2, n, 10)),
    "flat": flat,
    "on a line in space": lambda n: (normals(1, n) * [1, 0, 0], normals(2, n) * [1.1, 0, 0]),
    "far apart": lambda n: (normals(1, n), 2 * normals(2, n) + [50, 0, 0]),
    "outliers": outliers,
    "atoms of ReLU": lambda n: (np.maximum(normals(1, n), 0), np.maximum(normals(2, n) + 0.1, 0)),
    "duplicates": sorted_unequally,
    "grid": lambda n: (np.round(normals(1, n), 1), np.round(normals(2, n), 1)),
    "one constant": lambda n: (np.ones((n, 3)), normals(2, n)),
}


def exact(x, y):
    cost = cdist(x, y)
    weights = np.full(len(x), 1 / len(x))
    return float(ot.emd2(weights, weights, cost, numItermax=10**7))


def check_certificate(bracket, x, y):
    """Potentials are feasible on all pairs and give the lower bound, up to what is set aside for rounding."""
    cost = cdist(x, y)
    rounding = ROUNDING * cost.max()
    assert (bracket.u[:, None] + bracket.v - cost).max() <= rounding
    value = bracket.u.mean() + bracket.v.mean()
    assert bracket.lower <= max(value, 0) + rounding
    assert bracket.lower >= min(value, bracket.upper) - rounding
    assert 0 <= bracket.lower <= bracket.upper


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("n", [1, 7, 600])
def test_the_bracket_holds_the_exact_distance(name, n):
    x, y = CASES[name](n)
    bracket, truth = certified_wasserstein(x, y), exact(x, y)
    slack = 1e-9 * truth
    assert bracket.lower - slack <= truth <= bracket.upper + slack
    assert bracket.gap <= 0.01
    assert bracket.n == n
    check_certificate(bracket, x, y)


@pytest.mark.parametrize("name", ["same law", "flat", "outliers", "atoms of ReLU", "grid", "ten dimensions"])
def test_no_tolerance_gives_the_optimum(name):
    x, y = CASES[name](600)
    bracket = certified_wasserstein(x, y, tolerance=0)
    assert bracket.lower == pytest.approx(exact(x, y), rel=1e-8)
    assert bracket.upper == pytest.approx(exact(x, y), rel=1e-8)


@st.composite
def clouds(draw):
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, m = draw(st.integers(1, 500)), draw(st.integers(1, 4))
    x, y = generator.standard_normal((2, n, m)) * 10.0 ** generator.uniform(-3, 0, m)
    y = y * draw(st.sampled_from([1.0, 1.3])) + draw(st.sampled_from([0.0, 0.1, 3.0]))
    if draw(st.booleans()):  # ties and atoms
        x, y = np.round(x, 1), np.round(y, 1)
    y[: draw(st.integers(0, n))] = x[0]
    return x, y


@given(clouds(), st.sampled_from([0.001, 0.01, 0.2]))
@settings(max_examples=20)
def test_the_bracket_holds_for_any_clouds(pair, tolerance):
    x, y = pair
    bracket, truth = certified_wasserstein(x, y, tolerance=tolerance), exact(x, y)
    slack = 1e-9 * truth + ROUNDING * cdist(x, y).max()
    assert bracket.lower - slack <= truth <= bracket.upper + slack
    assert bracket.upper - bracket.lower <= tolerance * bracket.upper + slack
    check_certificate(bracket, x, y)


def test_equal_samples_have_distance_zero():
    x = normals(1, 3000)
    constant = x * 0 + 3
    rounded = np.round(x)
    for a, b in (
        (x, x),
        (x, x[::-1].copy()),
        (constant, constant),
        (rounded, rounded[::-1].copy()),
    ):
        bracket = certified_wasserstein(a, b)
        assert (bracket.lower, bracket.upper, bracket.gap, bracket.value) == (0, 0, 0, 0)
        assert not (bracket.u.mean() + bracket.v.mean())


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6, 1e150])
def test_scale_translation_and_order_change_nothing(scale):
    x, y = flat(1500)
    plain = certified_wasserstein(x, y, tolerance=1e-4)
    generator = np.random.default_rng(5)
    points = [scale * (generator.permutation(cloud) + 3) for cloud in (x, y)]
    moved = certified_wasserstein(*points, tolerance=1e-4)
    for bracket in (plain, moved):
        assert bracket.gap <= 1e-4
    assert moved.lower <= scale * plain.upper * (1 + 1e-9)
    assert moved.upper >= scale * plain.lower * (1 - 1e-9)
    check_certificate(moved, *points)


@pytest.mark.parametrize("seconds", [0.0, 0.5])
def test_the_bracket_is_valid_when_the_time_is_over(seconds):
    x, y = normals(1, 1500), normals(2, 1500)
    truth = certified_wasserstein(x, y, tolerance=1e-3)
    hasty = certified_wasserstein(x, y, tolerance=0, seconds=seconds)
    assert hasty.lower <= truth.upper
    assert hasty.upper >= truth.lower
    check_certificate(hasty, x, y)
    if seconds == 0:
        assert hasty.gap > 0.1 > certified_wasserstein(x, y).gap


@pytest.mark.parametrize("spread", [1e-5, 1e-2])
def test_nearly_equal_samples_take_few_solves(spread, monkeypatch):
    x = normals(1, 1500)
    y = x + spread * normals(2, 1500)
    y[0] += 1
    solve, solves = ot.emd, []

    def counted(*args, **options):
        solves.append(args)
        return solve(*args, **options)

    monkeypatch.setattr(ot, "emd", counted)
    assert certified_wasserstein(x, y).gap <= 0.01
    assert len(solves) <= 20  # 50 and more if the potentials drift


@pytest.mark.rounding
def test_the_number_of_threads_changes_nothing():
    x, y = flat(2500)
    threads = torch.get_num_threads()
    try:
        brackets = []
        for count in (1, 3):
            torch.set_num_threads(count)
            brackets.append(certified_wasserstein(x, y))
    finally:
        torch.set_num_threads(threads)
    one, three = brackets
    assert (one.lower, one.upper) == (three.lower, three.upper)
    assert np.array_equal(one.u, three.u)
    assert np.array_equal(one.v, three.v)


def test_float32_points_and_lists_are_taken():
    x, y = normals(1, 300).astype(np.float32), normals(2, 300).astype(np.float32)
    wide = certified_wasserstein(x.astype(np.float64), y.astype(np.float64))
    narrow = certified_wasserstein(x, torch.as_tensor(y))
    assert (wide.lower, wide.upper) == (narrow.lower, narrow.upper)
    assert certified_wasserstein([[0, 0], [1, 0]], [[0, 1], [1, 1]]).value == pytest.approx(1)


A = normals(1, 10)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: certified_wasserstein(A, A[:9]), r"one shape, got \(10, 3\) and \(9, 3\)"),
        (lambda: certified_wasserstein(A[:0], A[:0]), r"x must have shape \(samples, m\), got \(0, 3\)"),
        (lambda: certified_wasserstein(A[0], A[0]), r"x must have shape \(samples, m\), got \(3,\)"),
        (lambda: certified_wasserstein(A, A * math.nan), "y has non-finite entries"),
        (lambda: certified_wasserstein([[1.7e308]], [[-1.7e308]]), "too far apart"),
        (lambda: certified_wasserstein(A, A, tolerance=math.nan), "must not be negative"),
        (lambda: certified_wasserstein(A, A, seconds=-1), "must not be negative"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def outputs(sigma, rule, n):
    """Samples of a trained net's outputs, and as many of a rule's prediction or of the outputs again."""
    net = committed(Architecture(4), Recipe(), 1)[0].build()
    data = IRIS.load()
    x = torch.as_tensor(data.features[stratified_rows(data.labels, 10)[0]]).float().reshape(1, -1)
    law = sdp_ref.DiagonalGaussian(mean=x, variance=torch.full_like(x, sigma**2))
    first = sample_outputs(net, law, n, seed=1).double().numpy()
    if rule is None:
        return first, sample_outputs(net, law, n, seed=2).double().numpy()
    with torch.no_grad():
        predicted = sdp_ref.propagate(net.double(), law.to(dtype=torch.float64), rule=rule)
        second = predicted.mean + torch.as_tensor(normals(3, n)) @ predicted.factor()[0].mT
    return first, second.numpy()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sigma", "rule"),
    [(0.01, None), (0.1, "sdp"), (1.0, None), (1.0, "moment_matching"), (1.0, "marginal_sdp")],
)
def test_thirty_thousand_outputs_are_within_one_per_cent(sigma, rule):
    x, y = outputs(sigma, rule, 30_000)
    bracket = certified_wasserstein(x, y, seconds=600)
    assert bracket.gap <= 0.01
    for start in range(0, 30_000, 1000):  # feasible on all pairs, by differences of all of them
        excess = bracket.u[start : start + 1000, None] + bracket.v - cdist(x[start : start + 1000], y)
        assert excess.max() <= ROUNDING * bracket.upper
    value = bracket.u.mean() + bracket.v.mean()
    assert bracket.lower == pytest.approx(value, rel=1e-9)
    # Any bijection is above the lower bound, any 1-Lipschitz function is below the upper one.
    direction = np.linalg.svd(np.concatenate([x, y]) - x.mean(0), full_matrices=False)[2][0]
    a, b = np.argsort(x @ direction), np.argsort(y @ direction)
    assert np.abs(x[a] @ direction - y[b] @ direction).mean() <= bracket.upper
    assert np.linalg.norm(x[a] - y[b], axis=1).mean() >= bracket.lower
