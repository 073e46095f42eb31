"""Packages whose names are imported when they are first asked for, by PEP 562."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package that imports what its source imports for type checkers.

    Parameters
    ----------
    package : str
        Its ``__name__``. Its source has what it gives away below ``if TYPE_CHECKING:``.

    Returns
    -------
    callable
        Gives a name's value, imported at its first use, which the package keeps, or raises an AttributeError.
    callable
        Gives all names of the package, these too.
    """

    def value(name: str) -> Any:
        home = _homes(package).get(name)
        if home is None:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        found = import_module(f"{package}.{name}") if home == package else getattr(import_module(home), name)
        return vars(sys.modules[package]).setdefault(name, found)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *_homes(package)})

    return value, names


def _homes(package: str) -> dict[str, str]:
    """Modules by the names that the source of a package imports from them for type checkers."""
    source = Path(sys.modules[package].__file__ or "").read_bytes()
    checked = (
        statement
        for node in ast.parse(source).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
        if isinstance(statement, ast.ImportFrom)
    )
    return {alias.name: node.module or "" for node in checked for alias in node.names}
