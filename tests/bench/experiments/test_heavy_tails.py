import dataclasses
import math

import numpy as np
import pytest
import torch

import sdp_ref
from sdp_bench.bench.experiments import predict
from sdp_bench.bench.metrics import metric
from sdp_bench.bench.metrics.oracle import Oracle, Prediction
from sdp_bench.bench.results.columns import FAILED
from sdp_bench.bench.runs import driver as run
from sdp_bench.bench.settings import Size
from sdp_bench.oracles.partitions.floors import total_variation_floor
from sdp_bench.oracles.partitions.heavy_tails import OutputBins
from sdp_bench.oracles.partitions.partition import total_variation_of_counts
from sdp_bench.oracles.partitions.quantiles import LEVELS
from sdp_ref.laws import unchecked
from sdp_ref.rules.linearization import jacobian_of
from tests.bench.conftest import TINY, make_plan, run_all

SETTINGS = TINY.but(
    rules=None, sizes={"iris-cauchy": Size(1, 2)}, samples=2**14, pilot_samples=2**13, sigmas=(1e-5, 1.0)
)


@pytest.fixture
def plan():
    return make_plan(SETTINGS, ("iris-cauchy",))


@pytest.fixture(scope="module")
def frame(tmp_path_factory):
    path = tmp_path_factory.mktemp("cauchy") / "r"
    return run_all(path, make_plan(SETTINGS, ("iris-cauchy",)), settings=SETTINGS)


def oracle_of(group, settings=SETTINGS, index=0):
    law, key = group.law[index], group.keys[index]
    return Oracle(group.net.build(), law, key, settings.sampling)


def predicted(group, name, oracle):
    rule = sdp_ref.rule(name)
    law, *_ = predict.predict(rule, oracle.net, group.law, group.keys)
    return predict.prediction_of(rule, law[0], oracle)


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


def test_joint_samples_of_sdp_are_those_of_the_linearised_net(plan):
    group = list(plan.groups.values())[1]
    oracle = oracle_of(group)
    sdp = predicted(group, "sdp", oracle)
    net, x = group.net.build().double(), oracle.law.location.double()
    location, jacobian = jacobian_of(net, x)
    deviations = sdp.samples - location
    assert torch.linalg.matrix_rank(jacobian[0]) == 3
    # Every sample is J eps of some eps: with the noise of seed "rule", of this one.
    eps = oracle.draw(lambda v: v - x, oracle.law.to(dtype=torch.float64))
    assert torch.allclose(deviations, eps @ jacobian[0].T, rtol=1e-9, atol=1e-9)
    # Each output alone follows the rule's own law: distances of two samples from one law.
    for j in range(3):
        pair = [np.sort(values[:, j].numpy()) for values in (sdp.samples, sdp.outputs)]
        positions = (LEVELS * (len(pair[0]) - 1)).astype(int)
        q = np.tan(math.pi * (LEVELS - 0.5))
        scale = float(sdp.law.scale[0, j])
        error = np.sqrt(LEVELS * (1 - LEVELS) / len(pair[0])) * math.pi * (1 + q**2) * scale
        for ordered in pair:
            assert (np.abs(ordered[positions] - float(location[0, j]) - q * scale) < 4.5 * error).all()


def test_output_metrics_judge_the_scale_that_the_rule_gives(plan, monkeypatch):
    """Not that of the Jacobian which the joint samples are made of: a rule gone wrong is seen."""
    group = next(iter(plan.groups.values()))
    oracle = oracle_of(group)
    right = predicted(group, "sdp", oracle)
    wrong = predict.prediction_of(
        sdp_ref.rule("sdp"), dataclasses.replace(right.law, scale=2 * right.law.scale), oracle
    )
    measure = metric("iqr_ratio").measure
    for (_, of_right), (_, of_wrong) in zip(measure(oracle, right), measure(oracle, wrong), strict=True):
        assert of_wrong.value == pytest.approx(2 * of_right.value, rel=1e-9)
    assert torch.equal(right.samples, wrong.samples)


def test_total_variation_of_a_wrong_scale_has_its_closed_form(plan):
    """TV of Cauchy laws of scales 1 and 2, seen in bins of equal mass."""
    group = next(iter(plan.groups.values()))
    oracle = oracle_of(group)
    right = predicted(group, "sdp", oracle)
    wrong = Prediction(dataclasses.replace(right.law, scale=2 * right.law.scale), oracle)
    exact = 2 / math.pi * (math.atan(math.sqrt(2)) - math.atan(math.sqrt(0.5)))
    partition = oracle.of_pilot(OutputBins.from_samples, 2**13, bins=50)
    for true, rule in zip(oracle.counts(partition), partition.counts(wrong.outputs), strict=True):
        floor = total_variation_floor(true, oracle.key.samples)
        estimate = total_variation_of_counts(true, rule, floor)
        assert abs(estimate.value - exact) < floor.mean + 4 * estimate.stderr


@pytest.mark.parametrize(
    ("law", "message"),
    [
        (unchecked(sdp_ref.Cauchy, torch.full((1, 3), math.nan), torch.ones(1, 3)), "location is not finite"),
        (unchecked(sdp_ref.Cauchy, torch.zeros(1, 3), torch.full((1, 3), math.inf)), "scale is not finite"),
        (unchecked(sdp_ref.SymmetricStable, torch.zeros(1, 3), -torch.ones(1, 3), 1.5), "scale is negative"),
        (None, "neither a law nor samples"),
    ],
)
def test_a_prediction_that_is_no_law_is_refused(plan, law, message):
    with pytest.raises(ValueError, match=message):
        Prediction(law, oracle_of(next(iter(plan.groups.values()))))


@pytest.mark.parametrize("sampler", ["mc", "sobol"])
def test_cauchy_noise_goes_with_every_sampler(sampler):
    settings = SETTINGS.but(sampler=sampler, sigmas=(1e-5,))
    plan = make_plan(settings, ("iris-cauchy",))
    (group,) = plan.groups.values()
    rows = run.run_group(group, plan.rows)
    assert FAILED not in set(rows["status"])
    joint = rows[rows["metric_spec"].str.startswith("tv_joint")]
    values = joint.groupby("rule")["value"].last()
    assert values["sdp"] < 0.5 * values["marginal_sdp"]
