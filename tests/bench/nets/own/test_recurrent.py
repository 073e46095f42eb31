"""LSTM and GRU of ONNX files, compared with torch's modules of the same weights."""

from importlib.util import find_spec

import numpy as np
import pytest
import torch

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.nets.own.programs import Program

onnx = pytest.importorskip("onnx")
pytestmark = pytest.mark.skipif(find_spec("onnx2torch") is None, reason="needs onnx2torch")

STEPS, BATCH, FEATURES, HIDDEN = 5, 3, 4, 6
ORDER = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2)}
"""Gates of torch in the order of ONNX: torch has input, forget, cell, output; reset, update, new."""


def reordered(values: torch.Tensor, operation: str) -> np.ndarray:
    gates = values.detach().chunk(len(ORDER[operation]))
    return torch.cat([gates[index] for index in ORDER[operation]]).numpy()


def model_of(module, operation, outputs=("Y",), **attributes):
    """Return an ONNX model with one operator that has the weights of a torch module."""
    directions = 2 if module.bidirectional else 1
    suffixes = ("", "_reverse")[:directions]
    weights = [reordered(getattr(module, f"weight_ih_l0{suffix}"), operation) for suffix in suffixes]
    recurrences = [reordered(getattr(module, f"weight_hh_l0{suffix}"), operation) for suffix in suffixes]
    biases = [
        np.concatenate(
            [reordered(getattr(module, f"bias_{kind}_l0{suffix}"), operation) for kind in ("ih", "hh")]
        )
        for suffix in suffixes
    ]
    initializers = [
        onnx.numpy_helper.from_array(np.stack(values), name)
        for name, values in (("W", weights), ("R", recurrences), ("B", biases))
    ]
    node = onnx.helper.make_node(
        operation,
        ["X", "W", "R", "B"],
        list(outputs),
        hidden_size=HIDDEN,
        direction="bidirectional" if directions == 2 else "forward",
        **attributes,
    )
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node],
        "recurrent",
        [value("X", onnx.TensorProto.FLOAT, [STEPS, BATCH, FEATURES])],
        [value(name, onnx.TensorProto.FLOAT, None) for name in outputs],
        initializers,
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 14)])


def loaded(model):
    return Program("net.onnx", model.SerializeToString(), is_compared=True).load().double()


@pytest.fixture
def x():
    return torch.randn(STEPS, BATCH, FEATURES, generator=torch.Generator().manual_seed(0)).double()


@pytest.mark.parametrize("bidirectional", [False, True])
def test_an_lstm_has_the_states_of_torch(x, bidirectional):
    torch.manual_seed(1)
    module = torch.nn.LSTM(FEATURES, HIDDEN, bidirectional=bidirectional)
    net = loaded(model_of(module, "LSTM", ("Y", "Y_h", "Y_c")))
    history, hidden, cell = net(x)
    expected, (last_hidden, last_cell) = module.double()(x)
    torch.testing.assert_close(history.transpose(1, 2).flatten(2), expected)
    torch.testing.assert_close(hidden, last_hidden)
    torch.testing.assert_close(cell, last_cell)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_gru_has_the_states_of_torch(x, bidirectional):
    torch.manual_seed(2)
    module = torch.nn.GRU(FEATURES, HIDDEN, bidirectional=bidirectional)
    net = loaded(model_of(module, "GRU", ("Y", "Y_h"), linear_before_reset=1))
    history, hidden = net(x)
    expected, last = module.double()(x)
    torch.testing.assert_close(history.transpose(1, 2).flatten(2), expected)
    torch.testing.assert_close(hidden, last)


def test_a_gru_that_resets_before_the_linear_map_follows_its_formula(x):
    torch.manual_seed(3)
    module = torch.nn.GRU(FEATURES, HIDDEN)
    history = loaded(model_of(module, "GRU"))(x)
    module = module.double()
    w_reset, w_update, w_new = module.weight_ih_l0.chunk(3)
    r_reset, r_update, r_new = module.weight_hh_l0.chunk(3)
    b_reset, b_update, b_new = module.bias_ih_l0.chunk(3)
    c_reset, c_update, c_new = module.bias_hh_l0.chunk(3)
    hidden = torch.zeros(BATCH, HIDDEN, dtype=torch.float64)
    for step in range(STEPS):
        reset = torch.sigmoid(x[step] @ w_reset.T + b_reset + hidden @ r_reset.T + c_reset)
        update = torch.sigmoid(x[step] @ w_update.T + b_update + hidden @ r_update.T + c_update)
        new = torch.tanh(x[step] @ w_new.T + b_new + (reset * hidden) @ r_new.T + c_new)
        hidden = (1 - update) * new + update * hidden
        torch.testing.assert_close(history[step, 0], hidden)


def test_the_conversion_of_an_lstm_passes_the_comparison_with_the_reference():
    torch.manual_seed(4)
    model = model_of(torch.nn.LSTM(FEATURES, HIDDEN), "LSTM")
    notes = []
    Program("net.onnx", model.SerializeToString()).load(notes=notes)
    assert notes == []


def test_an_lstm_with_other_activations_is_rejected():
    model = model_of(torch.nn.LSTM(FEATURES, HIDDEN), "LSTM", activations=["Sigmoid", "Relu", "Relu"])
    with pytest.raises(UserError, match="LSTM with other activations than Sigmoid, Tanh, Tanh"):
        loaded(model)
