import math

import numpy as np
import pytest
import torch

from sdp_bench import oracles
from sdp_bench.oracles import Estimate, Ratio
from sdp_bench.oracles.estimate.tails import heavy_tailed, require_mean, require_moments
from sdp_ref.laws import Cauchy, DiagonalGaussian, Gaussian, SymmetricStable


def test_noise_is_taken_off_in_squares():
    assert Estimate(5.0, 3.0, 3.5, 0.1).corrected == pytest.approx(4.0)
    assert Estimate(2.0, 3.0, 3.5, 0.1).corrected == 0.0
    assert Estimate(math.inf, 3.0, 3.5, 0.0).corrected == math.inf


@pytest.mark.parametrize(("value", "expected"), [(0.9, True), (1.2, True), (1.21, False)])
def test_a_distance_up_to_the_95_percent_point_is_indistinguishable(value, expected):
    assert Estimate(value, 1.0, 1.2, 0.1).indistinguishable is expected


@pytest.mark.parametrize(("value", "expected"), [(0.02, False), (0.89, False), (0.95, True), (1.2, False)])
def test_a_ratio_is_wrong_on_either_side_of_one(value, expected):
    ratio = Ratio(value, 1.0, 1.1, 0.05)
    assert ratio.indistinguishable is expected
    assert ratio.corrected == value


REAL = np.random.default_rng(0).standard_normal((60, 2))


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (1j * REAL, "complex"),
        (torch.from_numpy(REAL + 0j), "complex"),
        (np.ma.masked_greater(REAL, 1), "masked"),
    ],
)
def test_complex_and_masked_samples_are_refused(bad, message, place):
    pair = [REAL, REAL]
    pair[place] = bad
    with pytest.raises(ValueError, match=message):
        oracles.wasserstein(*pair, 60)
    with pytest.raises(ValueError, match=message):
        oracles.EqualMassTree.from_samples(REAL, 4).counts(bad)


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
