"""Plug-ins: rules from outside the package, found by an address and reconstructed in other processes."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sdp_bench.bench import identity
from sdp_bench.bench.errors import UserError, one_line
from sdp_bench.bench.executors.local import apart
from sdp_bench.bench.plugins import code
from sdp_bench.bench.plugins.code import Code, no_exit
from sdp_ref.errors import not_found, on_one_line
from sdp_ref.registry import installed
from sdp_ref.rules import Propagator, parse_parameters

ENTRY_POINTS = "sdp_bench.rules"
"""Entry-point group in which an installed package registers its rules."""

_NAME = re.compile(r"[A-Za-z_][\w.\-]*(:[\w.\-]+=[^,]*(,[\w.\-]+=[^,]*)*)?")


@dataclass(frozen=True)
class Plugin:
    """A rule from outside the package, with everything that another process needs to construct it."""

    name: str  # spec under which it is stored: its ``spec`` if it has one, else its ``name``
    code: Code
    options: str = ""  # parameters as text, ``order=3``

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Plugin:
        """Return an untrusted plug-in from JSON; invalid fields raise KeyError, TypeError or ValueError."""
        return cls(plain["name"], Code.from_json(plain["code"]), plain["options"])

    def as_json(self) -> dict[str, Any]:
        """Inverse of `from_json`, without trust and folders."""
        return {"name": self.name, "kind": "rule", "code": self.code.as_json(), "options": self.options}

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
            _made[self] = self._make(self.code.load())
        else:
            self.code.activate()
        return _made[self]

    def _make(self, found: Any) -> Any:
        """Construct the rule from the class, function or object at the address."""
        try:
            options = parse_parameters(self.address, self.options) if self.options else {}
        except ValueError as error:
            raise UserError(str(error)) from error
        try:
            is_made = not isinstance(found, type) and hasattr(found, "name")
            if not is_made and callable(found):
                with no_exit():
                    return found(**options)
        except Exception as error:
            raise UserError(f"{self.address}: cannot make the rule: {one_line(error)}") from error
        if is_made and not options:
            return found
        reason = "is a rule and takes no parameters" if is_made else "is neither a rule nor makes one"
        raise UserError(f"{self.address}: {self.code.attribute} {reason}")


_made: dict[Plugin, Any] = {}


def find(address: str, reserved: Collection[str], others: Collection[str] = ()) -> Plugin:
    """Find the rule at an address; its code runs in a separate process.

    `address` is ``path/to/my_rule.py:MyRule``, ``package.module:MyRule``, or the name of an entry point,
    optionally followed by ``:key=value,...``. `MyRule` is a class, a function that returns an object, or the
    object itself. Its name must not be one of `reserved`; messages suggest these names and `others`.
    A UserError is raised if no rule is found, and a RunFailedError if the code ends its process or exceeds
    its time limit.
    """
    place, _, rest = address.partition(":")
    attribute, _, options = rest.partition(":")
    if "=" in attribute:
        attribute, options = "", attribute
    if not place.endswith(".py") and not attribute:
        points = installed(ENTRY_POINTS)
        if place not in points:
            own = ", or name your own as path/to/rule.py:MyClass or package.module:MyClass"
            raise UserError(not_found("rule", place, (*reserved, *others, *points), own))
        place, attribute = points[place].module, points[place].attr
    if not attribute:
        raise UserError(f"'{address}' names a file and no rule in it; write {place}:MyClass")
    if not attribute.isidentifier():
        raise UserError(f"'{attribute}' in '{address}' is no name of a class or object")
    return _checked(apart(_found, place, attribute, address, options, address=address), reserved)


def of(found: Code, reserved: Collection[str]) -> Plugin:
    """Return the plug-in of code that was already found; errors as in `find`."""
    return _checked(apart(_named, Plugin("", found), address=found.address), reserved)


def _checked(plugin: Plugin, reserved: Collection[str]) -> Plugin:
    """Return the plug-in if its name is valid in records."""
    name, address = plugin.name, plugin.address
    if not (_NAME.fullmatch(name) and name.isprintable()):
        raise UserError(f"{address}: a rule's name is one word such as 'second_order', got {name!r}")
    if name.partition(":")[0] in reserved:
        raise UserError(f"{address}: '{name}' is the name of a built-in rule; choose another")
    return plugin


def _found(place: str, attribute: str, address: str, options: str) -> Plugin:
    """Find the plug-in's code and run it in this process."""
    return _named(Plugin("", code.find(place, attribute, address), options))


def _named(plugin: Plugin) -> Plugin:
    """Run the plug-in's code in this process and set the name that it declares."""
    address, made = plugin.address, plugin.load()
    try:
        own = getattr(made, "name", None) if isinstance(made, Propagator) else None
        is_one = isinstance(own, str)
        name = str(getattr(made, "spec", own)) if is_one else repr(made)
    except Exception as error:
        raise UserError(f"{address}: the rule's name cannot be read: {one_line(error)}") from error
    if not is_one:  # repr of a net has several lines
        raise UserError(f"{address}: a rule has a name and propagate(net, x), {on_one_line(name)} has not")
    return replace(plugin, name=name)


def plugin_of(spec: str, plugins: Iterable[Plugin]) -> Plugin | None:
    """Return the plug-in with this name, or None."""
    return next((plugin for plugin in plugins if plugin.name == spec), None)
