"""How the noise that something was measured under is written for people."""

from __future__ import annotations

from sdp_bench.bench.noise import GAUSSIAN, name_of, parameter_of
from sdp_bench.reports.style import labels


def symbol(family: str) -> str:
    """Symbol of the scale of a stored family: σ of a standard deviation, γ of a law's scale without one."""
    return labels.scale_label(parameter_of(family))


def words(family: str) -> str:
    """Family for people, ``Laplace noise``; empty of the Gaussian one, which goes without saying."""
    return "" if family in ("", GAUSSIAN.family) else f"{name_of(family)} noise"
