"""What losses refuse: one clear line each."""

import math

import pytest
import torch

import sdp_ref as sr
from sdp_ref import losses
from sdp_ref.laws import unchecked

Z = torch.zeros(2, 3)
LAW = sr.DiagonalGaussian(Z, Z + 1)
FULL = sr.Gaussian(Z, torch.eye(3).expand(2, 3, 3))
CAUCHY = sr.Cauchy(Z, Z + 1)
ONE_CLASS = sr.DiagonalGaussian(torch.zeros(2, 1), torch.ones(2, 1))
LABELS = torch.tensor([0, 2])
NAN = torch.tensor([[math.nan, 0.0, 0.0], [0.0, 0.0, 0.0]])
WRONG = unchecked(sr.Gaussian, Z, torch.ones(2, 3))
LOST = unchecked(sr.DiagonalGaussian, NAN, Z + 1)
CERTIFICATES = losses.OrthonormalCertificates.fit(torch.eye(3), 2)

CASES = {
    "one class": (lambda: losses.pairwise_loss(ONE_CLASS, LABELS), "at least 2 classes, got 1"),
    "one class, matrix": (lambda: losses.pairwise_probabilities(ONE_CLASS), "at least 2 classes, got 1"),
    "one class, scores": (lambda: losses.pairwise_scores(ONE_CLASS), "at least 2 classes, got 1"),
    "one class, Dirichlet": (lambda: losses.dirichlet(ONE_CLASS), "at least 2 classes, got 1"),
    "one class, entropy": (lambda: losses.entropy(torch.ones(2, 1)), "at least 2 classes, got 1"),
    "one class, softmax": (lambda: losses.softmax_entropy(torch.ones(2, 1)), "at least 2 classes, got 1"),
    "label too large": (
        lambda: losses.pairwise_loss(LAW, torch.tensor([0, 3])),
        r"labels must lie in 0\.\.2 for 3 classes, got 3",
    ),
    "label negative": (
        lambda: losses.dirichlet_nll(LAW, torch.tensor([-1, 0])),
        r"labels must lie in 0\.\.2 for 3 classes, got -1",
    ),
    "labels of wrong shape": (
        lambda: losses.pairwise_loss(LAW, torch.tensor([[0], [1]])),
        r"labels must have shape \(2,\), got \(2, 1\)",
    ),
    "one-hot labels": (
        lambda: losses.pairwise_loss(LAW, Z),
        r"class indices \(integers\), got torch.float32",
    ),
    "boolean labels": (lambda: losses.pairwise_loss(LAW, LABELS > 0), "integers"),
    "labels in a list": (lambda: losses.pairwise_loss(LAW, [0, 1]), "got list"),
    "covariance of wrong shape": (
        lambda: losses.pairwise_loss(WRONG, LABELS),
        r"covariance must have shape \(2, 3, 3\), got \(2, 3\)",
    ),
    "covariance of wrong shape, NLL": (
        lambda: losses.gaussian_nll(WRONG, Z),
        r"covariance must have shape \(2, 3, 3\), got \(2, 3\)",
    ),
    "law with NaN": (lambda: losses.pairwise_loss(LOST, LABELS), "the law's location must be finite"),
    "image-shaped scores": (
        lambda: losses.pairwise_loss(sr.DiagonalGaussian(torch.zeros(2, 3, 1), torch.ones(2, 3, 1)), LABELS),
        r"shape \(B, classes\), got \(2, 3, 1\)",
    ),
    "another family": (
        lambda: losses.pairwise_loss(sr.SymmetricStable(Z, Z + 1, 1.5), LABELS),
        "takes a law of Gaussian, DiagonalGaussian, Cauchy, got SymmetricStable",
    ),
    "no law": (lambda: losses.pairwise_loss(Z, LABELS), "got Tensor"),
    "Cauchy for a Gaussian": (lambda: losses.gaussian_nll(CAUCHY, Z), "got Cauchy"),
    "Gaussian for a Cauchy": (lambda: losses.cauchy_nll(LAW, Z), "got DiagonalGaussian"),
    "Dirichlet of a Cauchy": (lambda: losses.dirichlet(CAUCHY), "got Cauchy"),
    "half precision": (lambda: losses.pairwise_loss(LAW.to(torch.float16), LABELS), "float32 or float64"),
    "reduction": (lambda: losses.pairwise_loss(LAW, LABELS, "avg"), "'mean', 'sum' or 'none', got 'avg'"),
    "combine": (lambda: losses.pairwise_scores(LAW, "max"), "'mean', 'geometric' or 'minimum', got 'max'"),
    "targets with NaN": (lambda: losses.gaussian_nll(LAW, NAN), "targets must be finite"),
    "targets with NaN, full": (lambda: losses.gaussian_nll(FULL, NAN), "targets must be finite"),
    "infinite targets": (lambda: losses.cauchy_nll(CAUCHY, Z + math.inf), "targets must be finite"),
    "targets to broadcast": (
        lambda: losses.gaussian_nll(LAW, torch.zeros(2)),
        r"targets must have the mean's shape \(2, 3\), got \(2,\)",
    ),
    "integer targets": (lambda: losses.gaussian_nll(LAW, Z.long()), "float32 or float64 tensor"),
    "PNN targets to broadcast": (
        lambda: losses.pnn_nll(torch.zeros(4, 1), torch.zeros(4, 1), torch.zeros(4)),
        r"targets must have the mean's shape \(4, 1\), got \(4,\)",
    ),
    "PNN target NaN": (lambda: losses.pnn_nll(Z, Z, NAN), "targets must be finite"),
    "PNN floor": (lambda: losses.pnn_variance(Z, -1.0), "floor must be a number >= 0"),
    "PNN variance shape": (lambda: losses.sdp_pnn(FULL, torch.ones(2)), r"mean's shape \(2, 3\), got \(2,\)"),
    "PNN covariance of a diagonal law": (lambda: losses.sdp_pnn(LAW, torch.ones(2, 3, 3)), "mean's shape"),
    "PNN negative variance": (
        lambda: losses.sdp_pnn(FULL, Z - 1),
        "variance must be >= 0, smallest entry is -1",
    ),
    "PNN dtype": (lambda: losses.sdp_pnn(FULL, Z.double()), "make them one"),
    "level 1": (lambda: losses.pinball(Z, Z, 1.0), r"tau must lie in \(0, 1\), got 1.0"),
    "level NaN": (lambda: losses.sqr_input(Z, math.nan), r"tau must lie in \(0, 1\)"),
    "levels 0": (lambda: losses.pinball(Z, Z, Z), r"tau must lie in \(0, 1\)"),
    "levels of wrong shape": (lambda: losses.sqr_input(Z, torch.full((3,), 0.5)), "tau must have shape"),
    "pinball to broadcast": (lambda: losses.pinball(Z, torch.zeros(2), 0.5), "the prediction's shape"),
    "SQR features": (lambda: losses.sqr_input(torch.zeros(3), 0.5), r"x must have shape \(B, d\)"),
    "logits for probabilities": (lambda: losses.entropy(Z), "sum to 1 in every row, one sums to 0"),
    "negative probability": (
        lambda: losses.entropy(torch.tensor([[1.5, -0.5]])),
        "probabilities must be >= 0, smallest is -0.5",
    ),
    "NaN logits": (lambda: losses.softmax_entropy(NAN), "logits must be finite"),
    "Dirichlet constant": (lambda: losses.dirichlet(LAW, -1.0), "offset must be a number >= 0, got -1.0"),
    "Dirichlet constants": (
        lambda: losses.dirichlet(LAW, 1.0, torch.ones(2)),
        "slope must be one number >= 0",
    ),
    "Dirichlet smoothing": (
        lambda: losses.dirichlet_nll(LAW, LABELS, smoothing=0.0),
        "smoothing must lie in",
    ),
    "concentrations of 0": (lambda: losses.dirichlet_probabilities(Z), "positive sum in every row"),
    "concentrations NaN": (lambda: losses.dirichlet_probabilities(NAN), "concentrations must be >= 0"),
    "too many certificates": (
        lambda: losses.OrthonormalCertificates.fit(torch.eye(3), 4),
        r"count must be an integer in 1\.\.3, got 4",
    ),
    "features of wrong shape": (
        lambda: losses.OrthonormalCertificates.fit(torch.zeros(3), 1),
        r"features must have shape \(N, d\)",
    ),
    "features with NaN": (lambda: losses.OrthonormalCertificates.fit(NAN, 1), "features must be finite"),
    "penalty 0": (lambda: losses.OrthonormalCertificates.fit(Z, 1, penalty=0.0), "penalty must be positive"),
    "scored features": (lambda: CERTIFICATES.score(torch.zeros(2, 4)), r"features must have shape \(B, 3\)"),
    "scored dtype": (lambda: CERTIFICATES.score(Z.double()), "the certificates torch.float32"),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_refused_in_one_line(name):
    call, message = CASES[name]
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_law_that_was_built_checks_its_covariance_itself():
    with pytest.raises(ValueError, match=r"covariance must have shape \(2, 3, 3\)"):
        sr.Gaussian(Z, torch.eye(3))
