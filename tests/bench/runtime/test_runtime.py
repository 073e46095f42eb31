import dataclasses
import itertools
import re
import sys

import numpy as np
import pandas as pd
import pytest
import torch

import sdp_ref as sr
from sdp_bench.bench.runtime import propagation, table
from sdp_bench.bench.runtime.timing import REGULAR, ImageNet, Mlp, TimeRatio, by_turns, sized
from sdp_bench.bench.runtime.workloads import RULES, Workload, build


class Clock:
    """Time that only the works let pass."""

    def __init__(self):
        self.time = 0.0

    def __call__(self):
        return self.time

    def work(self, *seconds):
        turns = itertools.cycle(seconds)

        def run():
            self.time += next(turns)

        return run


def test_works_take_turns_and_each_round_is_kept():
    now, order = Clock(), []
    works = {"a": now.work(1, 2, 3), "b": now.work(10, 40, 30)}
    spied = {name: lambda name=name: (order.append(name), works[name]()) for name in works}
    times = by_turns(spied, 3, warmup=0, now=now)
    assert order == ["a", "b"] * 3
    assert times == {"a": [1, 2, 3], "b": [10, 40, 30]}
    assert by_turns({"a": now.work(1, 2)}, 2, warmup=1, now=now) == {"a": [2, 1]}


def test_a_ratio_is_the_median_of_the_ratios_of_one_round():
    """It is not the ratio of medians, which a slow spell in one round would shift."""
    slow_spell = [1, 1, 50, 50, 1]
    assert TimeRatio.of([2 * s for s in slow_spell], slow_spell) == TimeRatio(2, 2, 2)
    assert TimeRatio.of([1, 2, 3, 4, 5], [1, 1, 1, 1, 1]) == TimeRatio(3, 2, 4)
    assert TimeRatio.of([3], [2]) == TimeRatio(1.5, 1.5, 1.5)
    with pytest.raises(ValueError, match="at least one round"):
        TimeRatio.of([], [])
    with pytest.raises(ValueError, match="shorter"):
        TimeRatio.of([1, 2], [1])


@pytest.mark.parametrize(
    ("name", "shape", "outputs", "parameters"),
    [
        ("mlp-1x100", (4,), 3, 100 * 5 + 3 * 101),
        ("mlp-2x10-7-5", (5,), 7, 10 * 6 + 110 + 7 * 11),
        ("cnn3-28x64-1", (1, 28, 28), 10, 137_226),
        ("cnn3-8x4", (3, 8, 8), 10, 4 * 28 + 8 * 37 + 10 * (8 * 4 + 1)),
        ("resnet18", (3, 32, 32), 10, 11_173_962),
    ],
)
def test_nets_by_name(name, shape, outputs, parameters):
    state = torch.random.get_rng_state()
    net, actual_shape = build(name)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert actual_shape == shape
    assert net(torch.zeros(1, *shape)).shape == (1, outputs)
    assert sum(p.numel() for p in net.parameters()) == parameters


@pytest.mark.parametrize(
    "name", ["", "mlp", "mlp-2", "cnn3-8", "cnn3-8xx4", "mlp-2x3-4-5-6", "a-b", "cnn3-8x4-", "٣-٣x٣"]
)
def test_other_names_are_not_nets(name):
    with pytest.raises(ValueError, match="no net is called"):
        sized(name)


def test_the_name_of_a_net_has_its_sizes():
    assert sized("mlp-2x3") == Mlp(2, 3, outputs=3, inputs=4) == sized(Mlp(2, 3).name)
    assert sized(Mlp(2, 30, 7, 100).name) == Mlp(2, 30, 7, 100)
    assert sized("cnn3-8x4") == ImageNet("cnn3", 8, 3, 4)


def test_unknown_presets_and_missing_devices_are_refused(monkeypatch):
    with pytest.raises(ValueError, match="choose from smoke, quick, paper"):
        table.measure("huge")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="no CUDA device here"):
        table.measure("smoke", "cuda")


@pytest.mark.rounding
def test_a_forward_pass_gives_what_the_rule_gives_and_no_gradient():
    workload = Workload.of("cnn3", 3)
    for method in RULES:
        location, scale = workload.forward(method)()
        law = sr.propagate(workload.net, workload.law, method)
        assert torch.equal(location, law.location)
        assert torch.equal(scale, law.covariance if method == "sdp" else law.variance)
        assert not scale.requires_grad
    location, scale = workload.forward(REGULAR)()
    assert scale is None
    assert torch.equal(location, workload.net(workload.inputs))


@pytest.mark.parametrize("name", ["mlp-2x20", "cnn3"])
def test_a_training_step_follows_the_gradient_of_its_loss(name):
    workload = Workload.of(name, 2)
    for method in (REGULAR, *RULES):
        step = workload.training_step(method)
        before = step()
        for parameter in workload.net.parameters():
            assert parameter.grad is not None
        squared = sum(float(p.grad.square().sum()) for p in workload.net.parameters())
        rate = 1e-2 * float(before) / squared
        with torch.no_grad():
            for parameter in workload.net.parameters():
                parameter -= rate * parameter.grad
        assert 0.985 < float(step() / before) < 0.995  # a step along the gradient that takes off 1 %


def test_a_table_has_each_method_and_its_ratio():
    now = Clock()
    ticks = itertools.count()

    def tick():
        now.time += next(ticks) % 2  # a second for each work
        return now.time

    preset = table.Preset(batch=3, rounds=2, architectures=("mlp-1x10", "no such net"))
    skipped = []
    rows = table.measure(preset, now=tick, on_skip=skipped.append)
    assert skipped == ["no net 'no such net' in this version"]
    methods = Workload.of("mlp-1x10", 1).methods()
    assert [(r.phase, r.method) for r in rows] == list(itertools.product(table.PHASES, methods))
    for row in rows:
        assert (row.seconds, row.ratio, row.ratio_lower, row.ratio_upper) == (1, 1, 1, 1)
        assert row.epoch_seconds == 16_667  # 50 000 images by three
        assert (row.batch, row.rounds, row.torch) == (3, 2, torch.__version__)


def test_a_preset_may_name_its_methods_and_phases(monkeypatch):
    monkeypatch.setitem(sys.modules, "distprop", None)  # as where it is not installed
    skipped = []
    preset = table.Preset(2, 1, ("mlp-1x10-5-6",), phases=("forward",), methods=("dvia", "distprop"))
    rows = table.measure(preset, on_skip=skipped.append)
    assert [(r.phase, r.method) for r in rows] == [("forward", "regular"), ("forward", "dvia")]
    assert skipped == ["mlp-1x10-5-6, forward: distprop is not installed"]


def test_what_a_rule_does_not_support_is_left_out_with_a_note(monkeypatch):
    forward = Workload.forward

    def refusing(self, method):
        if method == "marginal_sdp":
            raise sr.UnsupportedError(method, "Conv2d", "0")
        return forward(self, method)

    monkeypatch.setattr(Workload, "forward", refusing)
    skipped = []
    rows = table.measure(table.Preset(2, 1, ("mlp-1x10",)), on_skip=skipped.append)
    assert skipped == ["mlp-1x10, forward: rule 'marginal_sdp' does not support Conv2d (at '0' in the net)"]
    measured = {(row.phase, row.method) for row in rows}
    assert ("forward", "marginal_sdp") not in measured
    assert ("training_step", "marginal_sdp") in measured


def test_a_table_comes_back_from_its_file(tmp_path):
    rows = table.measure(table.Preset(2, 2, ("mlp-1x10",)))
    table.save(rows, tmp_path / "deep" / "runtime.csv")
    assert table.load(tmp_path / "deep" / "runtime.csv") == rows
    pd.DataFrame({"method": ["sdp"]}).to_csv(tmp_path / "other.csv")
    with pytest.raises(ValueError, match="not a runtime table: it has no column architecture"):
        table.load(tmp_path / "other.csv")
    table.save([dataclasses.replace(rows[0], architecture="a-b")], tmp_path / "named.csv")
    with pytest.raises(ValueError, match="no net is called 'a-b'"):
        table.load(tmp_path / "named.csv")


@pytest.mark.parametrize(
    ("changed", "said"),
    [({"seconds": ""}, "could not convert"), ({"seconds": 0.0}, "seconds is 0"), ({"batch": 1.5}, "int")],
)
def test_a_table_with_invalid_names_or_times_is_refused(tmp_path, changed, said):
    (row, *_) = table.measure(table.Preset(2, 2, ("mlp-1x10",), ("forward",)))
    pd.DataFrame([dataclasses.asdict(row) | changed]).to_csv(tmp_path / "runtime.csv")
    with pytest.raises(ValueError, match=re.escape(said)):
        table.load(tmp_path / "runtime.csv")


GRIDS = [propagation.Forward, propagation.TrainingStep, propagation.Sizes, propagation.WholeNet]


@pytest.mark.parametrize("grid", GRIDS)
def test_benchmarks_run_on_every_method(grid):
    assert len(grid.param_names) == len(grid.params)
    for net, method in itertools.product(grid.params[0], grid.params[1]):
        if net in ("resnet18", "mlp-4x1000"):
            continue
        benchmark = grid()
        benchmark.setup(net, method, "cpu")
        benchmark.time_pass(net, method, "cpu")
    assert np.isfinite(benchmark.timer())
