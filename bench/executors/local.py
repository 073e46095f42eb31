"""Calls in separate processes on this machine; if one dies, the others continue."""

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

_RESTART = 1.0  # s, until a killed fork server is replaced
_OPEN_FILES = 128  # of the driver: libraries, the results file, and a few pipes per worker
_MEMORY_CHECK = 0.05  # s, between checks of a worker's memory
_LOOK = 0.1  # s, between checks whether a silent worker has ended
_GRACE = 1.0  # s, for a worker that has answered to end
_TOLD, _ANSWER, _OVER = b"t", b"a", b"o"
"""Prefixes of a worker's messages: intermediate output, answer, memory limit exceeded."""

_PLAIN = frozenset({"sdp_bench", "sdp_ref", "torch", "numpy", "collections", "pathlib"})
"""Packages whose classes an answer may contain; a worker cannot cause other imports here."""

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Limits:
    """Limits of a call in a separate process: seconds, and GiB of resident memory."""

    seconds: float | None = None
    memory: float | None = None


class LocalProcesses(Executor):
    """Processes on this machine, each with its share of the cores, one per call.

    If a process dies, only its call fails. Its memory and its changes to the interpreter end with it. It
    prints to standard error, since standard output belongs to the driver.

    `jobs` is the number of processes at a time, `threads` the number of BLAS threads per process. A process
    is stopped after `limit` seconds, or when it has `memory` GiB of resident memory. A RunFailedError is
    raised if this process may not open enough files.
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
        return self._slots.submit(self._run, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._slots.shutdown(wait=False, cancel_futures=cancel_futures)
        if cancel_futures:
            self._is_closed = True
            # The threads that wait for these processes see their pipes break; a user cannot act on these
            # errors.
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
    """Return the result of one call in a separate process with one BLAS thread.

    Function and arguments are pickled and must not be defined in the running script. `told` is called here
    with each object that the call passes to `tell`. A WorkerError is raised if the call does not end by
    itself, a RunFailedError if this process may not open enough files, and otherwise whatever the call
    raises.
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
    """Start processes that do not run this process's script again.

    Multiprocessing would import the script, which would then repeat its calls and its output.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


class _Call:
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
        # As bytes in both directions: torch would send tensors through shared memory, which breaks if a
        # process ends while reading it.
        content = pickle.dumps((fn, args, kwargs))
        # A pipe rather than an event: a worker that is starting when the run is interrupted detects a closed
        # pipe, but not a semaphore without owner.
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
                    # Do not wait for other holders of its pipes, such as its child processes.
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
        """Yield a worker's messages until it has ended or cannot send any more."""
        with suppress(EOFError, OSError):
            while self._told.poll(_LOOK) or not self._end.done():
                if self._told.poll():
                    yield self._told.recv_bytes()


class _Server:
    """A fork server that has imported the measuring code, and forks before any thread starts."""

    def __init__(self) -> None:
        self._starting, self._has_started = threading.Lock(), False

    @cached_property
    def context(self) -> ForkServerContext:
        let_threads_sleep()
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["sdp_bench.bench.runs.preloaded"])
        return context

    def await_start(self) -> None:
        """Wait for its imports, so that they do not count towards a call's time."""
        with self._starting:
            if not self._has_started:
                # If it is killed meanwhile, the call itself reports that or replaces it.
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
    """Start the fork server, which imports in parallel with this process."""
    from multiprocessing import forkserver

    _ = _SERVER.context
    forkserver.ensure_running()


def _check_open_files() -> None:
    """Raise a RunFailedError if too few files may be open; a fork server would only print a traceback."""
    try:
        import resource
    except ImportError:  # not available on all systems
        return
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= most < _OPEN_FILES:
        raise RunFailedError(
            f"a process may have {most} files open here, and workers take up to {_OPEN_FILES}; see ulimit -n"
        )


def _drop(error: threading.ExceptHookArgs) -> None:
    """Pass on an error of a thread, unless the thread is one of pebble's."""
    frames = traceback.walk_tb(error.exc_traceback)
    if not any(frame.f_globals.get("__name__", "").startswith("pebble.") for frame, _ in frames):
        threading.__excepthook__(error)


class _Unpickler(pickle.Unpickler):
    """Unpickle plain data and classes of known packages only."""

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
    """Return or raise the content of an answer made by `_answer`."""
    value, error, line, trace = _unpickled(content)
    if not line:
        return value
    try:
        raised = _unpickled(error)
    except NoAnswerError:
        raised = RuntimeError(line)
    raise raised from RemoteTraceback(trace)


# Worker side -----------------------------------------------------------------------------------------

_TELLING = threading.Lock()
_teller: Connection | None = None


def tell(thing: object) -> None:
    """Send an object from inside a call of `apart` to the waiting process before the call ends.

    It must be plain data or of a class of this project.
    """
    _send(_TOLD + pickle.dumps(thing))


def _send(message: bytes) -> None:
    with _TELLING:
        if _teller is not None:
            _teller.send_bytes(message)


def _answer(content: bytes, threads: int, memory: float | None, teller: Connection) -> None:
    """Send a call's (value, pickled error, its line, its traceback) and end without waiting for threads."""
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
    """End this worker when the driver ends for any reason."""
    driver = multiprocessing.parent_process()
    if driver is not None:
        connection.wait([driver.sentinel])
        os._exit(1)


def _watch_memory(limit: float) -> None:
    """End this process when it exceeds `limit` bytes, before the system's out-of-memory killer acts."""
    while _peak_memory() <= limit:
        time.sleep(_MEMORY_CHECK)
    # An exit status is not enough: children of a fork server lose theirs if two threads read it at once.
    try:
        _send(_OVER)
    finally:
        os._exit(1)


def _peak_memory() -> float:
    """Return the peak resident memory (bytes) of this process."""
    try:
        # Preferred to getrusage, whose peak in a child starts at the parent's.
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        return 1024 * float(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
    except (OSError, StopIteration):
        import resource
        import sys

        unit = 1 if sys.platform == "darwin" else 1024
        return unit * float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
