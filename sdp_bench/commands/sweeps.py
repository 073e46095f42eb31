"""Rules as a list of them is written, where a parameter may have several values: ``samples={10,100}``."""

from __future__ import annotations

import itertools
import math
import re

MOST = 1000
"""Rules that one spec may stand for."""

_LIST = re.compile(r"=\s*\{([^{}]*)\}\s*(?=,|$)")
_STRAY = re.compile(r"(?<![^,:])([^,:=]*)=([^,]*[{}][^,]*)")
_INNER = "\0"  # in the place of a comma in braces; no text that comes here has it


def specs_of(text: str) -> tuple[str, ...]:
    """Specs of rules, separated by commas; a part with '=' and no ':' goes on with the spec before it.

    Parameters
    ----------
    text : str
        ``sdp,monte_carlo:samples={10,100}``. A list in braces in the place of a parameter's value stands for
        a rule with each of them, and several such lists for every combination, the last one's changing first.

    Returns
    -------
    tuple of str
        One rule each, without braces.

    Raises
    ------
    ValueError
        If braces are written otherwise, a list lacks a value, or a spec stands for more than `MOST` rules.
    """
    specs: list[str] = []
    for part in _LIST.sub(lambda found: found[0].replace(",", _INNER), text).split(","):
        if "=" in part and ":" not in part and specs:
            specs[-1] += f",{part}"
        else:
            specs.append(part.strip())
    return tuple(each for spec in specs for each in _expanded(spec.replace(_INNER, ",")))


def _expanded(spec: str) -> list[str]:
    """Specs that one stands for."""
    if stray := _STRAY.search(_LIST.sub("=", spec)):
        raise ValueError(
            f"'{spec}': the values of '{stray[1].strip()}' are written in one pair of braces and nothing "
            f"beside it, {stray[1].strip()}={{10,100}} say"
        )
    texts = _LIST.split(spec)  # what stands between lists, and every other one a list's inside
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
