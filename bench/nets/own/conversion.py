"""Conversion of an ONNX model to torch, and comparison of both, operator by operator.

The conversion of an operator can be another function without an error. Every operator of the converted net
therefore runs on random inputs, and its results are compared with those of the reference implementation of
ONNX at the same values. Both compute in float64, so rounding errors do not conceal a difference.
"""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from keyword import iskeyword
from operator import getitem
from typing import Any

import numpy as np
import scipy.special
import torch
from torch import Tensor, fx, nn

from ...errors import UserError, one_line
from . import recurrent

SECONDS = 40.0
"""Time limit of the comparison; operators that have not run by then are not compared."""

_DRAWS = ((2, 1.0, False), (3, 8.0, True), (1, 0.1, False))  # batch size, size of the inputs, half-integers
_SIZES = (8, 16, 32, 64, 224)  # tried in turn for dimensions without a size, until the net runs
_RELATIVE, _ABSOLUTE = 1e-5, 1e-6  # the second times the largest value; some operators compute in float32
_RUNTIME = 1e-4  # of the largest value; ONNX Runtime computes in float32
_BY = "the conversion by onnx2torch"
_INSTEAD = "write the net as Python code (path/to/net.py:build) instead"


def convert(model: Any) -> nn.Module:
    """Return an ONNX model as a torch module, and change unused outputs and names of operators in `model`.

    A UserError is raised if an operator draws random numbers.
    """
    from onnx2torch import convert as converted
    from onnx2torch.onnx_graph import OnnxGraph

    for node in model.graph.node:
        if node.op_type in _RANDOM:
            raise UserError(_random(node))
    recurrent.register()
    _drop_unused_outputs(model.graph)
    _store_constants(model.graph)
    graph = OnnxGraph(model.graph)
    if len(graph.nodes) < len(model.graph.node):  # onnx2torch would omit operators
        for index, node in enumerate(model.graph.node):
            node.name = f"{node.op_type}_{index}"
        graph = OnnxGraph(model.graph)
    names_are_valid = all(name.isidentifier() and not iskeyword(name) for name in graph.input_values)
    module: Any = converted(model, save_input_names=names_are_valid)
    for name, node in graph.nodes.items():
        if node.operation_type == "Cast" and node.attributes["to"] in _float_types():
            module.set_submodule(name, _FloatCast(), strict=True)
    _set_outputs(module, graph)
    return module


def _store_constants(graph: Any) -> None:
    """Make initialisers of constants: onnx2torch requires them for weights, shapes and bounds.

    Clip gets infinite bounds in place of missing ones, which onnx2torch does not accept by an empty name.
    """
    from onnx import numpy_helper

    nodes = []
    for node in graph.node:
        tensor = _constant_tensor(node)
        if tensor is None:
            nodes.append(node)
        else:
            graph.initializer.append(tensor)
    bounds = {1: ("sdp_bench_no_minimum", -np.inf), 2: ("sdp_bench_no_maximum", np.inf)}
    for index, (name, bound) in bounds.items():
        clips = [n for n in nodes if n.op_type == "Clip" and len(n.input) > index and not n.input[index]]
        for node in clips:
            node.input[index] = name
        if clips:
            graph.initializer.append(numpy_helper.from_array(np.array(bound, np.float32), name))
    del graph.node[:]
    graph.node.extend(nodes)


def _constant_tensor(node: Any) -> Any:
    """Return the value of a Constant as a named tensor, or None if it is another operator or not dense."""
    from onnx import TensorProto, numpy_helper

    if node.op_type != "Constant":
        return None
    (attribute,) = node.attribute
    match attribute.name:
        case "value":
            tensor = TensorProto()
            tensor.CopyFrom(attribute.t)
        case "value_float" | "value_floats":
            values = attribute.f if attribute.name == "value_float" else list(attribute.floats)
            tensor = numpy_helper.from_array(np.array(values, np.float32))
        case "value_int" | "value_ints":
            values = attribute.i if attribute.name == "value_int" else list(attribute.ints)
            tensor = numpy_helper.from_array(np.array(values, np.int64))
        case _:
            return None
    tensor.name = node.output[0]
    return tensor


def _float_types() -> set[int]:
    from onnx import TensorProto

    return {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE}


class _FloatCast(nn.Module):
    """Convert integers to the type of the net, and leave floating-point numbers as they are.

    Rules need nets in float64, and nets of half precision are taken as float32.
    """

    like: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("like", torch.zeros(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x if x.is_floating_point() else x.to(self.like.dtype)


def _drop_unused_outputs(graph: Any) -> None:
    """Remove optional outputs: onnx2torch takes their operators for operators with a tuple of results."""
    used = {name for node in graph.node for name in node.input} | {output.name for output in graph.output}
    for node in graph.node:
        required = 1 if node.op_type in {"BatchNormalization", "Dropout", "MaxPool"} else len(node.output)
        while len(node.output) > required and node.output[-1] not in used:
            del node.output[-1]


def _set_outputs(module: Any, graph: Any) -> None:
    """Return the outputs of an ONNX graph in its order; onnx2torch returns those of their operators."""
    calls = {node.target: node for node in module.graph.nodes if node.op == "call_module"}
    last = next(node for node in module.graph.nodes if node.op == "output")
    results = []
    for name in graph.output_values:
        operator, index = graph.value_as_node_output(name)
        result = calls[operator.unique_name]
        with module.graph.inserting_before(last):
            is_tuple = len(operator.output_values) > 1
            results.append(module.graph.call_function(getitem, (result, index)) if is_tuple else result)
    last.args = (results[0] if len(results) == 1 else tuple(results),)
    module.recompile()


def differences(model: Any, module: nn.Module, inputs: Mapping[str, Tensor] | None = None) -> list[str]:
    """Compare a converted net with the ONNX model, and return notes on operators that were not compared.

    `module` is the result of `convert`. `inputs` are example inputs by name or index, with one
    row for each example; random inputs have their shapes, and integers are taken from them.

    A UserError is raised if an operator differs from the model's, or draws random numbers.
    """
    operators = _operators(model)
    compared: set[str] = set()
    problems: dict[str, str] = {}
    deadline = time.monotonic() + SECONDS
    double = copy.deepcopy(module).double().eval()
    for size in _SIZES:
        failure = ""
        for feeds in _draws(model, inputs or {}, size):
            comparison = _Comparison(double, model, operators, deadline)
            try:
                with torch.no_grad(), warnings.catch_warnings(), np.errstate(all="ignore"):
                    warnings.simplefilter("ignore")
                    comparison.compare(feeds)
            except UserError:
                raise
            except Exception as error:  # noqa: BLE001  the net may reject random sizes or integers
                failure = one_line(error).removeprefix("RuntimeError: ")[:200]
            compared |= comparison.compared
            problems |= comparison.problems
        is_late = time.monotonic() > deadline
        if not failure or is_late:
            break

    notes = []
    half = [node for node in operators.values() if node.op_type == "Cast" and _is_half(node)]
    if half:
        notes.append(f"{_label(half[0])} rounds to half precision, which is omitted")
    missing = [name for name in operators if name not in compared]
    if missing:
        reason = f"not within {SECONDS:g} s" if is_late else failure or "it does not run"
        reason = problems.get(missing[0]) or reason
        first = f"first {_label(operators[missing[0]])}: {reason}"
        notes.append(
            f"{len(missing)} of {len(operators)} operators could not be compared with the ONNX reference "
            f"({first}); install onnxruntime, or compare the outputs of the net with those of the framework "
            "that wrote it"
        )
    return notes


def _operators(model: Any) -> dict[str, Any]:
    """Return the nodes of an ONNX graph by the names of their torch modules."""
    from onnx2torch.onnx_graph import OnnxGraph

    return {name: node.proto for name, node in OnnxGraph(model.graph).nodes.items()}


def _is_half(node: Any) -> bool:
    from onnx import TensorProto

    return any(a.name == "to" and a.i in {TensorProto.FLOAT16, TensorProto.BFLOAT16} for a in node.attribute)


def _label(node: Any) -> str:
    name = node.name or next((name for name in node.output if name), "")
    return f"{node.op_type} (node '{name}')"


class _Comparison(fx.Interpreter):
    """Run a converted net in float64 and compare the results of all operators with the reference."""

    def __init__(self, module: Any, model: Any, operators: dict[str, Any], deadline: float) -> None:
        super().__init__(module)
        self.extra_traceback = False
        self.model, self.operators, self.deadline = model, operators, deadline
        self.values = {tensor.name: _constant(tensor) for tensor in model.graph.initializer}
        self.used = {name for node in operators.values() for name in node.input}
        self.used |= {output.name for output in model.graph.output}
        self.compared: set[str] = set()
        self.problems: dict[str, str] = {}  # by operator: why the reference has no values

    def compare(self, feeds: dict[str, np.ndarray]) -> None:
        """Run the net on inputs by name."""
        self.values |= feeds
        inputs = [torch.from_numpy(value) for value in feeds.values()]
        self.run(*inputs)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        node = self.operators[target]
        if _draws_at_random(node, self.values):
            raise UserError(_random(node))
        args, kwargs = fx.node.map_aggregate((args, kwargs), _double)
        try:
            result = fx.node.map_aggregate(super().call_module(target, args, kwargs), _double)
        except Exception as error:
            if "not implemented for 'Double'" not in str(error):
                self._reject_failure(node, error)
            raise
        outputs = list(result) if isinstance(result, tuple | list) else [result]
        if time.monotonic() < self.deadline:
            self._compare(target, node, outputs)
        # Values that float32 can hold are the same for every reference.
        result = fx.node.map_aggregate(result, _rounded)
        rounded = list(result) if isinstance(result, tuple | list) else [result]
        for name, value in zip(node.output, rounded, strict=False):
            self.values[name] = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
        return result

    def _reject_failure(self, node: Any, error: Exception) -> None:
        """Raise a UserError if the reference has results where the converted operator raised an error."""
        try:
            _reference(node, self.values, self.model)
        except Exception:  # noqa: BLE001  the inputs are invalid, or the reference lacks the operator
            return
        text = one_line(error)[:200]
        raise UserError(f"its operator {_label(node)} fails after {_BY}: {text}; {_INSTEAD}") from error

    def _compare(self, target: str, node: Any, outputs: list[Any]) -> None:
        if node.op_type == "Cast" and isinstance(self.fetch_attr(target), _FloatCast):
            self.compared.add(target)
            return
        try:
            expected = _reference(node, self.values, self.model)
            difference = self._difference(node, outputs, expected, _RELATIVE, _ABSOLUTE)
        except Exception as error:  # noqa: BLE001  the reference lacks operators and types
            self.problems[target] = one_line(error)[:120]
            difference = None
        # The reference can be wrong, too: a second one decides.
        if difference != "":
            with_runtime = self._runtime_difference(node, outputs)
            if with_runtime is not None:
                difference = with_runtime
        if difference is None:
            return
        if difference:
            raise UserError(
                f"its operator {_label(node)} is another function after {_BY}: {difference}; {_INSTEAD}"
            )
        self.compared.add(target)

    def _runtime_difference(self, node: Any, outputs: list[Any]) -> str | None:
        try:
            expected = _runtime(node, self.values, self.model)
        except Exception:  # noqa: BLE001  not installed, or it rejects the operator
            return None
        return self._difference(node, outputs, expected, _RUNTIME, _RUNTIME)

    def _difference(
        self, node: Any, outputs: list[Any], expected: list[Any], relative: float, absolute: float
    ) -> str:
        """Return how the results of an operator differ from the expected ones; "" if they do not."""
        names = [name for name in node.output if name]
        for name, value in zip(names, expected, strict=True):
            index = list(node.output).index(name)
            if name not in self.used:
                continue
            if index >= len(outputs):
                return f"it has {len(outputs)} outputs, not {len(names)}"
            if text := _unequal(outputs[index], np.asarray(value), relative, absolute):
                return text
        return ""


def _unequal(output: Any, expected: np.ndarray, relative: float, absolute: float) -> str:
    """Return how an output differs from the expected one; "" if it does not.

    `absolute` is relative to the largest expected value.
    """
    actual = output.numpy() if isinstance(output, Tensor) else np.asarray(output)
    if actual.shape != expected.shape:
        return f"its output has shape {actual.shape}, not {expected.shape}"
    is_float = np.issubdtype(expected.dtype, np.floating)
    if np.issubdtype(actual.dtype, np.floating) != is_float:
        return f"its output has the type {actual.dtype}, not {expected.dtype}"
    if not is_float:
        wrong = actual != expected
        return f"{wrong.mean():.3g} of its output values differ" if wrong.any() else ""
    scale = _largest_finite(expected)
    if np.allclose(actual, expected, relative, absolute * scale, equal_nan=True):
        return ""
    largest = _largest_finite(actual - expected)
    if largest <= relative * scale:
        return "NaN or infinity in other places of its output"
    return f"its output differs by up to {largest:.3g}, in values up to {scale:.3g}"


def _largest_finite(values: np.ndarray) -> float:
    """Return the largest absolute value that is finite; 0 without one."""
    finite = np.abs(values[np.isfinite(values)])
    return float(finite.max()) if finite.size else 0.0


# References ------------------------------------------------------------------------------------------


def _alone(node: Any, feeds: dict[str, np.ndarray], model: Any) -> Any:
    """Return a model that consists of one operator."""
    from onnx import helper

    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), None)
        for name, value in feeds.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    graph = helper.make_graph([node], "operator", inputs, outputs)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def _reference(node: Any, values: dict[str, np.ndarray], model: Any) -> list[np.ndarray]:
    from onnx.reference import ReferenceEvaluator

    feeds = {name: values[name] for name in node.input if name}
    if corrected := _corrected(node, list(feeds.values()), model):
        return corrected
    results = ReferenceEvaluator(_alone(node, feeds, model)).run(None, feeds)
    return [np.asarray(result) for result in results]


def _corrected(node: Any, inputs: list[np.ndarray], model: Any) -> list[np.ndarray]:
    """Return the result of an operator that onnx.reference 1.23 computes wrongly, or an empty list."""
    from onnx import helper

    opset = next(entry.version for entry in model.opset_import if entry.domain in {"", "ai.onnx"})
    attributes = {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}
    match node.op_type:
        # It ignores that older versions flatten, and exponentials underflow.
        case "Softmax":
            return [_softmax(scipy.special.softmax, inputs[0], attributes, opset)]
        case "LogSoftmax":
            return [_softmax(scipy.special.log_softmax, inputs[0], attributes, opset)]
        case "BatchNormalization" if opset < 14 and len(node.output) == 1:  # it uses the batch
            return [_batch_normalisation(inputs, attributes)]
        case "LRN":  # it takes the batch size for the number of channels
            return [_local_response_normalisation(inputs[0], attributes)]
        case "ConvTranspose":  # it ignores paddings and the order of groups
            return [_transposed_convolution(inputs, attributes)]
    return []


def _softmax(
    function: Callable[[np.ndarray, int], np.ndarray], x: np.ndarray, attributes: dict[str, Any], opset: int
) -> np.ndarray:
    """Apply a softmax to one axis; before version 13, to that axis and all later ones together."""
    if opset >= 13:
        return function(x, attributes.get("axis", -1))
    axis = attributes.get("axis", 1)
    flat = x.reshape(*x.shape[:axis], -1)
    return function(flat, -1).reshape(x.shape)


def _batch_normalisation(inputs: list[np.ndarray], attributes: dict[str, Any]) -> np.ndarray:
    """Return scale * (x - mean) / sqrt(variance + epsilon) + bias, with parameters for each channel."""
    x, *parameters = inputs
    scale, bias, mean, variance = [_per_channel(values, x.ndim) for values in parameters]
    return scale * (x - mean) / np.sqrt(variance + attributes.get("epsilon", 1e-5)) + bias


def _per_channel(values: np.ndarray, ndim: int) -> np.ndarray:
    """Reshape one number for each channel to broadcast with values of shape (B, channels, ...)."""
    return values.reshape([-1] + [1] * (ndim - 2))


def _local_response_normalisation(x: np.ndarray, attributes: dict[str, Any]) -> np.ndarray:
    """Return x / (bias + alpha / size * sum of squares over `size` neighbouring channels) ** beta."""
    size = attributes["size"]
    alpha, beta = attributes.get("alpha", 1e-4), attributes.get("beta", 0.75)
    bias = attributes.get("bias", 1.0)
    squares = np.zeros_like(x)
    for channel in range(x.shape[1]):
        first = max(0, channel - (size - 1) // 2)
        neighbours = x[:, first : channel + size // 2 + 1]
        squares[:, channel] = np.square(neighbours).sum(1)
    return x / (bias + alpha / size * squares) ** beta


def _transposed_convolution(inputs: list[np.ndarray], attributes: dict[str, Any]) -> np.ndarray:
    """Return the result of ConvTranspose: every input value adds its multiple of the kernel to the output."""
    x, kernel, *bias = inputs
    batch, _, *sizes = x.shape  # input (B, channels, *sizes)
    widths = kernel.shape[2:]  # kernel (channels, outputs of a group, *widths)
    dimensions, groups = len(sizes), attributes.get("group", 1)
    strides = attributes.get("strides", [1] * dimensions)
    dilations = attributes.get("dilations", [1] * dimensions)
    output_padding = attributes.get("output_padding", [0] * dimensions)
    full_sizes = []  # of the output without padding
    for axis in range(dimensions):
        last_input = strides[axis] * (sizes[axis] - 1)
        last_weight = dilations[axis] * (widths[axis] - 1)
        full_sizes.append(last_input + last_weight + 1 + output_padding[axis])

    values = x.reshape(batch, groups, -1, *sizes)
    weights = kernel.reshape(groups, -1, *kernel.shape[1:])
    y = np.zeros((batch, groups, kernel.shape[1], *full_sizes))
    for offset in np.ndindex(*widths):
        # Positions of the output to which this weight contributes, one for each input.
        window: list[Any] = []
        for axis in range(dimensions):
            first = dilations[axis] * offset[axis]
            window.append(slice(first, first + strides[axis] * (sizes[axis] - 1) + 1, strides[axis]))
        weight = weights[(..., *offset)]
        y[(..., *window)] += np.einsum("ngc...,gcm->ngm...", values, weight)
    y = y.reshape(batch, -1, *full_sizes)
    if bias:
        y += _per_channel(bias[0], y.ndim)
    return _padded(y, _paddings(attributes, full_sizes))


def _paddings(attributes: dict[str, Any], full_sizes: list[int]) -> list[tuple[int, int]]:
    """Return how much a transposed convolution removes at the beginning and end of each spatial axis."""
    dimensions = len(full_sizes)
    if "output_shape" not in attributes:
        pads = attributes.get("pads", [0] * 2 * dimensions)  # all beginnings, then all ends
        return list(zip(pads[:dimensions], pads[dimensions:], strict=True))
    paddings = []
    for size, output_size in zip(full_sizes, attributes["output_shape"][-dimensions:], strict=True):
        total = size - output_size
        # Of an odd total, SAME_UPPER removes the larger part at the end, others at the beginning.
        is_upper = attributes.get("auto_pad", b"") == b"SAME_UPPER"
        beginning = total // 2 if is_upper else total - total // 2
        paddings.append((beginning, total - beginning))
    return paddings


def _padded(y: np.ndarray, paddings: list[tuple[int, int]]) -> np.ndarray:
    """Remove the padding from the spatial axes; a negative padding extends them with zeros."""
    borders = [(max(0, -beginning), max(0, -end)) for beginning, end in paddings]
    y = np.pad(y, [(0, 0), (0, 0), *borders])
    parts: list[Any] = []
    for size, (beginning, end) in zip(y.shape[2:], paddings, strict=True):
        parts.append(slice(max(0, beginning), size - max(0, end)))
    return y[(..., *parts)]


def _runtime(node: Any, values: dict[str, np.ndarray], model: Any) -> list[np.ndarray]:
    import onnxruntime

    feeds = {}
    for name in filter(None, node.input):
        value = values[name]
        feeds[name] = value.astype(np.float32) if value.dtype == np.float64 else value
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # the caller reports errors
    options.intra_op_num_threads = 1
    content = _alone(node, feeds, model).SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return [np.asarray(result) for result in session.run(None, feeds)]


# Values ----------------------------------------------------------------------------------------------


def _constant(tensor: Any) -> np.ndarray:
    from onnx import TensorProto, numpy_helper

    value = np.asarray(numpy_helper.to_array(tensor))
    is_float = tensor.data_type == TensorProto.BFLOAT16 or np.issubdtype(value.dtype, np.floating)
    return value.astype(np.float64) if is_float else value


def _double(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def _rounded(value: Any) -> Any:
    is_float = isinstance(value, Tensor) and value.is_floating_point()
    return value.float().double() if is_float else value


_RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)


def _draws_at_random(node: Any, values: Mapping[str, np.ndarray]) -> bool:
    is_training = node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]
    return node.op_type in _RANDOM or bool(is_training and np.any(values[node.input[2]]))


def _random(node: Any) -> str:
    return f"its operator {_label(node)} draws random numbers; export the net in evaluation mode"


def _draws(model: Any, examples: Mapping[str, Tensor], size: int) -> Iterator[dict[str, np.ndarray]]:
    """Yield inputs by name: random ones of several magnitudes, with half-integers, then the examples."""
    constants = {tensor.name for tensor in model.graph.initializer}
    infos = [info for info in model.graph.input if info.name not in constants]
    examples_of = {}
    for index, info in enumerate(infos):
        for key in (info.name, f"input_{index + 1}", str(index)):
            if key in examples:
                examples_of[info.name] = examples[key]
    rng = np.random.default_rng(0)
    for rows, scale, halves in _DRAWS:
        feeds = {}
        for info in infos:
            example = examples_of.get(info.name)
            if example is None or _dtype(info).kind == "f":
                shape = _shape(info, example, rows, size)
                feeds[info.name] = _random_values(info, shape, scale, halves, rng)
            else:  # random integers would often be invalid
                feeds[info.name] = _repeated(info, example, rows)
        yield feeds
    if len(examples_of) == len(infos):
        rows = min(2, max(len(example) for example in examples_of.values()))
        yield {info.name: _repeated(info, examples_of[info.name], rows) for info in infos}


def _shape(info: Any, example: Tensor | None, rows: int, size: int) -> list[int]:
    """Return the shape of an input: that of an example or of the file, with `size` where both are open."""
    # Some exporters write -1 for an open dimension.
    dimensions = [max(0, dimension.dim_value) for dimension in info.type.tensor_type.shape.dim]
    if example is not None:
        return [(dimensions and dimensions[0]) or rows, *example.shape[1:]]
    return [dimension or (size if axis else rows) for axis, dimension in enumerate(dimensions)]


def _repeated(info: Any, example: Tensor, rows: int) -> np.ndarray:
    """Return the first rows of an example, as many as the batch has."""
    rows = _shape(info, example, rows, 0)[0]
    return np.array(example[torch.arange(rows) % len(example)].numpy(), dtype=_dtype(info))


def _random_values(
    info: Any, shape: list[int], scale: float, halves: bool, rng: np.random.Generator
) -> np.ndarray:
    dtype = _dtype(info)
    if dtype.kind != "f":
        return rng.integers(0, 2, shape).astype(dtype)  # indices that most tables have
    values = np.asarray(rng.standard_normal(shape) * scale)
    return np.round(2 * values) / 2 if halves else values.astype(np.float32).astype(np.float64)


def _dtype(info: Any) -> np.dtype[Any]:
    from onnx import helper

    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type))
    return dtype if dtype.kind in "iub" else np.dtype(np.float64)
