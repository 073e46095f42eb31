"""GPU measurements of a pass: device time, memory and throttling."""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

import torch

Work = Callable[[], object]

_IDLE = 0x1
"""The NVML reason for a lower clock that means that the GPU is idle."""


def event_seconds(work: Work, passes: int = 5) -> float:
    """Return the median time (s) of a pass between two CUDA events, with a warm `work`.

    This is device time, without the host's preparation. If the host is slower than the device, the time
    includes the device's waiting.
    """
    seconds: list[float] = []
    for _ in range(passes):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        seconds.append(float(start.elapsed_time(end)) / 1e3)
    return statistics.median(seconds)


def peak_bytes(work: Work) -> int:
    """Return the peak memory of tensors on the device during a pass, including net and inputs."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


@dataclass(frozen=True)
class State:
    """Clock rates of a GPU."""

    # clock of the multiprocessors (MHz), now and at most
    clock: float
    highest: float
    reasons: int  # bits of NVML's reasons for a lower clock, 0 for no reason

    @property
    def throttled(self) -> bool:
        """Whether power, heat or a setting limits the clock."""
        return bool(self.reasons & ~_IDLE)


def state() -> State:
    """Return the state of the first GPU from ``nvidia-smi``.

    NotImplementedError, which asv skips, is raised without the program or a GPU.
    """
    try:
        clock, highest, reasons = _asked("clocks.sm,clocks.max.sm,clocks_throttle_reasons.active")
        return State(float(clock), float(highest), int(reasons, 16))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise NotImplementedError(f"nvidia-smi does not say how the GPU is clocked: {error}") from None


def _asked(query: str) -> list[str]:
    command = ["nvidia-smi", "--id=0", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    said = subprocess.run(  # noqa: S603  words of this module alone
        command, capture_output=True, text=True, check=True, timeout=30
    )
    return said.stdout.strip().split(",")


def described() -> str:
    """Return the GPU and the versions that affect its speed, for ``asv machine``, or "no GPU"."""
    if not torch.cuda.is_available():
        return "no GPU"
    try:
        (driver,) = _asked("driver_version")
    except (OSError, subprocess.SubprocessError, ValueError):
        driver = "unknown"
    versions = f"torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"
    return f"{torch.cuda.get_device_name(0)}, driver {driver}, {versions}"


if __name__ == "__main__":
    print(described())
