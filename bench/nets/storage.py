"""What training keeps on disk: nets, and trainings that are not at their end.

A file is named by the digest of the recipe, so that what is there need not be trained. It is written whole;
one that is damaged is put aside, and what it held is trained again.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

from sdp_bench.bench import files
from sdp_bench.bench.errors import RunFailedError

SAVE_SECONDS = 120.0
"""Longest time between two checkpoints."""
CHECKPOINT, DAMAGED = ".checkpoint", ".damaged"
"""Ends of the names of files that are no nets."""

T = TypeVar("T")


class Training(Protocol):
    """A training under way."""

    def to_bytes(self) -> bytes:
        """All that later steps depend on."""

    def restore(self, content: bytes) -> None:
        """Go on from what :meth:`to_bytes` gave; raises whatever the content of another training raises."""


TrainingT = TypeVar("TrainingT", bound=Training)


def cache_folder() -> Path:
    """Folder of trained nets."""
    return files.cache_folder("nets")


def cached_files() -> list[Path]:
    """All that is kept in the cache: nets, checkpoints, and damaged ones of either, by name."""
    return sorted(p for end in (".safetensors", CHECKPOINT, DAMAGED) for p in cache_folder().glob(f"*{end}"))


def read(path: Path, decode: Callable[[bytes], T], *, put_aside: bool = False) -> T | None:
    """What a file holds, or None where there is none or it is damaged.

    Parameters
    ----------
    path : Path
    decode : callable of bytes
        Raises anything at all of what is damaged.
    put_aside : bool
        Whether a damaged file gets another name and a warning, since its place is going to be taken.

    Returns
    -------
    object or None

    Raises
    ------
    RunFailedError
        If it cannot be put aside.
    """
    try:
        return decode(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except Exception as error:  # noqa: BLE001  whatever the system, safetensors, json and torch make of it
        if put_aside:
            _put_aside(path, str(error).partition("\n")[0] or type(error).__name__)
        return None


def _put_aside(path: Path, reason: str) -> None:
    aside = path.with_name(path.name + DAMAGED)
    with _hinted(), files.writing(aside), suppress(FileNotFoundError):  # another process has put it aside
        path.replace(aside)
    warnings.warn(
        f"{path} is damaged ({reason}): it is now {aside.name}, and training starts again", stacklevel=3
    )


def write(path: Path, content: bytes) -> None:
    """Write a file whole, and its folder if need be.

    Raises
    ------
    RunFailedError
        If it cannot be written.
    """
    with _hinted():
        files.write(path, content)


def check_writable(path: Path) -> None:
    """Find out whether a file can be written, before the training that it is for.

    Raises
    ------
    RunFailedError
        If it cannot.
    """
    with _hinted():
        files.check_writable(path)


@contextmanager
def _hinted() -> Iterator[None]:
    try:
        yield
    except RunFailedError as error:
        raise RunFailedError(f"{error}; set SDP_BENCH_CACHE to another folder") from error


class Checkpoint(Generic[TrainingT]):
    """A training that goes on from where it was saved last.

    Parameters
    ----------
    path : Path
    start : callable
        Gives the training as it is before its first step.

    Attributes
    ----------
    path : Path
    training : Training

    Raises
    ------
    RunFailedError
        If the checkpoint cannot be written; that is tried at once, and not after hours.
    """

    def __init__(self, path: Path, start: Callable[[], TrainingT]) -> None:
        self.path, self.training = path, _restored(path, start) or start()
        self.save()

    def save(self) -> None:
        """Write the training as it is now."""
        write(self.path, self.training.to_bytes())
        self._saved = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether the last one is :data:`SAVE_SECONDS` old."""
        return time.monotonic() - self._saved >= SAVE_SECONDS


def trained(
    path: Path, start: Callable[[], TrainingT], steps: Callable[[TrainingT], Iterator[object]]
) -> TrainingT:
    """A training at its end, from its file or else brought there, from its checkpoint if there is one.

    Parameters
    ----------
    path : Path
    start : callable
        Gives the training as it is before its first step.
    steps : callable
        Does what is left of a training; between two steps it may be saved.

    Returns
    -------
    Training

    Raises
    ------
    RunFailedError
        If the cache cannot be written.
    """
    if (kept := _restored(path, start)) is not None:
        return kept
    checkpoint = Checkpoint(path.with_suffix(CHECKPOINT), start)
    for _ in steps(checkpoint.training):
        if checkpoint.is_due:
            checkpoint.save()
    write(path, checkpoint.training.to_bytes())
    checkpoint.path.unlink(missing_ok=True)
    return checkpoint.training


def _restored(path: Path, start: Callable[[], TrainingT]) -> TrainingT | None:
    if not os.access(path, os.F_OK):
        return None
    training = start()  # one of its own: what is damaged may be restored in part

    def taken_up(content: bytes) -> TrainingT:
        training.restore(content)
        return training

    return read(path, taken_up, put_aside=True)


def to_file(tensors: dict[str, Tensor], about: dict[str, Any], key: str = "about") -> bytes:
    """A safetensors file of tensors, wherever they are, with plain values in its metadata under `key`."""
    from safetensors.torch import save

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return save(plain, metadata={key: json.dumps(about, sort_keys=True)})


def from_file(content: bytes, key: str = "about") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Inverse of :func:`to_file`; raises whatever safetensors, json or a missing key raise."""
    from safetensors.torch import load

    tensors = load(content)
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return tensors, json.loads(header["__metadata__"][key])


def packed(net: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Weights of a net and what its optimizer remembers, under names that :func:`unpack` knows."""
    tensors = {f"net/{name}": tensor for name, tensor in net.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        for name, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer/{index}/{name}"] = value
    return tensors


def unpack(tensors: dict[str, Tensor], net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Put what :func:`packed` gave back in its place."""
    states: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        if key.startswith("optimizer/"):
            _, index, name = key.split("/")
            states.setdefault(int(index), {})[name] = tensor
    net.load_state_dict({key[4:]: tensor for key, tensor in tensors.items() if key.startswith("net/")})
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": states, "param_groups": groups})
