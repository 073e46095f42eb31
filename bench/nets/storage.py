"""Nets and unfinished trainings on disk.

A file name contains the digest of the recipe, so an existing net need not be trained again. Files are written
atomically, with a seal in their metadata: the file name and a hash of name and content. A file that is
damaged or was written under another name is renamed, and its training is repeated, from the previous
checkpoint if there is one.
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
"""Longest time (s) between two checkpoints."""
NET, CHECKPOINT, BEFORE, DAMAGED = ".safetensors", ".checkpoint", ".before", ".damaged"
"""Suffixes of nets, checkpoints, previous checkpoints, and damaged files."""

_SEAL = "sdp-bench"  # metadata key
_NAME = re.compile(
    r"\.?(intervals-.+-[0-9a-f]{12}|(classifier|selective)-.+-[0-9a-f]{12}-seed\d+|.+-.+-[0-9a-f]{8}-seed\d+)"
    r"(\.safetensors|\.checkpoint(\.before)?)(\.[0-9a-f]{8}|(\.\d+)?\.damaged)?"
)

T = TypeVar("T")


class Training(Protocol):
    """A training in progress."""

    def to_bytes(self) -> bytes:
        """Return the complete state."""

    def restore(self, content: bytes) -> None:
        """Restore the state from `to_bytes`; raises an error of any type for another training's state."""


TrainingT = TypeVar("TrainingT", bound=Training)


def cache_folder() -> Path:
    return files.cache_folder("nets")


def cached_files() -> list[Path]:
    """Return this package's files in the cache folder, by name; the folder may contain other files."""
    return sorted(path for path in cache_folder().glob("*") if _is_ours(path))


def _is_ours(path: Path) -> bool:
    """Return whether this package wrote a file, judging by its name and, if intact, its content."""
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
    """Return the decoded content of a file, or None (with a warning if it is damaged).

    Any error in `decode` means that the file is damaged. With `put_aside` a damaged file is renamed, because
    its name will be reused. With `sealed` a file without a seal, from an older version, counts as damaged.
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
    """Rename a damaged file to a new, unique name."""
    number, aside = 1, path.with_name(path.name + DAMAGED)
    while os.path.lexists(aside):
        number += 1
        aside = path.with_name(f"{path.name}.{number}{DAMAGED}")
    with _hinted(), files.writing(aside), suppress(FileNotFoundError):  # another process has renamed it
        path.replace(aside)
    return aside


def _check_seal(path: Path, content: bytes, *, required: bool) -> None:
    """Raise a ValueError if a file differs from what was written under its name."""
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
    """Return the safetensors file with a seal in its metadata."""
    header, tensors = _unpacked(content)
    header["__metadata__"] = header.get("__metadata__", {}) | {_SEAL: _seal(name, content)}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors must start at a multiple of 8
    return len(text).to_bytes(8, "little") + text + tensors


def _seal(name: str, content: bytes) -> str:
    """Return a file's name, and a hash of the name and the content except the seal."""
    header, tensors = _unpacked(content)
    metadata = {key: value for key, value in header.get("__metadata__", {}).items() if key != _SEAL}
    text = json.dumps([name, {**header, "__metadata__": metadata}], sort_keys=True)
    return f"{name} {hashlib.sha256(text.encode() + tensors).hexdigest()}"


def _unpacked(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Return header and tensors of a safetensors file; json's errors if it is not one."""
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), content[end:]


def write(path: Path, content: bytes) -> None:
    """Write a safetensors file atomically, with a seal; creates its folder."""
    with _hinted():
        files.write(path, _sealed(path.name, content))


def check_writable(path: Path) -> None:
    """Raise a RunFailedError if a file cannot be written, before its training starts."""
    with _hinted():
        files.check_writable(path)


@contextmanager
def _hinted() -> Iterator[None]:
    try:
        yield
    except RunFailedError as error:
        raise RunFailedError(f"{error}; set SDP_BENCH_CACHE to another folder") from error


class Checkpoint(Generic[TrainingT]):
    """A training that resumes from its last checkpoint, or the previous one if that is damaged.

    `start` returns the training before its first step. A RunFailedError is raised if the checkpoint cannot be
    written, which is tested at once rather than after hours.
    """

    def __init__(self, path: Path, start: Callable[[], TrainingT]) -> None:
        self.path, self._before = path, path.with_name(path.name + BEFORE)
        kept = _restored(path, start, sealed=True) or _restored(self._before, start, sealed=True)
        self.training = kept or start()
        self.save()

    def save(self) -> None:
        """Write a checkpoint, and keep the previous one."""
        with _hinted(), files.writing(self._before), suppress(FileNotFoundError):
            self.path.replace(self._before)
        write(self.path, self.training.to_bytes())
        self._saved = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Return whether the last checkpoint is `SAVE_SECONDS` old."""
        return time.monotonic() - self._saved >= SAVE_SECONDS


def forget(path: Path) -> None:
    """Remove both checkpoints after the result of the training was written."""
    for each in (path, path.with_name(path.name + BEFORE)):
        each.unlink(missing_ok=True)


def trained(
    path: Path, start: Callable[[], TrainingT], steps: Callable[[TrainingT], Iterator[object]]
) -> TrainingT:
    """Return a finished training, from its file or trained, resuming from a checkpoint if there is one.

    `start` returns the training before its first step. `steps` runs the remaining steps, and the training may
    be saved between two of them.
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
    training = start()  # a new object, because a damaged checkpoint may have been restored in part

    def taken_up(content: bytes) -> TrainingT:
        training.restore(content)
        return training

    return read(path, taken_up, put_aside=True, sealed=sealed)


def check_weights(net: nn.Module) -> None:
    """Raise a ValueError if a weight of a net is not finite."""
    if not all(bool(tensor.isfinite().all()) for tensor in net.state_dict().values()):
        raise ValueError("a weight is not finite")


def to_file(tensors: dict[str, Tensor], about: dict[str, Any], key: str = "about") -> bytes:
    """Return a safetensors file of tensors, with plain values in its metadata under `key`."""
    from safetensors.torch import save

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return save(plain, metadata={key: json.dumps(about, sort_keys=True)})


def from_file(content: bytes, key: str = "about") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Inverse of `to_file`; errors are those of safetensors and json, or a KeyError."""
    from safetensors.torch import load

    tensors = load(content)
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return tensors, json.loads(header["__metadata__"][key])


def packed(net: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the weights of a net and the state of its optimizer, with names known to `unpack`."""
    tensors = {f"net/{name}": tensor for name, tensor in net.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        for name, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer/{index}/{name}"] = value
    return tensors


def unpack(tensors: dict[str, Tensor], net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Restore what `packed` returned."""
    states: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        if key.startswith("optimizer/"):
            _, index, name = key.split("/")
            states.setdefault(int(index), {})[name] = tensor
    net.load_state_dict({key[4:]: tensor for key, tensor in tensors.items() if key.startswith("net/")})
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": states, "param_groups": groups})
