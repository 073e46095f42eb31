"""The machine and the software of a run."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from .errors import UserError

LIBRARIES = ("torch", "numpy", "scipy", "POT")
"""Libraries that compute the numbers."""


def cores() -> int:
    """Return the number of usable processors, given CPU affinity and a container's quota."""
    import joblib

    try:
        return int(joblib.cpu_count())
    except ValueError as error:
        raise UserError(f"LOKY_MAX_CPU_COUNT is not a number of processors: {error}") from error


def describe(device: str, jobs: int, threads: int) -> dict[str, Any]:
    """Return machine, versions and parallelism as plain values."""
    import torch

    cuda = device.startswith("cuda")
    return {
        "cpu": cpu_name(),
        "cores": cores(),
        "gpu": torch.cuda.get_device_name(device) if cuda else "",
        "device": device,
        "jobs": jobs,
        "blas threads": threads,
        "platform": platform.platform(),
        "python": platform.python_version(),
        "sdp-bench": version("sdp-bench"),
        **libraries(),
        "commit": _commit(),
    }


def libraries() -> dict[str, str]:
    """Return the versions of the libraries that affect numbers, by name."""
    return {name: version(name) for name in LIBRARIES}


def check_device(device: str) -> None:
    """Raise a UserError if a device is neither cpu nor cuda, or torch cannot use it."""
    import torch

    try:
        # "meta" computes nothing, without an error
        if torch.device(device).type not in ("cpu", "cuda"):
            raise UserError(f"device '{device}' cannot be used; choose from cpu, cuda, cuda:1 ...")
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device '{device}' cannot be used: {str(error).splitlines()[0]}") from error


def cpu_name() -> str:
    """Return the processor's model and the instruction set that torch uses."""
    import torch

    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{name} ({torch.backends.cpu.get_cpu_capability()})"


def version(distribution: str) -> str:
    """Return the version of an installed distribution, or "unknown"."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"


def _commit() -> str:
    """Return the commit of the checkout that contains this file, if any."""
    folder = Path(__file__).resolve().parents[1]
    if not (folder / ".git").exists():
        return ""

    def git(*words: str) -> str:
        command = ["git", *words]  # git from the user's PATH
        done = subprocess.run(  # noqa: S603  words of this function alone
            command, cwd=folder, capture_output=True, text=True, check=True, timeout=10
        )
        return done.stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + ("+changes" if git("status", "--porcelain") else "")
    except (OSError, subprocess.SubprocessError):
        return ""


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Set torch's threads; one thread gives equal rounding on all machines and comparable times."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
