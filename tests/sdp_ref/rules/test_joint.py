"""Full covariances through convolutions and residual branches, and what they would cost."""

import itertools
import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import sdp_ref as sr
from sdp_ref.activations import ACTIVATIONS, activation

FULL = ("moment_matching", "dvia")


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def seeded(net, seed=0):
    net = net.double().eval()
    for i, parameter in enumerate(net.parameters()):
        fan = max(1, parameter[0].numel())
        parameter.data = draw(*parameter.shape, seed=100 * seed + i) / math.sqrt(fan)
    return net


def gaussian(event, batch=1, seed=1):
    n = math.prod(event)
    factor = draw(batch, n, n, seed=seed) / math.sqrt(n)
    return sr.Gaussian(draw(batch, *event, seed=seed + 1), factor @ factor.mT)


def assert_moments_by_sampling(net, x, rule, samples=200_000):
    """No mean or covariance is off by more than 4 standard errors of its estimate.

    Few enough entries are compared that this fails for a right rule with probability below 1 %; the
    seed is fixed.
    """
    y = sr.propagate(net, x, rule)
    normals = draw(samples, x.dimension, seed=7)
    with torch.no_grad():
        points = x.mean.flatten(1) + normals @ x.factor()[0].mT
        outputs = net(points.reshape(samples, *x.event_shape)).flatten(1)
    centred = outputs - y.mean.flatten(1)
    i, j = torch.triu_indices(outputs.shape[1], outputs.shape[1])
    assert len(i) <= 40
    assert bool((centred.mean(0).abs() < 4 * outputs.std(0) / math.sqrt(samples)).all())
    products = centred[:, i] * centred[:, j]
    error = (products.mean(0) - y.covariance[0][i, j]).abs() / (products.std(0) / math.sqrt(samples))
    assert bool((error < 4).all()), error.max()


@pytest.mark.parametrize("act", [nn.ReLU, nn.Tanh, nn.GELU])
def test_a_convolutional_net_with_one_hidden_nonlinearity_by_sampling(act):
    """Exact for moment matching: the law before the non-linearity is Gaussian, all after it affine."""
    net = nn.Sequential(
        nn.Conv2d(1, 2, 3, stride=2, padding=1),
        nn.BatchNorm2d(2),
        act(),
        nn.AvgPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(8, 3),
    )
    assert_moments_by_sampling(seeded(net), gaussian((1, 5, 5)), "moment_matching")


class Residual(nn.Module):
    """x + W2 f(W1 x)."""

    def __init__(self, n, m, act):
        super().__init__()
        self.first, self.act, self.second = nn.Linear(n, m), act, nn.Linear(m, n)

    def forward(self, x):
        return x + self.second(self.act(self.first(x)))


@pytest.mark.parametrize("act", [nn.ReLU(), nn.Sigmoid(), nn.SiLU(), nn.LeakyReLU(0.2)])
def test_a_residual_branch_by_sampling(act):
    """Exact for moment matching: Stein's lemma gives the covariance between x and the branch."""
    assert_moments_by_sampling(seeded(Residual(3, 8, act)), gaussian((3,)), "moment_matching")


def test_a_residual_convolution_by_sampling():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.back = nn.Conv2d(1, 2, 3, padding=1), nn.Conv2d(2, 1, 3, padding=1)
            self.head = nn.Linear(9, 3)

        def forward(self, x):
            y = F.relu(self.conv(x), inplace=True)
            return self.head(torch.flatten(torch.cat([x, y], 1)[:, :1] + self.back(y), 1))

    assert_moments_by_sampling(seeded(Net()), gaussian((1, 3, 3)), "moment_matching")


@pytest.mark.parametrize("rule", FULL)
def test_a_residual_branch_by_block_algebra(rule):
    """Cov(x + B) = S + Cov(x, B) + Cov(B, x) + Cov(B), Cov(x, B) = S W1^T diag(Phi(h)) W2^T."""
    net, x = seeded(Residual(4, 6, nn.ReLU())), gaussian((4,), batch=3)
    w1, w2 = net.first.weight, net.second.weight
    hidden = sr.propagate(net.first, x, rule)
    branch = sr.propagate(nn.Sequential(net.first, nn.ReLU(), net.second), x, rule)
    slope = 0.5 * torch.erfc(-hidden.mean / hidden.variance.sqrt() / math.sqrt(2))
    cross = (x.covariance @ w1.mT * slope.unsqueeze(1)) @ w2.mT
    y = sr.propagate(net, x, rule)
    assert torch.allclose(y.mean, x.mean + branch.mean, rtol=1e-13)
    expected = x.covariance + cross + cross.mT + branch.covariance
    assert torch.allclose(y.covariance, expected, rtol=1e-12, atol=1e-14)


class Branches(nn.Module):
    """Branches with one non-linearity, of different depths, that meet again."""

    def __init__(self, act):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(3, 4)
        self.act, self.head = act, nn.Linear(8, 2)

    def forward(self, x):
        first = self.act(self.a(x))
        again = self.act(self.b(x / 2 + x))
        return self.head(torch.cat([first + again, again + self.a(x)], 1))


@pytest.mark.parametrize("act", [nn.ReLU(), nn.Tanh()])
def test_branches_with_one_nonlinearity_by_sampling(act):
    assert_moments_by_sampling(seeded(Branches(act)), gaussian((3,)), "moment_matching")


@pytest.mark.parametrize("rule", FULL)
def test_branches_are_as_the_layer_that_holds_them_all(rule):
    parts, x = nn.ModuleList(seeded(nn.Linear(4, 3), seed) for seed in range(3)), gaussian((4,), batch=2)
    whole = nn.Linear(4, 9, dtype=torch.float64)
    whole.weight.data = torch.cat([p.weight.data for p in parts])
    whole.bias.data = torch.cat([p.bias.data for p in parts])

    def net(v):
        return torch.cat([F.relu(p(v)) for p in parts], 1)

    y, expected = sr.propagate(net, x, rule), sr.propagate(nn.Sequential(whole, nn.ReLU()), x, rule)
    assert torch.allclose(y.mean, expected.mean, rtol=1e-13)
    assert torch.allclose(y.covariance, expected.covariance, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("rule", FULL)
def test_a_function_applied_twice_to_a_value_gives_it_twice(rule):
    layer, x = seeded(nn.Linear(3, 3)), gaussian((3,), batch=2)

    def net(v):
        y = layer(v)
        return torch.cat([F.relu(v), F.relu(y), torch.relu(v) - v.relu(), F.relu(y) + y], 1)

    y = sr.propagate(net, x, rule)
    assert not y.covariance[:, 6:9].any()
    alone = sr.propagate(lambda v: torch.cat([v, F.relu(layer(v)) + layer(v)], 1), x, rule)
    assert torch.allclose(y.covariance[:, 9:, 9:], alone.covariance[:, 3:, 3:], rtol=1e-12)


def test_a_value_minus_itself_is_nothing():
    x = gaussian((4,), batch=2)

    def net(v):
        y = torch.relu(v)
        return torch.cat([y - y, y + y - 2 * y, (v + 1) - v], 1)

    for rule in FULL:
        y = sr.propagate(net, x, rule)
        assert y.mean[:, :8].abs().max() < 1e-15
        assert y.covariance.abs().max() < 1e-14


class Wired(nn.Module):
    """Affine ops wired at random: each step reads values made before it."""

    def __init__(self, wiring, n=3):
        super().__init__()
        self.wiring = wiring
        self.layers = nn.ModuleList(nn.Linear(n, n) for _ in wiring)
        self.last = nn.Linear(n * (len(wiring) + 1), 2)

    def forward(self, x):
        values = [x]
        for layer, (kind, a, b) in zip(self.layers, self.wiring, strict=True):
            a, b = values[a % len(values)], values[b % len(values)]
            match kind:
                case "linear":
                    values.append(layer(a))
                case "add":
                    values.append(a + b)
                case "mixed":
                    values.append(2 * a - layer(b) / 3 + 1)
                case "cat":
                    values.append(torch.cat([a[:, :1], b[:, :2]], 1))
                case "relu":
                    values.append(F.relu(a))
                case "silu":
                    values.append(F.silu(layer(b)))
                case "view":
                    values.append(a.view(-1, 3, 1).flatten(1))
        return self.last(torch.cat(values, 1))


AFFINE = ("linear", "add", "mixed", "cat", "view")


def wirings(*kinds):
    step = st.tuples(st.sampled_from(kinds), st.integers(0, 9), st.integers(0, 9))
    return st.lists(step, min_size=1, max_size=7)


@settings(max_examples=60)
@given(wirings(*AFFINE, "relu", "silu"))
def test_vanishing_noise_through_nets_of_any_wiring_is_the_linearisation(wiring):
    """Stein's lemma, grouping of branches and bookkeeping: J S J^T of the whole net is the judge."""
    net, x = seeded(Wired(wiring)), gaussian((3,), batch=2)
    tiny = sr.Gaussian(x.mean, x.covariance * 1e-16)
    y, expected = sr.propagate(net, tiny, "moment_matching"), sr.propagate(net, tiny, "sdp")
    assert torch.allclose(y.mean, expected.mean, rtol=1e-9, atol=1e-9)
    largest = expected.covariance.abs().max()
    assert torch.allclose(y.covariance, expected.covariance, rtol=0, atol=1e-5 * float(largest))


@settings(max_examples=60)
@given(wirings(*AFFINE), st.booleans())
def test_affine_nets_of_any_wiring_are_exact(wiring, independent):
    """Every covariance between live values counts: the dense matrix of the whole net is the judge."""
    net = seeded(Wired(wiring))
    with torch.no_grad():
        matrix = (net(torch.eye(3, dtype=torch.float64)) - net(torch.zeros(1, 3, dtype=torch.float64))).mT
        x = gaussian((3,), batch=2)
        if independent:
            x = sr.DiagonalGaussian(x.mean, x.variance)
        for rule in FULL:
            y = sr.propagate(net, x, rule)
            expected = matrix @ x.covariance @ matrix.mT
            assert torch.allclose(y.mean, net(x.mean), rtol=1e-12, atol=1e-12)
            assert torch.allclose(y.covariance, expected, rtol=1e-11, atol=1e-11 * expected.abs().max())


def test_two_branches_of_the_same_unit_keep_the_first_term_of_their_covariance():
    """Cov(f(X), g(X)) is not known to the walk; it takes E[f'] E[g'] Var(X), and says so."""
    x = sr.DiagonalGaussian(torch.tensor([[0.3]]).double(), torch.tensor([[0.5]]).double())

    def net(v):
        return torch.cat([torch.relu(v), torch.tanh(v)], 1)

    y = sr.propagate(net, x, "moment_matching")
    slopes = [activation(name).mean_derivative(x.mean, x.variance) for name in ("relu", "tanh")]
    assert torch.allclose(y.covariance[0, 0, 1], slopes[0] * slopes[1] * x.variance, rtol=1e-13)


def test_units_that_rounding_made_negative_are_point_masses_beside_a_branch():
    """W1 x has variance 0 up to rounding on either side, and must not reach the sum."""
    for seed in range(20):
        v = draw(1, 3, 1, seed=seed)
        x = sr.Gaussian(draw(1, 3, seed=seed + 50), v @ v.mT)
        net = seeded(Residual(3, 4, nn.ReLU()), seed)
        w = net.first.weight.data
        net.first.weight.data = w - (w @ v[0]) @ v[0].T / v[0].square().sum()
        y = sr.propagate(net, x, "moment_matching")
        assert torch.allclose(y.covariance, x.covariance, atol=1e-12)


@pytest.mark.parametrize("name", list(ACTIVATIONS)[:6])
def test_mean_derivatives_are_the_derivatives_of_means(name):
    """d E[f(X)] / d mean = E[f'(X)]: autograd through the mean, and quadrature, are the judges."""
    f = activation(name)
    grid = list(
        itertools.product([-9.0, -2.5, -0.3, 0.0, 0.7, 4.0, 30.0], [1e-14, 1e-6, 0.04, 1.0, 30.0, 1e4])
    )
    mean, variance = torch.tensor(grid, dtype=torch.float64).unbind(1)
    slope = f.mean_derivative(mean, variance)
    mean.requires_grad_()
    (expected,) = torch.autograd.grad(f.mean_variance(mean, variance)[0].sum(), mean)
    assert torch.allclose(slope, expected, rtol=1e-9, atol=1e-12)
    z, w = _hermite()
    narrow = variance <= 1
    if not f.kinks:  # Gauss-Hermite needs a smooth integrand
        points = mean[narrow, None] + variance[narrow, None].sqrt() * z
        by_nodes = (f.derivative(points.detach()) * w).sum(-1)
        assert torch.allclose(slope[narrow], by_nodes, rtol=1e-6, atol=1e-9)
    point = f.mean_derivative(mean.detach(), torch.zeros_like(variance))
    assert torch.allclose(point, f.derivative(mean.detach()), rtol=1e-12, atol=1e-15)
    assert f.mean_derivative(mean.detach().float(), variance.float()).dtype == torch.float32


def _hermite():
    """Nodes and weights of E[g(Z)], Z standard normal, by Golub and Welsch."""
    n = 100
    off = torch.arange(1, n, dtype=torch.float64).sqrt()
    values, vectors = torch.linalg.eigh(torch.diag(off, 1) + torch.diag(off, -1))
    return values, vectors[0].square()


@pytest.mark.parametrize("rule", FULL)
def test_covariances_that_would_not_fit_are_refused_before_they_are_built(rule, monkeypatch):
    image = sr.DiagonalGaussian(torch.zeros(1, 3, 224, 224), torch.ones(1, 3, 224, 224))
    net = nn.Sequential(nn.Sequential(nn.Conv2d(3, 8, 3)), nn.ReLU())
    built = []
    whole = torch.diag_embed
    monkeypatch.setattr(torch, "diag_embed", lambda v: built.append(v.shape) or whole(v))
    with pytest.raises(
        sr.CovarianceSizeError, match=r"1 x 394272 x 394272 .* bytes .* \(at '0.0' in the net\)"
    ) as caught:
        sr.propagate(net, image, rule)
    assert not built
    # The input's matrix, the output's, and one between them, in float64.
    n, m = 3 * 224 * 224, 8 * 222 * 222
    assert caught.value.bytes == 8 * (n * n + n * m + m * m)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.bytes) == (str(caught.value), caught.value.bytes)
    for shallow in (nn.Identity(), nn.ReLU(), nn.MaxPool2d(2)):
        with pytest.raises(sr.CovarianceSizeError):
            sr.propagate(shallow, image, rule)
    # W diag(v) W^T needs no matrix of the input's size, and scaling a variance none at all.
    y = sr.propagate(nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(n, 2)).eval(), image, rule)
    assert y.covariance.shape == (1, 2, 2)
    assert not built


def test_the_bound_of_memory_can_be_set_and_is_no_part_of_a_rules_name():
    x, net = gaussian((10,)), nn.Sequential(nn.Linear(10, 50), nn.ReLU()).double()
    assert sr.rule("moment_matching").spec == "moment_matching"
    small = sr.rule("dvia:max_bytes=100000")
    assert small.spec == "dvia:max_bytes=100000"
    with pytest.raises(sr.UnsupportedError, match="more than its max_bytes=100,000"):
        sr.propagate(net, x, small)
    sr.propagate(net, x, sr.rule("dvia", max_bytes=1_000_000))
    for bad in (0, -1, "many"):
        with pytest.raises(ValueError, match="max_bytes above 0"):
            sr.rule("moment_matching", max_bytes=bad)


@pytest.mark.parametrize("gradient", [False, True])
def test_convolutions_of_many_rows_are_taken_in_chunks(monkeypatch, gradient):
    net, x = seeded(nn.Conv2d(2, 3, 3, padding=1)), gaussian((2, 4, 4), batch=3)
    whole = sr.propagate(net, x, "moment_matching")
    monkeypatch.setattr("sdp_ref.graph.affine.CHUNK", 2000)
    with torch.set_grad_enabled(gradient):
        chunked = sr.propagate(net, x, "moment_matching")
    assert chunked.covariance.requires_grad == gradient
    assert torch.allclose(chunked.covariance, whole.covariance, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("rule", FULL)
def test_batches_are_cut_to_fit(rule):
    net, x = seeded(Residual(4, 30, nn.ReLU())), gaussian((4,), batch=7)
    whole = sr.propagate(net, x, rule)
    with pytest.raises(sr.CovarianceSizeError) as caught:
        sr.propagate(net, x, sr.rule(rule, max_bytes=1000))
    assert "of 1 x 30 x 30" in str(caught.value)
    assert f"rule '{rule}'" in str(caught.value)
    parts = sr.propagate(net, x, sr.rule(rule, max_bytes=600_000))  # a few at a time
    assert parts.mean.shape == (7, 4)
    assert torch.allclose(parts.mean, whole.mean, rtol=1e-13)
    assert torch.allclose(parts.covariance, whole.covariance, rtol=1e-12)


@pytest.mark.rounding
@pytest.mark.parametrize("rule", FULL)
def test_values_that_nobody_reads_any_more_are_let_go(rule):
    """A chain holds one matrix at a time: a hundred layers fit where three matrices do."""
    net = seeded(nn.Sequential(*[nn.Linear(20, 20) for _ in range(100)]))
    x = gaussian((20,))
    y = sr.propagate(net, x, sr.rule(rule, max_bytes=8 * 3 * 20 * 20))
    assert torch.equal(y.covariance, sr.propagate(net, x, rule).covariance)
