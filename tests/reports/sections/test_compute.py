import pandas as pd
import pytest

from sdp_bench.reports.sections.compute import EqualCompute, answer, best_inside, comparison
from sdp_bench.reports.tables.frame import COLUMNS
from tests.reports.made_up import Results, checked
from tests.reports.statistics.test_equal_compute import net

WIN, LOSS = 0.01, 0.3  # errors of a rule that takes 11 passes
LEVELS = ("0.01", "1", "10")


def frame(errors):
    """Measurements of two seeds of trained ReLU nets, given errors of `sdp` by depth and level."""
    nets = [
        net(
            {"sdp": dict(zip(LEVELS, own, strict=True))},
            {"sdp": 11.0},
            objective=f"relu {depth}x16 trained",
            seed=k,
        )
        for depth, own in errors.items()
        for k in range(2)
    ]
    found = pd.concat(nets, ignore_index=True).assign(experiment="compute", recipe="on MNIST")
    return checked(found.reindex(columns=[*found, *(name for name in COLUMNS if name not in found)]))


def test_the_answer_tells_small_from_large_noise_and_shallow_nets_from_deep_ones():
    measured = frame({1: (WIN, WIN, WIN), 8: (WIN, LOSS, LOSS)})
    said = answer(best_inside(comparison(Results(measured))))
    assert (
        "in 100 % (100 to 100 %) of settings at noise below one kink distance, 50 % (0 to 100 %) at one"
        in said
    )
    assert "the share is 100 % (100 to 100 %) for means and standard deviations of nets with one" in said
    assert said.endswith("and 0 % (0 to 0 %) otherwise.")


def test_shares_without_limits_count_rules_that_are_not_accurate_enough():
    """At an error of 0.3, plain samples need 11 passes, against 1."""
    measured = frame({8: (WIN, LOSS, LOSS)})
    measured.loc[(measured["rule"] == "sdp") & (measured["metric"] == "operations"), "value"] = 1.0
    context = EqualCompute().build(Results(measured))
    assert "0 % (0 to 0 %) above" in context["answer"]
    assert "100 % (100 to 100 %) above" in context["without_limits"]


def test_the_answer_leaves_out_widths_that_lack_depths():
    wide = {"objective": "relu 1x1024 trained"}
    measured = frame({1: (LOSS, LOSS, LOSS), 8: (LOSS, LOSS, LOSS)})
    won = frame({1: (WIN, WIN, WIN)}).assign(**wide)
    said = answer(best_inside(comparison(Results(pd.concat([measured, won], ignore_index=True)))))
    assert said.startswith("On nets of 16 units a layer")
    context = EqualCompute().build(Results(pd.concat([measured, won], ignore_index=True)))
    assert "0 % (0 to 0 %) of settings at noise below" in context["without_limits"]
    assert "in 0 % (0 to 0 %) of settings at noise below" in said


def test_the_table_has_shares_factors_and_passes():
    context = EqualCompute().build(Results(frame({1: (WIN, WIN, LOSS)})))
    ((label, passes, cells),) = context["rows"]
    assert (label, passes, context["nets"]) == ("SDP", (11.0, 11.0), 2)
    mean = cells[0]
    assert (mean.settings, mean.inside, mean.accurate) == (6, pytest.approx(2 / 3), pytest.approx(2 / 3))
    assert mean.factor == pytest.approx(WIN**-2 / 11)
    assert cells[1:] == [None] * 4


def test_the_map_has_the_largest_level_that_is_won():
    wins, crossings = EqualCompute().build(Results(frame({1: (WIN, WIN, LOSS), 8: (LOSS, LOSS, LOSS)})))[
        "figures"
    ]
    texts = [text.get_text() for axes in crossings.drawing.axes for text in axes.texts]
    assert texts == ["1", "0"]
    assert wins.svg.startswith("<svg")


def test_without_measurements_there_is_no_section():
    assert EqualCompute().build(Results(pd.DataFrame())) is None
    assert EqualCompute().build(Results(frame({1: (WIN, WIN, WIN)}).assign(experiment="uci"))) is None
