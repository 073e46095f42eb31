"""User code: found in a file or a module, identified by its source, and pickled by value for workers."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import pickle
import site
import sys
import sysconfig
import threading
import typing
import weakref
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import cloudpickle

from ..errors import UserError, one_line

Files = tuple[tuple[str, str], ...]
"""Pairs of a path relative to a folder, ``helper.py`` or ``package/__init__.py``, and its source."""

MAIN = "__main__"
"""Module of code that a notebook or script defines."""

_FILE = "sdp_bench_plugin"
"""Import name of a user's file, whose own name may be that of an installed module."""

_PROJECT = {"sdp_ref", "sdp_bench"}
_RESERVED = _PROJECT | set(sys.stdlib_module_names) | {MAIN}
"""Names of modules that every worker has."""


@dataclass(frozen=True)
class Code:
    """A user's class, function or object.

    `address` is where it was found, for display: ``my_rule.py:MyRule``. `attribute` is its name there,
    `source` the source of its module, or the hash of a notebook's object, and `modules` are the user's
    modules that it imports. These three identify it. `pickled` is the object itself, for workers. Code that
    results refer to has an address only.
    """

    address: str
    attribute: str = ""
    source: str = field(default="", repr=False)
    modules: Files = field(default=(), repr=False)
    pickled: bytes = field(default=b"", repr=False, compare=False)  # differs from session to session

    def load(self) -> Any:
        """Return the object, once per process; a UserError if there is none or it cannot be loaded."""
        return load(self.address, self.pickled)


def find(location: str, attribute: str, address: str, first: Sequence[Path] = ()) -> Code:
    """Find code at a location and run its module in this process, which should be a separate one.

    `location` is a file, ``path/to/my_rule.py``, or a module, ``package.module``; `attribute` is a class,
    function or object in it. `address` is the user's spelling of both, for error messages, and `first` are
    folders that are searched before installed packages. A UserError is raised if the code fails, lacks the
    attribute, has no Python source or cannot be pickled.
    """
    is_file = location.endswith(".py")
    folder = Path(location).resolve().parent if is_file else Path.cwd()
    with _searched(folder, first):
        try:
            with no_exit():
                spec = _spec_of(location)
        except Exception as error:
            raise UserError(f"cannot load {address}: {described(error)}") from error
        if not (spec.origin or "").endswith(".py"):
            raise UserError(f"{address}: its module has no Python source, so a change cannot be noticed")
        path, package = Path(str(spec.origin)), ""
        if not is_file:
            is_package = spec.submodule_search_locations is not None
            folder = path.resolve().parents[location.count(".") + is_package]
            package = location if is_package else location.rpartition(".")[0]
        source = _source_of(path, location)
        modules: Files = ()
        if location.partition(".")[0] not in _PROJECT:
            modules = _user_modules(imported_names(source, package), package, folder, address)
        try:
            with no_exit():
                module = importlib.import_module(spec.name) if location == spec.name else _run(spec)
        except Exception as error:
            raise UserError(f"cannot load {address}: {described(error)}") from error
        if not hasattr(module, attribute):
            raise UserError(f"{address}: there is no {attribute} in that module")
        names = _module_names(modules, imported_names(source, _FILE) if spec.name == _FILE else set())
        pickled = by_value(getattr(module, attribute), imported(names), address)
    return Code(address, attribute, source, modules, pickled)


def _source_of(path: Path, location: str) -> str:
    try:
        return importlib.util.decode_source(path.read_bytes())
    except (OSError, UnicodeError, SyntaxError) as error:
        raise UserError(f"cannot read {location}: {getattr(error, 'strerror', None) or error}") from error


def _module_names(modules: Files, relative_imports: set[str]) -> set[str]:
    """Return the import names of modules; those that a user's file imports relatively begin with its name."""
    names = set()
    for path, _ in modules:
        name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        in_file = f"{_FILE}.{name}"
        names.add(in_file if in_file in relative_imports else name)
    return names


def _spec_of(location: str) -> importlib.machinery.ModuleSpec:
    if location.endswith(".py"):
        # Its folder makes it a package, so that it can import its neighbours relatively, too.
        folder = str(Path(location).resolve().parent)
        spec = importlib.util.spec_from_file_location(_FILE, location, submodule_search_locations=[folder])
    else:
        spec = importlib.util.find_spec(location)
    if spec is None:
        raise ModuleNotFoundError(f"No module named '{location}'")
    return spec


def _run(spec: importlib.machinery.ModuleSpec) -> ModuleType:
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    if spec.loader is not None:
        spec.loader.exec_module(module)
    return module


@contextmanager
def _searched(folder: Path, first: Sequence[Path]) -> Iterator[None]:
    """Search a folder for modules after Python's and installed ones, but before others; forget them later.

    What is loaded in this process afterwards comes from the pickle, as in every worker.
    """
    before, path, writes = set(sys.modules), sys.path[:], sys.dont_write_bytecode
    standard = [entry for entry in path if _is_standard(entry)]
    installed = [entry for entry in path if _is_site(entry) and not _is_standard(entry)]
    others = [entry for entry in path if not _is_site(entry)]
    # A user's file must not shadow an installed module that another module imports.
    sys.path[:] = [*standard, *map(str, first), *installed, str(folder), *others]
    sys.dont_write_bytecode = True  # no __pycache__ in the user's folder
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:], sys.dont_write_bytecode = path, writes
        for name in [name for name in set(sys.modules) - before if is_users(sys.modules[name])]:
            del sys.modules[name]


# Which modules are the user's --------------------------------------------------------------------------


def is_users(module: Any) -> bool:
    """Return whether a module is the user's, and not Python's, this project's, installed or compiled."""
    if not isinstance(module, ModuleType):  # `sys.modules` may hold anything
        return False
    name = module.__name__.partition(".")[0]
    file = getattr(module, "__file__", None)
    if file is None:  # a folder without __init__.py
        file = next(iter(getattr(module, "__path__", ())), None)
    elif not file.endswith(".py"):
        return False
    return name == _FILE or (file is not None and name not in _RESERVED and not _is_installed(file))


def _is_installed(path: str) -> bool:
    """Return whether a file or folder is in the standard library or belongs to an installed package."""
    for entry in sys.path:
        if entry and path.startswith(f"{entry}/"):
            name = path[len(entry) + 1 :].partition("/")[0]
            if _is_library(entry) or name in _recorded_names(entry):
                return True
    return False


def _is_standard(entry: str) -> bool:
    """Return whether a folder holds the standard library."""
    folders = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
    return entry.endswith((".zip", "lib-dynload")) or entry in folders


def _is_site(entry: str) -> bool:
    """Return whether a folder holds installed packages; a user's files can be in it too."""
    return _is_library(entry) or bool(_recorded_names(entry))


@functools.cache
def _is_library(entry: str) -> bool:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = [*map(sysconfig.get_path, names), *site.getsitepackages(), site.getusersitepackages()]
    return entry.endswith(".zip") or entry in folders


@functools.cache
def _recorded_names(entry: str) -> set[str]:
    """Return the files and folders that packages have installed into a folder, as after ``pip --target``."""
    names = set()
    for record in Path(entry or ".").glob("*.dist-info/RECORD"):
        for line in record.read_text(encoding="utf-8").splitlines():
            names.add(line.partition(",")[0].partition("/")[0])
    return names


def has_name(module: ModuleType) -> bool:
    """Return whether every worker can import a module, so that it travels as its name."""
    return not is_users(module) and sys.modules.get(module.__name__) is module


def is_importable(thing: Any) -> bool:
    """Return whether every worker can import a class or function, so that it travels as its name."""
    module = sys.modules.get(getattr(thing, "__module__", None) or MAIN)
    if module is None or module.__name__ == MAIN or is_users(module):
        return False
    named: Any = module
    for part in thing.__qualname__.split("."):
        named = getattr(named, part, None)
    return named is thing


def imported(names: set[str]) -> dict[str, ModuleType]:
    """Import the user's modules with some names, and return them with their parents; others are left out."""
    for name in sorted(names):
        with suppress(Exception), no_exit():  # whoever imports it gets the same error, if it is reached
            importlib.import_module(name)
    with_parents = set()
    for name in names:
        parts = name.split(".")
        with_parents |= {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
    loaded = {name: sys.modules[name] for name in sorted(with_parents) if name in sys.modules}
    return {name: module for name, module in loaded.items() if is_users(module)}


def _user_modules(names: set[str], package: str, base: Path, address: str) -> Files:
    """Return path and source of the modules below a folder with these names, and of those that they import.

    All import statements count, including those in functions; names passed to `importlib` at run time cannot
    be detected. Installed packages, the standard library and this project are excluded, but modules of
    `package` are included wherever it is installed.
    """
    users_package = package.partition(".")[0]
    sources: dict[str, str] = {}
    pending, done = {package, *names} - {""}, set[str]()
    try:
        while pending - done:
            name = min(pending - done)
            done.add(name)
            top, parent = name.partition(".")[0], name.rpartition(".")[0]
            if top in _PROJECT or (top != users_package and not _is_local(top, base)):
                continue
            pending |= {parent} - {""}  # importing a module also runs its parent packages
            stem = base.joinpath(*name.split("."))
            if (stem / "__init__.py").is_file():
                path, package_of_module = stem / "__init__.py", name
            elif stem.with_name(f"{stem.name}.py").is_file():
                path, package_of_module = stem.with_name(f"{stem.name}.py"), parent
            else:
                continue  # an attribute of a module, or a namespace package
            source = importlib.util.decode_source(path.read_bytes())
            sources[path.relative_to(base).as_posix()] = source
            pending |= imported_names(source, package_of_module)
    except (OSError, UnicodeError, SyntaxError) as error:
        raise UserError(f"{address}: cannot read a module that it imports: {described(error)}") from error
    return tuple(sorted(sources.items()))


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
            parts = parents[: len(parents) - node.level + 1] if node.level else []
            if node.module:
                parts.append(node.module)
            module = ".".join(parts)
            names.add(module)
            names |= {f"{module}.{alias.name}".lstrip(".") for alias in node.names}
    return names - {""}


def _is_local(name: str, base: Path) -> bool:
    """Return whether a top-level name is a module in a folder, and not Python's, ours or installed."""
    if name in _RESERVED:
        return False
    is_here = (base / name).is_dir() or (base / f"{name}.py").is_file()
    spec = PathFinder.find_spec(name, [entry for entry in sys.path if _is_site(entry)])
    if spec is None:
        return is_here
    return is_here and not _is_installed(spec.origin or next(iter(spec.submodule_search_locations or ("",))))


# To workers and back -----------------------------------------------------------------------------------


def by_value(thing: Any, modules: Mapping[str, ModuleType], address: str) -> bytes:
    """Pickle an object with the user's code that it uses, and modules that its functions may import.

    A UserError is raised if that is not possible.
    """
    modules_of_user = [
        module for name, module in tuple(sys.modules.items()) if is_users(module) and module.__name__ == name
    ]
    before = cloudpickle.list_registry_pickle_by_value()
    content = BytesIO()
    try:
        for module in modules_of_user:
            cloudpickle.register_pickle_by_value(module)
        ByValue(content).dump((thing, dict(modules)))
    except Exception as error:
        raise UserError(
            f"{address}: it cannot be sent to a worker process ({one_line(error)}); open files inside its "
            "functions, not in global variables"
        ) from error
    finally:
        for module in modules_of_user:
            if module.__name__ not in before:
                cloudpickle.unregister_pickle_by_value(module)
    return content.getvalue()


def load(address: str, pickled: bytes) -> Any:
    """Inverse of `by_value`; from now on, imports of the user's modules lead to those of this object.

    A UserError is raised if it fails, or there is nothing to load.
    """
    if not pickled:
        raise UserError(f"{address}: results hold its name and hash, but not its code")
    try:
        with no_exit():
            thing, modules = _loaded(pickled)
    except Exception as error:
        raise UserError(f"cannot load {address}: {described(error)}") from error
    sys.modules.update(modules)
    return thing


@functools.cache
def _loaded(pickled: bytes) -> tuple[Any, dict[str, ModuleType]]:
    thing, modules = pickle.loads(pickled)  # noqa: S301  of this run, never of results
    return thing, modules


def _module(module: ModuleType) -> Any:
    """Take a module apart so that modules may refer to each other."""
    if has_name(module):
        return importlib.import_module, (module.__name__,)
    names = vars(module).keys() - {"__builtins__", "__spec__", "__loader__", "__cached__"}
    content = {name: vars(module)[name] for name in sorted(names)}
    if "__path__" in content:  # that of a folder without __init__.py looks for its parent
        content["__path__"] = list(content["__path__"])
    return ModuleType, (module.__name__,), content


def _cached_function(cached: Any) -> Any:
    if is_importable(cached):
        return cached.__qualname__
    return _caching, (cached.__wrapped__, cached.cache_parameters())


def _caching(function: Any, parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


class ByValue(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle that also takes modules in circles, cached functions, locks and weak dictionaries."""

    dispatch_table: ClassVar[Any] = ChainMap(
        {
            ModuleType: _module,
            type(functools.lru_cache(ast.parse)): _cached_function,
            type(threading.Lock()): lambda _: (threading.Lock, ()),
            type(threading.RLock()): lambda _: (threading.RLock, ()),
            typing.ParamSpec: lambda kind: (typing.ParamSpec, (kind.__name__,)),
            typing.NewType: lambda kind: (typing.NewType, (kind.__name__, kind.__supertype__)),
            threading.local: lambda _: (threading.local, ()),
            weakref.WeakKeyDictionary: lambda weak: (weakref.WeakKeyDictionary, (dict(weak),)),
            weakref.WeakValueDictionary: lambda weak: (weakref.WeakValueDictionary, (dict(weak),)),
        },
        cloudpickle.Pickler.dispatch_table,
    )


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
