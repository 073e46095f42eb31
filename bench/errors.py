"""Errors that a user can act on, each one line, with the exit code of a command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sdp_ref.errors import message_of, on_one_line

from .text import public


def one_line(error: BaseException) -> str:
    """Return type and message of an error on one printable line."""
    kind, text = on_one_line(type(error).__name__), message_of(error)
    return f"{kind}: {text}" if text else kind


class UserError(Exception):
    """Invalid usage or input."""

    exit_code = 2


class RunFailedError(UserError):
    """A valid request failed."""

    exit_code = 3


NOT_DEFINED = "not defined: "
"""Prefix of the message of a `RefusedError`."""


class RefusedError(UserError, ValueError):
    """A metric is not defined for a law; neither is at fault."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{NOT_DEFINED}{reason}")


class MeasuredCodeError(Exception):
    """An error raised by measured code, in one line; the original error is its cause."""


@contextmanager
def measured_code() -> Iterator[None]:
    """Mark a block as measured code, as opposed to the project's own machinery.

    Errors of any kind are caught only here, and raised again as MeasuredCodeError. A failed measurement is
    then recorded and the run continues, while a bug in the machinery stops the run with its traceback.
    """
    try:
        yield
    except MeasuredCodeError:
        raise
    except UserError as error:  # already one line
        raise MeasuredCodeError(str(error)) from error
    except Exception as error:
        raise MeasuredCodeError(public(one_line(error))) from error
