"""The runtime table and the asv suite: what is timed, not how long it takes."""

import dataclasses
import itertools
import json
import math
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

import sdp_ref as sr
from sdp_bench.bench.runtime import propagation, table, workloads
from sdp_bench.bench.runtime.timing import REGULAR, ImageNet, Mlp, Ratio, by_turns, clock, sized
from sdp_bench.bench.runtime.workloads import DISTPROP, RULES, NotAtThisCommitError, Workload, build
from tests.stand_in import StandIn

ROOT = Path(__file__).parents[3]


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


@pytest.fixture
def one_thread():
    """One thread of torch, given back afterwards."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


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
    assert Ratio.of([2 * s for s in slow_spell], slow_spell) == Ratio(2, 2, 2)
    assert Ratio.of([1, 2, 3, 4, 5], [1, 1, 1, 1, 1]) == Ratio(3, 2, 4)
    assert Ratio.of([3], [2]) == Ratio(1.5, 1.5, 1.5)
    with pytest.raises(ValueError, match="at least one round"):
        Ratio.of([], [])
    with pytest.raises(ValueError, match="shorter"):
        Ratio.of([1, 2], [1])


def test_the_clock_of_a_cpu_counts_work_and_not_waiting():
    import time

    start = clock()
    time.sleep(0.2)
    waited = clock() - start
    start = time.process_time()
    while time.process_time() - start < 0.2:
        pass
    assert clock() >= start + 0.2
    assert waited < 0.1


@pytest.mark.parametrize(
    ("name", "shape", "outputs", "parameters"),
    [
        ("mlp-1x100", (4,), 3, 100 * 5 + 3 * 101),
        ("mlp-24x10-7", (4,), 7, 10 * 5 + 23 * 110 + 7 * 11),
        ("mlp-2x10-7-5", (5,), 7, 10 * 6 + 110 + 7 * 11),
        ("cnn3", (3, 32, 32), 10, 64 * 28 + 128 * 577 + 10 * 8193),
        ("cnn3-28x64-1", (1, 28, 28), 10, 137_226),
        ("cnn3-8x4", (3, 8, 8), 10, 4 * 28 + 8 * 37 + 10 * (8 * 4 + 1)),
        ("resnet18", (3, 32, 32), 10, 11_173_962),
    ],
)
def test_nets_by_name(name, shape, outputs, parameters):
    state = torch.random.get_rng_state()
    net, found = build(name)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert found == shape
    assert net(torch.zeros(1, *shape)).shape == (1, outputs)
    assert sum(p.numel() for p in net.parameters()) == parameters


def test_a_net_that_this_version_lacks_is_one_that_asv_skips():
    with pytest.raises(NotImplementedError, match="no net 'transformer9' in this version") as raised:
        build("transformer9")
    assert raised.type is NotAtThisCommitError


@pytest.mark.parametrize(
    "name", ["", "mlp", "mlp-2", "cnn3-8", "cnn3-8xx4", "mlp-2x3-4-5-6", "a-b", "cnn3-8x4-", "٣-٣x٣"]
)
def test_other_names_are_no_nets(name):
    with pytest.raises(ValueError, match="no net is called"):
        sized(name)


def test_nets_keep_their_names():
    assert sized("mlp-2x3") == Mlp(2, 3, outputs=3, inputs=4) == sized(Mlp(2, 3).name)
    assert sized(Mlp(2, 30, 7, 100).name) == Mlp(2, 30, 7, 100)
    assert sized("cnn3-8x4") == ImageNet("cnn3", 8, 3, 4)


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


def test_sdp_agrees_with_distprop():
    pytest.importorskip(DISTPROP)
    workload = Workload.of("cnn3", 3)
    value, covariance = workload.forward("sdp")()
    their_value, theirs = workload.forward(DISTPROP)()
    assert torch.equal(value, their_value)
    assert (covariance - theirs).abs().max() < 1e-4 * theirs.abs().max()
    gradients = {}
    for method in ("sdp", DISTPROP):
        workload.training_step(method)()
        gradients[method] = [p.grad.clone() for p in workload.net.parameters()]
    for ours, other in zip(*gradients.values(), strict=True):
        assert (ours - other).abs().max() <= 1e-4 * other.abs().max()


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


def test_what_a_rule_cannot_do_is_left_out_and_told(monkeypatch):
    real = Workload.forward

    def refuse(self, method):
        if method == "marginal_sdp":
            raise sr.UnsupportedError(method, "Conv2d", "0")
        return real(self, method)

    monkeypatch.setattr(Workload, "forward", refuse)
    skipped = []
    rows = table.measure(table.Preset(2, 1, ("mlp-1x10",)), on_skip=skipped.append)
    assert skipped == ["mlp-1x10, forward: rule 'marginal_sdp' does not support Conv2d (at '0' in the net)"]
    assert ("forward", "marginal_sdp") not in {(r.phase, r.method) for r in rows}
    assert ("training_step", "marginal_sdp") in {(r.phase, r.method) for r in rows}


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
    [
        ({"architecture": ""}, "no net is called ''"),
        ({"seconds": "abc"}, "abc"),
        ({"seconds": ""}, "could not convert"),
        ({"seconds": 0.0}, "seconds is 0"),
        ({"ratio": math.inf}, "ratio is inf"),
        ({"batch": 1.5}, "int"),
    ],
)
def test_a_table_with_what_is_no_name_or_no_time_is_refused(tmp_path, changed, said):
    (row, *_) = table.measure(table.Preset(2, 2, ("mlp-1x10",), ("forward",)))
    pd.DataFrame([dataclasses.asdict(row) | changed]).to_csv(tmp_path / "runtime.csv")
    with pytest.raises(ValueError, match=re.escape(said)):
        table.load(tmp_path / "runtime.csv")


def test_names_in_a_table_may_be_digits(tmp_path):
    (row, *_) = table.measure(table.Preset(2, 2, ("mlp-1x10",), ("forward",)))
    named = dataclasses.replace(row, architecture="5", torch="2.10", device="nan")
    table.save([named], tmp_path / "runtime.csv")
    assert table.load(tmp_path / "runtime.csv") == [named]


def test_ratios_stand_beside_the_papers_where_it_has_them():
    def row(architecture, phase, method, ratio):
        place = {"batch": 128, "device": "CPU", "torch": "2", "threads": 1, "rounds": 1}
        times = {"seconds": 1.0, "epoch_seconds": 391.0}
        return table.Row(
            architecture, phase, method, **place, **times, ratio=ratio, ratio_lower=1, ratio_upper=9
        )

    published = pd.read_csv(ROOT / "reports/paper/experiments/runtime_cifar10.csv", dtype=str)
    rows = [
        row("resnet18", "training_step", "sdp", 10.0),
        row("resnet18", "forward", "sdp", 9.0),
        row("cnn3", "training_step", REGULAR, 1.0),
        row("cnn3", "training_step", DISTPROP, 17.0),
    ]
    found = table.beside_paper(rows, published)
    assert [c.paper for c in found] == [pytest.approx(251 / 9.85), None, 1.0, None]
    assert found[0].measured == Ratio(10.0, 1, 9)
    assert (found[0].architecture, found[0].method) == ("resnet18", "sdp")


def test_presets_and_devices_that_are_not_there(monkeypatch):
    with pytest.raises(ValueError, match="choose from smoke, quick, paper"):
        table.measure("huge")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="no CUDA device here"):
        table.measure("smoke", "cuda")


def test_asv_takes_its_benchmarks_from_the_package():
    configuration = json.loads((ROOT / "asv.conf.json").read_text())
    assert (ROOT / configuration["benchmark_dir"]).samefile(Path(propagation.__file__).parent)
    assert "{conf_dir}/constraints.txt" in configuration["install_command"][0]


GRIDS = [propagation.Forward, propagation.TrainingStep, propagation.Sizes, propagation.WholeNet]


@pytest.mark.parametrize("grid", GRIDS)
def test_benchmarks_run_on_every_method(grid, one_thread):
    assert len(grid.param_names) == len(grid.params)
    for net, method in itertools.product(grid.params[0], grid.params[1]):
        if net in ("resnet18", "mlp-4x1000"):
            continue
        benchmark = grid()
        benchmark.setup(net, method, "cpu")
        benchmark.time_pass(net, method, "cpu")
    assert np.isfinite(benchmark.timer())


def test_works_are_warm_when_they_are_timed(monkeypatch, one_thread):
    calls = []
    monkeypatch.setattr(Workload, "training_step", lambda self, method: lambda: calls.append(method))
    propagation.TrainingStep().setup("mlp-4x100", "sdp", "cpu")
    assert calls == ["sdp"] * propagation.WARMUP
    assert propagation.WARMUP > 0


def test_benchmarks_are_skipped_where_there_is_no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for grid in (propagation.Forward, propagation.OnGPU):
        for place in propagation.ON_GPU:
            with pytest.raises(NotImplementedError, match="no CUDA device"):
                grid().setup("cnn3", REGULAR, place)
    with pytest.raises(NotImplementedError, match="no CUDA device"):
        propagation.Clocks().setup()
    assert workloads.described() == "no GPU"


@pytest.fixture
def cuda(monkeypatch, one_thread):
    """A stand-in in the place of a GPU, as far as there are no timers."""

    class Event:
        def __init__(self, *, enable_timing):
            assert enable_timing

        def record(self):
            self.recorded = True

        def elapsed_time(self, other):
            assert self.recorded
            assert other.recorded
            return 2.0

    said = {
        "driver_version": "550.1",
        "clocks.sm,clocks.max.sm,clocks_throttle_reasons.active": "1500, 1980, 0x0000000000000004",
    }

    def program(command, **_):
        (query,) = (each.partition("=")[2] for each in command if each.startswith("--query-gpu="))
        return SimpleNamespace(stdout=said[query] + "\n")

    monkeypatch.setattr(workloads.subprocess, "run", program)
    monkeypatch.setattr(propagation._Works, "accelerator", str(StandIn.device))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a GPU")
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 1000)
    with StandIn() as stand_in:
        yield stand_in


@pytest.mark.parametrize("grid", [propagation.OnGPU, propagation.TrainingOnGPU])
def test_what_is_timed_on_a_gpu_runs_on_it_and_waits_for_nothing(grid, cuda, monkeypatch):
    place = next(iter(propagation.ON_GPU))
    batches = []
    real = Workload.of
    monkeypatch.setattr(
        Workload, "of", lambda net, batch, device: batches.append(batch) or real(net, batch, device)
    )
    for method in grid.params[1]:
        benchmark = grid()
        benchmark.setup("mlp-1x10", method, place)
        cuda.synchronisations.clear()
        assert benchmark.track_device_seconds() == 2e-3
        assert benchmark.track_peak_memory() == 1000
        assert cuda.synchronisations == [] or method == "marginal_moment_matching"
        result = benchmark.work()
        assert (result[0] if isinstance(result, tuple) else result).device == cuda.device
    assert set(batches) == {propagation.ON_GPU[place]}


def test_how_a_gpu_is_clocked_is_tracked(cuda, monkeypatch):
    monkeypatch.setattr(Workload, "of", lambda *_: SimpleNamespace(forward=lambda method: lambda: None))
    clocks = propagation.Clocks()
    clocks.setup()
    assert clocks.track_share_of_highest_clock() == 1500 / 1980
    assert clocks.track_throttled() == 1
    assert not workloads.State(210, 1980, 0x1).throttled  # it is idle
    assert workloads.described().startswith("a GPU, driver 550.1, torch 2.")

    def gone(*_, **__):
        raise FileNotFoundError("nvidia-smi")

    monkeypatch.setattr(workloads.subprocess, "run", gone)
    with pytest.raises(NotImplementedError, match="does not say how the GPU is clocked: nvidia-smi"):
        clocks.setup()
    assert "driver unknown" in workloads.described()


def test_covariances_of_images_are_carried_where_they_fit(one_thread, monkeypatch):
    monkeypatch.setattr(propagation, "WARMUP", 0)
    for method in propagation.FullCovariance.params[1]:
        propagation.FullCovariance().setup("cnn3-8x8", method, "cpu")


@pytest.mark.slow
@pytest.mark.parametrize("grid", [propagation.Forward, propagation.TrainingStep])
@pytest.mark.parametrize("method", [REGULAR, *RULES])
def test_benchmarks_run_on_resnet18(grid, method, one_thread):
    benchmark = grid()
    benchmark.setup("resnet18", method, "cpu")
    benchmark.time_pass("resnet18", method, "cpu")
    result = benchmark.work()
    tensors = [t for t in (result if isinstance(result, tuple) else (result,)) if t is not None]
    assert all(torch.isfinite(t).all() for t in tensors)
