import dataclasses
import math

import pytest

from sdp_bench.oracles.exact.quadrature import Mixed, exact_total_variation
from sdp_bench.oracles.exact.stable import CAUCHY, NORMAL, stable
from sdp_bench.oracles.exact.theorem import RATIOS, Candidate, check_theorem


def agrees(check):
    """The verdict, the bounds of the proof, and a search that comes near the bound it cannot pass."""
    assert check.verdict == ("tie" if check.ratio == 0 else "holds")
    assert check.theorem.tv == pytest.approx(min(check.atom, 1 - check.atom), abs=1e-10)
    assert check.point.tv == pytest.approx(1 - check.atom, abs=1e-10)
    assert (check.point.location, check.point.scale) == (0.0, 0.0)
    assert check.atom - 1e-10 <= check.density.tv <= check.atom + 1e-8
    assert check.gap >= -1e-10


@pytest.mark.parametrize("family", [NORMAL, CAUCHY, stable(1.5)], ids=lambda family: family.name)
def test_no_law_is_nearer(family):
    for check in check_theorem([family], (-1.0, 0.0, 1.0)):
        agrees(check)


@pytest.mark.slow
def test_no_law_is_nearer_over_the_whole_grid():
    checks = list(check_theorem())
    assert len(checks) == 6 * len(RATIOS)
    for check in checks:
        agrees(check)


@pytest.mark.parametrize("family", [CAUCHY, stable(1.2)], ids=lambda family: family.name)
def test_the_search_finds_the_law_that_the_theorem_names(family):
    (check,) = check_theorem([family], [0.8])
    assert check.density.location == pytest.approx(0.8, abs=1e-6)
    assert check.density.scale == pytest.approx(1, abs=1e-6)
    assert check.apart < 1e-6


def test_a_wrong_theorem_would_fail():
    """Had it named moment matching's law, or the point mass for a positive mean, a nearer law is found."""
    (check,) = check_theorem([NORMAL], [0.5])
    truth = Mixed.location_scale(NORMAL, 0.5, 1.0).relu()
    for location, scale in ((0.6978, 0.7439), (0.0, 0.0), (0.5, 1.001)):
        tv = exact_total_variation(truth, Mixed.location_scale(NORMAL, location, scale))
        named = Candidate(location, scale, tv)
        assert dataclasses.replace(check, theorem=named).verdict == "fails"


def test_what_cannot_be_checked_is_refused():
    with pytest.raises(ValueError, match="tolerance must be at least 1e-10"):
        check_theorem(tolerance=1e-12)
    with pytest.raises(ValueError, match="ratios must be finite"):
        check_theorem(ratios=[0.0, math.nan])
