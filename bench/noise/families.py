"""Families of input noise.

The scale is a standard deviation, ``sigma``, if the family has one, so that families are compared at the same
variance. For a law without a variance it is the law's own scale, ``gamma``. Families with scales in a file
(one per feature, a covariance, residuals) are multiplied by sigma.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sdp_bench.bench.errors import UserError
from sdp_ref.laws import (
    Cauchy,
    DiagonalGaussian,
    Empirical,
    Gaussian,
    Law,
    LocationScale,
    Mixture,
    Shape,
    SymmetricStable,
    unchecked,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

_NAMES = {
    "gaussian": "Gaussian",
    "cauchy": "Cauchy",
    "laplace": "Laplace",
    "uniform": "uniform",
    "stable": "{}-stable",
    "student_t": "Student t({})",
    "mixture": "mixture {}",
    "scales": "scaled Gaussian {}",
    "covariance": "correlated Gaussian {}",
    "residuals": "residual {}",
}


_DIGEST = re.compile(r"[0-9a-f]{16}")
_WHOLE = re.compile(r"\.0(?![0-9])")


def name_of(family: str) -> str:
    """Return the display name of a family: ``Student t(5)`` for ``student_t:df=5.0``."""
    kind, _, rest = family.partition(":")
    value = rest.rpartition("=")[2]
    if kind in ("stable", "student_t"):
        value = f"{float(value):g}"
    elif _DIGEST.fullmatch(value):
        value = value[:8]
    value = _WHOLE.sub("", value)
    return _NAMES.get(kind, family).format(value)


def parameter_of(family: str) -> str:
    """Return the name of the scale: ``sigma``, or ``gamma`` if the family has no variance."""
    kind, _, rest = family.partition(":")
    heavy = kind in ("cauchy", "stable") or (
        kind == "student_t" and float(rest.removeprefix("df=")) <= _LIGHT
    )
    return "gamma" if heavy else "sigma"


_LIGHT = 2.0
"""Degrees of freedom above which Student's t has a variance."""


@dataclass(frozen=True)
class Noise:
    """A family of laws around an input, with one scale for all components.

    Two families are equal if their prefixes are: the prefix identifies the laws, including contents of files.

    `prefix`: prefix of the label that identifies oracles. `make`: returns the law with these locations, shape
    (B, *event), and this scale. `text`: the family as a user writes it, without folders:
    ``covariance:c.npy``. `values`: contents of its file, float64. `event`: shape of the inputs that it fits.
    One number fits all shapes with that many components; None fits all.
    """

    prefix: str
    make: Callable[[Tensor, float], Law] = field(compare=False, repr=False)
    text: str = field(default="", compare=False)
    values: NDArray[np.float64] | None = field(default=None, compare=False, repr=False)
    event: tuple[int, ...] | None = field(default=None, compare=False)

    @property
    def family(self) -> str:
        """Name in records, without the scale: ``gaussian``."""
        return self.prefix.rstrip(":,")

    @property
    def name(self) -> str:
        return name_of(self.family)

    @property
    def parameter(self) -> str:
        """Name of the scale: ``sigma`` (a standard deviation, or a factor of one) or ``gamma``."""
        return parameter_of(self.family)

    @property
    def example(self) -> Law:
        """The law of one input of zeros with scale 1, with as few components as possible, in one row."""
        import torch

        return self.law(torch.zeros(1, math.prod(self.event or (1,))), 1.0)

    @property
    def note(self) -> str:
        """Warning about rules that use moments; empty for Gaussian noise and for noise without moments."""
        law = self.example
        if isinstance(law, DiagonalGaussian | Gaussian) or not hasattr(law, "covariance"):
            return ""
        return f"{self.name} noise: rules of moments take it for the Gaussian with its mean and covariance"

    def label(self, scale: float) -> str:
        """Return family and scale as stored in an `OracleKey`: ``gaussian:sigma=0.1``."""
        return f"{self.prefix}{self.parameter}={scale!r}"

    def law(self, locations: Tensor, scale: float) -> Law:
        """Return the laws at `locations`, shape (B, *event), in their dtype."""
        return self.make(locations, scale)

    def check(self, event: tuple[int, ...], scales: tuple[float, ...], sampler: str) -> None:
        """Raise a UserError if the family does not fit inputs, scales or sampler.

        `event` is the shape of one input. Scales must be finite in float32, and Sobol points need quantile
        functions.
        """
        import torch

        if self.event not in (None, event, (math.prod(event),)):
            raise UserError(
                f"noise '{self.text}' is for inputs of shape {self.event}, the net takes {tuple(event)}"
            )
        standard = self.example.standard
        if sampler == "sobol" and (standard is None or standard.uniforms > 1):
            raise UserError(
                f"--sampler sobol needs a law with quantiles, which {self.name} noise is not; use mc"
            )
        for scale in scales:
            try:
                reason = self.law(torch.zeros(1, *event), scale).unsound()
            except ValueError as error:
                reason = str(error)
            if reason:
                raise UserError(f"noise '{self.text}' of {self.parameter} {scale:g} is no law: {reason}")


# Laws, given locations and a scale ------------------------------------------------------------------


def _gaussian(locations: Tensor, scale: float) -> Law:
    import torch

    return DiagonalGaussian(locations, torch.full_like(locations, scale**2))


def _cauchy(locations: Tensor, scale: float) -> Law:
    import torch

    return Cauchy(locations, torch.full_like(locations, scale))


def _stable(locations: Tensor, scale: float, *, alpha: float) -> Law:
    import torch

    return SymmetricStable(locations, torch.full_like(locations, scale), alpha)


def _shaped(locations: Tensor, scale: float, *, shape: Shape) -> Law:
    import torch

    unit = math.sqrt(shape.variance) if math.isfinite(shape.variance) else 1.0
    return LocationScale(locations, torch.full_like(locations, scale / unit), shape)


def _mixed(locations: Tensor, scale: float, *, parts: tuple[tuple[float, float], ...]) -> Law:
    import torch

    unit = math.sqrt(sum(weight * relative**2 for weight, relative in parts))
    weights = locations.new_tensor([[weight for weight, _ in parts]]).expand(len(locations), -1)
    variances = locations.new_tensor([(scale * relative / unit) ** 2 for _, relative in parts])
    repeated = locations.repeat_interleave(len(parts), 0)
    each = variances.repeat(len(locations)).reshape(-1, *[1] * (locations.ndim - 1))
    return Mixture(weights, DiagonalGaussian(repeated, each * torch.ones_like(repeated)))


def _scaled(locations: Tensor, scale: float, *, scales: Any) -> Law:
    import torch

    variance = torch.from_numpy((scale * scales) ** 2).to(locations).reshape(locations.shape[1:])
    return DiagonalGaussian(locations, variance.expand_as(locations))


def _correlated(locations: Tensor, scale: float, *, covariance: Any) -> Law:
    import torch

    own = torch.from_numpy(scale**2 * covariance).to(locations)  # validated when the file was read
    return unchecked(Gaussian, locations, own.expand(len(locations), -1, -1))


def _drawn(locations: Tensor, scale: float, *, residuals: Any) -> Law:
    import torch

    draws = torch.from_numpy(scale * residuals).to(locations).reshape(-1, *locations.shape[1:])
    return Empirical(locations.unsqueeze(1) + draws)


# Families -------------------------------------------------------------------------------------------

GAUSSIAN = Noise("gaussian:", _gaussian, "gaussian")
CAUCHY = Noise("cauchy:", _cauchy, "cauchy")
LAPLACE = Noise("laplace:", functools.partial(_shaped, shape=Shape("laplace")), "laplace")
UNIFORM = Noise("uniform:", functools.partial(_shaped, shape=Shape("uniform")), "uniform")


def stable(alpha: float) -> Noise:
    """Return symmetric alpha-stable noise; for alpha 2 it is Gaussian with variance 2 gamma^2."""
    return Noise(f"stable:alpha={alpha!r},", functools.partial(_stable, alpha=alpha), f"stable:{alpha:g}")


def student_t(df: float) -> Noise:
    """Return Student's t noise, with standard deviation sigma if it has one."""
    make = functools.partial(_shaped, shape=Shape("student_t", df))
    return Noise(f"student_t:df={df!r},", make, f"student_t:{df:g}")


def mixture(parts: tuple[tuple[float, float], ...]) -> Noise:
    """Return Gaussian noise with a random scale, drawn once for all components.

    `parts` holds pairs of weight and relative scale. Only the ratios of scales count: the standard deviation
    of each component is sigma.
    """
    text = "+".join(f"{weight!r}*{relative!r}" for weight, relative in parts)
    return Noise(f"mixture:{text},", functools.partial(_mixed, parts=parts), f"mixture:{text}")


def scales(values: NDArray[np.float64], name: str, text: str) -> Noise:
    """Return independent Gaussian noise with standard deviation sigma times `values`, shape (*event).

    `name` distinguishes the values from others in the label.
    """
    return Noise(f"scales:{name},", functools.partial(_scaled, scales=values), text, values, values.shape)


def covariance(values: NDArray[np.float64], name: str, text: str) -> Noise:
    """Return Gaussian noise with covariance sigma^2 C, for C of shape (n, n); see `scales`."""
    make = functools.partial(_correlated, covariance=values)
    return Noise(f"covariance:{name},", make, text, values, values.shape[:1])


def residuals(values: NDArray[np.float64], name: str, text: str) -> Noise:
    """Return noise that draws one of N residuals, shape (N, *event), times sigma; they are not centred."""
    make = functools.partial(_drawn, residuals=values)
    return Noise(f"residuals:{name},", make, text, values, values.shape[1:])
