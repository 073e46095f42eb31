"""Classes, functions and objects of a notebook or script, identified by a hash of all that they use.

Pickles differ between sessions. The hash covers the compiled code of definitions, the globals and enclosing
variables that they use, and attributes; it is the same in every session with the same version of Python.
"""

from __future__ import annotations

import dis
import hashlib
import pickle
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any

from ..errors import UserError, one_line
from .code import (
    MAIN,
    ByValue,
    Code,
    by_value,
    has_name,
    imported,
    is_importable,
    is_users,
)

_LOOKUPS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_GLOBALS"}
_DESCRIPTORS = types.MemberDescriptorType | types.GetSetDescriptorType


def code_of(thing: object) -> Code:
    """Return the code of a class, a function or an object of this session, without running any of it.

    It is taken in its current state. A UserError is raised if it cannot be hashed or pickled.
    """
    kind = thing if isinstance(thing, type | types.FunctionType) else type(thing)
    name = kind.__name__
    hashed = _Hash()
    try:
        hashed.dump(thing)
    except Exception as error:
        raise UserError(f"{name}: it cannot be sent to a worker process ({one_line(error)})") from error
    pickled = by_value(thing, imported(hashed.imports), name)
    address = f"{getattr(kind, '__module__', None) or MAIN}:{name}"
    return Code(address, name, hashed.sha.hexdigest(), pickled=pickled)


def _part(*_: object) -> object:
    """Stand for an object that `_Hash` takes apart."""
    raise NotImplementedError


class _Hash(pickle._Pickler):  # the one in C cannot replace `memoize`
    """A pickle as input of a hash; it is never loaded."""

    dispatch_table = ByValue.dispatch_table

    def __init__(self) -> None:
        self.sha = hashlib.sha256()
        self.imports: set[str] = set()
        super().__init__(types.SimpleNamespace(write=self.sha.update), protocol=4)

    def memoize(self, obj: Any) -> None:
        # Python may share equal constants in one session and not in another.
        if not isinstance(obj, str | bytes | tuple | frozenset):
            super().memoize(obj)  # type: ignore[misc]

    def reducer_override(self, obj: Any) -> Any:
        """Take apart what pickle would refer to by name, or what differs between sessions.

        The third item of the result is saved when the object is known already, so that it may refer to it.
        """
        import torch

        if isinstance(obj, type | types.FunctionType):
            if is_importable(obj):
                return NotImplemented
            content = self._of_class(obj) if isinstance(obj, type) else self._of_function(obj)
            return _part, (type(obj).__name__, obj.__qualname__), content
        if isinstance(obj, types.CodeType):
            return _part, _definition(obj)
        if isinstance(obj, types.ModuleType):
            content = {name: vars(obj)[name] for name in sorted(vars(obj)) if name[:2] != "__"}
            self.imports.add(obj.__name__)
            return _part, ("module", obj.__name__), None if has_name(obj) else content
        if isinstance(obj, set | frozenset):
            return _part, (type(obj).__name__,), sorted(obj, key=_order)
        if isinstance(obj, torch.nn.Module):
            empty = vars(torch.nn.Module())  # attributes of every module, others in each version of torch
            names = [name for name in vars(obj) if name not in empty or empty[name] != vars(obj)[name]]
            return _part, (type(obj),), {name: vars(obj)[name] for name in names}
        if isinstance(obj, typing.TypeVar):
            return _part, ("TypeVar", obj.__name__)
        if type(obj) in (torch.Tensor, torch.nn.Parameter) and obj.layout == torch.strided:
            return NotImplemented if obj.is_quantized else (_part, _numbers(obj))
        return NotImplemented

    def _of_class(self, kind: type) -> Any:
        module = kind.__module__
        if not _is_of_session(module):
            return module
        members = {}
        for name, value in sorted(vars(kind).items()):
            is_made_by_python = name[:2] == "__" and not (callable(value) or hasattr(value, "__get__"))
            if not is_made_by_python and name != "_abc_impl" and not isinstance(value, _DESCRIPTORS):
                members[name] = value
        return [type(kind), kind.__bases__, members]

    def _of_function(self, function: types.FunctionType) -> Any:
        cells = [cell for cell in function.__closure__ or () if cell != types.CellType()]  # no empty ones
        attributes = {key: value for key, value in vars(function).items() if key != "__wrapped__"}
        content: list[Any] = [function.__code__, function.__defaults__, function.__kwdefaults__, attributes]
        content += [cell.cell_contents for cell in cells]
        module_values = function.__globals__
        if _is_of_session(module_values.get("__name__", MAIN)):  # otherwise a decorator made it
            names, imports = set[str](), set[str]()
            for code in _with_inner(function.__code__):
                for instruction in dis.get_instructions(code):
                    if instruction.opname in _LOOKUPS:
                        names.add(str(instruction.argval))
                    elif instruction.opname == "IMPORT_NAME":
                        imports.add(str(instruction.argval))
            self.imports |= imports
            content.append(list(imported(imports).values()))
            used = [name for name in sorted(names) if name in module_values and name[:2] != "__"]
            content.append({name: module_values[name] for name in used})
        return content


def _order(item: Any) -> str:
    """Return a key that sorts the items of a set; a class in it may refer to the set."""
    if isinstance(item, type):
        return item.__qualname__
    hashed = _Hash()
    hashed.dump(item.__code__ if isinstance(item, types.FunctionType) else item)
    return hashed.sha.hexdigest()


def _is_of_session(module: str) -> bool:
    loaded = sys.modules.get(module)
    return module == MAIN or loaded is None or is_users(loaded)


def _with_inner(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _with_inner(constant)


def _definition(code: types.CodeType) -> tuple[Any, ...]:
    """Return compiled code without file names and line numbers."""
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
    return ("code", code.co_name, code.co_code, code.co_consts, names, counts, code.co_exceptiontable)


def _numbers(tensor: Any) -> tuple[Any, ...]:
    import torch

    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    content = plain.reshape(-1).view(torch.uint8).numpy().tobytes()
    return (type(tensor).__name__, str(plain.dtype), tuple(plain.shape), tensor.requires_grad, content)
