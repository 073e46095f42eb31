"""Plug-ins: rules from outside the package, found by an address and reconstructed in other processes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sdp_ref.errors import not_found, on_one_line
from sdp_ref.registry import installed
from sdp_ref.rules import Propagator, parse_parameters

from .. import identity
from ..errors import UserError, one_line
from ..executors.local import in_separate_process
from ..text import public
from . import code
from .code import MAIN, Code, no_exit

ENTRY_POINTS = "sdp_bench.rules"
"""Entry-point group in which an installed package registers its rules."""

_NAME = re.compile(r"[A-Za-z_][\w.\-]*(:[\w.\-]+=[^,]*(,[\w.\-]+=[^,]*)*)?")


@dataclass(frozen=True)
class Plugin:
    """A rule from outside the package.

    `name` is the spec under which it is stored: its ``spec`` if it has one, else its ``name``. `version` is
    the hash of its source, the user's modules that it imports and its options, 16 hexadecimal digits, and
    `options` are its parameters as text, ``order=3``. `pickled` is its class or object, for workers; a rule
    from stored results has none.
    """

    name: str
    address: str
    version: str
    options: str = ""
    pickled: bytes = field(default=b"", repr=False, compare=False)

    @classmethod
    def of(cls, code: Code, options: str = "") -> Plugin:
        """Return a plug-in without a name from its code."""
        version = identity.digest(code.source, code.modules, code.attribute, options)[:16]
        return cls("", code.address, version, options, code.pickled)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Plugin:
        """Return a plug-in of stored results; invalid fields raise KeyError, TypeError or ValueError.

        Older versions stored its source, which is ignored.
        """
        address = plain["code"]["address"] if "code" in plain else plain["address"]
        return cls(plain["name"], address, plain.get("version", ""), plain["options"])

    def as_json(self) -> dict[str, Any]:
        """Return what results hold of it, without code and folders."""
        fields = {"name": self.name, "address": public(self.address), "version": self.version}
        return fields | {"kind": "rule", "options": self.options}

    @property
    def is_of_notebook(self) -> bool:
        """Whether it was defined in a notebook or script, so that no address leads to it."""
        return self.address.startswith(f"{MAIN}:")

    def load(self) -> Any:
        """Construct the rule in this process, once; a UserError if code or options are invalid."""
        loaded = code.load(self.address, self.pickled)
        if self not in _rules:
            _rules[self] = self._make(loaded)
        return _rules[self]

    def _make(self, loaded: Any) -> Any:
        """Construct the rule from the class, function or object at the address."""
        try:
            options = parse_parameters(self.address, self.options) if self.options else {}
        except ValueError as error:
            raise UserError(str(error)) from error
        try:
            is_rule = not isinstance(loaded, type) and hasattr(loaded, "name")
            if not is_rule and callable(loaded):
                with no_exit():
                    return loaded(**options)
        except Exception as error:
            raise UserError(f"{self.address}: cannot make the rule: {one_line(error)}") from error
        if is_rule and not options:
            return loaded
        reason = "is a rule and takes no parameters" if is_rule else "is neither a rule nor makes one"
        raise UserError(f"{self.address}: it {reason}")


_rules: dict[Plugin, Any] = {}


def find(address: str, reserved: Collection[str], others: Collection[str] = ()) -> Plugin:
    """Find the rule at an address; its code runs in a separate process.

    `address` is ``path/to/my_rule.py:MyRule``, ``package.module:MyRule``, or the name of an entry point,
    optionally followed by ``:key=value,...``. `MyRule` is a class, a function that returns an object, or the
    object itself. Its name must not be one of `reserved`; messages suggest these names and `others`.
    A UserError is raised if no rule is found, and a RunFailedError if the code ends its process or exceeds
    its time limit.
    """
    location, attribute, options = located(address, (*reserved, *others))
    plugin = in_separate_process(_load, location, attribute, address, options, address=address)
    return _checked(plugin, reserved)


def located(address: str, others: Collection[str] = ()) -> tuple[str, str, str]:
    """Return the file or module, the name of the rule there, and the options of an address.

    A UserError is raised if the address is malformed or names no entry point; it suggests these and `others`.
    """
    location, _, rest = address.partition(":")
    attribute, _, options = rest.partition(":")
    if "=" in attribute:
        attribute, options = "", attribute
    if not location.endswith(".py") and not attribute:
        points = installed(ENTRY_POINTS)
        if location not in points:
            hint = ", or name your own as path/to/rule.py:MyClass or package.module:MyClass"
            raise UserError(not_found("rule", location, (*others, *points), hint))
        location, attribute = points[location].module, points[location].attr
    if not attribute:
        raise UserError(f"'{address}' names a file and no rule in it; write {location}:MyClass")
    if not attribute.isidentifier():
        raise UserError(f"'{attribute}' in '{address}' is no name of a class or object")
    return location, attribute, options


def of(code: Code, reserved: Collection[str]) -> Plugin:
    """Return the plug-in of code that was already found; errors as in `find`."""
    plugin = in_separate_process(_named, Plugin.of(code), address=code.address)
    return _checked(plugin, reserved)


def _checked(plugin: Plugin, reserved: Collection[str]) -> Plugin:
    """Return the plug-in if its name is valid in records."""
    name, address = plugin.name, plugin.address
    if not (_NAME.fullmatch(name) and name.isprintable()):
        raise UserError(f"{address}: a rule's name is one word such as 'second_order', got {name!r}")
    if name.partition(":")[0] in reserved:
        raise UserError(f"{address}: '{name}' is the name of a built-in rule; choose another")
    return plugin


def _load(location: str, attribute: str, address: str, options: str) -> Plugin:
    """Find the plug-in's code and run it in this process."""
    return _named(Plugin.of(code.find(location, attribute, address), options))


def _named(plugin: Plugin) -> Plugin:
    """Run the plug-in's code in this process and set the name that it declares."""
    address, loaded = plugin.address, plugin.load()
    try:
        name = getattr(loaded, "name", None) if isinstance(loaded, Propagator) else None
        is_rule = isinstance(name, str)
        spec = str(getattr(loaded, "spec", name)) if is_rule else repr(loaded)
    except Exception as error:
        raise UserError(f"{address}: the rule's name cannot be read: {one_line(error)}") from error
    if not is_rule:  # repr of a net has several lines
        raise UserError(f"{address}: a rule has a name and propagate(net, x), {on_one_line(spec)} has not")
    return replace(plugin, name=spec)


def plugin_of(spec: str, plugins: Iterable[Plugin]) -> Plugin | None:
    """Return the plug-in with this name, or None."""
    return next((plugin for plugin in plugins if plugin.name == spec), None)
