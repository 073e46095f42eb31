"""Files of nets: weights in the format safetensors, with all other values in the metadata.

The name of a cached file contains the digest of the recipe, so an existing net need not be trained again.
Files are written atomically, with a checksum. A damaged file is renamed, and its training is repeated.
"""

from __future__ import annotations

import functools
import json
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from safetensors.torch import load, save
from torch import Tensor, nn

from .. import files, identity
from ..errors import RunFailedError, one_line

COMMITTED = Path(__file__).parent / "committed"
"""Folder of the nets that come with the package."""
CHECKPOINT, DAMAGED = ".checkpoint", ".damaged"
"""Suffixes of checkpoints and of damaged files."""

_CHECKSUM = "checksum"  # metadata key
_NAME = re.compile(
    r"\.?(intervals-.+-[0-9a-f]{12}|(classifier|selective)-.+-[0-9a-f]{12}-seed\d+|.+-.+-[0-9a-f]{8}-seed\d+)"
    r"(\.safetensors|\.checkpoint(\.before)?)(\.[0-9a-f]{8}|(\.\d+)?\.damaged)?"
)

T = TypeVar("T")


def cache_folder() -> Path:
    """Return the folder of trained nets."""
    return files.cache_folder("nets")


def cached_files() -> list[Path]:
    """Return this package's files in the cache folder, by name; the folder may contain other files."""
    paths = (path for path in cache_folder().glob("*") if path.is_file() and not path.is_symlink())
    return sorted(path for path in paths if _NAME.fullmatch(path.name))


def read(path: Path, decode: Callable[[bytes], T], *, put_aside: bool = False) -> T | None:
    """Return the decoded content of a file, or None (with a warning if it is damaged).

    Any error in `decode` means that the file is damaged. With `put_aside` a damaged file is renamed, because
    its name will be reused.
    """
    try:
        return decode(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except Exception as error:  # noqa: BLE001  whatever the system, safetensors, json and torch make of it
        result = "it is left out"
        if put_aside:
            aside = path.with_name(path.name + DAMAGED)
            with _hinted(), files.writing(aside), suppress(FileNotFoundError):  # another process renamed it
                path.replace(aside)
            result = f"it is now {aside.name}, and is trained again"
        warnings.warn(f"{path} is damaged ({one_line(error)}): {result}", stacklevel=2)
        return None


def write(path: Path, content: bytes) -> None:
    """Write a safetensors file atomically, with a checksum; creates its folder."""
    tensors, metadata = _opened(content)
    with _hinted():
        files.write(path, save(tensors, metadata | {_CHECKSUM: identity.digest(tensors, metadata)}))


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


def to_file(tensors: dict[str, Tensor], about: dict[str, Any], key: str = "about") -> bytes:
    """Return a safetensors file of tensors, with plain values in its metadata under `key`."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return save(plain, {key: json.dumps(about, sort_keys=True)})


def from_file(content: bytes, key: str = "about") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Inverse of `to_file`; errors are those of safetensors and json, or a ValueError."""
    tensors, metadata = _opened(content)
    checksum = metadata.pop(_CHECKSUM, None)
    if checksum not in (None, identity.digest(tensors, metadata)):
        raise ValueError("its checksum is not its content's")
    return tensors, json.loads(metadata.get(key, "{}"))


def _opened(content: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return load(content), header.get("__metadata__", {})


@dataclass(frozen=True, eq=False, kw_only=True)
class SavedNet:
    """A trained net that a file can contain."""

    architecture: Any
    recipe: Any
    accuracy: float
    state: dict[str, Tensor]  # weights, on the CPU
    source: str = "trained"  # "trained" (now), "cache" or "committed" (with the package)
    key: ClassVar[str] = "about"  # metadata key

    @functools.cached_property
    def digest(self) -> str:
        """Hash of architecture and weights, 16 hexadecimal digits."""
        return identity.digest(asdict(self.architecture), self.state)[:16]

    def build(self) -> nn.Module:
        """Return the net in evaluation mode, float32."""
        net: nn.Module = self.architecture.build()
        net.load_state_dict(self.state)
        return net

    def to_bytes(self) -> bytes:
        """Return a safetensors file, with everything but the weights in its metadata."""
        about = asdict(replace(self, state={}))
        return to_file(self.state, {k: v for k, v in about.items() if k not in ("state", "source")}, self.key)

    @classmethod
    def parsed(cls, about: dict[str, Any]) -> dict[str, Any]:
        """Return the fields from the metadata of a file."""
        raise NotImplementedError

    @classmethod
    def from_bytes(cls, content: bytes, source: str) -> Self:
        """Inverse of `to_bytes`; a ValueError for any other content."""
        try:
            state, about = from_file(content, cls.key)
            return cls(**cls.parsed(about), state=state, source=source)
        except Exception as error:
            raise ValueError(f"not a net file of sdp-bench ({error})") from error

    @classmethod
    def load(cls, path: Path, source: str, *made_of: object, put_aside: bool = False) -> Self | None:
        """Return the net in a file, or None; `made_of` are the expected architecture, recipe and seed."""

        def decode(content: bytes) -> Any:
            net: Any = cls.from_bytes(content, source)
            if made_of and (net.architecture, net.recipe, net.seed) != made_of:
                raise ValueError("it is of another recipe")
            check_weights(net.build())
            return net

        return read(path, decode, put_aside=put_aside)


def check_weights(net: nn.Module) -> None:
    """Raise a ValueError if a weight of a net is not finite."""
    if not all(bool(tensor.isfinite().all()) for tensor in net.state_dict().values()):
        raise ValueError("a weight is not finite")
