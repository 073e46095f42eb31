"""Badges: a verdict as an SVG image or as JSON for shields.io."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape
from pathlib import Path

from sdp_ref.errors import on_one_line

from .text import printable

ENDS = (".svg", ".json")
"""Suffixes of badge files: an image, or the input of shields.io."""
_LONGEST = 60  # most letters per side
_LETTER, _MARGIN = 6.6, 6.0  # approximate width of a letter, and margin of a text (px)
_COLOURS = {True: "#2e7d32", False: "#c62828", None: "#6b6b6b"}
_SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="20" role="img" aria-label="{text}">'
    "<title>{text}</title>"
    '<clipPath id="r"><rect width="{width:.0f}" height="20" rx="3"/></clipPath>'
    '<g clip-path="url(#r)"><rect width="{left:.0f}" height="20" fill="#444"/>'
    '<rect x="{left:.0f}" width="{right:.0f}" height="20" fill="{colour}"/></g>'
    '<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
    '<text x="{left_at:.1f}" y="14">{label}</text><text x="{right_at:.1f}" y="14">{message}</text></g>'
    "</svg>\n"
)


@dataclass(frozen=True)
class Badge:
    """A label, a message and a verdict.

    `good` is None if there is no verdict. Label and message are short: ``sdp conformance``, ``21 passed, 0
    failed``.
    """

    label: str
    message: str
    good: bool | None

    @property
    def svg(self) -> str:
        label, message = _short(self.label), _short(self.message)
        left = _LETTER * len(label) + 2 * _MARGIN
        right = _LETTER * len(message) + 2 * _MARGIN
        return _SVG.format(
            text=escape(f"{label}: {message}"),
            label=escape(label),
            message=escape(message),
            colour=_COLOURS[self.good],
            width=round(left) + round(right),
            left=round(left),
            right=round(right),
            left_at=round(left) / 2,
            right_at=round(left) + round(right) / 2,
        )

    @property
    def json(self) -> str:
        plain = {"schemaVersion": 1, "label": _short(self.label), "message": _short(self.message)}
        return json.dumps(plain | {"color": _COLOURS[self.good]}, ensure_ascii=False) + "\n"

    def text(self, path: Path) -> str:
        """Return the content of a badge file, by its suffix (see `ENDS`)."""
        return self.json if path.suffix == ".json" else self.svg


def _short(text: str) -> str:
    line = on_one_line(printable(text))
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
