"""The inputs at which a net of the user's own is asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sdp_bench.bench.errors import UserError
from sdp_bench.bench.files import read_array

MAX_INPUTS = 100
"""Each input is an oracle of its own."""


def read_inputs(path: Path, rows: int | None = None) -> tuple[Tensor, list[str]]:
    """Array of inputs, float32, and notes on what was done to it; see :func:`find`."""
    array = read_array(path)
    notes = []
    if array.dtype.kind not in "fiu":
        raise UserError(f"the inputs in {path} must be real numbers, got {array.dtype}")
    if array.dtype.kind != "f":
        notes.append(f"inputs of {array.dtype} are taken as float32")
    if array.ndim < 2 or array.size == 0:
        hint = "; one input of n numbers is x[None]" if array.ndim == 1 else ""
        raise UserError(f"the inputs in {path} must have shape (B, *event), B >= 1, got {array.shape}{hint}")
    if rows is not None and rows < len(array):
        notes.append(f"the first {rows} of {len(array)} inputs")
        array = array[:rows]
    if len(array) > MAX_INPUTS:
        raise UserError(
            f"{path} has {len(array)} inputs, and each is an oracle of its own; at most {MAX_INPUTS} are "
            "taken: --rows N takes the first N"
        )
    with np.errstate(over="ignore"):
        values = np.array(array, dtype=np.float32)
    bad = np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(1))
    if len(bad):
        raise UserError(f"input {bad[0]} in {path} is not finite in float32")
    _, first = np.unique(values.reshape(len(values), -1), axis=0, return_index=True)
    if len(first) < len(values):
        notes.append(f"{len(values) - len(first)} inputs that are there twice are taken once")
        values = values[np.sort(first)]
    return torch.from_numpy(values), notes
