"""No simulated error rate is significantly above its nominal level."""

import pandas as pd
import pytest

from tests.calibration.__main__ import DATA, PAGE, page
from tests.calibration.simulations import SIMULATIONS, rates_of


@pytest.mark.slow
@pytest.mark.parametrize("simulation", SIMULATIONS, ids=lambda simulation: simulation.__name__)
def test_error_rates_are_at_most_nominal(simulation):
    rates = rates_of(simulation)
    assert rates
    assert [str(rate) for rate in rates if rate.too_large] == []


def test_the_documentation_summarises_the_stored_rates():
    assert PAGE.read_text(encoding="utf-8") == page(pd.read_csv(DATA))
