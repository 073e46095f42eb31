import math
import warnings

import numpy as np
import pytest
import scipy.stats
import torch
from torch import distributions as td

import sdp_ref as sr
from sdp_ref.laws import Shape, joined

DOUBLE = {"dtype": torch.float64}
MEAN = torch.tensor([[1.0, -2.0], [0.5, 3.0]], **DOUBLE)
SCALE = torch.tensor([[0.5, 2.0], [1.0, 0.1]], **DOUBLE)
ABOVE_ZERO = torch.tensor([[1.5, 0.5], [0.0, 0.1]], **DOUBLE)
"""Other scales, one of them 0."""
COVARIANCE = torch.tensor([[[2.0, 0.6], [0.6, 0.5]], [[1.0, -0.3], [-0.3, 0.4]]], **DOUBLE)
TORCHS = {"laplace": Shape("laplace"), "uniform": Shape("uniform"), "student_t": Shape("student_t", 5.0)}
"""Shapes that torch has."""
SHAPES = {**TORCHS, "triangular": Shape("triangular")}


def gaussian():
    return sr.Gaussian(MEAN, COVARIANCE)


def mixture():
    weights = torch.tensor([[0.3, 0.7], [0.9, 0.1]], **DOUBLE)
    return sr.Mixture.of(weights, [gaussian(), sr.DiagonalGaussian(-2 * MEAN, SCALE)])


def empirical():
    draws = torch.randn(2, 500, 2, generator=torch.Generator().manual_seed(3), **DOUBLE)
    weights = torch.rand(2, 500, generator=torch.Generator().manual_seed(4), **DOUBLE)
    return sr.Empirical(draws, weights / weights.sum(1, keepdim=True))


class Sampled:
    mean, variance = MEAN, SCALE.square()

    def sample(self, samples, generator):
        return MEAN + SCALE * torch.randn(samples, 2, 2, generator=generator, **DOUBLE)


WITH_MOMENTS = {
    "gaussian": gaussian,
    "diagonal": lambda: sr.DiagonalGaussian(MEAN, SCALE),
    "alpha 2": lambda: sr.SymmetricStable(MEAN, SCALE, 2),
    "mixture": mixture,
    "empirical": empirical,
    **{name: lambda shape=shape: sr.LocationScale(MEAN, SCALE, shape) for name, shape in SHAPES.items()},
    "split normal": lambda: sr.SplitNormal(MEAN, SCALE, ABOVE_ZERO),
    "gumbel": lambda: sr.law_of(td.Independent(td.Gumbel(MEAN, SCALE), 1)),
    "gamma": lambda: sr.law_of(td.Independent(td.Gamma(SCALE, SCALE), 1)),
    "sampled": lambda: sr.law_of(Sampled()),
    "mixture of laplaces": lambda: sr.Mixture.of(
        torch.full((2, 2), 0.5, **DOUBLE),
        [sr.LocationScale(MEAN, SCALE, SHAPES["laplace"]), sr.LocationScale(-MEAN, SCALE, SHAPES["laplace"])],
    ),
    "mixture of gammas": lambda: sr.Mixture.of(
        torch.full((2, 1), 1.0, **DOUBLE), [sr.law_of(td.Independent(td.Gamma(SCALE, SCALE), 1))]
    ),
}


@pytest.mark.parametrize("name", WITH_MOMENTS)
def test_draws_have_the_moments_that_the_law_says(name):
    """Within 5 standard errors of each entry, of 40 000 draws."""
    law, samples = WITH_MOMENTS[name](), 40_000
    draws = law.sample(samples, torch.Generator().manual_seed(1)).double()
    assert draws.shape == (samples, 2, 2)
    centred = draws - law.mean
    error = draws.std(0) / math.sqrt(samples)
    assert (centred.mean(0).abs() < 5 * error).all()
    squares = centred.square()
    assert ((squares.mean(0) - law.variance).abs() < 5 * squares.std(0) / math.sqrt(samples)).all()
    if name != "sampled":
        torch.testing.assert_close(law.covariance.diagonal(dim1=1, dim2=2), law.variance)
        products = centred[..., 0] * centred[..., 1]
        assert (
            (products.mean(0) - law.covariance[:, 0, 1]).abs() < 5 * products.std(0) / math.sqrt(samples)
        ).all()


@pytest.mark.parametrize("name", WITH_MOMENTS)
def test_a_row_is_a_law_of_its_own_and_rows_make_the_batch_again(name):
    law = WITH_MOMENTS[name]()
    rows = list(law)
    assert [row.batch for row in rows] == [1, 1]
    again = joined(rows)
    torch.testing.assert_close(again.mean, law.mean)
    torch.testing.assert_close(again.variance, law.variance)
    for row in (rows[1], law[-1], law[torch.tensor(1)]):
        torch.testing.assert_close(row.mean, law.mean[1:])
    assert law.to(torch.float32).sample(3).dtype == torch.float32
    with pytest.raises(IndexError, match="law 2 of a batch of 2"):
        law[2]


def test_rows_of_a_stable_law_keep_its_exponent():
    law = sr.SymmetricStable(torch.tensor([[1.0], [2.0]]), torch.ones(2, 1), 1.5)
    assert [(float(row.location), row.alpha) for row in (*law, law[-1])] == [(1, 1.5), (2, 1.5), (2, 1.5)]


NOT_TORCHS = ("empirical", "sampled", "triangular", "split normal")


@pytest.mark.parametrize("name", [name for name in WITH_MOMENTS if name not in NOT_TORCHS])
def test_the_density_is_torchs(name):
    law = WITH_MOMENTS[name]()
    values = law.sample(50, torch.Generator().manual_seed(2)).double()
    ours, theirs = law.log_prob(values), None
    assert ours.shape == (50, 2)
    if name.startswith("mixture of"):
        parts = law.components.log_prob(values.repeat_interleave(law.pieces, 1)).unflatten(1, (2, law.pieces))
        theirs = (parts + law.weights.log()).logsumexp(2)
    else:
        theirs = law.to_torch().log_prob(values)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", ["gaussian", "diagonal", "mixture", *TORCHS])
def test_to_torch_and_back_is_the_same_law(name):
    law = WITH_MOMENTS[name]()
    again = sr.law_of(law.to_torch())
    assert type(again) is type(law)
    torch.testing.assert_close(again.mean, law.mean)
    torch.testing.assert_close(again.covariance, law.covariance)


def test_cauchy_laws_go_both_ways():
    again = sr.law_of(sr.Cauchy(MEAN, SCALE).to_torch())
    assert isinstance(again, sr.Cauchy)
    torch.testing.assert_close(again.scale, SCALE)
    assert isinstance(sr.law_of(sr.SymmetricStable(MEAN, SCALE, 1).to_torch()), sr.Cauchy)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=str)
def test_quantiles_of_shapes_are_scipys(shape):
    probability = torch.tensor([0.001, 0.2, 0.5, 0.9, 0.9999], **DOUBLE)
    theirs = {
        "laplace": scipy.stats.laplace,
        "uniform": scipy.stats.uniform(-1, 2),
        "student_t": scipy.stats.t(5),
        "triangular": scipy.stats.triang(0.5, -1, 2),
    }[shape.name]
    np.testing.assert_allclose(shape.quantile(probability), theirs.ppf(probability), rtol=1e-10, atol=1e-12)
    assert shape.variance == pytest.approx(theirs.var())


def test_a_triangular_law_is_scipys():
    law = sr.LocationScale(MEAN, SCALE, SHAPES["triangular"])
    theirs = scipy.stats.triang(0.5, MEAN - SCALE, 2 * SCALE)
    values = MEAN + SCALE * torch.tensor([-2.0, -0.7, 0.0, 0.2, 0.99], **DOUBLE)[:, None, None]
    np.testing.assert_allclose(law.variance, theirs.var(), rtol=1e-13)
    # scipy subtracts from 1
    np.testing.assert_allclose(law.survival(values), theirs.sf(values), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(law.log_prob(values), theirs.logpdf(values).sum(2), rtol=1e-12)
    with pytest.raises(sr.UndefinedError, match=r"torch\.distributions has no triangular law"):
        law.to_torch()


SIDES = [(0.2, 0.1), (0.1, 0.2), (1.0, 1.0), (1.0, 0.0), (0.0, 3.0)]


def split_normal(above, below):
    return sr.SplitNormal(*(torch.tensor([[value]], **DOUBLE) for value in (1.0, above, below)))


def split_density(above, below, x):
    """The definition: two halves of normal densities that agree at the mode, 1."""
    halves = [scipy.stats.norm.pdf((x - 1) / side) if side else np.zeros_like(x) for side in (below, above)]
    return 2 / (above + below) * np.where(x < 1, *halves)


@pytest.mark.parametrize(("above", "below"), SIDES)
def test_moments_of_a_split_normal_law_are_those_of_its_density(above, below):
    """Against Gauss-Legendre quadrature of the definition on each side, up to 12 standard deviations."""
    nodes, weights = np.polynomial.legendre.leggauss(200)
    law = split_normal(above, below)
    integral = np.zeros(3)
    for low, high in ((1 - 12 * below, 1.0), (1.0, 1 + 12 * above)):
        x = (low + high) / 2 + (high - low) / 2 * nodes
        density = (high - low) / 2 * weights * split_density(above, below, x)
        integral += [density.sum(), density @ x, density @ x**2]
        inside = torch.from_numpy(x)[:, None, None]
        if high > low:
            np.testing.assert_allclose(law.log_prob(inside).exp()[:, 0], split_density(above, below, x))
    assert integral[0] == pytest.approx(1, rel=1e-12)
    assert law.mean.item() == pytest.approx(integral[1], rel=1e-12)
    assert law.variance.item() == pytest.approx(integral[2] - integral[1] ** 2, rel=1e-11)
    assert law.covariance.shape == (1, 1, 1)


@pytest.mark.parametrize(("above", "below"), SIDES)
def test_quantiles_and_tails_of_a_split_normal_law_are_inverse_to_each_other(above, below):
    law = split_normal(above, below)
    probability = torch.tensor([1e-12, 0.01, 0.3, 0.5, 0.9, 1 - 1e-9], **DOUBLE)[:, None]
    values = law.push()(probability)
    np.testing.assert_allclose(law.survival(values[:, None])[:, 0], 1 - probability, rtol=1e-9)
    if above == below:
        np.testing.assert_allclose(values, scipy.stats.norm.ppf(probability, 1, above), rtol=1e-12)
    if above:  # far out the tail keeps its digits
        far = 2 * above / (above + below) * scipy.stats.norm.sf(30)
        assert law.survival(torch.tensor([[1 + 30 * above]], **DOUBLE)).item() == pytest.approx(far, rel=1e-9)


def test_a_split_normal_law_without_any_width_is_its_mode():
    law = split_normal(0.0, 0.0)
    values = torch.tensor([0.5, 1.0, 1.5], **DOUBLE)[:, None, None]
    assert law.survival(values).flatten().tolist() == [1.0, 0.0, 0.0]
    assert (law.sample(3) == 1).all()
    with pytest.raises(sr.UndefinedError, match="no density"):
        law.log_prob(values)
    with pytest.raises(ValueError, match="below must be >= 0"):
        split_normal(1.0, -1.0)


@pytest.mark.parametrize("rule", ["sdp", "moment_matching", "marginal_sdp", "unscented"])
def test_rules_linearise_at_the_mean_of_a_split_normal_law_and_not_at_its_mode(rule):
    net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)).double()
    law = sr.SplitNormal(MEAN, SCALE, ABOVE_ZERO)
    with pytest.warns(UserWarning, match="takes a split normal law for the Gaussian with its mean"):
        prediction = sr.propagate(net, law, rule)
    exact_mean = MEAN + math.sqrt(2 / math.pi) * (SCALE - ABOVE_ZERO)
    gaussian = sr.propagate(net, sr.DiagonalGaussian(exact_mean, law.variance), rule)
    torch.testing.assert_close(prediction.mean, gaussian.mean)
    torch.testing.assert_close(prediction.covariance, gaussian.covariance)


def test_moments_of_quantiles_are_those_of_the_piecewise_linear_law():
    """Against numerical integration of the quantile function."""
    levels = torch.tensor([0.1, 0.3, 0.5, 0.95], **DOUBLE)
    values = torch.tensor([[[-1.0], [0.0], [0.5], [4.0]]], **DOUBLE)
    law = sr.Quantiles(levels, values)
    u = np.linspace(0, 1, 2_000_001)
    q = np.interp(u, levels.numpy(), values[0, :, 0].numpy())
    assert law.mean.item() == pytest.approx(np.trapezoid(q, u), abs=1e-9)
    assert law.variance.item() == pytest.approx(np.trapezoid((q - law.mean.item()) ** 2, u), abs=1e-9)
    noise = torch.tensor([[0.01], [0.2], [0.7], [0.999]], **DOUBLE)
    np.testing.assert_allclose(
        law.push()(noise)[:, 0], np.interp(noise[:, 0], levels.numpy(), values[0, :, 0].numpy())
    )


LEVELS = torch.tensor([0.1, 0.9])
UNDEFINED = {
    "a Cauchy law has no mean": lambda: sr.Cauchy(MEAN, SCALE).mean,
    "a stable law with alpha 1.5 has no variance": lambda: sr.SymmetricStable(MEAN, SCALE, 1.5).variance,
    "Student t .* no covariance": lambda: sr.LocationScale(MEAN, SCALE, Shape("student_t", 2)).covariance,
    "with a Cauchy law in it": lambda: sr.Mixture(torch.ones(2, 1).double(), sr.Cauchy(MEAN, SCALE)).mean,
    "cannot be sampled": lambda: sr.Quantiles(LEVELS, torch.tensor([[[0.0], [1.0]]])).sample(3),
    "singular .* no density": lambda: sr.Gaussian(MEAN, torch.ones(2, 2, 2).double()).log_prob(MEAN),
    "an empirical law of 500 draws has no known density": lambda: empirical().log_prob(MEAN),
    "no such law as an empirical law": lambda: empirical().to_torch(),
    "given as a Sampled has no density": lambda: sr.law_of(Sampled()).log_prob(MEAN),
}


@pytest.mark.parametrize("message", UNDEFINED)
def test_an_undefined_quantity_of_a_law_is_refused_by_name(message):
    with pytest.raises(sr.UndefinedError, match=message):
        UNDEFINED[message]()


def drawing(sample):
    return sr.law_of(type("Drawing", (), {"sample": lambda self, n, generator: sample(n)})())


HALVES = torch.full((2, 2), 0.5, **DOUBLE)
BAD = {
    "sum to 1": lambda: sr.Mixture(torch.full((2, 1), 0.5, **DOUBLE), gaussian()),
    "must be >= 0, smallest": lambda: sr.Mixture(torch.tensor([[2.0, -1.0]]).double(), gaussian()),
    "one law or more": lambda: sr.Mixture.of(torch.ones(1, 0), []),
    "weights must have shape": lambda: sr.Empirical(torch.ones(1, 2, 2), torch.ones(2)),
    "with B K the 2 components": lambda: sr.Mixture(torch.ones(3, 1, **DOUBLE), gaussian()),
    "are not mixtures themselves": lambda: sr.Mixture(torch.ones(2, 1, **DOUBLE), mixture()),
    "different families": lambda: sr.Mixture.of(HALVES, [gaussian(), sr.Cauchy(MEAN, SCALE)]),
    "alpha 1.2 and a stable law with alpha 1.5": lambda: sr.Mixture.of(
        HALVES, [sr.SymmetricStable(MEAN, SCALE, alpha) for alpha in (1.5, 1.2)]
    ),
    "samples must have shape": lambda: sr.Empirical(torch.ones(2, 2)),
    "must not decrease": lambda: sr.Quantiles(LEVELS, torch.tensor([[[1.0], [0.0]]])),
    "levels must increase, inside": lambda: sr.Quantiles(LEVELS - 0.1, torch.tensor([[[0.0], [1.0]]])),
    "unknown shape 'gauss'": lambda: Shape("gauss"),
    "positive number, of student_t alone, got 0": lambda: Shape("student_t", 0),
    "Independent": lambda: sr.law_of(td.Normal(MEAN, SCALE)),
    "not a law: str": lambda: sr.law_of("gaussian"),
    "must have shape": lambda: drawing(lambda n: torch.ones(n, 2)),
    "no floating-point tensor": lambda: drawing(lambda n: [1.0]),
    "not finite": lambda: drawing(lambda n: torch.full((n, 1, 2), math.nan)),
}


@pytest.mark.parametrize("message", BAD)
def test_an_invalid_law_is_refused_in_one_line(message):
    with pytest.raises(ValueError, match=message) as caught:
        BAD[message]()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "rule", ["sdp", "moment_matching", "marginal_sdp", "marginal_moment_matching", "unscented"]
)
def test_rules_of_moments_take_any_law_that_has_them_and_say_so(rule):
    net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)).double()
    law = sr.LocationScale(MEAN, SCALE, SHAPES["laplace"])
    with pytest.warns(UserWarning, match=f"'{rule}' takes a Laplace law for the Gaussian with its mean"):
        got = sr.propagate(net, law, rule)
    want = sr.propagate(net, sr.DiagonalGaussian(MEAN, law.variance), rule)
    torch.testing.assert_close(got.covariance, want.covariance)
    with pytest.raises(sr.UnsupportedError, match="which has no covariance"):
        sr.propagate(net, sr.Mixture(torch.ones(2, 1, **DOUBLE), sr.Cauchy(MEAN, SCALE)), rule)


@pytest.mark.parametrize("name", ["laplace", "split normal", "mixture", "empirical", "gamma", "sampled"])
def test_monte_carlo_draws_from_the_law_itself(name):
    """Of the identity: within 5 standard errors of the law's own moments; no warning."""
    law = WITH_MOMENTS[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = sr.propagate(torch.nn.Identity(), law, sr.rule("monte_carlo", samples=20_000))
    error = law.variance.sqrt() / math.sqrt(20_000)
    assert ((got.mean - law.mean).abs() < 5 * error).all()
    assert not torch.equal(got.mean, law.mean)


@pytest.mark.parametrize("name", WITH_MOMENTS)
def test_a_law_that_knows_how_likely_an_output_is_to_exceed_a_value_agrees_with_its_draws(name):
    """Within 5 standard errors of 40 000 draws; where it does not know it says so."""
    law, samples = WITH_MOMENTS[name](), 40_000
    values = law.mean + torch.tensor([-1.0, 0.0, 2.0], **DOUBLE)[:, None, None] * SCALE
    if name in ("sampled", "gamma", "mixture of gammas"):
        with pytest.raises(sr.UndefinedError, match="no known probabilities of single outputs"):
            law.survival(values)
        return
    known = law.survival(values)
    drawn = law.sample(samples, torch.Generator().manual_seed(1)).double()
    counted = (drawn > values.unsqueeze(1)).double().mean(1)
    assert ((known - counted).abs() <= 5 * (known * (1 - known) / samples).sqrt() + 1e-12).all()
    torch.testing.assert_close(law[1].survival(values[:, 1:]), known[:, 1:])


def test_points_and_quantiles_exceed_what_they_are_above():
    point = sr.DiagonalGaussian(torch.ones(1, 1, **DOUBLE), torch.zeros(1, 1, **DOUBLE))
    values = torch.tensor([0.0, 1.0, 2.0], **DOUBLE).reshape(3, 1, 1)
    assert point.survival(values).flatten().tolist() == [1.0, 0.0, 0.0]
    law = sr.Quantiles(torch.tensor([0.1, 0.5, 0.9]), torch.tensor([[[0.0], [1.0], [3.0]]]))
    asked = torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0, 3.0]).reshape(6, 1, 1)
    assert law.survival(asked).flatten().tolist() == pytest.approx([1.0, 0.9, 0.7, 0.5, 0.3, 0.0])


def test_outside_of_the_support_of_a_distribution_of_torchs_the_density_is_zero():
    law = sr.law_of(td.Independent(td.Kumaraswamy(SCALE + 1, SCALE + 1), 1))
    found = law[1].log_prob(torch.tensor([[[0.5, 2.0]], [[0.5, 0.5]]], **DOUBLE))
    assert found[0].item() == -math.inf
    assert found[1].item() == pytest.approx(law.log_prob(torch.full((2, 2), 0.5, **DOUBLE))[1].item())


def test_values_outside_of_a_support_are_refused_even_if_torch_validates_nothing(monkeypatch):
    """torch stops validating values after its first compilation in a process."""
    monkeypatch.setattr(td.Distribution, "_validate_args", False)
    law = sr.law_of(td.Independent(td.Gamma(SCALE, SCALE), 1))
    with pytest.raises(sr.UndefinedError, match="no known probabilities of single outputs"):
        law.survival(law.mean - 100)
    assert (law.survival(law.mean) > 0).all()


def test_laws_of_draws_make_one_batch_whatever_their_numbers_and_weights():
    plain = sr.Empirical(torch.tensor([[[1.0], [2.0], [6.0]]], **DOUBLE))
    fewer = sr.Empirical(plain.samples[:, :2], torch.tensor([[0.9, 0.1]], **DOUBLE))
    for laws in ([plain, fewer], [fewer, plain]):
        both = joined(laws)
        assert torch.allclose(both.mean, torch.cat([law.mean for law in laws]))
        assert torch.allclose(both.variance, torch.cat([law.variance for law in laws]))


class Dense(Sampled):
    """Someone's own law that has a density, of all its rows together."""

    def log_prob(self, values):
        return td.Independent(td.Normal(MEAN, SCALE), 1).log_prob(values)


@pytest.mark.parametrize(
    "given",
    [lambda: sr.law_of(Dense()), lambda: sr.law_of(td.Independent(td.Gumbel(MEAN, SCALE), 1))],
    ids=["sampled", "torch"],
)
def test_a_row_of_anothers_law_has_its_own_density_wherever_it_stands_and_however_often(given):
    law, values = given(), torch.tensor([[0.3, -1.0], [2.0, 3.1]], **DOUBLE)
    for row in range(2):
        both = law.log_prob(values[row].expand(2, 2))
        assert law[row].log_prob(values[[row]])[0] == both[row]
    twice = joined([law[1], law[1], law[0]])
    found = twice.log_prob(values[[0, 1, 0]])
    expected = [law.log_prob(values[[0, 0]])[1], law.log_prob(values)[1], law.log_prob(values[[0, 0]])[0]]
    assert found.tolist() == [each.item() for each in expected]


def test_laws_of_two_families_make_one_batch_of_all_rows():
    alone = sr.DiagonalGaussian(3 * MEAN, SCALE)
    for laws in ([mixture(), alone], [alone, mixture()], [gaussian(), alone], [alone, gaussian()]):
        both = joined(laws)
        assert both.batch == 4
        assert torch.allclose(both.mean, torch.cat([law.mean for law in laws]))
        assert torch.allclose(both.covariance, torch.cat([law.covariance for law in laws]))
    stable = (sr.SymmetricStable(MEAN, SCALE, alpha) for alpha in (1.2, 1.7))
    for laws in ([alone, sr.Cauchy(MEAN, SCALE)], stable):
        with pytest.raises(sr.UndefinedError, match="do not make one batch"):
            joined(list(laws))


@pytest.mark.parametrize(
    ("family", "reference"), [(sr.DiagonalGaussian, scipy.stats.norm), (sr.Cauchy, scipy.stats.cauchy)]
)
def test_far_tails_keep_their_digits(family, reference):
    zero = torch.zeros(1, 1, **DOUBLE)
    law = family(zero, torch.ones(1, 1, **DOUBLE))
    for value in (-30.0, 0.0, 5.0, 30.0):
        assert law.survival(zero + value).item() == pytest.approx(reference.sf(value), rel=1e-12)
