import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from sdp_bench.bench.experiments import experiment
from sdp_bench.bench.metrics import metric
from sdp_bench.reports.replication.claims import CONVENTIONS, quantity
from sdp_bench.reports.statement import PUBLISHED, REGULAR, judged
from sdp_bench.reports.statistics.verdicts import LEVEL, Outcome, Verdict, sign_tests
from tests.reports.made_up import Results, checked
from tests.reports.replication.helpers import MC, TABLES, TV_SIGMAS, claims_frame


@pytest.fixture(scope="module")
def true():
    return claims_frame()


FIRST = "SGD 0.01"
OWN = next(iter(CONVENTIONS.values()))


def judge(frame, *keys):
    """Statements on the simulation tables with their answers, by key: all, or those that are asked for."""
    chosen = tuple(one for one in TABLES.statements if one.key in keys or not keys)
    (found,) = judged([replace(TABLES, statements=chosen)], Results(checked(frame)))
    return {one.key: one for one in found.statements}


def answers(frame, *keys):
    return {key: one.answer for key, one in judge(frame, *keys).items()}


@pytest.fixture(scope="module")
def of_true(true):
    """All statements on the frame for which they are true."""
    return judge(true)


def ruling(answer, *convention):
    (found,) = (one for one in answer.trials if one.convention == convention)
    return found


def effect(answer, place, *convention):
    return ruling(answer, *convention).effects[place]


def where(frame, **wanted):
    chosen = pd.Series(True, frame.index)
    for name, value in wanted.items():
        chosen &= frame[name] == value
    return chosen


def shifted(frame, by, **wanted):
    """The frame with `by` added to the chosen values."""
    return frame.assign(value=frame["value"].where(~where(frame, **wanted), frame["value"] + by))


def test_every_claim_is_supported_where_it_is_true(of_true):
    assert list(of_true) == [one.key for one in TABLES.statements]
    for key, one in of_true.items():
        assert one.answer.verdicts.outcome is Outcome.SUPPORTED
        columns = CONVENTIONS if key.startswith("tv") or key == "improves" else ("",)
        assert [each.convention for each in one.answer.trials] == [
            (column, FIRST) if column else (FIRST,) for column in columns
        ]
        assert all(len(each.values) == 30 for r in one.answer.trials for each in r.effects)
        assert one.answer.why == ""


@pytest.mark.parametrize("name", ["iris-claims", "iris-claims-recipe", "iris-claims-features"])
def test_the_experiments_measure_every_convention(name):
    measured = {quantity(metric(text).spec) for text in experiment(name).metrics}
    assert set(CONVENTIONS) <= measured


def test_verdicts_follow_from_the_p_values_shown(true, of_true):
    shift = judge(shifted(true, 0.1, rule="sdp", sigma=10.0), "tv-mc", "tv-dvia", "w1-dvia-4", "sd-sdp")
    outcomes = set()
    for statement in (*of_true.values(), *shift.values()):
        for trial in statement.answer.trials:
            outcomes.add(trial.verdict)
            assert (trial.p[0] <= LEVEL) == (trial.verdict is Verdict.SUPPORTED)
            assert (trial.p[1] <= LEVEL) == (trial.verdict is Verdict.REFUTED)
            assert trial.p[0] >= trial.uncorrected[0]
            assert trial.p[1] >= trial.uncorrected[1]
            assert bool(trial.reason) == (trial.verdict is Verdict.UNDECIDED)
    assert len(outcomes) > 1


def test_without_the_variant_of_dvia_statements_are_judged_once(true):
    statement = judge(true[true["rule"] != REGULAR], "tv-dvia")["tv-dvia"]
    assert statement.answer.verdicts.outcome is Outcome.SUPPORTED
    assert statement.regular is None


def test_the_order_of_rows_does_not_matter(true):
    keys = ("tv-mc", "w1-dvia-4")
    mixed = answers(true.sample(frac=1, random_state=3), *keys)
    for key, answer in answers(true, *keys).items():
        assert answer.verdicts == mixed[key].verdicts
        for trial, other in zip(answer.trials, mixed[key].trials, strict=True):
            assert trial.p == pytest.approx(other.p, rel=1e-6, abs=0)


def test_p_values_are_corrected_over_all_claims_of_a_convention(true):
    """Three claims are measured: Holm's factors are 3, 2 and 1, in the order of their p-values."""
    few = true[where(true, depth=4, metric="std_ratio") & (true["sigma"] >= 10)]
    trials = {key: answer.trials[0] for key, answer in answers(few).items() if answer.trials[0].effects}
    assert set(trials) == {"sd-sdp", "sd-dvia", "sd-opposite"}
    raw = {key: max(effect.p[0] for effect in trial.effects) for key, trial in trials.items()}
    least = 0.0
    for key, factor in zip(sorted(raw, key=raw.get), (3, 2, 1), strict=True):
        least = max(least, min(1, factor * raw[key]))
        assert trials[key].p[0] == pytest.approx(least, rel=1e-9, abs=0)


def test_the_convention_with_the_largest_violation_is_shown(true):
    bad = shifted(shifted(true, 0.1, rule="sdp", depth=4), 0.1, rule="sdp", depth=4, metric="tv_headline")
    assert answers(bad, "tv-dvia")["tv-dvia"].finding.startswith(f"headline / {FIRST}")


def test_statements_about_dvia_are_judged_against_both_versions(true):
    worse = shifted(true, -0.1, rule=PUBLISHED, metric="tv_headline", depth=4)
    found = judge(worse, "tv-dvia-better", "tv-mc")
    one = found["tv-dvia-better"]
    assert ruling(one.answer, "headline", FIRST).verdict is Verdict.REFUTED
    assert one.regular.verdicts.outcome is Outcome.SUPPORTED
    assert "DVIA*" in one.regular.finding
    rows = [(version, trial) for version, trial in one.rows if trial.convention[1] == FIRST]
    assert [version for version, _ in rows] == ["DVIA"] * 5 + ["DVIA*"] * 5
    assert all(len(each.effects) == len(TV_SIGMAS) for _, each in rows)
    assert found["tv-mc"].regular is None


def test_effects_are_medians_of_net_means(true):
    found = effect(answers(true, "tv-mc")["tv-mc"], 2, OWN.convention, FIRST)
    chosen = true[where(true, metric_spec=OWN.spec, sigma=10.0, depth=4)]
    nets = chosen.pivot_table("value", "net", "rule", aggfunc="mean", observed=True)
    effects = nets[MC] - nets["sdp"]
    tests = sign_tests(effects)
    ends = float(tests.low), float(tests.high)
    assert found.range == pytest.approx((np.median(effects), *ends), rel=1e-12)


def test_as_good_as_allows_the_margin_and_better_does_not():
    level = claims_frame(60)  # the margin is half of what the rules differ by from net to net
    for sigma in TV_SIGMAS:
        level = shifted(level, -0.06, rule="dvia", sigma=sigma)
    found = answers(level, "tv-dvia", "tv-dvia-better")
    assert found["tv-dvia"].verdicts.outcome is Outcome.SUPPORTED
    assert found["tv-dvia-better"].verdicts.outcome is Outcome.UNDECIDED


def test_recipes_are_conventions_and_unmeasured_ones_take_nothing_away(true):
    other = claims_frame(30, "iris-claims-recipe", depths=(4,), seed=1, ratio=lambda rule, sigma: 0.9)
    found = judge(pd.concat([true, other], ignore_index=True), "sd-sdp", "tv-mc", "w1-dvia-6")
    assert found["sd-sdp"].answer.verdicts.words == "refuted in 1 of 2 (Adam 0.001); supported in SGD 0.01"
    assert found["tv-mc"].answer.verdicts.words == "supported in all 10"
    assert {trial.convention[-1] for _, trial in found["tv-mc"].rows} == {FIRST, "Adam 0.001"}
    assert found["w1-dvia-6"].answer.verdicts.words == "supported; 1 not measured"


def test_a_convention_is_judged_by_its_own_variant_of_the_metric_alone(true):
    answer = answers(true[true["metric_spec"] != OWN.spec], "tv-mc")["tv-mc"]
    assert ruling(answer, OWN.convention, FIRST).verdict is Verdict.NOT_MEASURED
    assert answer.verdicts.words == "supported in all 4; 1 not measured"
    worse = answers(shifted(true, 0.2, rule="sdp", metric_spec=OWN.spec), "tv-mc")["tv-mc"]
    assert worse.verdicts.words == "refuted in 1 of 5 (joint extremes / SGD 0.01); supported in 4"


def test_other_experiments_and_activations_do_not_count(true):
    elsewhere = [true.assign(experiment="iris-tv"), true.assign(activation="tanh")]
    found = answers(pd.concat(elsewhere, ignore_index=True))
    assert {each.verdicts.outcome for each in found.values()} == {Outcome.NOT_MEASURED}
    both = answers(pd.concat([true, elsewhere[0]], ignore_index=True), "tv-mc")
    assert both["tv-mc"].finding == answers(true, "tv-mc")["tv-mc"].finding


def test_what_is_missing_is_named(true):
    gone = where(true, rule="dvia", sigma=10.0) | where(true, rule="dvia", sigma=100.0)
    found = judge(true[~gone], "tv-dvia", "sd-small", "tv-mc")
    assert found["tv-dvia"].answer.verdicts.outcome is Outcome.NOT_MEASURED
    assert found["tv-dvia"].answer.finding == "joint extremes / SGD 0.01: lacks DVIA at σ = 10, 100"
    assert found["sd-small"].answer.finding == "lacks DVIA at σ = 10, 100"
    assert found["tv-dvia"].regular.verdicts.outcome is Outcome.SUPPORTED
    assert found["tv-mc"].answer.verdicts.outcome is Outcome.SUPPORTED


def test_rules_that_were_never_measured_on_one_input_are_both_named(true):
    is_even = true["input"] % 2 == 0
    gone = (where(true, rule="sdp") & is_even) | (where(true, rule="dvia") & ~is_even)
    found = answers(true[~gone], "w1-dvia-4")["w1-dvia-4"].finding
    assert found == "lacks SDP at σ = 0.01, 0.1, 1; DVIA at σ = 0.01, 0.1, 1"


def test_an_empty_frame_gives_no_verdict():
    outcomes = {answer.verdicts.outcome for answer in answers(pd.DataFrame()).values()}
    assert outcomes == {Outcome.NOT_MEASURED}


def test_a_measurement_that_failed_leaves_out_its_pair_only(true):
    row = true.index[where(true, metric="w1", rule="dvia", sigma=0.1, depth=4, net="iris-claims 4 07")]
    holes = true.assign(value=true["value"].where(~true.index.isin(row[:1])))  # one of two inputs
    assert len(effect(answers(holes, "w1-dvia-4")["w1-dvia-4"], 1, FIRST).values) == 30
    holes = true.assign(value=true["value"].where(~true.index.isin(row)))
    found = effect(answers(holes, "w1-dvia-4")["w1-dvia-4"], 1, FIRST)
    pair = effect(answers(true[true["net"] != "iris-claims 4 07"], "w1-dvia-4")["w1-dvia-4"], 1, FIRST)
    assert found.values == pytest.approx(pair.values)


@pytest.mark.parametrize(("value", "below"), [(0.0, 30), (math.inf, 29)])
def test_an_infinite_effect_of_one_net_counts_as_one_on_its_side(true, value, below):
    row = true.index[where(true, metric="std_ratio", rule="dvia", sigma=100.0, depth=4)][:4]
    broken = true.assign(value=true["value"].where(~true.index.isin(row), value))
    answer = answers(broken, "sd-dvia")["sd-dvia"]
    assert answer.verdicts.outcome is Outcome.SUPPORTED
    (one,) = (each for each in answer.trials[0].effects if each.sigma == "100")
    assert one.sides == (below, 30 - below)
    assert one.range[0] == pytest.approx(1 / 2.6, rel=0.02)


def test_infinite_distances_and_opposite_infinities_raise_no_warning(true):
    broken = true.assign(value=true["value"].where(true["metric"] != "w1", math.inf))
    ratios = broken.index[broken["metric"] == "std_ratio"]
    broken.loc[ratios[::2], "value"] = 0.0
    broken.loc[ratios[1::2], "value"] = math.inf
    for answer in answers(broken, "w1-dvia-4", "sd-opposite").values():
        assert answer.verdicts.outcome is Outcome.UNDECIDED


def test_distances_below_their_floor_are_equal(true):
    # Both W1 at the floor in all nets: corrected 0 and 0, no difference, which is within the margin.
    level = true.assign(value=true["value"].where(true["metric"] != "w1", true["floor"] * 0.9))
    found = answers(level, "w1-dvia-4", "w1-marginal-4")
    one = effect(found["w1-dvia-4"], 0, FIRST)
    assert (one.values == 0).all()
    assert one.p[0] == 0.5**30
    assert found["w1-dvia-4"].verdicts.outcome is Outcome.SUPPORTED
    assert "W1 of SDP is 1.00 (1.00 to 1.00) times that of DVIA" in found["w1-dvia-4"].finding
    # "Smaller", on the other hand, is neither shown nor refuted.
    assert found["w1-marginal-4"].verdicts.outcome is Outcome.UNDECIDED


def test_floors_are_taken_out_of_distances(true):
    one = effect(answers(true, "w1-marginal-4")["w1-marginal-4"], 0, FIRST)
    assert one.range[0] == pytest.approx(4 / 20, rel=0.01)
    raw = effect(answers(true.assign(floor=0.0), "w1-marginal-4")["w1-marginal-4"], 0, FIRST)
    assert raw.range[1] > 1.05 * one.range[2]  # the floor adds more to the smaller distance


def test_a_measurement_that_is_there_twice_is_refused(true):
    twice = pd.concat([true, true[where(true, metric="w1", depth=4)].iloc[:1]], ignore_index=True)
    with pytest.raises(ValueError, match="iris-claims-w1 has w1 of one prediction twice"):
        answers(twice, "w1-dvia-4")
