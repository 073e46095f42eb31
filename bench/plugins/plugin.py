"""Plug-ins: rules, metrics and other objects found by an address, and reconstructed in other processes."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from sdp_bench.bench import identity
from sdp_bench.bench.errors import UserError, one_line
from sdp_bench.bench.executors.local import apart
from sdp_bench.bench.plugins import code
from sdp_bench.bench.plugins.code import Code, no_exit
from sdp_ref.errors import not_found, on_one_line
from sdp_ref.registry import installed
from sdp_ref.rules import parse_parameters

_NAME = re.compile(r"[A-Za-z_][\w.\-]*(:[\w.\-]+=[^,]*(,[\w.\-]+=[^,]*)*)?")

T = TypeVar("T")


@dataclass(frozen=True)
class Kind(Generic[T]):
    """A kind of object that plug-ins can provide."""

    noun: str  # ``rule``, for messages and to identify the kind
    group: str  # entry points by which installed packages register such objects
    type: type[T]  # class or protocol of the objects, which all have a ``name``
    needs: str  # the requirements in words: ``a name and propagate(net, x)``
    built_in: Callable[[], Collection[str]]  # returns the reserved names
    others: Callable[[], Collection[str]] = tuple  # returns names that stand for addresses, for messages


@dataclass(frozen=True)
class Plugin:
    """An object from outside the package, with everything that another process needs to construct it."""

    name: str  # spec under which it is stored: its ``spec`` if it has one, else its ``name``
    kind: str  # noun of its `Kind`
    code: Code
    options: str = ""  # parameters as text, ``order=3``

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Plugin:
        """Return an untrusted plug-in from JSON; invalid fields raise KeyError, TypeError or ValueError."""
        return cls(plain["name"], plain["kind"], Code.from_json(plain["code"]), plain["options"])

    def as_json(self) -> dict[str, Any]:
        """Inverse of `from_json`, without trust and folders."""
        return {"name": self.name, "kind": self.kind, "code": self.code.as_json(), "options": self.options}

    def as_trusted(self) -> Plugin:
        """Return a copy whose code may be run, because the user trusts its origin."""
        return replace(self, code=self.code.as_trusted())

    @property
    def address(self) -> str:
        return self.code.address

    @functools.cached_property
    def version(self) -> str:
        """Hash of its source, that of its own modules and its options, 16 hexadecimal digits.

        A UserError is raised if it has no Python source, since a change could not be noticed.
        """
        code = self.code
        if not code.source:
            raise UserError(f"{self.address}: there is no Python source of it, so a change cannot be noticed")
        return identity.digest(code.source, code.modules, code.attribute, self.options)[:16]

    def load(self) -> Any:
        """Construct the object in this process, once; a UserError if code or options are invalid."""
        if self not in _made:
            _made[self] = _make(self, self.code.load())
        else:
            self.code.activate()
        return _made[self]


def load(address: str, kind: Kind[T]) -> T:
    """Return the object at an address, constructed in this process; see `find`."""
    made: T = find(address, kind).load()
    return made


def find(address: str, kind: Kind[T]) -> Plugin:
    """Find the plug-in at an address; its code runs in a separate process.

    `address` is ``path/to/my_rule.py:MyRule``, ``package.module:MyRule``, or the name of an entry point in
    the kind's group, optionally followed by ``:key=value,...``. `MyRule` is a class, a function that returns
    an object, or the object itself. A UserError is raised if nothing of this kind is found, and a
    RunFailedError if the code ends its process or exceeds its time limit.
    """
    place, _, rest = address.partition(":")
    attribute, _, options = rest.partition(":")
    if "=" in attribute:
        attribute, options = "", attribute
    if not place.endswith(".py") and not attribute:
        place, attribute = _entry_point(place, kind)
    if not attribute:
        raise UserError(f"'{address}' names a file and no {kind.noun} in it; write {place}:MyClass")
    if not attribute.isidentifier():
        raise UserError(f"'{attribute}' in '{address}' is no name of a class or object")
    plugin = apart(
        _found, place, attribute, address, kind.noun, options, kind.type, kind.needs, address=address
    )
    return _checked(plugin, kind)


def of(found: Code, kind: Kind[T]) -> Plugin:
    """Return the plug-in of code that was already found; errors as in `find`."""
    plugin = Plugin("", kind.noun, found)
    return _checked(apart(_named, plugin, kind.type, kind.needs, address=found.address), kind)


def _checked(plugin: Plugin, kind: Kind[Any]) -> Plugin:
    """Return the plug-in if its name is valid in records."""
    name, address = plugin.name, plugin.address
    if not (_NAME.fullmatch(name) and name.isprintable()):
        raise UserError(f"{address}: a {kind.noun}'s name is one word such as 'second_order', got {name!r}")
    if name.partition(":")[0] in kind.built_in():
        raise UserError(f"{address}: '{name}' is the name of a built-in {kind.noun}; choose another")
    return plugin


def _found(
    place: str, attribute: str, address: str, noun: str, options: str, needed: type, needs: str
) -> Plugin:
    """Find the plug-in's code and run it in this process."""
    return _named(Plugin("", noun, code.find(place, attribute, address), options), needed, needs)


def _named(plugin: Plugin, needed: type, needs: str) -> Plugin:
    """Run the plug-in's code in this process and set the name that it declares."""
    noun, address = plugin.kind, plugin.address
    made = plugin.load()
    try:
        own = getattr(made, "name", None) if isinstance(made, needed) else None
        is_one = isinstance(own, str)
        name = str(getattr(made, "spec", own)) if is_one else repr(made)
    except Exception as error:
        raise UserError(f"{address}: the {noun}'s name cannot be read: {one_line(error)}") from error
    if not is_one:
        raise UserError(
            f"{address}: a {noun} has {needs}, {on_one_line(name)} has not"
        )  # repr of a net has several lines
    return replace(plugin, name=name)


def plugin_of(spec: str, plugins: Iterable[Plugin], kind: str = "rule") -> Plugin | None:
    """Return the plug-in with this name and kind, or None."""
    return next((plugin for plugin in plugins if (plugin.name, plugin.kind) == (spec, kind)), None)


def _entry_point(name: str, kind: Kind[Any]) -> tuple[str, str]:
    points = installed(kind.group)
    if name not in points:
        known = (*kind.built_in(), *kind.others(), *points)
        own = f", or name your own as path/to/{kind.noun}.py:MyClass or package.module:MyClass"
        raise UserError(not_found(kind.noun, name, known, own))
    return points[name].module, points[name].attr


_made: dict[Plugin, Any] = {}


def _make(plugin: Plugin, found: Any) -> Any:
    """Construct the object of a plug-in from the class, function or object at its address."""
    address, noun, attribute = plugin.address, plugin.kind, plugin.code.attribute
    try:
        options = parse_parameters(address, plugin.options) if plugin.options else {}
    except ValueError as error:
        raise UserError(str(error)) from error
    try:
        is_made = not isinstance(found, type) and hasattr(found, "name")
        if not is_made and callable(found):
            with no_exit():
                return found(**options)
    except Exception as error:
        raise UserError(f"{address}: cannot make the {noun}: {one_line(error)}") from error
    if not is_made:
        raise UserError(f"{address}: {attribute} is neither a {noun} nor makes one")
    if options:
        raise UserError(f"{address}: {attribute} is a {noun} already and takes no parameters")
    return found
