"""How sure the gate is of sampling rules, by simulation."""

import pytest

from sdp_bench.reports.selfcheck.simulations import gate


@pytest.mark.slow
def test_rules_that_draw_otherwise_raise_few_false_alarms_and_changes_of_them_are_seen():
    """At most 4 of 200, which certifies 5 %: P(X <= 4) = .026 if the rate is 5 %."""
    alarms, *seen = gate.rates(200)
    assert alarms.promised == (0, 0.05)
    assert alarms.hits <= 4
    assert len(seen) == 8
    assert [rate for rate in seen if not rate.kept] == []
    assert [rate.what for rate in seen if rate.promised[0] > 0.9]
