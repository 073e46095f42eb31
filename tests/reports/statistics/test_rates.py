"""How often verdicts are wrong: made-up populations whose rates are known, and the committed ones."""

import subprocess
import sys

import numpy as np
import pytest

from sdp_bench.reports.sections.claims import rates as module
from sdp_bench.reports.sections.claims.claims import CONVENTIONS
from sdp_bench.reports.sections.claims.rates import NETS, Population, populations, rates
from sdp_bench.reports.statistics.verdicts import LEVEL
from sdp_bench.reports.tables.frame import checked
from tests.reports.sections.test_claims import suite

TIMES = 2000


def made_up(effects, threshold=0.0):
    """Populations of as many claims of one part each, all measured on the same nets."""
    return [Population("", "", f"claim {i}", 4, threshold, each) for i, each in enumerate(effects)]


def found(rows, nets, what):
    return next(row for row in rows if (row.nets, row.what) == (nets, what))


def test_normal_effects_are_judged_wrongly_as_seldom_as_promised_by_both():
    effects = np.random.default_rng(1).normal(0, 1, (6, 200))
    rows = rates(made_up(effects), TIMES)
    for nets in NETS:
        for what in ("a part, false “above”: worst", "any claim of a convention, false “holds”"):
            row = found(rows, nets, what)
            assert row.verdicts <= LEVEL + 4 * row.verdicts_error
            assert row.verdicts <= row.student <= 1.5 * LEVEL


def test_a_net_that_carries_everything_is_missed_as_often_as_it_is_not_drawn():
    effects = np.random.default_rng(2).normal(0, 1e-3, 30)
    effects[0] = -1
    rows = rates(made_up([effects, np.random.default_rng(3).normal(0, 1, 30)]), TIMES)
    for nets in NETS:
        row = found(rows, nets, "a part, false “above”: worst, if one net may dominate")
        assert row.verdicts == pytest.approx((29 / 30) ** nets, abs=4 * row.verdicts_error)
        assert found(rows, nets, "a part, false “above”: worst").verdicts < 2 * LEVEL


def test_effects_without_spread_are_never_judged_wrongly_and_found_where_they_are_off():
    rows = rates(made_up(np.full((3, 30), 0.2), threshold=0.1), 200)
    for row in rows:
        expected = 3 if row.what.endswith("hold") else 0
        assert (row.verdicts, row.verdicts_error) == (expected, 0)


def test_the_same_seed_gives_the_same_table():
    known = made_up(np.random.default_rng(4).normal(0, 1, (2, 30)))
    assert rates(known, 300, seed=5) == rates(known, 300, seed=5) != rates(known, 300, seed=6)


def test_populations_are_the_effects_of_all_parts_of_what_was_measured():
    frame = suite(nets=4, depths=(4,))
    known = populations(frame)
    assert {each.recipe for each in known} == {""}
    ones = [each for each in known if each.claim == "tv-mc"]
    assert len(ones) == 5 * len(CONVENTIONS)  # a part for each noise level
    assert all(
        len(each.effects) == 4 and each.effects.mean() == pytest.approx(0.1, abs=0.02) for each in ones
    )
    assert not any(each.claim == "w1-dvia-6" for each in known)
    assert populations(checked(frame.iloc[:0])) == ()


@pytest.mark.slow
def test_the_command_prints_the_short_table_of_the_committed_results():
    command = [sys.executable, "-m", module.__name__, "--short"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert lines[0].split() == ["nets", "Student’s", "t", "verdicts"]
    assert len(lines) == 1 + 11 * len(NETS)
    line = next(line for line in lines if "any claim of a convention, false “holds” " in line)
    student, own = (float(figure.split()[0]) for figure in line.split("  ")[-2:])
    assert own < 0.6 * student
