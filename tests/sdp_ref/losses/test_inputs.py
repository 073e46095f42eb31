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
    (lambda: CERTIFICATES.score(Z.double()), "the certificates torch.float32"),
]


@pytest.mark.parametrize(("call", "message"), CASES)
def test_bad_input_is_refused_in_one_line(call, message):
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
