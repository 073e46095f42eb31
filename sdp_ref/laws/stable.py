"""Laws without moments: Cauchy and symmetric alpha-stable, and the scales of their linear combinations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sdp_ref.errors import UndefinedError
from sdp_ref.laws.base import Law, Push, check_pair, require, unchecked
from sdp_ref.laws.gaussian import DiagonalGaussian, above, scaled
from sdp_ref.laws.standard import CAUCHY, Standard, stable

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.distributions import Distribution


@dataclass(frozen=True, eq=False)
class Cauchy(Law):
    """Cauchy laws with independent components.

    Parameters
    ----------
    location, scale : Tensor, shape (B, *event)
        Medians, and half-widths at half-maximum; a scale of zero is a point mass.
    """

    negative: ClassVar[tuple[str, ...]] = ("scale",)

    location: Tensor
    scale: Tensor

    def __post_init__(self) -> None:
        check_pair("location", self.location, "scale", self.scale)

    @property
    def standard(self) -> Standard:
        return CAUCHY

    def push(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Push:
        return scaled(self.location, self.scale, device, dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        """Raise if a scale is 0."""
        if bool((self.scale <= 0).any()):
            raise UndefinedError("a Cauchy law with a scale of 0 has no density")
        scale = self.scale.double()
        standard = (value.double() - self.location.double()) / scale
        density = -(math.pi * scale).log() - standard.square().log1p()
        return density.flatten(value.ndim - len(self.event_shape)).sum(-1)

    def survival(self, value: Tensor) -> Tensor:
        return above(_cauchy_tail, self.location, self.scale, value)

    def as_torch(self, batch: torch.Size) -> Distribution:
        from torch.distributions import Cauchy, Independent

        shape = *batch, self.dimension
        location, scale = self.location.double().reshape(shape), self.scale.double().reshape(shape)
        return Independent(Cauchy(location, scale), 1)


@dataclass(frozen=True, eq=False)
class SymmetricStable(Law):
    """Symmetric alpha-stable laws with independent components.

    The characteristic function of a component is exp(i t location - abs(scale t)^alpha), so alpha = 1 is the
    Cauchy law and alpha = 2 a Gaussian of variance 2 scale^2.

    Parameters
    ----------
    location, scale : Tensor, shape (B, *event)
        Medians and scales; a scale of zero is a point mass.
    alpha : float
        Stability, in (0, 2].
    """

    negative: ClassVar[tuple[str, ...]] = ("scale",)

    location: Tensor
    scale: Tensor
    alpha: float

    def __post_init__(self) -> None:
        check_pair("location", self.location, "scale", self.scale)
        if not (isinstance(self.alpha, int | float) and 0 < self.alpha <= 2):
            raise ValueError(f"alpha must be a number in (0, 2], got {self.alpha!r}")

    @property
    def described(self) -> str:
        return "a Cauchy law" if self.alpha == 1 else f"a stable law with alpha {self.alpha:g}"

    @property
    def mean(self) -> Tensor:
        """The location; undefined for alpha <= 1."""
        if self.alpha <= 1:
            raise UndefinedError(f"{self.described} has no mean")
        return self.location

    @property
    def variance(self) -> Tensor:
        """Twice the squared scales for alpha = 2; undefined otherwise."""
        return self._gaussian("variance").variance

    @property
    def covariance(self) -> Tensor:
        """Diagonal for alpha = 2; undefined otherwise."""
        return self._gaussian("covariance").covariance

    @property
    def standard(self) -> Standard:
        return stable(self.alpha)

    def push(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Push:
        return scaled(self.location, self.scale, device, dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        """Available for alpha 1 and 2, where it has a closed form."""
        return self._closed("density").log_prob(value)

    def survival(self, value: Tensor) -> Tensor:
        """Available for alpha 1 and 2, where it has a closed form."""
        return self._closed("known probabilities of single outputs").survival(value)

    def as_torch(self, batch: torch.Size) -> Distribution:
        """Available for alpha 1 and 2."""
        return self._closed("counterpart in torch.distributions").as_torch(batch)

    def _closed(self, what: str) -> Law:
        return unchecked(Cauchy, self.location, self.scale) if self.alpha == 1 else self._gaussian(what)

    def _gaussian(self, what: str) -> DiagonalGaussian:
        if self.alpha != 2:
            raise UndefinedError(f"{self.described} has no {what}")
        return unchecked(DiagonalGaussian, self.location, 2 * self.scale.square())


def _cauchy_tail(value: Tensor) -> Tensor:
    import torch

    return torch.atan2(torch.ones_like(value), value) / math.pi


def stable_scale(weight: Tensor, scale: Tensor, alpha: float) -> Tensor:
    """Return the scales of W x for independent symmetric alpha-stable x.

    They are (sum_j abs(w_ij)^alpha s_j^alpha)^(1/alpha). Each sum is taken relative to its largest term, so
    that no power of a term over- or underflows.
    """
    import torch

    terms = weight.abs() * bounded(scale).unsqueeze(-2)
    largest = bounded(terms.amax(-1, keepdim=True))
    safe = torch.where(largest > 0, largest, torch.ones_like(largest))
    return bounded(largest.squeeze(-1) * power(power(terms / safe, alpha).sum(-1), 1 / alpha))


def bounded(scale: Tensor) -> Tensor:
    """Require that no scale is infinite, since it would silently turn into NaN in later layers."""
    sound = ~scale.detach().isinf().any()
    require((sound, lambda: f"a scale of the stable law is beyond the largest number of {scale.dtype}"))
    return scale


def power(x: Tensor, exponent: float) -> Tensor:
    """Return x**exponent for x >= 0, with gradient 0 at 0, where a power below 1 has an infinite gradient."""
    import torch

    positive = ~(x <= 0)  # not `x > 0`, so that NaN stays NaN
    return torch.where(positive, torch.where(positive, x, 1.0).pow(exponent), 0.0)
