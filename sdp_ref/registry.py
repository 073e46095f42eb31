"""Registries of classes and objects: a new rule, metric or data set is one new file.

Members are discovered from the source, and a module is only imported when one of its members is accessed.
Listing the names therefore does not import what the rules and metrics depend on.

>>> from sdp_ref.registry import members
>>> members("sdp_ref.rules", "sdp_ref.rules.base.Rule")["dvia"]
<class 'sdp_ref.rules.dvia.DVIA'>
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

T = TypeVar("T")
Kind = TypeVar("Kind", covariant=True)


class RegistryError(Exception):
    """A file or an entry point does not define a valid member."""

    exit_code = 3


def members(package: str, base: str) -> Members[Any]:
    """Return the subclasses of `base` that the modules of a package define, by name.

    Parameters
    ----------
    package : str
        Import name of the package, which is searched recursively.
    base : str
        Module and name of the common base class, which is not imported either.

    Returns
    -------
    Members
        Classes by the ``name`` in their bodies, sorted by ``rank`` if they have one, then by module and
        position in it. Classes without a ``name`` of their own, such as abstract bases, are skipped.

    Raises
    ------
    RegistryError
        If a name is taken twice, a class does not define an abstract member, or a file cannot be read.
    """
    home, _, kind = base.rpartition(".")
    own = [each for source in _sources(package) for each in source.classes]
    known = [
        *own,
        *(each for each in _source(home).classes if home not in {one.source.module for one in own}),
    ]
    titles = {each.title for each in known}
    found: dict[str, tuple[_Class, _Source]] = {}
    for each in own:
        lineage = _lineage(each, known)
        if each.given.get("name") and kind in {one.title for one in lineage[1:]}:
            if {base for one in lineage if one.title != kind for base in one.bases} <= titles:
                each.check(lineage)  # a base from another package may define what is missing
            _add(found, each.value("name", str), each, each.source)
    lineages = {name: _lineage(each, known) for name, (each, _) in found.items()}
    ranks = {name: _written(lineage, "rank", int) or 0 for name, lineage in lineages.items()}
    return Members({name: lineages[name] for name in sorted(found, key=ranks.__getitem__)})


def instances(package: str, kind: type[T]) -> dict[str, T]:
    """Return the objects of type `kind` that the modules of a package define, by their attribute ``name``."""
    found: dict[str, tuple[T, _Source]] = {}
    for source in _sources(package):
        for value in vars(source.load()).values() if source.makes_objects else ():
            if isinstance(value, kind):
                _add(found, value.name, value, source)  # type: ignore[attr-defined]  # `kind` has a name
    return {name: value for name, (value, _) in found.items()}


def installed(group: str, taken: Collection[str] = ()) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, without loading them."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        if point.name in taken:
            raise RegistryError(f"{_place(point)}: the name is taken already")
        if found.setdefault(point.name, point).value != point.value:
            raise RegistryError(f"{_place(point)}: {_place(found[point.name])} has the same name")
    return found


def loaded(point: EntryPoint, kind: type[T]) -> T:
    """Load an entry point and check the type of the result."""
    try:
        value = point.load()
    except Exception as error:
        raise RegistryError(f"{_place(point)} cannot be loaded: {_one_line(error)}") from error
    if not isinstance(value, kind):
        raise RegistryError(f"{_place(point)}: {point.value} is no {kind.__name__}")
    return value


class Members(Mapping[str, Kind]):
    """Mapping from names to classes that are imported on access; made by :func:`members`."""

    def __init__(self, found: Mapping[str, Sequence[_Class]]) -> None:
        self._found = found

    def __getitem__(self, name: str) -> Kind:
        kind: Kind = self._found[name][0].load()
        return kind

    def written(self, name: str, attribute: str, kind: type[T]) -> T:
        """Read a class attribute from the source of a class or its nearest base, without importing it.

        A value that is not a literal of type `kind` raises a RegistryError.
        """
        found = _written(self._found[name], attribute, kind)
        if found is None:
            raise RegistryError(f"{self._found[name][0].source.path}: {name} has no {attribute}")
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


@dataclass(frozen=True, eq=False)
class _Source:
    """A module that is read without being imported."""

    module: str
    path: Path

    def statements(self, hint: bytes) -> list[ast.stmt]:
        """Return the top-level statements, or none if no line matches `hint`, because parsing is slow."""
        try:
            source = self.path.read_bytes()
            return ast.parse(source).body if re.search(hint, source, re.MULTILINE) else []
        except (OSError, SyntaxError, ValueError) as error:
            raise RegistryError(f"{self.path} cannot be read: {_one_line(error)}") from error

    @property
    def classes(self) -> list[_Class]:
        statements = self.statements(rb"^class\b")
        renamed = {
            alias.asname: alias.name
            for statement in statements
            if isinstance(statement, ast.ImportFrom)
            for alias in statement.names
            if alias.asname
        }
        nodes = (node for node in statements if isinstance(node, ast.ClassDef))
        return [_Class.of(node, self, renamed) for node in nodes]

    @property
    def makes_objects(self) -> bool:
        """Whether the module assigns the result of a call to a top-level name."""
        statements = self.statements(rb"^[^\s#@].*=.*[(\\]")
        values = [node.value for node in statements if isinstance(node, ast.Assign | ast.AnnAssign)]
        each = (
            part for value in values for part in (value.elts if isinstance(value, ast.Tuple) else [value])
        )
        return any(isinstance(value, ast.Call) for value in each)

    def load(self) -> ModuleType:
        try:
            return importlib.import_module(self.module)
        except Exception as error:
            raise RegistryError(f"{self.path} cannot be imported: {_one_line(error)}") from error


@dataclass(frozen=True, eq=False)
class _Class:
    """A class as parsed from its source: bases, literal attributes and abstract members."""

    source: _Source
    title: str
    bases: tuple[str, ...]
    given: Mapping[str, ast.expr | None]
    open: frozenset[str]

    @classmethod
    def of(cls, node: ast.ClassDef, source: _Source, renamed: Mapping[str, str]) -> _Class:
        given: dict[str, ast.expr | None] = {}
        left_open = set()
        for statement in node.body:
            match statement:
                case ast.Assign(targets=targets, value=value):
                    given |= {ast.unparse(target): value for target in targets}
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    given[ast.unparse(target)] = value
                case ast.AnnAssign(target=target, annotation=kind) if "ClassVar" in ast.unparse(kind):
                    left_open.add(ast.unparse(target))
                case ast.FunctionDef(name=name, decorator_list=marks):
                    if any("abstractmethod" in ast.unparse(mark) for mark in marks):
                        left_open.add(name)
                    else:
                        given[name] = None
        bases = (ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases)
        return cls(
            source, node.name, tuple(renamed.get(base, base) for base in bases), given, frozenset(left_open)
        )

    def value(self, name: str, kind: type[T]) -> T:
        """Return an attribute that the class body assigns."""
        node = self.given[name]
        if not (isinstance(node, ast.Constant) and isinstance(node.value, kind)):
            raise RegistryError(
                f"{self.source.path}: {name} of {self.title} must be written out, as {kind.__name__}"
            )
        return node.value

    def check(self, lineage: Sequence[_Class]) -> None:
        """Raise a RegistryError if the class and its bases leave a member abstract."""
        wanted = frozenset[str]().union(*(each.open for each in lineage))
        if missing := sorted(wanted.difference(*(each.given for each in lineage))):
            raise RegistryError(f"{self.source.path}: {self.title} lacks {', '.join(missing)}")

    def load(self) -> Any:
        return getattr(self.source.load(), self.title)


def _lineage(each: _Class, known: Iterable[_Class]) -> list[_Class]:
    """Return a class and its known bases, nearest first."""
    lineage = [each]
    for one in lineage:  # grows during the loop
        lineage += [other for other in known if other.title in one.bases and other not in lineage]
    return lineage


def _written(lineage: Iterable[_Class], name: str, kind: type[T]) -> T | None:
    return next((each.value(name, kind) for each in lineage if name in each.given), None)


def _add(found: dict[str, tuple[T, _Source]], name: str, value: T, source: _Source) -> None:
    other, place = found.setdefault(name, (value, source))
    if other is not value:
        raise RegistryError(f"{source.path}: the name '{name}' is taken already, in {place.path}")


def _source(module: str) -> _Source:
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise RegistryError(f"there is no module {module}")
    return _Source(module, Path(spec.origin))


def _sources(package: str) -> list[_Source]:
    """Yield the modules of a package; a package comes before its submodules."""
    return list(_below(package, _source(package).path.parent))


def _below(package: str, folder: Path) -> Iterator[_Source]:
    for found in pkgutil.iter_modules([str(folder)]):
        module, path = f"{package}.{found.name}", folder / found.name
        yield _Source(module, path / "__init__.py" if found.ispkg else path.with_suffix(".py"))
        if found.ispkg:
            yield from _below(module, path)


def _place(point: EntryPoint) -> str:
    package = f" of the package {point.dist.name}" if point.dist else ""
    return f"the entry point '{point.name}' ({point.group}){package}"


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
