import itertools
import math

import pandas as pd
import pytest

from sdp_bench.bench.studies.compute import SAMPLERS, SIZES
from sdp_bench.reports.sections.compute import (
    BEST,
    MANY,
    ONE,
    OPERATIONS,
    EqualCompute,
    answer,
    best_inside,
    brier_factors,
    class_shares,
    comparison,
    crossovers,
    factors,
    sampler_gains,
    share_tables,
    shares,
    short_answer,
    verdicts,
    win_shares,
)
from sdp_bench.reports.style.labels import listed
from sdp_bench.reports.tables.frame import COLUMNS
from tests.reports.made_up import Results, checked

WIN, LOSS = 0.01, 0.3  # errors of a rule that takes 11 passes
LEVELS = ("0.01", "1", "10")
RULE = "moment_matching"


def frame(errors, training="trained"):
    """Measurements of two seeds of ReLU nets, given errors of moment matching by depth and level."""
    nets = []
    for depth, errors_at_depth in errors.items():
        by_level = dict(zip(LEVELS, errors_at_depth, strict=True))
        objective = f"relu {depth}x16 {training}"
        nets += [net({RULE: by_level}, {RULE: 11.0}, objective=objective, seed=seed) for seed in (0, 1)]
    return described(pd.concat(nets, ignore_index=True))


def described(records):
    records = records.assign(experiment="compute", recipe="on MNIST")
    return checked(records.reindex(columns=[*records, *(name for name in COLUMNS if name not in records)]))


def times(objective, by_rule):
    """Times of rules for one input and for a batch, and of samplers: 1 s and 1 ms for each sample."""
    rows = [(rule, str(count), time) for rule, pair in by_rule.items() for count, time in pair.items()]
    for sampler, size in itertools.product(SAMPLERS, SIZES):
        rows += [(f"{sampler}:samples={size}", count, 1 + 0.001 * size) for count in (ONE, MANY)]
    frame = pd.DataFrame(rows, columns=["rule", "component", "value"])
    return frame.assign(objective=objective, seed=0, metric="seconds")


def test_the_answer_names_a_rule_in_advance_and_separates_noise_training_and_kink_distance():
    trained = frame({1: (WIN, WIN, WIN), 8: (WIN, LOSS, LOSS)})
    untrained = frame({1: (WIN,) * 3, 8: (WIN,) * 3}, "random")
    compared = comparison(Results(pd.concat([trained, untrained], ignore_index=True)))
    text = answer(compared, win_shares(compared))
    assert text.startswith("On trained nets of 16 units a layer, moment matching, named in advance, is")
    assert "in these shares of settings at noise below one kink distance, at one and above: " in text
    assert "above: 100 % (100 to 100 %), 50 % (0 to 100 %) and 50 % (0 to 100 %) (operations)." in text
    assert "The kink distance is the median over hidden units" in text
    tables = share_tables(win_shares(comparison(Results(pd.concat([trained, untrained], ignore_index=True)))))
    assert tables["untrained"] == [(name, [["100 % (100 to 100 %)"] * 3]) for name in (RULE, BEST)]


def test_processor_time_leads_and_reverses_what_operations_say():
    """An error of 0.01 takes 10^4 samples: 909 times the passes of the rule, or 11 s."""
    measured = frame({1: (WIN, WIN, WIN)})
    timed = described(times("relu 1x16", {RULE: {ONE: 9.0, MANY: 0.1}}))
    compared = comparison(Results(pd.concat([measured, timed], ignore_index=True)))
    factor = compared.groupby("cost")["factor"].agg(["min", "max"])
    assert factor.loc[OPERATIONS].tolist() == pytest.approx([1e4 / 11] * 2)
    assert factor.loc[ONE].tolist() == pytest.approx([11 / 9] * 2)
    assert factor.loc[MANY].tolist() == pytest.approx([110] * 2)
    never, always = listed(["0 % (0 to 0 %)"] * 3), listed(["100 % (100 to 100 %)"] * 3)
    text = answer(compared, win_shares(compared))
    assert f"above: {never} (processor time, one input); {always} (processor time, batch of 8)" in text
    assert f"; {always} (operations). Intervals" in text
    brief = short_answer(win_shares(compared))
    assert brief.startswith("Nearly always, if measured by time: on trained nets, moment matching takes")
    assert "in 0 % of settings (by operations: 100 %), depending on the noise." in brief
    assert len(brief.split()) <= 40
    unresolved = win_shares(compared).assign(unresolved="49 %")  # sampling was not shown to win there
    assert short_answer(unresolved).startswith("Mostly, if measured by time: ")


def test_a_rule_without_a_time_for_a_batch_takes_that_of_one_input():
    records = pd.concat([net({RULE: {"0.1": WIN}}, {RULE: 1.0}), times("relu 2x16", {RULE: {ONE: 5.5}})])
    assert factors(records, MANY)["used"].tolist() == [5.5]


def test_settings_without_all_samplers_are_left_out():
    records = net({RULE: {"0.1": WIN}}, {RULE: 1.0})
    assert factors(records[~records["rule"].str.startswith("whitened:samples=16")]).empty


def test_all_costs_are_compared_on_timed_nets():
    measured = pd.concat([frame({1: (WIN,) * 3}), frame({2: (LOSS,) * 3})], ignore_index=True)
    timed = described(times("relu 1x16", {RULE: {ONE: 0.1, MANY: 0.1}}))
    compared = comparison(Results(pd.concat([measured, timed], ignore_index=True)))
    won = [["100 % (100 to 100 %)"] * 3] * 3
    assert share_tables(win_shares(compared))["trained"] == [(RULE, won), (BEST, won)]


def test_the_answer_leaves_out_widths_that_lack_depths():
    wide = {"objective": "relu 1x1024 trained"}
    measured = frame({1: (LOSS, LOSS, LOSS), 8: (LOSS, LOSS, LOSS)})
    won = frame({1: (WIN, WIN, WIN)}).assign(**wide)
    compared = comparison(Results(pd.concat([measured, won], ignore_index=True)))
    text = answer(compared, win_shares(compared))
    assert text.startswith("On trained nets of 16 units a layer")
    assert "above: 0 % (0 to 0 %), 0 % (0 to 0 %) and 0 % (0 to 0 %) (operations)" in text


def test_the_table_has_shares_factors_and_passes():
    context = EqualCompute().build(Results(frame({1: (WIN, WIN, LOSS)})))
    ((label, passes, cells),) = context["rows"]
    assert (label, passes, context["nets"]) == ("moment matching", (11.0, 11.0), 2)
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


def test_shares_count_settings_and_resample_architectures():
    errors = [0.01, 0.01, 0.01, 0.3]
    objectives = [f"relu {depth}x16 trained" for depth in (1, 2, 4, 8)]
    pairs = zip(objectives, errors, strict=True)
    frames = [net({"sdp": {"0.1": error}}, {"sdp": 11.0}, objective=name) for name, error in pairs]
    (row,) = shares(factors(pd.concat(frames)), ["use"]).itertuples()
    assert (row.settings, row.nets, row.inside, row.sampling, row.accurate) == (4, 4, 0.75, 0.25, 0.75)
    assert 0 <= row.low < 0.75 < row.high <= 1
    frames = [net({"sdp": {"0.1": error}}, {"sdp": 11.0}, seed=seed) for seed, error in enumerate(errors)]
    (row,) = shares(factors(pd.concat(frames)), ["use"]).itertuples()
    assert (row.low, row.inside, row.high) == (0.75, 0.75, 0.75)  # one architecture


def test_a_certain_class_is_left_out():
    assert factors(net({"sdp": {"0.1": 0.0}}, {"sdp": 11.0}, oracle=0.0, use="class")).empty


RECORD = ["objective", "seed", "rule", "metric", "component", "value"]


def brier(scores, passes, noise="1", size=2**17, chance=0.5):
    """Records of one net: scores of rules, and of an oracle with this 1 - |p|^2."""
    rows = [(rule, "brier", noise, score) for rule, score in scores.items()]
    rows += [("oracle", "brier", noise, chance / size), ("oracle", "operations", "", size)]
    rows += [(rule, "operations", "", count) for rule, count in passes.items()]
    frame = pd.DataFrame(rows, columns=["rule", "metric", "component", "value"])
    return frame.assign(objective="relu 4x16 trained", seed=0)


def test_the_brier_score_is_compared_with_that_of_as_many_plain_samples():
    """1 - |p|^2 = 1 / 2: a score of 0.001 takes 500 samples, 50 times the passes of the rule."""
    compared = brier_factors(brier({"sdp": 0.001, "dvia": 0.1}, {"sdp": 10.0, "dvia": 10.0}))
    by_rule = compared.set_index("rule")["factor"]
    assert by_rule["sdp"] == pytest.approx(50)
    assert by_rule["dvia"] == pytest.approx(0.5)
    assert class_shares(compared) == {"trained": {"sdp": "–, 100, –", "dvia": "–, 0, –"}}


def test_scores_below_that_of_the_oracle_are_bounds_and_certain_classes_are_left_out():
    compared = brier_factors(brier({"sdp": -1e-9}, {"sdp": 2.0}, size=1000))
    assert compared["factor"].tolist() == pytest.approx([500])
    assert brier_factors(brier({"sdp": 0.0}, {"sdp": 2.0}, chance=0.0)).empty
    assert class_shares(brier_factors(frame({1: (WIN, WIN, WIN)})[RECORD])) == {}


def test_nets_without_the_newest_sampler_are_compared_with_the_others():
    records = frame({1: (WIN, LOSS, LOSS), 4: (WIN, LOSS, LOSS)})[RECORD]
    newest = records["rule"].str.startswith("whitened_sobol")
    older = records[~(newest & records["objective"].str.startswith("relu 4x"))]
    compared = factors(older)
    assert set(compared["depth"]) == {1, 4}
    assert not (compared.loc[compared["depth"] == 4, "sampler"] == "whitened_sobol").any()
    assert set(factors(records)["factor"].round(6)) >= set(compared["factor"].round(6))


def test_the_gain_of_the_strongest_sampler_is_over_the_best_other_one():
    records = frame({1: (WIN, WIN, WIN)})
    newest = records["rule"].str.startswith("whitened_sobol") & records["metric"].isin(["mean"])
    records.loc[newest, "value"] /= 2  # a quarter of the samples
    gains = {use: (share, gain) for use, share, gain in sampler_gains(comparison(Results(records)))}
    assert gains["mean"] == ("100", "4.0")
    assert gains["class"][0] == "0"
