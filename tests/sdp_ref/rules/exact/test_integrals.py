import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats

from sdp_ref.rules.exact.regions import Cell
from sdp_ref.rules.exact.rule import grundmann_moeller, moments

FAR = 6.0


def cut(cells, *planes):
    """All cells on either side of all planes, which need not be normalised."""
    for plane in planes:
        plane = np.asarray(plane, dtype=float) / np.linalg.norm(plane[:-1])
        cells = [part for cell in cells for part in (cell.cut(plane) or (cell, None))[:2] if part is not None]
    return cells


def random_planes(n, count, seed):
    return np.random.default_rng(seed).uniform(-1, 1, (count, n + 1))


@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_a_rule_integrates_monomials_up_to_its_degree(n, order):
    points, weights = grundmann_moeller(n, order)
    for powers in itertools.product(range(2 * order + 2), repeat=n + 1):
        degree = sum(powers)
        if degree > 2 * order + 1:
            continue
        # The mean of a monomial of barycentric coordinates over a simplex, by Dirichlet's formula.
        want = math.factorial(n) * math.prod(map(math.factorial, powers)) / math.factorial(n + degree)
        got = np.prod(points ** np.array(powers), axis=1) @ weights
        assert got[0] == pytest.approx(want, rel=1e-11, abs=1e-15)
        if degree <= 2 * order - 1:
            assert got[1] == pytest.approx(want, rel=1e-11, abs=1e-15)


@pytest.mark.parametrize(("n", "count"), [(1, 3), (2, 7), (3, 6), (4, 5)])
def test_cells_between_hyperplanes_are_as_many_as_schlaefli_says_and_hold_all_mass(n, count):
    """Hyperplanes in general position that all meet within the box make sum_k C(count, k) cells."""
    cells = cut([Cell.box(n, 200.0)], *random_planes(n, count, 2))
    assert len(cells) == sum(math.comb(count, k) for k in range(n + 1))
    near = cut([Cell.box(n, FAR)], *random_planes(n, count, 2))
    total = moments(near, 1e-4).sum(0)
    np.testing.assert_allclose(total, np.eye(n + 1), atol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_moments_of_a_box_are_those_of_truncated_normals(n):
    low, high = np.array([-0.5, 1.0, -2.0, 0.2])[:n], np.array([0.7, 1.5, 0.1, 2.0])[:n]
    planes = [[*row, -value] for row, value in zip([*np.eye(n), *np.eye(n)], [*low, *high], strict=True)]
    cells = cut([Cell.box(n, FAR)], *planes)
    inner = next(c for c in cells if (c.vertices > low - 1e-9).all() and (c.vertices < high + 1e-9).all())
    got = moments([inner], 1e-7)[0]
    mass = np.prod(stats.norm.cdf(high) - stats.norm.cdf(low))
    mean, var = stats.truncnorm.stats(low, high)
    want = np.empty((n + 1, n + 1))
    want[:n, :n] = np.diag(var) + np.outer(mean, mean)
    want[:n, n] = want[n, :n] = mean
    want[n, n] = 1
    np.testing.assert_allclose(got, mass * want, rtol=0, atol=1e-8)


def test_a_far_and_narrow_polytope_keeps_its_digits():
    """Where abs(z) is at least 4: a hundred-thousandth of the mass."""
    cells = cut([Cell.box(2, 9.0)], [1.0, 0.0, -4.0], [0.0, 1.0, -0.1], [0.0, 1.0, -0.2])
    strip = next(c for c in cells if c.vertices[:, 0].min() > 3.9 and 0.12 < c.vertices[:, 1].mean() < 0.18)
    want = integrate.quad(stats.norm.pdf, 0.1, 0.2)[0] * stats.norm.sf(4)
    assert moments([strip], 1e-9)[0, 2, 2] == pytest.approx(want, rel=1e-4)
