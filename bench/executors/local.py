"""Calls in separate processes on this machine; if one dies, the others continue."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

from pebble import ProcessExpired, ProcessFuture, concurrent
from pebble.common.types import RemoteTraceback

from ..errors import one_line
from . import WorkerError, let_threads_sleep, uninterrupted

SAFE_PATH = "sdp-bench"
"""Value of PYTHONSAFEPATH in a starting fork server, which then removes it: user code must not inherit it."""
_RESTART = 1.0  # s, until a killed fork server is replaced
_MEMORY_CHECK = 0.05  # s, between checks of a worker's memory
_LOOK = 0.1  # s, between checks whether a silent worker has ended
_OVER = "memory limit"  # intermediate output of a worker that exceeds its memory limit

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Limits:
    """Limits of a call in a separate process: seconds, and GiB of resident memory."""

    seconds: float | None = None
    memory: float | None = None


_PATIENCE = Limits(seconds=120.0)  # imports of user code may be slow
_limits = ContextVar("limits", default=_PATIENCE)


@contextmanager
def limited(limits: Limits) -> Iterator[None]:
    """Limit calls of `in_separate_process` inside this block; a limit of None keeps the outer one."""
    given = {name: value for name, value in vars(limits).items() if value is not None}
    token = _limits.set(replace(_limits.get(), **given))
    try:
        yield
    finally:
        _limits.reset(token)


def limits_here() -> Limits:
    """Return the limits that `limited` has set."""
    return _limits.get()


def in_separate_process(
    fn: Callable[..., T],
    /,
    *args: Any,
    address: str = "",
    limits: Limits | None = None,
    on_message: Callable[[Any], None] | None = None,
) -> T:
    """Return the result of one call in a separate process with one BLAS thread, which may run user code.

    Function and arguments are pickled and must not be defined in the running script. The result must be plain
    data or of classes of this project, since it is unpickled here. `address` is for error messages, `limits`
    replace those of `limited`, and `on_message` is called here with each object that the call passes to
    `send`. A worker is already such a process and calls the function itself.

    A WorkerError is raised if the code ends or hangs its process, exceeds the limits, or returns anything
    else, and otherwise whatever the call raises.
    """
    if multiprocessing.parent_process() is not None:
        return fn(*args)
    try:
        with main_hidden():
            result: T = _called(fn, args, {}, 1, limits or _limits.get(), set(), on_message)
    except WorkerError as error:
        raise WorkerError(f"{address}: {error}" if address else str(error)) from error
    return result


class LocalProcesses(Executor):
    """Processes on this machine, each with its share of the cores, one per call.

    If a process dies, only its call fails. Its memory and its changes to the interpreter end with it. It
    prints to standard error, since standard output belongs to the driver.

    `jobs` is the number of processes at a time, `threads` the number of BLAS threads per process. A process
    is stopped after `limit` seconds, or when it has `memory` GiB of resident memory.
    """

    def __init__(
        self, jobs: int, threads: int, limit: float | None = None, memory: float | None = None
    ) -> None:
        begin_server()  # in this thread, since others cannot make it ignore interrupts
        self._threads, self._limits = threads, Limits(limit, memory)
        self._slots = ThreadPoolExecutor(jobs)
        self._is_closed = False
        self._running: set[ProcessFuture[bytes]] = set()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return self._slots.submit(self._run, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._slots.shutdown(wait=False, cancel_futures=cancel_futures)
        if cancel_futures:
            self._is_closed = True
            # Pebble's threads see the pipes of these processes break; a user cannot act on such errors.
            threading.excepthook = _drop
            for future in tuple(self._running):
                future.cancel()
        self._slots.shutdown(wait=wait)

    def _run(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if self._is_closed:
            raise WorkerError("the run was interrupted")
        return _called(fn, args, kwargs, self._threads, self._limits, self._running)


def _called(
    fn: Callable[..., Any],
    args: Any,
    kwargs: Any,
    threads: int,
    limits: Limits,
    running: set[ProcessFuture[bytes]],
    on_message: Callable[[Any], None] | None = None,
) -> Any:
    """Return or raise the result of a call in a process, which is in `running` meanwhile."""
    _SERVER.await_start()
    # As bytes in both directions: torch would send tensors through shared memory, which breaks if a process
    # ends while reading it.
    content = pickle.dumps((fn, args, kwargs))
    receiver, sender = _SERVER.context.Pipe(duplex=False)
    with receiver:
        with sender:
            future = _SERVER.start(limits.seconds, _work, content, threads, limits.memory, sender)
        running.add(future)
        is_over, last_message = False, None
        try:
            for message in _messages(receiver, future):
                is_over = message == _OVER
                if is_over:
                    continue
                last_message = message
                if on_message is not None:
                    on_message(message)
            answer = future.result()
        except TimeoutError as error:
            raise WorkerError(f"stopped at the time limit of {limits.seconds:g} s") from error
        except ProcessExpired as error:
            reason = "the worker process died (it ended itself, was killed, or was out of memory)"
            if is_over:
                reason = f"stopped at the memory limit of {limits.memory:g} GiB"
            lost = WorkerError(reason)
            lost.last_message = last_message
            raise lost from error
        finally:
            running.discard(future)
            future.cancel()
    value, pickled, line, trace = _unpickled(answer)
    if not line:
        return value
    try:
        raised = _unpickled(pickled)
    except WorkerError:
        raised = RuntimeError(line)
    raise raised from RemoteTraceback(trace)


def _messages(receiver: Connection, future: ProcessFuture[bytes]) -> Iterator[Any]:
    """Yield a worker's intermediate output until it has ended or cannot send any more."""
    with suppress(EOFError, OSError):
        while receiver.poll(_LOOK) or not future.done():
            if receiver.poll():
                yield _unpickled(receiver.recv_bytes())


def _unpickled(content: bytes) -> Any:
    try:
        return pickle.loads(content)  # noqa: S301  of a process that this one started
    except Exception as error:
        raise WorkerError(f"its answer cannot be read ({one_line(error)})") from error


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


class _Server:
    """A fork server that has imported the measuring code, and forks before any thread starts."""

    def __init__(self) -> None:
        self._starting, self._has_started = threading.Lock(), False

    @cached_property
    def context(self) -> ForkServerContext:
        from multiprocessing import forkserver

        let_threads_sleep()
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["sdp_bench.bench.runs.preloaded"])
        with uninterrupted(), _safe_path():
            forkserver.ensure_running()
        return context

    def await_start(self) -> None:
        """Wait for its imports, so that they do not count towards a call's time."""
        with self._starting:
            if not self._has_started:
                # If it is killed meanwhile, the call itself reports that or replaces it.
                with suppress(ProcessExpired):
                    self.start(None, _end_silently_without_reader).result()
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
            with _safe_path():
                return process(*args)
        except (OSError, EOFError) as error:
            raise WorkerError(f"no worker process could be started ({error})") from error


@contextmanager
def _safe_path() -> Iterator[None]:
    """Start processes that do not import the standard library from the working folder (Python's option -P).

    It may contain a user's queue.py.
    """
    if os.environ.get("PYTHONSAFEPATH"):
        yield
        return
    os.environ["PYTHONSAFEPATH"] = SAFE_PATH
    try:
        yield
    finally:
        os.environ.pop("PYTHONSAFEPATH", None)


_SERVER = _Server()


def begin_server() -> None:
    """Start the fork server, which imports in parallel with this process."""
    _ = _SERVER.context


def _drop(error: threading.ExceptHookArgs) -> None:
    """Pass on an error of a thread, unless the thread is one of pebble's."""
    frames = traceback.walk_tb(error.exc_traceback)
    if not any(frame.f_globals.get("__name__", "").startswith("pebble.") for frame, _ in frames):
        threading.__excepthook__(error)


# Worker side -----------------------------------------------------------------------------------------

_sending = threading.Lock()
_driver_pipe: Connection | None = None


def send(message: object) -> None:
    """Send an object from inside a call of `in_separate_process` to the waiting process before the call ends.

    It must be plain data or of a class of this project.
    """
    with _sending:
        if _driver_pipe is not None:
            _driver_pipe.send_bytes(pickle.dumps(message))


def _work(content: bytes, threads: int, memory: float | None, pipe: Connection) -> bytes:
    """Return a call's (value, pickled error, its line, its traceback), pickled; pebble ends the process."""
    global _driver_pipe
    _driver_pipe = pipe
    with suppress(OSError):
        os.dup2(2, 1)
    threading.Thread(target=_follow_driver, daemon=True).start()
    if memory is not None:
        threading.Thread(target=_watch_memory, args=(memory * 2**30,), daemon=True).start()
    try:
        import torch

        torch.set_num_threads(threads)
        fn, args, kwargs = pickle.loads(content)  # noqa: S301  of the process that started this one
        answer = pickle.dumps((fn(*args, **kwargs), b"", "", ""))
    except Exception as error:  # noqa: BLE001  raised where the answer is waited for
        answer = _raised(error)
    except BaseException as error:  # noqa: BLE001  which would interrupt, or end, who waits for the answer
        answer = _raised(WorkerError(f"it raised {one_line(error)}, which ends a process"))
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    _end_silently_without_reader()
    return answer


def _end_silently_without_reader() -> None:
    """Let a broken pipe end this process; pebble would print a traceback after an interrupt."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def _raised(error: Exception) -> bytes:
    pickled = b""
    # To unpickle a user's class would import their module in the waiting process.
    if type(error).__module__.partition(".")[0] in ("builtins", "sdp_bench", "sdp_ref", "torch", "numpy"):
        with suppress(Exception):  # an error may hold anything
            pickled = pickle.dumps(error)
    trace = "".join(traceback.format_exception(error))
    return pickle.dumps((None, pickled, one_line(error), trace))


def _follow_driver() -> None:
    """End this worker when the driver ends for any reason."""
    driver = multiprocessing.parent_process()
    if driver is not None:
        connection.wait([driver.sentinel])
        os._exit(1)


def _watch_memory(limit: float) -> None:
    """End this process when it exceeds `limit` bytes, before the system's out-of-memory killer acts."""
    import psutil

    process = psutil.Process()
    while process.memory_info().rss <= limit:
        time.sleep(_MEMORY_CHECK)
    # An exit status is not enough: children of a fork server lose theirs if two threads read it at once.
    try:
        send(_OVER)
    finally:
        os._exit(1)
