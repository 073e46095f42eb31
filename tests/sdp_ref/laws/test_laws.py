import pytest
import torch

import sdp_ref as sr
from sdp_ref.laws import unchecked


def test_parts_of_a_gaussian():
    covariance = torch.tensor([[[4.0, 1.0], [1.0, 9.0]]])
    law = sr.Gaussian(torch.tensor([[1.0, 2.0]]), covariance)
    assert (law.batch, law.dimension, law.event_shape) == (1, 2, (2,))
    assert law.variance.tolist() == [[4.0, 9.0]]
    factor = law.factor()
    assert torch.allclose(factor @ factor.mT, covariance.double(), rtol=1e-14)


def test_semi_definite_and_zero_covariances_have_a_factor():
    for covariance in (torch.ones(1, 3, 3), torch.zeros(1, 3, 3)):
        factor = sr.Gaussian(torch.zeros(1, 3), covariance).factor()
        assert torch.allclose(factor @ factor.mT, covariance.double(), atol=1e-14)


def test_factor_clips_an_indefinite_covariance_of_a_rule():
    covariance = torch.tensor([[[1.0, 2.0], [2.0, 1.0]]], dtype=torch.float64)  # eigenvalues 3 and -1
    factor = unchecked(sr.Gaussian, torch.zeros(1, 2).double(), covariance).factor()
    expected = torch.tensor([[[1.5, 1.5], [1.5, 1.5]]], dtype=torch.float64)
    assert torch.allclose(factor @ factor.mT, expected, rtol=1e-14)


def test_iteration_and_indexing_keep_the_batch_dimension():
    law = sr.Cauchy(torch.arange(6.0).reshape(3, 2), torch.ones(3, 2))
    assert [part.location.tolist() for part in law] == [[[0, 1]], [[2, 3]], [[4, 5]]]
    assert law[-1].location.tolist() == [[4, 5]]
    stable = sr.SymmetricStable(torch.zeros(3, 2), torch.ones(3, 2), 1.5)
    assert stable[1].alpha == 1.5
    assert law[torch.tensor(1)].location.shape == (1, 2)
    with pytest.raises(IndexError):
        law[3]


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
    generator = torch.Generator().manual_seed(0)
    factor = torch.randn(64, 300, 5, generator=generator)
    sr.Gaussian(torch.zeros(64, 300), factor @ factor.mT)


def test_a_notebook_shows_means_with_standard_deviations_or_centres():
    gaussian = sr.DiagonalGaussian(torch.tensor([[1.0, -2.0]]), torch.tensor([[4.0, 0.25]]))
    assert "1 ± 2" in gaussian._repr_html_()
    assert "-2 ± 0.5" in gaussian._repr_html_()
    cauchy = sr.Cauchy(torch.full((9, 1), 3.0), torch.ones(9, 1))._repr_html_()
    assert cauchy.count("<td>3</td>") == 5
    assert "first 5 laws" in cauchy
