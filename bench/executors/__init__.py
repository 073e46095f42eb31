"""Where groups run: local processes, or a Dask cluster."""

import os
import sys


class WorkerError(RuntimeError):
    """A worker did not finish its work: that work has failed, and nothing else has."""


class WorkerDiedError(WorkerError):
    """A worker ended in the middle of its work (killed, or out of memory)."""


class NoAnswerError(WorkerError):
    """A worker answered with something that is no plain data."""


class TimeLimitError(WorkerError):
    """Work took longer than its limit and was stopped."""


class MemoryLimitError(WorkerError):
    """Work took more memory than its limit and was stopped."""


def let_threads_sleep() -> None:
    """Let threads sleep while they wait for each other, and not spin.

    Those of processes to be started, and of this one if torch is not loaded yet, which asks once. GNU's
    OpenMP spins by default. Where another process has the core that costs a time slice for each of torch's
    small parallel loops: a run of two threads beside two busy processes took up to 3 times as long, and one
    that gives way to them (``nice``) 17 times; on idle cores sleeping is no slower (docs/runtime.md).
    A user's own ``OMP_WAIT_POLICY`` stands.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def lost() -> tuple[type[Exception], ...]:
    """What says that a worker did not finish, and not that its work went wrong.

    Returns
    -------
    tuple of type
        Errors of this package's own executors, and Dask's where a Dask cluster is in use.
    """
    if "distributed" not in sys.modules:
        return (WorkerError,)
    from concurrent.futures import CancelledError

    from distributed import KilledWorker
    from distributed.comm import CommClosedError

    return WorkerError, KilledWorker, CommClosedError, CancelledError
