import math
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import sdp_ref as sr
from sdp_ref.rules import Traits, traits
from tests.sdp_ref.common import diagonal, draw, gaussian, mlp

FULL = ("sdp", "dvia", "moment_matching")


def poisoned():
    net = mlp(4, 3, 2)
    net[0].weight.data[0, 0] = float("nan")
    return net


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
    few = sr.propagate(nn.Identity(), x, sr.rule("monte_carlo", samples=3))
    assert torch.linalg.matrix_rank(few.covariance).tolist() == [2, 2]


class Cast(nn.Module):
    def forward(self, x):
        return x.to(torch.float32) * 3


@pytest.mark.parametrize("rule", ["sdp", "unscented", "moment_matching"])
def test_an_exported_cast_that_rejects_the_type_of_a_law_is_named(rule):
    dynamic = ({0: torch.export.Dim.DYNAMIC},)
    net = torch.export.export(Cast(), (torch.zeros(3, 2),), dynamic_shapes=dynamic).module()
    law = sr.propagate(net, diagonal(1, 2).to(torch.float32), rule)
    x = diagonal(1, 2).to(torch.float32)
    assert torch.allclose(law.variance, 9 * x.variance)
    message = r"the law is torch.float64, and its operation 'to' casts to torch.float32; use net.to"
    with pytest.raises(ValueError, match=message) as caught:
        sr.propagate(net, diagonal(1, 2), rule)
    assert "\n" not in str(caught.value)


def test_a_cast_of_a_module_gets_a_line_about_casts():
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 2, dtype=torch.float64)

        def forward(self, x):
            return self.linear(x.float())

    with pytest.raises(ValueError, match=r"law is torch.float64, and the net casts \(x.float\(\)"):
        sr.propagate(Inner(), diagonal(1, 2), "sdp")


@pytest.mark.rounding
@pytest.mark.parametrize("k", [16, 100])
def test_sobol_points_do_not_overstate_the_covariance(k):
    """Their mean hardly varies: a divisor of k - 1 would give 6.7 % too much at 16 points, 1 % at 100."""
    x = sr.DiagonalGaussian(torch.zeros(400, 2).double(), torch.ones(400, 2).double())
    rule = sr.rule(f"monte_carlo:samples={k},sampler=sobol", seed=tuple(range(400)))
    variance = sr.propagate(torch.nn.Identity(), x, rule).variance
    assert variance.mean().item() == pytest.approx(1, abs=0.006)


@pytest.mark.parametrize("make", [gaussian, diagonal])
@pytest.mark.parametrize("kappa", [None, 0.0, 2.0])
def test_the_unscented_transform_has_exact_means_of_squares(make, kappa):
    x = make(3, 4)
    squares = sr.propagate(lambda v: v.square(), x, sr.rule("unscented", kappa=kappa))
    assert torch.allclose(squares.mean, x.mean.square() + x.variance, rtol=1e-12)


@pytest.mark.parametrize(
    ("alpha", "beta", "mean"), [(1.0, 0.0, 0.0), (0.5, 2.0, 1.5), (1e-3, 0.0, 1.5), (1e-3, 2.0, 0.0)]
)
def test_the_scaled_unscented_transform_of_a_square_has_its_closed_form(alpha, beta, mean):
    """In closed form: E = m^2 + s^2, Var = 4 m^2 s^2 + (alpha^2 (n + kappa) + beta - alpha^2) s^4, n = 1."""
    x = sr.DiagonalGaussian(torch.full((1, 1), mean).double(), torch.full((1, 1), 4.0).double())
    y = sr.propagate(lambda v: v.square(), x, sr.rule("unscented", alpha=alpha, beta=beta, kappa=2.0))
    assert y.mean.item() == pytest.approx(mean**2 + 4, rel=1e-9)
    fourth = alpha**2 * 3 + beta - alpha**2
    assert y.covariance.item() == pytest.approx(4 * mean**2 * 4 + fourth * 16, rel=1e-6, abs=1e-6)


def in_place(act):
    """A net that writes over a value and continues to use it by its old name."""

    def net(x):
        h = 1 * x
        r = act(h)
        return h + r

    return net


@pytest.mark.parametrize(
    "act", [nn.ReLU(inplace=True), lambda h: h.relu_(), lambda h: F.relu(h, inplace=True), torch.relu_]
)
@pytest.mark.parametrize("rule", ["sdp", "marginal_sdp", "monte_carlo"])
def test_ops_in_place_do_not_change_predictions(act, rule):
    x = sr.DiagonalGaussian(torch.tensor([[-2.0, 3.0]]).double(), torch.full((1, 2), 1e-12).double())
    y = sr.propagate(in_place(act), x, rule)
    assert torch.allclose(y.mean, torch.tensor([[0.0, 6.0]]).double(), atol=1e-5)
    x = sr.DiagonalGaussian(x.mean, torch.ones_like(x.mean))
    if rule == "sdp":
        assert sr.propagate(in_place(act), x, rule).variance.tolist() == [[0, 4]]


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


def test_samples_of_a_law_without_moments_are_refused():
    with pytest.raises(sr.UnsupportedError, match="Cauchy"):
        sr.propagate(mlp(4, 3), sr.Cauchy(*torch.ones(2, 1, 4).double()), "monte_carlo")


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
        (lambda: sr.rule("unscented", alpha=float("nan")), "alpha of at least 1e-06 and at most 1, got nan"),
        (lambda: sr.propagate(lambda v: v.sum(1), diagonal(2, 4), "sdp"), "row by row"),
        (lambda: sr.propagate(lambda v: (v, v), diagonal(2, 4), "unscented"), "one tensor"),
        (lambda: sr.propagate(lambda v: v.argmax(1, keepdim=True), diagonal(2, 4), "sdp"), "int64"),
        (lambda: sr.propagate(poisoned(), diagonal(2, 4), "sdp"), "where the net itself is not finite"),
        (
            lambda: sr.propagate(mlp(4, 3), diagonal(3, 4), sr.rule("monte_carlo", seed=(1, 2))),
            "2 seeds for a batch of 3",
        ),
        (
            lambda: sr.propagate(
                torch.sin, diagonal(2, 4), sr.rule("second_order", seed=(0, 1, 2), probes=1)
            ),
            "3 seeds for a batch of 2",
        ),
        (lambda: sr.rule("second_order", seed=(0, -1)), "second_order needs a seed"),
    ],
)
def test_bad_calls_get_one_clear_line(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("sdp:fast", "key=value"),
        ("dvia:fallback=guess", "unknown fallback .* choose from none, linearise"),
        ("dvia:means=other", "unknown means 'other' of dvia; choose from propagated"),
        ("unscented:kappa=-1.0", "kappa of at least 0"),
        ("unscented:alpha=big", "alpha of at least 1e-06 and at most 1, got 'big'"),
        ("moment_matching:tolerance=0.0", "tolerance from"),
        ("marginal_moment_matching:precision=1.0", "a precision from 0 to 1"),
        ("marginal_moment_matching:precision=fine", "a precision from 0 to 1"),
        ("monte_carlo:size=3", "no parameter 'size'.*samples, sampler, seed"),
        ("monte_carlo:sampler=lhs", "choose from mc, antithetic, whitened, sobol, lattice"),
        ("monte_carlo:seed=-1", "seed"),
        ("monte_carlo:sampler=antithetic,samples=7", "an even number of antithetic samples"),
        ("monte_carlo:sampler=antithetic,samples=2", "an even number of antithetic samples, 4"),
        ("control_variate:coefficient=none", "choose from regression, jacobian"),
        ("control_variate:samples=1", "control_variate needs samples of at least 2"),
        ("second_order:probes=0", "needs probes of at least 1, got"),
        ("second_order:probes=2.5", "needs probes of at least 1, got"),
        ("second_order:probes=many", "needs probes of at least 1, got"),
        ("second_order:seed=-1", "second_order needs a seed"),
        ("second_order:seed=0.5", "second_order needs a seed"),
        ("low_rank:columns=0", "columns, a whole number above 0"),
        ("low_rank:columns=1.5", "columns, a whole number above 0"),
        ("low_rank:columns=x", "columns, a whole number above 0"),
        ("low_rank:columns=True", "columns, a whole number above 0"),
        ("cubature:scheme=monte", "'monte' of cubature; choose from spherical, tensor, sparse"),
        ("cubature:degree=4", "an odd degree"),
        ("cubature:degree=3.0", "an odd degree"),
        ("cubature:degree=7", "take tensor or sparse"),
        ("exact:mass=1.0", "exact needs a mass between 0 and 1, got 1.0"),
        ("exact:tolerance=0", "exact needs a tolerance between 0 and 1, got 0"),
        ("exact:regions=1.5", "exact needs a whole number of regions"),
        ("split:base=nothing", "base of split: rule 'nothing' not found; choose from"),
        ("split:base=5", "base of split must be a rule, got 5"),
        ("split:base=monte_carlo", "a base that does not sample, got monte_carlo"),
        ("split:base=split", "any rule for its base but split"),
        ("split:base=unscented:kappa=-1", "base of split: unscented needs kappa"),
        ("split:k=0", "a whole number k of pieces, at least 1, got 0"),
        ("split:k=2.5", "a whole number k of pieces"),
        ("split:pieces=3", "has no parameter 'pieces'; its parameters are base, k"),
    ],
)
def test_bad_parameters_get_one_clear_line(spec, message):
    with pytest.raises(ValueError, match=message) as caught:
        sr.rule(spec)
    assert "\n" not in str(caught.value)


def test_specs_name_rules_both_ways():
    assert sr.rule("sdp:create_graph=True") == sr.rule("sdp", create_graph=True)
    assert sr.rule("monte_carlo").spec == "monte_carlo:samples=100"
    assert sr.rule("monte_carlo:samples=5").spec == "monte_carlo:samples=5"
    assert sr.rule("moment_matching", tolerance=1e-4).spec == "moment_matching:tolerance=0.0001"
    for name in sr.rules():
        assert sr.rule(sr.rule(name).spec) == sr.rule(name)


class Saying:
    name = "saying"

    def __init__(self, law):
        self.law = law

    def propagate(self, net, x):
        return self.law


def unsound(family, *values):
    return sr.laws.unchecked(family, torch.ones(2, 3), *values)


NO_LAWS = [
    ("variance is negative", unsound(sr.DiagonalGaussian, -torch.ones(2, 3))),
    ("covariance is not finite", unsound(sr.Gaussian, torch.full((2, 3, 3), math.inf))),
    ("scale is not finite", unsound(sr.SymmetricStable, torch.full((2, 3), math.inf), 1.5)),
    (
        "variance is negative",
        sr.laws.unchecked(sr.Mixture, torch.ones(1, 2) / 2, unsound(sr.DiagonalGaussian, -torch.ones(2, 3))),
    ),
]


@pytest.mark.parametrize(("words", "law"), NO_LAWS)
def test_an_invalid_result_of_a_rule_is_refused(words, law):
    where = " at output 0 of input row 0, though the net is finite at the mean"
    ending = where if "finite" in words else ""
    with pytest.raises(ValueError, match=f"^rule 'saying' .*{words}{ending}$"):
        sr.propagate(nn.Identity(), diagonal(1, 3), Saying(law))


def test_rules_are_listed_by_rank():
    ranks = [traits(sr.rule(name)).rank for name in sr.rules()]
    assert ranks == sorted(ranks)


@dataclass(frozen=True)
class Drawing(sr.Rule):
    name: ClassVar[str] = "drawing"
    seed: int = 0

    def prepare(self, net):
        raise NotImplementedError


class Foreign:
    name = "foreign"

    def propagate(self, net, x):
        raise NotImplementedError


class ForeignDrawing(Foreign):
    def __init__(self, seed=0):
        self.seed = seed


class ForeignDeclaring(ForeignDrawing):
    label, colour, sampling, rank = "ours", "#123456", 12, 5


def test_a_rule_of_a_user_that_has_a_seed_draws_samples():
    assert traits(Drawing()) == Traits("drawing", sampling=0)
    assert traits(Drawing(seed=3)).label == "drawing (seed=3)"
    assert traits(Foreign()) == Traits("foreign")
    assert traits(ForeignDrawing()) == Traits("foreign", sampling=0)
    assert traits(ForeignDeclaring()) == Traits("ours", "#123456", sampling=12, rank=5)


def test_marginal_sdp_of_one_relu_is_the_papers_equation_2():
    x = sr.DiagonalGaussian(torch.tensor([[1.5, -0.5]]), torch.tensor([[4.0, 4.0]]))
    y = sr.propagate(nn.ReLU(), x, "marginal_sdp")
    assert y.mean.tolist() == [[1.5, 0.0]]
    assert y.variance.tolist() == [[4.0, 0.0]]


def test_sobol_points_give_the_moments_of_an_affine_net_far_better_than_draws():
    net, x = mlp(4, 3), diagonal(8, 4)
    exact = sr.propagate(net, x, "sdp")

    def error(sampler):
        rule = sr.rule("monte_carlo", samples=1024, sampler=sampler, seed=tuple(range(8)))
        law = sr.propagate(net, x, rule)
        return float((law.mean - exact.mean).detach().square().mean().sqrt())

    # Draws err by sd / 32; a scrambled net of 1024 points by about sd / 500 (24 means each).
    assert error("sobol") < error("mc") / 5


def test_the_monte_carlo_covariance_is_unbiased():
    """The mean of 2000 independent estimates from 3 samples lies within 4.5 standard errors."""
    x = gaussian(1, 2)
    many = sr.Gaussian(x.mean.expand(2000, 2), x.covariance.expand(2000, 2, 2))
    y = sr.propagate(nn.Identity(), many, sr.rule("monte_carlo", samples=3))
    error = y.covariance.std(0) / math.sqrt(2000)
    assert bool(((y.covariance.mean(0) - x.covariance[0]).abs() < 4.5 * error).all())


def test_the_unscented_transform_matches_the_kurtosis_of_one_component():
    """With n + kappa = 3 the fourth moment is that of a Gaussian: Var(x^2) = 2 s^4 at mean 0."""
    x = sr.DiagonalGaussian(torch.zeros(1, 1).double(), torch.full((1, 1), 4.0).double())
    y = sr.propagate(lambda v: v.square(), x, "unscented")
    assert y.covariance.item() == pytest.approx(32.0, rel=1e-12)


@pytest.mark.parametrize("rule", ["sdp", "marginal_sdp"])
def test_stable_laws_of_index_one_and_two_are_cauchy_and_gaussian(rule):
    net = mlp(4, 10, 3)
    location = draw(2, 4, seed=2)
    scale = draw(2, 4, seed=3).abs()
    cauchy = sr.propagate(net, sr.Cauchy(location, scale), rule).scale
    one = sr.propagate(net, sr.SymmetricStable(location, scale, 1.0), rule).scale
    assert torch.allclose(one, cauchy, rtol=1e-12)
    normal = sr.propagate(net, sr.DiagonalGaussian(location, 2 * scale.square()), rule).variance
    two = sr.propagate(net, sr.SymmetricStable(location, scale, 2.0), rule).scale
    assert torch.allclose(2 * two.square(), normal, rtol=1e-12)
