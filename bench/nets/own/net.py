"""A user's net: found by an address, validated, and sent to workers with its weights."""

from __future__ import annotations

import copy
import functools
import inspect
import math
import timeit
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ... import identity
from ...datasets.base import LabelledTable
from ...errors import UserError, one_line
from ...executors.local import in_separate_process
from ...plugins import code as user_code
from ...plugins.code import Code, no_exit
from ...published import PUBLISHED, published_net
from ...text import plural, public
from ..storage import from_file, to_file
from .inputs import EMBEDDINGS, Inputs, Ports, described, dtype_of, parts_of, read_inputs
from .programs import ENDS, PICKLED, Program, PublishedProgram

KIND = "own"
"""Prefix of its "activation": no rule has a formula for it in advance."""


_TRIED = 8  # number of inputs in the trial
_ALIKE = 1e-3  # of the largest output: single rows and batches differ by float32 rounding


@dataclass(frozen=True)
class OwnArchitecture:
    """Properties of a net that are visible from outside."""

    name: str  # file and attribute: ``my_net.py:build``
    # shapes of one input and of one output
    event: tuple[int, ...]
    output_shape: tuple[int, ...]
    depth: int  # number of modules with weights

    @property
    def activation(self) -> str:
        """Identifies the net itself, which determines which rules have a formula."""
        return f"{KIND}:{self.name}"

    @property
    def outputs(self) -> int:
        return int(np.prod(self.output_shape, dtype=int))

    @property
    def label(self) -> str:
        """Short description: ``my_net.py:build 4 to 3``."""
        return f"{self.name} {'x'.join(map(str, self.event))} to {self.outputs}"


@dataclass(frozen=True)
class OwnRecipe:
    """File names of net and inputs; how the net was trained is not known."""

    own: str
    inputs: str

    @property
    def label(self) -> str:
        """Short description: ``yours, on x.npy``."""
        return f"yours, on {self.inputs}"


@dataclass(frozen=True, eq=False)
class OwnNet:
    """A user's net with its inputs."""

    architecture: OwnArchitecture
    recipe: OwnRecipe
    code: Code | Program  # what constructs it, or its file
    # weights and buffers when the net was found, on the CPU; empty for a file, which contains them, and
    # for a net of stored results
    state: dict[str, Tensor]
    inputs: Tensor  # shape (B, *event), float32
    notes: tuple[str, ...] = ()  # conversions of net or inputs, for display
    row_seconds: float = 0.0  # time (s) of a forward pass on one thread, per row of a batch
    widest: int = 0  # most components of a value inside the net; 0 if unknown
    ports: Ports = field(default_factory=Ports)  # the input with the noise, and the selected output
    has_class: bool = True  # whether the largest output is a decision, if there are several
    seed: int = 0
    accuracy: None = None
    source: str = "yours"

    @functools.cached_property
    def digest(self) -> str:
        """Hash of shapes, weights, source and selected ports, 16 hexadecimal digits."""
        shapes = asdict(self.architecture)
        del shapes["name"]
        parts: list[Any] = [shapes, self.state]
        if isinstance(self.code, Program):
            parts.append(self.code.digest)
        else:
            parts += [self.code.source, *self.code.modules, self.code.attribute]
        if not self.ports.is_plain:
            parts += [self.ports.names, self.ports.given]
        return identity.digest(*parts)[:16]

    @property
    def data(self) -> LabelledTable:
        return LabelledTable(self.inputs, torch.zeros(len(self.inputs), dtype=torch.int64))

    def build(self) -> nn.Module:
        """Return the net in evaluation mode, on the CPU, with outputs of shape (B, m).

        A UserError is raised if the code fails or is that of stored results, which have none, or if the
        weights do not fit the net.
        """
        net, _ = _made(self.code)
        try:
            if isinstance(self.code, Code):
                net.load_state_dict(self.state)
        except RuntimeError as error:
            raise UserError(
                f"{self.code.address}: its layers differ from call to call, or the code is not what it was: "
                f"{_shortened(error)}"
            ) from error
        net, dimensions = self.ports.wrap(net), len(self.architecture.output_shape)
        if dimensions != 1:
            net = nn.Sequential(net, nn.Flatten() if dimensions else _Column())
        return net.eval()

    def to_bytes(self) -> bytes:
        """Return a safetensors file of the inputs, with a description and the address in its metadata."""
        tensors = {f"given.{name}": tensor for name, tensor in self.ports.given.items()}
        about = {
            "architecture": asdict(self.architecture),
            "recipe": asdict(self.recipe),
            "address": public(self.code.address),
            "ports": self.ports.names,
            "notes": self.notes,
            "row_seconds": self.row_seconds,
            "widest": self.widest,
        }
        return to_file({**tensors, "inputs": self.inputs}, about)

    @classmethod
    def from_bytes(cls, content: bytes, source: str) -> OwnNet:
        """Inverse of `to_bytes`: a net that `again` completes by its code and weights.

        Older versions stored both, which are ignored.
        """
        try:
            tensors, about = from_file(content)
            shapes: dict[str, Any] = about["architecture"]
            shapes |= {k: tuple(shapes[k]) for k in ("event", "output_shape")}
            address = about.get("address") or about["code"]
            return cls(
                OwnArchitecture(**shapes),
                OwnRecipe(**about["recipe"]),
                Code(address if isinstance(address, str) else address["address"]),
                {},
                tensors["inputs"],
                tuple(about["notes"]),
                about["row_seconds"],
                about.get("widest", 0),
                Ports(given=_below("given.", tensors), **about.get("ports", {})),
                source=source,
            )
        except Exception as error:
            raise ValueError(f"not a net file of sdp-bench ({error})") from error


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def find(
    net: str | Code,
    inputs: Inputs,
    rows: int | None = None,
    noisy: str | None = None,
    output: str | None = None,
    has_class: bool | None = None,
) -> OwnNet:
    """Find a net and try it on its inputs in a separate process.

    `net` is ``path/to/net.py:build`` or ``package.module:build``, with a function or class without
    arguments or a module, or ``published:NAME``, or a file supported by
    `sdp_bench.bench.nets.own.programs`, or code. `inputs` is an
    array of shape (B, *event) written by ``numpy.save``, or several of ``numpy.savez``, by name or in the
    order of the net's inputs; `rows` selects the first ones. `noisy` is the name or index of the input
    with noise; the others are the same for all examples. `output` is the key, field or index of the
    selected output of a net with several outputs, with dots for nested ones. `has_class` is whether the
    largest output is a decision; by default it is, except for published nets without classes.

    A UserError is raised if the net does not exist, the inputs are not finite numbers, or the net does not
    map each row independently and repeatably to finite numbers. A RunFailedError is raised if its code ends
    the process or exceeds the time limit.
    """
    address = net if isinstance(net, str) else net.address
    name = _name_of(net) if isinstance(net, str) else address.rpartition(":")[2]
    values, ports, notes = read_inputs(inputs, rows, noisy)
    given = inputs.name if isinstance(inputs, Path) else "inputs"
    label = given if noisy is None else f"{given}[{ports.noisy}]"
    ports = replace(ports, output=output or "")
    if address.startswith(f"{PUBLISHED}:"):  # its code is ours, and a process takes seconds to start
        examined = _examined(address, name, label, values, ports, notes)
        is_decision = published_net(address.partition(":")[2]).has_class
    else:
        examined = in_separate_process(_examined, net, name, label, values, ports, notes, address=address)
        is_decision = True
    return replace(examined, has_class=is_decision if has_class is None else has_class)


def again(stored: OwnNet, address: str, digest: str) -> OwnNet:
    """Return a net of stored results with the code and weights that are found at an address now.

    Inputs and times are the stored ones. A UserError is raised if its digest is not the stored one; other
    errors are those of `find`.
    """
    name = _name_of(address)
    net = in_separate_process(_examined, address, name, "", stored.inputs, stored.ports, [], address=address)
    if net.digest != digest:
        raise UserError(
            f"the net {address} has the digest {net.digest}, but the measurements are of {digest} "
            f"({stored.code.address}); its source, weights, selected input or output have changed"
        )
    return replace(stored, code=net.code, state=net.state)


def _name_of(address: str) -> str:
    """Return the name of a net without its folder; a UserError if no net has such an address."""
    location, _, attribute = address.partition(":")
    if location == PUBLISHED:
        return address
    if location.endswith((*ENDS, *PICKLED)):
        if attribute:
            raise UserError(f"{location} is a net itself; leave :{attribute} out")
    elif not attribute.isidentifier():
        raise UserError(
            f"'{address}' names no net; write path/to/net.py:build, a function or a module in it, or a file "
            f"({', '.join(ENDS)})"
        )
    return Path(location).name + (f":{attribute}" if attribute else "")


def finder(
    net: str | Code | None,
    inputs: Inputs | None,
    rows: int | None,
    noisy: str | None,
    output: str | None,
    has_class: bool | None = None,
) -> Callable[[], OwnNet] | None:
    """Return a call of `find`, or None without a net. Raises UserError if only net or inputs are given."""
    if net is None:
        if any(given is not None for given in (inputs, rows, noisy, output, has_class)):
            raise UserError(
                "inputs, rows, net_input, net_output and has_class (--class) need a net (--net FILE.py:build)"
            )
        return None
    if inputs is None:
        raise UserError(
            "a net needs inputs (--inputs x.npy, or x.csv with one row each): an array of shape (B, *event)"
        )
    return partial(find, net, inputs, rows, noisy, output, has_class)


def _examined(
    net: str | Code, name: str, inputs: str, values: Tensor, ports: Ports, notes: list[str]
) -> OwnNet:
    """Run the code, and return the net if it maps each input by itself to finite numbers."""
    code = _code_of(net)
    address = code.address
    module, was_half = _made(code, {**ports.given, ports.noisy: values}, notes)
    if isinstance(code, Program):
        code = replace(code, is_compared=True)
    if training := _in_training_mode(module):
        notes.append(f"{', '.join(training)} came in training mode; the net is taken in evaluation mode")
    if was_half:
        notes.append("weights of half precision are taken as float32")

    outputs = _tried(ports.wrap(module.eval()), values, address)
    if outputs[0].numel() < 1:
        raise UserError(f"{address}: the net has no outputs (shape {tuple(outputs.shape)})")
    state = module.state_dict() if isinstance(code, Code) else {}  # a file contains the weights
    weights = {
        key: tensor.detach().cpu().clone() for key, tensor in state.items() if isinstance(tensor, Tensor)
    }
    label = f"{name}[{ports.output}]" if ports.output else name
    depth = len([part for part in module.modules() if list(part.parameters(recurse=False))])
    architecture = OwnArchitecture(label, tuple(values.shape[1:]), tuple(outputs.shape[1:]), depth)
    examined = OwnNet(architecture, OwnRecipe(name, inputs), code, weights, values, ports=ports)

    rebuilt, dtype = examined.build(), dtype_of(module)
    repeated = _outputs(rebuilt, values[: len(outputs)].to(dtype), address)
    if not _same(repeated, outputs.reshape(len(outputs), -1)):
        raise UserError(
            f"{address} gives another net each time, beyond its weights: fix what it draws or reads when made"
        )
    return replace(
        examined,
        notes=tuple(notes),
        row_seconds=_seconds_per_row(rebuilt, values.to(dtype)),
        widest=_widest(rebuilt, values.to(dtype)),
    )


def _code_of(net: str | Code) -> Code | Program:
    if isinstance(net, Code):
        return net
    location, _, attribute = net.partition(":")
    if location == PUBLISHED:
        return PublishedProgram.find(attribute)
    return user_code.find(location, attribute, net) if attribute else Program.find(location)


def _in_training_mode(module: nn.Module) -> list[str]:
    """Return the types of layers in training mode that then give other outputs than in evaluation mode."""
    kinds = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._NormBase)
    layers = [part for part in module.modules() if isinstance(part, kinds) and part.training]
    return list(dict.fromkeys(type(layer).__name__ for layer in layers))


def _seconds_per_row(net: nn.Module, values: Tensor) -> float:
    """Return the time (s) of a forward pass per row, in a batch of repeated inputs."""
    rows = max(1, min(1024, 2**19 // values[0].numel()))  # a batch of at most 4 MB in float64
    copies = math.ceil(rows / len(values))
    batch = torch.cat([values] * copies)[:rows]
    with torch.no_grad():
        # The first call is slower.
        return min(timeit.repeat(lambda: net(batch), number=1, repeat=3)) / rows


def _widest(net: nn.Module, values: Tensor) -> int:
    """Return the largest number of components of a value of a net."""
    with torch.no_grad(), _Widest() as widest:  # type: ignore[no-untyped-call]
        net(values[:1].expand(_ROWS, *values.shape[1:]))
    return widest.components


_ROWS = 7
"""Batch size that distinguishes values from weights, which rarely have as many rows."""


class _Widest(TorchDispatchMode):
    """Record the largest number of components of a value of a net."""

    components = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        value = func(*args, **(kwargs or {}))
        if isinstance(value, Tensor) and value.ndim > 1 and len(value) == _ROWS:
            self.components = max(self.components, value[0].numel())
        return value


def _made(
    code: Code | Program, inputs: dict[str, Tensor] | None = None, notes: list[str] | None = None
) -> tuple[nn.Module, bool]:
    """Construct the net on the CPU, seeded, as float32, and return whether it had half precision."""
    made = code.load(inputs, notes) if isinstance(code, Program) else code.load()
    if not isinstance(made, nn.Module):
        if isinstance(code, Program) or not callable(made):
            raise UserError(
                f"{code.address}: {getattr(code, 'attribute', 'it')} is neither a module nor makes one"
            )
        if _takes_inputs(made):
            raise UserError(
                f"{code.address} takes the inputs itself, and a net is a module; write `class "
                f"Net(torch.nn.Module): forward = lambda self, x: {made.__name__}(x)`, for a NumPy function "
                f"`... forward = lambda self, x: torch.as_tensor({made.__name__}(x.detach().numpy()))`"
            )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            try:
                with no_exit():
                    made = made()
            except Exception as error:
                raise UserError(f"{code.address}: cannot make the net: {_shortened(error)}") from error
        if not isinstance(made, nn.Module):
            raise UserError(f"{code.address} must give a torch.nn.Module, got {type(made).__name__}")
    net = copy.deepcopy(made).cpu()
    was_half = any(t.dtype in (torch.float16, torch.bfloat16) for t in (*net.parameters(), *net.buffers()))
    return (net.float() if was_half else net), was_half


def _takes_inputs(function: Any) -> bool:
    """Return whether a function, not a class, has an argument without a default."""
    if not inspect.isfunction(function):
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return any(
        parameter.kind in kinds and parameter.default is inspect.Parameter.empty for parameter in parameters
    )


class _Column(nn.Module):
    """Add the dimension of a single output; nn.Unflatten over the batch is refused by some rules."""

    def forward(self, x: Tensor) -> Tensor:
        return x.unsqueeze(1)


def _tried(net: nn.Module, inputs: Tensor, address: str) -> Tensor:
    """Return the outputs at the first inputs after checking that they are finite, repeatable and row-wise."""
    some = inputs[:_TRIED]
    # Add random inputs, so that there is a batch even for a single input.
    generator = torch.Generator().manual_seed(0)
    spread = 0.1 * some.std() if some.numel() > 1 and some.std() > 0 else torch.tensor(0.1)
    others = some + spread * torch.randn(some.shape, generator=generator)
    batch = torch.cat([some, others]).to(dtype_of(net))
    outputs = _outputs(net, batch, address)
    if not _same(_outputs(net, batch, address), outputs):
        raise UserError(
            f"{address}: the net gives other outputs each time: does it use dropout by a function, or keep a "
            "state between calls? Begin each forward() with a new state"
        )
    for row in range(len(batch)):
        alone = _outputs(net, batch[row : row + 1], address)
        if alone.shape[1:] != outputs.shape[1:] or not _same(alone[0], outputs[row]):
            if any(isinstance(part, nn.RNNBase) and not part.batch_first for part in net.modules()):
                raise UserError(
                    f"{address}: a recurrent layer takes the second axis as the batch; construct it with "
                    "batch_first=True"
                )
            raise UserError(
                f"{address}: the output of an input depends on the others of its batch; a net must map each "
                "row by itself"
            )
    return outputs[: len(some)]


def _outputs(net: nn.Module, batch: Tensor, address: str) -> Tensor:
    try:
        with torch.no_grad(), warnings.catch_warnings(), no_exit():
            warnings.simplefilter("ignore", UserWarning)  # from lazy modules
            outputs = net(batch)
    except UserError as error:
        raise UserError(f"{address}: {error}") from error
    except Exception as error:
        reason = _ONE_BY_ONE if len(batch) > 1 and _runs(net, batch[:1]) else _why(error)
        raise UserError(
            f"{address}: the net cannot take inputs of shape {tuple(batch.shape)}, {batch.dtype}: {reason}"
        ) from error
    if isinstance(outputs, np.ndarray):
        raise UserError(f"{address}: the net returns a NumPy array; write `return torch.as_tensor(...)`")
    if not isinstance(outputs, Tensor):
        raise UserError(
            f"{address}: the net must return one tensor, got {described(outputs)} (for a trial batch of "
            f"{len(batch)} inputs); select one by its key, field or index: "
            f"--net-output {next(iter(parts_of(outputs)), '...')}"
        )
    if outputs.ndim > 1 and outputs.shape[1] == len(batch) != len(outputs):
        raise UserError(
            f"{address}: the batch is the second axis of the output, shape {tuple(outputs.shape)}, as for "
            "the state of a recurrent layer; write `return output.transpose(0, 1)`"
        )
    if outputs.ndim < 1 or len(outputs) != len(batch):
        # Nets that squeeze all axes of length one fail for a single input only.
        line = "; write `return output.reshape(len(x), -1)`" if len(batch) == 1 else ""
        raise UserError(
            f"{address}: the net must give one output for each of {plural(len(batch), 'input')}, got shape "
            f"{tuple(outputs.shape)}{line}"
        )
    if not outputs.is_floating_point():
        raise UserError(f"{address}: outputs must be floating-point numbers, got {outputs.dtype}")
    if not bool(torch.isfinite(outputs).all()):
        raise UserError(f"{address}: the net gives NaN or infinity at these inputs")
    return outputs


_ONE_BY_ONE = (
    "it takes one input at a time; write `class Rows(torch.nn.Module): forward = lambda self, x: "
    "torch.cat([net(row) for row in x.split(1)])` with your net as `net`"
)


def _runs(net: nn.Module, batch: Tensor) -> bool:
    with torch.no_grad(), suppress(Exception), no_exit():
        net(batch)
        return True
    return False


def _why(error: Exception) -> str:
    """Explain why a net rejects an input: integers expected, a batch expected, or its own error."""
    text = str(error)
    if "indices" in text and ("Long" in text or "long" in text):
        return f"it looks them up as indices (nn.Embedding?), and {EMBEDDINGS} (--net-input inputs_embeds)"
    if "Half" in text and "dtype" in text:
        return (
            "it casts its input to float16, and weights are taken as float32; cast to the type of the "
            "weights (`x.to(self.weight.dtype)`)"
        )
    if "more than 1 value per channel" in text:
        return (
            "it normalises by the statistics of its batch, which a single input has not; give its batch "
            "normalisation running statistics (track_running_stats=True)"
        )
    return _shortened(error)


def _same(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or a.numel() == 0:
        return a.shape == b.shape
    return bool((a - b).abs().max() <= _ALIKE * b.abs().max())


def _shortened(error: Exception) -> str:
    return one_line(error)[:300]  # torch lists every key of weights that do not fit
