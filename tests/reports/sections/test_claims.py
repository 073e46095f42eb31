"""Verdicts on the paper's claims, from made-up suites whose truth is known."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdp_bench.bench.experiments import experiment
from sdp_bench.bench.metrics import metric
from sdp_bench.reports.sections.claims import Claims, claims, judging
from sdp_bench.reports.sections.claims.claims import CLAIMS, CONVENTIONS, NOT_JUDGED
from sdp_bench.reports.sections.claims.judging import Source, any_measured, judge
from sdp_bench.reports.sections.claims.measurements import addresses
from sdp_bench.reports.statistics.conventions import Outcome
from sdp_bench.reports.statistics.verdicts import LEVEL, Verdict, mean_tests
from sdp_bench.reports.tables.frame import checked
from tests.reports import made_up

MC = "monte_carlo:samples=100"
RULES = ("sdp", "dvia", "moment_matching", "marginal_sdp", "marginal_moment_matching", MC)
TV_SIGMAS, W1_SIGMAS = (0.1, 1.0, 10.0, 100.0, 1000.0), (0.01, 0.1, 1.0)
FLOOR = 2.0  # of W1, in units of sigma


def tv_of(rule, sigma):
    """Total variations for which every claim on them is true, with effects of .06 or more."""
    marginals = {"marginal_sdp": 0.76, "marginal_moment_matching": 0.70 if sigma == 0.1 else 0.82}
    return {"sdp": 0.1, "dvia": 0.16, MC: 0.2, "moment_matching": 0.05}.get(rule) or marginals[rule]


def w1_of(rule, sigma):
    return sigma * (20 if rule.startswith("marginal") else 4)


def ratio_of(rule, sigma):
    large = {"sdp": 2.5, "dvia": 1 / 2.6}.get(rule, 1.0) if sigma >= 10 else 1.0
    return 0.02 if rule.startswith("marginal") else large


def suite(nets=30, name="iris-claims", depths=(4, 6), seed=0, tv=tv_of, w1=w1_of, ratio=ratio_of, inputs=2):
    """Measurements of one suite: truth, a shift that the rules of a net and input share, and noise."""
    rng = np.random.default_rng(seed)
    rows = []
    for depth in depths:
        for net in range(nets):
            for place in range(inputs):
                subject = {
                    "experiment": name,
                    "network": "4-100-3",
                    "activation": "relu",
                    "depth": depth,
                    "net": f"{name} {depth} {net:02}",
                    "seed": net,
                    "input": 3 * net + place,
                    "accuracy": 0.97,
                    "seconds": 1e-3,
                    "stderr": 1e-3,
                    "floor95": 0.0,
                    "unit_of_measure": "1",
                }

                def row(rule, spec, sigma, value, floor=0.0, component="", subject=subject):
                    keys = {"rule": rule, "metric_spec": spec, "sigma": sigma, "component": component}
                    metric = spec.partition(":")[0]
                    rows.append(subject | keys | {"metric": metric, "value": float(value), "floor": floor})

                for rule in RULES:
                    for sigma in TV_SIGMAS:
                        for convention in CONVENTIONS.values():
                            shift = 0.02 * math.sin(net) + rng.normal(0, 0.01)
                            row(rule, convention.spec, sigma, tv(rule, sigma) + shift)
                        for output in "012":
                            factor = math.exp(rng.normal(0, 0.02))
                            row(rule, "std_ratio", sigma, ratio(rule, sigma) * factor, 1.0, output)
                    for sigma in W1_SIGMAS:
                        true = w1(rule, sigma) * math.exp(0.5 * math.sin(net) + rng.normal(0, 0.02))
                        row(rule, "w1", sigma, math.hypot(true, FLOOR * sigma), FLOOR * sigma)
    frame = pd.DataFrame(rows)
    if name == "iris-claims":
        frame["experiment"] = frame["experiment"].mask(frame["metric"] == "w1", "iris-claims-w1")
    return checked(frame)


@pytest.fixture(scope="module")
def true():
    return suite()


def by_key(judgements):
    return {each.claim.key: each for each in judgements}


def where(frame, **wanted):
    chosen = pd.Series(True, frame.index)
    for name, value in wanted.items():
        chosen &= frame[name] == value
    return chosen


def shifted(frame, by, **wanted):
    """The frame with `by` added to the chosen values."""
    return frame.assign(value=frame["value"].where(~where(frame, **wanted), frame["value"] + by))


# The claims themselves ------------------------------------------------------------------------------------


def test_claims_are_told_apart_and_say_what_they_need():
    assert len({claim.key for claim in CLAIMS}) == len(CLAIMS)
    for claim in CLAIMS:
        assert claim.quote
        assert claim.source
        assert claim.reading
        assert claim.parts
        assert len({(part.terms, part.threshold) for part in claim.parts}) == len(claim.parts)
    assert all(each.quote and each.reason for each in NOT_JUDGED)


def test_what_parts_need_in_natural_units():
    needed = {claim.key: sorted({part.needed for part in claim.parts}) for claim in CLAIMS}
    assert needed == {
        "tv-dvia": ["> −0.01"],
        "tv-dvia-better": ["> 0"],
        "tv-mc": ["> 0"],
        "tv-marginal-small": ["> 0"],
        "tv-marginal-large": ["> 0"],
        "tv-covariance": ["> 0"],
        "w1-dvia-4": ["< 1.05"],
        "w1-marginal-4": ["< 1"],
        "w1-dvia-6": ["< 1.05"],
        "w1-marginal-6": ["< 1"],
        "sd-marginal": ["< 0.5"],
        "sd-good": ["< 1.05"],
        "sd-small": ["> 1"],
        "sd-sdp": ["> 1"],
        "sd-dvia": ["< 1"],
        "sd-opposite": ["< 1", "< 1.25", "> 0.8", "> 1"],
    }


def test_the_papers_own_numbers():
    parts = {claim.key: {part.sigmas: part.printed for part in claim.parts} for claim in CLAIMS}
    assert parts["tv-dvia"]["1000"] == pytest.approx(0.6808 - 0.5318)
    assert parts["tv-mc"]["0.1"] == pytest.approx(0.9791 - 0.9451)
    assert parts["w1-dvia-4"]["1"] == pytest.approx(6.6188 / 6.4090)
    assert parts["w1-dvia-6"]["0.1"] == pytest.approx(0.1480 / 0.1520)
    assert parts["sd-sdp"]["1000"] == pytest.approx((2.6095 * 2.8857 * 2.6906) ** (1 / 3))
    product = 1.9816 * 2.2526 * 2.0629 * 0.6035 * 0.6664 * 0.6172
    assert parts["sd-opposite"]["10"] == pytest.approx(product ** (1 / 3))


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_a_quotient_comes_back_from_its_relative_difference(one, other):
    difference = (other - one) / ((one + other) / 2)
    assert claims._quotient(difference) == pytest.approx(one / other, rel=1e-9)
    assert difference == pytest.approx(2 * math.tanh(math.log(other / one) / 2), abs=1e-12)


# Verdicts -------------------------------------------------------------------------------------------------


def test_every_claim_holds_where_it_is_true(true):
    judgements = judge(true)
    assert [each.claim for each in judgements] == list(CLAIMS)
    assert {each.claim.key: each.verdicts.outcome for each in judgements} == dict.fromkeys(
        (claim.key for claim in CLAIMS), Outcome.HOLDS
    )
    assert {each.verdicts.words for each in judgements} == {"holds", "holds in all 4"}
    assert Source("", judgements).tally == "16 claims: 16 hold everywhere"
    for each in judgements:
        expected = list(CONVENTIONS) if each.claim.key.startswith("tv") else [""]
        assert [ruling.column for ruling in each.rulings] == expected
        assert all(finding.nets == finding.among == 30 for finding in each.shown.findings)


def test_effects_are_means_of_net_means(true):
    deciding = {each.claim.key: each for each in judge(true)}["tv-mc"].shown.findings[2]
    chosen = true[where(true, metric_spec=claims.PAPERS_OWN.spec, sigma=10.0, depth=4)]
    nets = chosen.pivot_table("value", "net", "rule", aggfunc="mean")
    effects = nets[MC] - nets["sdp"]
    tests = mean_tests(effects)
    assert deciding.mean == pytest.approx(effects.mean(), rel=1e-12)
    assert (deciding.low, deciding.high) == pytest.approx((tests.low, tests.high))


def test_one_bad_part_is_enough_to_fail_and_decides(true):
    bad = shifted(true, 0.2, rule="sdp", sigma=10.0, depth=4)
    found = by_key(judge(bad))
    judgement = found["tv-mc"]
    assert judgement.verdicts.outcome is Outcome.FAILS
    assert judgement.shown.deciding.part.sigmas == "10"
    assert judgement.shown.deciding.high < 0
    assert judgement.shown.violation == max(ruling.violation for ruling in judgement.rulings)
    assert judgement.sentence.startswith(f"{judgement.shown.convention}: 1 − TV of SDP is 0.")
    assert judgement.sentence.endswith(") below that of MC estimate k=100 at σ = 10")
    assert found["tv-marginal-small"].verdicts.outcome is Outcome.HOLDS


def test_a_part_that_cannot_be_told_leaves_one_convention_undecided(true):
    level = shifted(true, 0.1, rule="sdp", sigma=10.0, depth=4, metric="tv_headline")
    judgement = by_key(judge(level))["tv-mc"]
    assert [ruling.verdict for ruling in judgement.rulings] == [
        Verdict.HOLDS,
        Verdict.HOLDS,
        Verdict.UNDECIDED,
        Verdict.HOLDS,
    ]
    assert judgement.verdicts.words == "holds in 3 of 4; undecided in headline"
    assert judgement.shown.column == "joint extremes"
    assert judgement.rulings[2].deciding.part.sigmas == "10"


def test_as_good_as_allows_the_margin_and_better_does_not():
    level = suite(60)  # the margin is half of what the rules differ by from net to net
    for sigma in TV_SIGMAS:
        level = shifted(level, -0.06, rule="dvia", sigma=sigma)
    found = by_key(judge(level))
    assert found["tv-dvia"].verdicts.outcome is Outcome.HOLDS
    assert found["tv-dvia-better"].verdicts.outcome is Outcome.UNDECIDED


def test_a_verdict_may_turn_with_the_convention_and_a_failure_is_told_first(true):
    turned = shifted(true, 0.2, rule="sdp", depth=4, metric="tv_class")
    judgement = by_key(judge(turned))["tv-dvia"]
    assert [ruling.verdict.value for ruling in judgement.rulings] == ["holds", "holds", "holds", "fails"]
    assert judgement.verdicts.outcome is Outcome.TURNS
    assert judgement.shown.column == "decision"
    effect = judgement.shown.deciding.effect
    assert judgement.verdicts.words == f"fails in 1 of 4 (decision), effect {effect}; holds in 3"


def test_one_convention_that_cannot_tell_hides_no_failure(true):
    bad = shifted(true, 0.2, rule="sdp", depth=4)
    blunt = shifted(bad, -0.13, rule="sdp", depth=4, metric="tv_class")  # .01 behind, and so on the margin
    judgement = by_key(judge(blunt))["tv-dvia"]
    assert [ruling.verdict.value for ruling in judgement.rulings] == ["fails", "fails", "fails", "undecided"]
    largest = max(judgement.rulings[:3], key=lambda ruling: -ruling.deciding.mean).deciding.effect
    assert judgement.verdicts.words == (f"fails in 3 of 4, largest effect {largest}; undecided in decision")
    tally = Source("", (judgement,)).tally
    assert tally == "1 claim: 1 fails in some conventions and holds in none"


def test_a_verdict_that_turns_with_the_recipe(true):
    other = suite(30, "iris-claims-recipe", depths=(4,), seed=1, ratio=lambda rule, sigma: 0.9)
    found = by_key(judge(pd.concat([true, other], ignore_index=True)))
    assert found["sd-sdp"].verdicts.outcome is Outcome.TURNS
    assert [ruling.convention for ruling in found["sd-sdp"].rulings] == ["first recipe", "other recipe"]
    assert found["sd-sdp"].verdicts.words.startswith("fails in 1 of 2 (other recipe), effect 0.89")
    assert list(found["tv-mc"].recipes) == ["first recipe", "other recipe"]
    assert found["tv-mc"].verdicts.words == "holds in all 8"
    # What the other recipe did not measure takes nothing away.
    assert [ruling.verdict.value for ruling in found["w1-dvia-6"].rulings] == ["holds", "not measured"]
    assert found["w1-dvia-6"].verdicts.words == "holds; 1 not measured"


def test_the_papers_own_convention_comes_first_and_is_judged_by_its_own_variant_alone(true):
    without = true[true["metric_spec"] != claims.PAPERS_OWN.spec]
    found = by_key(judge(without))["tv-mc"]
    assert found.rulings[0].convention == claims.PAPERS_OWN.convention == "joint extremes"
    assert found.rulings[0].verdict is Verdict.NOT_MEASURED
    assert found.verdicts.words == "holds in all 3; 1 not measured"
    assert Source("", judge(without)).tally == (
        "16 claims: 16 hold everywhere; nothing was measured under joint extremes"
    )
    worse = shifted(true, 0.2, rule="sdp", metric_spec=claims.PAPERS_OWN.spec)
    verdicts = [ruling.verdict.value for ruling in by_key(judge(worse))["tv-mc"].rulings]
    assert verdicts == ["fails", "holds", "holds", "holds"]


def test_the_suites_measure_every_convention():
    for name in ("iris-claims", "iris-claims-recipe", "iris-claims-features"):
        measured = {claims.quantity(metric(text).spec) for text in experiment(name).metrics}
        assert set(CONVENTIONS) <= measured


def test_other_suites_and_activations_do_not_count(true):
    elsewhere = pd.concat(
        [true.assign(experiment="iris-tv"), true.assign(activation="tanh")], ignore_index=True
    )
    assert {each.verdicts.outcome for each in judge(elsewhere)} == {Outcome.NOT_MEASURED}
    assert judge(pd.concat([true, true.assign(experiment="iris-tv")], ignore_index=True)) == judge(true)


def test_the_order_of_rows_does_not_matter(true):
    mixed = true.sample(frac=1, random_state=3)
    for one, other in zip(judge(true), judge(mixed), strict=True):
        assert one.verdicts == other.verdicts
        for ours, theirs in zip(one.rulings, other.rulings, strict=True):
            assert (ours.holds, ours.fails) == pytest.approx((theirs.holds, theirs.fails), rel=1e-6, abs=0)


def test_p_values_are_corrected_over_all_claims_of_a_convention(true):
    # Only two claims are measured: of the two p-values, Holm's method doubles the smaller.
    few = true[where(true, depth=4, metric="std_ratio") & (true["sigma"] >= 10)]
    rulings = {key: each.rulings[0] for key, each in by_key(judge(few)).items() if each.rulings[0].findings}
    assert set(rulings) == {"sd-sdp", "sd-dvia", "sd-opposite"}
    raw = {key: max(finding.above for finding in ruling.findings) for key, ruling in rulings.items()}
    order = sorted(raw, key=raw.get)
    expected, least = {}, 0.0
    for key, factor in zip(order, (3, 2, 1), strict=True):
        least = expected[key] = max(least, min(1, factor * raw[key]))
    for key, ruling in rulings.items():
        assert ruling.holds == pytest.approx(expected[key], rel=1e-9, abs=0)


@pytest.mark.parametrize("column", CONVENTIONS)
def test_claims_without_a_column_take_the_largest_of_their_p_values(true, column):
    # Under one column few other claims are in the family, under the others all are.
    mixed = shifted(true, 9.0, metric="std_ratio", rule="dvia", sigma=1000.0)
    names = list(CONVENTIONS)
    own, other = CONVENTIONS[column], CONVENTIONS[names[names.index(column) - 1]]
    # The other's numbers stand for the column's.
    copied = mixed[mixed["metric_spec"] == other.spec].assign(metric=own.name, metric_spec=own.spec)
    mixed = pd.concat([mixed[mixed["metric_spec"] != own.spec], copied], ignore_index=True)
    scarce = mixed[~(where(mixed, metric_spec=own.spec) & (mixed["rule"] != "sdp"))]
    few, all_ = by_key(judge(scarce)), by_key(judge(mixed))
    assert few["tv-dvia"].verdicts.words == "holds in all 3; 1 not measured"
    assert few["sd-dvia"].verdicts.outcome is Outcome.FAILS
    for key in (key for key in few if not key.startswith("tv")):
        ours, full = few[key].rulings[0], all_[key].rulings[0]
        assert ours.holds == pytest.approx(full.holds, rel=1e-9, abs=0)
        assert ours.fails == pytest.approx(full.fails, rel=1e-9, abs=0)


# What is missing, few or infinite -------------------------------------------------------------------------


def test_an_empty_frame_gives_no_verdict():
    judgements = judge(checked(pd.DataFrame()))
    assert {each.verdicts.outcome for each in judgements} == {Outcome.NOT_MEASURED}
    assert {each.sentence for each in judgements if not each.claim.key.startswith("tv")} == {"no data"}
    assert not any_measured(judgements)
    assert Source("", judgements).tally == "16 claims: 16 are not measured"


def test_what_is_missing_is_named(true):
    gone = where(true, rule="dvia", sigma=10.0) | where(true, rule="dvia", sigma=100.0)
    found = by_key(judge(true[~gone]))
    assert found["tv-dvia"].verdicts.outcome is Outcome.NOT_MEASURED
    assert found["tv-dvia"].sentence == "joint extremes: lacks DVIA at σ = 10, 100"
    assert found["sd-small"].sentence == "lacks DVIA at σ = 10, 100"
    assert found["tv-mc"].verdicts.outcome is Outcome.HOLDS
    assert any_measured(found.values())


def test_a_convention_that_was_not_measured_is_said_and_the_others_count(true):
    found = by_key(judge(true[~where(true, metric="tv_class", rule=MC)]))["tv-mc"]
    assert [ruling.verdict.value for ruling in found.rulings] == ["holds"] * 3 + ["not measured"]
    assert found.verdicts.words == "holds in all 3; 1 not measured"
    assert found.rulings[3].reason == "lacks MC estimate k=100 at σ = 0.1, 1, 10, 100, 1000"


def test_rules_that_never_met_on_an_input_are_both_named(true):
    parity = true["input"] % 2
    apart = true[~((true["rule"] == "sdp") & (parity == 0)) & ~((true["rule"] == "dvia") & (parity == 1))]
    assert (
        by_key(judge(apart))["w1-dvia-4"].sentence
        == "lacks SDP at σ = 0.01, 0.1, 1; DVIA at σ = 0.01, 0.1, 1"
    )


def test_a_measurement_that_failed_leaves_out_its_pair_only(true):
    row = true.index[where(true, metric="w1", rule="dvia", sigma=0.1, depth=4, net="iris-claims 4 07")]
    holes = true.assign(value=true["value"].where(~true.index.isin(row[:1])))  # one of two inputs
    finding = by_key(judge(holes))["w1-dvia-4"].shown.findings[1]
    assert (finding.nets, finding.among) == (30, 30)
    holes = true.assign(value=true["value"].where(~true.index.isin(row)))
    finding = by_key(judge(holes))["w1-dvia-4"].shown.findings[1]
    assert (finding.nets, finding.among) == (29, 30)
    assert finding.design == "29 of 30 nets"
    pair = true[true["net"] != "iris-claims 4 07"]
    assert finding.mean == pytest.approx(by_key(judge(pair))["w1-dvia-4"].shown.findings[1].mean)


@pytest.mark.parametrize("nets", [1, 2])
def test_few_nets_decide_nothing(nets):
    judgements = judge(suite(nets, depths=(4,)))
    assert {each.verdicts.outcome for each in judgements if each.claim.where == "4 ReLU layers"} == {
        Outcome.UNDECIDED
    }
    for each in judgements[:8]:
        assert each.shown.reason == f"{nets} net{'s' * (nets > 1)}, at least 3 are needed"
        assert (each.shown.holds, each.shown.fails) == (1, 1)
        assert f"({nets} net{'s' * (nets > 1)})" in each.sentence
        assert "–" not in each.sentence


@pytest.mark.parametrize(("nets", "outcome"), [(5, Outcome.UNDECIDED), (15, Outcome.HOLDS)])
def test_what_is_plain_in_fifteen_nets_is_not_sure_in_five(nets, outcome):
    assert by_key(judge(suite(nets, depths=(4,))))["sd-marginal"].verdicts.outcome is outcome


def test_few_nets_under_one_convention_leave_the_others_their_correction(true):
    some = true[~(where(true, metric="tv_class") & (true["net"].astype(str) > "iris-claims 4 01"))]
    found = by_key(judge(some))["tv-mc"]
    assert [ruling.verdict.value for ruling in found.rulings] == ["holds"] * 3 + ["undecided"]
    assert found.verdicts.outcome is Outcome.HOLDS_SOMEWHERE


@pytest.mark.parametrize("value", [0.0, math.inf])
def test_what_is_not_finite_can_neither_hold_nor_fail_by_itself(true, value):
    row = true.index[where(true, metric="std_ratio", rule="dvia", sigma=100.0, depth=4)][:4]
    broken = true.assign(value=true["value"].where(~true.index.isin(row), value))
    judgement = by_key(judge(broken))["sd-dvia"]
    assert judgement.verdicts.outcome is Outcome.UNDECIDED
    assert judgement.shown.deciding.reason == "not finite in 1 of 30 nets"
    assert judgement.sentence == (
        "sds of DVIA are – times the true ones at σ = 100 (not finite in 1 of 30 nets)"
    )
    failing = shifted(broken, 9.0, metric="std_ratio", rule="dvia", sigma=1000.0)
    assert by_key(judge(failing))["sd-dvia"].verdicts.outcome is Outcome.FAILS


def test_infinite_distances_and_opposite_infinities_raise_no_warning(true):
    broken = true.assign(value=true["value"].where(true["metric"] != "w1", math.inf))
    ratios = broken.index[broken["metric"] == "std_ratio"]
    broken.loc[ratios[::2], "value"], broken.loc[ratios[1::2], "value"] = 0.0, math.inf
    found = by_key(judge(broken))
    assert found["w1-dvia-4"].verdicts.outcome is found["sd-opposite"].verdicts.outcome is Outcome.UNDECIDED


def test_distances_below_their_floor_are_equal(true):
    # Both W1 at the floor in all nets: corrected 0 and 0, no difference, which is within the margin.
    at_floor = true.assign(value=true["value"].where(true["metric"] != "w1", true["floor"] * 0.9))
    found = by_key(judge(at_floor))
    finding = found["w1-dvia-4"].shown.deciding
    assert (finding.mean, finding.low, finding.high) == (0, 0, 0)
    assert finding.above == 0.5**30
    assert found["w1-dvia-4"].verdicts.outcome is Outcome.HOLDS
    assert found["w1-dvia-4"].sentence == "W1 of SDP is 1.00 (1.00 to 1.00) times that of DVIA at σ = 0.01"
    # "Smaller", on the other hand, is neither shown nor refuted.
    assert found["w1-marginal-4"].verdicts.outcome is Outcome.UNDECIDED
    assert found["w1-marginal-4"].shown.deciding.above == 1


def test_floors_are_taken_out_of_distances(true):
    finding = by_key(judge(true))["w1-marginal-4"].shown.findings[0]
    assert finding.natural[0] == pytest.approx(4 / 20, rel=0.01)
    raw = by_key(judge(true.assign(floor=0.0)))["w1-marginal-4"].shown.findings[0]
    assert raw.natural[1] > 1.05 * finding.natural[2]  # the floor adds more to the smaller distance


def test_a_measurement_that_is_there_twice_is_refused(true):
    twice = pd.concat([true, true[where(true, metric="w1", depth=4)].iloc[:1]], ignore_index=True)
    with pytest.raises(ValueError, match="iris-claims-w1 has w1 of one prediction twice"):
        judge(twice)


def test_verdicts_follow_from_the_p_values_shown(true):
    for frame in (true, shifted(true, 0.1, rule="sdp", sigma=10.0), suite(5, seed=4)):
        for judgement in judge(frame):
            for ruling in judgement.rulings:
                if ruling.verdict in (Verdict.HOLDS, Verdict.FAILS, Verdict.UNDECIDED):
                    assert (ruling.holds <= LEVEL) == (ruling.verdict is Verdict.HOLDS)
                    assert (ruling.fails <= LEVEL) == (ruling.verdict is Verdict.FAILS)
                    assert ruling.holds >= max(finding.above for finding in ruling.findings)
                    assert ruling.fails >= min(
                        1, len(ruling.findings) * min(f.below for f in ruling.findings)
                    )


def test_results_are_frozen(true):
    with pytest.raises(dataclasses.FrozenInstanceError):
        judge(true)[0].verdict = Verdict.FAILS


# Words and page -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((0.12, 0.09, 0.151), "0.120 (0.090 to 0.151)"),
        ((-0.0002, -0.032, 0.0316), "0.000 (−0.032 to 0.032)"),
        ((250.0, 230.0, 270.0), "250 (230 to 270)"),
        ((1.0, 1.0, 1.0), "1.00 (1.00 to 1.00)"),
        ((0.5, math.nan, math.nan), "0.500"),
        ((0.2, 0.1, math.inf), "0.20 (0.10 to ∞)"),
        ((math.nan, math.nan, math.nan), "–"),
    ],
)
def test_intervals_are_written_to_what_is_known(numbers, expected):
    assert judging._interval(*numbers) == expected


def rendered(*sources, not_judged=NOT_JUDGED):
    more = {"conventions": tuple(CONVENTIONS), "not_judged": not_judged, "addresses": addresses}
    return made_up.rendered(Claims(), sources=sources, **more)


def test_the_page_shows_every_claim_with_its_words_and_numbers(true):
    judgements = judge(true)
    text = rendered(Source("This run", judgements))
    for judgement in judgements:
        assert f'id="claim-{judgement.claim.key}"' in text
        assert judgement.sentence in text
    assert text.count("✓</span> holds") >= len(judgements)
    assert "SDP consistently outperforms MC estimation via 100 samples" in text
    assert text.count("<details>") == len(judgements)
    assert "This run" not in text  # one source needs no name
    assert text.count(">decides<") == sum(len(judgement.rulings) for judgement in judgements)
    assert all(each.reason in text for each in NOT_JUDGED)


def test_two_sources_stand_side_by_side(true):
    few = judge(suite(2, depths=(4,)))
    text = rendered(Source("This run", few), Source("Committed <run>", judge(true)), not_judged=())
    assert "This run: 16 claims: 14 are undecided everywhere, 2 are not measured." in text
    assert "Committed &lt;run&gt;: 16 claims: 16 hold everywhere." in text
    assert "not judged here" not in text
    assert text.index("?</span> undecided") < text.index("✓</span> holds")
    assert "at least 3 are needed" in text


def test_the_page_without_data_says_so():
    text = rendered(Source("This run", judge(checked(pd.DataFrame()))))
    assert "16 claims: 16 are not measured." in text
    assert text.count("no data") >= len(CLAIMS)
    assert "<details>" not in text
