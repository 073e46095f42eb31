"""Converted ONNX files are the functions of these files, or are rejected with the name of an operator."""

import warnings
from importlib.util import find_spec

import numpy as np
import pytest
import torch

import sdp_ref as sr
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.nets.own import conversion
from sdp_bench.bench.nets.own import net as own
from sdp_bench.bench.nets.own.programs import Program

onnx = pytest.importorskip("onnx")
pytestmark = pytest.mark.skipif(find_spec("onnx2torch") is None, reason="onnx2torch is not installed")

node = onnx.helper.make_node
FLOAT, HALF = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16


def numbers(*shape):
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def integers(*values):
    return np.array(values, np.int64)


def program(nodes, shape, tensors=None, opset=13, outputs=("y",), inputs=()):
    """One input x of shape (batch, *shape), and more inputs as (name, type, shape)."""
    infos = [onnx.helper.make_tensor_value_info("x", FLOAT, ["batch", *shape])]
    infos += [onnx.helper.make_tensor_value_info(*about) for about in inputs]
    graph = onnx.helper.make_graph(
        nodes,
        "net",
        infos,
        [onnx.helper.make_empty_tensor_value_info(name) for name in outputs],
        [onnx.numpy_helper.from_array(value, name) for name, value in (tensors or {}).items()],
    )
    opsets = [onnx.helper.make_opsetid("", opset)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return Program("net.onnx", model.SerializeToString())


OTHER = {
    "slopes of the last axis": (
        [node("PRelu", ["x", "s"], ["y"], name="bend")],
        (4, 2, 4),
        {"s": numbers(4)},
    ),
    "cubic and asymmetric": (
        [node("Resize", ["x", "", "s"], ["y"], mode="cubic", coordinate_transformation_mode="asymmetric")],
        (1, 4, 6),
        {"s": np.array([1, 1, 1.5, 2], np.float32)},
    ),
    "nearest by floor": (
        [node("Resize", ["x", "", "s"], ["y"], mode="nearest", nearest_mode="floor")],
        (1, 4, 6),
        {"s": np.array([1, 1, 2, 2], np.float32)},
    ),
    "shape of the output": (
        [node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2], output_shape=[10, 10])],
        (2, 4, 4),
        {"w": numbers(2, 3, 3, 3)},
    ),
    "shape of the output of a row": (
        [node("ConvTranspose", ["x", "w"], ["y"], strides=[1, 3], output_shape=[1, 8], group=2)],
        (2, 1, 4),
        {"w": numbers(2, 1, 1, 4)},
    ),
    "larger shape of the output": (
        [node("ConvTranspose", ["x", "w"], ["y"], output_shape=[9])],
        (2, 4),
        {"w": numbers(2, 3, 3)},
    ),
    "direction of a cumulative sum": (
        [node("CumSum", ["x", "axis"], ["y"], name="running")],
        (5,),
        {"axis": np.array(1)},
    ),
    "statistics of the batch": (
        [node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y", "", ""], training_mode=1)],
        (3,),
        {"s": numbers(3), "b": numbers(3), "m": numbers(3), "v": np.abs(numbers(3))},
        15,
    ),
    "value of an old padding": ([node("Pad", ["x"], ["y"], pads=[0, 1, 0, 2], value=0.5)], (4,), {}, 2),
    "indices in another layout": (
        [node("NonZero", ["x"], ["n"]), node("Cast", ["n"], ["y"], to=FLOAT)],
        (4,),
    ),
    "negative indices": (
        [node("GatherElements", ["x", "i"], ["y"], axis=1)],
        (4,),
        {"i": integers([0, -1])},
    ),
}


@pytest.mark.parametrize("case", OTHER.values(), ids=OTHER)
def test_an_operator_that_becomes_another_function_is_named(case):
    first = case[0][0]
    name = first.name or first.output[0]
    message = rf"net.onnx: its operator {first.op_type} \(node '{name}'\) (is another function|fails) after"
    with pytest.raises(UserError, match=message) as caught:
        program(*case).load()
    assert "\n" not in str(caught.value)


def test_the_first_of_several_operators_is_named_even_if_its_effect_vanishes_later():
    nodes = [
        node("CumSum", ["x", "axis"], ["c"], name="first"),
        node("CumSum", ["c", "axis"], ["d"], name="second"),
        node("Mul", ["d", "zero"], ["y"]),
    ]
    tensors = {"axis": np.array(1), "zero": np.zeros(1, np.float32)}
    with pytest.raises(UserError, match="node 'first'"):
        program(nodes, (3,), tensors).load()


STATISTICS = {"s": numbers(4), "b": numbers(4), "m": numbers(4), "v": np.abs(numbers(4))}
RIGHT = {
    "softmax of version 11, flattened": ([node("Softmax", ["x"], ["y"], axis=1)], (3, 4), {}, 11),
    "log softmax, underflowing": (
        [node("Mul", ["x", "w"], ["l"]), node("LogSoftmax", ["l"], ["y"])],
        (4,),
        {"w": np.array([1e4], np.float32)},
    ),
    "batch normalisation of version 9": (
        [node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"], epsilon=0.01)],
        (4, 3),
        STATISTICS,
        9,
    ),
    "layer normalisation": (
        [node("LayerNormalization", ["x", "s", "b"], ["y"], epsilon=0.01)],
        (3, 4),
        {"s": numbers(4), "b": numbers(4)},
        17,
    ),
    "local response": ([node("LRN", ["x"], ["y"], size=3, alpha=0.1)], (5, 3, 3)),
    "transposed convolution in groups": (
        [
            node(
                "ConvTranspose",
                ["x", "w", "b"],
                ["y"],
                group=2,
                strides=[2, 3],
                dilations=[2, 1],
                pads=[1, 2, 1, 2],
                output_padding=[1, 0],
            )
        ],
        (4, 3, 5),
        {"w": numbers(4, 3, 3, 2), "b": numbers(6)},
    ),
    "half to even": ([node("Round", ["x"], ["y"])], (40,)),
    "NaN and infinity": ([node("Log", ["x"], ["l"]), node("Reciprocal", ["l"], ["y"])], (40,)),
    "pooling by ceilings": (
        [node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)],
        (2, 7, 8),
        {},
        12,
    ),
    "unused outputs": (
        [node("Dropout", ["x"], ["d", "mask"]), node("MaxPool", ["d"], ["y", "i"], kernel_shape=[2])],
        (2, 6),
    ),
    "names twice": (
        [
            node("Exp", ["x"], ["a"], name="n"),
            node("Neg", ["a"], ["b"], name="n"),
            node("Sin", ["b"], ["y"], name="n_1"),
        ],
        (3,),
    ),
    "integers inside": (
        [
            node("ArgMax", ["x"], ["i"], axis=1, keepdims=0),
            node("Gather", ["t", "i"], ["y"]),
        ],
        (4,),
        {"t": numbers(4, 2)},
    ),
    "half precision": (
        [
            node("Cast", ["x"], ["h"], to=HALF),
            node("Gemm", ["h", "w"], ["g"]),
            node("Softmax", ["g"], ["y"]),
        ],
        (512,),
        {"w": numbers(512, 64).astype(np.float16)},
    ),
}


@pytest.mark.parametrize("case", RIGHT.values(), ids=RIGHT)
def test_an_operator_that_remains_the_same_function_is_compared_and_loaded(case):
    notes = []
    program(*case).load(notes=notes)
    assert not [note for note in notes if "compared" in note]


@pytest.mark.parametrize(
    ("name", "argument"), [("level", "level"), ("level:0", "input_2"), ("if", "input_2")]
)
def test_inputs_have_the_names_of_the_file_where_python_allows_them(name, argument):
    model = program([node("Add", ["x", name], ["y"])], (3,), inputs=[(name, FLOAT, ["batch", 3])])
    module, x = model.load(), torch.ones(2, 3)
    assert torch.equal(module(x, **{argument: 2 * x}), 3 * x)


def test_a_converted_net_runs_in_evaluation_mode_and_without_warnings():
    tensors = {name: np.ones(3, np.float32) for name in ("scale", "bias", "mean", "var")}
    tensors |= {"start": integers(0), "end": integers(2), "axis": integers(1)}
    nodes = [
        node("BatchNormalization", ["x", "scale", "bias", "mean", "var"], ["normal"]),
        node("Slice", ["normal", "start", "end", "axis"], ["y"]),
    ]
    module = program(nodes, (3,), tensors).load()
    assert not any(part.training for part in module.modules())
    with warnings.catch_warnings(record=True) as caught:  # with the filters of a program
        sr.propagate(module, sr.DiagonalGaussian(torch.ones(2, 3), torch.ones(2, 3)), rule="sdp")
        module(torch.ones(2, 3))
    assert not caught


def test_the_outputs_are_those_of_the_file_in_its_order():
    nodes = [node("Split", ["x", "sizes"], ["first", "second"], axis=1)]
    tensors = {"sizes": integers(2, 3)}
    x = torch.from_numpy(numbers(4, 5))
    second, first = program(nodes, (5,), tensors, outputs=("second", "first")).load()(x)
    assert torch.equal(first, x[:, :2])
    assert torch.equal(second, x[:, 2:])
    single = program([*nodes, node("Neg", ["first"], ["n"])], (5,), tensors, outputs=("second",)).load()
    assert torch.equal(single(x), x[:, 2:])


@pytest.mark.parametrize(
    "random",
    [
        node("RandomNormalLike", ["x"], ["r"], name="noise"),
        node("Bernoulli", ["x"], ["r"], name="noise"),
        node("Dropout", ["x", "", "training"], ["r"], name="noise"),
    ],
)
def test_a_random_operator_is_named(random):
    tensors = {"training": np.array(True)}
    with pytest.raises(UserError, match=rf"{random.op_type} \(node 'noise'\) draws random numbers"):
        program([random, node("Neg", ["r"], ["y"])], (3,), tensors, 15).load()


def test_an_operator_without_a_reference_gets_a_note_with_its_name():
    crop = node("Pad", ["x", "pads"], ["p"], name="crop")  # the reference rejects negative padding
    notes = []
    net = program([crop, node("Neg", ["p"], ["y"])], (4,), {"pads": integers(0, -1, 0, 0)}).load(None, notes)
    (note,) = notes
    assert "1 of 2 operators could not be compared" in note
    assert "Pad (node 'crop')" in note
    assert "install onnxruntime" in note
    x = torch.from_numpy(numbers(2, 4))
    assert torch.equal(net(x), -x[:, 1:])


def test_a_file_without_a_reference_warns_a_caller_without_notes():
    crop = node("Pad", ["x", "pads"], ["y"], name="crop")
    with pytest.warns(UserWarning, match=r"net.onnx: 1 of 1 operators could not be compared .*'crop'"):
        program([crop], (4,), {"pads": integers(0, -1, 0, 0)}).load()


def test_operators_beyond_the_time_limit_get_a_note(monkeypatch):
    monkeypatch.setattr(conversion, "SECONDS", 0.0)
    notes = []
    program([node("Neg", ["x"], ["y"])], (4,)).load(None, notes)
    assert "1 of 1 operators could not be compared" in notes[0]
    assert "not within 0 s" in notes[0]


def test_inputs_decide_open_sizes_and_integers():
    nodes = [
        node("Gather", ["table", "ids"], ["e"]),
        node("Add", ["x", "e"], ["a"]),
        node("Reshape", ["a", "shape"], ["r"]),
        node("CumSum", ["r", "axis"], ["y"], name="running"),
    ]
    tensors = {"table": numbers(10, 5), "shape": integers(-1, 17, 5), "axis": np.array(1)}
    ids = ("ids", onnx.TensorProto.INT64, ["batch", "length"])
    file = program(nodes, ("length", 5), tensors, inputs=[ids])
    notes = []
    file.load(None, notes)  # no size that is tried has a multiple of 17 rows
    assert "Reshape" in notes[0]
    examples = {"0": torch.zeros(2, 17, 5), "ids": torch.full((1, 17), 9)}
    with pytest.raises(UserError, match="node 'running'"):
        file.load(examples, [])


@pytest.mark.parametrize("kind", ["FLOAT", "FLOAT16", "DOUBLE"])
def test_a_cast_between_floats_is_omitted_so_that_the_net_runs_in_float64(kind):
    nodes = [
        node("Gemm", ["x", "w"], ["g"]),
        node("Cast", ["g"], ["c"], to=getattr(onnx.TensorProto, kind)),
        node("Greater", ["c", "zero"], ["b"]),
        node("Cast", ["b"], ["step"], to=FLOAT),
        node("Mul", ["c", "step"], ["m"]),
        node("Gemm", ["m", "v"], ["y"]),
    ]
    tensors = {"w": numbers(4, 3), "v": numbers(3, 2), "zero": np.zeros(1, np.float32)}
    notes = []
    net = program(nodes, (4,), tensors).load(None, notes).double()
    assert len(notes) == (kind == "FLOAT16")
    x = torch.from_numpy(numbers(5, 4)).double()
    w = torch.from_numpy(tensors["w"]).double()
    v = torch.from_numpy(tensors["v"]).double()
    assert torch.allclose(net(x), (x @ w).clamp(min=0) @ v, atol=1e-12)


def test_workers_do_not_compare_a_file_again(tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(program([node("Gemm", ["x", "w"], ["y"])], (4,), {"w": numbers(4, 3)}).content)
    np.save(tmp_path / "x.npy", numbers(3, 4))
    net = own._examined(str(path), "net.onnx", "x.npy", torch.from_numpy(numbers(3, 4)), own.Ports(), [])
    assert net.code.is_compared
    assert torch.allclose(net.build()(net.inputs), net.inputs @ torch.from_numpy(numbers(4, 3)), atol=1e-6)
