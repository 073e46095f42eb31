"""Names of noise families for readers."""

from __future__ import annotations

from sdp_bench.bench.noise import GAUSSIAN, name_of, parameter_of
from sdp_bench.reports.style import labels


def symbol(family: str) -> str:
    """Symbol of the scale of a stored family: σ of a standard deviation, γ of another scale."""
    return labels.scale_label(parameter_of(family))


def words(family: str) -> str:
    """Name of a family, ``Laplace noise``; empty for Gaussian noise, the default."""
    return "" if family in ("", GAUSSIAN.family) else f"{name_of(family)} noise"
