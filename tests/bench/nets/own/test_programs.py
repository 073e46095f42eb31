import io
import sys
import warnings
import zipfile
from collections import namedtuple
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import sdp_ref as sr
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.nets import net as trained
from sdp_bench.bench.nets.own import net as own
from sdp_bench.bench.nets.own.inputs import read_inputs
from sdp_bench.bench.nets.own.programs import Program

DYNAMIC = ({0: torch.export.Dim.DYNAMIC},)
Pair = namedtuple("Pair", "mean logits")


def module():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 3)).eval()


X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """One net in files of every kind, and files of wrong ones."""
    folder, net, x = tmp_path_factory.mktemp("files"), module(), torch.from_numpy(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(net, (x,), dynamic_shapes=DYNAMIC), folder / "net.pt2")
        torch.export.save(torch.export.export(net, (x,)), folder / "fixed.pt2")
        torch.jit.script(net).save(folder / "script.pt")
    torch.save(net.state_dict(), folder / "weights.pt")
    for name in ("text.pt", "text.onnx"):
        (folder / name).write_text("no net")
    (folder / "cut.pt2").write_bytes((folder / "net.pt2").read_bytes()[:500])
    (folder / "folder.pt").mkdir()
    np.save(folder / "x.npy", X)
    return folder


def test_a_file_gives_the_laws_of_its_module_under_rules_of_every_kind(files):
    net = own.find(str(files / "net.pt2"), files / "x.npy")
    assert net.architecture.label == "net.pt2 4 to 3"
    assert not net.state
    made, plain = net.build(), module()
    assert not made.training
    assert torch.allclose(made(net.inputs), plain(net.inputs), atol=1e-6)
    x = sr.DiagonalGaussian(net.inputs.double(), 0.25 * torch.ones(3, 4, dtype=torch.float64))
    for rule in ("sdp", "marginal_sdp", "moment_matching", "unscented", "dvia"):
        law = sr.propagate(made.double(), x, rule)
        right = sr.propagate(plain.double(), x, rule)
        assert torch.allclose(law.mean, right.mean, atol=1e-9), rule
        assert torch.allclose(law.variance, right.variance, atol=1e-9), rule


class Casts(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.second(self.first(x.float()).half().to(torch.float32).relu()).double()


def test_casts_of_an_exported_net_do_not_prevent_float64(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(Casts().eval(), (torch.from_numpy(X),), dynamic_shapes=DYNAMIC)
        torch.export.save(program, tmp_path / "casts.pt2")
    net = Program.find(str(tmp_path / "casts.pt2")).load().double()
    made = Casts()
    plain = nn.Sequential(made.first, nn.ReLU(), made.second).double()
    x = sr.DiagonalGaussian(torch.from_numpy(X).double(), 0.25 * torch.ones(3, 4, dtype=torch.float64))
    for rule in ("sdp", "moment_matching", "unscented"):
        law = sr.propagate(net, x, rule)
        right = sr.propagate(plain, x, rule)
        assert law.mean.dtype == torch.float64
        assert torch.allclose(law.mean, right.mean, atol=1e-9), rule
        assert torch.allclose(law.variance, right.variance, atol=1e-9), rule


def test_it_is_known_by_its_content_which_results_do_not_hold(files, tmp_path):
    net = own.find(str(files / "net.pt2"), files / "x.npy")
    again = tmp_path / "again.pt"
    again.write_bytes((files / "net.pt2").read_bytes())
    assert own.find(str(again), files / "x.npy").digest == net.digest
    stored = trained.net_from_bytes(net.to_bytes(), "stored")
    assert str(files).encode() not in net.to_bytes()
    assert net.code.content[:99] not in net.to_bytes()
    completed = own.again(stored, str(again), net.digest)
    assert torch.equal(completed.build()(net.inputs), net.build()(net.inputs))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fixed.pt2", r"batches of 3 inputs only; export it with a dynamic batch: torch\.export"),
        ("script.pt", r"TorchScript files are not read; use torch\.export\.save"),
        ("weights.pt", r"weights or a pickle .*net\.py:build"),
        ("text.pt", "neither a program of torch.export nor"),
        ("text.onnx", "onnx"),
        ("cut.pt2", "neither a program of torch.export nor"),
        ("folder.pt", "not a regular file"),
        ("absent.pt2", "cannot read .*No such file"),
        ("net.pt2:build", "a net itself; leave :build out"),
        ("net.txt", "names no net"),
    ],
)
def test_a_file_that_is_no_net_gets_one_line(files, name, message):
    with pytest.raises(UserError, match=message) as caught:
        own.find(str(files / name), files / "x.npy")
    assert "\n" not in str(caught.value)


SOURCE = """
import torch
from dataclasses import dataclass
from torch import nn


@dataclass
class Output:
    logits: torch.Tensor
    states: tuple


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 3)
        self.table = nn.Embedding(10, 3)

    def forward(self, input_ids=None, inputs_embeds=None, mask=None):
        if input_ids is not None and inputs_embeds is not None and mask is None:
            return self.inner(inputs_embeds) + self.table(input_ids)
        x = self.table(input_ids) if inputs_embeds is None else self.inner(inputs_embeds)
        x = x if mask is None else x * mask
        return {"logits": x, "hidden": Output(2 * x, (x, 3 * x))}


def fixed():
    class Fixed(Two):
        def forward(self, x):
            return self.inner(x).view(3, 3)
    return Fixed()
"""


@pytest.fixture
def two(tmp_path):
    (tmp_path / "two.py").write_text(SOURCE)
    np.save(tmp_path / "x.npy", X)
    ids, mask = np.array([[2]]), np.array([[True, False, True]] * 3)
    np.savez(tmp_path / "named.npz", inputs_embeds=X, mask=mask)
    np.savez(tmp_path / "placed.npz", ids[:, 0], X)
    np.savez(tmp_path / "other.npz", inputs_embeds=X, mask=X[:, :3])
    np.savez(tmp_path / "odd.npz", **{"a b": X})
    np.save(tmp_path / "ids.npy", np.array([[1, 2], [3, 4]]))
    return tmp_path


@pytest.mark.parametrize(
    ("inputs", "noisy", "output", "right"),
    [
        ("x.npy", "inputs_embeds", "logits", lambda y: y),
        ("x.npy", "inputs_embeds", "hidden.logits", lambda y: 2 * y),
        ("x.npy", "inputs_embeds", "hidden.states.1", lambda y: 3 * y),
        ("named.npz", "inputs_embeds", "logits", lambda y: y * torch.tensor([1.0, 0.0, 1.0])),
        ("placed.npz", "1", None, lambda y: y + 0.5),
    ],
)
def test_an_input_and_an_output_are_chosen(two, inputs, noisy, output, right):
    (two / "two.py").write_text(
        SOURCE.replace("10, 3)", "10, 3)\n        nn.init.constant_(self.table.weight, 0.5)")
    )
    net = own.find(f"{two / 'two.py'}:Two", two / inputs, None, noisy, output)
    made = net.build()
    inner = made.net.inner
    assert torch.allclose(made(net.inputs), right(inner(net.inputs)), atol=1e-6)
    x = sr.DiagonalGaussian(net.inputs, torch.ones(3, 4))
    laws = [sr.propagate(made, x, rule) for rule in ("sdp", "moment_matching", "marginal_sdp")]
    assert all(torch.allclose(law.mean, made(net.inputs), atol=1e-5) for law in laws)
    stored = trained.net_from_bytes(net.to_bytes(), "stored")
    again = own.again(stored, f"{two / 'two.py'}:Two", net.digest)
    assert torch.equal(again.build()(net.inputs), made(net.inputs))


def test_what_is_looked_at_is_part_of_what_a_net_is(two):
    nets = [
        own.find(f"{two / 'two.py'}:Two", two / inputs, None, "inputs_embeds", output)
        for inputs in ("x.npy", "named.npz")
        for output in ("logits", "hidden.logits")
    ]
    assert len({net.digest for net in nets}) == 4
    assert nets[0].architecture.name == "two.py:Two[logits]"
    assert nets[2].recipe.inputs == "named.npz[inputs_embeds]"


@pytest.mark.parametrize(
    ("attribute", "inputs", "noisy", "output", "message"),
    [
        (
            "Two",
            "x.npy",
            "inputs_embeds",
            None,
            r"one tensor, got dict of logits \(6, 3\), hidden \(Output\) .*: --net-output logits",
        ),
        ("Two", "x.npy", "inputs_embeds", "logit", "no output 'logit': there are logits, hidden in dict"),
        ("Two", "x.npy", "inputs_embeds", "logits.9", "no output 'logits.9': there are 0, 1"),
        ("Two", "x.npy", "inputs_embeds", "hidden.states", "must return one tensor, got tuple"),
        ("Two", "x.npy", "nothing", "logits", "unexpected keyword argument 'nothing'"),
        ("Two", "x.npy", "1", "logits", "there is no input '1' in .* which holds 0; .*numpy.savez"),
        ("Two", "named.npz", None, "logits", r"several inputs \(inputs_embeds, mask\): --net-input"),
        ("Two", "named.npz", "ids", "logits", "no input 'ids' .* holds inputs_embeds, mask"),
        ("Two", "named.npz", "mask", "logits", "must be real numbers, got bool"),
        ("Two", "other.npz", "inputs_embeds", "logits", "'mask' .* is not the same for all examples"),
        ("Two", "odd.npz", None, None, "'a b' in .* is no name of an input"),
        ("Two", "x.npy", None, "logits", r"as indices .* give the embeddings, its inputs_embeds"),
        ("Two", "ids.npy", None, "logits", r"whole numbers \(int64\), .* inputs_embeds"),
        ("fixed", "x.npy", None, None, "cannot take inputs of shape .* is invalid for input of size"),
    ],
)
def test_a_choice_that_cannot_be_met_gets_one_line(two, attribute, inputs, noisy, output, message):
    with pytest.raises(UserError, match=message) as caught:
        own.find(f"{two / 'two.py'}:{attribute}", two / inputs, None, noisy, output)
    assert "\n" not in str(caught.value)


def test_a_recurrent_state_is_an_error_with_the_line_to_write():
    inputs = {"x": np.zeros((2, 6, 3)), "h0": np.zeros((4, 1, 5))}
    with pytest.raises(
        UserError, match=r"return self\.net\(x, torch\.zeros\(4, len\(x\), 5, dtype=x\.dtype\)\)"
    ):
        read_inputs(inputs, None, "x")


def linear_onnx(batch):
    onnx = pytest.importorskip("onnx")
    if find_spec("onnx2torch") is None:  # not imported here, as its import needs a torchvision that fits
        pytest.skip("onnx2torch is not installed")
    net = module()
    names = {"w0": net[0].weight, "b0": net[0].bias, "w1": net[3].weight, "b1": net[3].bias}
    weights = [onnx.numpy_helper.from_array(v.detach().numpy(), k) for k, v in names.items()]
    make = onnx.helper.make_node
    nodes = [
        make("Gemm", ["x", "w0", "b0"], ["h"], transB=1),
        make("Relu", ["h"], ["r"]),
        make("Gemm", ["r", "w1", "b1"], ["y"], transB=1),
    ]
    ends = [
        onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [batch, k])
        for n, k in (("x", 4), ("y", 3))
    ]
    graph = onnx.helper.make_graph(nodes, "net", ends[:1], ends[1:], weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    file = io.BytesIO()
    onnx.save_model(model, file)
    return file.getvalue()


def test_an_onnx_model_gives_the_laws_of_its_module():
    program = Program("net.onnx", linear_onnx("batch"))
    x = sr.DiagonalGaussian(torch.from_numpy(X), 0.25 * torch.ones(3, 4))
    for rule in ("sdp", "marginal_sdp", "moment_matching"):
        law = sr.propagate(program.load().eval(), x, rule)
        right = sr.propagate(module(), x, rule)
        assert torch.allclose(law.mean, right.mean, atol=1e-5)
        assert torch.allclose(law.variance, right.variance, atol=1e-5)


def test_the_error_on_a_new_operator_shows_how_to_convert_the_file(tmp_path):
    onnx = pytest.importorskip("onnx")
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 4])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 1])
    axes = onnx.numpy_helper.from_array(np.array([1], np.int64), "axes")
    mean = onnx.helper.make_node("ReduceMean", ["x", "axes"], ["y"])
    graph = onnx.helper.make_graph([mean], "mean", [x], [y], [axes])
    opset = onnx.helper.make_opsetid("", 18)
    path = tmp_path / "net.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
    with pytest.raises(UserError, match="onnx2torch lacks an operator") as caught:
        Program.find(str(path)).load()
    exec(str(caught.value).split("`")[1], {})  # the code that the message shows
    values = torch.rand(3, 4, generator=torch.Generator().manual_seed(0))
    net = Program.find(str(tmp_path / "net-17.onnx")).load()
    torch.testing.assert_close(net(values), values.mean(1, keepdim=True))


@pytest.mark.parametrize("location", ["initializer", "constant", "subgraph"])
def test_onnx_weights_in_another_file_are_refused(location):
    onnx = pytest.importorskip("onnx")
    model = onnx.load_model_from_string(linear_onnx("batch"))
    tensor = onnx.numpy_helper.from_array(np.ones(3, np.float32), "other")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    constant = onnx.helper.make_node("Constant", [], ["c"], value=tensor)
    inner = onnx.helper.make_graph([constant], "inner", [], [])
    match location:
        case "initializer":
            model.graph.initializer.append(tensor)
        case "constant":
            model.graph.node.append(constant)
        case "subgraph":
            model.graph.node.append(
                onnx.helper.make_node("If", ["x"], ["z"], then_branch=inner, else_branch=inner)
            )
    with pytest.raises(UserError, match="weights are in another file"):
        Program("net.onnx", model.SerializeToString()).load()


def test_onnx_without_its_extra_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UserError, match=r"needs the extra onnx: pip install 'sdp-bench\[onnx\]'"):
        Program(str(Path("net.onnx")), b"any").load()


def test_a_damaged_program_prints_nothing(files, capfd):
    """torch logs a traceback of the error that it then raises."""
    damaged = io.BytesIO()
    with zipfile.ZipFile(files / "net.pt2") as archive, zipfile.ZipFile(damaged, "w") as copy:
        for name in archive.namelist():
            copy.writestr(name, archive.read(name).replace(b"torch.ops.aten.", b"torch.ops.atex."))
    with pytest.raises(UserError, match=r"^cannot read net\.pt2: [^\n]*$"):
        Program("net.pt2", damaged.getvalue()).load()
    assert capfd.readouterr() == ("", "")
