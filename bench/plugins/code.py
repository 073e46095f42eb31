"""User code: a module and the user's modules that it imports, shipped as source.

The modules form one package named by its content. Two rules can then each have a `helper`, two versions of a
file can coexist in one process, and `sys.modules` is never manipulated. Only inside that package, an absolute
import of one of the user's modules is resolved within the package.
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
"""Pairs of a path relative to a folder, ``helper.py`` or ``package/__init__.py``, and its source."""

_PACKAGE = "sdp_bench_plugin_"

_PROJECT = {"sdp_ref", "sdp_bench"}
"""Has versions of its own, and is on every worker."""


@dataclass(frozen=True)
class Code:
    """User code: its location, and the source needed to run it elsewhere."""

    address: str  # where it was found, for display: ``my_rule.py:MyRule``
    module: str  # import name of its module, ``package.module``; empty for a file
    attribute: str  # class, function or object in the module
    # source of the module; empty if it has no Python source and is only imported
    source: str = field(repr=False)
    # the user's modules that it imports, from its folder or package, as sorted pairs of path and source
    modules: Files = field(default=(), repr=False)
    # folder of the file, which may hold data; empty for a module, and for code from a results file
    folder: str = ""
    # whether it may be run. Code from a results file is not trusted, since the file may come from anybody.
    trusted: bool = True

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Code:
        """Return untrusted code from its JSON fields; `load` refuses to run it.

        Unknown keys are ignored. Schema 2 is read too: it has `beside` for `modules`, and a name derived from
        the content for the module of a file. Invalid fields raise a KeyError, TypeError or ValueError.
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
        """Return the fields as plain values, without local paths."""
        return asdict(self) | {"address": public(self.address), "folder": ""}

    def load(self) -> Any:
        """Import the module, once per process, and return the attribute named by the address.

        A UserError is raised if the code is not trusted, fails, or lacks the attribute.
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
                # The module itself, or a package that contains it, is missing on this machine.
                absent = error.name is not None and f"{self.module}.".startswith(f"{error.name}.")
                if not (self.source and absent):
                    raise
        shipped = _Shipped(self)
        with shipped.findable():
            return importlib.import_module(shipped.main)


def find(place: str, attribute: str, address: str) -> Code:
    """Find code at a place.

    `place` is a file, ``path/to/my_rule.py``, or a module, ``package.module``; `attribute` is a class,
    function or object in it. `address` is the user's spelling of both, for error messages. A UserError is
    raised if the module or one of the user's modules that it imports cannot be read or imported.
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
    """Return the path and source of the modules below a folder that a source imports, recursively.

    All import statements count, including those in functions; names passed to `importlib` at run time cannot
    be detected. Installed packages, the standard library and this project are excluded, but modules of the
    source's own `package` are included wherever it is installed.
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
            # Importing a module also runs its parent packages.
            pending |= {parent} - {""}
            stem = base.joinpath(*name.split("."))
            if (stem / "__init__.py").is_file():
                path, inside = stem / "__init__.py", name
            elif stem.with_name(f"{stem.name}.py").is_file():
                path, inside = stem.with_name(f"{stem.name}.py"), parent
            else:
                continue  # an attribute of a module, or a namespace package
            text = importlib.util.decode_source(path.read_bytes())
            found[path.relative_to(base).as_posix()] = text
            pending |= _imported_names(text, inside)
    except (OSError, UnicodeError, SyntaxError) as error:
        raise UserError(f"{address}: cannot read a module that it imports: {_described(error)}") from error
    return tuple(sorted(found.items()))


def _imported_names(source: str, package: str) -> set[str]:
    """Return the absolute names in a source's imports; some may be attributes rather than modules."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return set()  # running the code reports the syntax error with its line
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
    """Return whether a top-level name is a module in a folder, and not Python's, ours or installed."""
    if name in sys.stdlib_module_names or name in _PROJECT:
        return False
    installed = [sysconfig.get_path(kind) for kind in ("purelib", "platlib")]
    is_here = (base / name).is_dir() or (base / f"{name}.py").is_file()
    return is_here and PathFinder.find_spec(name, installed) is None


@dataclass(frozen=True)
class _Shipped(MetaPathFinder, ExecutionLoader):
    """Finder and loader of the package made from shipped code, whose source tracebacks and `inspect` find."""

    code: Code

    @cached_property
    def package(self) -> str:
        """Package name, derived from the content: two versions of a file are two packages."""
        code = self.code
        return _PACKAGE + keys.digest(code.module, code.source, *code.modules)[:12]

    @cached_property
    def main(self) -> str:
        """Name of the module that the address refers to; a file is the package itself."""
        return f"{self.package}.{self.code.module}".rstrip(".")

    @cached_property
    def files(self) -> dict[str, tuple[str, str]]:
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
        return frozenset(name.split(".")[1] for name in self.files if "." in name)

    @contextmanager
    def findable(self) -> Iterator[None]:
        """Make the modules importable during the block; imports elsewhere are unaffected afterwards."""
        # Before Python's own finders, which would load the current files of the folder.
        sys.meta_path.insert(0, self)
        try:
            yield
        finally:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        if name in self.files:
            return importlib.util.spec_from_loader(name, self)
        # Folders without an __init__.py are packages too.
        return ModuleSpec(name, None, is_package=True) if self._has_modules(name) else None

    def is_package(self, name: str) -> bool:
        return name == self.package or self._has_modules(name) or self.files[name][0].endswith("__init__.py")

    def get_filename(self, name: str) -> str:
        return self.files[name][0]

    def get_source(self, name: str) -> str:
        return self.files[name][1]

    def exec_module(self, module: ModuleType) -> None:
        """Run a module whose import statements call `_import`, now and later."""
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
        """Import as ``__import__`` does, but resolve absolute names of own modules within the package."""
        if not level and name.partition(".")[0] not in self.tops:
            return __import__(name, names, local, attributes or ())
        with self.findable():
            if level:
                return __import__(name, names, local, attributes or (), level)
            if attributes:
                return __import__(f"{self.package}.{name}", names, local, attributes)
            # the import statement binds the first part of the name
            importlib.import_module(f"{self.package}.{name}")
        return sys.modules[f"{self.package}.{name.partition('.')[0]}"]

    def _has_modules(self, name: str) -> bool:
        return any(other.startswith(f"{name}.") for other in self.files)


@contextmanager
def no_exit() -> Iterator[None]:
    """Turn `sys.exit` of user code into a RuntimeError: a command would end as if it had succeeded."""
    try:
        yield
    except SystemExit as stop:
        raise RuntimeError(f"it calls sys.exit({'' if stop.code is None else repr(stop.code)})") from stop


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Make modules of a folder importable, after all others."""
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
