"""Names and modules that are imported on first access: public names of packages (PEP 562), and torch."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any


def exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package that imports its names lazily.

    The names are those that the package's source imports under ``if TYPE_CHECKING:``. Each is imported on
    first access and then stored in the package.
    """

    def value(name: str) -> Any:
        home = _homes(package).get(name)
        if home is None:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        value = import_module(f"{package}.{name}") if home == package else getattr(import_module(home), name)
        return vars(sys.modules[package]).setdefault(name, value)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *_homes(package)})

    return value, names


def _homes(package: str) -> dict[str, str]:
    """Map each name that a package imports under TYPE_CHECKING to its module."""
    source = Path(sys.modules[package].__file__ or "").read_bytes()
    checked = (
        statement
        for node in ast.parse(source).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
        if isinstance(statement, ast.ImportFrom)
    )
    homes: dict[str, str] = {}
    for statement in checked:
        home = resolve_name("." * statement.level + (statement.module or ""), package)
        homes |= dict.fromkeys((alias.name for alias in statement.names), home)
    return homes


class _Deferred(ModuleType):
    def __getattr__(self, name: str) -> Any:
        return vars(self).setdefault(name, getattr(import_module(self.__name__), name))


def deferred(module: str) -> Any:
    """Return a stand-in for a module, which is imported when an attribute is first accessed."""
    return _Deferred(module)


if TYPE_CHECKING:
    import torch as torch
else:
    torch = deferred("torch")
