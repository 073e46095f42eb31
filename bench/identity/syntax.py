"""Functions as text, without what changes nothing; every name that leads out of one is a reference."""

from __future__ import annotations

import ast
import collections
import functools
import itertools
import linecache
import types
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_IGNORED = ("ctx", "annotation", "returns", "type_comment", "type_params", "kind")
"""Fields of syntax trees that change no number."""


@dataclass(frozen=True)
class Import:
    """What an import binds: a module, or an attribute of one."""

    module: str
    attribute: str = ""
    level: int = 0

    @property
    def dotted(self) -> str:
        """Name of what it gives."""
        return f"{self.module}.{self.attribute}" if self.attribute else self.module

    def value(self, names: Mapping[str, Any]) -> Any:
        """What it gives in a module of these global names, whose own ``__import__`` counts."""
        builtins = names.get("__builtins__", {})
        make = builtins["__import__"] if isinstance(builtins, dict) else builtins.__import__
        # With a list of names the module itself comes back, and not the package that it is in.
        module = make(self.module, names, None, (self.attribute or "__name__",), self.level)
        return getattr(module, self.attribute) if self.attribute else module


@dataclass(frozen=True)
class Reference:
    """A name that is not local, or that an import in the function binds, and the attributes taken of it."""

    name: str
    attributes: tuple[str, ...]
    source: Import | None


@dataclass(frozen=True)
class Template:
    """A function as text and references.

    Attributes
    ----------
    body : tuple of (str or Reference)
        Its arguments and its body.
    decorators : tuple of (str or Reference)
    attributes : tuple of str
        Names of attributes that it may take of something: also as strings, which `getattr` takes.
    imports : mapping of str to Import
        Of its module.
    """

    body: tuple[str | Reference, ...]
    decorators: tuple[str | Reference, ...]
    attributes: tuple[str, ...]
    imports: Mapping[str, Import]


_templates: dict[tuple[str, types.CodeType], Template] = {}


def template(function: types.FunctionType) -> Template:
    """Function as text and references; its module is parsed once a process.

    Returns
    -------
    Template
        Equal for functions that are written alike, names of what they use apart.

    Raises
    ------
    ValueError
        If there is no source, neither a file nor one that :mod:`linecache` was given.
    """
    key = function.__code__.co_filename, function.__code__  # which compare equal whatever file they are of
    if key not in _templates:
        node, imports = _definition(function)
        body, decorators = _Writer(), _Writer()
        body.function(node)
        decorators.write(getattr(node, "decorator_list", []))
        attributes = tuple(body.attributes | decorators.attributes)
        _templates[key] = Template(tuple(body.parts), tuple(decorators.parts), attributes, imports)
    return _templates[key]


def _definition(function: types.FunctionType) -> tuple[Function, Mapping[str, Import]]:
    code = function.__code__
    source = "".join(linecache.getlines(code.co_filename, function.__globals__))
    try:
        file = _parsed(source)
        nodes = file.functions[code.co_firstlineno, code.co_name]
    except (SyntaxError, KeyError):
        nodes = []
    if len(nodes) > 1:  # lambdas on one line, outer ones first
        nodes = [node for node in nodes if _contains(node, code)]
    if not nodes:
        name = f"{function.__module__}.{function.__qualname__}"
        raise ValueError(f"there is no source of {name} ({code.co_filename}): it has no fingerprint")
    return nodes[-1], file.imports


def _contains(node: Function, code: types.CodeType) -> bool:
    """Whether all instructions of a code lie within a function's text."""
    begin, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
    return all(
        begin <= (line, column) and (end_line, end_column) <= end
        for line, end_line, column, end_column in code.co_positions()
        if end_column  # those without one stand for no text
    )


@dataclass(frozen=True)
class _File:
    """Functions of a file by line (of their first decorator) and name, and what its imports bind."""

    functions: Mapping[tuple[int, str], list[Function]]
    imports: Mapping[str, Import]


@functools.cache
def _parsed(source: str) -> _File:
    tree = ast.parse(source)
    functions: dict[tuple[int, str], list[Function]] = collections.defaultdict(list)
    for node in ast.walk(tree):
        if isinstance(node, Function):
            lines = [node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))]
            functions[min(lines), getattr(node, "name", "<lambda>")].append(node)
    names = _Names()
    names.visit(tree)
    return _File(dict(functions), names.imports)


def imports_of(names: Mapping[str, Any]) -> Mapping[str, Import]:
    """What the imports of a module with these global names bind."""
    lines = linecache.getlines(names.get("__file__") or "", dict(names))
    return _parsed("".join(lines)).imports


class _Names(ast.NodeVisitor):
    """Names that a scope binds, with those that its imports do; scopes within it are not looked into."""

    def __init__(self, *arguments: str) -> None:
        self.bound = collections.Counter(arguments)
        self.imports: dict[str, Import] = {}
        self.outer: set[str] = set()

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.bound[node.id] += 1

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._bind(alias.asname or alias.name.partition(".")[0], _import_of(node, alias))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self._bind(alias.asname or alias.name, _import_of(node, alias))

    def _bind(self, name: str, source: Import) -> None:
        self.bound[name] += 1
        self.imports[name] = source

    def generic_visit(self, node: ast.AST) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self.bound[node.name] += 1
                return
            case ast.Lambda():
                return
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                assigned = (n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr))
                self.bound.update(assigned)
                return
            case ast.If() if _is_type_checking(node.test):
                for statement in node.orelse:
                    self.visit(statement)
                return
            case ast.Global() | ast.Nonlocal():
                self.outer.update(node.names)
            case ast.ExceptHandler() | ast.MatchAs() | ast.MatchStar() if node.name:
                self.bound[node.name] += 1
            case ast.MatchMapping() if node.rest:
                self.bound[node.rest] += 1
        super().generic_visit(node)


def _import_of(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> Import:
    if isinstance(node, ast.ImportFrom):
        return Import(node.module or "", alias.name, node.level)
    return Import(alias.name if alias.asname else alias.name.partition(".")[0])


def _is_type_checking(test: ast.expr) -> bool:
    return getattr(test, "id", getattr(test, "attr", "")) == "TYPE_CHECKING"


@dataclass(frozen=True)
class _Scope:
    """Local names of a function, class or comprehension; those that one import binds are known by it."""

    local: frozenset[str]
    imports: Mapping[str, Import]
    is_class: bool = False

    @classmethod
    def of(cls, body: Iterable[ast.AST], *arguments: str, is_class: bool = False) -> _Scope:
        names = _Names(*arguments)
        for node in body:
            names.visit(node)
        single = {name: source for name, source in names.imports.items() if names.bound[name] == 1}
        return cls(frozenset(names.bound) - names.outer, single, is_class)


class _Writer:
    """Writes a syntax tree as text and references, without what changes nothing."""

    def __init__(self) -> None:
        self.parts: list[str | Reference] = []
        self.attributes: dict[str, None] = {}  # a set in the order of the text
        self._scopes: list[_Scope] = []

    def write(self, value: object) -> None:
        """Write a node, a list of nodes or a plain value."""
        if isinstance(value, list):
            self.parts.append("[")
            for item in value:
                self.write(item)
            self.parts.append("]")
        elif isinstance(value, ast.AST):
            getattr(self, f"_{type(value).__name__}", self._node)(value)
        else:
            self.parts.append(repr(value))

    def function(self, node: Function) -> None:
        """Write a function without its name, its decorators and the values of its defaults."""
        kinds = (node.args.posonlyargs, node.args.args, node.args.kwonlyargs)
        arguments = [[argument.arg for argument in arguments] for arguments in kinds]
        arguments += [[x.arg] if x else [] for x in (node.args.vararg, node.args.kwarg)]
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        self.parts.append(f"{type(node).__name__}({arguments}")
        with self._scope(_Scope.of(body, *itertools.chain(*arguments))):
            self.write(body)
        self.parts.append(")")

    @contextmanager
    def _scope(self, scope: _Scope) -> Iterator[None]:
        self._scopes.append(scope)
        yield
        self._scopes.pop()

    def _node(self, node: ast.AST) -> None:
        self.parts.append(f"{type(node).__name__}(")
        for field, value in ast.iter_fields(node):
            if field not in _IGNORED and value is not None and value != []:
                self.parts.append(f"{field}=")
                self.write(value)
        self.parts.append(")")

    def _Constant(self, node: ast.Constant) -> None:  # noqa: N802
        self.parts.append(f"Constant({node.value!r})")
        if isinstance(node.value, str) and node.value.isidentifier():
            self.attributes[node.value] = None

    def _MatchClass(self, node: ast.MatchClass) -> None:  # noqa: N802
        self.attributes |= dict.fromkeys(node.kwd_attrs)
        self._node(node)

    def _Name(self, node: ast.Name) -> None:  # noqa: N802
        self._reference(node.id, (), is_read=isinstance(node.ctx, ast.Load))

    def _Attribute(self, node: ast.Attribute) -> None:  # noqa: N802
        base: ast.expr = node
        attributes: list[str] = []
        while isinstance(base, ast.Attribute):
            attributes.insert(0, base.attr)
            base = base.value
        self.attributes |= dict.fromkeys(attributes)
        if isinstance(base, ast.Name):
            self._reference(base.id, tuple(attributes))
        else:
            self._node(node)

    def _reference(self, name: str, attributes: tuple[str, ...], *, is_read: bool = True) -> None:
        source: Import | None = None
        for depth, scope in enumerate(reversed(self._scopes)):
            if scope.is_class and depth:
                continue  # functions in a class do not see its names
            if name in scope.local:
                source = scope.imports.get(name)
                is_read = is_read and source is not None
                break
        # In brackets: a name next to another is not one longer name.
        self.parts.append("Name(")
        self.parts.append(Reference(name, attributes, source) if is_read else ".".join((name, *attributes)))
        self.parts.append(")")

    def _FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:  # noqa: N802
        self.parts.append(f"def {node.name}")
        self.write([*node.decorator_list, *node.args.defaults, *node.args.kw_defaults])
        self.function(node)

    _AsyncFunctionDef = _FunctionDef

    def _Lambda(self, node: ast.Lambda) -> None:  # noqa: N802
        self.write([*node.args.defaults, *node.args.kw_defaults])
        self.function(node)

    def _ClassDef(self, node: ast.ClassDef) -> None:  # noqa: N802
        self.parts.append(f"class {node.name}")
        self.write([*node.decorator_list, *node.bases, *node.keywords])
        with self._scope(_Scope.of(node.body, is_class=True)):
            self.write(node.body)

    def _comprehension_of(self, node: Any) -> None:
        self.parts.append(f"{type(node).__name__}(")
        first = node.generators[0]
        self.write(first.iter)  # which is evaluated outside
        with self._scope(_Scope.of([g.target for g in node.generators])):
            self.write(first.target)
            self.write(first.ifs)
            self.write([first.is_async, *node.generators[1:]])
            self.write([node.key, node.value] if isinstance(node, ast.DictComp) else node.elt)
        self.parts.append(")")

    _ListComp = _SetComp = _DictComp = _GeneratorExp = _comprehension_of

    def _Expr(self, node: ast.Expr) -> None:  # noqa: N802
        if not isinstance(node.value, ast.Constant):  # a docstring, an ellipsis
            self._node(node)

    def _Pass(self, _node: ast.Pass) -> None:  # noqa: N802
        pass

    def _Raise(self, node: ast.Raise) -> None:  # noqa: N802
        # What an error says changes no number: its kind alone counts.
        self._node(ast.Raise(node.exc.func if isinstance(node.exc, ast.Call) else node.exc))

    def _Assert(self, node: ast.Assert) -> None:  # noqa: N802
        self._node(ast.Assert(node.test))

    def _AnnAssign(self, node: ast.AnnAssign) -> None:  # noqa: N802
        if self._scopes and self._scopes[-1].is_class:
            self._node(node)  # a field of a dataclass
        elif node.value is not None:
            self._node(ast.Assign([node.target], node.value))

    def _If(self, node: ast.If) -> None:  # noqa: N802
        if _is_type_checking(node.test):
            for statement in node.orelse:
                self.write(statement)
        else:
            self._node(node)

    def _Import(self, node: ast.Import | ast.ImportFrom) -> None:  # noqa: N802
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            if self._scopes and name not in self._scopes[-1].imports:  # bound here and elsewhere
                self.parts += [f"{name}=", Reference(name, (), _import_of(node, alias))]

    _ImportFrom = _Import
