import math

import pandas as pd
import pytest

from sdp_bench.bench.studies.compute import SAMPLERS
from sdp_bench.reports.sections.compute import (
    EqualCompute,
    answer,
    best_inside,
    comparison,
    crossovers,
    factors,
    shares,
    verdicts,
)
from sdp_bench.reports.tables.frame import COLUMNS
from tests.reports.made_up import Results, checked

WIN, LOSS = 0.01, 0.3  # errors of a rule that takes 11 passes
LEVELS = ("0.01", "1", "10")


def frame(errors):
    """Measurements of two seeds of trained ReLU nets, given errors of `sdp` by depth and level."""
    nets = []
    for depth, errors_at_depth in errors.items():
        by_level = dict(zip(LEVELS, errors_at_depth, strict=True))
        objective = f"relu {depth}x16 trained"
        nets += [net({"sdp": by_level}, {"sdp": 11.0}, objective=objective, seed=seed) for seed in (0, 1)]
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
    wins, crossings = EqualCompute().build(Results(frame({1: (WIN, WIN, LOSS), 8: (LOSS,) * 3})))["figures"]
    texts = [text.get_text() for axes in crossings.drawing.axes for text in axes.texts]
    assert texts == ["1", "0"]
    assert wins.svg.startswith("<svg")


def test_without_measurements_there_is_no_section():
    assert EqualCompute().build(Results(pd.DataFrame())) is None
    assert EqualCompute().build(Results(frame({1: (WIN, WIN, WIN)}).assign(experiment="uci"))) is None


PLAIN = {16: 1 / 4, 256: 1 / 16, 4096: 1 / 64}


def net(errors, passes, *, objective="relu 2x16 trained", seed=0, oracle=1e-9, sobol=None, use="mean"):
    """Records of a net: errors of rules by level, their passes, and plain samples with error 1 / sqrt(k)."""
    rows = [("oracle", use, level, oracle) for level in next(iter(errors.values()))]
    rows += [(rule, use, level, error) for rule, own in errors.items() for level, error in own.items()]
    rows += [(rule, "operations", None, count) for rule, count in passes.items()]
    for sampler in SAMPLERS:
        curve = (sobol if sampler == "sobol" else None) or PLAIN
        for size, error in curve.items():
            name = f"{sampler}:samples={size}"
            rows += [(name, use, level, error) for level in next(iter(errors.values()))]
            rows.append((name, "operations", None, float(size)))
    frame = pd.DataFrame(rows, columns=["rule", "metric", "component", "value"])
    return frame.assign(objective=objective, seed=seed)


@pytest.mark.parametrize("error", [0.9, 0.2, 0.05, 0.001])
def test_plain_samples_need_the_inverse_square_of_the_error(error):
    (row,) = factors(net({"sdp": {"0.1": error}}, {"sdp": 11.0})).itertuples()
    assert row.needed == pytest.approx(max(1, error**-2), rel=1e-6)
    assert row.factor == pytest.approx(row.needed / 11)
    assert (row.depth, row.width, row.activation, row.training) == (2, 16, "relu", "trained")
    assert not row.bound


def test_the_sampler_with_fewest_passes_counts():
    sobol = {16: 0.1, 256: 0.01, 4096: 0.001}
    (row,) = factors(net({"sdp": {"0.1": 0.01}}, {"sdp": 4.0}, sobol=sobol)).itertuples()
    assert (row.sampler, row.needed, row.factor) == ("sobol", pytest.approx(256), pytest.approx(64))


def test_the_error_of_the_oracle_is_subtracted():
    measured = math.hypot(1 / 16, 0.03)
    records = net({"sdp": {"0.1": measured}}, {"sdp": 1.0}, oracle=0.03)
    (row,) = factors(records).itertuples()
    assert row.error == pytest.approx(1 / 16)


def test_an_error_below_the_oracles_is_a_bound_and_never_a_win_of_sampling():
    rows = [factors(net({"sdp": {"0.1": 0.001}}, {"sdp": passes}, oracle=0.04)) for passes in (1.0, 1e6)]
    assert [bool(row["bound"].iloc[0]) for row in rows] == [True, True]
    assert [verdicts(row).iloc[0] for row in rows] == ["inside", "unresolved"]


def controlled(records, error, jacobian=11.0):
    """The same records with another control variate: its error at all sizes, and passes of its Jacobian."""
    own = records["rule"].str.startswith("control_variate")
    counts = own & (records["metric"] == "operations")
    return records.assign(
        value=(records["value"] + jacobian).where(counts, records["value"].mask(own & ~counts, error))
    )


def test_a_control_variate_takes_its_jacobian_for_any_number_of_samples():
    records = controlled(net({"sdp": {"0.1": 0.04}}, {"sdp": 11.0}), 0.02)
    (row,) = factors(records).itertuples()
    assert (row.sampler, row.needed) == ("control_variate", pytest.approx(16 / 4 + 11))
    (row,) = factors(controlled(records, 1e-4, 0.0)).itertuples()
    assert row.needed == pytest.approx(1 + 11)


def test_a_sampler_may_need_one_sample_if_the_oracle_does_not_resolve_its_error():
    """Above 2 the factor is still a win, and below it neither side has won."""
    for passes, outcome in ((3.0, "inside"), (11.0, "unresolved"), (300.0, "unresolved")):
        records = controlled(net({"sdp": {"0.1": 0.045}}, {"sdp": passes}, oracle=0.02), 0.001)
        compared = factors(records)
        assert compared["needed"].tolist() == [pytest.approx(1 + 11)]
        assert verdicts(compared).tolist() == [outcome]


def test_an_oracle_too_small_for_the_limits_leaves_the_verdict_open():
    compared = factors(net({"sdp": {"0.1": 0.01}}, {"sdp": 11.0}, oracle=0.1))
    assert verdicts(compared).tolist() == ["unresolved"]
    compared = factors(net({"sdp": {"0.1": 0.3}}, {"sdp": 11.0}, oracle=0.1))
    assert verdicts(compared).tolist() == ["sampling"]


def test_the_last_measurement_of_a_net_counts():
    records = [net({"sdp": {"0.1": error}}, {"sdp": 11.0}) for error in (0.3, 0.02)]
    assert factors(pd.concat(records))["error"].tolist() == [pytest.approx(0.02)]


def test_a_rule_that_is_not_accurate_enough_loses_whatever_it_costs():
    compared = factors(net({"sdp": {"0.1": 0.3}}, {"sdp": 1.0}))
    assert compared["factor"].iloc[0] > 2
    assert verdicts(compared).tolist() == ["sampling"]


def test_ties_are_within_a_factor_of_two():
    for passes, outcome in ((399 * 2, "tied"), (401 * 2, "sampling"), (201, "tied"), (199, "inside")):
        compared = factors(net({"sdp": {"0.1": 0.05}}, {"sdp": float(passes)}))
        assert verdicts(compared).tolist() == [outcome]


def test_the_best_rule_is_the_one_with_the_largest_factor_among_accurate_ones():
    errors = {"sdp": {"0.1": 0.3}, "moment_matching": {"0.1": 0.01}, "third_cumulants": {"0.1": 0.005}}
    passes = {"sdp": 1.0, "moment_matching": 50.0, "third_cumulants": 1e6}
    best = best_inside(factors(net(errors, passes)))
    assert best["rule"].tolist() == ["moment_matching"]
    errors = {"sdp": {"0.1": 0.3}, "moment_matching": {"0.1": 0.2}}
    best = best_inside(factors(net(errors, {"sdp": 1.0, "moment_matching": 50.0})))
    assert best["rule"].tolist() == ["moment_matching"]  # none is accurate: the smallest error


def test_points_do_not_look_inside():
    compared = factors(
        net({"sdp": {"0.1": 0.04}, "unscented": {"0.1": 0.01}}, {"sdp": 11.0, "unscented": 9.0})
    )
    assert set(compared["rule"]) == {"sdp", "unscented"}
    assert best_inside(compared)["rule"].tolist() == ["sdp"]


def test_the_crossover_is_the_largest_level_with_a_win():
    levels = {"0.01": 0.01, "0.1": 0.02, "1": 0.3, "10": 0.3}
    best = best_inside(factors(net({"sdp": levels}, {"sdp": 11.0})))
    assert crossovers(best)["crossing"].tolist() == [0.1]
    best = best_inside(factors(net({"sdp": {"0.01": 0.3}}, {"sdp": 11.0})))
    assert crossovers(best)["crossing"].tolist() == [0.0]


def test_shares_count_settings_and_resample_nets():
    errors = [0.01, 0.01, 0.01, 0.3]
    frames = [net({"sdp": {"0.1": error}}, {"sdp": 11.0}, seed=seed) for seed, error in enumerate(errors)]
    (row,) = shares(factors(pd.concat(frames)), ["use"]).itertuples()
    assert (row.settings, row.nets, row.inside, row.sampling, row.accurate) == (4, 4, 0.75, 0.25, 0.75)
    assert 0 <= row.low < 0.75 < row.high <= 1


def test_a_certain_class_is_left_out():
    assert factors(net({"sdp": {"0.1": 0.0}}, {"sdp": 11.0}, oracle=0.0, use="class")).empty
