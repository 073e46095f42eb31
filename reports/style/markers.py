"""Shapes of markers: polygons, for SVG and for print."""

from __future__ import annotations

import cmath
import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType

Corner = tuple[float, float]


def _polygon(corners: int, turned: float = 0.0, inner: float = 1.0) -> tuple[Corner, ...]:
    """Regular polygon with the first corner on top, rotated by degrees; a star if `inner` is below 1."""
    count = corners if inner == 1 else 2 * corners
    angles = (2 * math.pi * place / count + math.radians(turned) for place in range(count))
    radii = ((inner if place % 2 else 1.0) for place in range(count))
    ends = (cmath.rect(radius, angle - math.pi / 2) for radius, angle in zip(radii, angles, strict=True))
    return tuple((round(end.real, 2), round(end.imag, 2)) for end in ends)


def _scaled(shape: Iterable[Corner], across: float, down: float) -> tuple[Corner, ...]:
    return tuple((round(across * x, 2), round(down * y, 2)) for x, y in shape)


_SQUARE = _polygon(4, 45)
_PLUS = (
    *((0.34, -1.0), (0.34, -0.34), (1.0, -0.34), (1.0, 0.34), (0.34, 0.34), (0.34, 1.0)),
    *((-0.34, 1.0), (-0.34, 0.34), (-1.0, 0.34), (-1.0, -0.34), (-0.34, -0.34), (-0.34, -1.0)),
)
_CROSS = tuple((round((x - y) / math.sqrt(2), 2), round((x + y) / math.sqrt(2), 2)) for x, y in _PLUS)

SHAPES: Mapping[str, tuple[Corner, ...]] = MappingProxyType(
    {
        "circle": (),
        "square": _scaled(_SQUARE, 1.2, 1.2),
        "diamond": _scaled(_polygon(4), 1.15, 1.15),
        "plus": _PLUS,
        "cross": _CROSS,
        "star": _scaled(_polygon(5, inner=0.42), 1.3, 1.3),
        "hexagon": _polygon(6),
        "down": _scaled(_polygon(3, 180), 1.15, 1.15),
        "left": _scaled(_polygon(3, 270), 1.15, 1.15),
        "right": _scaled(_polygon(3, 90), 1.15, 1.15),
        "up": _scaled(_polygon(3), 1.15, 1.15),
        "pentagon": _polygon(5, 180),
        "lozenge": _scaled(_polygon(4), 0.65, 1.25),
        "tall": _scaled(_SQUARE, 0.6, 1.5),
        "wide": _scaled(_SQUARE, 1.5, 0.6),
        "hourglass": ((-0.9, -1.0), (0.9, -1.0), (-0.9, 1.0), (0.9, 1.0)),
        "bow": ((-1.0, -0.9), (1.0, 0.9), (1.0, -0.9), (-1.0, 0.9)),
        "sparkle": _scaled(_polygon(4, inner=0.35), 1.3, 1.3),
        "burst": _scaled(_polygon(6, inner=0.5), 1.2, 1.2),
        "trefoil": _scaled(_polygon(3, inner=0.3), 1.4, 1.4),
        "leaning": _scaled(_polygon(4, 45, inner=0.35), 1.4, 1.4),
        "arrow": ((0.0, -1.3), (1.0, 1.0), (0.0, 0.4), (-1.0, 1.0)),
        "drop": ((0.0, 1.3), (-1.0, -1.0), (0.0, -0.4), (1.0, -1.0)),
    }
)
"""Corners by name, in units of the radius, with y pointing down; a circle has none."""
