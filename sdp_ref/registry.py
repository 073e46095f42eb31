"""Things found by where they are defined: a new rule, metric or data set is one new file.

>>> from sdp_ref.registry import members
>>> from sdp_ref.rules import Rule
>>> members("sdp_ref.rules", Rule)["dvia"]
<class 'sdp_ref.rules.dvia.DVIA'>
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")


def members(package: str, kind: type[T]) -> dict[str, type[T]]:
    """Subclasses of `kind` that the modules of a package define, by name.

    Parameters
    ----------
    package : str
        Import name of a package. Its modules are imported, those of its subpackages too.
    kind : type
        Their common base class.

    Returns
    -------
    dict of str to type
        Under what the class body gives as ``name``, in alphabetical order of the modules, then in order of
        definition. A class without a ``name`` of its own, an abstract base say, is left out.

    Raises
    ------
    ValueError
        If two of them have one name.
    """
    found: dict[str, type[T]] = {}
    for module in _modules(package):
        for value in vars(module).values():
            if not (isinstance(value, type) and issubclass(value, kind)):
                continue
            name = vars(value).get("name")
            if isinstance(name, str) and value.__module__ == module.__name__:
                _add(found, name, value)
    return found


def instances(package: str, kind: type[T]) -> dict[str, T]:
    """Objects of type `kind` that the modules of a package hold, by their attribute ``name``.

    Parameters
    ----------
    package : str
        As of :func:`members`.
    kind : type
        Their type.

    Returns
    -------
    dict of str to object
        In alphabetical order of the modules, then in order of definition.

    Raises
    ------
    ValueError
        If two of them have one name.
    """
    found: dict[str, T] = {}
    for module in _modules(package):
        for value in vars(module).values():
            if isinstance(value, kind):
                _add(found, value.name, value)  # type: ignore[attr-defined]  # `kind` has a name
    return found


def installed(group: str) -> dict[str, EntryPoint]:
    """Entry points of a group, by name: what other packages of this environment bring. None is loaded.

    Parameters
    ----------
    group : str
        ``sdp_bench.rules``, say.

    Returns
    -------
    dict of str to EntryPoint
    """
    return {point.name: point for point in entry_points(group=group)}


def _add(found: dict[str, T], name: str, value: T) -> None:
    if found.setdefault(name, value) is not value:
        raise ValueError(f"two members are named '{name}': {found[name]!r} and {value!r}")


def _modules(package: str) -> Iterator[ModuleType]:
    """Modules below a package, each before those that its folder holds."""
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        yield importlib.import_module(module.name)
