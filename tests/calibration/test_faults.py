"""Every fault of docs/detected_faults.csv is made, and seen by what the table says."""

import pytest

from tests.calibration.faults import FAULTS, Gate, seen_by_kit, table
from tests.project import ROOT

GATE = Gate()


def by_name(fault):
    return fault.name


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=by_name)
def test_the_gate_sees_a_fault_where_the_table_says(fault):
    assert GATE.sees(fault) == fault.gate


@pytest.mark.slow
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.kit], ids=by_name)
def test_the_kit_sees_a_fault_where_the_table_says(fault):
    assert seen_by_kit(fault) == fault.kit


@pytest.mark.slow
def test_the_kit_is_blind_where_the_table_says():
    """Also to all of these faults at once."""
    assert not seen_by_kit(*(fault for fault in FAULTS if not fault.kit))


@pytest.mark.slow
def test_the_gate_sees_nothing_in_the_right_rule():
    assert not GATE.sees()


def test_the_documentation_has_the_table():
    assert table() == (ROOT / "docs/detected_faults.csv").read_text(encoding="utf-8")
