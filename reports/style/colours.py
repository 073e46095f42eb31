"""Colours of lines on light and dark pages, and of heat maps."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LIGHT, DARK = "#fdfdfb", "#16191d"
"""Background of the page in either colour scheme, as in its style sheet."""

CONTRAST = 3.0
"""Minimum contrast of graphics with the page (WCAG 2.2, 1.4.11)."""

INK, GRID = "currentColor", "var(--line)"
"""The page's colours of text and of lines."""

CIVIDIS = (
    *("#00224e", "#00285b", "#002e6a", "#053371", "#1a386f", "#273e6e", "#32436d", "#3b496c", "#434e6c"),
    *("#4b546c", "#535a6d", "#5a5f6e", "#61656f", "#686a71", "#6f7073", "#767676", "#7d7c78", "#848279"),
    *("#8c8878", "#938e78", "#9b9476", "#a39a74", "#aba072", "#b4a76f", "#bcae6c", "#c4b468", "#cdbb63"),
    *("#d5c25e", "#dec958", "#e7d150", "#f0d846", "#f9e03a", "#fee838"),
)
"""Nunez, Anderton and Renslow (2018): looks the same with and without colour vision deficiency."""

_KNEE = 0.75  # luminances within a quarter of the bound, or beyond it, are moved


def shades(colour: str) -> tuple[str, str]:
    """Return a colour for the light and for the dark page, darkened or lightened if its contrast is too low.

    Luminances near and beyond the bound are compressed below it, so that different colours stay different.
    Colours of the page itself, which are not ``#rrggbb``, are returned unchanged.
    """
    return (_darker(colour), _lighter(colour)) if colour.startswith("#") else (colour, colour)


def css(colour: str) -> str:
    light, dark = shades(colour)
    return light if light == dark else f"light-dark({light},{dark})"


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours (WCAG)."""
    low, high = sorted(float(luminance(rgb(each))) for each in (one, other))
    return (high + 0.05) / (low + 0.05)


def luminance(channels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Relative luminances (WCAG) of colours whose channels are along the last axis."""
    return np.asarray(_linear(channels) @ np.array([0.2126, 0.7152, 0.0722]))


def rgb(colour: str) -> NDArray[np.float64]:
    """Channels of ``#rrggbb``, from 0 to 1."""
    return np.frombuffer(bytes.fromhex(colour[1:]), np.uint8) / 255


def written(channels: NDArray[np.float64]) -> list[str]:
    """``#rrggbb`` of colours whose channels, from 0 to 1, are along the last axis."""
    digits = np.rint(255 * np.clip(channels, 0, 1)).astype(np.uint8).tobytes().hex()
    return [f"#{digits[place : place + 6]}" for place in range(0, len(digits), 6)]


@dataclass(frozen=True)
class Colours:
    """Colour map from `low` to `high`, interpolated between even stops."""

    low: float
    high: float
    stops: tuple[str, ...]

    def of(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Channels from 0 to 1 along a new last axis; NaN for NaN."""
        stops = np.array([rgb(stop) for stop in self.stops])
        places = np.clip((values - self.low) / (self.high - self.low), 0, 1) * (len(stops) - 1)
        return np.stack([np.interp(places, range(len(stops)), channel) for channel in stops.T], axis=-1)


@functools.cache
def _darker(colour: str) -> str:
    most = (float(luminance(rgb(LIGHT))) + 0.05) / CONTRAST - 0.05
    own, knee = float(luminance(rgb(colour))), _KNEE * most
    if own <= knee:
        return colour
    aim = knee + (own - knee) * (most - knee) / (1 - knee)
    return _rounded(_linear(rgb(colour)) * (aim / own), -1)


@functools.cache
def _lighter(colour: str) -> str:
    least = (float(luminance(rgb(DARK))) + 0.05) * CONTRAST - 0.05
    own, knee = float(luminance(rgb(colour))), (2 - _KNEE) * least
    if own >= knee:
        return colour
    aim = least + own * (knee - least) / knee
    linear = _linear(rgb(colour))
    return _rounded(linear + (1 - linear) * (aim - own) / (1 - own), 1)


def _rounded(linear: NDArray[np.float64], side: int) -> str:
    """Format a linear colour, moved half a step further so that rounding keeps its contrast."""
    channels = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    (colour,) = written(channels + side * 0.5 / 255)
    return colour


def _linear(channels: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
