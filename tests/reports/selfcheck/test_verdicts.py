"""How often verdicts are wrong: made-up populations whose rates are known, and the committed ones."""

import numpy as np
import pytest

from sdp_bench.reports.replication.claims import CONVENTIONS
from sdp_bench.reports.selfcheck.simulations.verdicts import NETS, Population, populations, rates, rates_of
from sdp_bench.reports.statistics.verdicts import LEVEL
from sdp_bench.reports.tables.frame import checked
from tests.reports.replication.test_claims import suite

TIMES = 2000


def made_up(effects, threshold=0.0):
    """Populations of as many claims of one part each, all measured on the same nets."""
    return [Population("", "", f"claim {i}", 4, threshold, each) for i, each in enumerate(effects)]


def found(rows, nets, what, *, alone=False):
    condition = f"{nets} nets" + ", Student’s t alone" * alone
    return next(row for row in rows if (row.condition, row.what) == (condition, what))


def test_normal_effects_are_judged_wrongly_as_seldom_as_promised_by_both():
    effects = np.random.default_rng(1).normal(0, 1, (6, 200))
    rows = list(rates_of(made_up(effects), TIMES))
    for nets in NETS:
        for what in ("worst single part: false “above”", "any claim of a convention: false “holds”"):
            row, student = found(rows, nets, what), found(rows, nets, what, alone=True)
            assert row.interval[0] <= LEVEL
            assert row.rate <= student.rate <= 1.5 * LEVEL


def test_a_net_that_carries_everything_is_missed_as_often_as_it_is_not_drawn():
    effects = np.random.default_rng(2).normal(0, 1e-3, 30)
    effects[0] = -1
    rows = list(rates_of(made_up([effects, np.random.default_rng(3).normal(0, 1, 30)]), TIMES))
    for nets in NETS:
        row = found(rows, nets, "worst single part, also where one net dominates: false “above”")
        low, high = row.interval
        assert low <= (29 / 30) ** nets <= high
        assert found(rows, nets, "worst single part: false “above”").rate < 2 * LEVEL


def test_effects_without_spread_are_never_judged_wrongly_and_found_where_they_are_off():
    for row in rates_of(made_up(np.full((3, 30), 0.2), threshold=0.1), 200):
        if "alone" not in row.condition:
            # Ten nets that are alike are no evidence that the next will be.
            held = row.what.endswith("that were measured, holds") and row.condition == "30 nets"
            assert row.rate == held


def test_the_same_seed_gives_the_same_rates():
    known = made_up(np.random.default_rng(4).normal(0, 1, (2, 30)))
    same, again, other = (list(rates_of(known, 300, seed)) for seed in (5, 5, 6))
    assert same == again != other


def test_populations_are_the_effects_of_all_parts_of_what_was_measured():
    frame = suite(nets=4, depths=(4,))
    known = populations(frame)
    assert {each.recipe for each in known} == {"first recipe"}
    ones = [each for each in known if each.claim == "tv-mc"]
    assert len(ones) == 5 * len(CONVENTIONS)  # a part for each noise level
    assert all(
        len(each.effects) == 4 and each.effects.mean() == pytest.approx(0.1, abs=0.02) for each in ones
    )
    assert not any(each.claim == "w1-dvia-6" for each in known)
    assert populations(checked(frame.iloc[:0])) == ()


@pytest.mark.slow
def test_the_effects_of_the_committed_results_are_judged_as_promised():
    rows = list(rates(trials=400))
    promised = [row for row in rows if row.is_promise]
    assert len(promised) == 2 * len(NETS)
    assert all(row.kept for row in promised)
    held = "any claim of a convention: false “holds”"
    assert found(rows, 30, held).rate < 0.6 * found(rows, 30, held, alone=True).rate
