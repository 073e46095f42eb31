"""The recurrent operators of ONNX, which onnx2torch lacks: LSTM and GRU as torch modules."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_LSTM_ACTIVATIONS = ("Sigmoid", "Tanh", "Tanh")
_GRU_ACTIVATIONS = ("Sigmoid", "Tanh")


class Recurrent(nn.Module):
    """A layer of LSTM or GRU cells, unrolled in time.

    The input has shape (steps, B, features), or (B, steps, features) with `batch_first`. The results are
    those of the operator: all hidden states, shape (steps, directions, B, H), and the final states, shape
    (directions, B, H). Weights are those of the operator: `weight` (directions, gates · H, features),
    `recurrence` (directions, gates · H, H) and `bias` (directions, 2 · gates · H).
    """

    states: int
    """Number of state vectors of a cell: 2 for LSTM, 1 for GRU."""

    def __init__(
        self,
        weight: Tensor,
        recurrence: Tensor,
        bias: Tensor | None,
        *,
        directions: tuple[bool, ...],
        batch_first: bool,
        outputs: int,
    ) -> None:
        super().__init__()
        self.hidden = recurrence.shape[2]
        self.directions = directions  # whether each direction runs backwards
        self.batch_first = batch_first
        self.outputs = outputs
        self.weight, self.recurrence = nn.Parameter(weight), nn.Parameter(recurrence)
        if bias is None:
            bias = weight.new_zeros(len(weight), 2 * weight.shape[1])
        self.bias = nn.Parameter(bias)

    def step(self, x: Tensor, state: tuple[Tensor, ...], direction: int) -> tuple[Tensor, ...]:
        """Return the state after one step, given an input of shape (B, features)."""
        raise NotImplementedError

    def forward(self, x: Tensor, *initial: Tensor) -> Tensor | tuple[Tensor, ...]:
        if self.batch_first:
            x, initial = x.transpose(0, 1), tuple(state.transpose(0, 1) for state in initial)
        histories: list[Tensor] = []
        finals: list[tuple[Tensor, ...]] = []
        for direction, is_backward in enumerate(self.directions):
            state = tuple(value[direction] for value in initial)
            while len(state) < self.states:
                state = (*state, x.new_zeros(x.shape[1], self.hidden))
            history = []
            for step in reversed(range(len(x))) if is_backward else range(len(x)):
                state = self.step(x[step], state, direction)
                history.append(state[0])
            if is_backward:
                history.reverse()
            histories.append(torch.stack(history))
            finals.append(state)
        last = [torch.stack(states) for states in zip(*finals, strict=True)]
        results = [torch.stack(histories, 1), *last]
        if self.batch_first:
            results = [results[0].permute(2, 0, 1, 3), *(final.transpose(0, 1) for final in results[1:])]
        return results[0] if self.outputs == 1 else tuple(results[: self.outputs])

    def gates(self, x: Tensor, hidden: Tensor, direction: int) -> tuple[Tensor, Tensor]:
        """Return the contributions of input and hidden state to all gates, each of shape (B, gates · H)."""
        input_bias, hidden_bias = self.bias[direction].chunk(2)
        of_input = nn.functional.linear(x, self.weight[direction], input_bias)
        return of_input, nn.functional.linear(hidden, self.recurrence[direction], hidden_bias)


class Lstm(Recurrent):
    """Long short-term memory; the gates are in the order of ONNX: input, output, forget, cell."""

    states = 2

    def step(self, x: Tensor, state: tuple[Tensor, ...], direction: int) -> tuple[Tensor, ...]:
        hidden, cell = state
        of_input, of_hidden = self.gates(x, hidden, direction)
        enter, leave, forget, new = (of_input + of_hidden).chunk(4, 1)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(new)
        return torch.sigmoid(leave) * torch.tanh(cell), cell


class Gru(Recurrent):
    """Gated recurrent units; the gates are in the order of ONNX: update, reset, hidden.

    With `reset_after`, the reset gate multiplies the hidden state after the linear map, as in torch and
    cuDNN, otherwise before it.
    """

    states = 1
    reset_after = False

    def step(self, x: Tensor, state: tuple[Tensor, ...], direction: int) -> tuple[Tensor, ...]:
        (hidden,) = state
        of_input, of_hidden = self.gates(x, hidden, direction)
        size = 2 * self.hidden
        update, reset = torch.sigmoid(of_input[:, :size] + of_hidden[:, :size]).chunk(2, 1)
        if self.reset_after:
            candidate = reset * of_hidden[:, size:]
        else:
            recurrence, bias = self.recurrence[direction, size:], self.bias[direction, -self.hidden :]
            candidate = nn.functional.linear(reset * hidden, recurrence, bias)
        new = torch.tanh(of_input[:, size:] + candidate)
        return ((1 - update) * new + update * hidden,)


def _recurrent(node: Any, graph: Any) -> Any:
    """Convert a node; a NotImplementedError names what is not supported."""
    from onnx2torch.utils.common import OnnxMapping, OperationConverterResult

    attributes = node.attributes
    is_lstm = node.operation_type == "LSTM"
    for name in ("clip", "input_forget", "activation_alpha", "activation_beta"):
        if attributes.get(name):
            raise NotImplementedError(f"{node.operation_type} with the attribute {name}")
    usual = _LSTM_ACTIVATIONS if is_lstm else _GRU_ACTIVATIONS
    direction = attributes.get("direction", "forward")
    directions = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[direction]
    if tuple(attributes.get("activations", usual * len(directions))) != usual * len(directions):
        raise NotImplementedError(f"{node.operation_type} with other activations than {', '.join(usual)}")
    names = [*node.input_values, *[""] * 8]
    x, weight, recurrence, bias, lengths, hidden, cell, peepholes = names[:8]
    if lengths or (is_lstm and peepholes):
        missing = "lengths of sequences" if lengths else "peepholes"
        raise NotImplementedError(f"{node.operation_type} with {missing}")
    if any(name and name not in graph.initializers for name in (weight, recurrence, bias)):
        raise NotImplementedError(f"{node.operation_type} with weights that are computed")
    module = (Lstm if is_lstm else Gru)(
        graph.initializers[weight].to_torch(),
        graph.initializers[recurrence].to_torch(),
        graph.initializers[bias].to_torch() if bias else None,
        directions=directions,
        batch_first=bool(attributes.get("layout", 0)),
        outputs=len(node.output_values),
    )
    if isinstance(module, Gru):
        module.reset_after = bool(attributes.get("linear_before_reset", 0))
    if cell and not hidden:
        raise NotImplementedError("LSTM with an initial cell but no initial hidden state")
    given = tuple(name for name in (x, hidden, cell if is_lstm else "") if name)
    return OperationConverterResult(module, OnnxMapping(given, node.output_values))


def register() -> None:
    """Add both operators to onnx2torch, once per process, unless it has them."""
    from onnx2torch.node_converters.registry import _CONVERTER_REGISTRY, add_converter

    known = {description.operation_type for description in _CONVERTER_REGISTRY}
    for operation, versions in (("LSTM", (7, 14, 22)), ("GRU", (7, 14, 22))):
        if operation not in known:
            for version in versions:
                add_converter(operation, version)(_recurrent)
