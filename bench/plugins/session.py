"""Classes, functions and objects of a notebook or script: pickled by value to run, described to be read.

The description holds the definitions as written in the cells, and every value that they use or that was set
afterwards. It is the same text in another session, so it identifies results. A definition whose code is no
longer that of its source is rejected: the code that is shown is the code that runs.
"""

from __future__ import annotations
import __future__

import ast
import copyreg
import dis
import hashlib
import linecache
import sys
import textwrap
import types
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import cloudpickle

from sdp_bench.bench.errors import UserError, one_line
from sdp_bench.bench.plugins.code import MAIN, Code, imported_names, is_own, own_modules

_ATOMS = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
_FEW = 32  # numbers of an array that are shown; of larger ones the hash is
_ANNOTATIONS = __future__.annotations.compiler_flag
_LOOKUPS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_GLOBALS"}
_OF_CLASSES = {
    *("__module__", "__dict__", "__weakref__", "__doc__", "__annotations__", "__annotations_cache__"),
    *("__annotate__", "__annotate_func__", "__qualname__", "__firstlineno__", "__static_attributes__"),
    *("__dataclass_fields__", "__dataclass_params__", "__match_args__", "__parameters__", "__orig_bases__"),
    *("__abstractmethods__", "_abc_impl", "__slots__", "__slotnames__", "__type_params__"),
}
"""Attributes that Python makes from the definition of a class."""
_GENERATED = {
    *("__init__", "__new__", "__repr__", "__eq__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__"),
    *("__setattr__", "__delattr__", "__replace__"),
}

_PARTS = ("fget", "fset", "fdel", "func", "__func__")
"""Attributes of descriptors that may be functions."""


def _restored_property(function: Any, name: str | None) -> cached_property[Any]:
    """Return a cached property, whose name cloudpickle does not set in a class that it makes."""
    restored = cached_property(function)
    restored.attrname = name
    return restored


# Python 3.11 gives it a lock, which cannot be pickled.
copyreg.pickle(cached_property, lambda value: (_restored_property, (value.func, value.attrname)))


def code_of(thing: object) -> Code:
    """Return the code of a class, a function or an object of this session, without running any of it.

    Definitions are found through the source that Python keeps of cells and files. An object is taken in its
    current state. If something cannot be described or pickled, or a definition has changed since its source
    was run, a UserError names it.
    """
    name = thing.__name__ if isinstance(thing, type | types.FunctionType) else type(thing).__name__
    kind = thing if isinstance(thing, type | types.FunctionType) else type(thing)
    address = f"{getattr(kind, '__module__', None) or MAIN}:{name}"
    # Modules of the working folder may have changed since they were imported; workers get what they are now.
    tops = {module.partition(".")[0] for module in sys.modules}
    own = {top for top in tops if is_own(top, Path.cwd())}
    modules = [
        module
        for name, module in sorted(sys.modules.items())
        if name.partition(".")[0] in own and getattr(module, "__name__", None) == name
    ]
    description = _Description(own)
    try:
        made = description.of(thing)
        for module in modules:
            cloudpickle.register_pickle_by_value(module)
        pickled = cloudpickle.dumps(thing)
    except RecursionError as error:
        raise UserError(f"{name}: what it uses is nested too deeply") from error
    except UserError as error:
        raise UserError(f"{name}: {error}") from error
    except Exception as error:
        raise UserError(f"{name}: it cannot be sent to a worker process ({one_line(error)})") from error
    finally:
        for module in modules:
            if module.__name__ in cloudpickle.list_registry_pickle_by_value():
                cloudpickle.unregister_pickle_by_value(module)
    files = own_modules(description.modules, "", Path.cwd(), address)
    return Code(address, MAIN, name, description.text(made), files, pickled=pickled)


class _Description:
    """Text that describes an object and all that it uses; each method adds to it."""

    def __init__(self, own: set[str]) -> None:
        self._own = own  # packages of the working folder, whose objects are pickled by value
        self.modules: set[str] = set()  # that are imported
        self.definitions: dict[str, None] = {}  # source of statements
        self.values: dict[str, None] = {}  # lines: globals, attributes, defaults
        self._seen: dict[int, Any] = {}  # keeps the objects alive, so that their ids stay unique
        self._texts: dict[int, str] = {}  # of objects that were met before, or a reference to them

    def text(self, made: str) -> str:
        return "\n".join([*self.definitions, "# values", *self.values, "# object", made, ""])

    def of(self, value: Any) -> str:
        """Return an expression for a value, and describe what it needs."""
        if type(value) in _ATOMS:
            return repr(value)
        if isinstance(value, types.ModuleType):
            if sys.modules.get(value.__name__) is not value:
                raise UserError(f"it uses the module {value.__name__}, which cannot be imported")
            if value.__name__.partition(".")[0] not in self._own:
                self.modules.add(value.__name__)
            elif id(value) not in self._seen:
                self._seen[id(value)] = value
                for name in sorted(vars(value)):
                    if name[:2] != "__":
                        self._bind(f"{value.__name__}.{name}", vars(value)[name])
            return value.__name__
        if isinstance(value, type | types.FunctionType):
            if self._is_importable(value):
                self.modules.add(value.__module__)
                return f"{value.__module__}.{value.__qualname__}"
            if id(value) not in self._seen:
                self._seen[id(value)] = value
                self._define_class(value) if isinstance(value, type) else self._define_function(value)
            return value.__qualname__
        if type(value) in (tuple, frozenset):  # Python may share constants, in one session or the other
            return self._container(value)
        if id(value) not in self._texts:
            self._seen[id(value)] = value
            # An object may hold itself, and graphs of objects have many paths.
            self._texts[id(value)] = f"<{type(value).__name__} {len(self._texts)}>"
            text = self._container(value)
            if "\n" in text or type(value) in (list, dict, set):
                return text
            self._texts[id(value)] = text
        return self._texts[id(value)]

    def _container(self, value: Any) -> str:
        if type(value) is dict:
            return f"{{{', '.join(f'{self.of(key)}: {self.of(item)}' for key, item in value.items())}}}"
        if type(value) in (list, tuple):
            inner = ", ".join(map(self.of, value))
            return f"[{inner}]" if type(value) is list else f"({inner},)"
        if type(value) in (set, frozenset):
            # sorted, since the order of a set differs between processes
            return f"{type(value).__name__}({sorted(map(self.of, value))})"
        if isinstance(value, types.MethodType):
            return f"{self.of(value.__self__)}.{self.of(value.__func__)}"
        return _array(value) or self._object(value)

    def _object(self, value: Any) -> str:
        """Describe an object by its reduction, as pickle takes it apart."""
        from torch import nn

        kind = type(value)
        known = cloudpickle.Pickler.dispatch_table.get(kind) or copyreg.dispatch_table.get(kind)
        try:
            reduced = known(value) if known else value.__reduce_ex__(4)
        except Exception as error:
            raise UserError(f"it uses a {kind.__name__} ({one_line(error)})") from error
        if isinstance(reduced, str):
            return f"{getattr(value, '__module__', None) or kind.__module__}.{reduced}"
        maker, given, state, items, pairs = (*reduced, None, None, None)[:5]
        if getattr(maker, "__module__", None) == "torch.storage":  # bytes that differ from session to session
            raise UserError(f"it uses a {kind.__name__}, or a tensor made of one; use a plain tensor")
        if maker is copyreg.__newobj__:  # type: ignore[attr-defined]
            maker, *given = given
        call = f"{self.of(maker)}({', '.join(map(self.of, given))})"
        extra = [
            *map(self.of, items or ()),
            *(f"{self.of(key)}: {self.of(item)}" for key, item in pairs or ()),
        ]
        if isinstance(value, nn.Module) and isinstance(state, dict):
            plain = vars(nn.Module())
            state = {key: item for key, item in state.items() if key not in plain or plain[key] != item}
        fields, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
        for part in (fields, slots):
            if isinstance(part, dict):
                extra += [f"{key} = {self.of(item)}" for key, item in part.items()]
            elif part is not None:
                extra.append(self.of(part))
        return f"{call} with\n{textwrap.indent(chr(10).join(extra), '    ')}" if extra else call

    def _bind(self, name: str, value: Any) -> None:
        """Describe the value of a name."""
        try:
            text = self.of(value)
        except UserError as error:
            raise UserError(str(error) if ", in " in str(error) else f"{error}, in {name}") from error
        if text != name:
            self.values[f"{name} = {text}"] = None

    def _is_importable(self, thing: Any) -> bool:
        """Return whether pickle finds a class or function by its module and name."""
        module = thing.__module__
        if module in (None, MAIN) or module not in sys.modules or module.partition(".")[0] in self._own:
            return False
        found: Any = sys.modules[module]
        for part in thing.__qualname__.split("."):
            found = getattr(found, part, None)
        return found is thing

    def _define_function(self, function: types.FunctionType) -> None:
        name, space = function.__qualname__, function.__globals__
        if _is_generated(function) and function.__code__.co_name not in ("__init__", "__new__"):
            return
        home = space.get("__name__", MAIN)
        is_session = home == MAIN or home.partition(".")[0] in self._own or home not in sys.modules
        if not is_session:  # what a decorator makes of it
            self.modules.add(home)
        else:
            if not _is_generated(function):
                source = _source(function)
                self.definitions[source] = None
                self.modules |= imported_names(source, "")
            for used in sorted(_globals(function.__code__)):
                if used in space and used[:2] != "__":
                    self._bind(used, space[used])
        for attribute in ("__defaults__", "__kwdefaults__"):
            if given := getattr(function, attribute):
                self._bind(f"{name}.{attribute}", given)
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if variable != "__class__" and cell != types.CellType():
                self._bind(f"{name}.{variable}", cell.cell_contents)
        for key, value in vars(function).items():
            if key != "__wrapped__":
                self._bind(f"{name}.{key}", value)

    def _define_class(self, kind: type) -> None:
        name = kind.__qualname__
        bases = ", ".join(self.of(base) for base in kind.__bases__)
        if type(kind) is not type:
            bases += f", metaclass={self.of(type(kind))}"
        self.values[f"class {name}({bases})"] = None
        for key, value in sorted(vars(kind).items()):
            if key in _OF_CLASSES or isinstance(
                value, types.MemberDescriptorType | types.GetSetDescriptorType
            ):
                continue
            is_descriptor = isinstance(value, property | cached_property | classmethod | staticmethod)
            parts = [getattr(value, part, None) for part in _PARTS] if is_descriptor else [value]
            functions = [part for part in parts if isinstance(part, types.FunctionType)]
            for function in functions:
                if not self._is_importable(function):
                    self.of(function)
            if not functions:
                self._bind(f"{name}.{key}", value)
            elif any(function.__qualname__ != f"{name}.{key}" for function in functions):
                self.values[f"{name}.{key} = {', '.join(f.__qualname__ for f in functions)}"] = None


def _is_generated(function: types.FunctionType) -> bool:
    """Return whether a dataclass or named tuple made a method; its closure has the values that it uses."""
    return function.__code__.co_filename == "<string>" and function.__code__.co_name in _GENERATED


def _source(function: types.FunctionType) -> str:
    """Return the definition that a function's code is part of; a UserError if it differs from the code."""
    code = function.__code__
    linecache.checkcache(code.co_filename)
    text = "".join(linecache.getlines(code.co_filename, function.__globals__))
    try:
        nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
    except SyntaxError:
        nodes = []
    nodes = [node for node in nodes if _first(node) <= code.co_firstlineno <= (node.end_lineno or 0)]
    definitions = [
        node for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    if not nodes:
        raise UserError(
            f"the source of {function.__qualname__} is not known; write it to a file and pass file.py:Name"
        )
    node = (definitions or nodes[-1:])[0]  # the walk is from the outside in
    source = textwrap.dedent("".join(text.splitlines(keepends=True)[_first(node) - 1 : node.end_lineno]))
    # A notebook compiles each statement alone, a script all together, where Python 3.11 calls imported names
    # in another way.
    flags = code.co_flags & _ANNOTATIONS | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    compiled = (compile(part, "<cell>", "exec", flags=flags, dont_inherit=True) for part in (source, text))
    if not any(_content(code) == _content(inner) for whole in compiled for inner in _inside(whole)):
        raise UserError(
            f"{function.__qualname__} is not what its source says; run the cell that defines it again"
        )
    return source


def _first(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _inside(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _inside(constant)


def _content(code: types.CodeType) -> types.CodeType:
    """Return code without where it is written."""
    constants = tuple(_content(c) if isinstance(c, types.CodeType) else c for c in code.co_consts)
    return code.replace(co_consts=constants, co_firstlineno=1, co_linetable=b"")


def _globals(code: types.CodeType) -> set[str]:
    """Return the global names that code uses."""
    own = {str(step.argval) for step in dis.get_instructions(code) if step.opname in _LOOKUPS}
    return own.union(*map(_globals, _inside(code)))


def _array(value: Any) -> str:
    """Describe a tensor or array by its numbers, or by their hash; empty for everything else."""
    import numpy as np
    import torch

    kind = type(value)
    if (
        kind in (torch.Tensor, torch.nn.Parameter)
        and value.layout == torch.strided
        and not value.is_quantized
    ):
        plain = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
        numbers, content = plain.tolist, plain.reshape(-1).view(torch.uint8).numpy().tobytes
        rest = f"{value.dtype}, {tuple(value.shape)}" + (", requires_grad" if value.requires_grad else "")
    elif kind is np.ndarray and not value.dtype.hasobject:
        plain = value
        numbers, content, rest = value.tolist, value.tobytes, f"{value.dtype}, {value.shape}"
    else:
        return ""
    few = (plain.numel() if isinstance(plain, torch.Tensor) else plain.size) <= _FEW
    shown = repr(numbers()) if few else f"SHA-256 {hashlib.sha256(content()).hexdigest()}"
    return f"{kind.__name__}({shown}, {rest})"
