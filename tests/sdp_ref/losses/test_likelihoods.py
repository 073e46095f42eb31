import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import sdp_ref as sr
from sdp_ref import losses
from sdp_ref.laws import unchecked


def case(seed, n=3, batch=2):
    generator = torch.Generator().manual_seed(seed)
    mean, targets = torch.randn(2, batch, n, generator=generator, dtype=torch.float64)
    factor = torch.randn(batch, n, n, generator=generator, dtype=torch.float64)
    return mean, factor @ factor.mT, targets


@settings(max_examples=30)
@given(st.integers(0, 2**31), st.integers(1, 5))
def test_gaussian_nll_is_scipys(seed, n):
    mean, covariance, targets = case(seed, n)
    covariance = covariance + 0.05 * torch.eye(n)
    law = sr.Gaussian(mean, covariance)
    expected = [
        -stats.multivariate_normal(m, c).logpdf(y)
        for m, c, y in zip(mean.numpy(), covariance.numpy(), targets.numpy(), strict=True)
    ]
    assert losses.gaussian_nll(law, targets, "none").tolist() == pytest.approx(expected, rel=1e-10)
    assert losses.gaussian_jitter(law).tolist() == [0.0, 0.0]
    single = losses.gaussian_nll(law.to(torch.float32), targets.float(), "none")
    assert single.dtype == torch.float32
    double = losses.gaussian_nll(law.to(torch.float32).to(torch.float64), targets.float().double(), "none")
    assert torch.allclose(single.double(), double, rtol=1e-6, atol=1e-6)


def test_independent_components_are_scipys_for_any_event_shape():
    generator = torch.Generator().manual_seed(0)
    mean, targets = torch.randn(2, 4, 2, 3, generator=generator, dtype=torch.float64)
    spread = torch.rand(4, 2, 3, generator=generator, dtype=torch.float64) + 0.1
    law = sr.DiagonalGaussian(mean, spread)
    expected = -stats.norm.logpdf(targets, mean, spread.sqrt()).sum((1, 2))
    assert losses.gaussian_nll(law, targets, "none").tolist() == pytest.approx(expected.tolist(), rel=1e-12)
    full = sr.Gaussian(mean, law.covariance)
    assert losses.gaussian_nll(full, targets).item() == pytest.approx(expected.mean(), rel=1e-12)
    expected = -stats.cauchy.logpdf(targets, mean, spread).sum((1, 2))
    law = sr.Cauchy(mean, spread)
    assert losses.cauchy_nll(law, targets, "none").tolist() == pytest.approx(expected.tolist(), rel=1e-12)
    assert losses.cauchy_nll(law, targets, "sum").item() == pytest.approx(expected.sum(), rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_singular_covariance_gets_the_least_jitter_of_the_ladder_and_is_then_scipys(dtype):
    law = sr.Gaussian(torch.zeros(1, 3, dtype=dtype), torch.full((1, 3, 3), 4.0, dtype=dtype))
    targets = torch.tensor([[1.0, 1.0, 1.0 + 1e-3]], dtype=dtype)
    jitter = losses.gaussian_jitter(law)
    assert jitter.item() == pytest.approx(4 * (2.0**-23 if dtype == torch.float32 else 1e-9), rel=1e-12)
    covariance = (law.covariance[0].double() + jitter * torch.eye(3)).numpy()
    precision = np.linalg.inv(covariance)
    y = targets[0].double().numpy()
    expected = (3 * math.log(2 * math.pi) + np.linalg.slogdet(covariance)[1] + y @ precision @ y) / 2
    assert losses.gaussian_nll(law, targets).item() == pytest.approx(expected, rel=1e-6)


def test_components_in_very_different_units_need_no_jitter():
    spread = torch.tensor([[1.0, 1e-20, 1e20]], dtype=torch.float64)
    law = sr.Gaussian(torch.zeros(1, 3).double(), torch.diag_embed(spread))
    assert losses.gaussian_jitter(law).item() == 0
    apart = losses.gaussian_nll(sr.DiagonalGaussian(law.mean, spread), spread.sqrt())
    assert losses.gaussian_nll(law, spread.sqrt()).item() == pytest.approx(apart.item(), rel=1e-12)


@pytest.mark.rounding
def test_the_jitter_of_a_law_does_not_depend_on_its_batch():
    good, singular = torch.eye(3), torch.ones(3, 3)
    covariance = torch.stack([good, singular, 1e6 * singular, 1e-12 * good, torch.zeros(3, 3)])
    law = sr.Gaussian(torch.zeros(5, 3), covariance)
    together = losses.gaussian_jitter(law)
    assert together.tolist() == [losses.gaussian_jitter(part).item() for part in law]
    assert together[0] == together[3] == 0
    assert together[2].item() == pytest.approx(1e6 * together[1].item(), rel=1e-6)
    assert torch.isfinite(losses.gaussian_nll(law, torch.ones(5, 3), "none")).all()


def test_a_slightly_indefinite_covariance_is_mended_and_one_far_off_refused():
    slightly = torch.tensor([[[1.0, 1.0 + 1e-5], [1.0 + 1e-5, 1.0]]])
    law = unchecked(sr.Gaussian, torch.zeros(1, 2), slightly)
    assert 1e-5 <= losses.gaussian_jitter(law).item() <= 1e-4 + 1e-6
    assert torch.isfinite(losses.gaussian_nll(law, torch.ones(1, 2)))
    far = torch.tensor([[[1.0, 2.5], [2.5, 1.0]]])
    with pytest.raises(ValueError, match=r"far from positive semi-definite \(smallest eigenvalue -1.5\)"):
        losses.gaussian_nll(unchecked(sr.Gaussian, torch.zeros(1, 2), far), torch.ones(1, 2))


@pytest.mark.parametrize("offset", [0.0, 1e-10, 1.0, 1e6])
@pytest.mark.parametrize("spread", [0.0, 1e-30, 1e-9, 1.0, 1e30])
def test_float32_losses_and_gradients_are_finite(spread, offset):
    for family, nll in (
        (sr.Gaussian, losses.gaussian_nll),
        (sr.DiagonalGaussian, losses.gaussian_nll),
        (sr.Cauchy, losses.cauchy_nll),
    ):
        location = torch.zeros(1, 2, requires_grad=True)
        width = torch.full((1, 2), spread, requires_grad=True)
        targets = torch.full((1, 2), offset)
        loss = nll(family(location, torch.diag_embed(width) if family is sr.Gaussian else width), targets)
        loss.backward()
        assert torch.isfinite(loss)
        assert torch.isfinite(location.grad).all()
        assert torch.isfinite(width.grad).all()
        if spread > 0:
            scale = spread if family is sr.Cauchy else math.sqrt(width[0, 0].item())
            law = stats.cauchy if family is sr.Cauchy else stats.norm
            exact = -2 * law.logpdf(targets[0, 0].item() / scale) + 2 * math.log(scale)
            assert loss.item() == pytest.approx(min(exact, 2.0**96), rel=1e-6)


def test_a_point_mass_on_the_target_is_likelier_than_one_next_to_it():
    for family, nll in ((sr.DiagonalGaussian, losses.gaussian_nll), (sr.Cauchy, losses.cauchy_nll)):
        law = family(torch.zeros(2, 1), torch.zeros(2, 1))
        on, beside = nll(law, torch.tensor([[0.0], [1.0]]), "none").tolist()
        assert on < -100 < 100 < beside


def test_gradients_of_likelihoods_match_finite_differences():
    mean, covariance, targets = case(3)
    factor = torch.linalg.cholesky(covariance + 0.5 * torch.eye(3, dtype=torch.float64))
    width = covariance.diagonal(dim1=1, dim2=2) + 0.1
    for x in (mean, factor, width, targets):
        x.requires_grad_()

    def full(m, f, y):
        return losses.gaussian_nll(sr.Gaussian(m, f @ f.mT), y, "none")

    def diagonal(m, v, y):
        return losses.gaussian_nll(sr.DiagonalGaussian(m, v), y)

    def cauchy(m, g, y):
        return losses.cauchy_nll(sr.Cauchy(m, g), y, "sum")

    assert torch.autograd.gradcheck(full, (mean, factor.detach().requires_grad_(), targets))
    for loss in (diagonal, cauchy):
        at = (mean, width.detach().requires_grad_(), targets)
        assert torch.autograd.gradcheck(loss, at)
        assert torch.autograd.gradgradcheck(loss, at)


Z = torch.zeros(2, 3)
LAW = sr.DiagonalGaussian(Z, Z + 1)
FULL = sr.Gaussian(Z, torch.eye(3).expand(2, 3, 3))
CAUCHY = sr.Cauchy(Z, Z + 1)
ONE_CLASS = sr.DiagonalGaussian(torch.zeros(2, 1), torch.ones(2, 1))
LABELS = torch.tensor([0, 2])
NAN = torch.tensor([[math.nan, 0.0, 0.0], [0.0, 0.0, 0.0]])
WRONG = unchecked(sr.Gaussian, Z, torch.ones(2, 3))
LOST = unchecked(sr.DiagonalGaussian, NAN, Z + 1)
IMAGES = sr.DiagonalGaussian(torch.zeros(2, 3, 1), torch.ones(2, 3, 1))
CERTIFICATES = losses.OrthonormalCertificates.fit(torch.eye(3), 2)

CASES = [
    (lambda: losses.pairwise_loss(ONE_CLASS, LABELS), "at least 2 classes"),
    (lambda: losses.dirichlet(ONE_CLASS), "at least 2 classes"),
    (lambda: losses.entropy(torch.ones(2, 1)), "at least 2 classes"),
    (lambda: losses.pairwise_loss(LAW, torch.tensor([0, 3])), r"0\.\.2 for 3 classes, got 3"),
    (lambda: losses.dirichlet_nll(LAW, torch.tensor([-1, 0])), "labels must lie in"),
    (lambda: losses.pairwise_loss(LAW, torch.tensor([[0], [1]])), "labels must have shape"),
    (lambda: losses.pairwise_loss(LAW, Z), "integers"),
    (lambda: losses.pairwise_loss(WRONG, LABELS), "covariance must have shape"),
    (lambda: losses.pairwise_loss(LOST, LABELS), "location must be finite"),
    (lambda: losses.pairwise_loss(IMAGES, LABELS), r"\(B, classes\), got \(2, 3, 1\)"),
    (lambda: losses.pairwise_loss(sr.SymmetricStable(Z, Z + 1, 1.5), LABELS), "got SymmetricStable"),
    (lambda: losses.pairwise_loss(Z, LABELS), "got Tensor"),
    (lambda: losses.gaussian_nll(CAUCHY, Z), "got Cauchy"),
    (lambda: losses.cauchy_nll(LAW, Z), "got DiagonalGaussian"),
    (lambda: losses.pairwise_loss(LAW.to(torch.float16), LABELS), "float32 or float64"),
    (lambda: losses.pairwise_loss(LAW, LABELS, "avg"), "'mean', 'sum' or 'none', got 'avg'"),
    (lambda: losses.pairwise_scores(LAW, "max"), "'mean', 'geometric' or 'minimum', got 'max'"),
    (lambda: losses.gaussian_nll(LAW, NAN), "targets must be finite"),
    (lambda: losses.gaussian_nll(LAW, torch.zeros(2)), "targets must have the mean's shape"),
    (lambda: losses.pnn_nll(Z[:, :1], Z[:, :1], torch.zeros(2)), "targets must have the mean's shape"),
    (lambda: losses.pnn_variance(Z, -1.0), "floor must be a number >= 0"),
    (lambda: losses.sdp_pnn(LAW, torch.ones(2, 3, 3)), "mean's shape"),
    (lambda: losses.sdp_pnn(FULL, Z - 1), "variance must be >= 0, smallest entry is -1"),
    (lambda: losses.sdp_pnn(FULL, Z.double()), "make them one"),
    (lambda: losses.pinball(Z, Z, 1.0), r"tau must lie in \(0, 1\), got 1.0"),
    (lambda: losses.sqr_input(Z, torch.full((3,), 0.5)), "tau must have shape"),
    (lambda: losses.pinball(Z, torch.zeros(2), 0.5), "the prediction's shape"),
    (lambda: losses.pinball(Z, torch.zeros(2), 0.5), "the prediction's shape"),
    (lambda: losses.sqr_input(torch.zeros(3), 0.5), r"x must have shape \(B, d\)"),
    (lambda: losses.entropy(Z), "sum to 1"),
    (lambda: losses.entropy(torch.tensor([[1.5, -0.5]])), "smallest is -0.5"),
    (lambda: losses.softmax_entropy(NAN), "logits must be finite"),
    (lambda: losses.dirichlet(LAW, -1.0), "offset must be a number >= 0"),
    (lambda: losses.dirichlet(LAW, 1.0, torch.ones(2)), "slope must be one number >= 0"),
    (lambda: losses.dirichlet_nll(LAW, LABELS, smoothing=0.0), "smoothing must lie in"),
    (lambda: losses.dirichlet_probabilities(Z), "positive sum in every row"),
    (lambda: losses.OrthonormalCertificates.fit(torch.eye(3), 4), r"count .* 1\.\.3, got 4"),
    (lambda: losses.OrthonormalCertificates.fit(torch.zeros(3), 1), "features must have shape"),
    (lambda: losses.OrthonormalCertificates.fit(Z, 1, penalty=0.0), "penalty must be positive"),
    (lambda: CERTIFICATES.score(torch.zeros(2, 4)), "features must have shape"),
    (lambda: CERTIFICATES.score(torch.zeros(2, 4)), "features must have shape"),
    (lambda: CERTIFICATES.score(Z.double()), "the certificates torch.float32"),
]


@pytest.mark.parametrize(("call", "message"), CASES)
def test_bad_input_is_refused_in_one_line(call, message):
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


@settings(max_examples=30)
@given(st.integers(0, 2**31))
def test_an_affine_map_adds_its_log_determinant(seed):
    mean, covariance, targets = case(seed)
    covariance = covariance + 0.1 * torch.eye(3)
    matrix = case(seed + 1)[1][0] + torch.eye(3)
    law = sr.Gaussian(mean, covariance)
    image = matrix @ covariance @ matrix.mT
    mapped = sr.Gaussian(mean @ matrix.mT + 1, (image + image.mT) / 2)
    before = losses.gaussian_nll(law, targets, "none") + torch.linalg.slogdet(matrix).logabsdet
    after = losses.gaussian_nll(mapped, targets @ matrix.mT + 1, "none")
    assert torch.allclose(before, after, rtol=1e-6, atol=1e-6)
