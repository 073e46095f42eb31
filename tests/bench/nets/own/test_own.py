import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

import sdp_ref as sr
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.executors.local import LocalProcesses
from sdp_bench.bench.experiments import PRESETS, own_net
from sdp_bench.bench.experiments.plan import plan_of
from sdp_bench.bench.nets import net as trained
from sdp_bench.bench.nets.own import inputs as own_inputs
from sdp_bench.bench.nets.own import net as own
from sdp_bench.bench.nets.storage import from_file, to_file
from sdp_bench.bench.noise import noise_of
from sdp_bench.bench.replay import replay
from sdp_bench.bench.results.columns import CELL, MEASURED, UNSUPPORTED
from sdp_bench.bench.results.folder import read
from sdp_bench.bench.results.joined import nets
from tests.bench.conftest import left, run_all, statuses

SOURCE = '''
import itertools

import numpy as np
import torch
from torch import nn


def build():
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))


class Sum(nn.Module):
    """One number, without a dimension of its own."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(5, 6)

    def forward(self, x):
        return torch.tanh(self.inner(x)).sum(1)


def pictures():
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU())


def double():
    return build().double()


def half():
    return build().half()


class Normalised(Sum):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(6, track_running_stats=False)

    def forward(self, x):
        return self.norm(self.inner(x))


class Coupled(Sum):
    def forward(self, x):
        return self.inner(x - x.mean(0))


class Restless(Sum):
    def forward(self, x):
        return nn.functional.dropout(self.inner(x), 0.5, training=True)


class Pair(Sum):
    def forward(self, x):
        return x, x


class Endless(Sum):
    def forward(self, x):
        return self.inner(x) / 0


class Empty(Sum):
    def forward(self, x):
        return self.inner(x)[:, :0]


class Embedded(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 3)

    def forward(self, x):
        return self.table(x)


class Hidden(Sum):
    """Has a number that is no weight, another one each time."""

    numbers = itertools.count(1)

    def __init__(self):
        super().__init__()
        self.factor = float(next(self.numbers))

    def forward(self, x):
        return self.factor * self.inner(x)


class Drawn(Sum):
    """Draws its weights anew, outside of torch's generator."""

    def __init__(self):
        super().__init__()
        with torch.no_grad():
            self.inner.weight.copy_(torch.from_numpy(np.random.default_rng().normal(size=(6, 5))))


def breaks():
    raise KeyError("no such thing")


net = build()
number = 3
'''


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "theirs.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def inputs(tmp_path):
    return saved(tmp_path, np.random.default_rng(0).normal(size=(3, 5)))


def saved(folder, array, name="x.npy"):
    np.save(folder / name, array)
    return folder / name


@pytest.mark.parametrize(
    ("attribute", "shape", "outputs"), [("build", (3,), 3), ("net", (3,), 3), ("Sum", (), 1)]
)
def test_a_function_a_class_or_a_module(file, inputs, attribute, shape, outputs):
    net = own.find(f"{file}:{attribute}", inputs)
    assert net.architecture.output_shape == shape
    assert net.architecture.label == f"theirs.py:{attribute} 5 to {outputs}"
    assert net.build()(net.inputs).shape == (3, outputs)
    assert not net.build().training
    assert np.array_equal(net.inputs.numpy(), np.load(inputs).astype(np.float32))


@pytest.mark.rounding
def test_images_in_and_out_are_flattened_at_the_end(file, tmp_path):
    images = saved(tmp_path, np.random.default_rng(0).normal(size=(2, 1, 6, 6)))
    net = own.find(f"{file}:pictures", images)
    inner = net.build()[0]
    assert torch.equal(net.build()(net.inputs), inner(net.inputs).flatten(1))
    assert net.architecture.outputs == 2 * 4 * 4


def test_changes_to_a_net_are_reported(file, inputs):
    assert own.find(f"{file}:build", inputs).notes == (
        "Dropout came in training mode; the net is taken in evaluation mode",
    )
    half = own.find(f"{file}:half", inputs)
    assert "half precision" in " ".join(half.notes)
    assert {value.dtype for value in half.state.values()} == {torch.float32}
    double = own.find(f"{file}:double", inputs)
    assert {value.dtype for value in double.build().state_dict().values()} == {torch.float64}


def test_it_is_known_by_weights_and_source_and_results_hold_neither(file, inputs):
    net = own.find(f"{file}:build", inputs)
    assert own.find(f"{file}:build", inputs).digest == net.digest
    weights = {name: value + 1 for name, value in net.state.items()}
    longer = dataclasses.replace(net.code, source=net.code.source + "# more\n")
    others = {dataclasses.replace(net, state=weights).digest, dataclasses.replace(net, code=longer).digest}
    assert len({net.digest, *others}) == 3
    content = net.to_bytes()
    assert str(file.parent).encode() not in content
    assert b"nn.Sequential" not in content
    assert len(content) < 2000
    stored = trained.net_from_bytes(content, "stored")
    assert torch.equal(stored.inputs, net.inputs)
    with pytest.raises(
        UserError, match=r"theirs\.py:build: results hold its name and hash, but not its code"
    ):
        stored.build()
    again = own.again(stored, f"{file}:build", net.digest)
    assert torch.equal(again.build()(net.inputs), net.build()(net.inputs))
    file.write_text(SOURCE.replace("nn.ReLU()", "nn.Tanh()"))
    with pytest.raises(UserError, match=rf"has the digest .*, but the measurements are of {net.digest} \("):
        own.again(stored, f"{file}:build", net.digest)


def test_the_source_in_an_older_file_is_ignored(file, inputs, tmp_path):
    """Older files hold the source of the net, its weights, or the bytes of its program."""
    marker = tmp_path / "marker"
    net = own.find(f"{file}:build", inputs)
    tensors, about = from_file(net.to_bytes())
    del about["address"]
    source = f"import pathlib\npathlib.Path({str(marker)!r}).touch()\n"
    code = {"address": "theirs.py:build", "module": "", "attribute": "build", "source": source, "modules": []}
    program = {"program": torch.zeros(3, dtype=torch.uint8)}
    for more, where in (({}, code | {"folder": "", "trusted": True}), (program, "net.pt2")):
        stored = trained.net_from_bytes(to_file(tensors | more, about | {"code": where}), "stored")
        assert stored.code.address == (where if more else "theirs.py:build")
        with pytest.raises(UserError, match="not its code"):
            stored.build()
    assert not marker.exists()


def test_weights_are_captured_once(file, inputs):
    net = own.find(f"{file}:Drawn", inputs)
    assert torch.equal(net.build()(net.inputs), net.build()(net.inputs))
    assert own.find(f"{file}:Drawn", inputs).digest != net.digest


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ("absent", "there is no absent"),
        ("number", "neither a module nor makes one"),
        ("breaks", "cannot make the net: KeyError"),
        ("Coupled", "depends on the others of its batch"),
        ("Normalised", "cannot take inputs .*statistics of its batch.*track_running_stats"),
        ("Restless", "other outputs each time"),
        ("Endless", "NaN or infinity"),
        ("Empty", r"the net has no outputs \(shape \(3, 0\)\)"),
        ("Pair", "must return one tensor, got tuple"),
        ("Embedded", "cannot take inputs of shape .*float32"),
        ("Hidden", "another net each time"),
        ("pictures", "cannot take inputs"),
        ("1", "names no net"),
    ],
)
def test_an_invalid_net_is_refused_in_one_line(file, inputs, attribute, message):
    with pytest.raises(UserError, match=message) as caught:
        own.find(f"{file}:{attribute}", inputs)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(5), r"\(B, \*event\), B >= 1, got \(5,\); one input of n numbers is x\[None\]"),
        (np.zeros((0, 5)), "B >= 1"),
        (np.full((2, 5), np.nan), "input 0 .* not finite"),
        (np.array([[1.0], [1e300]]), "input 1 .* not finite in float32"),
        (np.array([["a"]]), "real numbers, got <U1"),
        (np.array([[1j]]), "real numbers"),
        (np.array([[1]]), r"whole numbers \(int64\).* give the embeddings"),
        (np.array([[None]], dtype=object), "pickles are not read"),
        (np.arange(101.0)[:, None], "101 inputs.*--rows 100"),
    ],
)
def test_inputs_that_cannot_be_taken(tmp_path, array, message):
    path = tmp_path / "x.npy"
    np.save(path, array, allow_pickle=True)
    with pytest.raises(UserError, match=message):
        own_inputs.read_inputs(path)
    path.write_text("1, 2\n")
    with pytest.raises(UserError, match=r"not a \.npy array"):
        own_inputs.read_inputs(path)


def test_a_file_of_inputs_that_is_not_an_array_is_refused(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.zeros(2))
    with pytest.raises(UserError, match=r"shape \(B, \*event\)"):
        own_inputs.read_inputs(tmp_path / "x.npz")
    with pytest.raises(UserError, match=r"cannot read absent\.npy: No such file"):
        own_inputs.read_inputs(Path("absent.npy"))


def test_marginal_rules_take_a_net_with_one_output(file, inputs):
    net = own.find(f"{file}:Sum", inputs)
    x = sr.DiagonalGaussian(net.inputs, torch.ones_like(net.inputs))
    for rule in ("sdp", "marginal_sdp", "marginal_moment_matching"):
        assert sr.propagate(net.build(), x, rule).mean.shape == (len(net.inputs), 1)


def test_slow_nets_have_fewer_samples_and_a_note(file, inputs):
    net = own.find(f"{file}:build", inputs)
    assert own_net.samples_for(dataclasses.replace(net, row_seconds=1e-7), 6, 3) == (10**6, "")
    samples, reason = own_net.samples_for(dataclasses.replace(net, row_seconds=1e-3), 6, 3)
    assert samples == 10_000
    assert reason.startswith("10000 samples an oracle (a sample takes 1e+03 µs and there are 6 oracles)")
    assert own_net.samples_for(net, 6, 10)[0] == 10_000


def test_w1_has_no_more_points_than_the_samples_allow(file, inputs):
    net = own.find(f"{file}:build", inputs)
    settings = PRESETS["quick"].but(samples=5000, sigmas=(1.0,))
    own_experiment, settings, notes = own_net.own_experiment(net, settings)
    assert settings.metrics["w1_points"] == 312  # 5000 over two sides of 8 pairs
    assert any(note.startswith("W1 on 312 points a side: 5000 samples") for note in notes)
    own_experiment.check(settings)


def test_a_net_needs_noise_levels(file, inputs):
    with pytest.raises(UserError, match="a net needs noise levels"):
        own_net.own_experiment(own.find(f"{file}:build", inputs), PRESETS["quick"])


def test_changes_to_inputs_are_reported(tmp_path):
    path = saved(tmp_path, np.array([[1.0, 2], [3, 4], [1, 2], [5, 6]]))
    values, _, notes = own_inputs.read_inputs(path, 3)
    assert values.tolist() == [[1, 2], [3, 4], [1, 2]]  # rows keep their numbers
    equal = "1 of 3 inputs equal an earlier one; with equal noise they are measured once"
    assert notes == ["the first 3 of 4 inputs", f"{equal}: 2 (numbers of rows, from 0)"]


@pytest.mark.parametrize("options", [{}, {"w1_points": 100}, {"w1_points": 4000}])
def test_w1_is_left_out_if_its_floor_takes_more_samples(file, inputs, options):
    net = own.find(f"{file}:build", inputs)
    settings = PRESETS["quick"].but(samples=1599, cells=64, sigmas=(1.0,), **options)
    own_experiment, settings, notes = own_net.own_experiment(net, settings)
    assert "w1" not in own_experiment.metrics
    assert any(note.startswith("no W1: its floor needs 1600 samples") for note in notes)
    own_experiment.check(settings)
    slow = dataclasses.replace(net, row_seconds=1.0)  # gets 1000 samples
    own_experiment, settings, _ = own_net.own_experiment(slow, PRESETS["quick"].but(sigmas=(1.0,)))
    own_experiment.check(settings)
    assert "w1" not in own_experiment.metrics


def own_plan(file, inputs, attribute, sigmas=(0.5,), **options):
    net = own.find(f"{file}:{attribute}", inputs)
    settings = PRESETS["quick"].but(
        samples=4096,
        pilot_samples=1024,
        cells=16,
        bins=3,
        w1_points=100,
        rules=("sdp", "monte_carlo:samples=10", "dvia", "oracle_again"),
        sigmas=sigmas,
        **options,
    )
    own_experiment, settings, _ = own_net.own_experiment(net, settings)
    return plan_of([own_experiment], settings, [net]), settings


EQUAL_INPUTS = [[1.0, 2, 3, 4, 5], [0, 0, 1, 0, 0], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5]]


def test_equal_inputs_are_merged_only_under_equal_noise(file, tmp_path):
    inputs = saved(tmp_path, np.array(EQUAL_INPUTS))
    scales = np.array([[0.1] * 5, [0.2] * 5, [0.4] * 5, [0.1] * 5])
    plan, _ = own_plan(file, inputs, "build")
    (plain,) = plan.groups.values()
    assert sorted(item.row for item in plain.inputs) == [0, 1]
    plan, _ = own_plan(file, inputs, "build", (2.0,), noise=noise_of("scales:s.npy", scales))
    (group,) = plan.groups.values()
    rows = [item.row for item in group.inputs]
    assert sorted(rows) == [0, 1, 2]
    assert group.locations.tolist() == [EQUAL_INPUTS[row] for row in rows]
    variances = torch.tensor([0.04, 0.16, 0.64])
    torch.testing.assert_close(group.law.variance[:, 0], variances[rows])


def test_equal_inputs_under_other_noise_are_measured_and_replayed(file, tmp_path):
    inputs = saved(tmp_path, np.array(EQUAL_INPUTS))
    scales = np.array([[0.01] * 5, [0.1] * 5, [0.03] * 5, [0.01] * 5])
    plan, settings = own_plan(file, inputs, "build", (1.0,), noise=noise_of("scales:s.npy", scales))
    frame = run_all(tmp_path / "r", plan, settings=settings)
    trace = frame[(frame.rule == "sdp") & (frame.metric == "std_ratio")]
    assert set(trace.input) == {0, 1, 2}
    stored = read(tmp_path / "r")
    for row in (0, 2):
        key = trace.key[trace.input == row].iloc[0]
        pairs = replay.replay(stored, key, lambda _: None, nets=[f"{file}:build"])
        assert [a["value"] for a, _ in pairs] == pytest.approx([b["value"] for _, b in pairs], rel=1e-4)


def test_workers_run_it_without_the_file_and_a_second_run_has_nothing_to_do(file, inputs, tmp_path):
    plan, settings = own_plan(file, inputs, "Sum", (0.1, 1.0))
    copy = tmp_path / "copy" / file.name
    copy.parent.mkdir()
    file.rename(copy)
    inputs.unlink()
    with LocalProcesses(2, 1) as executor:
        frame = run_all(tmp_path / "r", plan, executor=executor, settings=settings)
    stored = read(tmp_path / "r")
    with pytest.raises(UserError, match=r"the net .* is not built in; name its file: --net .*theirs\.py:Sum"):
        replay.replay(stored, frame.key.iloc[0], lambda _: None)
    pairs = replay.replay(stored, frame.key.iloc[0], lambda _: None, nets=[f"{copy}:Sum"])
    share = replay.replay_share(stored, 0.01, nets=[f"{copy}:build", f"{copy}:Sum"])
    assert share.differences == ()
    assert [a["value"] for a, _ in pairs] == pytest.approx([b["value"] for _, b in pairs], rel=1e-4)
    assert pairs
    assert not left(plan, tmp_path / "r")
    rows = statuses(tmp_path / "r").drop_duplicates(CELL)
    assert rows["status"].value_counts().to_dict() == {
        MEASURED: 3 * 2 * 3 * 9,  # inputs, sigmas, rules, metrics
        UNSUPPORTED: 3 * 2 * 1 * 9,
    }
    unsupported = rows[rows["status"] == UNSUPPORTED]
    assert set(unsupported["rule"]) == {"dvia"}
    assert unsupported["reason"].str.startswith("rule 'dvia' does not support").all()
    assert set(frame.metric) == {
        "tv_headline",
        "tv_paper",
        "w1",
        "std_ratio",
        "tails",
        "bures",
        "gaussian_kl",
        "min_eigenvalue",
        "operations",
    }
    assert frame.accuracy.isna().all()
    assert nets(stored, [stored.run()])["accuracy"].isna().all()
    assert set(frame.recipe) == {"yours, on x.npy"}
    exact = frame[(frame.rule == "oracle_again") & (frame.metric == "tv_headline")]
    assert (exact.value < exact.floor95 + 0.03).all()


@pytest.mark.parametrize(
    ("outputs", "measured", "absent"),
    [
        (1, {"tv_headline", "tv_paper", "w1"}, {"tv_class"}),
        (4, {"tv_principal", "tv_class", "w1"}, {"tv_headline", "tv_paper"}),
        (10, {"tv_principal", "tv_margin", "tv_pairs", "w1_sliced", "std_ratio"}, {"tv_headline", "w1"}),
        (1000, {"tv_class", "energy"}, {"tv_principal", "bures", "std_ratio", "tv_pairs"}),
    ],
)
def test_metrics_of_a_net_depend_on_its_number_of_outputs(outputs, measured, absent):
    names = set(own_net.measures_for(outputs)[0])
    assert measured <= names
    assert not absent & names
    for heavy in (False, True):
        with_class, _ = own_net.measures_for(outputs, heavy=heavy)
        without, reason = own_net.measures_for(outputs, heavy=heavy, has_class=False)
        assert without == tuple(name for name in with_class if name != "tv_class")
        assert outputs == 1 or "arg max" not in reason
