"""Classes, functions and objects of a notebook or script as source code.

The generated module reconstructs them elsewhere: definitions with everything that they use, as written in the
cells, and objects from their pickle state. Unlike a pickle it is readable, and the same session gives the
same text, so that results can be identified by it.
"""

from __future__ import annotations
import __future__

import ast
import copyreg
import dis
import inspect
import linecache
import math
import pickle
import sys
import textwrap
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from sdp_bench.bench.errors import UserError, one_line
from sdp_bench.bench.plugins.code import Code, own_modules

if TYPE_CHECKING:
    from torch import Tensor

_MADE = "made"
"""Name of an object in the generated module."""
_ANNOTATIONS = __future__.annotations.compiler_flag
_LOOKUPS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_GLOBALS"}
_ATOMS = (bool, int, str, bytes, complex, type(None), type(Ellipsis))
_CONTAINERS = (list, tuple, dict, set, frozenset)
_HINT = "write it to a file and give that, path/to/file.py:Name"


def code_of(thing: object, carried: Collection[Tensor] = ()) -> Code:
    """Return the code of a class, a function or an object of this session, without running any of it.

    Definitions are found through the source that Python keeps of cells and files. An object is stored in its
    current state. Tensors in `carried` are transferred separately, and are zeros in the code. If something
    cannot be written as source, a UserError names it.
    """
    is_definition = isinstance(thing, type | FunctionType)
    name = thing.__name__ if isinstance(thing, type | FunctionType) else type(thing).__name__
    writer = _Writer(name, {id(tensor) for tensor in carried})
    attribute = name if is_definition else _MADE
    try:
        writer.bind(attribute, thing)
    except RecursionError as error:
        raise UserError(f"{name}: what it uses is nested too deeply, or holds itself") from error
    source = "\n".join(writer.lines) + "\n"
    if writer.has_annotations:
        source = "from __future__ import annotations\n" + source
    address = f"{_module(thing if is_definition else type(thing))}:{name}"
    return Code(address, "", attribute, source, own_modules(source, "", Path.cwd(), address))


class _Writer:
    """Writer of a module with everything that one object needs."""

    def __init__(self, subject: str, carried: set[int]) -> None:
        self.lines: list[str] = []
        self.has_annotations = False
        self._subject, self._carried = subject, carried
        self._bound: dict[str, Any] = {}
        self._made: dict[int, tuple[str, Any]] = {}  # keeps the objects alive, so that their ids stay unique

    def bind(self, name: str, value: Any) -> None:
        if name in self._bound:
            return
        self._bound[name] = value
        if isinstance(value, ModuleType):
            self._write(f"import {value.__name__} as {name}")
        elif isinstance(value, FunctionType | type) and _is_of_session(value):
            self._define(value)
            if value.__name__ != name:
                self._write(f"{name} = {value.__name__}")
        elif isinstance(value, FunctionType | type) and "." not in value.__qualname__:
            self._write(f"from {_module(value)} import {value.__qualname__} as {name}")
        else:
            self._write(f"{name} = {self.expression(value)}")

    def expression(self, value: Any) -> str:
        kind = type(value)
        if kind in _ATOMS or (kind is float and math.isfinite(value)):
            return repr(value)
        if kind in _CONTAINERS:
            return self._several(value)
        if kind is float:
            return f"float('{value}')"
        if isinstance(value, ModuleType):
            return self._named(f"import {value.__name__} as {{}}", value)
        if isinstance(value, type | FunctionType | BuiltinFunctionType):
            return self._reference(value)
        if id(value) not in self._made:
            self._make(value)
        return self._made[id(value)][0]

    def _several(self, value: Any) -> str:
        if isinstance(value, dict):
            pairs = (f"{self.expression(key)}: {self.expression(each)}" for key, each in value.items())
            return f"{{{', '.join(pairs)}}}"
        items = [self.expression(each) for each in value]
        if isinstance(value, set | frozenset):
            items.sort()  # the order of a set differs between processes
        text = ", ".join(items)
        if isinstance(value, tuple):
            return f"({text}{',' * (len(items) == 1)})"
        return f"[{text}]" if isinstance(value, list) else f"{type(value).__name__}([{text}])"

    def _reference(self, value: Any) -> str:
        if isinstance(value, type | FunctionType) and _is_of_session(value):
            name = value.__name__
            if self._bound.get(name, value) is not value:
                raise self._refused(f"{name} is there in two versions; run the cells again that make it")
            self.bind(name, value)
            return name
        name = value.__name__ if isinstance(value, BuiltinFunctionType) else value.__qualname__
        top, *rest = name.split(".")
        whole = getattr(sys.modules[_module(value)], top)
        return ".".join([self._named(f"from {_module(value)} import {top} as {{}}", whole), *rest])

    def _named(self, line: str, value: Any) -> str:
        """Return the name that a line assigns to a value; each value is written once."""
        if id(value) not in self._made:
            name = self._new(value)
            self._write(line.format(name))
        return self._made[id(value)][0]

    def _new(self, value: Any) -> str:
        name = f"_sdp_{len(self._made)}"
        self._made[id(value)] = name, value
        return name

    def _make(self, value: Any) -> None:
        """Write an object that is neither a definition nor a plain value, from its pickle state."""
        import torch

        if isinstance(value, torch.Tensor):
            self._make_tensor(value)
            return
        try:
            known = copyreg.dispatch_table.get(type(value))
            reduced = known(value) if known else value.__reduce_ex__(4)
        except Exception as error:
            raise self._refused(f"it uses a {type(value).__name__} ({one_line(error)})") from error
        if isinstance(reduced, str):
            self._named(f"from {_module(value, reduced)} import {reduced} as {{}}", value)
            return
        maker, given, state, items, pairs = (*reduced, None, None, None)[:5]
        call = f"{self.expression(maker)}({', '.join(map(self.expression, given))})"
        name = self._new(value)
        self._write(f"{name} = {call}")
        for item in items or ():
            self._write(f"{name}.append({self.expression(item)})")
        for key, item in pairs or ():
            self._write(f"{name}[{self.expression(key)}] = {self.expression(item)}")
        if state is not None:
            self._restore(name, value, state)

    def _restore(self, name: str, value: Any, state: Any) -> None:
        if hasattr(value, "__setstate__"):
            self._write(f"{name}.__setstate__({self.expression(state)})")
            return
        fields, slots = state if isinstance(state, tuple) else (state, None)
        if fields:
            self._write(f"vars({name}).update({self.expression(fields)})")
        for slot, item in (slots or {}).items():
            self._write(f"object.__setattr__({name}, {slot!r}, {self.expression(item)})")

    def _make_tensor(self, value: Tensor) -> None:
        import torch

        if type(value) not in (torch.Tensor, torch.nn.Parameter):
            raise self._refused(f"it uses a tensor of the kind {type(value).__name__}")
        self.bind("torch", torch)
        plain = value.detach().cpu().contiguous()
        shape, dtype = tuple(plain.shape), plain.dtype
        if id(value) in self._carried or not plain.numel():
            text = f"torch.zeros({shape}, dtype={dtype})"
        else:
            content = plain.reshape(-1).view(torch.uint8).numpy().tobytes()
            text = f"torch.frombuffer(bytearray({content!r}), dtype={dtype}).reshape({shape})"
        if isinstance(value, torch.nn.Parameter):
            text = f"torch.nn.Parameter({text}, requires_grad={value.requires_grad})"
        self._write(f"{self._new(value)} = {text}")

    def _define(self, thing: type | FunctionType) -> None:
        """Write a definition after the definitions that it uses."""
        source, names, paths = self._found(thing)
        self._bound.setdefault(thing.__name__, thing)
        for name in sorted(names.keys() - {thing.__name__}):
            if self._bound.get(name, names[name]) is not names[name]:
                raise self._refused(f"{name} is there in two versions; run the cells again that make it")
            try:
                self.bind(name, names[name])
            except UserError as error:
                inner = str(error).removeprefix(f"{self._subject}: ")
                raise self._refused(f"{inner}, in {name}" if ", in " not in inner else inner) from error
        for path in sorted(paths):
            self._write(f"import {path}")
        self._write(source)

    def _found(self, thing: type | FunctionType) -> tuple[str, dict[str, Any], set[str]]:
        """Return a definition's source, the values of its globals, and submodules used by dotted name."""
        if "<" in thing.__qualname__:
            what = "is a lambda" if thing.__name__ == "<lambda>" else "is defined inside a function"
            raise self._refused(f"{thing.__name__} {what}; give it a name at the top of a cell")
        for function in _functions(thing):
            lines = linecache.getlines(function.__code__.co_filename, function.__globals__)
            node = _definition("".join(lines), thing.__name__, function.__code__.co_firstlineno)
            if node is None:
                continue
            first = min(each.lineno for each in (node, *node.decorator_list))
            source = textwrap.dedent("".join(lines[first - 1 : node.end_lineno]))
            postponed = function.__code__.co_flags & _ANNOTATIONS
            self.has_annotations |= bool(postponed)
            compiled = compile(source, "<cell>", "exec", flags=postponed, dont_inherit=True)
            space = function.__globals__
            names = {name: space[name] for name in _globals(compiled) if name in space and name[:2] != "__"}
            return source, names, {path for path in _paths(node, names) if path in sys.modules}
        raise self._refused(f"the source of {thing.__name__} is not known; {_HINT}")

    def _write(self, line: str) -> None:
        self.lines.append(line)

    def _refused(self, reason: str) -> UserError:
        return UserError(f"{self._subject}: {reason}")


def _is_of_session(thing: type | FunctionType) -> bool:
    """Return whether it was defined in a cell or the running script, which cannot be imported."""
    module = sys.modules.get(thing.__module__)
    return module is None or module.__name__ == "__main__" or module.__spec__ is None


def _module(thing: Any, name: str = "") -> str:
    """Return the name of the module from which something can be imported, by its own name or another."""
    known = getattr(thing, "__module__", None)
    return str(known or pickle.whichmodule(thing, name or thing.__name__))  # type: ignore[attr-defined]


def _functions(thing: type | FunctionType) -> Iterator[FunctionType]:
    """Yield the Python functions of a definition, including inherited or assigned ones."""
    if isinstance(thing, FunctionType):
        yield inspect.unwrap(thing)
        return
    for each in vars(thing).values():
        inner = getattr(each, "__func__", None) or getattr(each, "fget", None) or each
        if isinstance(inner, FunctionType):
            yield inner


def _definition(
    text: str, name: str, line: int
) -> ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return the definition of `name` that contains a line of the text."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            first = min(each.lineno for each in (node, *node.decorator_list))
            if first <= line <= (node.end_lineno or first):
                return node
    return None


def _globals(code: CodeType) -> set[str]:
    """Return the global names that code uses."""
    own = {str(each.argval) for each in dis.get_instructions(code) if each.opname in _LOOKUPS}
    return own.union(*(_globals(each) for each in code.co_consts if isinstance(each, CodeType)))


def _paths(node: ast.AST, names: Mapping[str, Any]) -> Iterator[str]:
    """Yield submodules used by dotted name: ``scipy.special`` in ``scipy.special.erf(x)``."""
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute):
            top, *rest = ast.unparse(each).split(".")
            if isinstance(names.get(top), ModuleType) and names[top].__name__ == top:
                yield ".".join([top, *rest])
