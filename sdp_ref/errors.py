"""What goes wrong between a rule and a net."""

from __future__ import annotations

_LONGEST = 1000  # characters of a line: a tensor may stand in a message


class UnsupportedError(NotImplementedError):
    """A rule cannot do what is asked of it.

    Parameters
    ----------
    rule : str
        Name of the rule.
    op : str
        What it has no formula for.
    path : str
        Where that stands in the net ("" for the net as a whole).
    hint : str
        What would help, if anything is known.
    """

    def __init__(self, rule: str, op: str, path: str = "", hint: str = "") -> None:
        super().__init__(rule, op, path, hint)
        self.rule, self.op, self.path, self.hint = rule, op, path, hint

    def __str__(self) -> str:
        where = f" (at '{self.path}' in the net)" if self.path else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"rule '{self.rule}' does not support {self.op}{where}{hint}"


class CovarianceSizeError(UnsupportedError):
    """The covariance matrices of a layer would take more memory than a rule may use.

    Parameters
    ----------
    rule, op, path : str
        As in :class:`UnsupportedError`.
    bytes : int
        What they would take.
    hint : str
        As in :class:`UnsupportedError`.
    """

    def __init__(self, rule: str, op: str, path: str = "", bytes: int = 0, hint: str = "") -> None:
        super().__init__(rule, op, path, hint)
        self.args, self.bytes = (rule, op, path, bytes, hint), bytes  # all of them, for pickle


class ReplacedLawWarning(UserWarning):
    """A rule takes another law than it was given: the Gaussian of its moments, say, or no correlations."""


class NoFormulaError(NotImplementedError):
    """Inside a rule's walk: what stands at one op of a net has no formula. The message says what it is.

    Ops and activations know neither the rule that asks nor their place in the net. The walk does, and raises
    an :class:`UnsupportedError` in its stead.
    """


class NoFormulaForLawError(NoFormulaError):
    """As :class:`NoFormulaError`, of an op that has a formula under other laws, of the same batch perhaps."""


class NoLinearPartError(NoFormulaError):
    """As :class:`NoFormulaError`, of what no derivative stands for either: what sees the batch, say."""


class UndefinedError(AttributeError, ValueError):
    """A law was asked for what it has not: a mean, a density, draws. The message says which law and what.

    An AttributeError too, so that ``hasattr(law, "mean")`` tells.
    """


def on_one_line(text: str) -> str:
    """Any text on one line, that can be shown and stored.

    Parameters
    ----------
    text : str

    Returns
    -------
    str
        Of at most a thousand characters or so; control characters and lone surrogates as Python escapes them.
    """
    line = " ".join(text[: 2 * _LONGEST].split())
    cut = line[:_LONGEST] + " ..." if len(line) > _LONGEST or len(text) > 2 * _LONGEST else line
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)


def message_of(error: BaseException) -> str:
    """What an error says, as one line that can be shown and stored, whoever wrote it.

    Parameters
    ----------
    error : BaseException
    """
    try:
        return on_one_line(str(error))
    except Exception as other:  # noqa: BLE001  the message may be made by code of a user's
        return f"its message cannot be read ({type(other).__name__})"
