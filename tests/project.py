"""The project as git knows it, for tests that change or build it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def python(*words, cwd=ROOT, path=ROOT, **environment):
    """Run Python in a separate process that imports from `path`; returns the completed process."""
    known = {**os.environ, "PYTHONPATH": str(path), **environment}
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, cwd=cwd, env=known, capture_output=True, text=True, check=False)


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
