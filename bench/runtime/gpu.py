"""What a GPU says of a pass: the time that it took itself, the memory, and whether it is held back."""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

import torch

Work = Callable[[], object]

_IDLE = 0x1
"""Among the reasons for a lower clock, that there is nothing to do."""


def event_seconds(work: Work, passes: int = 5) -> float:
    """Median time (s) of a pass between two CUDA events: the device's own, without what the host does before.

    Parameters
    ----------
    work : function
        Warm.
    passes : int

    Returns
    -------
    float
        A host that cannot keep up with the device shows here too: the device then waits between the events.
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
    """Most memory that tensors on the device take during a pass, the net and its inputs among them."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


@dataclass(frozen=True)
class State:
    """How a GPU is clocked.

    Attributes
    ----------
    clock, highest : float
        Of its multiprocessors (MHz), now and at most.
    reasons : int
        Bits of NVML's reasons why the clock is lower, 0 for none.
    """

    clock: float
    highest: float
    reasons: int

    @property
    def throttled(self) -> bool:
        """Whether it is held back: by power, by heat, or by a setting."""
        return bool(self.reasons & ~_IDLE)


def state() -> State:
    """Of the first GPU, as ``nvidia-smi`` says it.

    Raises
    ------
    NotImplementedError
        If there is no such program, or it knows no GPU: asv skips what asks.
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
    """GPU and the versions that decide how fast it is, for ``asv machine``.

    Returns
    -------
    str
        "no GPU" where there is none.
    """
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
