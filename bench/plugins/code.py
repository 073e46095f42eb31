"""A user's code: a module with the modules of its own that it imports, shipped as source and run anywhere.

All of it stands in one package that is named by its content. Two rules may then each have a `helper`, two
versions of one file may meet in one process, and nothing is swapped in `sys.modules`: for code of that
package, and for no other, an absolute import of one of the user's own modules is one from the package.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.abc import ExecutionLoader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from sdp_bench.bench.errors import UserError, one_line
from sdp_bench.bench.identity import keys
from sdp_bench.bench.text import public

Files = tuple[tuple[str, str], ...]
"""Paths below a folder, ``helper.py`` or ``package/__init__.py``, and the sources there."""

_PACKAGE = "sdp_bench_plugin_"

_PROJECT = {"sdp_ref", "sdp_bench"}
"""Has versions of its own, and is on every worker."""


@dataclass(frozen=True)
class Code:
    """Something of a user's: where it is, and the source of all that it takes to run it elsewhere.

    Attributes
    ----------
    address : str
        Where it was found, for people: ``my_rule.py:MyRule``.
    module : str
        Name to import its module by, ``package.module``; empty for a file.
    attribute : str
        Class, function or object in the module.
    source : str
        Of the module; empty if it has no Python source, and is imported only.
    modules : tuple of (str, str)
        Modules of the user's own that it imports, from its folder or package, sorted: path and source.
    folder : str
        Of the file, where it may keep data; empty for a module, and for code from a results file.
    trusted : bool
        Whether it may be run: not what was read from a file of results, which may come from anybody.
    """

    address: str
    module: str
    attribute: str
    source: str = field(repr=False)
    modules: Files = field(default=(), repr=False)
    folder: str = ""
    trusted: bool = True

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Code:
        """From its fields as JSON gives them back, in today's form or in that of schema 2.

        Parameters
        ----------
        plain : mapping
            Other keys than the fields are left alone. Schema 2 had `beside` for `modules`, and a name made
            from the content for the module of a file.

        Returns
        -------
        Code
            Not to be trusted: :meth:`load` refuses it.

        Raises
        ------
        KeyError, TypeError, ValueError
            If these are no fields of code.
        """
        module = "" if plain["module"].startswith(_PACKAGE) else plain["module"]
        files = plain["modules"] if "modules" in plain else plain.get("beside", ())
        modules = tuple((str(path), str(source)) for path, source in files)
        return cls(
            plain["address"],
            module,
            plain["attribute"],
            plain["source"],
            modules,
            plain["folder"],
            trusted=False,
        )

    def as_json(self) -> dict[str, Any]:
        """Its fields as plain values, but for where it is on this machine: its sources are all of it."""
        return asdict(self) | {"address": public(self.address), "folder": ""}

    def load(self) -> Any:
        """Attribute that the address names; its module is run once a process.

        Returns
        -------
        object
            A class, a function, or whatever the module has under that name.

        Raises
        ------
        UserError
            If the module must not or cannot be run, or does not have it.
        """
        if not self.trusted:
            raise UserError(
                f"the code of {self.address} is stored with the results and is not run; --trust-code, where "
                "there is that option, runs it, if you trust where this file comes from"
            )
        try:
            with no_exit():
                module = self._imported()
        except Exception as error:
            raise UserError(f"cannot load {self.address}: {_described(error)}") from error
        try:
            return getattr(module, self.attribute)
        except AttributeError:
            raise UserError(f"{self.address}: there is no {self.attribute} in that module") from None

    def _imported(self) -> ModuleType:
        if self.module:
            try:
                with _importable(Path.cwd()):
                    return importlib.import_module(self.module)
            except ModuleNotFoundError as error:
                # Of the module itself or a package above it: this machine does not have it.
                absent = error.name is not None and f"{self.module}.".startswith(f"{error.name}.")
                if not (self.source and absent):
                    raise
        shipped = _Shipped(self)
        with shipped.findable():
            return importlib.import_module(shipped.main)


def find(place: str, attribute: str, address: str) -> Code:
    """Code at a place.

    Parameters
    ----------
    place : str
        A file, ``path/to/my_rule.py``, or a module to import, ``package.module``.
    attribute : str
        Class, function or object in it.
    address : str
        The two as they were written; messages begin with it.

    Returns
    -------
    Code

    Raises
    ------
    UserError
        If it, or a module of the user's own that it imports, cannot be read; or a module cannot be imported.
    """
    if not place.endswith(".py"):
        return _of_module(place, attribute, address)
    path = Path(place)
    try:
        source = importlib.util.decode_source(path.read_bytes())
    except (OSError, UnicodeError, SyntaxError) as error:
        raise UserError(f"cannot read {place}: {getattr(error, 'strerror', None) or error}") from error
    folder = path.resolve().parent
    return Code(address, "", attribute, source, own_modules(source, "", folder, address), str(folder))


def _of_module(name: str, attribute: str, address: str) -> Code:
    try:
        with _importable(Path.cwd()), no_exit():
            origin = getattr(importlib.import_module(name), "__file__", None)
    except Exception as error:
        raise UserError(f"cannot load {address}: {_described(error)}") from error
    if not origin or not origin.endswith(".py"):
        return Code(address, name, attribute, "")
    path = Path(origin).resolve()
    is_package = path.name == "__init__.py"
    source = importlib.util.decode_source(path.read_bytes())
    base = path.parents[name.count(".") + is_package]
    package = name if is_package else name.rpartition(".")[0]
    return Code(address, name, attribute, source, own_modules(source, package, base, address))


def own_modules(source: str, package: str, base: Path, address: str) -> Files:
    """Modules below a folder that a source in a package imports, and those that they import.

    Imports anywhere count, those in functions too; what `importlib` is asked for by a name made at run time
    cannot be seen. What is installed, the standard library and this project are no modules of the user's;
    those of the source's own package are, wherever it is.

    Parameters
    ----------
    source, package : str
        Of the module that imports them.
    base : Path
        The folder.
    address : str
        Of the plug-in, for messages.

    Returns
    -------
    tuple of (str, str)
        Path below the folder and source of each, by path.

    Raises
    ------
    UserError
        If one cannot be read.
    """
    top = package.partition(".")[0]
    found: dict[str, str] = {}
    try:
        pending = {package, *_imported_names(source, package)} - {""}
        seen: set[str] = set()
        while pending - seen:
            name = min(pending - seen)
            seen.add(name)
            first, parent = name.partition(".")[0], name.rpartition(".")[0]
            if first in _PROJECT or (first != top and not _is_own(first, base)):
                continue
            # Packages above a module are run before it.
            pending |= {parent} - {""}
            stem = base.joinpath(*name.split("."))
            if (stem / "__init__.py").is_file():
                path, inside = stem / "__init__.py", name
            elif stem.with_name(f"{stem.name}.py").is_file():
                path, inside = stem.with_name(f"{stem.name}.py"), parent
            else:
                continue  # an attribute of a module, or a folder that is a package without a file
            text = importlib.util.decode_source(path.read_bytes())
            found[path.relative_to(base).as_posix()] = text
            pending |= _imported_names(text, inside)
    except (OSError, UnicodeError, SyntaxError) as error:
        raise UserError(f"{address}: cannot read a module that it imports: {_described(error)}") from error
    return tuple(sorted(found.items()))


def _imported_names(source: str, package: str) -> set[str]:
    """Absolute names in the imports of a source in a package; some may be attributes, not modules."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return set()  # running it says so, with the line
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".") if package else []
            above = parents[: len(parents) - node.level + 1] if node.level else []
            whole = ".".join([*above, *([node.module] if node.module else [])])
            names |= {whole, *(f"{whole}.{alias.name}".lstrip(".") for alias in node.names)}
    return names - {""}


def _is_own(name: str, base: Path) -> bool:
    """Whether a top-level name is a module in a folder, and not Python's, this project's or installed."""
    if name in sys.stdlib_module_names or name in _PROJECT:
        return False
    installed = [sysconfig.get_path(kind) for kind in ("purelib", "platlib")]
    is_here = (base / name).is_dir() or (base / f"{name}.py").is_file()
    return is_here and PathFinder.find_spec(name, installed) is None


@dataclass(frozen=True)
class _Shipped(MetaPathFinder, ExecutionLoader):
    """Finder and loader of the package that some code stands in: its file, or nothing, and its modules.

    Source is found through :meth:`get_source`, so that tracebacks and `inspect` show it where there is no
    file, too.
    """

    code: Code

    @cached_property
    def package(self) -> str:
        """Name by content: two versions of a file are two packages."""
        code = self.code
        return _PACKAGE + keys.digest(code.module, code.source, *code.modules)[:12]

    @cached_property
    def main(self) -> str:
        """Name of the module that the address names: the package itself, if that is a file."""
        return f"{self.package}.{self.code.module}".rstrip(".")

    @cached_property
    def files(self) -> dict[str, tuple[str, str]]:
        """Paths and sources by full names of modules."""
        folder = Path(self.code.folder or f"<{self.package}>")
        place = self.code.address.partition(":")[0]
        main = f"{self.code.module.replace('.', '/')}.py" if self.code.module else Path(place).name
        found = {self.main: (str(folder / main), self.code.source)}
        for path, source in self.code.modules:
            name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            found[f"{self.package}.{name}"] = str(folder / path), source
        return found

    @cached_property
    def tops(self) -> frozenset[str]:
        """First parts of the modules' own names."""
        return frozenset(name.split(".")[1] for name in self.files if "." in name)

    @contextmanager
    def findable(self) -> Iterator[None]:
        """While this lasts Python finds the modules; afterwards no import of anybody's comes by here."""
        # Before Python's own finders, which would take the files that are in the folder today.
        sys.meta_path.insert(0, self)
        try:
            yield
        finally:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """Of a module of the package; see :class:`importlib.abc.MetaPathFinder`."""
        if name in self.files:
            return importlib.util.spec_from_loader(name, self)
        # Folders without an __init__.py are packages too.
        return ModuleSpec(name, None, is_package=True) if self._has_modules(name) else None

    def is_package(self, name: str) -> bool:
        """Whether modules can stand below it; see :class:`importlib.abc.InspectLoader`."""
        return name == self.package or self._has_modules(name) or self.files[name][0].endswith("__init__.py")

    def get_filename(self, name: str) -> str:
        """Path, which need not exist here; see :class:`importlib.abc.ExecutionLoader`."""
        return self.files[name][0]

    def get_source(self, name: str) -> str:
        """Source as it was shipped; see :class:`importlib.abc.InspectLoader`."""
        return self.files[name][1]

    def exec_module(self, module: ModuleType) -> None:
        """Run a module, whose import statements ask :meth:`_import` whenever they are run."""
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": self._import}
        super().exec_module(module)

    def _import(
        self,
        name: str,
        names: Mapping[str, Any] | None = None,
        local: Mapping[str, Any] | None = None,
        attributes: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """As ``__import__``, with absolute names of own modules taken in the package."""
        if not level and name.partition(".")[0] not in self.tops:
            return __import__(name, names, local, attributes or ())
        with self.findable():
            if level:
                return __import__(name, names, local, attributes or (), level)
            if attributes:
                return __import__(f"{self.package}.{name}", names, local, attributes)
            importlib.import_module(f"{self.package}.{name}")  # of which the statement binds the first part
        return sys.modules[f"{self.package}.{name.partition('.')[0]}"]

    def _has_modules(self, name: str) -> bool:
        return any(other.startswith(f"{name}.") for other in self.files)


@contextmanager
def no_exit() -> Iterator[None]:
    """Make an error of it if code from outside calls `sys.exit`, which would end a command as if well.

    Raises
    ------
    RuntimeError
        In the place of `SystemExit`.
    """
    try:
        yield
    except SystemExit as stop:
        raise RuntimeError(f"it calls sys.exit({'' if stop.code is None else repr(stop.code)})") from stop


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let modules of a folder be imported, after all others."""
    sys.path.append(str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _described(error: Exception) -> str:
    if not isinstance(error, SyntaxError):
        return one_line(error)
    line = f", line {error.lineno}" if error.lineno else ""
    return f"{type(error).__name__}: {error.msg}{line}"
