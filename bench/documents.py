"""JSON documents, formatted for readable diffs."""

from __future__ import annotations

import json
from typing import Any


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
