"""Standard symmetric laws on the line (normal, Cauchy, alpha-stable): densities and tails.

Symmetric alpha-stable laws have no closed form. Their Fourier integrals are computed along a ray in the
complex plane on which both exp(-t^alpha) and exp(ixt) decay, so that nothing oscillates; with t = exp(u + i
angle) the trapezoidal rule then converges exponentially. This is done once on a grid; splines of the
logarithms interpolate all other values.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special
from scipy.interpolate import PPoly, make_interp_spline

Array = NDArray[np.float64]
Function = Callable[[Array], Array]

_SMALLEST_ALPHA = 0.5
_LARGEST_ALPHA = 1.95  # closer to 2, the transition from the normal body to the power tail is too sharp
_STEP = 0.04
_DIGITS = 40.0  # exp(-40) is below the rounding of one
_KNOTS = 0.02
_FAR = 60.0  # asinh of the last knot, beyond which the tail is a power to all digits


@dataclass(frozen=True, eq=False)
class Standard:
    """A symmetric law with centre 0 and scale 1.

    `alpha` is 2 for the normal law, otherwise the exponent of the tail, P(X > x) ~ x^-alpha. `survival` is
    P(X > x), to full relative precision for x > 0; by symmetry it is also the cdf at -x. Near 0 the density
    is 1 - (x / `width`)^2 / 2 of its height.
    """

    name: str
    alpha: float
    density: Function
    survival: Function
    width: float


NORMAL = Standard(
    "Gaussian", 2.0, lambda x: np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi), lambda x: special.ndtr(-x), 1.0
)
CAUCHY = Standard(
    "Cauchy",
    1.0,
    lambda x: 1 / (math.pi * (1 + x * x)),
    lambda x: np.arctan2(1.0, x) / math.pi,
    math.sqrt(0.5),
)


@functools.lru_cache
def stable(alpha: float) -> Standard:
    """Standard symmetric alpha-stable law with characteristic function exp(-abs(t)^alpha).

    Density and survival function have a relative error of 2e-11 everywhere.
    """
    if alpha == 1:
        return CAUCHY
    if not _SMALLEST_ALPHA <= alpha <= _LARGEST_ALPHA:
        raise ValueError(f"alpha must be from {_SMALLEST_ALPHA} to {_LARGEST_ALPHA}, got {alpha}")
    width = math.sqrt(math.gamma(1 / alpha) / math.gamma(3 / alpha))
    stretched = np.arange(0.0, _FAR + _KNOTS / 2, _KNOTS)
    density, survival = fourier_integrals(width * np.sinh(stretched), alpha)
    log_density = _spline(stretched, density, power=1 + alpha)
    log_survival = _spline(stretched, survival, power=alpha)

    def density_at(x: Array) -> Array:
        return np.exp(log_density(np.arcsinh(np.abs(x) / width)))

    def survival_at(x: Array) -> Array:
        tail = np.exp(log_survival(np.arcsinh(np.abs(x) / width)))
        return np.where(x < 0, 1 - tail, tail)

    return Standard("stable", float(alpha), density_at, survival_at, width)


def fourier_integrals(x: Array, alpha: float) -> tuple[Array, Array]:
    """Density and survival function of the standard symmetric stable law, without a spline."""
    angle = min(math.pi, math.pi / (2 * alpha)) / 2  # middle of the sector where both factors decay
    ray = np.exp(1j * angle)
    density, survival = np.empty_like(x), np.empty_like(x)

    # For alpha below 1 integrate over t itself, above over x t, so that exp(ixt) has one scale for all x.
    near = x <= 1
    last = math.log(_DIGITS / math.cos(alpha * angle)) / alpha
    radius = np.exp(np.arange(-_DIGITS / min(alpha, 1), last, _STEP))
    values = np.exp(-((radius * ray) ** alpha) + 1j * x[near, None] * (radius * ray))
    density[near] = (values @ (radius * ray)).real * _STEP / math.pi
    survival[near] = 0.5 - (angle + values.imag.sum(-1) * _STEP) / math.pi

    # In the tail, use exp(-t^alpha) - 1 instead of exp(-t^alpha): the constant does not contribute to either
    # integral, but would leave small differences of large numbers.
    far = ~near
    radius = np.exp(np.arange(-_DIGITS / alpha, math.log(_DIGITS / math.sin(angle)), _STEP))
    kernel = np.exp(1j * radius * ray)
    values = np.expm1(-((radius * ray) ** alpha) * x[far, None] ** -alpha)
    density[far] = (values @ (kernel * radius * ray)).real * _STEP / (math.pi * x[far])
    survival[far] = -(values @ kernel).imag * _STEP / math.pi
    return density, survival


def _spline(stretched: Array, values: Array, power: float) -> Function:
    """Spline of log(values) over asinh(x) >= 0, continued by the power law x^-power of the tail."""
    spline = PPoly.from_spline(make_interp_spline(stretched, np.log(values), k=7).tck)
    end = stretched[-1]

    def value(x: Array) -> Array:
        logarithms: Array = spline(np.minimum(x, end)) - power * np.maximum(x - end, 0.0)
        return logarithms

    return value
