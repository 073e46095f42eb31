"""Keys and seeds of oracles, how they are sampled, and the software that numbers depend on."""

from __future__ import annotations

import functools
import hashlib
import json
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from .environment import libraries
from .errors import UserError


def digest(*parts: Any) -> str:
    """Return the hash of nested plain values and tensors, 64 hexadecimal digits."""
    sha = hashlib.sha256()
    for part in parts:
        _feed(sha, part)
    return sha.hexdigest()


def _feed(sha: Any, part: Any) -> None:
    from torch import Tensor

    if isinstance(part, Tensor):
        array = part.detach().cpu().contiguous().numpy()
        sha.update(f"tensor {array.dtype} {array.shape} ".encode())
        sha.update(array.tobytes())
    elif isinstance(part, Mapping):
        for key in sorted(part):
            sha.update(f"key {key} ".encode())
            _feed(sha, part[key])
    else:
        sha.update(json.dumps(part, sort_keys=True).encode() + b"\n")


@dataclass(frozen=True)
class SeedRoot:
    """The root of all seeds of an oracle, or of a unit without one.

    `hex` is a hash of everything that must change the seeds when it changes.
    """

    hex: str

    def seed(self, purpose: str) -> int:
        """Return the seed (64 bits) for one purpose: oracle, pilot, a rule's draws ...

        Seeds are independent of each other, of the order of work and of the worker.
        """
        entropy = int(digest(self.hex, purpose)[:32], 16)
        return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0])


# Repeated here because importing the oracles would load their solvers for every command.
Sampler = Literal["mc", "sobol"]


@dataclass(frozen=True)
class Sampling:
    """How oracles are drawn.

    `samples`: samples of an oracle and of each prediction, unless an experiment sets its own number.
    `pilot_samples`: samples of the independent draw that fixes bins and cells; at most `samples`
    are drawn, whatever the number. Both are at least 100.
    `sampler`: plain Monte Carlo, or scrambled Sobol points. `device`: device on which nets are evaluated.
    """

    samples: int = 10**6
    pilot_samples: int = 2**17
    sampler: Sampler = "mc"
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in ("samples", "pilot_samples"):
            if getattr(self, name) < 100:
                raise UserError(f"{name} must be at least 100, got {getattr(self, name)}")
        if self.sampler not in get_args(Sampler):
            raise UserError(f"unknown sampler '{self.sampler}'; choose from {', '.join(get_args(Sampler))}")


@dataclass(frozen=True)
class OracleKey:
    """The identity of an oracle: the law of f(x + eps), and how it is sampled.

    `net`: digest of the net's architecture and weights. `input`: digest of the values of x. `noise`: law of
    eps, ``gaussian:sigma=0.1``; see `sdp_bench.bench.noise.Noise`.
    """

    net: str
    input: str
    noise: str
    sampler: str
    samples: int

    @functools.cached_property
    def hex(self) -> str:
        """The key as text, 16 hexadecimal digits."""
        return digest(asdict(self))[:16]

    def seed(self, purpose: str) -> int:
        """Return the seed for one purpose; see `SeedRoot`."""
        return SeedRoot(self.hex).seed(purpose)


@functools.cache
def software() -> Mapping[str, str]:
    """Return a hash of the package's code as ``code``, and versions of Python and libraries by name.

    Two machines with equal results compute the same numbers, up to differences between processors.
    """
    return {"code": _code(), "python": platform.python_version(), **libraries()}


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """Describe the differences between two results of `software`; empty if they are equal."""
    lines = []
    for name in dict.fromkeys((*here, *there)):
        ours, theirs = here.get(name, "none"), there.get(name, "none")
        if ours != theirs:
            lines.append("its code is another" if name == "code" else f"{name} {theirs}, here {ours}")
    return "; ".join(lines)


def _code() -> str:
    """Return the hash of all modules that measure (rules, oracles, bench), 16 hexadecimal digits."""
    import sdp_ref

    from .. import bench, oracles

    rooms = [Path(package.__file__ or "").resolve().parent for package in (sdp_ref, oracles, bench)]
    return digest_of_files((room, path) for room in rooms for path in sorted(room.rglob("*.py")))[:16]


def digest_of_files(files: Iterable[tuple[Path, Path]]) -> str:
    """Return the SHA-256 over names and contents of files, each given with the folder that its name is in."""
    sha = hashlib.sha256()
    for folder, path in files:
        content = path.read_bytes()
        sha.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode() + content)
    return sha.hexdigest()
