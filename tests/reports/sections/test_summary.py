import pytest

from sdp_bench.reports.sections.summary import sentences
from sdp_bench.reports.tables import tables
from sdp_bench.reports.tables.frame import checked
from sdp_bench.reports.tables.tables import differences, orders
from tests.reports.made_up import TRAITS
from tests.reports.tables.test_tables import measured


def test_gap_beyond_both_spreads_is_a_difference():
    # The paper: 0.6808 +- 0.0318.
    for values, differs in (([0.28, 0.36], False), ([0.60, 0.62], True)):
        every = list(tables.tables(checked(measured({"sdp": values}, "tv_paper", 1000.0)), TRAITS))
        (difference,) = differences(every)
        assert difference.gap == pytest.approx(1 - sum(values) / 2 - 0.6808)
        assert difference.differs is differs


def test_other_order_than_in_the_paper_is_found():
    # The paper has SDP before DVIA at sigma = 1000 (0.6808, 0.5318).
    values = {"sdp": [0.6, 0.62], "dvia": [0.4, 0.42], "moment_matching": [0.1, 0.1]}
    (order,) = orders(list(tables.tables(checked(measured(values, "tv_paper", 1000.0)), TRAITS)))
    assert (order.paper.cell.rule, order.run.cell.rule, order.agrees) == ("sdp", "dvia", False)


def test_order_in_w1_is_that_of_the_four_layer_table():
    # Misprinted main-text table: SDP best at 0.1; the 4-ReLU table: DVIA.
    values = {"sdp": [0.3, 0.3], "dvia": [0.2, 0.2]}
    (order,) = orders(list(tables.tables(checked(measured(values, "w1", 0.1)), TRAITS)))
    assert order.paper.cell.rule == "dvia"
    assert order.agrees


def test_sentences_count_what_the_tables_hold():
    values = {"sdp": [0.20, 0.21], "dvia": [0.10, 0.11], "monte_carlo:samples=1000": [0.05, 0.05]}
    frame = checked(measured(values))
    said = " ".join(sentences(list(tables.tables(frame, TRAITS)), TRAITS))
    assert "In 1 setting (kind of net and noise level)" in said
    assert "is DVIA in all of them" in said
    assert "Sampling is more accurate in 1 setting (MC estimate k=1000 in 1)" in said
    assert "at most 0.095 below" in said
