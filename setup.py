"""Stop a build from a copy without the symbolic links in sdp_bench/, which would lack most of the code."""

from pathlib import Path

from setuptools import setup

for name in ("bench", "oracles", "reports"):
    if not Path(__file__).with_name("sdp_bench").joinpath(name, "__init__.py").is_file():
        raise SystemExit(
            f"sdp_bench/{name} is not a symbolic link to {name}/: clone the repository with git, without a "
            "zip file; on Windows, run `git config --global core.symlinks true` before you clone"
        )

setup()
