"""Colours, markers and dashes of rules, the same in every figure, and the colours of light and dark pages."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...bench.text import printable, public
from .names import RuleTraits

LIGHT, DARK = "#fdfdfb", "#16191d"
"""Background of the page in either colour scheme, as in its style sheet."""

INK, QUIET, LINE = "#1f2328", "#626b75", "#d8dbdf"
"""Colours of text, small print and lines on the light page; the style sheet has those of the dark one."""

GREY = "#7d7d7d"
"""Colour of Monte Carlo and of samples of the truth."""

ORDERED = ("#2c728e", "#20a387", "#74b62c", "#b8a100", "#d97a00", "#c23b3b", "#8a2f7a", "#5b2be0")
"""Colours of noise levels, from small to large."""

CONTRAST = 3.0
"""Minimum contrast of graphics with the page (WCAG 2.2, 1.4.11)."""

_HEX = re.compile("#[0-9a-fA-F]{6}")
# For rules without a colour of their own: Tol's muted and vibrant schemes, safe for colour-blind readers.
_OTHERS = (
    "#882255",
    "#332288",
    "#117733",
    "#999933",
    "#aa4499",
    "#ee3377",
    "#44aa99",
    "#6699cc",
    "#994f00",
    "#5d3a9b",
    "#cc6677",
    "#5fae00",
)
_MARKERS = {
    **{"sdp": "o", "dvia": "s", "moment_matching": "D", "unscented": "P"},
    **{"marginal_sdp": "d", "marginal_moment_matching": "p"},
}
_OTHER_MARKERS = ("X", "*", "h", "v", "^", "<", ">", "8", "H")
# DVIA often coincides with moment matching and shows through the gaps
_DASHES: dict[str, tuple[float, ...]] = {"moment_matching": (5.0, 2.0)}
_MARGINAL, _SAMPLING, _REFERENCE = (2.0, 1.2), (1.0, 1.4), (4.0, 1.2, 1.0, 1.2)


@dataclass(frozen=True)
class Style:
    """Label and appearance of one rule or series in every figure.

    `colour` is ``#rrggbb`` on a light page. `dashes` are lengths of lines and gaps in units of the line's
    width, empty for a solid line.
    """

    label: str
    colour: str
    marker: str = ""
    dashes: tuple[float, ...] = ()

    @property
    def dot(self) -> str:
        """Coloured dot to put before a name in a text."""
        return f'<i class="dot" style="background:{css(self.colour)}"></i>'

    @property
    def series(self) -> str:
        """Mark of matplotlib artists (``gid``) that belong to this series; see :func:`marked`."""
        return marked(self.label)

    @property
    def line(self) -> dict[str, Any]:
        style = (0, self.dashes) if self.dashes else "solid"
        line = {"color": self.colour, "marker": self.marker, "linestyle": style, "label": self.label}
        return line | {"gid": self.series}


def marked(label: str, tips: Iterable[str] = ()) -> str:
    """Mark of artists of one series, which pages can switch off; `tips` are texts of its points, on hover."""
    return "series" + "".join(f"|{text.replace('|', '/')}" for text in (clean(label), *tips))


def clean(text: str) -> str:
    """Text without control characters and local paths; line breaks are kept."""
    return "\n".join(printable(public(line)) for line in text.split("\n"))


def styles(rules: Iterable[str], traits: RuleTraits) -> dict[str, Style]:
    """Styles of the rules in order, the same in all figures, since all rules of the results get colours."""
    shown = set(rules)
    all_rules = traits.in_order([*traits.stored, *shown])
    return {rule: style for rule, style in _styles(tuple(all_rules), traits).items() if rule in shown}


@functools.lru_cache(maxsize=32)
def _styles(rules: tuple[str, ...], traits: RuleTraits) -> dict[str, Style]:
    styles_by_rule: dict[str, Style] = {}
    markers = itertools.cycle(_OTHER_MARKERS)
    used_colours: set[str] = set()
    references = itertools.cycle(("#7a7a2e", "#4e6a7a"))
    for rule in rules:
        label = traits.label(rule)
        if traits.is_reference(rule):
            styles_by_rule[rule] = Style(label, shade(next(references), LIGHT), "", _REFERENCE)
        elif is_plain(rule):
            styles_by_rule[rule] = Style(label, GREY, "", _SAMPLING)
        else:
            declared = traits[rule].colour or ""  # variants of a rule share it; invalid colours are ignored
            colours = [colour for colour in (declared, *_OTHERS) if _HEX.fullmatch(colour)]
            unused = [colour for colour in colours if colour not in used_colours]
            colour = unused[0] if unused else _OTHERS[len(styles_by_rule) % len(_OTHERS)]
            used_colours.add(colour)
            dashes = _DASHES.get(rule, ())
            if traits[rule].marginal:
                dashes = _MARGINAL
            elif traits.is_sampling(rule):
                dashes = _SAMPLING
            marker = _MARKERS.get(rule) or next(markers)
            styles_by_rule[rule] = Style(label, shade(colour, LIGHT), marker, dashes)
    return styles_by_rule


def is_plain(rule: str) -> bool:
    """Whether a rule is the package's Monte Carlo with independent samples, of any number."""
    return re.fullmatch(r"monte_carlo(:samples=\d+)?", rule) is not None


@functools.cache
def shade(colour: str, page: str) -> str:
    """Return a colour with enough contrast with a page, mixed with black or white as far as needed."""
    ink = 0.0 if _luminance(_rgb(page)) > 0.5 else 1.0
    for share in np.linspace(0, 1, 41):
        channels = _rgb(colour) * (1 - share) + ink * share
        mixed = "#" + "".join(f"{round(255 * channel):02x}" for channel in channels)
        if contrast(mixed, page) >= CONTRAST:
            return mixed
    raise ValueError(f"{page} has too little contrast with both black and white")


def css(colour: str) -> str:
    """A colour of the light page as CSS that suits both colour schemes."""
    dark = shade(colour, DARK)
    return colour if dark == colour else f"light-dark({colour},{dark})"


def contrast(colour: str, other: str) -> float:
    """Contrast ratio of two colours (WCAG), from 1 to 21."""
    low, high = sorted([_luminance(_rgb(colour)), _luminance(_rgb(other))])
    return (high + 0.05) / (low + 0.05)


def _rgb(colour: str) -> NDArray[np.float64]:
    return np.frombuffer(bytes.fromhex(colour[1:]), np.uint8) / 255


def _luminance(rgb: NDArray[np.float64]) -> float:
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ np.array([0.2126, 0.7152, 0.0722]))
