"""User code: a module and the user's modules that it imports, stored and shipped as source text.

Only this text runs, on every machine: an installed module of the same name never takes its place. Objects of
a notebook travel as a pickle next to the text that describes them (`sdp_bench.bench.plugins.session`), and
never from a results file.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pickle
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.abc import ExecutionLoader, MetaPathFinder
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, Self

from sdp_bench.bench.errors import UserError, one_line
from sdp_bench.bench.text import public

Files = tuple[tuple[str, str], ...]
"""Pairs of a path relative to a folder, ``helper.py`` or ``package/__init__.py``, and its source."""

MAIN = "__main__"
"""Module of code that a notebook or script defines."""

_FILE = "sdp_bench_plugin"
"""Import name of a user's file, whose own name may be that of an installed module."""

_PROJECT = {"sdp_ref", "sdp_bench"}
_RESERVED = _PROJECT | set(sys.stdlib_module_names) | {MAIN}
"""Names that a user's modules cannot have: every worker has modules with these names."""

UNTRUSTED = (
    "is stored with the results and is not run; --trust-code runs it, in commands with this option; use it "
    "if you trust the source of this file"
)


@dataclass(frozen=True)
class Code:
    """User code: its location, and the source needed to run it elsewhere."""

    address: str  # where it was found, for display: ``my_rule.py:MyRule``
    module: str  # import name of its module, ``package.module``; empty for a file
    attribute: str  # class, function or object in the module
    source: str = field(repr=False)  # of the module, or the description of a notebook's object
    # the user's modules that it imports, from its folder or package, as sorted pairs of path and source
    modules: Files = field(default=(), repr=False)
    # folder that `modules` are relative to, which may hold data; empty for code from a results file
    folder: str = ""
    # whether it may be run. Code from a results file is not trusted, since the file may come from anybody.
    trusted: bool = True
    pickled: bytes = field(default=b"", repr=False, compare=False)  # object of a notebook; never stored

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Return untrusted code from its JSON fields; `load` refuses to run it.

        Unknown keys are ignored. Invalid fields raise a KeyError, TypeError or ValueError.
        """
        modules = tuple((str(path), str(source)) for path, source in plain["modules"])
        for path, _ in modules:
            if path.partition("/")[0].removesuffix(".py") in _RESERVED:
                raise ValueError(f"{path} has the name of a module of Python or of this project")
        texts = {name: plain[name] for name in ("address", "module", "attribute", "source", "folder")}
        return cls(**texts, modules=modules, trusted=False)

    def as_json(self) -> dict[str, Any]:
        """Return the fields as plain values, without local paths and pickles."""
        fields = {name: value for name, value in vars(self).items() if name != "pickled"}
        return fields | {"address": public(self.address), "folder": ""}

    def as_trusted(self) -> Self:
        """Return a copy that may be run, because the user trusts its origin."""
        return replace(self, trusted=True)

    def load(self) -> Any:
        """Import the module and return the attribute named by the address, or the object of a notebook.

        Until the next call, imports of the user's modules by this process lead to this code's modules. A
        UserError is raised if the code is not trusted, fails, or lacks the attribute.
        """
        if not self.trusted:
            raise UserError(f"the code of {self.address} {UNTRUSTED}")
        if self.module == MAIN and not self.pickled:
            raise UserError(
                f"{self.address} is an object of a notebook, and results files hold its description only; "
                "measure it again there, or define it in a file"
            )
        if self.module and not self.source:
            raise UserError(
                f"{self.address}: its module has no Python source, which workers and versions need"
            )
        try:
            with no_exit():
                modules = self.activate()
                if self.pickled:
                    return pickle.loads(self.pickled)  # noqa: S301  made by `session.code_of` in this session
                module = importlib.import_module(modules.main)
        except Exception as error:
            raise UserError(f"cannot load {self.address}: {described(error)}") from error
        try:
            return getattr(module, self.attribute)
        except AttributeError:
            raise UserError(f"{self.address}: there is no {self.attribute} in that module") from None

    def activate(self) -> _Modules:
        """Let imports of this process lead to this code's modules, until that of other code is activated."""
        return _Modules.of(self)


class _Modules(MetaPathFinder, ExecutionLoader):
    """Finder and loader of the modules of one `Code`; of several in a process one is active at a time."""

    known: dict[Code, _Modules] = {}  # noqa: RUF012
    active: _Modules | None = None

    def __init__(self, code: Code) -> None:
        folder = Path(code.folder or f"<{code.address}>")
        # An adapter of this project needs no neighbours; like a file it never replaces an importable module.
        is_alone = code.module.partition(".")[0] in {"", *_RESERVED}
        self.main = _FILE if is_alone else code.module
        self.files: dict[str, tuple[str, str]] = {}  # file name and source by the name of the module
        for path, source in code.modules:
            self.files[path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")] = (
                str(folder / path),
                source,
            )
        if self.main not in self.files:
            place = (
                Path(code.address.partition(":")[0]).name
                if self.main == _FILE
                else f"{self.main.replace('.', '/')}.py"
            )
            self.files[self.main] = str(folder / place), code.source
        self.folder, self.loaded = code.folder, dict[str, ModuleType]()

    @classmethod
    def of(cls, code: Code) -> _Modules:
        """Return the finder of some code, which is active from now on."""
        chosen, before = cls.known.setdefault(code, cls(code)), cls.active
        if chosen is not before:
            if before is not None:
                sys.meta_path.remove(before)
                before.swap()
            chosen.swap()
            # Before Python's own finders, which would load installed modules and a folder's current files.
            sys.meta_path.insert(0, chosen)
            cls.active = chosen
        return chosen

    def swap(self) -> None:
        """Exchange the modules of these names in `sys.modules` for those that `loaded` holds."""
        tops = {name.partition(".")[0] for name in self.files}
        current = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in tops}
        for name in current:
            del sys.modules[name]
        sys.modules.update(self.loaded)
        self.loaded = current

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: object = None
    ) -> ModuleSpec | None:
        # A file may import its neighbours relatively, as a module of a package does.
        plain = name.removeprefix(f"{_FILE}.")
        if plain in self.files:
            return importlib.util.spec_from_loader(name, self)
        if any(other.startswith(f"{plain}.") for other in self.files):
            return ModuleSpec(name, None, is_package=True)  # a folder without an __init__.py
        inside = name.rpartition(".")[0]
        if inside in self.files and self.folder:  # compiled modules have no source to ship
            spec = PathFinder.find_spec(name, [str(Path(self.folder, *inside.split(".")))])
            return spec if spec and isinstance(spec.loader, ExtensionFileLoader) else None
        return None

    def is_package(self, name: str) -> bool:
        return name == _FILE or self.get_filename(name).endswith("__init__.py")

    def get_filename(self, name: str) -> str:
        return self.files[name.removeprefix(f"{_FILE}.")][0]

    def get_source(self, name: str) -> str:
        return self.files[name.removeprefix(f"{_FILE}.")][1]


def find(place: str, attribute: str, address: str) -> Code:
    """Find code at a place.

    `place` is a file, ``path/to/my_rule.py``, or a module, ``package.module``; `attribute` is a class,
    function or object in it. `address` is the user's spelling of both, for error messages. A UserError is
    raised if the module or one of the user's modules that it imports cannot be read or imported.
    """
    name = package = ""
    if place.endswith(".py"):
        path = Path(place)
        base = path.resolve().parent
    else:
        name = place
        spec = _spec_of(name, address)
        if not spec.origin or not spec.origin.endswith(".py"):
            return Code(address, name, attribute, "")
        path = Path(spec.origin).resolve()
        is_package = path.name == "__init__.py"
        base = path.parents[name.count(".") + is_package]
        package = name if is_package else name.rpartition(".")[0]
    try:
        source = importlib.util.decode_source(path.read_bytes())
    except (OSError, UnicodeError, SyntaxError) as error:
        raise UserError(f"cannot read {place}: {getattr(error, 'strerror', None) or error}") from error
    if name.partition(".")[0] in _PROJECT:
        return Code(address, name, attribute, source)
    modules = own_modules(imported_names(source, package), package, base, address)
    return Code(address, name, attribute, source, modules, str(base))


def _spec_of(name: str, address: str) -> ModuleSpec:
    """Find a module in the working folder or among installed ones; this runs its parent packages."""
    folder = str(Path.cwd())
    sys.path.append(folder)  # after all others
    try:
        with no_exit():
            spec = importlib.util.find_spec(name)
    except Exception as error:
        raise UserError(f"cannot load {address}: {described(error)}") from error
    finally:
        sys.path.remove(folder)
    if spec is None:
        raise UserError(f"cannot load {address}: ModuleNotFoundError: No module named '{name}'")
    return spec


def own_modules(names: set[str], package: str, base: Path, address: str) -> Files:
    """Return path and source of the modules below a folder with these names, and of those that they import.

    All import statements count, including those in functions; names passed to `importlib` at run time cannot
    be detected. Installed packages, the standard library and this project are excluded, but modules of
    `package` are included wherever it is installed.
    """
    top = package.partition(".")[0]
    found: dict[str, str] = {}
    pending, seen = {package, *names} - {""}, set[str]()
    try:
        while pending - seen:
            name = min(pending - seen)
            seen.add(name)
            first, parent = name.partition(".")[0], name.rpartition(".")[0]
            if first in _PROJECT or (first != top and not is_own(first, base)):
                continue
            pending |= {parent} - {""}  # importing a module also runs its parent packages
            stem = base.joinpath(*name.split("."))
            if (stem / "__init__.py").is_file():
                path, inside = stem / "__init__.py", name
            elif stem.with_name(f"{stem.name}.py").is_file():
                path, inside = stem.with_name(f"{stem.name}.py"), parent
            else:
                continue  # an attribute of a module, or a namespace package
            text = importlib.util.decode_source(path.read_bytes())
            found[path.relative_to(base).as_posix()] = text
            pending |= imported_names(text, inside)
    except (OSError, UnicodeError, SyntaxError) as error:
        raise UserError(f"{address}: cannot read a module that it imports: {described(error)}") from error
    return tuple(sorted(found.items()))


def imported_names(source: str, package: str) -> set[str]:
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


def is_own(name: str, base: Path) -> bool:
    """Return whether a top-level name is a module in a folder, and not Python's, ours or installed."""
    if name in _RESERVED:
        return False
    installed = [sysconfig.get_path(kind) for kind in ("purelib", "platlib")]
    is_here = (base / name).is_dir() or (base / f"{name}.py").is_file()
    return is_here and PathFinder.find_spec(name, installed) is None


@contextmanager
def no_exit() -> Iterator[None]:
    """Turn `sys.exit` of user code into a RuntimeError: a command would end as if it had succeeded."""
    try:
        yield
    except SystemExit as stop:
        raise RuntimeError(f"it calls sys.exit({'' if stop.code is None else repr(stop.code)})") from stop


def described(error: Exception) -> str:
    """Return an error on one line, a syntax error with its line number."""
    if not isinstance(error, SyntaxError):
        return one_line(error)
    line = f", line {error.lineno}" if error.lineno else ""
    return f"{type(error).__name__}: {error.msg}{line}"
