"""How nets and numbers are written for people."""

from __future__ import annotations

import math

from sdp_ref.activations import ACTIVATIONS, Activation

_CLASSIFIERS = {"resnet18": "ResNet-18", "cnn3": "Three-layer CNN"}
_SCALES = {"sigma": "σ", "gamma": "γ"}


def activation_label(activation: str) -> str:
    """Name of a non-linearity for people."""
    name, _, parameters = activation.partition(":")
    label = ACTIVATIONS[name].label if name in ACTIVATIONS else name
    return f"{label} ({parameters})" if parameters else label


def activation_rank(activation: str) -> int:
    """Place of a non-linearity in the order that tables use."""
    name = activation.partition(":")[0]
    return ACTIVATIONS[name].rank if name in ACTIVATIONS else Activation.rank


def scale_label(parameter: str) -> str:
    """Symbol of the noise’s scale: σ of a standard deviation, γ of a stable law’s scale."""
    return _SCALES.get(parameter, parameter)


def is_classifier(activation: str) -> bool:
    """Whether nets "of an activation" are the image classifiers of that name."""
    return activation in _CLASSIFIERS


def layers_label(activation: str, depth: int) -> str:
    """Depth of a net for people, ``4 ReLU layers``, or the name of an image classifier or a user's net."""
    if is_classifier(activation):
        return _CLASSIFIERS[activation]
    kind, _, name = activation.partition(":")
    if kind == "own":
        return name
    return f"{depth} {activation_label(activation)} layer{'' if depth == 1 else 's'}"


def number(x: float, decimals: int | None = None) -> str:
    """Write a number: with `decimals` places, or to three significant figures; a dash for NaN."""
    if math.isnan(x):
        return "–"
    if math.isinf(x):
        return "∞" if x > 0 else "−∞"
    if x == 0 and decimals is None:
        text = "0"
    elif decimals is not None:
        text = f"{x:.{decimals}f}"
    elif not 1e-3 <= abs(x) < 1e5:
        mantissa, exponent = f"{x:.2e}".split("e")
        text = f"{mantissa}e{int(exponent)}"
    else:
        text = f"{x:.0f}" if abs(x) >= 99.95 else f"{x:#.3g}"
    return text.replace("-", "−")


def spread(sd: float, mean: float, decimals: int | None = None) -> str:
    """Write a standard deviation with as many places as its mean has."""
    shown = number(mean, decimals)
    if "e" in shown or not math.isfinite(mean):
        return number(sd, decimals)
    return number(sd, len(shown.partition(".")[2]))


def duration(seconds: float) -> str:
    """Write a time for people, unbroken: ``3 min 20 s``."""
    minutes, rest = divmod(round(seconds), 60)
    if seconds < 1:
        text = f"{seconds * 1000:.3g} ms"
    elif seconds < 60:
        text = f"{seconds:.3g} s"
    elif minutes < 60:
        text = f"{minutes} min {rest} s" if rest else f"{minutes} min"
    else:
        text = f"{minutes // 60} h {minutes % 60} min"
    return text.replace(" ", "\u00a0")


def plural(count: int, one: str, many: str = "") -> str:
    """Write a count with its noun: ``1 net``, ``2,000 nets``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
