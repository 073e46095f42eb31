import mpmath
import pytest
import torch
from torch import distributions as td

import sdp_ref as sr
from sdp_bench import oracles
from sdp_ref.laws import unchecked
from tests.sdp_ref.common import draw


def test_a_gaussian_reports_its_shape_variances_and_a_factor_of_its_covariance():
    covariance = torch.tensor([[[4.0, 1.0], [1.0, 9.0]]])
    law = sr.Gaussian(torch.tensor([[1.0, 2.0]]), covariance)
    assert (law.batch, law.dimension, law.event_shape) == (1, 2, (2,))
    assert law.variance.tolist() == [[4.0, 9.0]]
    factor = law.factor()
    assert torch.allclose(factor @ factor.mT, covariance.double(), rtol=1e-14)


def test_event_shapes_are_flattened_for_the_covariance():
    law = sr.Gaussian(torch.zeros(5, 2, 3), torch.eye(6).expand(5, 6, 6))
    assert law.variance.shape == (5, 2, 3)
    assert sr.DiagonalGaussian(torch.zeros(5, 2, 3), torch.ones(5, 2, 3)).covariance.shape == (5, 6, 6)


def test_semi_definite_and_zero_covariances_have_a_factor():
    for covariance in (torch.ones(1, 3, 3), torch.zeros(1, 3, 3)):
        factor = sr.Gaussian(torch.zeros(1, 3), covariance).factor()
        assert torch.allclose(factor @ factor.mT, covariance.double(), atol=1e-14)


def test_iteration_and_indexing_keep_the_batch_dimension():
    law = sr.Cauchy(torch.arange(6.0).reshape(3, 2), torch.ones(3, 2))
    assert [part.location.tolist() for part in law] == [[[0, 1]], [[2, 3]], [[4, 5]]]
    assert law[-1].location.tolist() == [[4, 5]]
    stable = sr.SymmetricStable(torch.zeros(3, 2), torch.ones(3, 2), 1.5)
    assert stable[1].alpha == 1.5
    assert law[torch.tensor(1)].location.shape == (1, 2)
    with pytest.raises(IndexError):
        law[3]


def test_a_slice_without_laws_is_refused():
    for family, spread in ((sr.Gaussian, torch.eye(3).repeat(2, 1, 1)), (sr.Cauchy, torch.ones(2, 3))):
        laws = family(torch.zeros(2, 3), spread)
        with pytest.raises(ValueError, match="one law or more"):
            laws[:0]


def test_the_factor_of_an_indefinite_covariance_drops_negative_eigenvalues():
    covariance = torch.tensor([[[1.0, 2.0], [2.0, 1.0]]], dtype=torch.float64)  # eigenvalues 3 and -1
    factor = unchecked(sr.Gaussian, torch.zeros(1, 2).double(), covariance).factor()
    expected = torch.tensor([[[1.5, 1.5], [1.5, 1.5]]], dtype=torch.float64)
    assert torch.allclose(factor @ factor.mT, expected, rtol=1e-14)


Z = torch.zeros(1, 2)
NAN = torch.tensor([[0.0, float("nan")]])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sr.Gaussian([[0.0]], torch.eye(1)), "mean must be a torch tensor"),
        (lambda: sr.Gaussian(torch.zeros(2), torch.eye(2)), "batch dimension first"),
        (lambda: sr.DiagonalGaussian(torch.zeros(0, 2), torch.zeros(0, 2)), "one law or more"),
        (lambda: sr.Gaussian(Z, torch.eye(3)[None]), r"shape \(1, 2, 2\).*got \(1, 3, 3\)"),
        (lambda: sr.Gaussian(NAN, torch.eye(2)[None]), "mean must be finite"),
        (lambda: sr.Gaussian(Z, torch.full((1, 2, 2), float("inf"))), "covariance must be finite"),
        (lambda: sr.Gaussian(Z, torch.tensor([[[1.0, 0.5], [0.4, 1.0]]])), "not symmetric"),
        (lambda: sr.Gaussian(Z, torch.tensor([[[1.0, 2.0], [2.0, 1.0]]])), "not positive semi-definite"),
        (lambda: sr.Gaussian(Z, torch.diag_embed(torch.tensor([[1.0, -1.0]]))), "negative variance"),
        (lambda: sr.Gaussian(Z, torch.eye(2, dtype=torch.float64)[None]), "dtype"),
        (lambda: sr.Gaussian(Z.long(), torch.eye(2)[None]), "floating-point"),
        (lambda: sr.DiagonalGaussian(Z, -torch.ones(1, 2)), "variance must be >= 0"),
        (lambda: sr.Cauchy(Z, torch.ones(1, 3)), r"scale must have shape \(1, 2\)"),
        (lambda: sr.Cauchy(Z, -torch.ones(1, 2)), "scale must be >= 0"),
        (lambda: sr.Cauchy(Z, torch.ones(1, 2, device="meta")), "scale is on meta, the location on cpu"),
        (lambda: sr.SymmetricStable(Z, torch.ones(1, 2), 0.0), r"alpha must be a number in \(0, 2\]"),
        (lambda: sr.SymmetricStable(Z, torch.ones(1, 2), float("nan")), "alpha"),
    ],
)
def test_bad_laws_are_refused_in_one_line(make, message):
    with pytest.raises(ValueError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_rounding_of_float32_products_is_not_taken_for_asymmetry_or_indefiniteness():
    factor = draw(64, 300, 5, dtype=torch.float32)
    sr.Gaussian(torch.zeros(64, 300), factor @ factor.mT)


def test_a_notebook_shows_means_with_standard_deviations_or_centres():
    gaussian = sr.DiagonalGaussian(torch.tensor([[1.0, -2.0]]), torch.tensor([[4.0, 0.25]]))
    assert "1 ± 2" in gaussian._repr_html_()
    assert "-2 ± 0.5" in gaussian._repr_html_()
    cauchy = sr.Cauchy(torch.full((9, 1), 3.0), torch.ones(9, 1))._repr_html_()
    assert cauchy.count("<td>3</td>") == 5
    assert "first 5 laws" in cauchy


@pytest.mark.parametrize("offset", [0.0, 2.0**24, -3e6])
def test_moments_do_not_depend_on_the_offset(offset):
    places = torch.tensor([[0.0, 2.0], [4.0, 0.0], [6.0, -8.0]])
    weights = torch.tensor([[0.5, 0.25, 0.25]])
    # by hand: means 2.5 and -1; squares 13 and 18; product -12
    covariance = torch.tensor([[6.75, -9.5], [-9.5, 17.0]])
    points = sr.Empirical((offset + places)[None], weights)
    mixture = sr.Mixture(weights, sr.DiagonalGaussian(offset + places, torch.zeros(3, 2)))
    for law in (points, mixture):
        assert torch.equal(law.covariance[0], covariance)
        assert torch.equal(law.variance[0], covariance.diagonal())
    assert sr.Empirical((offset + places)[None]).variance[0].tolist() == pytest.approx([56 / 9, 56 / 3])


@pytest.mark.parametrize("far", [1e25, 3e38])
def test_components_without_weight_do_not_count(far):
    means = torch.tensor([[1.0], [far], [3.0]])
    law = sr.Mixture(
        torch.tensor([[0.5, 0.0, 0.5]]), sr.DiagonalGaussian(means, torch.tensor([[1.0], [far], [1.0]]))
    )
    assert law.mean.item() == 2
    assert law.variance.item() == law.covariance.item() == 2


def test_weights_of_another_precision_are_converted():
    weights = td.Categorical(torch.tensor([[0.25, 0.75]], dtype=torch.float64))
    given = td.MixtureSameFamily(
        weights, td.Independent(td.Normal(torch.tensor([[[0.0], [4.0]]]), torch.ones(1, 2, 1)), 1)
    )
    law = sr.law_of(given)
    assert law.weights.dtype == torch.float32
    assert law.mean.item() == 3
    assert law.variance.item() == 4


def test_a_mixture_of_mixtures_keeps_its_moments_and_samples():
    means = torch.tensor([[[[0.0], [2.0]], [[10.0], [12.0]]]])
    parts = td.Independent(td.Normal(means, torch.ones_like(means)), 1)
    inner = td.MixtureSameFamily(td.Categorical(torch.full((1, 2, 2), 0.5)), parts)
    law = sr.law_of(td.MixtureSameFamily(td.Categorical(torch.tensor([[0.25, 0.75]])), inner))
    # between groups 10^2 (0.25 0.75), within a group 1, of a component 1
    assert law.mean.item() == pytest.approx(8.5)
    assert law.variance.item() == pytest.approx(18.75 + 1 + 1)
    samples = law.sample(20_000, torch.Generator().manual_seed(0)).flatten()
    assert abs(samples.mean().item() - 8.5) < 4 * (20.75 / 20_000) ** 0.5


DTYPES = [torch.float32, torch.float64]


def singular(scales, rank, dtype):
    """Covariance of rank `rank` with these standard deviations, and loadings A with covariance A A^T."""
    angles = 0.3 + 1.1 * torch.arange(len(scales), dtype=torch.float64)
    loadings = torch.stack([angles.cos(), angles.sin()], 1)[:, :rank]
    loadings = (
        loadings / loadings.norm(dim=1, keepdim=True) * torch.tensor(scales, dtype=torch.float64)[:, None]
    )
    return (loadings @ loadings.mT)[None].to(dtype), loadings


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize(
    "scales", [[1, 1, 1, 1], [3e-9, 2.0, 5e7, 1e-3], [1e12, 1e-6, 1e-6, 1e12], [1e-15, 1e-15, 2e-15, 1e-15]]
)
def test_draws_keep_the_relations_between_components(scales, rank, dtype):
    covariance, loadings = singular(scales, rank, dtype)
    law = sr.Gaussian(torch.zeros(1, 4, dtype=dtype), covariance)
    factor = law.factor()[0]
    size = torch.tensor(scales, dtype=torch.float64)
    digits = 100 * torch.finfo(dtype).eps
    assert ((factor @ factor.mT - loadings @ loadings.mT).abs() <= digits * size * size[:, None]).all()
    # components in units of their standard deviations lie in the span of the loadings
    span = torch.linalg.svd(loadings / size[:, None])[0][:, :rank]
    units = factor / size[:, None]
    assert (units - span @ (span.mT @ units)).abs().max() < digits
    assert torch.linalg.matrix_rank(units, atol=digits) == rank
    with pytest.raises(sr.UndefinedError, match="singular"):
        law.log_prob(torch.zeros(1, 4))


def test_a_covariance_of_zeros_has_a_factor_of_zeros():
    law = sr.Gaussian(torch.ones(1, 3), torch.zeros(1, 3, 3))
    assert not law.factor().any()
    assert (law.sample(2) == 1).all()


def test_thin_directions_that_can_be_stored_are_kept():
    for dtype, thin in ((torch.float32, 3e-3), (torch.float64, 1e-6)):
        turn = torch.linalg.qr(draw(3, 3, seed=1))[0]
        covariance = ((turn * torch.tensor([1.0, 0.1, thin]) ** 2) @ turn.mT)[None].to(dtype)
        factor = sr.Gaussian(torch.zeros(1, 3, dtype=dtype), covariance).factor()[0]
        assert torch.linalg.svdvals(factor)[-1].item() == pytest.approx(thin, rel=1e-2)


def test_a_singular_covariance_does_not_change_the_factors_of_regular_ones():
    regular = torch.tensor([[4.0, 1.0], [1.0, 9.0]], dtype=torch.float64)
    line = torch.tensor([[1.0, 2e9], [2e9, 4e18]], dtype=torch.float64)
    factor = sr.Gaussian(torch.zeros(3, 2).double(), torch.stack([regular, line, regular])).factor()
    assert torch.equal(factor[0], torch.linalg.cholesky(regular))
    assert torch.equal(factor[2], factor[0])
    ratio = factor[1, 1, factor[1].any(0)] / factor[1, 0, factor[1].any(0)]
    assert ratio.numpy() == pytest.approx(2e9, rel=1e-14)


@pytest.mark.parametrize("value", [0.1, -7e11, 1 / 3, 1e-200])
@pytest.mark.parametrize("samples", [1001, 50_000])
def test_constant_outputs_have_no_spread(value, samples):
    constant = torch.full((samples, 1), value, dtype=torch.float64)
    law = sr.DiagonalGaussian(constant[:1], torch.zeros(1, 1).double())
    moments = oracles.Moments.from_samples(constant)
    assert moments.mean.item() == value
    assert moments.covariance.item() == 0
    assert oracles.std_ratio(constant, law)[0].value == 1
    assert oracles.gaussian_kl(constant, law).value == 0


@pytest.mark.parametrize(
    "rule", ["unscented", "second_order", "low_rank", "exact", "cubature", "monte_carlo:samples=4000"]
)
@pytest.mark.parametrize("big", [1e6, 3e9, 1e13])
def test_rules_with_a_singular_input_of_several_scales(rule, big):
    """x2 = 3 x0, so that x0 - x2 / 6 has half the standard deviation of x0; x1 is much larger."""
    deviations = torch.tensor([2.0, big, 6.0], dtype=torch.float64)
    correlation = torch.tensor([[1, -0.3, 1], [-0.3, 1, -0.3], [1, -0.3, 1]], dtype=torch.float64)
    x = sr.Gaussian(torch.zeros(1, 3).double(), (deviations[:, None] * correlation * deviations)[None])
    net = torch.nn.Linear(3, 1, bias=False).double()
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[1.0, 0.0, -1 / 6]], dtype=torch.float64))
    rough = 0.05 if rule.startswith("monte") else 1e-9  # 4000 draws: standard error .011
    assert sr.propagate(net, x, rule).variance.sqrt().item() == pytest.approx(1, rel=rough)
    assert oracles.sample_outputs(net, x, 20_000, seed=1).std().item() == pytest.approx(1, rel=0.02)


@pytest.mark.parametrize("steps", [-9.0, -5.5, 0.3, 4.9, 5.1, 7.5, 12.0, 25.0, 37.0])
def test_survival_of_gaussian_laws_is_right_however_far(steps):
    right = float(mpmath.ncdf(-steps))
    mean, deviation = 3.0, 0.25
    value = torch.tensor([[mean + steps * deviation, mean]], dtype=torch.float64)
    location = torch.full((1, 2), mean, dtype=torch.float64)
    variance = torch.full_like(location, deviation**2)
    diagonal = sr.DiagonalGaussian(location, variance)
    full = sr.Gaussian(location, torch.diag_embed(variance))
    mixed = sr.Mixture(torch.ones(1, 1).double(), diagonal)
    for law in (diagonal, full, mixed):
        assert law.survival(value)[0].tolist() == pytest.approx([right, 0.5], rel=2e-10, abs=0)


@pytest.mark.parametrize("scale", [3e-23, 1e-30])
def test_variances_that_float32_cannot_store_are_refused(scale):
    mean, deviation = torch.zeros(2, 3), torch.full((2, 3), scale)
    for given in (
        lambda m, s: td.Independent(td.Normal(m, s), 1),
        lambda m, s: td.MultivariateNormal(m, scale_tril=torch.diag_embed(s)),
        lambda m, s: td.LowRankMultivariateNormal(m, s.unsqueeze(2), s.square() + 1e-300),
    ):
        wide = sr.law_of(given(mean.double(), deviation.double()))
        assert wide.variance.min() > 0.9 * scale**2
    for given in (
        td.Independent(td.Normal(mean, deviation), 1),
        td.MultivariateNormal(mean, scale_tril=torch.diag_embed(deviation)),
        td.Independent(td.Laplace(mean, deviation), 1),
        td.Independent(td.StudentT(5.0, mean, deviation), 1),
        td.Independent(td.Uniform(mean, deviation), 1),
    ):
        with pytest.raises(ValueError, match=r"too small for .*float32"):
            sr.law_of(given)
