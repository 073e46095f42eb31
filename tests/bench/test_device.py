"""Runs on a device measure what runs on the CPU do: a group of every experiment, and every metric.

The device is a stand-in (:class:`tests.stand_in.StandIn`).
"""

import dataclasses
from contextlib import suppress

import numpy as np
import pytest
import torch

from sdp_bench.bench.datasets.base import ImageClassification
from sdp_bench.bench.experiments import experiment, experiments
from sdp_bench.bench.experiments.plan import plan_of
from sdp_bench.bench.metrics import metric
from sdp_bench.bench.metrics.oracle import Oracle
from sdp_bench.bench.nets.architectures import ImageArchitecture
from sdp_bench.bench.nets.net import best_classifier
from sdp_bench.bench.published import NotInstalledError, install_command, published_nets
from sdp_bench.bench.results.columns import CELL, FAILED
from sdp_bench.bench.runs.driver import run_group
from sdp_bench.bench.settings import Settings, Size
from sdp_bench.bench.studies.uci import group
from sdp_bench.bench.studies.uci.stacked import Hyperparameters
from tests.bench.conftest import made_up_tables, make_plan
from tests.bench.nets.helpers import RESNET, TEST, classifier
from tests.bench.studies import conftest as made
from tests.stand_in import StandIn

NETS = Settings().but(depths=(1,), width=8, nets=1, inputs=1, sigmas=(0.3,), training={"epochs": 10})
DRAWN = NETS.but(samples=4096, pilot_samples=4096, w1_points=100, certified_points=100)
SMALL = DRAWN.but(cells=64, bins=4)
PLAIN = frozenset({"iris", "ci"})
"""Kinds of experiments with plain nets: their samples are equal bit for bit; eigenvalues depend on the layout
in memory. In others the CPU has other kernels, so a sample in a thousand may lie in another cell."""


def image_plan(name, settings):
    """Of nets for images that are made up and small."""
    chosen = experiment(name)
    if name == "resnet-tv":
        small, net = RESNET, classifier(0.5)
    else:
        small = ImageArchitecture("vit", 1, 8, classes=3, width=8)
        net = dataclasses.replace(classifier(0.5), architecture=small, state=small.build(0).state_dict())
    return plan_of([dataclasses.replace(chosen, classifiers=(small,))], settings, [net])


def plan_for(name, settings):
    match name:
        case "uci":
            return plan_of([experiment(name)], settings.but(datasets=("yacht",)), [])
        case "selective":
            small = dataclasses.replace(settings, sizes={name: Size(nets=1, epochs=1)})
            return plan_of([experiment(name)], small, [])
        case "vision" | "resnet-tv":
            return image_plan(name, settings.but(samples=500, rules=("sdp", "marginal_sdp", "oracle_again")))
        case "sequence":
            nets = [
                best_classifier(architecture, "committed") for architecture in experiment(name).classifiers
            ]
            return plan_of([experiment(name)], settings, nets)
    return make_plan(settings, (name,))


def measured(plan):
    """Values and floors of the first group, by what they are of."""
    name, group = next(iter(plan.groups.items()))
    rows = run_group(group, plan.rows[plan.rows["group"] == name])
    assert FAILED not in set(rows["status"])
    rows["component"] = rows["component"].fillna("")
    names = [*CELL, "component", "status"]
    numbers = rows[["value", "floor", "stderr"]].itertuples(index=False, name=None)
    return dict(zip(rows[names].itertuples(index=False, name=None), numbers, strict=True))


@pytest.fixture
def made_up(monkeypatch, tmp_path):
    """Small data in the place of what would be loaded."""
    monkeypatch.setenv("SDP_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(group, "GRID", (Hyperparameters(1e-2, 0.0), Hyperparameters(1e-3, 1e-2)))
    made_up_tables(monkeypatch, 60)


QUICK = ("iris-cauchy", "resnet-tv", "selective", "uci")
"""An experiment of each kind; all others are measured with the slow tests."""


def skip_without_published_nets():
    for net in published_nets().values():
        with suppress(NotInstalledError):
            net.path()
            return
    pytest.skip(f"needs one of the packages: {install_command(published_nets())}")


@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name, known in experiments().items()
        if known.takes("device")
    ],
)
def test_a_group_of_every_experiment_is_measured_on_a_device_as_on_the_cpu(
    name, made_up, monkeypatch, tmp_path
):
    if name == "published":
        skip_without_published_nets()
    sets = made.MADE if name == "selective" else {}
    load = lambda self, split="test": sets.get((self.name, split), TEST)  # noqa: E731
    monkeypatch.setattr(ImageClassification, "load", load)
    here = measured(plan_for(name, SMALL))
    monkeypatch.setenv("SDP_BENCH_CACHE", str(tmp_path / "other"))  # nets are trained on the device too
    with StandIn() as stand_in:
        there = measured(plan_for(name, SMALL.but(device=str(stand_in.device))))
    assert stand_in.synchronisations
    assert there.keys() == here.keys()
    tolerance = {"rel": 1e-12} if name.partition("-")[0] in PLAIN else {"rel": 1e-5, "abs": 1e-3}
    for key, numbers in here.items():
        for number, other in zip(numbers, there[key], strict=True):
            assert other == pytest.approx(number, nan_ok=True, **tolerance), key


def oracle_of(settings):
    """Of the first group of nets on iris, and the group."""
    group = next(iter(plan_for("iris-tv", settings).groups.values()))
    net = group.net.build().to(settings.sampling.device)
    return Oracle(net, group.law[0], group.keys[0], settings.sampling), group


COUNTING = ("tv_headline", "tv_paper", "tv_class")


def test_an_oracles_samples_stay_on_the_device_until_something_needs_them_here(made_up):
    here, _ = oracle_of(SMALL)
    with StandIn() as stand_in:
        there, _ = oracle_of(SMALL.but(device=str(stand_in.device)))
        cells = [metric(name, SMALL.metric_options).partition(there) for name in COUNTING]
        assert there.resident.device == stand_in.device
        drawn = stand_in.copied
        counts = [there.counts(partition) for partition in cells]
        assert stand_in.copied - drawn == sum(partition.size for partition in counts)
        assert np.array_equal(there.extremes, here.extremes)
        summed = stand_in.copied
        assert there.moments.samples == len(here.samples)
        assert stand_in.copied - summed < here.samples.numel() / 10
        moved = stand_in.copied
        assert torch.equal(there.samples, here.samples)
        assert stand_in.copied - moved == here.samples.numel()
        assert there.samples is there.samples
    for partition, count in zip(cells, counts, strict=True):
        assert np.array_equal(count, here.counts(partition))
