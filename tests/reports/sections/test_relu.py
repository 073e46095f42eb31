import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from sdp_bench.oracles.exact.stable import NORMAL
from sdp_bench.oracles.exact.theorem import check_theorem
from sdp_bench.reports.sections.relu.relu import (
    POINTS,
    RULES,
    Nearer,
    SingleReLU,
    nearer,
    wasserstein_over_mean,
)


@pytest.fixture(scope="module")
def figure():
    return wasserstein_over_mean()


def test_a_row_for_each_rule_and_mean(figure):
    assert list(figure.columns) == ["rule", "mean", "sigma", "w1"]
    assert figure["rule"].value_counts().to_dict() == dict.fromkeys(RULES, POINTS)
    assert (figure["sigma"] == 0.1).all()
    assert figure["mean"].min() == pytest.approx(-0.5)
    assert figure["mean"].max() == pytest.approx(0.5)
    assert 0.0 in set(figure["mean"])
    assert (figure["w1"] > 0).all()


def test_sdp_is_off_by_the_mean_of_what_relu_moves(figure):
    sdp = figure[figure["rule"] == "sdp"]
    r = np.abs(sdp["mean"] / 0.1)
    expected = 0.1 * (stats.norm.pdf(r) - r * stats.norm.sf(r))
    np.testing.assert_allclose(sdp["w1"], expected, atol=1e-11)


def test_marginal_rules_are_the_full_ones_in_one_dimension(figure):
    full = wasserstein_over_mean(rules=("sdp", "moment_matching"))
    np.testing.assert_allclose(full["w1"], figure["w1"], rtol=1e-9)


def test_the_unit_does_not_matter(figure):
    scaled = wasserstein_over_mean(figure["mean"].unique() * 50, sigma=5.0)
    np.testing.assert_allclose(scaled["w1"] / 50, figure["w1"], rtol=1e-6, atol=1e-11)


def test_moment_matching_is_nearer_only_about_zero():
    """The paper's claim: SDP has the smaller W1 except for means very near 0."""
    found = nearer()
    assert (found.rule, found.other, found.sigma) == ("marginal_moment_matching", "sdp", 0.1)
    ((low, high),) = found.intervals
    assert -0.05 < low < 0 < high < 0.05
    for end in (low, high):
        ours, theirs = wasserstein_over_mean([end])["w1"]
        assert ours == pytest.approx(theirs, rel=1e-5)
    rest = nearer("sdp", "marginal_moment_matching").intervals
    assert rest == ((-0.5, pytest.approx(low)), (pytest.approx(high), 0.5))


def test_no_rule_is_nearer_than_itself():
    assert nearer("sdp", "marginal_sdp").intervals == ()


def test_what_makes_no_figure_is_refused():
    with pytest.raises(ValueError, match="sigma must be positive"):
        wasserstein_over_mean(sigma=0.0)
    with pytest.raises(ValueError, match="mean must be finite"):
        wasserstein_over_mean([math.nan])
    with pytest.raises(ValueError, match="rule 'sdpp' not found; did you mean 'sdp'"):
        wasserstein_over_mean([0.0], rules=["sdpp"])


def test_what_was_found_is_said(figure):
    checks = tuple(check_theorem([NORMAL], [-0.5, 0.0, 0.5]))
    found = Nearer("marginal_moment_matching", "sdp", 0.1, ((-0.036, 0.0468),))
    w1, theorem = SingleReLU(figure, found, checks).sentences
    assert w1 == (
        "In W1, marginal moment matching is nearer than SDP only for −0.360σ < μ < 0.468σ (|μ| ≤ 5σ)."
    )
    assert theorem == (
        "In 2 of 3 cases the theorem’s law is the nearest in TV; in 1 (median / scale = 0) a point mass and "
        "a density tie; in none another law is nearer."
    )


def test_a_theorem_that_fails_is_said_to():
    (check,) = check_theorem([NORMAL], [0.5])
    wrong = dataclasses.replace(check, theorem=check.point)
    nowhere = Nearer("marginal_moment_matching", "sdp", 0.1, ())
    w1, theorem = SingleReLU(wasserstein_over_mean([0.0]), nowhere, (wrong,)).sentences
    assert w1 == "marginal moment matching is nowhere nearer in W1 than SDP (|μ| ≤ 5σ)."
    assert theorem.startswith("In 0 of 1 cases")
    assert theorem.endswith("in 1 another law is nearer.")
