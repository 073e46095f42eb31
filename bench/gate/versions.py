"""The older version of rules: a Git revision of the repository, or a folder with another checkout."""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sdp_ref
from sdp_ref.errors import on_one_line

from ..errors import UserError
from ..plugins import code
from ..plugins.plugin import Plugin, located
from .predictions import CheckedRule


@dataclass(frozen=True)
class OldRule:
    """A plug-in as it is in an older version; found and run in the process that loads it."""

    location: str
    attribute: str
    address: str
    options: str
    first: tuple[Path, ...]  # folders that are searched for modules first

    def load(self) -> Any:
        found = code.find(self.location, self.attribute, self.address, self.first)
        return Plugin.of(found, self.options).load()


@dataclass(frozen=True)
class OldVersion:
    """The rules of an older version."""

    name: str  # for display
    folder: Path
    rules: Mapping[str, OldRule | str]  # by spec; built-in rules are specs
    missing: Mapping[str, str]  # why others cannot be compared


@contextmanager
def old_version(against: str, rules: Mapping[str, CheckedRule]) -> Iterator[OldVersion]:
    """Find the rules of a Git revision, which is a temporary folder meanwhile, or of a folder.

    No code is run. A UserError is raised if there is no such version, or a plug-in is not in the repository.
    """
    root = Path(_git("rev-parse", "--show-toplevel") or Path.cwd()).resolve()
    commit = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{against}^{{commit}}")
    with tempfile.TemporaryDirectory(prefix="sdp-bench-") as temporary:
        if commit:
            folder, name = Path(temporary).resolve(), f"{against} ({commit[:12]})"
            _extract(root, commit, folder)
        elif Path(against).is_dir():
            folder, name = Path(against).resolve(), against
        else:
            raise UserError(
                f"--against: '{against}' is neither a folder nor a revision that Git has here; in a shallow "
                f"clone, get it with: git fetch --depth=1 origin {against}"
            )
        yield _found(name, root, folder, rules)


def _found(name: str, root: Path, folder: Path, rules: Mapping[str, CheckedRule]) -> OldVersion:
    old: dict[str, OldRule | str] = {}
    missing: dict[str, str] = {}
    for spec, rule in rules.items():
        if isinstance(rule, Plugin):
            location, attribute, options = located(rule.address)
            paths = _paths(root, location, rule.address)
            existing = [path for path in paths if (folder / path).is_file()]
            if existing:
                first = tuple(folder / base for base in ("", "src"))
                place = str(folder / existing[0]) if location.endswith(".py") else location
                old[spec] = OldRule(place, attribute, rule.address, options, first)
            else:
                missing[spec] = f"new: {name} does not have it"
        elif not Path(sdp_ref.__file__).resolve().is_relative_to(root):
            missing[spec] = "built in: this repository does not have its code"
        elif not (folder / "sdp_ref").is_dir():
            missing[spec] = f"new: {name} has no package sdp_ref"
        else:
            old[spec] = spec
    return OldVersion(name, folder, old, missing)


def _paths(root: Path, location: str, address: str) -> list[Path]:
    """Return the paths, relative to the root of a checkout, at which the module of a rule may be."""
    if location.endswith(".py"):
        path = Path(location).resolve()
        if path.is_relative_to(root):
            return [path.relative_to(root)]
        raise UserError(f"{address} is not in {root}, so it has no older version; leave out --against")
    stem = Path(*location.split("."))
    paths = [
        base / file
        for base in (Path(), Path("src"))
        for file in (stem.with_suffix(".py"), stem / "__init__.py")
    ]
    if any((root / path).is_file() for path in paths):
        return paths
    raise UserError(
        f"{address} is neither in {root} nor in its folder src, so it has no older version; leave out "
        "--against"
    )


def _git(*words: str) -> str:
    """Return the output of Git in the working folder; empty if it fails or there is no Git."""
    command = ["git", *words]  # git from the user's PATH
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _extract(root: Path, commit: str, folder: Path) -> None:
    command = ["git", "-C", str(root), "archive", "--format=tar", commit]
    with tempfile.TemporaryFile() as archive:
        done = subprocess.run(command, stdout=archive, stderr=subprocess.PIPE, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise UserError(f"git archive {commit[:12]} failed: {on_one_line(done.stderr)}")
        archive.seek(0)
        with tarfile.open(fileobj=archive) as opened:
            opened.extractall(folder, filter="data")
