"""Rules: exactness where it is known, properties that all must have, and what they refuse."""

import itertools
import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import sdp_ref as sr
from sdp_ref.activations.roots import Sqrt
from sdp_ref.rules.linearization import jacobian_of

ANALYTIC = ("sdp", "marginal_sdp", "dvia", "moment_matching", "marginal_moment_matching")
FULL = ("sdp", "dvia", "moment_matching")
MARGINAL = ("marginal_sdp", "marginal_moment_matching")
OF_RELU = tuple(name for name in sr.rules() if name != "second_order")


def mlp(*widths, activation=nn.ReLU, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    layers = []
    for n, m in itertools.pairwise(widths):
        layer = nn.Linear(n, m, dtype=dtype)
        for parameter in layer.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator, dtype=dtype) / math.sqrt(n)
        layers += [layer, activation()]
    return nn.Sequential(*layers[:-1])


def gaussian(batch, n, seed=1, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    factor = torch.randn(batch, n, n, generator=generator, dtype=dtype)
    return sr.Gaussian(torch.randn(batch, n, generator=generator, dtype=dtype), factor @ factor.mT)


def diagonal(batch, n, seed=1, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(batch, n, generator=generator, dtype=dtype)
    return sr.DiagonalGaussian(mean, torch.rand(batch, n, generator=generator, dtype=dtype) + 0.1)


@pytest.mark.parametrize("rule", FULL)
@pytest.mark.parametrize("make", [gaussian, diagonal])
def test_affine_nets_are_exact(rule, make):
    net, x = mlp(4, 3), make(5, 4)
    y = sr.propagate(net, x, rule)
    weight = net[0].weight
    assert torch.allclose(y.mean, net(x.mean), rtol=1e-13)
    assert torch.allclose(y.covariance, weight @ x.covariance @ weight.mT, rtol=1e-13)


@pytest.mark.parametrize("rule", MARGINAL)
def test_one_affine_layer_is_exact_for_marginal_rules(rule):
    net, x = mlp(4, 3), diagonal(5, 4)
    y = sr.propagate(net, x, rule)
    assert torch.allclose(y.mean, net(x.mean), rtol=1e-13)
    assert torch.allclose(y.variance, x.variance @ net[0].weight.square().mT, rtol=1e-13)


def test_sdp_is_value_and_jacobian_of_the_net():
    net, x = mlp(4, 20, 20, 3, activation=nn.Tanh), gaussian(6, 4)
    y = sr.propagate(net, x, "sdp")
    jacobian = torch.stack(
        [torch.autograd.functional.jacobian(lambda v: net(v[None])[0], row) for row in x.mean]
    )
    assert torch.allclose(y.mean, net(x.mean))
    assert torch.allclose(y.covariance, jacobian @ x.covariance @ jacobian.mT, rtol=1e-12)


def test_forward_and_reverse_mode_agree():
    wide, x = mlp(3, 10, 8, activation=nn.SiLU), diagonal(4, 3)
    value, jacobian = jacobian_of(wide, x.mean)  # forward: fewer inputs than outputs
    rows = [jacobian_of(lambda v, k=k: wide(v)[:, k : k + 1], x.mean)[1] for k in range(8)]
    assert torch.allclose(value, wide(x.mean))
    assert torch.allclose(jacobian, torch.cat(rows, 1), rtol=1e-12)


def test_the_derivative_at_a_kink_is_the_one_from_the_right():
    """The paper's eq. 2 keeps the scale at location 0."""
    x = sr.DiagonalGaussian(torch.zeros(1, 1), torch.ones(1, 1))
    for net in (nn.ReLU(), nn.ReLU(inplace=True), torch.relu, F.relu, nn.LeakyReLU(0.1), lambda v: v.relu()):
        assert sr.propagate(net, x, "sdp").covariance.item() == 1
        assert sr.propagate(net, x, "marginal_sdp").variance.item() == 1
    relu_after = nn.Sequential(nn.ReLU())
    assert sr.propagate(relu_after, x, "sdp").mean.item() == 0


def test_relu_of_one_gaussian_by_the_papers_equation_2():
    x = sr.DiagonalGaussian(torch.tensor([[1.5, -0.5]]), torch.tensor([[4.0, 4.0]]))
    y = sr.propagate(nn.ReLU(), x, "marginal_sdp")
    assert y.mean.tolist() == [[1.5, 0.0]]
    assert y.variance.tolist() == [[4.0, 0.0]]


def test_sdp_without_output_dependence_is_a_point_mass():
    x = diagonal(2, 3)
    y = sr.propagate(lambda v: torch.ones(len(v), 2, dtype=v.dtype), x, "sdp")
    assert not y.covariance.any()
    y = sr.propagate(lambda v: v[:, :2] * torch.tensor([1.0, 0.0], dtype=v.dtype), x, "sdp")
    assert torch.equal(y.covariance[:, 1], torch.zeros(2, 2, dtype=torch.float64))


def poisoned():
    net = mlp(4, 3, 2)
    net[0].weight.data[0, 0] = float("nan")
    return net


def test_full_moment_matching_is_exact_after_one_hidden_layer_by_sampling():
    for activation in (nn.ReLU, nn.Sigmoid, nn.SiLU, nn.GELU, nn.Tanh):
        net, x = mlp(3, 12, 2, activation=activation), gaussian(1, 3)
        y = sr.propagate(net, x, "moment_matching")
        normals = torch.randn(400_000, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        with torch.no_grad():
            samples = net(x.mean + normals @ x.factor()[0].mT)
        centred = samples - y.mean
        products = centred.unsqueeze(2) * centred.unsqueeze(1)
        # No entry off by more than 4.5 standard errors: 5 numbers x 5 nets, p < 2e-4 in all.
        error = samples.std(0) / math.sqrt(len(samples))
        assert bool(((samples.mean(0) - y.mean[0]).abs() < 4.5 * error).all()), activation
        error = products.std(0) / math.sqrt(len(samples))
        assert bool(((products.mean(0) - y.covariance[0]).abs() < 4.5 * error).all()), activation


@pytest.mark.parametrize("rule", ANALYTIC)
def test_vanishing_noise_gives_value_and_linearisation(rule):
    net = mlp(4, 30, 30, 3)
    x = diagonal(3, 4)
    tiny = sr.DiagonalGaussian(x.mean, x.variance * 1e-18)
    y = sr.propagate(net, tiny, rule)
    assert torch.allclose(y.mean, net(x.mean), atol=1e-9)
    if rule in FULL:
        expected = sr.propagate(net, tiny, "sdp").covariance
        assert torch.allclose(y.covariance, expected, rtol=1e-6, atol=1e-24)


@pytest.mark.rounding
@pytest.mark.parametrize("rule", [name for name in OF_RELU if name != "exact"])  # too many regions
@pytest.mark.parametrize("factor", [2.0**-40, 2.0**40])
def test_relu_nets_without_bias_scale_exactly(rule, factor):
    net = mlp(4, 20, 20, 3)
    for layer in net[::2]:
        layer.bias = None
    x = diagonal(3, 4)
    scaled = sr.DiagonalGaussian(x.mean * factor, x.variance * factor**2)
    y, z = sr.propagate(net, x, rule), sr.propagate(net, scaled, rule)
    assert torch.equal(z.mean, y.mean * factor)
    assert torch.equal(z.covariance, y.covariance * factor**2)


@pytest.mark.parametrize("rule", ANALYTIC)
def test_no_noise_is_a_point_mass(rule):
    net, x = mlp(4, 20, 20, 3), diagonal(3, 4)
    y = sr.propagate(net, sr.DiagonalGaussian(x.mean, torch.zeros_like(x.variance)), rule)
    assert torch.allclose(y.mean, net(x.mean), rtol=1e-13)
    assert not y.covariance.any()


@pytest.mark.parametrize("rule", [*ANALYTIC, "monte_carlo"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_shape_and_batch_independence(rule, dtype):
    net, x = mlp(4, 10, 3, dtype=dtype), diagonal(5, 4, dtype=dtype)
    y = sr.propagate(net, x, rule)
    assert (y.mean.dtype, y.covariance.dtype) == (dtype, dtype)
    assert (y.mean.shape, y.covariance.shape) == ((5, 3), (5, 3, 3))
    if rule in ANALYTIC:
        alone = sr.propagate(net, x[3], rule)
        tolerance = 1e-5 if dtype == torch.float32 else 1e-12
        assert torch.allclose(alone.mean, y.mean[3:4], rtol=tolerance)
        assert torch.allclose(alone.covariance, y.covariance[3:4], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("rule", ANALYTIC)
def test_float32_agrees_with_float64_in_far_tails(rule):
    """Units with mean/std from -20 to 20, where float32 formulas would lose the variance."""
    net = mlp(4, 50, 3)
    x = sr.DiagonalGaussian(10 * diagonal(4, 4).mean, torch.full((4, 4), 0.5).double())
    exact = sr.propagate(net, x, rule)
    single = sr.propagate(net.float(), x.to(dtype=torch.float32), rule)
    assert torch.allclose(single.variance.double(), exact.variance, rtol=1e-4)


@pytest.mark.parametrize("rule", ["marginal_sdp", "dvia", "moment_matching", "marginal_moment_matching"])
def test_gradients_reach_mean_variance_and_weights(rule):
    net = mlp(2, 3, 2, seed=3)
    x = diagonal(1, 2, seed=4)

    def outputs(mean, variance, weight):
        weights = {"0.weight": weight}
        bound = nn.Sequential(*net)
        return torch.func.functional_call(
            _Propagated(bound, rule), {f"net.{k}": v for k, v in weights.items()}, (mean, variance)
        )

    inputs = (x.mean, x.variance, net[0].weight.detach().clone())
    assert torch.autograd.gradcheck(outputs, [t.requires_grad_() for t in inputs])


class _Propagated(nn.Module):
    def __init__(self, net, rule):
        super().__init__()
        self.net, self.rule = net, rule

    def forward(self, mean, variance):
        y = sr.propagate(self.net, sr.DiagonalGaussian(mean, variance), self.rule)
        return y.mean, y.covariance


def test_sdp_is_differentiable_with_create_graph_and_carries_no_gradient_without():
    net = mlp(3, 5, 2, activation=nn.Tanh)
    mean, variance = torch.randn(2, 3).double(), torch.rand(2, 3).double()

    def outputs(mean, variance):
        y = sr.propagate(net, sr.DiagonalGaussian(mean, variance), sr.rule("sdp", create_graph=True))
        return y.mean, y.covariance

    assert torch.autograd.gradcheck(outputs, (mean.requires_grad_(), variance.requires_grad_()))
    y = sr.propagate(net, sr.DiagonalGaussian(mean, variance), sr.rule("sdp", create_graph=True))
    y.covariance.sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in net[0].parameters())
    plain = sr.propagate(net, sr.DiagonalGaussian(mean, variance), "sdp")
    assert not plain.mean.requires_grad
    assert not plain.covariance.requires_grad


def test_monte_carlo_is_the_moments_of_its_samples():
    net, x = mlp(4, 10, 3), gaussian(2, 4)
    rule = sr.rule("monte_carlo", samples=50, seed=(7, 8))
    y = sr.propagate(net, x, rule)
    again = sr.propagate(net, x[1], sr.rule("monte_carlo", samples=50, seed=(8,)))
    assert torch.allclose(again.covariance, y.covariance[1:], rtol=1e-12)
    identity = sr.propagate(nn.Identity(), x, rule)
    assert torch.linalg.matrix_rank(identity.covariance).tolist() == [4, 4]
    few = sr.propagate(nn.Identity(), x, sr.rule("monte_carlo", samples=3))
    assert torch.linalg.matrix_rank(few.covariance).tolist() == [2, 2]


@pytest.mark.rounding
@pytest.mark.parametrize("k", [16, 100])
def test_sobol_points_do_not_overstate_the_covariance(k):
    """Their mean hardly varies: a divisor of k - 1 would give 6.7 % too much at 16 points, 1 % at 100."""
    x = sr.DiagonalGaussian(torch.zeros(400, 2).double(), torch.ones(400, 2).double())
    rule = sr.rule(f"monte_carlo:samples={k},sampler=sobol", seed=tuple(range(400)))
    variance = sr.propagate(torch.nn.Identity(), x, rule).variance
    assert variance.mean().item() == pytest.approx(1, abs=0.006)


def test_sobol_points_give_the_moments_of_an_affine_net_far_better_than_draws():
    net, x = mlp(4, 3), diagonal(8, 4)
    exact = sr.propagate(net, x, "sdp")

    def error(sampler):
        rule = sr.rule("monte_carlo", samples=1024, sampler=sampler, seed=tuple(range(8)))
        assert rule.spec == "monte_carlo:samples=1024" + (",sampler=sobol" if sampler == "sobol" else "")
        law = sr.propagate(net, x, rule)
        assert torch.equal(law.mean, sr.propagate(net, x, rule).mean)
        return float((law.mean - exact.mean).detach().square().mean().sqrt())

    # Draws err by sd / 32; a scrambled net of 1024 points by about sd / 500 (24 means each).
    assert error("sobol") < error("mc") / 5
    one = sr.propagate(net, x[3], sr.rule("monte_carlo:samples=16,sampler=sobol", seed=(3,)))
    all_ = sr.propagate(net, x, sr.rule("monte_carlo:samples=16,sampler=sobol", seed=tuple(range(8))))
    assert torch.allclose(one.mean, all_.mean[3:4], rtol=1e-12)


def test_monte_carlo_covariance_is_unbiased():
    """The mean over 2000 independent k = 3 estimates, within 4.5 standard errors."""
    x = gaussian(1, 2)
    many = sr.Gaussian(x.mean.expand(2000, 2), x.covariance.expand(2000, 2, 2))
    y = sr.propagate(nn.Identity(), many, sr.rule("monte_carlo", samples=3))
    error = y.covariance.std(0) / math.sqrt(2000)
    assert bool(((y.covariance.mean(0) - x.covariance[0]).abs() < 4.5 * error).all())


def test_monte_carlo_does_not_touch_the_global_generator():
    net, x = mlp(4, 3), diagonal(1, 4)
    state = torch.get_rng_state()
    sr.propagate(net, x, "monte_carlo")
    assert torch.equal(state, torch.get_rng_state())


@given(st.integers(0, 10_000), st.sampled_from([1e-3, 1e-1, 1.0, 1e2, 1e3]))
def test_covariances_are_symmetric_and_variances_not_negative(seed, sigma):
    net = mlp(4, 16, 16, 3, seed=seed)
    x = sr.DiagonalGaussian(diagonal(2, 4, seed=seed).mean, torch.full((2, 4), sigma**2).double())
    for rule in ANALYTIC:
        y = sr.propagate(net, x, rule)
        assert bool((y.variance >= 0).all())
        assert torch.equal(y.covariance, y.covariance.mT)
        if rule != "dvia":
            values = torch.linalg.eigvalsh(y.covariance)
            assert bool((values[:, 0] >= -1e-10 * values[:, -1]).all())


@pytest.mark.parametrize("make", [gaussian, diagonal])
@pytest.mark.parametrize("kappa", [None, 0.0, 2.0])
def test_the_unscented_transform_is_exact_up_to_quadratic_means(make, kappa):
    """Its points share mean and covariance, so E[x^2] is exact; so is all of an affine net."""
    x, rule = make(3, 4), sr.rule("unscented", kappa=kappa)
    squares = sr.propagate(lambda v: v.square(), x, rule)
    assert torch.allclose(squares.mean, x.mean.square() + x.variance, rtol=1e-12)
    net = mlp(4, 3)
    affine = sr.propagate(net, x, rule)
    weight = net[0].weight
    assert torch.allclose(affine.covariance, weight @ x.covariance @ weight.mT, rtol=1e-12)


def test_the_unscented_transform_matches_kurtosis_of_one_component():
    """With n + kappa = 3 the fourth moment is a Gaussian's: Var[x^2] = 2 s^4 at mean 0."""
    x = sr.DiagonalGaussian(torch.zeros(1, 1).double(), torch.full((1, 1), 4.0).double())
    y = sr.propagate(lambda v: v.square(), x, "unscented")
    assert y.covariance.item() == pytest.approx(32.0, rel=1e-12)


@pytest.mark.parametrize("alpha", [1.0, 0.5, 1e-3])
@pytest.mark.parametrize("beta", [0.0, 2.0])
@pytest.mark.parametrize("mean", [0.0, 1.5])
def test_the_scaled_unscented_transform_of_a_square(alpha, beta, mean):
    """In closed form: E = m^2 + s^2, Var = 4 m^2 s^2 + (alpha^2 (n + kappa) + beta - alpha^2) s^4, n = 1."""
    x = sr.DiagonalGaussian(torch.full((1, 1), mean).double(), torch.full((1, 1), 4.0).double())
    y = sr.propagate(lambda v: v.square(), x, sr.rule("unscented", alpha=alpha, beta=beta, kappa=2.0))
    assert y.mean.item() == pytest.approx(mean**2 + 4, rel=1e-9)
    fourth = alpha**2 * 3 + beta - alpha**2
    assert y.covariance.item() == pytest.approx(4 * mean**2 * 4 + fourth * 16, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 1.5, 2.0])
def test_stable_laws_add_up_through_affine_layers(alpha):
    net = mlp(4, 3)
    weight, scale = net[0].weight, torch.rand(2, 4).double()
    x = sr.SymmetricStable(torch.zeros(2, 4).double(), scale, alpha)
    expected = (scale.pow(alpha) @ weight.abs().pow(alpha).mT).pow(1 / alpha)
    for rule in ("sdp", "marginal_sdp"):
        assert torch.allclose(sr.propagate(net, x, rule).scale, expected, rtol=1e-12)


def test_stable_laws_meet_gaussian_and_cauchy():
    net, location, scale = mlp(4, 10, 3), torch.randn(2, 4).double(), torch.rand(2, 4).double()
    for rule in ("sdp", "marginal_sdp"):
        stable = [sr.propagate(net, sr.SymmetricStable(location, scale, a), rule).scale for a in (1.0, 2.0)]
        cauchy = sr.propagate(net, sr.Cauchy(location, scale), rule).scale
        normal = sr.propagate(net, sr.DiagonalGaussian(location, 2 * scale.square()), rule).variance
        assert torch.allclose(stable[0], cauchy, rtol=1e-12)
        assert torch.allclose(2 * stable[1].square(), normal, rtol=1e-12)


def test_a_handler_of_the_users_own():
    class Mine(type(sr.rule("marginal_sdp"))):
        name = "mine"

    @Mine.handles(nn.RReLU)
    def rrelu(rule, module, law):
        slope = torch.where(law.mean >= 0, torch.ones_like(law.mean), (module.lower + module.upper) / 2)
        return sr.DiagonalGaussian(module(law.mean), law.variance * slope.square())

    net, x = nn.Sequential(mlp(4, 3), nn.RReLU().eval()), diagonal(2, 4)
    variance = sr.propagate(net, x, Mine()).variance
    assert torch.allclose(variance, sr.propagate(net, x, "sdp").variance, rtol=1e-12)
    with pytest.raises(sr.UnsupportedError, match="'marginal_sdp' does not support RReLU"):
        sr.propagate(net, x, "marginal_sdp")


def test_residual_sums_of_marginal_rules():
    x = diagonal(2, 3)
    y = sr.propagate(lambda v: torch.relu(v) + v, x, "marginal_sdp")
    assert torch.allclose(y.mean, torch.relu(x.mean) + x.mean)


class InPlace(nn.Module):
    """Writes over a value that it goes on to use by its old name."""

    def __init__(self, act):
        super().__init__()
        self.first, self.act = nn.Linear(2, 2, dtype=torch.float64), act
        self.first.weight.data, self.first.bias.data = torch.eye(2).double(), torch.zeros(2).double()

    def forward(self, x):
        h = self.first(x)
        r = self.act(h)
        return h + r


@pytest.mark.parametrize(
    "act", [nn.ReLU(inplace=True), lambda h: h.relu_(), lambda h: F.relu(h, inplace=True), torch.relu_]
)
@pytest.mark.parametrize("rule", ["sdp", "marginal_sdp", "monte_carlo"])
def test_ops_that_write_over_their_input(act, rule):
    x = sr.DiagonalGaussian(torch.tensor([[-2.0, 3.0]]).double(), torch.full((1, 2), 1e-12).double())
    y = sr.propagate(InPlace(act), x, rule)
    assert torch.allclose(y.mean, torch.tensor([[0.0, 6.0]]).double(), atol=1e-5)
    x = sr.DiagonalGaussian(x.mean, torch.ones_like(x.mean))
    if rule == "sdp":
        assert sr.propagate(InPlace(act), x, rule).variance.tolist() == [[0, 4]]


def test_variances_that_rounding_makes_negative_are_point_masses():
    """Rank-deficient inputs and weights that cancel: 0 up to rounding, on either side."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(40):
        v = torch.randn(1, 3, 1, generator=generator, dtype=torch.float64)
        x = sr.Gaussian(torch.randn(1, 3, generator=generator, dtype=torch.float64), v @ v.mT)
        net = mlp(3, 4, 3, 2, activation=nn.Sigmoid)
        w = torch.randn(4, 3, generator=generator, dtype=torch.float64)
        net[0].weight.data = w - (w @ v[0]) @ v[0].T / v[0].square().sum()
        for rule in FULL[1:]:
            y = sr.propagate(net if rule != "dvia" else nn.Sequential(net[0], nn.ReLU(), *net[2:3]), x, rule)
            assert bool(y.covariance.isfinite().all())
            assert bool((y.variance >= -1e-14).all())
            if rule == "moment_matching":
                assert bool((y.variance >= 0).all())


def test_dvia_goes_on_from_its_own_indefinite_covariance():
    """The last weight is the eigenvector of the negative eigenvalue of the hidden covariance."""
    found = 0
    for seed in range(20):
        net = mlp(2, 12, 1, seed=seed)
        hidden = sr.propagate(nn.Sequential(*net[:2]), diagonal(1, 2, seed=seed), "dvia")
        values, vectors = torch.linalg.eigh(hidden.covariance[0])
        if values[0] < -1e-9:
            found += 1
            net[2].weight.data = vectors[:, :1].T
            y = sr.propagate(nn.Sequential(*net, nn.ReLU()), diagonal(1, 2, seed=seed), "dvia")
            assert bool(y.covariance.isfinite().all())
    assert found


@pytest.mark.parametrize("rule", ["monte_carlo:samples=5", "unscented"])
@pytest.mark.parametrize("covariance", [torch.eye(2), torch.ones(2, 2), torch.diag(torch.tensor([1.0, 0.0]))])
def test_gradients_of_sampling_rules_are_finite_at_special_covariances(rule, covariance):
    net, covariance = mlp(2, 4, 2), covariance.double()[None].requires_grad_()
    y = sr.propagate(net, sr.Gaussian(torch.ones(1, 2).double(), covariance), rule)
    y.covariance.sum().backward()
    assert bool(covariance.grad.isfinite().all())
    variance = torch.tensor([[1.0, 0.0]]).double().requires_grad_()
    y = sr.propagate(net, sr.DiagonalGaussian(torch.ones(1, 2).double(), variance), rule)
    y.covariance.sum().backward()
    assert bool(variance.grad.isfinite().all())


@pytest.mark.rounding
def test_functions_that_close_over_modules_are_nets():
    first, second = mlp(4, 5), nn.Sequential(mlp(5, 3), nn.Tanh())
    net, x = nn.Sequential(first, nn.ReLU(), second), diagonal(2, 4)
    for rule in ("sdp", "marginal_sdp", "moment_matching"):
        y = sr.propagate(lambda v: second(F.relu(first(v))), x, rule)
        assert torch.equal(y.covariance, sr.propagate(net, x, rule).covariance)


@pytest.mark.parametrize("rule", ANALYTIC)
def test_flattened_events(rule):
    x = diagonal(2, 6)
    image = sr.DiagonalGaussian(x.mean.reshape(2, 2, 3), x.variance.reshape(2, 2, 3))
    net = mlp(6, 5, 2)
    y = sr.propagate(nn.Sequential(nn.Flatten(), *net), image, rule)
    assert torch.allclose(y.covariance, sr.propagate(net, x, rule).covariance, rtol=1e-12)
    if rule != "sdp":
        with pytest.raises(sr.UnsupportedError, match="batch dimension"):
            sr.propagate(lambda v: torch.flatten(v), image, rule)


@pytest.mark.parametrize(
    ("rule", "net", "x", "words"),
    [
        ("dvia", nn.Sequential(nn.Linear(4, 3), nn.Sequential(nn.Tanh())), diagonal, ["dvia", "Tanh", "1.0"]),
        ("moment_matching", nn.RReLU().eval(), diagonal, ["moment_matching", "RReLU"]),
        ("moment_matching", Sqrt(), diagonal, ["moments of sqrt"]),
        ("marginal_sdp", nn.Dropout(), diagonal, ["Dropout", "eval"]),
        ("moment_matching", lambda v: v.cumprod(1), diagonal, ["cumprod"]),
        ("marginal_sdp", lambda v: v if v.sum() > 0 else -v, diagonal, ["control flow"]),
        ("sdp", nn.BatchNorm1d(4), diagonal, ["BatchNorm1d", "batch statistics"]),
        ("sdp", nn.Sequential(nn.Dropout()), diagonal, ["Dropout", "training mode"]),
    ],
)
def test_what_a_rule_cannot_do_is_named(rule, net, x, words):
    net = net.double() if isinstance(net, nn.Module) else net
    with pytest.raises(sr.UnsupportedError) as caught:
        sr.propagate(net, x(2, 4), rule)
    for word in words:
        assert word in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(
    "rule", ["dvia", "moment_matching", "marginal_moment_matching", "monte_carlo", "unscented"]
)
def test_laws_without_moments_are_refused(rule):
    x = sr.Cauchy(torch.zeros(1, 4).double(), torch.ones(1, 4).double())
    with pytest.raises(sr.UnsupportedError, match="Cauchy"):
        sr.propagate(mlp(4, 3), x, rule)


def test_a_marginal_rule_says_that_it_drops_covariances():
    with pytest.warns(UserWarning, match="drops the covariances"):
        y = sr.propagate(mlp(4, 3), gaussian(1, 4), "marginal_sdp")
    assert isinstance(y, sr.DiagonalGaussian)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sr.propagate(mlp(4, 3), diagonal(1, 4), "nonsense"), "choose from sdp, second_order"),
        (lambda: sr.propagate(mlp(4, 3), torch.zeros(1, 4), "sdp"), "x must be a law"),
        (lambda: sr.propagate(3, diagonal(1, 4), "sdp"), "net must be"),
        (lambda: sr.propagate(mlp(4, 3), diagonal(1, 5), "sdp"), "cannot take inputs of shape"),
        (lambda: sr.propagate(mlp(4, 3).float(), diagonal(1, 4), "sdp"), "float32"),
        (lambda: sr.propagate(mlp(4, 3), diagonal(1, 4), 5), "rule must be a name"),
        (lambda: sr.rule("monte_carlo", samples=1), "at least 2"),
        (lambda: sr.rule("monte_carlo:samples=ten"), "at least 2"),
        (
            lambda: sr.rule("monte_carlo", size=3),
            "no parameter 'size'; its parameters are samples, sampler, seed",
        ),
        (lambda: sr.rule("sdp:fast"), "key=value"),
        (lambda: sr.rule("unscented", kappa=-1.0), "kappa of at least 0"),
        (lambda: sr.rule("unscented", beta=-1.0), "beta of at least 0"),
        (lambda: sr.rule("unscented", beta=None), "beta of at least 0"),
        (lambda: sr.rule("unscented:alpha=big"), "alpha above 0 and up to 1, got 'big'"),
        (lambda: sr.rule("unscented", alpha=0), "alpha above 0"),
        (lambda: sr.rule("unscented", alpha=float("nan")), "alpha above 0"),
        (lambda: sr.rule("unscented", alpha=True), "alpha above 0"),
        (lambda: sr.rule(5), "named by a string"),
        (lambda: sr.rule("moment_matching:tolerance=abc"), "tolerance from"),
        (lambda: sr.rule("moment_matching", tolerance=0.0), "tolerance from"),
        (lambda: sr.rule("monte_carlo:sampler=lhs"), "choose from mc, antithetic"),
        (lambda: sr.rule("monte_carlo", seed="a"), "seed"),
        (lambda: sr.rule("monte_carlo", seed=-1), "seed"),
        (lambda: sr.propagate(lambda v: v.sum(1), diagonal(2, 4), "sdp"), "row by row"),
        (lambda: sr.propagate(lambda v: v.sum(1), diagonal(2, 4), "monte_carlo"), "row by row"),
        (lambda: sr.propagate(lambda v: (v, v), diagonal(2, 4), "unscented"), "one tensor"),
        (lambda: sr.propagate(lambda v: v.argmax(1, keepdim=True), diagonal(2, 4), "sdp"), "int64"),
        (lambda: sr.propagate(nn.Sequential(mlp(5, 3)), diagonal(2, 4), "moment_matching"), "cannot take"),
        (lambda: sr.propagate(poisoned(), diagonal(2, 4), "sdp"), "non-finite"),
        (lambda: sr.propagate(poisoned(), diagonal(2, 4), "moment_matching"), "non-finite"),
        (lambda: sr.propagate(lambda v: v.sum(), diagonal(2, 4), "sdp"), "row by row"),
        (
            lambda: sr.propagate(mlp(4, 3), diagonal(3, 4), sr.rule("monte_carlo", seed=(1, 2))),
            "2 seeds for a batch of 3",
        ),
    ],
)
def test_bad_calls_get_one_clear_line(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_specs_name_rules_both_ways():
    assert sr.rule("monte_carlo").spec == "monte_carlo:samples=100"
    assert sr.rule("monte_carlo:samples=5").spec == "monte_carlo:samples=5"
    assert sr.rule("moment_matching", tolerance=1e-4).spec == "moment_matching:tolerance=0.0001"
    for name in sr.rules():
        assert sr.rule(sr.rule(name).spec) == sr.rule(name)


def test_nets_and_inputs_are_left_as_they_are():
    net, x = mlp(4, 6, 3).train(), diagonal(2, 4)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    mean = x.mean.clone()
    for rule in OF_RELU:
        sr.propagate(net, x, rule)
    assert net.training
    assert torch.equal(x.mean, mean)
    assert not x.mean.requires_grad
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())


class Saying:
    """A rule that always gives the same."""

    name = "saying"

    def __init__(self, law):
        self.law = law

    def propagate(self, net, x):
        return self.law


def unsound(family, *values):
    return sr.laws.unchecked(family, torch.ones(2, 3), *values)


NO_LAWS = [
    ("variance is not finite", unsound(sr.DiagonalGaussian, torch.full((2, 3), math.nan))),
    ("variance is negative", unsound(sr.DiagonalGaussian, -torch.ones(2, 3))),
    ("covariance is not finite", unsound(sr.Gaussian, torch.full((2, 3, 3), math.inf))),
    ("scale is negative", unsound(sr.Cauchy, -torch.ones(2, 3))),
    ("scale is not finite", unsound(sr.SymmetricStable, torch.full((2, 3), math.inf), 1.5)),
    (
        "variance is negative",
        sr.laws.unchecked(sr.Mixture, torch.ones(1, 2) / 2, unsound(sr.DiagonalGaussian, -torch.ones(2, 3))),
    ),
]


@pytest.mark.parametrize(("words", "law"), NO_LAWS)
def test_what_a_rule_gives_is_refused_if_it_is_no_law(words, law):
    with pytest.raises(ValueError, match=f"^rule 'saying' gives no law: its {words}$"):
        sr.propagate(nn.Identity(), diagonal(1, 3), Saying(law))
