"""A problem set for people who do not use this package: its files, and its nets as ONNX models."""

from __future__ import annotations

import importlib.util
import json
import shutil
import tempfile
import warnings
from pathlib import Path

import torch

from sdp_bench.bench import files
from sdp_bench.bench.errors import RunFailedError, UserError, one_line
from sdp_bench.bench.problems.problem_set import (
    NETS,
    Clipped,
    ProblemSet,
    folder_of,
    oracle_of,
    problem_set,
)
from sdp_bench.bench.settings import Settings

CLIPPED = "clipped.json"
"""Beside the set's own files, of which it is none: it follows from them, by this package's random numbers."""


def export(name: str, folder: Path, *, onnx: bool = False) -> list[str]:
    """Copy a set to a folder, and say there where outputs without moments were clipped for its statistics.

    Parameters
    ----------
    name : str
    folder : Path
        That is not there yet, or is empty.
    onnx : bool
        Whether each net is written as an ONNX model beside its weights, too: input ``x``, output ``y``, any
        number of rows.

    Returns
    -------
    list of str
        A line for each net that ONNX has no operators for.

    Raises
    ------
    UserError
        If there is no such set, or the package `onnx` is not installed.
    RunFailedError
        If the folder has something in it, or cannot be written.
    """
    problems = problem_set(name)
    if onnx and importlib.util.find_spec("onnx") is None:
        raise UserError("the package onnx is not installed: pip install 'sdp-bench[onnx]'")
    if folder.exists() and any(folder.iterdir()):
        raise RunFailedError(f"{folder} is not empty")
    with files.writing(folder):
        shutil.copytree(folder_of(name), folder, dirs_exist_ok=True)
    files.write(folder / CLIPPED, json.dumps(_clipped(problems), indent=1) + "\n")
    left_out = []
    for net in problems.nets if onnx else ():
        place = next(each for each in problems.places if each.net == net)
        try:
            content = _as_onnx(problems.nets[net].build(), problems.inputs[place.name])
        except Exception as error:  # noqa: BLE001  of the exporter, whichever operator it lacks
            left_out.append(f"{net}: {one_line(error)[:200]}")
            continue
        files.write(folder / NETS / f"{net}.onnx", content)
    return left_out


def _clipped(problems: ProblemSet) -> dict[str, dict[str, list[float]]]:
    """Bounds by problem, of those that have some."""
    found = {}
    for place, group in zip(problems.places, problems.groups(Settings(), ()), strict=True):
        for number, problem in enumerate(place.problems):
            oracle = oracle_of(group, number)
            if isinstance(oracle, Clipped):
                lower, upper = (bound.tolist() for bound in oracle.bounds)
                found[problem] = {"lower": lower, "upper": upper}
    return found


def _as_onnx(net: torch.nn.Module, x: torch.Tensor) -> bytes:
    rows = {"x": {0: "n"}, "y": {0: "n"}}
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "net.onnx")
        warnings.simplefilter("ignore")  # that another exporter will take this one's place
        # The other one, of FX graphs, needs onnxscript.
        torch.onnx.export(
            net, (x,), path, input_names=["x"], output_names=["y"], dynamic_axes=rows, dynamo=False
        )
        return path.read_bytes()
