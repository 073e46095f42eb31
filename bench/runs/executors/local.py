"""Where groups are run: local processes, of which one may die without harm to the others."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from pebble import ProcessExpired, ProcessFuture, concurrent

from sdp_bench.bench.errors import RunFailedError
from sdp_bench.bench.runs.executors import MemoryLimitError, TimeLimitError, WorkerDiedError

_RESTART = 1.0  # s, that a killed fork server takes to be replaced
_OPEN_FILES = 128  # of the driver: libraries, the results file, and a few pipes for each worker
_MEMORY_CHECK = 0.05  # s, between looks at a worker's memory

P = ParamSpec("P")
T = TypeVar("T")


class LocalProcesses(Executor):
    """Processes on this machine, each with its own share of the cores, and one for each call.

    The end of a process fails the one call that it was working on. What a call holds in memory, or leaves
    behind in its interpreter, ends with it.

    Parameters
    ----------
    jobs : int
        Processes at a time.
    threads : int
        BLAS threads of each.
    limit : float, optional
        Seconds after which a call is stopped.
    memory : float, optional
        GiB of resident memory at which a process is stopped.

    Raises
    ------
    RunFailedError
        If this process may not open as many files as that takes.
    """

    def __init__(
        self, jobs: int, threads: int, limit: float | None = None, memory: float | None = None
    ) -> None:
        _check_open_files()
        self._threads, self._limit, self._memory = threads, limit, memory
        # A fork server has imported all that measures already, and forks before any thread is started.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["sdp_bench.bench.runs.preloaded"])
        self._slots = ThreadPoolExecutor(jobs)
        self._starting, self._has_started, self._is_closed = threading.Lock(), False, False
        self._running: set[ProcessFuture[bytes]] = set()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a call; see :class:`concurrent.futures.Executor`."""
        return self._slots.submit(self._run, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop; with `cancel_futures`, also what is being worked on."""
        self._slots.shutdown(wait=False, cancel_futures=cancel_futures)
        if cancel_futures:
            self._is_closed = True
            # The threads that wait for these processes meet the ends of pipes that are cut here; what they
            # raise is nothing that a user could act on.
            threading.excepthook = _drop
            for call in tuple(self._running):
                call.cancel()
        self._slots.shutdown(wait=wait)

    def _run(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self._start_server()
        # As bytes, there and back: torch would send tensors by shared memory, which a process that ends
        # while it takes them leaves in pieces.
        content = pickle.dumps((fn, args, kwargs))
        # A pipe, not an event: a worker that still starts when the run is interrupted finds its end of a
        # pipe, but not a semaphore that nobody holds any more.
        over, tell = self._context.Pipe(duplex=False)
        with tell:
            call = self._start(self._limit, _call, content, self._threads, self._memory, tell)
        self._running.add(call)
        if self._is_closed:
            call.cancel()
        try:
            return pickle.loads(call.result())  # noqa: S301  of a process that this one started
        except TimeoutError as error:
            raise TimeLimitError(f"stopped at the time limit of {self._limit:g} s") from error
        except ProcessExpired as error:
            if _is_told(over):
                raise MemoryLimitError(f"stopped at the memory limit of {self._memory:g} GiB") from error
            raise WorkerDiedError("the worker process died (killed, or out of memory)") from error
        finally:
            self._running.discard(call)
            over.close()

    def _start_server(self) -> None:
        """Let the fork server import what it does before a call's time is taken."""
        with self._starting:
            if not self._has_started:
                # One that is killed meanwhile is told by the call itself, or replaced for it.
                with suppress(ProcessExpired):
                    self._start(None, os.getpid).result()
                    self._has_started = True

    def _start(self, limit: float | None, fn: Callable[..., Any], *args: Any) -> ProcessFuture[Any]:
        process: Callable[..., ProcessFuture[Any]] = concurrent.process(  # type: ignore[call-overload]
            timeout=limit, context=self._context
        )(fn)
        try:
            return process(*args)
        except (OSError, EOFError):  # the fork server was killed
            time.sleep(_RESTART)
        try:
            return process(*args)
        except (OSError, EOFError) as error:
            raise WorkerDiedError(f"no worker process could be started ({error})") from error


def _check_open_files() -> None:
    """Raise a RunFailedError where a fork server cannot open its pipes: it says that in a traceback."""
    try:
        import resource
    except ImportError:  # another system has no such limit
        return
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= most < _OPEN_FILES:
        raise RunFailedError(
            f"a process may have {most} files open here, and workers take up to {_OPEN_FILES}; see ulimit -n"
        )


def _is_told(pipe: Connection) -> bool:
    """Whether the other end of `pipe` has sent anything before it was closed."""
    try:
        return pipe.poll() and bool(pipe.recv_bytes())
    except (EOFError, OSError):
        return False


def _drop(error: threading.ExceptHookArgs) -> None:
    """Pass on what a thread raised, unless it is one of pebble's."""
    frames = traceback.walk_tb(error.exc_traceback)
    if not any(frame.f_globals.get("__name__", "").startswith("pebble.") for frame, _ in frames):
        threading.__excepthook__(error)


def _call(content: bytes, threads: int, memory: float | None, over: Connection) -> bytes:
    import torch

    torch.set_num_threads(threads)
    threading.Thread(target=_follow_driver, daemon=True).start()
    if memory is not None:
        threading.Thread(target=_watch_memory, args=(memory * 2**30, over), daemon=True).start()
    fn, args, kwargs = pickle.loads(content)  # noqa: S301  of the process that started this one
    return pickle.dumps(fn(*args, **kwargs))


def _follow_driver() -> None:
    """End when the driver ends, however that happens; a worker left alone would work on for nobody."""
    driver = multiprocessing.parent_process()
    if driver is not None:
        connection.wait([driver.sentinel])
        os._exit(1)


def _watch_memory(limit: float, over: Connection) -> None:
    """End when this process has held more than `limit` bytes, before the system has to choose a victim."""
    while _peak_memory() <= limit:
        time.sleep(_MEMORY_CHECK)
    # An exit status would do, but a fork server's children lose theirs where two threads ask for it at once.
    try:
        over.send_bytes(b"over")
    finally:
        os._exit(1)


def _peak_memory() -> float:
    """Most resident memory (bytes) that this process has held."""
    try:
        # Not getrusage where this is to be had: a child's begins with what its parent held.
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        return 1024 * float(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
    except (OSError, StopIteration):
        import resource
        import sys

        unit = 1 if sys.platform == "darwin" else 1024
        return unit * float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
