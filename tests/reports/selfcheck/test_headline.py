"""Known errors, and the page of the headline's floor and power."""

import numpy as np
import pytest
from scipy import stats

from sdp_bench.reports.selfcheck.simulations import headline

ERRORS = [
    headline.location(0.25),
    headline.scale(1.6),
    headline.scale(0.5),
    headline.scale(1.3, axes=3),
    headline.mixture(0.8),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.what)
def test_the_exact_value_is_that_of_fine_cells(error):
    """By radius or along the line, in which these differ and nowhere else."""
    rng = np.random.default_rng(1)
    z = error.wrong(rng.standard_normal((error.axes, 200_000)))
    mass = stats.chi2.cdf(np.square(z).sum(0), error.axes) if error.axes > 1 else stats.norm.cdf(z[0])
    shares = np.histogram(mass, bins=400, range=(0, 1))[0] / len(mass)
    assert np.abs(shares - 1 / 400).sum() / 2 == pytest.approx(error.exact, abs=0.01)


def test_a_turned_plane_keeps_areas_and_a_round_one_all():
    assert headline.rotation(30, ratio=1, points=1000).exact == pytest.approx(0, abs=1e-12)
    assert 0 < headline.rotation(2).exact < headline.rotation(5).exact < headline.rotation(45).exact < 1


def test_rates_are_of_floors_and_power(monkeypatch):
    monkeypatch.setattr(headline, "DIMENSIONS", (1, 5))
    rates = list(headline.rates(trials=4))
    assert [rate.part for rate in rates] == ["floors", *["power"] * 3, "floors", *["power"] * 4]
    assert all(rate.kept and rate.trials == 4 for rate in rates)
    assert all(rate.rate == 1 for rate in rates if rate.part == "power")
    assert {rate.condition for rate in rates} == {"1 outputs, 10,000 samples", "5 outputs, 10,000 samples"}
