"""What things are known by: hashes of all that could change them, which are also the roots of seeds."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np


def digest(*parts: Any) -> str:
    """Hash of nested plain values and tensors, 64 hexadecimal digits."""
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
    """What seeds are made from: those of an oracle, or of what has none.

    `hex`: hash of all that must not change without changing the seeds.
    """

    hex: str

    def seed(self, purpose: str) -> int:
        """Seed for one purpose (oracle, pilot, a rule's draws ...).

        The result is of 64 bits. Each is independent of the others, of the order of work and of who does it.
        """
        entropy = int(digest(self.hex, purpose)[:32], 16)
        return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0])


@dataclass(frozen=True)
class OracleKey:
    """One true law: that of f(x + eps), and how it is sampled.

    `net`: digest of the net's architecture and weights. `input`: digest of the values of x. `noise`: law of
    eps, ``gaussian:sigma=0.1``; see :class:`sdp_bench.bench.noise.Noise`.
    """

    net: str
    input: str
    noise: str
    sampler: str
    samples: int

    @functools.cached_property
    def hex(self) -> str:
        """The key itself, 16 hexadecimal digits."""
        return digest(asdict(self))[:16]

    def seed(self, purpose: str) -> int:
        """Seed for one purpose; see :class:`SeedRoot`."""
        return SeedRoot(self.hex).seed(purpose)
