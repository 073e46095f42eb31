"""Things found by where they are defined: a new rule, metric or data set is one new file.

What there is, is read from the source, and a module is imported when something of it is asked for: a list of
names needs nothing of what rules and metrics compute with.

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
    """A file, or an entry point, cannot be taken for what it stands among."""

    exit_code = 3


def members(package: str, base: str) -> Members[Any]:
    """Subclasses that the modules of a package define, by name; each is imported when it is looked up.

    Parameters
    ----------
    package : str
        Import name of a package. Its modules are read, those of its subpackages too.
    base : str
        Module and name of their common base class, which is not imported either.

    Returns
    -------
    Members
        Under what the class body gives as ``name``; by ``rank`` where they have one, then in alphabetical
        order of the modules, then in order of definition. A class without a ``name`` of its own, an abstract
        base say, is left out.

    Raises
    ------
    RegistryError
        If two of them have one name, one lacks what its bases leave open, or a file cannot be read.
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
                each.check(lineage)  # else a base from elsewhere may have what it lacks here
            _add(found, each.value("name", str), each, each.source)
    lineages = {name: _lineage(each, known) for name, (each, _) in found.items()}
    ranks = {name: _written(lineage, "rank", int) or 0 for name, lineage in lineages.items()}
    return Members({name: lineages[name] for name in sorted(found, key=ranks.__getitem__)})


def instances(package: str, kind: type[T]) -> dict[str, T]:
    """Objects of type `kind` that the modules of a package make, by their attribute ``name``."""
    found: dict[str, tuple[T, _Source]] = {}
    for source in _sources(package):
        for value in vars(source.load()).values() if source.makes_objects else ():
            if isinstance(value, kind):
                _add(found, value.name, value, source)  # type: ignore[attr-defined]  # `kind` has a name
    return {name: value for name, (value, _) in found.items()}


def installed(group: str, taken: Collection[str] = ()) -> dict[str, EntryPoint]:
    """Entry points of a group, by name: what other packages of this environment bring. None is loaded."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        if point.name in taken:
            raise RegistryError(f"{_place(point)}: the name is taken already")
        if found.setdefault(point.name, point).value != point.value:
            raise RegistryError(f"{_place(point)}: {_place(found[point.name])} has the same name")
    return found


def loaded(point: EntryPoint, kind: type[T]) -> T:
    """What an entry point stands for."""
    try:
        value = point.load()
    except Exception as error:
        raise RegistryError(f"{_place(point)} cannot be loaded: {_one_line(error)}") from error
    if not isinstance(value, kind):
        raise RegistryError(f"{_place(point)}: {point.value} is no {kind.__name__}")
    return value


class Members(Mapping[str, Kind]):
    """Classes by name, each imported when it is looked up; :func:`members` makes them.

    Parameters
    ----------
    found : mapping of str to sequence of _Class
        A class as its source has it, and its bases.
    """

    def __init__(self, found: Mapping[str, Sequence[_Class]]) -> None:
        self._found = found

    def __getitem__(self, name: str) -> Kind:
        kind: Kind = self._found[name][0].load()
        return kind

    def written(self, name: str, attribute: str, kind: type[T]) -> T:
        """What the source of a class, or of its nearest base that says it, gives an attribute.

        Parameters
        ----------
        name : str
            Of the class, which is not imported.
        attribute : str
        kind : type
            Of the value.

        Raises
        ------
        RegistryError
            If none of them gives it a value that is written out.
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
    """A module that has not to be imported to be read."""

    module: str
    path: Path

    def statements(self, hint: bytes) -> list[ast.stmt]:
        """Those at its top; none if no line looks like `hint`, since to parse a file takes its time."""
        try:
            source = self.path.read_bytes()
            return ast.parse(source).body if re.search(hint, source, re.MULTILINE) else []
        except (OSError, SyntaxError, ValueError) as error:
            raise RegistryError(f"{self.path} cannot be read: {_one_line(error)}") from error

    @property
    def classes(self) -> list[_Class]:
        """Those at its top."""
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
        """Whether it calls something at its top and gives a name to the result."""
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
    """A class as its source has it: its bases, what its body gives a value, and what it leaves open."""

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
        """What its body gives a name."""
        node = self.given[name]
        if not (isinstance(node, ast.Constant) and isinstance(node.value, kind)):
            raise RegistryError(
                f"{self.source.path}: {name} of {self.title} must be written out, as {kind.__name__}"
            )
        return node.value

    def check(self, lineage: Sequence[_Class]) -> None:
        """Raise a RegistryError if it and its bases leave something open."""
        wanted = frozenset[str]().union(*(each.open for each in lineage))
        if missing := sorted(wanted.difference(*(each.given for each in lineage))):
            raise RegistryError(f"{self.source.path}: {self.title} lacks {', '.join(missing)}")

    def load(self) -> Any:
        """The class itself."""
        return getattr(self.source.load(), self.title)


def _lineage(each: _Class, known: Iterable[_Class]) -> list[_Class]:
    """A class and those of its name's bases among the known ones, the nearest first."""
    lineage = [each]
    for one in lineage:  # which grows meanwhile
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
    """Modules below a package, each before those that its folder holds."""
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
