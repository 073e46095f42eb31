"""Lists of rules, in which a parameter may have several values: ``samples={10,100}``."""

from __future__ import annotations

import itertools
import math
import re

MOST = 1000
"""Largest number of rules in one spec."""

_LIST = re.compile(r"=\s*\{([^{}]*)\}\s*(?=,|$)")
_STRAY = re.compile(r"(?<![^,:])([^,:=]*)=([^,]*[{}][^,]*)")
_INNER = "\0"  # replaces commas in braces; no text that arrives here contains it


def specs_of(text: str) -> tuple[str, ...]:
    """Return the specs in a text, without braces.

    Specs are separated by commas, as in ``sdp,monte_carlo:samples={10,100}``; a part with '=' and without ':'
    continues the previous spec. A list in braces as a parameter's value stands for a rule with each value,
    and several lists for all combinations, the last one varying fastest. Raises ValueError if braces are used
    in other ways, a list lacks a value, or a spec stands for more than `MOST` rules.
    """
    specs: list[str] = []
    for part in _LIST.sub(lambda found: found[0].replace(",", _INNER), text).split(","):
        if "=" in part and ":" not in part and specs:
            specs[-1] += f",{part}"
        else:
            specs.append(part.strip())
    return tuple(each for spec in specs for each in _expanded(spec.replace(_INNER, ",")))


def _expanded(spec: str) -> list[str]:
    if stray := _STRAY.search(_LIST.sub("=", spec)):
        raise ValueError(
            f"'{spec}': the values of '{stray[1].strip()}' must be one pair of braces, for example "
            f"{stray[1].strip()}={{10,100}}"
        )
    texts = _LIST.split(spec)  # texts between lists alternate with the contents of lists
    lists = [[value.strip() for value in inside.split(",")] for inside in texts[1::2]]
    if any(not value for values in lists for value in values):
        raise ValueError(f"'{spec}': a list in braces lacks a value")
    names = re.findall(r"(?<![^,:])\s*([^,:=]*?)\s*=", _LIST.sub("=", spec)) if lists else []
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"'{spec}': '{twice[0]}' is given twice")
    fixed = texts[::2]
    if (count := math.prod(map(len, lists))) > MOST:
        raise ValueError(f"'{fixed[0]}={{...}}' stands for {count} rules; write at most {MOST}")
    return [
        fixed[0] + "".join(f"={value}{after}" for value, after in zip(values, fixed[1:], strict=True))
        for values in itertools.product(*lists)
    ]
