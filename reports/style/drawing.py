"""Colours, markers and dashes of rules, the same in every figure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from sdp_bench.reports.style.colours import css
from sdp_bench.reports.style.markers import SHAPES
from sdp_bench.reports.style.rules import RuleTraits
from sdp_bench.reports.style.svg import short

SIZE = 3.0
"""Radius of a marker (pt)."""

WIDTH = 1.6
"""Width of a line (pt)."""

_MARKERS = {
    "sdp": "circle",
    "dvia": "square",
    "moment_matching": "diamond",
    "unscented": "plus",
    "marginal_sdp": "lozenge",
    "marginal_moment_matching": "wide",
}
_DASHES = {"moment_matching": (6.0, 2.5)}  # DVIA, whose line often coincides, shows through the gaps
_OTHERS = (
    *("#8c564b", "#7f3c8d", "#117733", "#aa4466", "#5b2be0", "#5fae00"),
    *("#c4002b", "#00848c", "#b59f00", "#d81bd8", "#f26d6d", "#a58be8"),
)
_OTHER_MARKERS = (
    *("cross", "star", "pentagon", "hourglass", "sparkle", "tall"),
    *("bow", "burst", "trefoil", "leaning", "arrow", "drop"),
)
"""Markers of rules from outside the package; they repeat after twelve."""
_REFERENCES = (("#7a7a2e", "hexagon"), ("#4e6a7a", "hexagon"))
_COLOUR = re.compile("#[0-9a-fA-F]{6}")
_GREYS = ("#a8a8a8", "#8c8c8c", "#767676", "#606060", "#484848")
_SAMPLING_MARKERS = ("down", "left", "right", "up")
"""Their number and that of the greys are coprime, so that pairs repeat as late as possible."""


@dataclass(frozen=True)
class Style:
    """Label and appearance of one rule in every figure.

    `colour` is ``#rrggbb``; pages draw the shade that suits their colour scheme. `marker` is one of
    :data:`sdp_bench.reports.style.markers.SHAPES` or empty. `dashes` are lengths of lines and gaps (pt),
    empty for a solid line.
    """

    label: str
    colour: str
    marker: str = ""
    dashes: tuple[float, ...] = ()

    @property
    def attribute(self) -> str:
        """SVG attribute that sets the colour, declared by the figure; empty for a colour of the page."""
        return f' color="var({self.variable})"' if self.variable else ""

    @property
    def variable(self) -> str:
        """CSS variable of the colour; empty for a colour of the page."""
        return f"--k{self.colour[1:]}" if self.colour.startswith("#") else ""

    @property
    def declared(self) -> str:
        """CSS declaration of the colour; empty for a colour of the page."""
        return f"{self.variable}:{css(self.colour)}" if self.variable else ""

    @property
    def dot(self) -> str:
        """Coloured dot to put before a name in a text."""
        return f'<i class="dot" style="background:{css(self.colour)}"></i>'

    @property
    def dashing(self) -> str:
        return f' stroke-dasharray="{" ".join(map(short, self.dashes))}"' if self.dashes else ""

    @property
    def swatch(self) -> str:
        return (
            f'<svg class="chart" aria-hidden="true" viewBox="0 0 32 12"><g{self.attribute}>'
            f'<path class="l"{self.dashing} d="M2 6h28"/>'
            f'<path class="p" d="M16 6{outline(self.marker, 4.0)}"/></g></svg>'
        )


def outline(marker: str, radius: float = SIZE) -> str:
    """Path commands that draw a marker around the current point; an empty dot if `marker` is empty."""
    if not marker:
        return "h0"
    corners = [(radius * x, radius * y) for x, y in SHAPES[marker]]
    if not corners:
        r, d = short(radius), short(2 * radius)
        return f"m-{r} 0a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0-{d} 0"
    steps = [(x - a, y - b) for (a, b), (x, y) in itertools.pairwise(corners)]
    return _step("m", *corners[0]) + "".join(_step("l", x, y) for x, y in steps) + "z"


def _step(command: str, x: float, y: float) -> str:
    across, down = short(x), short(y)
    if command == "l" and "0" in (across, down):
        return f"h{across}" if down == "0" else f"v{down}"
    return f"{command}{across} {down}".replace(" -", "-")


def styles(rules: Iterable[str], traits: RuleTraits) -> dict[str, Style]:
    """Styles of the rules in order: declared colours; sampling rules grey, darker with more samples."""
    styled: dict[str, Style] = {}
    greys, shapes = itertools.cycle(_GREYS), itertools.cycle(_SAMPLING_MARKERS)
    references = itertools.cycle(_REFERENCES)
    markers = itertools.cycle(_OTHER_MARKERS)
    taken: set[str] = set()
    for rule in traits.in_order(rules):
        label = traits.label(rule)
        if traits.is_sampling(rule):
            styled[rule] = Style(label, next(greys), next(shapes), (1.0, 1.5))
        elif traits.is_reference(rule):
            styled[rule] = Style(label, *next(references), (5.0, 1.5, 1.0, 1.5))
        else:
            own = traits[rule].colour or ""  # variants of a rule share it; invalid colours are ignored
            declared = (own,) if _COLOUR.fullmatch(own) else ()
            free = (each for each in (*declared, *_OTHERS) if each not in taken)
            colour = next(free, _OTHERS[len(styled) % len(_OTHERS)])
            taken.add(colour)
            marker = _MARKERS.get(rule) or _free(markers, colour, styled.values())
            dashes = (2.5, 1.5) if traits[rule].marginal else _DASHES.get(rule, ())
            styled[rule] = Style(label, colour, marker, dashes)
    return styled


def _free(markers: Iterator[str], colour: str, styled: Collection[Style]) -> str:
    """Return the next marker that is not used with this colour, if there is one."""
    taken = {style.marker for style in styled if style.colour == colour}
    return next(each for each in markers if each not in taken or taken >= set(_OTHER_MARKERS))
