import numpy as np
import pytest
from scipy import stats

from sdp_bench.reports.sections.relu.relu import SIGMA, nearer, wasserstein_over_mean


@pytest.fixture(scope="module")
def figure():
    return wasserstein_over_mean()


def test_sdp_is_off_by_the_mean_of_what_relu_moves(figure):
    sdp = figure[figure["rule"] == "sdp"]
    r = np.abs(sdp["mean"] / 0.1)
    expected = 0.1 * (stats.norm.pdf(r) - r * stats.norm.sf(r))
    np.testing.assert_allclose(sdp["w1"], expected, atol=1e-11)


def test_the_unit_does_not_matter(figure):
    scaled = wasserstein_over_mean(figure["mean"].unique() * 50, sigma=5.0)
    np.testing.assert_allclose(scaled["w1"] / 50, figure["w1"], rtol=1e-6, atol=1e-11)


def test_moment_matching_is_nearer_only_about_zero():
    """The paper's claim: SDP has the smaller W1 except for means very near 0."""
    ((low, high),) = nearer()
    assert -0.5 < low < 0 < high < 0.5
    for end in (low, high):
        ours, theirs = wasserstein_over_mean([end * SIGMA])["w1"]
        assert ours == pytest.approx(theirs, rel=1e-5)
    rest = nearer("sdp", "marginal_moment_matching")
    assert rest == [(-5, pytest.approx(low)), (pytest.approx(high), 5)]
