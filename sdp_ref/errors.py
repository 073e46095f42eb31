"""What goes wrong between a rule and a net."""

from __future__ import annotations

from typing import Any


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
        where = f" (at '{path}' in the net)" if path else ""
        super().__init__(f"rule '{rule}' does not support {op}{where}")
        self.rule, self.op, self.path = rule, op, path

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.rule, self.op, self.path)

    def at(self, rule: str, path: str) -> UnsupportedError:
        """Same error with the rule and the place, where it did not know them."""
        return type(self)(self.rule or rule, self.op, self.path or path)


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
        self.bytes = bytes

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.rule, self.op, self.path, self.bytes)

    def at(self, rule: str, path: str) -> CovarianceSizeError:
        """See :class:`UnsupportedError`."""
        return type(self)(self.rule or rule, self.op, self.path or path, self.bytes)
