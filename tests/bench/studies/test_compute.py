import math
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import sdp_ref as sr
from sdp_bench.bench.datasets.download import DataMissingError
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.experiments.plan import plan_of
from sdp_bench.bench.results.columns import MEASURED, UNDEFINED
from sdp_bench.bench.runs.driver import run_group
from sdp_bench.bench.settings import Design, Settings, Size
from sdp_bench.bench.studies.compute import BRIER, EXPERIMENT, SAMPLERS, SIZES, USES
from sdp_bench.bench.studies.compute import group as study

LEVELS = (0.01, 1.0, 100.0)


@pytest.fixture(scope="module", autouse=True)
def made_up_images():
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(50, 49, generator=generator), torch.randint(10, (50,), generator=generator)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "images", lambda _split: images)
        patch.setattr(study, "KINK_DISTANCES", LEVELS)
        yield


def settings(**size):
    return Settings(
        design=Design(width=16),
        sizes={EXPERIMENT.name: Size(**{"nets": 1, "depths": (1,), "samples": 2048} | size)},
    )


def test_the_distance_of_a_kink_is_that_of_a_hyperplane():
    """|w x + b| / |w| in the first layer, and that of the linear piece at x in the second."""
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1), nn.ReLU(), nn.Linear(1, 1)).double()
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[3.0, 4.0], [1.0, 0.0]]))
        net[0].bias.copy_(torch.tensor([5.0, -2.0]))
        net[2].weight.copy_(torch.tensor([[1.0, 1.0]]))
        net[2].bias.copy_(torch.tensor([-1.0]))
    found = study.kinks(net, torch.zeros(1, 2).double())
    # the second unit is off at 0, so the second layer has 3 x + 4 y + 5 - 1
    assert found.tolist() == pytest.approx([1.0, 2.0, 0.8])


def test_units_without_a_gradient_have_no_kink():
    net = nn.Sequential(nn.Linear(2, 1), nn.ReLU(), nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1)).double()
    with torch.no_grad():
        net[0].bias.fill_(-100.0)
    assert study.kinks(net, torch.zeros(1, 2).double()).isinf().tolist() == [False, True]


@pytest.fixture(scope="module")
def truth():
    """Samples of two independent normal outputs with means 0 and 1 and standard deviations 1 and 2."""
    z = torch.randn(2**16, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return study.Truth(z * torch.tensor([1.0, 2.0]) + torch.tensor([0.0, 1.0]))


def law(mean, deviation):
    return sr.DiagonalGaussian(torch.tensor([mean]).double(), torch.tensor([deviation]).double() ** 2)


def test_the_true_law_has_errors_of_the_size_of_the_floors(truth):
    found, floors = truth.errors(truth.of_law(law([0.0, 1.0], [1.0, 2.0]))), truth.floors()
    assert set(found) == set(floors) == {*USES, BRIER}
    for use in USES:
        # root mean squares of few normal errors: four times their expectation has a probability below 1e-3
        assert found[use] < 4 * floors[use] + 2e-3
    assert floors["mean"] == pytest.approx(2**-8, rel=0.9)


def test_errors_of_a_wrong_law_are_those_of_quadrature(truth):
    found = truth.errors(truth.of_law(law([0.5, 1.0], [1.0, 4.0])))
    assert found["mean"] == pytest.approx(0.5 / math.sqrt(2), abs=0.01)
    assert found["standard_deviation"] == pytest.approx(math.log(2) / math.sqrt(2), abs=0.01)
    # W1 of a shift by 0.5, and of a scale that is too large by one: E|z|
    expected = math.sqrt((0.5**2 + (2 / math.pi)) / 2)
    assert found["whole_distribution"] == pytest.approx(expected, abs=0.01)
    ndtr, quantile = torch.special.ndtr, float(torch.special.ndtri(torch.tensor(0.01).double()))
    tails = [(quantile - 0.5, quantile + 0.5), (quantile / 2, quantile / 2)]
    relative = [float(ndtr(torch.tensor(end).double())) / 0.01 - 1 for ends in tails for end in ends]
    assert found["tail"] == pytest.approx(math.sqrt(np.mean(np.square(relative))), rel=0.05)
    chance = [float(ndtr(torch.tensor(1 / math.sqrt(5)))), float(ndtr(torch.tensor(0.5 / math.sqrt(17))))]
    assert found["class"] == pytest.approx(abs(chance[0] - chance[1]), abs=0.01)


@pytest.fixture(scope="module")
def linear_net():
    """A linear net at noise of scale 0.5, and samples of its outputs."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(49, 10)).double().requires_grad_(False)
    propagated = study.Propagated(net, net, torch.zeros(1, 49).double(), 0.5, root=1, is_wide=False)
    return net, propagated, study.Truth(propagated.outputs(study.normals("plain", 1, 2**15, 0))[0])


@pytest.mark.parametrize("sampler", ["plain", "antithetic", "sobol", "whitened_sobol"])
def test_samplers_draw_standard_normals(sampler):
    z = study.normals(sampler, 8, 256, seed=3)
    assert z.shape == (8, 256, 49)
    assert z.isfinite().all()
    assert z.mean() == pytest.approx(0, abs=5 / math.sqrt(z.numel()))
    assert z.var() == pytest.approx(1, abs=5 * math.sqrt(2 / z.numel()))
    assert not torch.equal(z[0], z[1])
    assert torch.equal(z, study.normals(sampler, 8, 256, seed=3))
    if sampler in ("antithetic", "whitened_sobol"):
        assert z.mean(1).abs().max() < 1e-12


@pytest.mark.parametrize("sampler", ["whitened", "whitened_sobol"])
def test_whitened_points_have_the_moments_of_the_noise(sampler):
    z = study.normals(sampler, 3, 256, seed=3)
    assert z.mean(1).abs().max() < 1e-12
    assert torch.allclose(z.mT @ z / 256, torch.eye(49).double().expand(3, -1, -1))
    few = study.normals(sampler, 2, 16, seed=3)[:, :8]  # orthogonal, with the norm of typical noise
    assert torch.allclose(few @ few.mT, 49 * torch.eye(8).double().expand(2, -1, -1))


def test_whitened_points_are_exact_on_a_linear_net(linear_net):
    net, propagated, truth = linear_net
    summary = propagated.samples(truth, "whitened", 256)
    deviation = 0.5 * net[0].weight.norm(dim=1)
    assert torch.allclose(summary["mean"], net(propagated.x).expand(32, -1))
    assert torch.allclose(summary["standard_deviation"], deviation.expand(32, -1))


def test_the_brier_score_of_plain_samples_is_that_of_theory(truth):
    """(1 - |p|^2) / n, of 4000 estimates with four standard errors, and of the oracle by its own size."""
    generator = torch.Generator().manual_seed(1)
    rows = torch.randint(len(truth.outputs), (4000, 50), generator=generator)
    chance = truth.own["class"]
    expected = float(1 - chance.square().sum()) / 50
    summary = truth.of_samples(truth.outputs[rows])
    scores = (summary["class"] - chance).square().sum(1)
    brier = truth.errors(summary)[BRIER]
    assert abs(brier - expected) < 4 * float(scores.std()) / 4000**0.5 + 1e-4
    assert truth.floors()[BRIER] == pytest.approx(50 * expected / len(truth.outputs), rel=1e-3)


@pytest.mark.parametrize("sampler", ["whitened", study.CONTROLLED])
def test_samplers_that_fit_a_gaussian_have_the_errors_of_the_exact_law_on_a_linear_net(linear_net, sampler):
    """Up to the floors, which are the errors of the truth, and the error of the draws for the class."""
    _, propagated, truth = linear_net
    errors = truth.errors(propagated.samples(truth, sampler, 256))
    floors = truth.floors()
    assert set(errors) == {*USES, BRIER}
    for use in USES:
        assert errors[use] < 4 * floors[use] + 0.01


def test_the_control_variate_is_exact_on_a_linear_net(linear_net):
    net, propagated, truth = linear_net
    summary = propagated.samples(truth, study.CONTROLLED, 16)
    deviation = 0.5 * net[0].weight.norm(dim=1)
    assert torch.allclose(summary["mean"], net(propagated.x).expand(64, -1))
    assert torch.allclose(summary["standard_deviation"], deviation.expand(64, -1))


def test_points_of_a_gaussian_have_its_moments():
    root = torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    covariance = root @ root.mT
    points = study.scattered(covariance, covariance.diagonal(dim1=1, dim2=2).sqrt())
    assert points.mean(1).abs().max() < 0.01
    assert (study.covariances(points) - covariance).abs().max() < 0.02 * covariance.max()


def test_processor_times_are_medians_without_the_first_call(monkeypatch):
    """On a clock that advances by a known time for each call."""
    now = [0.0]
    durations = {"first is slow": [5.0, 0.1, 0.3, 0.2], "slow": [20.0]}
    monkeypatch.setattr(study, "process_time", lambda: now[0])

    def call(name):
        now[0] += durations[name].pop(0)

    calls = {name: partial(call, name) for name in durations}
    # 0.1 + 0.3 exceeds the limit of 0.25, so there is no fourth call
    assert study.processor_times(calls) == pytest.approx({"first is slow": 0.2, "slow": 20.0})
    assert durations == {"first is slow": [0.2], "slow": []}


def test_times_of_one_input_and_a_batch_are_recorded_for_every_method():
    plan = plan_of([EXPERIMENT], settings(), [])
    ((name, group),) = (pair for pair in plan.groups.items() if pair[1].objective == "relu 1x16")
    rows = run_group(group, plan.rows[plan.rows["group"] == name])
    assert set(rows["status"]) == {MEASURED}
    times = rows.pivot(index="rule", columns="component", values="value")
    assert (times["1"] > 0).all()
    assert set(times.index) == set(group.methods) >= {"sdp", "unscented", "whitened:samples=16"}
    for size in SIZES:  # their points are drawn once, for many inputs
        alike = {f"{sampler}:samples={size}" for sampler in SAMPLERS} - {f"{study.CONTROLLED}:samples={size}"}
        assert times.loc[sorted(alike), "8"].nunique() == 1


@pytest.fixture(scope="module")
def measured(made_up_images):
    """The group and the measurements of one random ReLU net."""
    plan = plan_of([EXPERIMENT], settings(), [])
    ((name, group),) = (pair for pair in plan.groups.items() if pair[1].objective == "relu 1x16 random")
    return group, run_group(group, plan.rows[plan.rows["group"] == name])


def test_a_group_records_every_method_at_every_level(measured):
    group, rows = measured
    assert set(rows["status"]) == {MEASURED, UNDEFINED}  # most methods have some of the metrics
    assert rows.loc[rows["status"] == UNDEFINED, "reason"].isna().all()
    rows = rows[rows["status"] == MEASURED]
    components = rows["component"].fillna("")
    found = set(zip(rows["rule"], rows["metric_spec"], components, strict=True))
    assert len(found) == len(rows)
    for method in group.methods:
        assert (method, "operations", "") in found
    for level in LEVELS:
        assert ("regular", "noise", f"{level:g}") in found
        assert all(("sdp", use, f"{level:g}") in found for use in (*USES, BRIER))


def test_more_noise_changes_the_side_of_more_units(measured):
    _, rows = measured
    kinks = rows.loc[rows["metric_spec"] == "kinks", "value"].dropna().tolist()
    assert sorted(kinks) == kinks
    assert 0 < kinks[0] < kinks[-1] < 0.5


def test_the_error_of_plain_means_is_that_of_theory(measured):
    """1 / sqrt(k) standard deviations, with the oracle's own error."""
    _, rows = measured
    means = rows[rows["metric_spec"] == "mean"]
    for size in SIZES:
        rms = means.loc[means["rule"] == f"plain:samples={size}", "value"]
        assert rms.mean() == pytest.approx(math.sqrt(1 / size + 1 / 2048), rel=0.25)


def test_moments_of_one_hidden_layer_are_exact_by_moment_matching(measured):
    _, rows = measured
    means = rows[rows["metric_spec"] == "mean"].set_index(["rule", "component"])["value"]
    for level in LEVELS:
        assert means["moment_matching", f"{level:g}"] < 4 / math.sqrt(2048)


def test_groups_are_sorted_by_size_and_options_are_checked():
    sized = Settings(sizes={"compute": Size(nets=1, depths=(1, 4))})
    groups = [*plan_of([EXPERIMENT], sized, []).groups.values()]
    widths = [int(each.label.partition("x")[2].split()[0]) for each in groups]
    sizes = [each.depth * width**2 for each, width in zip(groups, widths, strict=True)]
    assert sizes == sorted(sizes)
    assert len(groups) == (2 * 2 + 1 * 2) * 2 * 4  # nets, and times of architectures
    gelu = Settings(design=Design(activation="gelu", depths=(3,), width=5, nets=1))
    group = next(iter(plan_of([EXPERIMENT], gelu, []).groups.values()))
    assert (group.activation, group.depth, group.objective) == ("gelu", 3, "gelu 3x5 trained")
    with pytest.raises(UserError, match="relu and gelu, not tanh"):
        EXPERIMENT.plan(Settings(design=Design(activation="tanh")), [])


def test_without_the_images_there_is_nothing_to_run(monkeypatch):
    def missing(split):
        raise DataMissingError(f"no {split}")

    monkeypatch.setattr(study, "images", missing)
    with pytest.raises(DataMissingError):
        EXPERIMENT.plan(settings(), [])
