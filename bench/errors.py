"""Errors that a user can act on, each one line, with the exit code of the command that met it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sdp_bench.bench.text import public
from sdp_ref.errors import message_of, on_one_line


def one_line(error: BaseException) -> str:
    """Kind and message of any error, on one line that can be shown and stored."""
    kind, text = on_one_line(type(error).__name__), message_of(error)
    return f"{kind}: {text}" if text else kind


class UserError(Exception):
    """Bad usage or bad input."""

    exit_code = 2


class RunFailedError(UserError):
    """Something that was asked for properly could not be done."""

    exit_code = 3


NOT_DEFINED = "not defined: "
"""How the message of a :class:`RefusedError` begins."""


class RefusedError(UserError, ValueError):
    """A metric is not defined for a law, which is the fault of neither."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{NOT_DEFINED}{reason}")


class OutsideError(Exception):
    """What the code that is measured raised, in one line; the error itself is the cause."""


@contextmanager
def outside() -> Iterator[None]:
    """Mark a block as code that is measured and not the project's own machinery.

    This is the one place where errors of any kind are caught: a measurement that fails is recorded and others
    go on, while a mistake in the machinery around it stops a run with its traceback.

    Raises
    ------
    OutsideError
        In the place of whatever the block raises.
    """
    try:
        yield
    except OutsideError:
        raise
    except UserError as error:  # a line already
        raise OutsideError(str(error)) from error
    except Exception as error:
        raise OutsideError(public(one_line(error))) from error
