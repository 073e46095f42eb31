"""What training keeps on disk: nets, and trainings that are not at their end.

A file is named by the digest of the recipe, so that what is there need not be trained. It is written whole,
with a seal in its metadata: its name and a hash of both name and content. One that is damaged, or was
written under another name, is put aside, and what it held is trained again, from the checkpoint before if
there is one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
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

COMMITTED = Path(__file__).parent / "committed"
"""Folder of the nets that come with the package."""
SAVE_SECONDS = 120.0
"""Longest time between two checkpoints."""
NET, CHECKPOINT, BEFORE, DAMAGED = ".safetensors", ".checkpoint", ".before", ".damaged"
"""Ends of the names of files: nets, trainings under way, the checkpoint before, and what was put aside."""

_SEAL = "sdp-bench"  # key in the metadata
_NAME = re.compile(
    r"\.?(intervals-.+-[0-9a-f]{12}|(classifier|selective)-.+-[0-9a-f]{12}-seed\d+|.+-.+-[0-9a-f]{8}-seed\d+)"
    r"(\.safetensors|\.checkpoint(\.before)?)(\.[0-9a-f]{8}|(\.\d+)?\.damaged)?"
)

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
    """All that this package keeps in the folder, by name; files of others may lie there too."""
    return sorted(path for path in cache_folder().glob("*") if _is_ours(path))


def _is_ours(path: Path) -> bool:
    """Whether a file has a name that only this package gives, and a net or training in it if it is whole."""
    if path.is_symlink() or not path.is_file() or not _NAME.fullmatch(path.name):
        return False
    if path.suffix not in (NET, CHECKPOINT):
        return True
    try:
        header = _unpacked(path.read_bytes())[0]
        return "counts" in header or not {_SEAL, "about", "net"}.isdisjoint(header["__metadata__"])
    except (OSError, ValueError, LookupError, TypeError):
        return False


def read(
    path: Path, decode: Callable[[bytes], T], *, put_aside: bool = False, sealed: bool = False
) -> T | None:
    """What a file holds, or None where there is none or it is damaged, which a warning says.

    Parameters
    ----------
    path : Path
    decode : callable of bytes
        Raises anything at all of what is damaged.
    put_aside : bool
        Whether a damaged file gets another name, since its place is going to be taken.
    sealed : bool
        Whether one without a seal, as older versions wrote it, counts as damaged.

    Raises
    ------
    RunFailedError
        If it cannot be put aside.
    """
    try:
        content = path.read_bytes()
        _check_seal(path, content, required=sealed)
        return decode(content)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except Exception as error:  # noqa: BLE001  whatever the system, safetensors, json and torch make of it
        reason = " ".join(str(error).partition("\n")[0].split()) or type(error).__name__
        said = f"it is now {_put_aside(path).name}, and is trained again" if put_aside else "it is left out"
        warnings.warn(f"{path} is damaged ({reason}): {said}", stacklevel=2)
        return None


def _put_aside(path: Path) -> Path:
    """New name of a damaged file: one that no other has."""
    number, aside = 1, path.with_name(path.name + DAMAGED)
    while os.path.lexists(aside):
        number += 1
        aside = path.with_name(f"{path.name}.{number}{DAMAGED}")
    with _hinted(), files.writing(aside), suppress(FileNotFoundError):  # another process has put it aside
        path.replace(aside)
    return aside


def _check_seal(path: Path, content: bytes, *, required: bool) -> None:
    """Raise a ValueError if a file is not what was written under its name."""
    seal = _unpacked(content)[0].get("__metadata__", {}).get(_SEAL)
    if seal is None:
        if required:
            raise ValueError("an older version wrote it, without a checksum")
        return
    name = path.name.removesuffix(BEFORE)
    if str(seal).partition(" ")[0] != name:
        raise ValueError(f"it was written as {str(seal).partition(' ')[0]}")
    if seal != _seal(name, content):
        raise ValueError("its checksum is not its content's")


def _sealed(name: str, content: bytes) -> bytes:
    """The same safetensors file with its seal in its metadata."""
    header, tensors = _unpacked(content)
    header["__metadata__"] = header.get("__metadata__", {}) | {_SEAL: _seal(name, content)}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8
    return len(text).to_bytes(8, "little") + text + tensors


def _seal(name: str, content: bytes) -> str:
    """A file's name, and a hash of the name and of all that the file has beside its seal."""
    header, tensors = _unpacked(content)
    metadata = {key: value for key, value in header.get("__metadata__", {}).items() if key != _SEAL}
    text = json.dumps([name, {**header, "__metadata__": metadata}], sort_keys=True)
    return f"{name} {hashlib.sha256(text.encode() + tensors).hexdigest()}"


def _unpacked(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Header and tensors of a safetensors file; raises whatever json raises of another."""
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), content[end:]


def write(path: Path, content: bytes) -> None:
    """Write a safetensors file whole and sealed, and its folder if need be.

    Raises
    ------
    RunFailedError
        If it cannot be written.
    """
    with _hinted():
        files.write(path, _sealed(path.name, content))


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
    """A training that goes on from where it was saved last, or from the time before where that is damaged.

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
        self.path, self._before = path, path.with_name(path.name + BEFORE)
        kept = _restored(path, start, sealed=True) or _restored(self._before, start, sealed=True)
        self.training = kept or start()
        self.save()

    def save(self) -> None:
        """Write the training as it is now, and keep what was written last."""
        with _hinted(), files.writing(self._before), suppress(FileNotFoundError):
            self.path.replace(self._before)
        write(self.path, self.training.to_bytes())
        self._saved = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether the last one is :data:`SAVE_SECONDS` old."""
        return time.monotonic() - self._saved >= SAVE_SECONDS


def forget(path: Path) -> None:
    """Remove a checkpoint and the one before: the training is at its end and written elsewhere."""
    for each in (path, path.with_name(path.name + BEFORE)):
        each.unlink(missing_ok=True)


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
    forget(checkpoint.path)
    return checkpoint.training


def _restored(path: Path, start: Callable[[], TrainingT], *, sealed: bool = False) -> TrainingT | None:
    if not os.access(path, os.F_OK):
        return None
    training = start()  # one of its own: what is damaged may be restored in part

    def taken_up(content: bytes) -> TrainingT:
        training.restore(content)
        return training

    return read(path, taken_up, put_aside=True, sealed=sealed)


def check_weights(net: nn.Module) -> None:
    """Raise a ValueError if a weight of a net is not finite."""
    if not all(bool(tensor.isfinite().all()) for tensor in net.state_dict().values()):
        raise ValueError("a weight is not finite")


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
