import numpy as np
import pytest
import torch
from scipy import stats

import sdp_ref as sr
from sdp_ref.laws import Edgeworth

DOUBLE = {"dtype": torch.float64}


def law(outputs, seed, rank=None):
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(outputs, rank or outputs, generator=generator, **DOUBLE)
    mean = torch.randn(1, outputs, generator=generator, **DOUBLE)
    return sr.Gaussian(mean, (root @ root.T)[None])


def skewness(outputs, size, seed):
    """Symmetric third cumulants of standard size."""
    t = torch.randn(outputs, outputs, outputs, generator=torch.Generator().manual_seed(seed), **DOUBLE)
    orders = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
    return size * sum(t.permute(order) for order in orders) / 6


def orthant(gaussian, k):
    """P(Y_k - Y_j > 0 for all j) by scipy's algorithm."""
    n = gaussian.dimension
    ahead = np.delete(-np.eye(n), k, axis=0)
    ahead[:, k] = 1
    mean, covariance = ahead @ gaussian.mean[0].numpy(), ahead @ gaussian.covariance[0].numpy() @ ahead.T
    return stats.multivariate_normal.cdf(mean, np.zeros(n - 1), covariance, maxpts=10**6, abseps=1e-7)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("outputs", [2, 3, 5, 7])
def test_classes_of_gaussians_are_orthant_probabilities_within_the_bound(outputs, seed):
    gaussian = law(outputs, seed)
    probabilities, bound = gaussian.class_probabilities()
    expected = torch.tensor([orthant(gaussian, k) for k in range(outputs)])
    assert (probabilities[0] - expected).abs().max() <= bound + 2e-6
    assert bound < 1e-3
    assert abs(probabilities.sum() - 1) <= outputs * bound + 1e-12


def test_two_classes_are_exact():
    gaussian = law(2, 3)
    probabilities, bound = gaussian.class_probabilities()
    (a, b), ((v, c), (_, w)) = gaussian.mean[0].tolist(), gaussian.covariance[0].tolist()
    assert probabilities[0, 0] == pytest.approx(stats.norm.cdf((a - b) / (v + w - 2 * c) ** 0.5), abs=1e-14)
    assert bound == 0


@pytest.mark.parametrize("rank", [1, 2])
def test_singular_covariances_are_within_the_bound_of_samples(rank):
    gaussian = law(5, 1, rank)
    probabilities, bound = gaussian.class_probabilities()
    drawn = gaussian.sample(400_000, torch.Generator().manual_seed(0))[:, 0].argmax(1)
    frequencies = torch.bincount(drawn, minlength=5) / 400_000
    assert (probabilities[0] - frequencies).abs().max() < bound + 5 * 0.5 / 400_000**0.5


def test_the_first_of_equal_outputs_is_the_class():
    mean, covariance = torch.tensor([[1.0, 2.0, 2.0]], **DOUBLE), torch.zeros(1, 3, 3, **DOUBLE)
    assert sr.Gaussian(mean, covariance).class_probabilities()[0].tolist() == [[0.0, 1.0, 0.0]]
    common = torch.ones(1, 3, 3, **DOUBLE)  # all outputs share one noise
    assert sr.Gaussian(mean, common).class_probabilities()[0].tolist() == [[0.0, 1.0, 0.0]]
    assert sr.Gaussian(mean[:, :1], covariance[:, :1, :1]).class_probabilities()[0].tolist() == [[1.0]]


def test_independent_outputs_are_integrals_in_one_dimension():
    mean = torch.tensor([[0.3, -0.2, 0.1, 1.0]], **DOUBLE)
    variance = torch.tensor([[1.0, 2.0, 0.5, 0.1]], **DOUBLE)
    probabilities, bound = sr.DiagonalGaussian(mean, variance).class_probabilities()
    y = torch.linspace(-12, 12, 20_001, **DOUBLE)[:, None]
    z = (y - mean) / variance.sqrt()
    below = torch.special.ndtr(z)
    density = torch.exp(-z.square() / 2) / (2 * torch.pi * variance).sqrt()
    of_rivals = torch.stack([below[:, [j for j in range(4) if j != k]].prod(1) for k in range(4)], 1)
    exact = torch.trapezoid(density * of_rivals, y, dim=0)
    assert (probabilities[0] - exact).abs().max() < bound + 1e-8


def test_classes_of_the_edgeworth_series_are_those_of_weighted_samples():
    """E[1(class) (1 + t_abc He_abc(z) / 6)], with five standard errors."""
    gaussian, t = law(4, 2), skewness(4, 0.5, 1)
    root = torch.linalg.cholesky(gaussian.covariance[0])
    third = torch.einsum("abc,ia,jb,kc->ijk", t, root, root, root)[None]
    skewed = Edgeworth(gaussian.mean, gaussian.covariance, third)
    probabilities, bound = skewed.class_probabilities()
    z = torch.randn(10**6, 4, generator=torch.Generator().manual_seed(0), **DOUBLE)
    cubes = torch.einsum("abc,pa,pb,pc->p", t, z, z, z) - 3 * z @ torch.einsum("aab->b", t)
    classes = torch.nn.functional.one_hot((gaussian.mean + z @ root.T).argmax(1), 4)
    weighted = (1 + cubes / 6)[:, None] * classes
    error = weighted.std(0) / 1000
    assert ((probabilities[0] - weighted.mean(0)).abs() < 5 * error + bound).all()
    assert (probabilities - gaussian.class_probabilities()[0]).abs().max() > 0.005  # the series matters here
    assert abs(probabilities.sum() - 1) < 4 * bound


def test_two_classes_of_the_edgeworth_series_are_exact():
    """P(D > 0) = Phi(h) + k (h^2 - 1) phi(h) / 6 with h = mean / std and the standardised cumulant k of D."""
    gaussian, third = law(2, 5), skewness(2, 0.3, 2)[None]
    probabilities, bound = Edgeworth(gaussian.mean, gaussian.covariance, third).class_probabilities()
    a = torch.tensor([1.0, -1.0], **DOUBLE)
    std = float(a @ gaussian.covariance[0] @ a) ** 0.5
    h = float(gaussian.mean[0] @ a) / std
    k = float(torch.einsum("abc,a,b,c->", third[0], a, a, a)) / std**3
    expected = stats.norm.cdf(h) + k * (h * h - 1) * stats.norm.pdf(h) / 6
    assert probabilities[0, 0] == pytest.approx(expected, abs=1e-13)
    assert bound == 0


def test_the_probabilities_are_the_gradient_of_the_mean_of_the_maximum():
    gaussian, step = law(3, 7), 0.05
    normals = torch.randn(10**6, 3, generator=torch.Generator().manual_seed(0), **DOUBLE)
    samples = gaussian.mean + normals @ gaussian.factor()[0].T
    probabilities, _ = gaussian.class_probabilities()
    for k, shift in enumerate(step * torch.eye(3, **DOUBLE)):
        slope = ((samples + shift).amax(1) - (samples - shift).amax(1)).mean() / (2 * step)
        assert slope == pytest.approx(float(probabilities[0, k]), abs=3e-3)


def test_classes_of_mixtures_and_samples_are_averages():
    parts = [law(3, 1), law(3, 2)]
    mixed, bound = sr.Mixture.of(torch.tensor([[0.25, 0.75]], **DOUBLE), parts).class_probabilities()
    of_parts = [part.class_probabilities() for part in parts]
    assert torch.allclose(mixed, 0.25 * of_parts[0][0] + 0.75 * of_parts[1][0])
    assert torch.allclose(bound, 0.25 * of_parts[0][1] + 0.75 * of_parts[1][1])
    points = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [3.0, 0.0], [2.0, 2.0]]])
    assert sr.Empirical(points).class_probabilities()[0].tolist() == [[0.75, 0.25]]
    weighted = sr.Empirical(points, torch.tensor([[0.1, 0.6, 0.1, 0.2]]))
    assert weighted.class_probabilities()[0][0, 1] == pytest.approx(0.6)


def test_other_laws_have_no_known_classes():
    with pytest.raises(sr.UndefinedError, match="no known probabilities of classes"):
        sr.Cauchy(torch.zeros(1, 2), torch.ones(1, 2)).class_probabilities()


def test_a_batch_is_its_rows():
    rows = [law(3, seed) for seed in range(3)]
    together = sr.Gaussian(torch.cat([r.mean for r in rows]), torch.cat([r.covariance for r in rows]))
    probabilities, bounds = together.class_probabilities()
    for k, row in enumerate(rows):
        alone, bound = row.class_probabilities()
        assert torch.equal(probabilities[k], alone[0])
        assert bounds[k] == bound[0]
