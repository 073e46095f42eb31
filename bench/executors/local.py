"""Calls in processes of their own on this machine, of which one may die without harm to the others."""

from __future__ import annotations

import builtins
import io
import multiprocessing
import os
import pickle
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

from pebble import ProcessExpired, ProcessFuture, concurrent
from pebble.common.types import RemoteTraceback

from sdp_bench.bench.errors import RunFailedError, one_line
from sdp_bench.bench.executors import (
    MemoryLimitError,
    NoAnswerError,
    TimeLimitError,
    WorkerDiedError,
    let_threads_sleep,
)

_RESTART = 1.0  # s, that a killed fork server takes to be replaced
_OPEN_FILES = 128  # of the driver: libraries, the results file, and a few pipes for each worker
_MEMORY_CHECK = 0.05  # s, between looks at a worker's memory
_LOOK = 0.1  # s, between looks at whether a silent worker has ended
_GRACE = 1.0  # s, for a worker that has answered to be seen to have ended
_TOLD, _ANSWER, _OVER = b"t", b"a", b"o"
"""How messages of a worker begin: what it tells, its answer, and that it is over its limit of memory."""

_PLAIN = frozenset({"sdp_bench", "sdp_ref", "torch", "numpy", "collections", "pathlib"})
"""Packages whose classes an answer may hold: no others are imported here because a worker says so."""

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Limits:
    """What a call in a process of its own may take.

    Attributes
    ----------
    seconds : float, optional
        Time after which it is stopped.
    memory : float, optional
        GiB of resident memory at which it is stopped.
    """

    seconds: float | None = None
    memory: float | None = None


class LocalProcesses(Executor):
    """Processes on this machine, each with its own share of the cores, and one for each call.

    The end of a process fails the one call that it was working on. What a call holds in memory, or leaves
    behind in its interpreter, ends with it. What it prints goes to standard error: standard output is the
    driver's.

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
        self._threads, self._limits = threads, Limits(limit, memory)
        self._slots = ThreadPoolExecutor(jobs)
        self._is_closed = False
        self._running: set[_Call] = set()

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
        call = _Call(fn, args, kwargs, self._threads, self._limits)
        self._running.add(call)
        if self._is_closed:
            call.cancel()
        try:
            return call.result()
        finally:
            self._running.discard(call)


def apart(
    fn: Callable[..., T],
    /,
    *args: Any,
    limits: Limits | None = None,
    told: Callable[[Any], None] = lambda _: None,
) -> T:
    """Result of one call in a process of its own, with one BLAS thread.

    Parameters
    ----------
    fn : callable
    *args
        What can be pickled; like `fn`, not of the script that is run.
    limits : Limits, optional
    told : callable
        Called here with each thing that the call hands to :func:`tell`.

    Raises
    ------
    WorkerError
        If it does not come to an end of its own.
    RunFailedError
        If this process may not open as many files as that takes.
    Exception
        Whatever the call raises.
    """
    _check_open_files()
    with main_hidden():
        call = _Call(fn, args, {}, 1, limits or Limits())
    try:
        result: T = call.result(told)
    except BaseException:
        call.cancel()
        raise
    return result


@contextmanager
def main_hidden() -> Iterator[None]:
    """Start processes that do not run the script of this one again, to have what it defines.

    They would ask the same question there, and print what it prints.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


class _Call:
    """A call in a process that has been started for it."""

    def __init__(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        threads: int,
        limits: Limits,
    ) -> None:
        _SERVER.await_start()
        self._limits = limits
        # As bytes, there and back: torch would send tensors by shared memory, which a process that ends
        # while it takes them leaves in pieces.
        content = pickle.dumps((fn, args, kwargs))
        # A pipe, not an event: a worker that still starts when the run is interrupted finds its end of a
        # pipe, but not a semaphore that nobody holds any more.
        self._told, tell = _SERVER.context.Pipe(duplex=False)
        with tell:
            self._end = _SERVER.start(limits.seconds, _answer, content, threads, limits.memory, tell)

    def cancel(self) -> None:
        self._end.cancel()

    def result(self, told: Callable[[Any], None] = lambda _: None) -> Any:
        is_over = False
        with self._told:
            for message in self._messages():
                kind, content = message[:1], message[1:]
                if kind == _ANSWER:
                    # Whoever holds its pipes yet, a child of its own say, is not waited for.
                    if not wait([self._end], _GRACE).done:
                        self._end.cancel()
                    return _opened(content)
                if kind == _TOLD:
                    told(_unpickled(content))
                is_over = kind == _OVER
        try:
            self._end.result()
        except TimeoutError as error:
            raise TimeLimitError(f"stopped at the time limit of {self._limits.seconds:g} s") from error
        except ProcessExpired as error:
            if is_over:
                line = f"stopped at the memory limit of {self._limits.memory:g} GiB"
                raise MemoryLimitError(line) from error
            raise WorkerDiedError(
                "the worker process died (it ended itself, was killed, or was out of memory)"
            ) from error
        raise NoAnswerError("the worker process ended without an answer")

    def _messages(self) -> Iterator[bytes]:
        """What the worker sends, until it has ended, or can send no more."""
        with suppress(EOFError, OSError):
            while self._told.poll(_LOOK) or not self._end.done():
                if self._told.poll():
                    yield self._told.recv_bytes()


class _Server:
    """A fork server, which has imported all that measures already, and forks before any thread is started."""

    def __init__(self) -> None:
        self._starting, self._has_started = threading.Lock(), False

    @cached_property
    def context(self) -> ForkServerContext:
        let_threads_sleep()
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["sdp_bench.bench.runs.preloaded"])
        return context

    def await_start(self) -> None:
        """Let it import what it does before a call's time is taken."""
        with self._starting:
            if not self._has_started:
                # One that is killed meanwhile is told by the call itself, or replaced for it.
                with suppress(ProcessExpired):
                    self.start(None, os.getpid).result()
                    self._has_started = True

    def start(self, limit: float | None, fn: Callable[..., Any], *args: Any) -> ProcessFuture[Any]:
        process: Callable[..., ProcessFuture[Any]] = concurrent.process(  # type: ignore[call-overload]
            timeout=limit, context=self.context
        )(fn)
        try:
            return process(*args)
        except (OSError, EOFError):  # the fork server was killed
            time.sleep(_RESTART)
        try:
            return process(*args)
        except (OSError, EOFError) as error:
            raise WorkerDiedError(f"no worker process could be started ({error})") from error


_SERVER = _Server()


def begin_server() -> None:
    """Let the fork server start, and import what it does, beside what this process does meanwhile."""
    from multiprocessing import forkserver

    _ = _SERVER.context
    forkserver.ensure_running()


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


def _drop(error: threading.ExceptHookArgs) -> None:
    """Pass on what a thread raised, unless it is one of pebble's."""
    frames = traceback.walk_tb(error.exc_traceback)
    if not any(frame.f_globals.get("__name__", "").startswith("pebble.") for frame, _ in frames):
        threading.__excepthook__(error)


class _Unpickler(pickle.Unpickler):  # noqa: S301  of a process that this one started
    """Reads plain data and classes of known packages, whatever a worker sends."""

    def find_class(self, module: str, name: str) -> Any:
        is_known = module.partition(".")[0] in _PLAIN
        if not is_known and not (module == "builtins" and isinstance(getattr(builtins, name, None), type)):
            raise pickle.UnpicklingError(f"{module}.{name} is of no package that answers are made of")
        return super().find_class(module, name)


def _unpickled(content: bytes) -> Any:
    try:
        return _Unpickler(io.BytesIO(content)).load()
    except Exception as error:
        raise NoAnswerError(f"its answer cannot be read ({one_line(error)})") from error


def _opened(content: bytes) -> Any:
    """What :func:`_answer` has put into an answer: returned, or raised."""
    value, error, line, trace = _unpickled(content)
    if not line:
        return value
    try:
        raised = _unpickled(error)
    except NoAnswerError:
        raised = RuntimeError(line)
    raise raised from RemoteTraceback(trace)


# In the worker -----------------------------------------------------------------------------------------

_TELLING = threading.Lock()
_teller: Connection | None = None


def tell(thing: object) -> None:
    """Hand something to the process that waits for this call of :func:`apart`, before the call ends.

    Parameters
    ----------
    thing : object
        Plain data, or of a class of this project.
    """
    _send(_TOLD + pickle.dumps(thing))


def _send(message: bytes) -> None:
    with _TELLING:
        if _teller is not None:
            _teller.send_bytes(message)


def _answer(content: bytes, threads: int, memory: float | None, teller: Connection) -> None:
    """Send the answer of a call, a pickle of (value, pickled error, that error on one line, its traceback).

    Then the process ends at once: what the call has left to do at its end, and its threads, wait for nobody.
    """
    global _teller
    _teller = teller
    with suppress(OSError):
        os.dup2(2, 1)
    try:
        answer = pickle.dumps((_called(content, threads, memory), b"", "", ""))
    except Exception as error:  # noqa: BLE001  raised where the answer is waited for
        answer = _raised(error)
    except BaseException as error:  # noqa: BLE001  which would interrupt, or end, who waits for the answer
        answer = _raised(WorkerDiedError(f"it raised {one_line(error)}, which ends a process"))
    try:
        _send(_ANSWER + answer)
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
    finally:
        os._exit(0)


def _raised(error: Exception) -> bytes:
    try:
        pickled = pickle.dumps(error)
    except Exception:  # noqa: BLE001  an error may hold anything
        pickled = b""
    trace = "".join(traceback.format_exception(error))
    return pickle.dumps((None, pickled, one_line(error), trace))


def _called(content: bytes, threads: int, memory: float | None) -> Any:
    import torch

    torch.set_num_threads(threads)
    threading.Thread(target=_follow_driver, daemon=True).start()
    if memory is not None:
        threading.Thread(target=_watch_memory, args=(memory * 2**30,), daemon=True).start()
    fn, args, kwargs = pickle.loads(content)  # noqa: S301  of the process that started this one
    return fn(*args, **kwargs)


def _follow_driver() -> None:
    """End when the driver ends, however that happens; a worker left alone would work on for nobody."""
    driver = multiprocessing.parent_process()
    if driver is not None:
        connection.wait([driver.sentinel])
        os._exit(1)


def _watch_memory(limit: float) -> None:
    """End when this process has held more than `limit` bytes, before the system has to choose a victim."""
    while _peak_memory() <= limit:
        time.sleep(_MEMORY_CHECK)
    # An exit status would do, but a fork server's children lose theirs where two threads ask for it at once.
    try:
        _send(_OVER)
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
