"""Nets in files: torch.export programs or ONNX models."""

from __future__ import annotations

import copy
import hashlib
import importlib
import io
import logging
import sys
import types
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from ...errors import UserError, one_line
from ...files import reading
from ...published import PUBLISHED, published_net
from . import conversion

ENDS = (".pt2", ".onnx")
"""Suffixes of such files; the content determines the format."""
PICKLED = (".pt", ".pth", ".ts", ".torchscript")
"""Other suffixes of files that torch writes."""

DYNAMIC = (
    "export it with a dynamic batch: torch.export.export(net, (x,), dynamic_shapes=({0: "
    "torch.export.Dim.DYNAMIC},)), or dynamic_axes of torch.onnx.export"
)


@dataclass(frozen=True)
class Program:
    """Content of a file, which is sufficient to run the net elsewhere."""

    address: str  # where it was found, for display
    content: bytes = field(repr=False)
    is_compared: bool = False  # whether its conversion was compared with the file

    @classmethod
    def find(cls, address: str) -> Program:
        """Read a file without running any of it; a UserError if it cannot be read."""
        path = Path(address)
        with reading(path):
            return cls(address, path.read_bytes())

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    def load(self, inputs: Mapping[str, Tensor] | None = None, notes: list[str] | None = None) -> nn.Module:
        """Return the module on the CPU.

        The module of an ONNX file is compared with the file, at random inputs and at `inputs` (by name or
        index, one row per example), unless the flag `is_compared` is set. If this is not possible, a line is
        added to `notes`, or is a warning without them.

        A UserError is raised if the file has another format, or differs from the module.
        """
        lines: list[str] = []
        # torch warns about the indexing of onnx2torch whenever a converted net runs or is differentiated.
        warnings.filterwarnings("ignore", "Using a non-tuple sequence for multidimensional indexing")
        try:
            with warnings.catch_warnings(), _quiet():
                warnings.simplefilter("ignore")  # older exports are converted
                module = self._read(inputs, lines)
        except UserError as error:
            raise UserError(f"{self.address}: {error}") from error
        except NotImplementedError as error:
            raise UserError(
                f"cannot read {self.address}: onnx2torch lacks an operator ({one_line(error)[:200]}); "
                f"export with opset_version={_OPSET}, convert the file by {self._conversion}, or write the "
                "net as Python code (path/to/net.py:build)"
            ) from error
        except Exception as error:
            raise UserError(f"cannot read {self.address}: {one_line(error)[:300]}") from error
        if notes is None:
            for line in lines:
                warnings.warn(f"{self.address}: {line}", stacklevel=2)
        else:
            notes.extend(lines)
        return module

    @property
    def _conversion(self) -> str:
        """Python code that converts an ONNX file to the operators that onnx2torch knows best."""
        path = Path(self.address)
        converted = str(path.with_stem(f"{path.stem}-{_OPSET}"))
        model = f"version_converter.convert_version(onnx.load({str(path)!r}), {_OPSET})"
        return f"`import onnx.version_converter; onnx.save(onnx.{model}, {converted!r})`"

    def _read(self, inputs: Mapping[str, Tensor] | None, notes: list[str]) -> nn.Module:
        try:
            names = zipfile.ZipFile(io.BytesIO(self.content)).namelist()
        except zipfile.BadZipFile:
            if self.address.endswith(".onnx"):
                model = _onnx(self.content)
                module = conversion.convert(model).eval()
                if not self.is_compared:
                    notes.extend(conversion.differences(model, module, inputs))
                return module
            raise UserError("it is neither a program of torch.export nor an ONNX model (.onnx)") from None
        inside = {name.partition("/")[2] for name in names}
        if "constants.pkl" in inside:
            raise UserError(f"TorchScript files are not read; use torch.export.save instead; {DYNAMIC}")
        if "archive_format" in inside or "serialized_exported_program.json" in names:
            return _exported(self.content)
        raise UserError(
            "it holds weights or a pickle (torch.save), not a net that can be run; give a function that "
            "makes the net and loads them, path/to/net.py:build"
        )


_OPSET = 17
"""Version of ONNX's operators: onnx2torch lacks many of later versions."""


@dataclass(frozen=True)
class PublishedProgram(Program):
    """A published net: its file stays in the installed package, and `content` is empty."""

    sha256: str = ""

    @classmethod
    def find(cls, address: str) -> PublishedProgram:
        """Find a net by its name; a UserError if its package is missing or differs from the expected one."""
        published = published_net(address)
        published.path()
        return cls(f"{PUBLISHED}:{address}", b"", True, published.sha256)

    @property
    def digest(self) -> str:
        return self.sha256

    def load(self, inputs: Mapping[str, Tensor] | None = None, notes: list[str] | None = None) -> nn.Module:  # noqa: ARG002
        published = published_net(self.address.partition(":")[2])
        path = published.path()
        if path.suffix == ".onnx":  # the hash is known, so the conversion need not be compared again
            return published.build(Program(str(path), path.read_bytes(), is_compared=True).load())
        return published.build(path)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide log messages: torch logs tracebacks of damaged files before it raises an error."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _exported(content: bytes) -> nn.Module:
    program = torch.export.load(io.BytesIO(content))
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    inputs = (values.get(str(name)) for name in program.graph_signature.user_inputs)
    first = next((value for value in inputs if isinstance(value, torch.Tensor) and value.ndim), None)
    if first is None:
        raise UserError("it takes no tensor")
    size = first.shape[0]
    if isinstance(size, torch.SymInt):
        most = program.range_constraints.get(size.node.expr)
        if most is None or int(min(most.upper, 2**62)) == 2**62:
            return _Exported(_any_type(program.module()))
    raise UserError(f"it takes batches of {size} inputs only; {DYNAMIC}")


_CASTS = (torch.ops.aten.to.dtype, torch.ops.aten.to.dtype_layout, torch.ops.aten._to_copy.default)


def _any_type(module: Any) -> nn.Module:
    """Remove casts between floating-point types and assertions of types, so that the net runs in float64."""
    for node in list(module.graph.nodes):
        if node.target is torch.ops.aten._assert_tensor_metadata.default:
            module.graph.erase_node(node)
        elif node.target in _CASTS and _is_float(node) and _is_float(node.args[0]):
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)
    module.recompile()
    result: nn.Module = module
    return result


def _is_float(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.is_floating_point()


class _Exported(nn.Module):
    """A torch.export module that allows ``eval``, which raises on the original and would have no effect."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.training = False

    def train(self, mode: bool = True) -> Self:
        """Store the mode only, since it was fixed on export."""
        self.training = mode
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> _Exported:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # torch copies deprecated attributes
            return _Exported(copy.deepcopy(self.module, memo))

    def forward(self, *args: Tensor, **kwargs: Tensor) -> Any:
        return self.module(*args, **kwargs)


def _tensors(parts: Iterable[Any]) -> Iterator[Any]:
    """Yield all tensors of ONNX graphs and functions: weights, constants, and those of graphs inside."""
    for part in parts:
        yield from getattr(part, "initializer", ())
        for sparse in getattr(part, "sparse_initializer", ()):
            yield from (sparse.values, sparse.indices)
        for node in part.node:
            for attribute in node.attribute:
                yield from (attribute.t, *attribute.tensors)
                for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                    yield from (sparse.values, sparse.indices)
                if attribute.HasField("g"):
                    yield from _tensors([attribute.g])
                yield from _tensors(attribute.graphs)


def _onnx(content: bytes) -> Any:
    try:
        import onnx

        _import_onnx2torch()
    except ModuleNotFoundError as error:
        raise UserError(
            f"an ONNX file needs the extra onnx: pip install 'sdp-bench[onnx]' ({error})"
        ) from error
    model = onnx.load_model_from_string(content)
    if any(tensor.external_data for tensor in _tensors([model.graph, *model.functions])):
        raise UserError("its weights are in another file; write them into it (onnx.save_model)")
    return model


def _import_onnx2torch() -> None:
    """Import onnx2torch, also if torchvision cannot be imported.

    onnx2torch needs torchvision for NonMaxSuppression and RoiAlign only, but imports it always. The import
    fails if torchvision was built for another torch, as PyPI's is next to a CPU build. A stand-in without
    these two operators then takes its place during the import.
    """
    try:
        importlib.import_module("torchvision.ops")
    except Exception:  # noqa: BLE001  an operator that is not registered raises a RuntimeError
        partial = [name for name in sys.modules if name.partition(".")[0] == "torchvision"]
        for name in partial:
            del sys.modules[name]
        stand_in, operators = types.ModuleType("torchvision"), types.ModuleType("torchvision.ops")
        operators.roi_align = None  # type: ignore[attr-defined]
        stand_in.ops = operators  # type: ignore[attr-defined]
        stand_ins = {"torchvision": stand_in, "torchvision.ops": operators}
        sys.modules.update(stand_ins)
        try:
            import onnx2torch
        finally:
            for name in stand_ins:
                del sys.modules[name]
    else:
        import onnx2torch  # noqa: F401
