"""The project as git knows it, for tests that change or build it, and ways to run code."""

import itertools
import linecache
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
_numbers = itertools.count()


def run_cell(source, space, page="cell"):
    """Run code in a namespace as a notebook does: its source is kept, and belongs to no module.

    `page` is where it is from, for tracebacks.
    """
    name = f"<{page} {next(_numbers)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), space)


def python(*words, cwd=ROOT, path=ROOT, **environment):
    """Run Python in a separate process that imports from `path`; returns the completed process."""
    known = {**os.environ, "PYTHONPATH": str(path), **environment}
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, cwd=cwd, env=known, capture_output=True, text=True, check=False)


def script_run(script, folder, programs, **environment):
    """Run a step of a workflow in a folder, with stand-ins for the programs that it calls."""
    place = folder / "programs"
    place.mkdir(exist_ok=True)
    for name, text in programs.items():
        (place / name).write_text(f"#!/bin/bash\n{text}\n")
        (place / name).chmod(0o755)
    known = {**os.environ, "PATH": f"{place}{os.pathsep}{os.environ['PATH']}", **environment}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=folder, env=known, capture_output=True, text=True, check=False)


def copy_of_project(target):
    """Copy what git tracks, or would track, to a folder that is not there yet; returns it."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in listed.stdout.decode().split("\0"):
        source = ROOT / name
        if name and (source.is_symlink() or source.is_file()):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name, follow_symlinks=False)
    return target
