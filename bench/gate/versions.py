"""The older version of rules: a Git revision of the repository, or a folder with another checkout."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sdp_ref
from sdp_ref.errors import on_one_line

from ..errors import UserError, one_line
from ..plugins import code
from ..plugins.plugin import Plugin, located
from .predictions import CheckedRule


@dataclass(frozen=True)
class VersionRule:
    """A plug-in as it is in a version; found and run in the process that loads it."""

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
    rules: Mapping[str, VersionRule | str]  # by spec; built-in rules are specs
    # The same rules in the working tree. They are found in the same way, because what the process of a rule
    # has imported changes its times by up to 5 %.
    current: Mapping[str, VersionRule | str]
    missing: Mapping[str, str]  # why others cannot be compared


@contextmanager
def old_version(against: str, rules: Mapping[str, CheckedRule]) -> Iterator[OldVersion]:
    """Find the rules of a Git revision, which is a temporary folder meanwhile, or of a folder.

    No code is run. A UserError is raised if there is no such version, or a plug-in is not in the repository.
    """
    top, outside = _git("rev-parse", "--show-toplevel")
    root = Path(top or Path.cwd()).resolve()
    commit, problem = _git("rev-parse", "--verify", "--end-of-options", f"{against}^{{commit}}")
    with tempfile.TemporaryDirectory(prefix="sdp-bench-") as temporary:
        if commit:
            folder, name = Path(temporary).resolve() / "tree", f"{against} ({commit[:12]})"
            folder.mkdir()
            _check_out(root, commit, folder)
        elif Path(against).is_dir():
            folder, name = Path(against).resolve(), against
        elif outside:
            raise UserError(
                f"--against: '{against}' is not a folder, and no revision is known here: {outside}"
            )
        else:
            raise UserError(
                f"--against: '{against}' is neither a folder nor a revision that Git has here ({problem}); "
                f"in a shallow clone, run: git fetch --depth=1 origin {against.removeprefix('origin/')}, and "
                "give --against FETCH_HEAD"
            )
        yield _found(name, root, folder, rules)


def _found(name: str, root: Path, folder: Path, rules: Mapping[str, CheckedRule]) -> OldVersion:
    old: dict[str, VersionRule | str] = {}
    current: dict[str, VersionRule | str] = {}
    missing: dict[str, str] = {}
    for spec, rule in rules.items():
        if isinstance(rule, Plugin) and not rule.address.startswith("sdp_bench."):
            location, attribute, options = located(rule.address)
            bases = [Path(os.path.relpath(Path.cwd(), root)), Path(), Path("src")]
            paths = _paths(root, location, bases, rule.address)
            existing = [path for path in paths if (folder / path).is_file()]
            if existing:
                for version, base in ((old, folder), (current, root)):
                    first = tuple(base / path for path in bases)
                    place = str(base / existing[0]) if location.endswith(".py") else location
                    version[spec] = VersionRule(place, attribute, rule.address, options, first)
            else:
                missing[spec] = f"new: {name} does not have it"
        elif isinstance(rule, Plugin) or not Path(sdp_ref.__file__).resolve().is_relative_to(root):
            missing[spec] = "part of sdp-bench, not of this repository"
        elif not (folder / "sdp_ref").is_dir():
            missing[spec] = f"new: {name} has no package sdp_ref"
        else:
            old[spec] = current[spec] = spec
    return OldVersion(name, folder, old, current, missing)


def _paths(root: Path, location: str, bases: Sequence[Path], address: str) -> list[Path]:
    """Return the paths, relative to the root of a checkout, at which the module of a rule may be."""
    if location.endswith(".py"):
        path = Path(location).resolve()
        if path.is_relative_to(root):
            return [path.relative_to(root)]
        raise UserError(f"{address} is not in {root}, so it has no older version; leave out --against")
    stem = Path(*location.split("."))
    paths = [base / file for base in bases for file in (stem.with_suffix(".py"), stem / "__init__.py")]
    if any((root / path).is_file() for path in paths):
        return paths
    raise UserError(
        f"{address} is neither in {root} nor in its folder src, so it has no older version; leave out "
        "--against"
    )


def _check_out(root: Path, commit: str, folder: Path) -> None:
    """Write the files of a commit to a folder, without hooks and without changing the repository's index."""
    words = ["-C", str(root), "-c", f"core.hooksPath={os.devnull}", f"--work-tree={folder}"]
    index = {"GIT_INDEX_FILE": str(folder.with_name("index"))}
    if problem := _git(*words, "checkout", "--quiet", commit, "--", ".", **index)[1]:
        raise UserError(f"--against: git checkout {commit[:12]} failed: {problem}")


def _git(*words: str, **environment: str) -> tuple[str, str]:
    """Return the output of Git in the working folder, and an error on one line; one of them is empty."""
    try:
        done = subprocess.run(  # noqa: S603
            ["git", *words],  # noqa: S607  git from the user's PATH
            env={**os.environ, **environment}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    except OSError as error:
        return "", one_line(error)
    if done.returncode:
        return "", on_one_line(done.stderr) or "git failed"
    return done.stdout.strip(), ""
