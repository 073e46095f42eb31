"""What goes wrong between a rule and a net."""

from __future__ import annotations


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
    """

    def __init__(self, rule: str, op: str, path: str = "") -> None:
        super().__init__(rule, op, path)
        self.rule, self.op, self.path = rule, op, path

    def __str__(self) -> str:
        where = f" (at '{self.path}' in the net)" if self.path else ""
        return f"rule '{self.rule}' does not support {self.op}{where}"


class CovarianceSizeError(UnsupportedError):
    """The covariance matrices of a layer would take more memory than a rule may use.

    Parameters
    ----------
    rule, op, path : str
        As in :class:`UnsupportedError`.
    bytes : int
        What they would take.
    """

    def __init__(self, rule: str, op: str, path: str = "", bytes: int = 0) -> None:
        super().__init__(rule, op, path)
        self.args, self.bytes = (rule, op, path, bytes), bytes  # all of them, for pickle


class NoFormulaError(NotImplementedError):
    """Inside a rule's walk: what stands at one op of a net has no formula. The message says what it is.

    Ops and activations know neither the rule that asks nor their place in the net. The walk does, and raises
    an :class:`UnsupportedError` in its stead.
    """
