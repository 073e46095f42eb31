"""What numbers rest on, hashed by what the code does and not by where it stands.

Roots are live objects: functions, classes, instances. From the syntax tree of a function its global names,
and the imports inside it, lead to what it uses. What belongs to this project is followed, all else counts by
its dotted name. A reference to something of the project is written as its number in the order of discovery:
names of modules and functions and aliases do not count, nor do comments, docstrings, layout and annotations,
nor what an error says.

Which method is called is not known before the call, ``x.method()``. Of every class that is reached those
members count whose names the reached code takes as attributes of anything (rapid type analysis: Bacon and
Sweeney, "Fast static analysis of C++ virtual function calls", OOPSLA 1996), special methods, and all members
of a class that external code calls back, one with an external base. So the roots have to name the classes
whose instances are passed around, and a name that is put together at run time is not seen.

Entries of a mapping or set count in no order: registries are filled in the order of imports.

Of floating-point values three quarters of the bits count, twelve digits of a double: the last bits of what
is computed at import depend on the vector unit of the processor.
"""

from __future__ import annotations

import collections
import copyreg
import enum
import functools
import hashlib
import inspect
import pickle
import types
from collections.abc import Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import PurePath
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sdp_bench.bench.identity.syntax import Import, Reference, imports_of, template

PACKAGES = frozenset({"sdp_ref", "sdp_bench"})
"""This project's own top-level packages."""

_PLAIN = (type(None), bool, int, float, complex, str, bytes, types.EllipsisType)
_NAMED = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.ModuleType)
_CACHED = type(functools.cache(len))
_MARKERS = ("typing", "abc")  # modules of bases that say something to a type checker
_OF_NAMED_TUPLES = frozenset(vars(collections.namedtuple("_", ())))
_MADE_BY_PYTHON = ("_abc_impl", "_generate_next_value_", "_is_protocol", "_is_runtime_protocol")


def fingerprint(packages: Collection[str] = PACKAGES, **roles: object) -> str:
    """Hash of all that some roots rest on, by role.

    Parameters
    ----------
    packages : collection of str
        See :func:`reached`.
    **roles : object or tuple of object
        Roots, by what they do: ``rule=(...), metric=(...)``. What serves two roles has to be among both.

    Returns
    -------
    str
        16 hexadecimal digits.

    Raises
    ------
    ValueError
        If a function among what is reached has no source.
    """
    marks = (f"{role}={reached(roots, packages=packages)};" for role, roots in sorted(roles.items()))
    return hashlib.sha256("".join(marks).encode()).hexdigest()[:16]


def reached(*roots: object, packages: Collection[str] = PACKAGES) -> str:
    """Hash of the code, the constants and the registries that `roots` rest on together.

    Parameters
    ----------
    *roots : object
        Functions, methods, classes, instances, plain values, or tuples and mappings of them. A module
        stands for all that it holds.
    packages : collection of str
        Top-level packages whose code is followed.

    Returns
    -------
    str
        16 hexadecimal digits.

    Raises
    ------
    ValueError
        If a function among what is reached has no source.
    """
    return _Walk(packages).digest(roots)


def closure(*roots: object, packages: Collection[str] = PACKAGES) -> tuple[object, ...]:
    """What `roots` rest on: functions, classes and values of this project.

    Parameters and errors are those of :func:`reached`.

    Returns
    -------
    tuple of object
        In the order of discovery.
    """
    walk = _Walk(packages)
    walk.digest(roots)
    return tuple(thing for thing in walk.objects if not isinstance(thing, _Member))


@dataclass(frozen=True)
class _Member:
    """Something that a class holds under a name which reached code uses."""

    owner: str
    name: str
    value: object


class _Walk:
    """A walk over live objects in the order of discovery."""

    def __init__(self, packages: Collection[str]) -> None:
        self._packages = packages
        self.objects: list[object] = []  # kept alive, for ids are given out again
        self._numbers: dict[int, int] = {}
        self._names: set[str] = set()  # of attributes that reached code takes
        self._unused: dict[str, list[object]] = collections.defaultdict(list)

    def digest(self, roots: tuple[object, ...]) -> str:
        sha = hashlib.sha256(self._text(roots).encode())
        for thing in self.objects:  # which grows meanwhile
            sha.update(f"\n{self._described(thing)}".encode())
        return sha.hexdigest()[:16]

    def _is_ours(self, thing: object) -> bool:
        match thing:
            case types.ModuleType():
                name = thing.__name__
            case types.FunctionType():
                name = thing.__globals__.get("__name__", "")  # functools.wraps changes its __module__
            case type():
                name = thing.__module__
            case _:
                name = getattr(thing, "__module__", None) or ""
        return str(name).partition(".")[0] in self._packages

    def _is_external(self, source: Import) -> bool:
        return not source.level and source.module.partition(".")[0] not in self._packages

    def _text(self, value: object) -> str:
        """A plain value itself; the name of something external; else its number, and it is visited later."""
        while isinstance(value, _CACHED):
            value = value.__wrapped__
        if type(value) is str and value.isidentifier():
            self._use((value,))
        if type(value) in (float, complex):
            value = _rounded(np.asarray(value)).item()
        if type(value) in _PLAIN:
            return f"{type(value).__name__} {value!r}"
        if type(value) is tuple:
            return f"({','.join(map(self._text, value))})"
        if isinstance(value, _NAMED) and not self._is_ours(value) and not _is_wrapper(value):
            return _name(value)
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self.objects)
            self.objects.append(value)
        return f"#{self._numbers[id(value)]}"

    def _use(self, names: Iterable[str]) -> None:
        """Visit the members of these names, of the classes that are known and of those still to come."""
        for name in names:
            self._names.add(name)
            self.objects += self._unused.pop(name, [])

    def _described(self, thing: Any) -> str:
        return self._code(thing) or self._bound(thing) or self._value(thing) or self._instance(thing)

    def _code(self, thing: Any) -> str:
        """Functions, classes, modules and what they hold; "" for anything else."""
        text = ""
        match thing:
            case _Member():
                text = f"{thing.owner}.{thing.name} {self._text(thing.value)}"
            case types.FunctionType():
                text = self._function(thing)
            case types.ModuleType():
                text = self._module(thing)
            case type():
                text = self._class(thing)
        return text

    def _bound(self, thing: Any) -> str:
        """What is made of functions: methods, partials, properties; "" for anything else."""
        text = ""
        match thing:
            case types.MethodType():
                text = f"method {self._text((thing.__func__, thing.__self__))}"
            case functools.partial() | functools.partialmethod():
                text = f"partial {self._text((thing.func, thing.args, thing.keywords))}"
            case property():
                text = f"property {self._text((thing.fget, thing.fset, thing.fdel))}"
            case functools.cached_property():
                text = f"property {self._text((thing.func, None, None))}"
            case classmethod() | staticmethod():
                text = f"{type(thing).__name__} {self._text(thing.__func__)}"
        return text

    def _value(self, thing: Any) -> str:
        """Values by their content: arrays, collections, members of an enumeration; "" for anything else."""
        text = ""
        match thing:
            case enum.Enum():
                text = f"member {self._text((type(thing), thing.name, thing.value))}"
            case Tensor():
                text = f"{thing.dtype} {tuple(thing.shape)} {self._array(_content(thing))}"
            case np.ndarray() | np.generic():
                text = self._array(np.asarray(thing))
            case Mapping():
                entries = sorted(thing.items(), key=lambda entry: self._shape(entry[0]))
                text = f"mapping {self._text(tuple(entries))}"
            case set() | frozenset():
                text = f"set {self._text(tuple(sorted(thing, key=self._shape)))}"
            case list() | tuple():
                text = f"{self._text(type(thing))} {self._text(tuple(thing))}"
            case PurePath():
                text = "path"  # where something stands, and not what it is
        return text

    def _array(self, array: np.ndarray) -> str:
        if array.dtype.hasobject:
            return f"array {array.shape} {self._text(tuple(array.ravel().tolist()))}"
        if np.issubdtype(array.dtype, np.inexact):
            array = _rounded(array)
        return f"array {array.dtype.str} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"

    def _instance(self, thing: Any) -> str:
        kind = type(thing)
        if is_dataclass(thing):
            return self._state(kind, {f.name: getattr(thing, f.name, None) for f in fields(thing)})
        if self._is_ours(kind) or isinstance(thing, nn.Module):
            state = getattr(thing, "__dict__", {})
            # What it gets in use does not tell what it is.
            return self._state(kind, {name: v for name, v in state.items() if not _is_made(kind, name)})
        own: Any = kind.__reduce__
        if kind in copyreg.dispatch_table or own is not object.__reduce__:
            reduce: Any = copyreg.dispatch_table.get(kind, own)
            try:
                return self._text((kind, reduce(thing)))
            except (TypeError, RuntimeError, pickle.PickleError):  # a lock, a generator
                pass
        return self._text(kind)

    def _state(self, kind: type, state: Mapping[str, object]) -> str:
        # Names that are written here are not in use by that.
        return f"{self._text(kind)} {[(name, self._text(state[name])) for name in sorted(state)]}"

    def _module(self, module: types.ModuleType) -> str:
        external = {name for name, source in imports_of(vars(module)).items() if self._is_external(source)}
        content = {
            name: value
            for name, value in vars(module).items()
            if not (_is_special(name) or name in external or isinstance(value, types.ModuleType))
        }
        return f"module {self._text(content)}"

    def _class(self, cls: type) -> str:
        if getattr(cls, "_is_protocol", False):
            return "protocol"
        bases = tuple(b for b in cls.__bases__ if b is not object and b.__module__ not in _MARKERS)
        parts = [self._text(bases)]
        members = {name: value for name, value in vars(cls).items() if self._is_written(name, value)}
        if type(cls).__module__ not in ("builtins", "enum", *_MARKERS):
            parts.append(self._text(type(cls)))
        if issubclass(cls, enum.Enum):
            parts += [f"{name}={self._text(member.value)}" for name, member in cls.__members__.items()]
            members = {name: value for name, value in members.items() if _is_code(value)}
        if "__dataclass_params__" in vars(cls):
            made = vars(cls)["__dataclass_params__"]
            parts.append(f"{made.init} {made.eq} {made.order} {made.frozen}")
            for f in fields(cls):
                default = tuple(x for x in (f.default, f.default_factory) if x is not MISSING)
                parts.append(f"{f.name} {f.init} {f.compare} {f.kw_only} {self._text(default)}")
        if issubclass(cls, tuple) and "_fields" in vars(cls):
            names, defaults = vars(cls)["_fields"], vars(cls)["_field_defaults"]
            parts += [f"{name}={self._text(defaults[name]) if name in defaults else ''}" for name in names]
            members = {n: value for n, value in members.items() if n not in {*names, *_OF_NAMED_TUPLES}}
        self._add_members(cls, members)
        return f"class {parts}"

    def _add_members(self, cls: type, members: Mapping[str, object]) -> None:
        owner = self._text(cls)
        called_back = any(not self._is_ours(b) and b.__module__ not in _MARKERS for b in cls.__mro__[:-1])
        for name, value in sorted(members.items()):
            is_used = called_back or _is_special(name) or name in self._names
            objects = self.objects if is_used else self._unused[name]
            objects.append(_Member(owner, name, value))

    def _is_written(self, name: str, value: object) -> bool:
        """Whether what a class holds was written by someone, and not made by Python or a decorator."""
        if name in _MADE_BY_PYTHON or inspect.isgetsetdescriptor(value) or inspect.ismemberdescriptor(value):
            return False
        if not _is_special(name):
            return True
        function: Any = inspect.unwrap(getattr(value, "__func__", value))  # type: ignore[arg-type]
        return (
            isinstance(function, types.FunctionType)
            and self._is_ours(function)
            and function.__code__.co_filename != "<string>"  # a dataclass's __init__, __eq__ ...
        )

    def _function(self, function: types.FunctionType) -> str:
        if not self._is_ours(function):
            return self._wrapper(function)
        self._use(template(function).attributes)
        defaults = self._text((function.__defaults__, function.__kwdefaults__))
        of_class = self._cell(function, "__class__") if "__class__" in function.__code__.co_freevars else ""
        return f"function {self._written(function, template(function).body)} {defaults} {of_class}"

    def _wrapper(self, function: types.FunctionType) -> str:
        """What contextlib, functools or torch made of a function of ours."""
        inner: Any = inspect.unwrap(function)
        decorators = ""
        if isinstance(inner, types.FunctionType) and self._is_ours(inner):
            decorators = self._written(inner, template(inner).decorators)
        maker = f"{function.__globals__.get('__name__')}.{function.__code__.co_qualname}"
        registry = getattr(function, "registry", None)  # of functools.singledispatch
        return f"wrapper {maker} {decorators} {self._text((inner, registry))}"

    def _written(self, function: types.FunctionType, parts: Iterable[str | Reference]) -> str:
        return "".join(part if isinstance(part, str) else self._resolved(function, part) for part in parts)

    def _resolved(self, function: types.FunctionType, reference: Reference) -> str:
        name, names = reference.name, function.__globals__
        source = reference.source
        if source is None and name in function.__code__.co_freevars:
            return self._cell(function, name, reference.attributes)
        if source is None and (name not in names or _is_special(name)):
            return ".".join((name, *reference.attributes))  # a builtin; a name that tells of the place
        external = source or template(function).imports.get(name)
        if external is not None and self._is_external(external):
            return ".".join((external.dotted, *reference.attributes))
        return self._attribute(source.value(names) if source else names[name], reference.attributes)

    def _cell(self, function: types.FunctionType, name: str, attributes: tuple[str, ...] = ()) -> str:
        cell = (function.__closure__ or ())[function.__code__.co_freevars.index(name)]
        try:
            value = cell.cell_contents
        except ValueError:
            return "empty"
        return self._attribute(value, attributes)

    def _attribute(self, value: Any, attributes: tuple[str, ...]) -> str:
        while attributes and isinstance(value, types.ModuleType) and self._is_ours(value):
            value = Import(value.__name__, attributes[0]).value(vars(value))
            attributes = attributes[1:]
        return ".".join((self._text(value), *attributes))

    def _shape(self, value: object) -> str:
        """Text to sort by: the same wherever a thing stands, whatever it is called and leads to."""
        while isinstance(value, _CACHED):
            value = value.__wrapped__
        if type(value) in _PLAIN:
            text = f"{type(value).__name__} {value!r}"
        elif isinstance(value, tuple):
            text = f"({','.join(map(self._shape, value))})"
        elif isinstance(value, enum.Enum):
            text = f"{self._shape(type(value))} {value.name}"
        elif isinstance(value, _NAMED) and not self._is_ours(value):
            text = _name(value)
        elif isinstance(value, types.FunctionType):
            text = "".join(part if isinstance(part, str) else "#" for part in template(value).body)
        elif isinstance(value, type):
            members = {name: v for name, v in sorted(vars(value).items()) if self._is_written(name, v)}
            text = f"{list(members)} {[self._shape(v) for v in members.values() if _is_code(v)]}"
        else:
            text = self._shape(type(value))
        return text


def _content(tensor: Tensor) -> np.ndarray:
    """Values of a tensor, or its bytes where NumPy does not know their type."""
    flat = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().flatten()
    try:
        return flat.numpy()
    except TypeError:
        return flat.view(torch.uint8).numpy()


def _rounded(array: np.ndarray) -> np.ndarray:
    """Floating-point values to three quarters of their bits, with one zero and one NaN."""
    if np.iscomplexobj(array):
        parts = np.ascontiguousarray(array).reshape(-1).view(array.real.dtype)
        return _rounded(parts).view(array.dtype).reshape(array.shape)
    bits = np.finfo(array.dtype).nmant * 3 // 4
    fraction, exponent = np.frexp(array)
    with np.errstate(over="ignore"):  # of the largest numbers, to infinity
        kept = np.ldexp(np.rint(np.ldexp(fraction, bits)), exponent - bits)
    rounded: np.ndarray = np.where(np.isnan(kept), array.dtype.type(np.nan), kept + array.dtype.type(0))
    return rounded


def _name(value: Any) -> str:
    if isinstance(value, types.ModuleType):
        return value.__name__
    return f"{getattr(value, '__module__', None) or 'builtins'}.{value.__qualname__}"


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _is_code(value: object) -> bool:
    return isinstance(value, types.FunctionType | property | classmethod | staticmethod)


def _is_made(cls: type, name: str) -> bool:
    """Whether an instance gets its attribute of that name when it is first asked for."""
    return isinstance(inspect.getattr_static(cls, name, None), functools.cached_property)


def _is_wrapper(value: object) -> bool:
    return isinstance(value, types.FunctionType) and hasattr(value, "__wrapped__")
