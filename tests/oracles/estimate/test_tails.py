import pytest
import torch

from sdp_bench.oracles.estimate.tails import heavy_tailed, require_mean, require_moments
from sdp_ref.laws import Cauchy, DiagonalGaussian, Gaussian, SymmetricStable

ONE = torch.ones(1, 2)
LAWS = [
    (Gaussian(ONE, torch.eye(2)[None]), 2.0),
    (DiagonalGaussian(ONE, ONE), 2.0),
    (SymmetricStable(ONE, ONE, 2), 2.0),
    (SymmetricStable(ONE, ONE, 1.5), 1.5),
    (SymmetricStable(ONE, ONE, 1.0), 1.0),
    (Cauchy(ONE, ONE), 1.0),
    (SymmetricStable(ONE, ONE, 0.5), 0.5),
]


@pytest.mark.parametrize(("law", "alpha"), LAWS)
def test_moments_exist_below_the_stability_index(law, alpha):
    """E abs(X)^p is finite for p < alpha alone, and for every p if alpha is 2."""
    assert heavy_tailed(law) == (alpha < 2)
    for require, order in ((require_mean, 1), (require_moments, 2)):
        if alpha == 2 or order < alpha:
            require(LAWS[0][0], law)
        else:
            with pytest.raises(ValueError, match=r"infinite.*quantile distances") as caught:
                require(LAWS[0][0], law)
            assert "\n" not in str(caught.value)


def test_the_refusal_names_the_law():
    with pytest.raises(ValueError, match="W1 is infinite: a Cauchy law has no mean"):
        require_mean(LAWS[5][0])
    with pytest.raises(ValueError, match=r"a stable law with alpha 0\.5 has no mean"):
        require_mean(LAWS[6][0])
    with pytest.raises(ValueError, match=r"a stable law with alpha 1\.5 has no variance"):
        require_moments(LAWS[3][0])
