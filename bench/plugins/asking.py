"""Calls of user code in separate processes, which can neither end nor change this one."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, TypeVar

from sdp_bench.bench.errors import RunFailedError
from sdp_bench.bench.executors import WorkerError
from sdp_bench.bench.executors.local import Limits, apart

T = TypeVar("T")

_PATIENCE = Limits(seconds=120.0)  # imports of user code may be slow
_limits = ContextVar("limits", default=_PATIENCE)


@contextmanager
def limited(limits: Limits) -> Iterator[None]:
    """Limit calls inside this block; a limit of None keeps the outer one."""
    outer = _limits.get()
    given = {name: value for name, value in vars(limits).items() if value is not None}
    token = _limits.set(replace(outer, **given))
    try:
        yield
    finally:
        _limits.reset(token)


def ask(address: str, fn: Callable[..., T], /, *args: Any, told: Callable[[Any], None] = lambda _: None) -> T:
    """Return the result of a function that runs user code.

    The result must be plain data or of classes of this project. `address` is for error messages, and `told`
    is called with intermediate output (see `sdp_bench.bench.executors.local.apart`). A RunFailedError is
    raised if the code ends or hangs its process, exceeds the limits, or returns anything else.
    """
    if multiprocessing.parent_process() is not None:  # a worker is already such a process
        return fn(*args)
    try:
        return apart(fn, *args, limits=_limits.get(), told=told)
    except WorkerError as error:
        raise RunFailedError(f"{address}: {error}") from error
