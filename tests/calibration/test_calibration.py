"""No simulated error rate is significantly above its nominal level."""

import pandas as pd
import pytest
from scipy.stats import binomtest

from tests.calibration.__main__ import DATA, PAGE, page
from tests.calibration.rate import SIGNIFICANCE, Rate
from tests.calibration.simulations import SIMULATIONS, rates_of


@pytest.mark.slow
@pytest.mark.parametrize("simulation", SIMULATIONS, ids=lambda simulation: simulation.__name__)
def test_error_rates_are_at_most_nominal(simulation):
    rates = rates_of(simulation)
    assert rates
    assert [str(rate) for rate in rates if rate.too_large] == []


def test_the_documentation_summarises_the_stored_rates():
    assert PAGE.read_text(encoding="utf-8") == page(pd.read_csv(DATA))


@pytest.mark.parametrize(
    ("errors", "too_large"), [(0, False), (50, False), (72, False), (80, True), (1000, True)]
)
def test_a_rate_is_too_large_if_an_exact_binomial_test_rejects_its_nominal_level(errors, too_large):
    rate = Rate("error", "condition", 0.05, errors, 1000)
    p = binomtest(errors, 1000, 0.05, alternative="greater").pvalue
    assert rate.p == pytest.approx(p, rel=1e-9)
    assert rate.too_large == (p < SIGNIFICANCE) == too_large
    assert not Rate("error", "condition", None, errors, 1000).too_large
