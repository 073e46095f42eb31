"""What numbers depend on beside settings and seeds: this package's code, and the libraries it uses."""

from __future__ import annotations

import functools
import hashlib
import platform
from collections.abc import Mapping
from pathlib import Path

from sdp_bench.bench.environment import libraries


@functools.cache
def software() -> Mapping[str, str]:
    """Hash of the package's code as ``code``, and versions of Python and of the libraries by name.

    Equal on two machines where the same group gives the same numbers, the processor apart.
    """
    return {"code": _code(), "python": platform.python_version(), **libraries()}


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """In words, what two answers of :func:`software` differ in; empty if they are equal."""
    found = []
    for name in dict.fromkeys((*here, *there)):
        ours, theirs = here.get(name, "none"), there.get(name, "none")
        if ours != theirs:
            found.append("its code is another" if name == "code" else f"{name} {theirs}, here {ours}")
    return "; ".join(found)


def _code() -> str:
    """Of all modules that measure: rules, oracles and what is made of them; 16 hexadecimal digits."""
    import sdp_ref
    from sdp_bench import bench, oracles

    sha = hashlib.sha256()
    for package in (sdp_ref, oracles, bench):
        room = Path(package.__file__ or "").resolve().parent
        for path in sorted(room.rglob("*.py")):
            content = path.read_bytes()
            sha.update(f"{path.relative_to(room).as_posix()} {len(content)}\n".encode() + content)
    return sha.hexdigest()[:16]
