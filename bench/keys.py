"""What things are known by: hashes of all that could change them, which are also the roots of seeds."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

ROOMS = ("sdp_ref", "oracles", "bench")


def digest(*parts: Any) -> str:
    """Hash of nested plain values and tensors, 64 hexadecimal digits."""
    sha = hashlib.sha256()
    for part in parts:
        _feed(sha, part)
    return sha.hexdigest()


def _feed(sha: Any, part: Any) -> None:
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
class OracleKey:
    """One true law: that of f(x + eps), and how it is sampled.

    Attributes
    ----------
    net : str
        Digest of the net's architecture and weights.
    input : str
        Digest of the values of x.
    noise : str
        Law of eps, ``gaussian:sigma=0.1``; see :class:`bench.noise.Noise`.
    sampler : str
    samples : int
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
        """Seed of 64 bits for one `purpose` (oracle, pilot, a rule's draws ...).

        Each is independent of the others, of the order of work and of who does it.
        """
        entropy = int(digest(self.hex, purpose)[:32], 16)
        return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0])


def code_fingerprint(*modules: str) -> str:
    """Hash of the code of `modules` alone, 16 digits; see :func:`source_fingerprint`."""
    return digest([ast.dump(_without_docstrings(_parse(name))) for name in modules])[:16]


def code_of(source: str) -> str:
    """Syntax tree of a piece of source, as text: without comments, docstrings and layout."""
    return ast.dump(_without_docstrings(ast.parse(source)))


@functools.cache
def source_fingerprint(*modules: str) -> str:
    """Hash of the code of `modules` and of all they import from this project, 16 digits.

    Comments, docstrings and layout do not count: they cannot change a number.
    """
    closure: dict[str, str] = {}
    pending = list(modules)
    while pending:
        name = pending.pop()
        if name in closure:
            continue
        tree = _parse(name)
        closure[name] = ast.dump(_without_docstrings(tree))
        pending += _imports(tree)
    return digest(closure)[:16]


def _parse(module: str) -> ast.Module:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ValueError(f"no source for module {module}")
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [s for s in body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
            node.body = kept  # type: ignore[attr-defined]
    return tree


def _imports(tree: ast.Module) -> list[str]:
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            ours = node.module.split(".")[0] in ROOMS
            submodules = [name for name in inside if ours and _is_module(name)]
            found += submodules if len(submodules) == len(inside) else [node.module, *submodules]
    return [name for name in found if name.split(".")[0] in ROOMS]


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
