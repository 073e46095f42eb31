"""JSON documents: read into dataclasses, and formatted for readable diffs."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import cattrs
from cattrs.strategies import use_class_methods

T = TypeVar("T")

# Squares of such floats, and their sums, are finite; seeds have 64 bits, and no count is larger.
_MOST: dict[type, float] = {float: 1e100, int: 2**64 - 1, bool: 1}


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(omit_if_default=True)
    # Classes that hold arrays define their own format.
    use_class_methods(converter, "from_json", "to_json")
    # cattrs would convert "1" to 1 and 0.5 to 0, which would hide damage.
    accepted: dict[type, tuple[type, ...]] = {str: (str,), int: (int,), float: (int, float), bool: (bool,)}
    for kind in accepted:
        converter.register_structure_hook(kind, lambda plain, kind: _checked(plain, kind, accepted[kind]))
    return converter


def _checked(plain: Any, kind: type, accepted: tuple[type, ...]) -> Any:
    if not isinstance(plain, accepted) or (isinstance(plain, bool) and kind is not bool):
        raise ValueError(f"{json.dumps(plain)[:40]} is not of type {kind.__name__}")
    if isinstance(plain, int | float) and not abs(plain) <= _MOST[kind]:  # rejects NaN too
        raise ValueError(f"{json.dumps(plain)[:40]} is too large, or not a number")
    return plain


_CONVERTER = _converter()


def structure(plain: Any, kind: type[T]) -> T:
    """Return a dataclass from nested plain values; unknown keys are ignored.

    `kind` may contain plain values, containers, dataclasses, and classes with `from_json` and `to_json`. A
    one-line ValueError is raised for a missing field, a value of another type, NaN, infinity, or a number
    that is too large.
    """
    try:
        return _CONVERTER.structure(plain, kind)
    except cattrs.BaseValidationError as error:
        message = cattrs.transform_error(error, "", _words)[0]
        raise ValueError(" ".join(message.split())[:300]) from error


def _words(error: BaseException, _kind: type | None) -> str:
    return f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)


def unstructure(value: object) -> Any:
    """Return the plain values of a dataclass, without fields that have their default."""
    return _CONVERTER.unstructure(value)


def as_text(value: Any, *, lists_apart: bool = False, indent: str = "") -> str:
    """Return JSON text whose floats are restored to the last bit.

    Nested mappings, and those of the first two levels, have one line per entry; others are on one line. With
    `lists_apart` each list of numbers has its own line instead. `indent` applies to all lines but the first.
    """
    deeper, nested = f"{indent} ", (dict, list, tuple) if lists_apart else (dict,)
    if isinstance(value, dict) and value and (len(indent) < 2 or _holds(value.values(), nested)):
        entries = [
            f"{deeper}{json.dumps(name)}: {as_text(each, lists_apart=lists_apart, indent=deeper)}"
            for name, each in value.items()
        ]
        return "{\n" + ",\n".join(entries) + f"\n{indent}}}"
    if isinstance(value, list | tuple) and _holds(value, (dict,)):
        entries = [deeper + as_text(each, lists_apart=lists_apart, indent=deeper) for each in value]
        return "[\n" + ",\n".join(entries) + f"\n{indent}]"
    return json.dumps(value, separators=(",", ":") if isinstance(value, list) else None)


def _holds(values: Any, kinds: tuple[type, ...]) -> bool:
    return any(isinstance(each, kinds) for each in values)
