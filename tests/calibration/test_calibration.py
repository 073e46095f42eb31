"""No simulated error rate is significantly above its nominal level."""

import pytest

from tests.calibration.simulations import SIMULATIONS, rates_of


@pytest.mark.slow
@pytest.mark.parametrize("simulation", SIMULATIONS, ids=lambda simulation: simulation.__name__)
def test_error_rates_are_at_most_nominal(simulation):
    rates = rates_of(simulation)
    assert rates
    assert [str(rate) for rate in rates if rate.too_large] == []
