import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import nn

import sdp_ref as sr
from sdp_ref.activations import activation
from sdp_ref.rules import MomentMatching
from tests.sdp_ref.common import assert_moments_by_sampling, draw, full_law, seeded

FULL = ("moment_matching", "dvia")


def assert_sampling_agrees(net, x, samples=200_000):
    with torch.no_grad():
        points = x.mean.flatten(1) + draw(samples, x.dimension, seed=7) @ x.factor()[0].mT
        outputs = net(points.reshape(samples, *x.event_shape)).flatten(1)
    assert_moments_by_sampling(sr.propagate(net, x, "moment_matching"), outputs)


@pytest.mark.parametrize("act", [nn.ReLU, nn.Tanh, nn.GELU])
def test_moment_matching_is_exact_for_a_convolutional_net_with_one_nonlinearity(act):
    """Exact for moment matching: the law before the non-linearity is Gaussian, all after it affine."""
    net = nn.Sequential(
        nn.Conv2d(1, 2, 3, stride=2, padding=1),
        nn.BatchNorm2d(2),
        act(),
        nn.AvgPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(8, 3),
    )
    assert_sampling_agrees(seeded(net), full_law((1, 5, 5)))


class Residual(nn.Module):
    def __init__(self, n, m, act):
        super().__init__()
        self.first, self.act, self.second = nn.Linear(n, m), act, nn.Linear(m, n)

    def forward(self, x):
        return x + self.second(self.act(self.first(x)))


@pytest.mark.parametrize("rule", FULL)
def test_the_covariance_of_a_residual_branch_follows_from_block_algebra(rule):
    """Cov(x + B) = S + Cov(x, B) + Cov(B, x) + Cov(B), Cov(x, B) = S W1^T diag(Phi(h)) W2^T."""
    net, x = seeded(Residual(4, 6, nn.ReLU())), full_law((4,), batch=3)
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
    def __init__(self, act):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(3, 4)
        self.act, self.head = act, nn.Linear(8, 2)

    def forward(self, x):
        first = self.act(self.a(x))
        again = self.act(self.b(x / 2 + x))
        return self.head(torch.cat([first + again, again + self.a(x)], 1))


@pytest.mark.parametrize("act", [nn.ReLU(), nn.Tanh()])
def test_moment_matching_is_exact_for_branches_with_one_nonlinearity(act):
    assert_sampling_agrees(seeded(Branches(act)), full_law((3,)))


class Wired(nn.Module):
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
                case "view":
                    values.append(a.view(-1, 3, 1).flatten(1))
        return self.last(torch.cat(values, 1))


AFFINE_STEP = st.tuples(
    st.sampled_from(["linear", "add", "mixed", "cat", "view"]), st.integers(0, 9), st.integers(0, 9)
)


@settings(max_examples=30)
@given(st.lists(AFFINE_STEP, min_size=1, max_size=7), st.booleans())
def test_affine_nets_of_any_wiring_are_exact(wiring, independent):
    """Every covariance between live values counts: the dense matrix of the whole net is the judge."""
    net = seeded(Wired(wiring))
    with torch.no_grad():
        matrix = (net(torch.eye(3, dtype=torch.float64)) - net(torch.zeros(1, 3, dtype=torch.float64))).mT
        x = full_law((3,), batch=2)
        if independent:
            x = sr.DiagonalGaussian(x.mean, x.variance)
        for rule in FULL:
            y = sr.propagate(net, x, rule)
            expected = matrix @ x.covariance @ matrix.mT
            assert torch.allclose(y.mean, net(x.mean), rtol=1e-12, atol=1e-12)
            assert torch.allclose(y.covariance, expected, rtol=1e-11, atol=1e-11 * expected.abs().max())


class MixedBranches(nn.Module):
    """Branches with different functions of the same input, one of them with a slope per unit."""

    def __init__(self):
        super().__init__()
        self.first = nn.ModuleList(nn.Linear(3, 4) for _ in range(5))
        self.slopes, self.head = nn.PReLU(4), nn.Linear(15, 2)
        with torch.no_grad():
            self.slopes.weight.copy_(torch.tensor([-0.5, 0.0, 0.3, 2.0]))

    def forward(self, x):
        functions = (torch.relu, torch.tanh, torch.sin, torch.special.ndtr, self.slopes)
        a, b, c, d, e = (f(layer(x)) for f, layer in zip(functions, self.first, strict=True))
        return self.head(torch.cat([a + b, c - d, e, x], 1))


def test_moment_matching_is_exact_for_branches_with_different_functions():
    assert_sampling_agrees(seeded(MixedBranches()), full_law((3,)))


def relu_and_tanh(x):
    return torch.cat([torch.relu(x), torch.tanh(x)], 1)


def test_two_functions_of_the_same_unit_have_their_exact_covariance():
    x = sr.DiagonalGaussian(*torch.tensor([[[0.3]], [[0.5]]], dtype=torch.float64))
    y = sr.propagate(relu_and_tanh, x, sr.rule("moment_matching", tolerance=1e-9))
    law = stats.norm(0.3, math.sqrt(0.5))
    means = [law.expect(f, epsabs=1e-13) for f in (lambda v: max(v, 0), math.tanh)]

    def product(v):
        return (max(v, 0) - means[0]) * (math.tanh(v) - means[1])

    expected = law.expect(product, ub=0, epsabs=1e-13) + law.expect(product, lb=0, epsabs=1e-13)
    assert float(y.covariance[0, 0, 1]) == pytest.approx(expected, abs=1e-9)


def relu_and_root(x):
    return torch.cat([torch.relu(x), torch.sqrt(x)], 1)


def test_only_the_function_without_a_formula_is_named_and_linearised():
    x = sr.DiagonalGaussian(torch.tensor([[1.3]]).double(), torch.tensor([[0.5]]).double())
    with pytest.raises(sr.UnsupportedError, match=r"moments of sqrt.*at 'sqrt'"):
        sr.propagate(relu_and_root, x, "moment_matching")
    y = sr.propagate(relu_and_root, x, sr.rule("moment_matching", fallback="linearise"))
    assert y.notes == ("Sqrt linearised at 'sqrt'",)
    ramp = activation("relu").mean_variance(x.mean, x.variance)[0]
    assert torch.allclose(y.mean, torch.cat([ramp, x.mean.sqrt()], 1), rtol=1e-12)


def test_a_handler_of_the_user_keeps_the_first_order_term():
    """The moments of such a handler need not be exact, so E[f'] E[g'] Var(X) is all that is known."""

    class Handled(MomentMatching):
        name = "handled"

    @Handled.handles(nn.Tanh)
    def tanh(_rule, _module, law):
        mean, covariance = activation("tanh").mean_covariance(law.mean, law.covariance)
        return sr.Gaussian(mean, covariance)

    x = sr.DiagonalGaussian(torch.tensor([[0.3]]).double(), torch.tensor([[0.5]]).double())
    y = sr.propagate(relu_and_tanh, x, Handled())
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


@pytest.mark.parametrize("rule", FULL)
def test_covariances_that_would_not_fit_are_refused(rule):
    image = sr.DiagonalGaussian(torch.zeros(1, 3, 224, 224), torch.ones(1, 3, 224, 224))
    net = nn.Sequential(nn.Sequential(nn.Conv2d(3, 8, 3)), nn.ReLU())
    with pytest.raises(
        sr.CovarianceSizeError, match=r"1 x 394272 x 394272 .* bytes .* \(at '0.0' in the net\)"
    ) as caught:
        sr.propagate(net, image, rule)
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


@pytest.mark.parametrize("rule", FULL)
def test_batches_are_cut_to_fit(rule):
    net, x = seeded(Residual(4, 30, nn.ReLU())), full_law((4,), batch=7)
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
    x = full_law((20,))
    y = sr.propagate(net, x, sr.rule(rule, max_bytes=8 * 3 * 20 * 20))
    assert torch.equal(y.covariance, sr.propagate(net, x, rule).covariance)
