"""The inputs of a user's net, and the selection of its noisy input and one of its outputs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...errors import UserError
from ...files import read_arrays


@dataclass(frozen=True, eq=False)
class Ports:
    """The selected input and output."""

    noisy: str = "0"  # index or name of the input with the noise
    # shape (1, ...); the other inputs by index or name, the same for all examples
    given: Mapping[str, Tensor] = field(default_factory=dict)
    output: str = ""  # keys, fields and indices, separated by dots; empty if the net returns one tensor

    @property
    def names(self) -> dict[str, str]:
        return {"noisy": self.noisy, "output": self.output}

    @property
    def is_plain(self) -> bool:
        """Whether the net takes one tensor and returns one."""
        return not self.given and self.noisy == "0" and not self.output

    def wrap(self, net: nn.Module) -> nn.Module:
        """Return a net with one input and one output tensor; `net` itself if there is no choice."""
        return net if self.is_plain else _Chosen(net, self)


class _Chosen(nn.Module):
    """A net restricted to one of its inputs and one of its outputs."""

    def __init__(self, net: nn.Module, ports: Ports) -> None:
        super().__init__()
        self.net, self.noisy, self.output = net, ports.noisy, ports.output
        names = [*ports.given, ports.noisy]
        self.positional = sorted((name for name in names if name.isdigit()), key=int)
        self.keywords = [name for name in names if not name.isdigit()]
        if self.positional != [str(index) for index in range(len(self.positional))]:
            raise UserError(
                f"the net's inputs by place are {', '.join(self.positional)}, which leaves some out"
            )
        dtype = dtype_of(net)
        for name, value in ports.given.items():
            cast = value.to(dtype) if value.is_floating_point() else value
            self.register_buffer(f"given_{name}", cast, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        def value(name: str) -> Tensor:
            if name == self.noisy:
                return x
            given: Tensor = getattr(self, f"given_{name}")
            return given.expand(x.shape[0], *given.shape[1:])

        arguments = [value(name) for name in self.positional]
        keywords = {name: value(name) for name in self.keywords}
        return picked(self.net(*arguments, **keywords), self.output)


def dtype_of(net: nn.Module) -> torch.dtype:
    """Type of a net's weights, float32 without any."""
    return next((p.dtype for p in net.parameters() if p.is_floating_point()), torch.float32)


def picked(made: Any, path: str) -> Any:
    """Return a part of a net's result, by keys, fields and indices separated by dots.

    An index into a tensor of shape (B, m) selects a column, and keeps its dimension.
    """
    for part in path.split(".") if path else ():
        inside = parts_of(made)
        if part not in inside:
            listed = list(inside)[:_LISTED]
            if len(inside) > _LISTED:
                listed.append("...")
            names = f": there are {', '.join(listed)}" if inside else ""
            raise UserError(f"there is no output '{path}'{names} in {described(made)}")
        made = inside[part]
    return made


def described(made: Any) -> str:
    """Describe a net's result briefly."""
    if isinstance(made, Tensor):
        return f"a tensor of shape {tuple(made.shape)}"
    inside = ", ".join(
        f"{name} {tuple(value.shape)}" if isinstance(value, Tensor) else f"{name} ({type(value).__name__})"
        for name, value in list(parts_of(made).items())[:8]
    )
    return type(made).__name__ + (f" of {inside}" if inside else "")


def parts_of(made: Any) -> dict[str, Any]:
    """Return the parts of a net's result by key, field or index; empty if it has none."""
    if isinstance(made, Mapping):
        return {str(key): value for key, value in made.items()}
    if is_dataclass(made) and not isinstance(made, type):
        return {item.name: getattr(made, item.name) for item in fields(made)}
    if isinstance(made, Tensor) and made.ndim == 2:
        return {str(index): made[:, index : index + 1] for index in range(made.shape[1])}
    if isinstance(made, Sequence) and not isinstance(made, str | bytes):
        by_name = dict(zip(getattr(made, "_fields", ()), made, strict=False))  # of a named tuple
        return by_name | {str(index): value for index, value in enumerate(made)}
    return {}


MAX_INPUTS = 100
"""Limit on the number of inputs; each needs an oracle."""


def row_seed(seed: int, row: int) -> int:
    """Return the random seed of an input; no two rows and seeds share one."""
    return (seed * MAX_INPUTS + row) % 2**63


_LISTED = 10  # names or numbers in a message

EMBEDDINGS = (
    "noise is on real numbers: of a net that takes indices (tokens) give the embeddings, its inputs_embeds, "
    "and not input_ids"
)


Inputs = Path | Mapping[str, np.ndarray]
"""A file of arrays, or arrays by the name or index of the net's inputs."""


def read_inputs(
    inputs: Inputs, rows: int | None = None, noisy: str | None = None
) -> tuple[Tensor, Ports, list[str]]:
    """Return the noisy inputs (float32), the other inputs, and notes on conversions; see `find`."""
    path = inputs if isinstance(inputs, Path) else Path("inputs")
    named = read_arrays(inputs) if isinstance(inputs, Path) else inputs
    # numpy.savez names arrays without a name arr_0, arr_1, ...
    arrays = {re.sub(r"^arr_(\d+)$", r"\1", name): array for name, array in named.items()}
    if not arrays:
        raise UserError(f"{path} holds no array")
    if odd := [name for name in arrays if not (name.isdecimal() or name.isidentifier())]:
        raise UserError(f"'{odd[0]}' in {path} is no name of an input; numpy.savez(file, x=..., mask=...)")
    noisy_name = _noisy_name(path, list(arrays), noisy)
    array = arrays.pop(noisy_name)
    values, notes = _noisy(path, array, rows)
    given = {name: _given(path, name, len(array), other, rows) for name, other in arrays.items()}
    if not given:
        # A single array is the net's input with the chosen name, or its first input.
        noisy_name = noisy if noisy and not noisy.isdecimal() else "0"
    return values, Ports(noisy_name, given), notes


def _noisy_name(path: Path, names: list[str], noisy: str | None) -> str:
    """Return the name of the array with noise; `noisy` is the name or index that the user chose."""
    listed = ", ".join(names)
    if noisy is None:
        if len(names) > 1:
            raise UserError(f"{path} holds several inputs ({listed}): --net-input says which has the noise")
        return names[0]
    if names == ["0"] and noisy.isidentifier():
        return "0"  # a single array without a name is the input with this name
    if noisy.isdecimal() and int(noisy) < len(names) and not any(name.isdecimal() for name in names):
        return names[int(noisy)]
    if noisy not in names:
        raise UserError(
            f"there is no input '{noisy}' in {path}, which holds {listed}; several inputs go into "
            "one file of numpy.savez"
        )
    return noisy


def _given(path: Path, name: str, examples: int, array: np.ndarray, rows: int | None) -> Tensor:
    """Return an input without noise, shape (1, ...): the same for all examples."""
    if array.dtype.kind not in "fiub":
        raise UserError(f"the input '{name}' in {path} must be numbers, got {array.dtype}")
    if array.ndim < 1 or len(array) not in {1, examples} or not (array[:rows] == array[:1]).all():
        state = ""
        if array.ndim == 3 and array.shape[1] == 1:  # of a recurrent layer: (layers, batch, size)
            layers, _, size = array.shape
            zeros = f"torch.zeros({layers}, len(x), {size}, dtype=x.dtype)"
            state = f"; a net with a recurrent state is code that makes it: return self.net(x, {zeros})"
        raise UserError(
            f"the input '{name}' in {path}, shape {array.shape}, is not the same for all examples (and "
            f"finite); give each example a file of its own, or --rows 1{state}"
        )
    kind = {"f": np.float32, "b": np.bool_}.get(array.dtype.kind, np.int64)
    return torch.from_numpy(np.array(array[:1], dtype=kind))


def _noisy(path: Path, array: np.ndarray, rows: int | None) -> tuple[Tensor, list[str]]:
    notes = []
    if array.dtype.kind in "iu":
        raise UserError(
            f"the inputs in {path} are whole numbers ({array.dtype}), and {EMBEDDINGS}; numbers that are "
            "measured (pixels) are saved as float32"
        )
    if array.dtype.kind != "f":
        raise UserError(f"the inputs in {path} must be real numbers, got {array.dtype}")
    if array.ndim < 2 or array.size == 0:
        raise UserError(
            f"the inputs in {path} must have shape (B, *event), B >= 1, got {array.shape}; one input of n "
            "numbers is x[None]"
        )
    if rows is not None and rows < len(array):
        notes.append(f"the first {rows} of {len(array)} inputs")
        array = array[:rows]
    if len(array) > MAX_INPUTS:
        raise UserError(
            f"{len(array)} inputs in {path}: at most {MAX_INPUTS} are possible; select the first "
            f"{MAX_INPUTS} with --rows {MAX_INPUTS} (rows={MAX_INPUTS} in Python)"
        )
    with np.errstate(over="ignore"):
        values = np.array(array, dtype=np.float32)
    bad = np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(1))
    if len(bad):
        raise UserError(f"input {bad[0]} in {path} is not finite in float32")
    _, first_rows = np.unique(values, axis=0, return_index=True)
    if repeats := sorted(set(range(len(values))) - set(first_rows.tolist())):
        numbers = ", ".join(map(str, repeats[:_LISTED])) + (", ..." if len(repeats) > _LISTED else "")
        notes.append(
            f"{len(repeats)} of {len(values)} inputs equal an earlier one; with equal noise they are "
            f"measured once: {numbers} (numbers of rows, from 0)"
        )
    return torch.from_numpy(values), notes
