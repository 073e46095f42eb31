"""ONNX files as exporters other than torch write them."""

from importlib.util import find_spec

import numpy as np
import pytest
import torch

from sdp_bench.bench.nets.own.programs import Program

onnx = pytest.importorskip("onnx")
pytestmark = pytest.mark.skipif(find_spec("onnx2torch") is None, reason="needs onnx2torch")


def program(nodes, initializers, shape):
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes,
        "net",
        [value("x", onnx.TensorProto.FLOAT, shape)],
        [value("y", onnx.TensorProto.FLOAT, None)],
        initializers,
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)])
    return Program("net.onnx", model.SerializeToString())


def constant(name, values):
    tensor = onnx.numpy_helper.from_array(np.asarray(values, np.float32))
    return onnx.helper.make_node("Constant", [], [name], value=tensor)


def test_weights_can_be_constants():
    kernel = np.random.default_rng(0).standard_normal((2, 3, 3, 3)).astype(np.float32)
    nodes = [constant("w", kernel), onnx.helper.make_node("Conv", ["x", "w"], ["y"])]
    notes = []
    net = program(nodes, [], ["batch", 3, 8, 8]).load(notes=notes)
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(net(x), torch.nn.functional.conv2d(x, torch.from_numpy(kernel)))
    assert notes == []


@pytest.mark.parametrize("bounds", [(None, 0.5), (-0.5, None)])
def test_clip_can_have_one_bound(bounds):
    names = ["" if bound is None else name for name, bound in zip(("low", "high"), bounds, strict=True)]
    nodes = [
        *(constant(name, bound) for name, bound in zip(names, bounds, strict=True) if name),
        onnx.helper.make_node("Clip", ["x", *names], ["y"]),
    ]
    notes = []
    net = program(nodes, [], ["batch", 4]).load(notes=notes)
    x = torch.linspace(-2, 2, 8).reshape(2, 4)
    torch.testing.assert_close(net(x), x.clamp(*bounds))
    assert notes == []


def test_an_open_dimension_can_be_written_as_minus_one():
    notes = []
    net = program([onnx.helper.make_node("Relu", ["x"], ["y"])], [], [-1, 3, -1]).load(notes=notes)
    assert net(-torch.ones(2, 3, 5)).shape == (2, 3, 5)
    assert notes == []
