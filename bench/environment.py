"""What a run was made on and with."""

from __future__ import annotations

import math
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from sdp_bench.bench.errors import UserError

LIBRARIES = ("torch", "numpy", "scipy", "POT")
"""By which numbers are computed."""


CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Where Linux says how much processor time a container gets: quota and period, in microseconds."""


def cores() -> int:
    """Processors that this process may use: those it may run on, and a container's share of their time."""
    seen = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = map(int, CPU_QUOTA.read_text(encoding="ascii").split())
    except (OSError, ValueError):  # no container, or one whose quota is "max"
        return seen
    return max(1, min(seen, math.ceil(quota / period)))


def describe(device: str, jobs: int, threads: int) -> dict[str, Any]:
    """Machine, versions and parallelism, as plain values."""
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
    """Versions of the libraries by which numbers are computed, by name."""
    return {name: version(name) for name in LIBRARIES}


def check_device(device: str) -> None:
    """Raise a UserError if a device is neither cpu nor cuda, or torch cannot use it."""
    import torch

    try:
        if torch.device(device).type not in (
            "cpu",
            "cuda",
        ):  # "meta" computes nothing, and says no word of it
            raise UserError(f"device '{device}' cannot be used; choose from cpu, cuda, cuda:1 ...")
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device '{device}' cannot be used: {str(error).splitlines()[0]}") from error


def cpu_name() -> str:
    """Model of the processor, and the instructions that torch uses of it."""
    import torch

    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{name} ({torch.backends.cpu.get_cpu_capability()})"


def version(distribution: str) -> str:
    """Version of an installed distribution; "unknown" of one that is not."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"


def _commit() -> str:
    """Commit of the checkout that this file is part of, if it is part of one."""
    folder = Path(__file__).resolve().parents[1]
    if not (folder / ".git").exists():
        return ""

    def git(*words: str) -> str:
        command = ["git", *words]  # as the user has it in the path
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
    """Let torch work on so many threads: on one, the same rounding on any machine, and times that compare."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
