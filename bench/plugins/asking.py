"""Questions to a user's code, each in a process of its own: it can neither end nor change this one."""

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

_PATIENCE = Limits(seconds=120.0)  # what a user's code imports may take long
_limits = ContextVar("limits", default=_PATIENCE)


@contextmanager
def limited(limits: Limits) -> Iterator[None]:
    """Let questions that are asked in this block take no more than this.

    Parameters
    ----------
    limits : Limits
        What is None there is as outside the block.
    """
    outer = _limits.get()
    given = {name: value for name, value in vars(limits).items() if value is not None}
    token = _limits.set(replace(outer, **given))
    try:
        yield
    finally:
        _limits.reset(token)


def ask(address: str, fn: Callable[..., T], /, *args: Any, told: Callable[[Any], None] = lambda _: None) -> T:
    """Answer of a function that runs code of a user's.

    Parameters
    ----------
    address : str
        Of the code, for messages.
    fn : callable
    *args
        What can be pickled.
    told : callable
        Called with what the function tells meanwhile, see :func:`sdp_bench.bench.executors.local.apart`.

    Returns
    -------
    object
        Plain data, or of classes of this project.

    Raises
    ------
    RunFailedError
        If the code ends or hangs its process, takes more than the limits of :func:`limited`, or its answer
        is no plain data.
    Exception
        Whatever the function raises.
    """
    if multiprocessing.parent_process() is not None:  # a worker is such a process already
        return fn(*args)
    try:
        return apart(fn, *args, limits=_limits.get(), told=told)
    except WorkerError as error:
        raise RunFailedError(f"{address}: {error}") from error
