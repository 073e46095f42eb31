"""The suite with Cauchy noise, and what is refused where no moments are."""

import dataclasses
import math

import numpy as np
import pytest
import torch

import sdp_ref
from bench import measures, noise, predict, replay, run, suites
from bench.executors import LocalProcesses
from bench.store import Store
from bench.truth import Prediction, Truth
from oracles.partition import total_variation_floor, total_variation_of_counts
from oracles.quantiles import LEVELS
from oracles.sampling import sample_outputs
from sdp_ref.distributions import unchecked
from sdp_ref.rules.linearization import jacobian_of
from tests.bench.conftest import TINY, begin, make_plan, run_all

SETTINGS = dataclasses.replace(
    TINY,
    rules=None,
    sizes={"iris-cauchy": (1, 2)},
    samples=2**14,
    pilot_samples=2**13,
    sigmas=(1e-5, 1.0),
)


@pytest.fixture
def plan():
    return make_plan(SETTINGS, ("iris-cauchy",))


@pytest.fixture(scope="module")
def frame(tmp_path_factory):
    path = tmp_path_factory.mktemp("cauchy") / "r.sqlite"
    return run_all(path, make_plan(SETTINGS, ("iris-cauchy",)), SETTINGS)


def truth_of(group, settings=SETTINGS, place=0):
    return Truth(group.net.build(), predict.input_law(group)[place], group.subjects[place].key, settings)


def predicted(group, name, truth):
    rule = sdp_ref.rule(name)
    law, _ = predict.predict(rule, truth.net, predict.input_law(group), group.subjects)
    return predict.prediction_of(rule, law[0], truth)


def test_every_wanted_number_is_there(frame):
    components = {
        "tv_joint": 1,
        "tv_class": 1,
        "tv_output": 3,
        "quantile_mean": 3,
        "quantile_max": 3,
        "iqr_ratio": 3,
    }
    assert set(frame.rule) == {"sdp", "marginal_sdp", "oracle_again"}
    counts = frame.groupby("metric").size()
    assert counts.to_dict() == {name: 2 * 2 * 3 * number for name, number in components.items()}
    assert np.isfinite(frame[["value", "floor", "floor95", "stderr"]]).all().all()
    assert not {"std_ratio", "w1", "bures", "gaussian_kl", "tv_headline", "tv_paper"} & set(frame.metric)


def test_sdp_is_exact_where_the_net_is_linear_and_marginal_sdp_is_not(frame):
    """At a scale of 1e-5 under 1e-4 of the draws leave the linear piece of the net."""
    small = frame[frame.sigma == 1e-5].set_index(["rule", "metric"])
    distances = [name for name in small.loc["sdp"].index.unique() if name != "iqr_ratio"]
    for name in distances:
        sdp, marginal = small.loc[("sdp", name)], small.loc[("marginal_sdp", name)]
        assert (sdp.value <= sdp.floor95 + 4 * sdp.stderr).all(), name
        if name != "tv_class":
            assert (marginal.value > 1.5 * marginal.floor95).all(), name
    ratio = small.loc[("sdp", "iqr_ratio")]
    assert ((ratio.value - 1).abs() < 4 * ratio.stderr).all()
    assert (small.loc[("marginal_sdp", "iqr_ratio")].value > 1.1).all()  # too wide by the triangle inequality


def test_a_second_oracle_shows_the_floor(frame):
    again = frame[frame.rule == "oracle_again"]
    distances = again[again.metric != "iqr_ratio"]
    assert (distances.value <= distances.floor95 + 4 * distances.stderr).all()
    ratio = again[again.metric == "iqr_ratio"]
    assert ((ratio.value - 1).abs() < 4 * ratio.stderr).all()


def test_joint_samples_of_sdp_are_those_of_the_linearised_net(plan):
    group = plan.groups[1]
    truth = truth_of(group)
    sdp = predicted(group, "sdp", truth)
    net, x = group.net.build().double(), truth.law.location.double()
    location, jacobian = jacobian_of(net, x)
    deviations = sdp.samples - location
    assert torch.linalg.matrix_rank(jacobian[0]) == 3
    # Every sample is J eps of some eps: with the noise of seed "rule", of this one.
    eps = truth.draw(lambda v: v - x, truth.law.to(dtype=torch.float64))
    assert torch.allclose(deviations, eps @ jacobian[0].T, rtol=1e-9, atol=1e-9)
    # Each output alone follows the rule's own law: distances of two samples from one law.
    for j in range(3):
        pair = [np.sort(values[:, j].numpy()) for values in (sdp.samples, sdp.outputs)]
        places = (LEVELS * (len(pair[0]) - 1)).astype(int)
        q = np.tan(math.pi * (LEVELS - 0.5))
        scale = float(sdp.law.scale[0, j])
        error = np.sqrt(LEVELS * (1 - LEVELS) / len(pair[0])) * math.pi * (1 + q**2) * scale
        for ordered in pair:
            assert (np.abs(ordered[places] - float(location[0, j]) - q * scale) < 4.5 * error).all()


def test_output_metrics_judge_the_scale_that_the_rule_gives(plan, monkeypatch):
    """Not that of the Jacobian which the joint samples are made of: a rule gone wrong is seen."""
    group = plan.groups[0]
    truth = truth_of(group)
    right = predicted(group, "sdp", truth)
    wrong = predict.prediction_of(
        sdp_ref.rule("sdp"), dataclasses.replace(right.law, scale=2 * right.law.scale), truth
    )
    metric = measures.of_spec("iqr_ratio").measure
    for (_, one), (_, two) in zip(metric(truth, right), metric(truth, wrong), strict=True):
        assert two.value == pytest.approx(2 * one.value, rel=1e-9)
    assert torch.equal(right.samples, wrong.samples)


def test_total_variation_of_a_wrong_scale_has_its_closed_form(plan):
    """TV of Cauchy laws of scales 1 and 2, seen in bins of equal mass."""
    group = plan.groups[0]
    truth = truth_of(group)
    right = predicted(group, "sdp", truth)
    wrong = Prediction(dataclasses.replace(right.law, scale=2 * right.law.scale), truth)
    exact = 2 / math.pi * (math.atan(math.sqrt(2)) - math.atan(math.sqrt(0.5)))
    partition = truth.partition("output", 2**13, bins=50)
    for oracle, rule in zip(truth.counts(partition), partition.counts(wrong.outputs), strict=True):
        floor = total_variation_floor(oracle, truth.key.samples)
        estimate = total_variation_of_counts(oracle, rule, floor)
        assert abs(estimate.value - exact) < floor.mean + 4 * estimate.stderr


def test_float32_moves_few_samples_to_other_cells(plan):
    """Far samples, whose thin directions float32 does not know, are too few to count."""
    group = plan.groups[1]
    truth = truth_of(group)
    net, seed = group.net.build().double(), truth.key.seed("oracle")
    double = sample_outputs(net, truth.law, truth.key.samples, seed=seed)
    assert truth.samples.dtype == torch.float32
    assert double.dtype == torch.float64
    for cells in (
        truth.partition("central", 2**13, cells=128),
        truth.partition("output", 2**13, bins=100),
    ):
        moved = np.abs(truth.counts(cells) - np.atleast_2d(cells.counts(double))).sum(1) / 2
        assert (moved / truth.key.samples < 1e-3).all()


def test_numbers_do_not_depend_on_the_process(tmp_path, plan, frame):
    columns = ["rule", "metric_spec", "component", "subject", "value", "floor", "floor95", "stderr"]
    with Store(tmp_path / "c.sqlite", writing=True) as store, LocalProcesses(1, 1) as executor:
        number = begin(store, plan, SETTINGS)
        run.execute(plan.groups, frozenset(), store, number, executor, lambda *_: None)
        other = store.frame(store.run(number))
    both = [f[columns].sort_values(columns[:4]).reset_index(drop=True) for f in (frame, other)]
    assert both[0].equals(both[1])


def test_replays_are_identical_and_tell_quartiles(tmp_path, plan):
    path = tmp_path / "r.sqlite"
    frame = run_all(path, plan, SETTINGS)
    with Store(path) as store:
        for rule in ("sdp", "marginal_sdp", "oracle_again"):
            for metric in ("tv_joint", "tv_output", "quantile_mean"):
                said = []
                key = frame[(frame.rule == rule) & (frame.metric == metric)].key.iloc[-1]
                pairs = replay.replay(store, key, said.append)
                assert pairs
                assert all(replay.same(*pair) for pair in pairs), (rule, metric)
                assert any("gamma 1" in line for line in said)
                assert sum("half the interquartile range" in line for line in said) == 2


def test_what_has_no_moments_is_refused_in_one_line(plan):
    group = plan.groups[0]
    truth = truth_of(group)
    prediction = predicted(group, "sdp", truth)
    for name, message in {
        "w1": "W1 is infinite: a Cauchy law has no mean",
        "w1_certified": "W1 is infinite: a Cauchy law has no mean",
        "std_ratio": "moments are infinite: a Cauchy law has no variance",
        "bures": "moments are infinite",
        "gaussian_kl": "moments are infinite",
        "min_eigenvalue": "the prediction is a Cauchy law, which has no moments to compare",
    }.items():
        spec = measures.spec(name, SETTINGS)
        with pytest.raises(ValueError, match=message) as caught:
            run.measure(truth, prediction, "sdp", spec, 0.0)
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="moments are infinite"):
        truth.reference("oracle_moments")


def test_w1_to_a_heavy_tailed_prediction_is_refused_too():
    """A Gaussian truth is at an infinite distance from a Cauchy law."""
    group = make_plan(TINY, ("iris-tv",)).groups[0]
    truth = truth_of(group, TINY)
    law = sdp_ref.Cauchy(torch.zeros(1, 3).double(), torch.ones(1, 3).double())
    with pytest.raises(ValueError, match="W1 is infinite: a Cauchy law has no mean"):
        run.measure(truth, Prediction(law, truth), "sdp", measures.spec("w1", TINY), 0.0)
    with pytest.raises(ValueError, match="the prediction is a Cauchy law"):
        run.measure(truth, Prediction(law, truth), "sdp", "bures", 0.0)


@pytest.mark.parametrize(
    ("law", "message"),
    [
        (unchecked(sdp_ref.Cauchy, torch.full((1, 3), math.nan), torch.ones(1, 3)), "location is not finite"),
        (unchecked(sdp_ref.Cauchy, torch.zeros(1, 3), torch.full((1, 3), math.inf)), "scale is not finite"),
        (unchecked(sdp_ref.SymmetricStable, torch.zeros(1, 3), -torch.ones(1, 3), 1.5), "scale is negative"),
        (None, "neither Gaussian nor stable"),
        ("law", "the prediction is a str"),
    ],
)
def test_a_prediction_that_is_no_law_is_refused(plan, law, message):
    with pytest.raises(ValueError, match=message):
        Prediction(law, truth_of(plan.groups[0]))


def test_a_zero_scale_is_a_point_mass(plan):
    truth = truth_of(plan.groups[0])
    prediction = Prediction(sdp_ref.Cauchy(torch.ones(1, 3), torch.zeros(1, 3)), truth)
    assert (prediction.samples == 1).all()


@pytest.mark.parametrize("sampler", ["mc", "sobol"])
def test_cauchy_noise_goes_with_every_sampler(sampler):
    settings = dataclasses.replace(SETTINGS, sampler=sampler, sigmas=(1e-5,))
    (group,) = make_plan(settings, ("iris-cauchy",)).groups
    result = run.run_group(group, frozenset())
    assert result.failures == []
    values = {r.rule: r.value for r in result.records if r.metric.startswith("tv_joint")}
    assert values["sdp"] < 0.5 * values["marginal_sdp"]


def test_a_suite_with_stable_noise_needs_no_more_than_a_line(monkeypatch):
    own = dataclasses.replace(suites.SUITES["iris-cauchy"], name="own", noise=noise.stable(1.5))
    monkeypatch.setitem(suites.SUITES, "own", own)
    settings = dataclasses.replace(SETTINGS, sizes={"own": (1, 1)}, sigmas=(1e-5,))
    (group,) = make_plan(settings, ("own",)).groups
    result = run.run_group(group, frozenset())
    assert result.failures == []
    ratios = {r.rule: [] for r in result.records}
    for record in result.records:
        if record.metric == "iqr_ratio":
            ratios[record.rule].append((record.value - 1) / record.stderr)
    assert np.abs(ratios["sdp"]).max() < 4
    assert np.abs(ratios["marginal_sdp"]).max() > 10
