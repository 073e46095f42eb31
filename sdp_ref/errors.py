"""Errors and warnings of rules, ops and laws."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LONGEST = 1000  # maximum characters of a message, which may quote a tensor


class UnsupportedError(NotImplementedError):
    """A rule does not support an op, a net or a law.

    `op` describes what it does not support, `path` is that of the op in the net, or "" for the net as a
    whole, and `hint` what the user can do, if known.
    """

    def __init__(self, rule: str, op: str, path: str = "", hint: str = "") -> None:
        super().__init__(rule, op, path, hint)
        self.rule, self.op, self.path, self.hint = rule, op, path, hint

    def __str__(self) -> str:
        where = f" (at '{self.path}' in the net)" if self.path else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"rule '{self.rule}' does not support {self.op}{where}{hint}"


class CovarianceSizeError(UnsupportedError):
    """The covariance matrices of a layer need more memory, `bytes`, than the rule may use."""

    def __init__(self, rule: str, op: str, path: str = "", bytes: int = 0, hint: str = "") -> None:
        super().__init__(rule, op, path, hint)
        # all arguments, which pickle passes to the constructor
        self.args, self.bytes = (rule, op, path, bytes, hint), bytes


class ReplacedLawWarning(UserWarning):
    """A rule replaced the given law, for example by the Gaussian with the same moments."""


class NoFormulaError(NotImplementedError):
    """An op has no formula. The message describes it.

    Ops and activations raise this error because they know neither the rule nor their path in the net. The
    walk over the net turns it into an :class:`UnsupportedError`.
    """


class NoFormulaForLawError(NoFormulaError):
    """An op has no formula for this law but may have one for others."""


class NoLinearPartError(NoFormulaError):
    """An op has no derivative either, for example because it mixes the rows of the batch."""


class UndefinedError(AttributeError, ValueError):
    """A law does not have the requested property, such as a mean, a density or samples.

    It is an AttributeError, too, so that ``hasattr(law, "mean")`` works.
    """


def on_one_line(text: str) -> str:
    """Return a text on one printable line of at most about a thousand characters.

    Control characters and lone surrogates are escaped as Python does.
    """
    line = " ".join(text[: 2 * _LONGEST].split())
    cut = line[:_LONGEST] + " ..." if len(line) > _LONGEST or len(text) > 2 * _LONGEST else line
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)


def not_found(noun: str, name: str, known: Iterable[str], others: str = "") -> str:
    """Return the message for an unknown name: the most similar known name, or all of them.

    >>> not_found("rule", "sdpp", ["sdp", "dvia"])
    "rule 'sdpp' not found; did you mean 'sdp'?"

    `others` is appended to the list of known names.
    """
    names = list(known)
    near = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean '{near[0]}'?" if near else f"choose from {', '.join(names)}{others}"
    return f"{noun} '{on_one_line(name)}' not found; {hint}"


def message_of(error: BaseException) -> str:
    """Return the message of any exception on one printable line."""
    try:
        return on_one_line(str(error))
    except Exception as other:  # noqa: BLE001  the message may be made by code of a user's
        return f"its message cannot be read ({type(other).__name__})"
