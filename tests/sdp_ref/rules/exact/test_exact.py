import functools
import itertools
import math
import pickle
import re

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import nn

import sdp_ref as sr
from sdp_ref.laws import PiecewiseGaussian, joined
from sdp_ref.rules.exact.regions import Cell
from sdp_ref.rules.exact.rule import grundmann_moeller, moments
from tests.sdp_ref.common import diagonal, gaussian, mlp

DOUBLE = torch.float64


@functools.cache
def exact(net, x, **parameters):
    return sr.rule("exact", **parameters).propagate(net, x)


def inputs(x, normals):
    """Inputs at standard normal points, of the first law."""
    factor = x.factor()[0] if isinstance(x, sr.Gaussian) else x.standard_deviation.flatten(1)[0].diag()
    factor = factor[:, factor.norm(dim=0) > 1e-7 * factor.norm()]
    return (x.mean.flatten(1)[0] + normals @ factor.mT).unflatten(1, x.event_shape)


def radius(mass, n):
    return stats.chi2.ppf(mass, n) ** 0.5


def within(mass, n, count=20_000, seed=0):
    """Normal points inside the ball that has this mass."""
    points = torch.randn(count, n, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)
    return points[points.norm(dim=1) < radius(mass, n)]


class Skip(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = mlp(3, 8, 3), mlp(3, 6, 6)

    def forward(self, x):
        y = torch.relu(x + self.first(x))
        return torch.cat([y - 2 * x, self.second(y)], 1) / 3


def convolutional():
    torch.manual_seed(1)
    return (
        nn.Sequential(
            nn.Conv2d(1, 3, 2),
            nn.BatchNorm2d(3),
            nn.LeakyReLU(0.2),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(3, 2),
        )
        .double()
        .eval()
    )


def degenerate():
    """Two directions of noise for five inputs."""
    root = torch.randn(1, 5, 2, generator=torch.Generator().manual_seed(3), dtype=DOUBLE)
    return sr.Gaussian(torch.zeros(1, 5, dtype=DOUBLE), root @ root.mT)


def image():
    variance = torch.zeros(1, 1, 3, 3, dtype=DOUBLE)
    variance[0, 0, 0, 0] = variance[0, 0, 1, 2] = 1
    return sr.DiagonalGaussian(torch.full_like(variance, 0.3), variance)


NETS = {
    "one layer": (mlp(4, 6, 3), gaussian(1, 4), 4),
    "three layers": (mlp(3, 6, 6, 6, 2), diagonal(1, 3), 3),
    "without biases": (mlp(2, 10, 10, 2).requires_grad_(False), diagonal(1, 2), 2),
    "leaky": (mlp(2, 9, 9, 2, activation=lambda: nn.LeakyReLU(-0.5)), gaussian(1, 2), 2),
    "residual": (Skip(), diagonal(1, 3), 3),
    "image": (convolutional(), image(), 2),
    "singular": (mlp(5, 9, 9, 2), degenerate(), 2),
    "one input": (mlp(1, 30, 30, 1), diagonal(1, 1), 1),
}
for layer in NETS["without biases"][0]:
    if isinstance(layer, nn.Linear):
        layer.bias.zero_()


@pytest.mark.parametrize("name", NETS)
def test_draws_are_the_net_wherever_the_mass_is(name):
    net, x, n = NETS[name]
    law = exact(net, x, mass=0.99)
    points = within(0.99, n)
    assert torch.allclose(law.push()(points), net(inputs(x, points)).flatten(1), rtol=1e-9, atol=1e-9)
    assert law.counts[0] > 4
    assert float(law.missing) == pytest.approx(0.01)


@pytest.mark.parametrize("name", NETS)
def test_mean_and_covariance_are_those_of_the_draws_function(name):
    """By 2^16 Sobol points; the tolerance is what 16 scrambles of 2^12 points scatter."""
    net, x, n = NETS[name]
    law = exact(net, x)
    engines = (torch.quasirandom.SobolEngine(n, scramble=True, seed=seed) for seed in range(16))
    points = torch.stack([torch.special.ndtri(e.draw(4096, dtype=DOUBLE) + 2.0**-31) for e in engines])
    values = law.push()(points.flatten(0, 1)).unflatten(0, (16, 4096)) - law.mean.flatten(1)
    means = values.mean(1)
    assert bool((means.mean(0).abs() <= 5 * means.std(0) / 4 + 1e-5).all())
    products = torch.einsum("sni,snj->sij", values, values) / 4096
    error = (products.mean(0) - law.covariance[0]).abs()
    assert bool((error <= 5 * products.std(0) / 4 + 1e-5).all())


@pytest.mark.parametrize("make", [gaussian, diagonal])
def test_one_hidden_layer_is_what_moment_matching_has_in_closed_form(make):
    net, x = mlp(3, 9, 3), make(2, 3)
    law, want = exact(net, x, mass=1 - 1e-8), sr.propagate(net, x, "moment_matching")
    assert torch.allclose(law.mean, want.mean, atol=2e-6)
    assert torch.allclose(law.covariance, want.covariance, atol=2e-5)


def patterns(net, points):
    """Which units are above their kink, a row for each point."""
    signs = []
    for module in net:
        if isinstance(module, nn.ReLU):
            signs.append(points > 0)
        points = module(points)
    return torch.cat(signs, 1)


@pytest.mark.parametrize("widths", [(1, 20, 1), (1, 12, 12, 2), (1, 6, 6, 6, 1)])
def test_regions_of_one_input_are_counted_on_a_grid_and_moments_are_quadratures(widths):
    net = mlp(*widths, seed=5)
    x = sr.DiagonalGaussian(torch.full((1, 1), 0.3, dtype=DOUBLE), torch.full((1, 1), 4.0, dtype=DOUBLE))
    law, reach = exact(net, x, mass=0.999), radius(0.999, 1)
    grid = torch.linspace(-reach, reach, 100_001, dtype=DOUBLE).unsqueeze(1)
    with torch.no_grad():
        changes = (patterns(net, inputs(x, grid)).diff(dim=0)).any(1)
    assert law.counts == (1 + int(changes.sum()),)
    kinks = grid[:-1, 0][changes].numpy()

    def moment(power, component):
        def integrand(z):
            point = torch.tensor([[z]], dtype=DOUBLE)
            return law.push()(point)[0, component].item() ** power * stats.norm.pdf(z)

        edges = [-9.0, *kinks, 9.0]
        parts = (integrate.quad(integrand, *pair, epsabs=1e-9)[0] for pair in itertools.pairwise(edges))
        return sum(parts)

    mean = moment(1, 0)
    assert law.mean[0, 0].item() == pytest.approx(mean, abs=1e-5)
    assert law.variance[0, 0].item() == pytest.approx(moment(2, 0) - mean**2, rel=1e-4)


@pytest.mark.parametrize("widths", [(2, 12, 2), (2, 6, 6, 1)])
def test_regions_and_masses_of_two_inputs_are_those_of_a_grid(widths):
    net, x = mlp(*widths, seed=7), gaussian(1, 2)
    law, reach = exact(net, x, mass=0.99), radius(0.99, 2)
    line = torch.linspace(-reach, reach, 601, dtype=DOUBLE)
    grid = torch.cartesian_prod(line, line)
    grid = grid[grid.norm(dim=1) < reach]
    with torch.no_grad():
        bits = patterns(net, inputs(x, grid))
    names, which = (bits * 2 ** torch.arange(bits.shape[1])).sum(1).unique(return_inverse=True)
    pieces = law.pieces[0]
    regions = pieces.regions(grid.numpy())
    assert len(set(zip(which.tolist(), regions.tolist(), strict=True))) == len(names)  # one to one
    # A corner of a region that the ball hardly reaches may be between the points of the grid.
    assert len(names) <= law.counts[0] <= len(names) + 3
    density = np.exp(-np.square(grid.numpy()).sum(1) / 2) / (2 * np.pi)
    area = float(line[1] - line[0]) ** 2
    inside = np.bincount(regions, density * area, len(pieces.weights))
    assert bool((pieces.weights >= inside - 1e-4).all())  # they go on beyond the ball
    assert pieces.weights.sum() == pytest.approx(1, abs=1e-12)
    assert inside.sum() == pytest.approx(0.99, abs=1e-3)


def test_what_is_missing_does_no_more_than_the_bounds():
    net, x = mlp(3, 10, 10, 2), diagonal(1, 3)
    rough, fine = exact(net, x, mass=0.8), exact(net, x, mass=1 - 1e-7)
    draws = within(1 - 1e-7, 3)
    differs = (rough.push()(draws) - fine.push()(draws)).abs().amax(1) > 1e-9
    assert 0 < differs.double().mean() < 0.2
    assert rough.counts < fine.counts
    error = float((rough.mean - fine.mean).norm())
    assert 1e-5 < error < float(rough.mean_bound)
    assert 1e-5 < float((rough.covariance - fine.covariance).norm()) < float(rough.covariance_bound)
    assert float(fine.mean_bound) < 0.01 * float(rough.mean_bound)


def test_noise_that_reaches_no_kink_is_linearised_for_any_number_of_inputs():
    net, x = mlp(50, 30, 30, 3), diagonal(2, 50)
    x = sr.DiagonalGaussian(x.mean, 1e-12 * x.variance)
    law, want = exact(net, x), sr.propagate(net, x, "sdp")
    assert law.counts == (1, 1)
    assert torch.allclose(law.mean, want.mean, rtol=1e-12)
    assert torch.allclose(law.covariance, want.covariance, rtol=1e-9, atol=0)


def test_a_point_is_mapped_by_the_net():
    net, x = mlp(4, 9, 9, 3), diagonal(1, 4)
    law = exact(net, sr.DiagonalGaussian(x.mean, 0 * x.variance))
    assert torch.allclose(law.mean, net(x.mean), rtol=1e-12)
    assert not law.covariance.any()
    assert float(law.missing) == float(law.mean_bound) == 0
    assert torch.equal(law.sample(5), law.mean.expand(5, 1, 3))


def test_a_law_keeps_its_family_when_it_is_moved():
    law = exact(mlp(2, 9, 2), diagonal(1, 2))
    assert isinstance(law, PiecewiseGaussian)
    other = pickle.loads(pickle.dumps(law)).to(torch.float32)
    noise = torch.randn(10, 2, dtype=DOUBLE)
    assert other.mean.dtype == other.push()(noise).dtype == torch.float32
    assert torch.allclose(other.push()(noise).double(), law.push()(noise), rtol=1e-6)
    assert not hasattr(law, "nothing")
    assert law.unsound() == ""
    with pytest.raises(sr.UndefinedError, match="no known density"):
        law.log_prob(law.mean)
    with pytest.raises(sr.UndefinedError, match="different shapes"):
        joined([law, exact(mlp(2, 9, 1), diagonal(1, 2))])


def test_too_many_regions_are_refused():
    net, x = mlp(2, 30, 2), gaussian(1, 2)
    there = exact(net, x).counts[0]
    with pytest.raises(sr.UnsupportedError, match="more than 40 linear regions within the mass"):
        exact(net, x, regions=40)
    assert exact(net, x, regions=there).counts == (there,)


@pytest.mark.parametrize(
    ("net", "x", "message"),
    [
        (mlp(2, 3, 1), sr.Cauchy(*torch.ones(2, 1, 2, dtype=DOUBLE)), "does not support Cauchy input"),
        (mlp(2, 3, 1, activation=nn.Tanh), diagonal(1, 2), "does not support Tanh (at '1' in the net)"),
        (nn.MaxPool1d(2), diagonal(1, 2), "does not support MaxPool1d"),
        (mlp(6, 9, 1), diagonal(1, 6), "does not support kinks within the noise of 6 inputs, more than 5"),
        (lambda v: v * v, diagonal(1, 2), "does not support"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(net, x, message):
    with pytest.raises(sr.UnsupportedError, match=re.escape(message)):
        exact(net, x)


@pytest.mark.parametrize("layer", [0, 2])
@pytest.mark.parametrize("weight", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(layer, weight):
    net = mlp(2, 5, 2)
    net[layer].weight.data[0, 0] = weight
    with pytest.raises(ValueError, match="values that are not finite"):
        exact(net, diagonal(1, 2))


@pytest.mark.parametrize("inputs", [2, 7])
@pytest.mark.parametrize("constant", [-1.0, 0.0, 1e-30, 2.0])
def test_constant_units_have_no_kink(inputs, constant):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(inputs, 3), nn.LeakyReLU(0.1), nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2))
    net.double()
    with torch.no_grad():
        net[0].weight[:2] = 0
        net[0].bias.copy_(torch.tensor([constant, -constant, 20.0]))
        net[2].bias.copy_(torch.tensor([30.0, -30.0]))
        net[2].weight[0, 2] = 1.0
        net[2].weight[1] = 0
    x = diagonal(1, inputs)
    law, affine = sr.propagate(net, x, "exact"), sr.propagate(net, x, "sdp")
    torch.testing.assert_close(law.mean, affine.mean, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(law.covariance, affine.covariance, rtol=1e-12, atol=1e-12)


FAR = 6.0


def cut(cells, *planes):
    """All cells on either side of all planes, which need not be normalised."""
    for plane in planes:
        plane = np.asarray(plane, dtype=float) / np.linalg.norm(plane[:-1])
        parts = []
        for cell in cells:
            above, below = (cell.cut(plane) or (cell, None))[:2]
            parts.append(above)
            parts.append(below)
        cells = [part for part in parts if part is not None]
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
    low = np.array([-0.5, 1.0, -2.0, 0.2])[:n]
    high = np.array([0.7, 1.5, 0.1, 2.0])[:n]
    lower = np.column_stack([np.eye(n), -low])
    upper = np.column_stack([np.eye(n), -high])
    cells = cut([Cell.box(n, FAR)], *lower, *upper)

    def is_inside(cell):
        return (cell.vertices > low - 1e-9).all() and (cell.vertices < high + 1e-9).all()

    inner = next(cell for cell in cells if is_inside(cell))
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

    def is_in_strip(cell):
        first, second = cell.vertices.T
        return first.min() > 3.9 and 0.12 < second.mean() < 0.18

    strip = next(cell for cell in cells if is_in_strip(cell))
    want = integrate.quad(stats.norm.pdf, 0.1, 0.2)[0] * stats.norm.sf(4)
    assert moments([strip], 1e-9)[0, 2, 2] == pytest.approx(want, rel=1e-4)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_the_surface_of_a_polytope_is_closed(n):
    """The areas of the facets times their normals add up to zero (Minkowski)."""
    cell = cut([Cell.box(n, 1.0)], *random_planes(n, 4, 1))[0]
    simplices, facet = cell.surface()
    corners = cell.vertices[simplices]
    sides = corners[:, 1:] - corners[:, :1]
    areas = np.sqrt(np.linalg.det(sides @ sides.transpose(0, 2, 1)))
    normals = cell.planes[facet]
    distances = np.einsum("sij,sj->si", corners, normals[:, :n]) + normals[:, n:]
    assert np.abs(distances).max() < 1e-9
    np.testing.assert_allclose((areas[:, None] * normals[:, :n]).sum(0), 0, atol=1e-9)


@pytest.mark.parametrize("rho", [-0.95, 0.0, 0.6])
def test_the_mass_of_a_wedge_is_sheppards(rho):
    """P(X > 0, Y > 0) = 1 / 4 + arcsin(rho) / (2 pi)."""
    first = np.array([1.0, 0.0])
    second = np.array([rho, math.sqrt(1 - rho**2)])
    cells = cut([Cell.box(2, 8.0)], [*first, 0.0], [*second, 0.0])

    def is_positive(cell):
        return (cell.vertices @ first).min() > -1e-9 and (cell.vertices @ second).min() > -1e-9

    (wedge,) = (cell for cell in cells if is_positive(cell))
    assert moments([wedge], 1e-6)[0, 2, 2] == pytest.approx(0.25 + math.asin(rho) / (2 * math.pi), abs=1e-7)
