"""The families of input noise that suites put on a net, each with one scale for all inputs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sdp_ref.laws import Cauchy, DiagonalGaussian, Law, SymmetricStable

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Noise:
    """A family of laws with independent components of one scale.

    Attributes
    ----------
    name : str
        For people: ``Cauchy``.
    parameter : str
        What its scale is called: ``sigma`` (a standard deviation) or ``gamma``.
    prefix : str
        Of the label by which oracles are known.
    make : callable of (Tensor, float)
        Law with the locations, shape (B, n), and the scale.
    alpha : float
        Stability index; below 2 no moments of the law are finite.
    """

    name: str
    parameter: str
    prefix: str
    make: Callable[[Tensor, float], Law]
    alpha: float

    @property
    def family(self) -> str:
        """What it is stored by, without its scale: ``gaussian``."""
        return self.prefix.rstrip(":,")

    def label(self, scale: float) -> str:
        """Family and scale, as a part of `OracleKey`: ``gaussian:sigma=0.1``."""
        return f"{self.prefix}{self.parameter}={scale!r}"

    def law(self, locations: Tensor, scale: float) -> Law:
        """Laws at `locations`, shape (B, n), in their dtype."""
        return self.make(locations, scale)


def _gaussian(locations: Tensor, scale: float) -> Law:
    import torch

    return DiagonalGaussian(locations, torch.full_like(locations, scale**2))


def _cauchy(locations: Tensor, scale: float) -> Law:
    import torch

    return Cauchy(locations, torch.full_like(locations, scale))


def _stable(locations: Tensor, scale: float, *, alpha: float) -> Law:
    import torch

    return SymmetricStable(locations, torch.full_like(locations, scale), alpha)


GAUSSIAN = Noise("Gaussian", "sigma", "gaussian:", _gaussian, 2.0)
CAUCHY = Noise("Cauchy", "gamma", "cauchy:", _cauchy, 1.0)


@functools.lru_cache
def stable(alpha: float) -> Noise:
    """Symmetric alpha-stable noise; at alpha 2 a Gaussian of variance 2 gamma^2."""
    make = functools.partial(_stable, alpha=alpha)
    return Noise(f"{alpha:g}-stable", "gamma", f"stable:alpha={alpha!r},", make, alpha)
