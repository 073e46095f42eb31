"""Executors of groups: local processes, or a Dask cluster."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import RunFailedError


class WorkerError(RunFailedError):
    """A worker died, exceeded a limit, or returned something other than plain data.

    Only its own work has failed. `last_message` is the last object that a worker sent before it died or
    exceeded its memory limit; None otherwise.
    """

    last_message: object = None


def let_threads_sleep() -> None:
    """Make waiting OpenMP threads sleep instead of spin.

    Affects processes started later, and this one if torch is not loaded yet, since OpenMP reads the setting
    once. GNU's OpenMP spins by default. If another process uses the core, each of torch's small parallel
    loops then loses a time slice: a run with two threads took up to 3 times as long next to two busy
    processes, and 17 times at low priority (``nice``). On idle cores sleeping is not slower
    (docs/runtime.md). A user's own ``OMP_WAIT_POLICY`` is kept.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Start processes that ignore interrupts: the driver stops them, and they would print tracebacks."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def lost_worker_errors() -> tuple[type[Exception], ...]:
    """Return the error types that mean that a worker did not finish, as opposed to its work failing.

    Dask's error types are included once dask.distributed is imported.
    """
    if "distributed" not in sys.modules:
        return (WorkerError,)
    from concurrent.futures import CancelledError

    from distributed import KilledWorker
    from distributed.comm import CommClosedError

    return WorkerError, KilledWorker, CommClosedError, CancelledError
