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


def spelled(name: str, known: Collection[str]) -> str:
    """Return the known name that differs from `name` in hyphens and underscores only, or `name` itself."""
    if name in known:
        return name
    alike = (other for other in known if other.replace("-", "_") == name.replace("-", "_"))
    return next(alike, name)


def members(package: str, base: str) -> Members[Any]:
    """Return the subclasses of `base` that the modules of a package define, by name.

    `package` is searched recursively. `base` is the module and the name of the common base class, which
    is not imported either. A class is listed by the ``name`` in its body, sorted by ``rank`` if it has one,
    then by module and position in it. Classes without a ``name`` of their own, such as abstract bases, are
    skipped.
    Raises a RegistryError if a name is taken twice or a file cannot be read.
    """
    home, _, kind = base.rpartition(".")
    defined = [member for module, path in _modules(package) for member in _classes(module, path)]
    known = (
        defined
        if any(member.module == home for member in defined)
        else [*defined, *_classes(home, _path(home))]
    )
    lineages: dict[str, list[_Class]] = {}
    for member in defined:
        lineage = _lineage(member, known)
        if member.given.get("name") and kind in {ancestor.title for ancestor in lineage[1:]}:
            name = member.value("name", str)
            if name in lineages:
                raise RegistryError(
                    f"{member.path}: the name '{name}' is taken already, in {lineages[name][0].path}"
                )
            lineages[name] = lineage
    ranks = {name: _written(lineage, "rank", int) or 0 for name, lineage in lineages.items()}
    return Members({name: lineages[name] for name in sorted(lineages, key=ranks.__getitem__)})


def instances(package: str, kind: type[T]) -> dict[str, T]:
    """Return the objects of type `kind` that the modules of a package define, by their attribute ``name``."""
    objects: dict[str, tuple[T, Path]] = {}
    for module, path in _modules(package):
        for value in vars(_imported(module, path)).values() if _makes_objects(path) else ():
            if isinstance(value, kind):
                name: str = value.name  # type: ignore[attr-defined]  # `kind` has a name
                other, other_path = objects.setdefault(name, (value, path))
                if other is not value:
                    raise RegistryError(f"{path}: the name '{name}' is taken already, in {other_path}")
    return {name: value for name, (value, _) in objects.items()}


def installed(group: str, taken: Collection[str] = ()) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, without loading them."""
    points: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        if point.name in taken:
            raise RegistryError(f"{_place(point)}: the name is taken already")
        if points.setdefault(point.name, point).value != point.value:
            raise RegistryError(f"{_place(point)}: {_place(points[point.name])} has the same name")
    return points


def loaded(point: EntryPoint, kind: type[T]) -> T:
    """Load an entry point and check the type of the result."""
    try:
        value = point.load()
    except Exception as error:
        raise RegistryError(f"{_place(point)} cannot be loaded: {_one_line(error)}") from error
    if not isinstance(value, kind):
        raise RegistryError(f"{_place(point)}: {point.value} is not a {kind.__name__}")
    return value


class Members(Mapping[str, Kind]):
    """Mapping from names to classes that are imported on access; made by :func:`members`."""

    def __init__(self, lineages: Mapping[str, Sequence[_Class]]) -> None:
        self._found = lineages

    def __getitem__(self, name: str) -> Kind:
        return self._found[name][0].load()

    def written(self, name: str, attribute: str, kind: type[T]) -> T:
        """Read a class attribute from the source of a class or its nearest base, without importing it.

        A value that is not a literal of type `kind` raises a RegistryError.
        """
        value = _written(self._found[name], attribute, kind)
        if value is None:
            raise RegistryError(f"{self._found[name][0].path}: {name} has no {attribute}")
        return value

    def __contains__(self, name: object) -> bool:
        return name in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


@dataclass(frozen=True, eq=False)
class _Class:
    """A class as it is written: its bases by name, and the attributes that its body assigns."""

    module: str
    path: Path
    title: str
    bases: tuple[str, ...]
    given: Mapping[str, ast.expr]

    def value(self, name: str, kind: type[T]) -> T:
        """Return an attribute that the class body assigns."""
        node = self.given[name]
        if not (isinstance(node, ast.Constant) and isinstance(node.value, kind)):
            text = f"{name} of {self.title} must be written out, as {kind.__name__}"
            raise RegistryError(f"{self.path}: {text}")
        return node.value

    def load(self) -> Any:
        """Import the class; raise a RegistryError if a member that its bases declare is missing."""
        kind = getattr(_imported(self.module, self.path), self.title)
        missing = set(getattr(kind, "__abstractmethods__", ()))
        for base in kind.__mro__:
            for name, note in vars(base).get("__annotations__", {}).items():
                if "ClassVar" in str(note) and not hasattr(kind, name):
                    missing.add(name)
        if missing:
            raise RegistryError(f"{self.path}: {self.title} lacks {', '.join(sorted(missing))}")
        return kind


def _classes(module: str, path: Path) -> list[_Class]:
    classes = []
    for node in _statements(path, rb"^class\b"):
        if isinstance(node, ast.ClassDef):
            given: dict[str, ast.expr] = {}
            for statement in node.body:
                match statement:
                    case ast.Assign(targets=targets, value=value):
                        given |= {ast.unparse(target): value for target in targets}
                    case ast.AnnAssign(target=target, value=ast.expr() as value):
                        given[ast.unparse(target)] = value
            bases = tuple(ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases)
            classes.append(_Class(module, path, node.name, bases, given))
    return classes


def _lineage(start: _Class, known: Iterable[_Class]) -> list[_Class]:
    """Return a class and its known bases, nearest first."""
    lineage = [start]
    for kind in lineage:  # grows during the loop
        lineage += [other for other in known if other.title in kind.bases and other not in lineage]
    return lineage


def _written(lineage: Iterable[_Class], name: str, kind: type[T]) -> T | None:
    return next((ancestor.value(name, kind) for ancestor in lineage if name in ancestor.given), None)


def _makes_objects(path: Path) -> bool:
    """Whether a module assigns the result of a call to a top-level name."""
    statements = _statements(path, rb"^[^\s#@].*=.*[(\\]")
    values = [node.value for node in statements if isinstance(node, ast.Assign | ast.AnnAssign)]
    parts = (part for value in values for part in (value.elts if isinstance(value, ast.Tuple) else [value]))
    return any(isinstance(part, ast.Call) for part in parts)


def _statements(path: Path, hint: bytes) -> list[ast.stmt]:
    """Return the top-level statements, or none if no line matches `hint`, because parsing is slow."""
    try:
        source = path.read_bytes()
        return ast.parse(source).body if re.search(hint, source, re.MULTILINE) else []
    except (OSError, SyntaxError, ValueError) as error:
        raise RegistryError(f"{path} cannot be read: {_one_line(error)}") from error


def _imported(module: str, path: Path) -> ModuleType:
    try:
        return importlib.import_module(module)
    except Exception as error:
        raise RegistryError(f"{path} cannot be imported: {_one_line(error)}") from error


def _path(module: str) -> Path:
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise RegistryError(f"module {module} does not exist")
    return Path(spec.origin)


def _modules(package: str) -> Iterator[tuple[str, Path]]:
    """Yield the modules of a package; a package comes before its submodules."""
    folder = _path(package).parent
    for info in pkgutil.iter_modules([str(folder)]):
        module = f"{package}.{info.name}"
        yield module, folder / info.name / "__init__.py" if info.ispkg else folder / f"{info.name}.py"
        if info.ispkg:
            yield from _modules(module)


def _place(point: EntryPoint) -> str:
    package = f" of the package {point.dist.name}" if point.dist else ""
    return f"the entry point '{point.name}' ({point.group}){package}"


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
