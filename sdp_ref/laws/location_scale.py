"""Laws with independent components: Cauchy, symmetric stable, bounded, heavy-tailed and asymmetric ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sdp_ref.errors import UndefinedError
from sdp_ref.laws.base import (
    CAUCHY,
    UNIFORM,
    Law,
    Push,
    Standard,
    check_pair,
    power,
    require,
    stable,
    unchecked,
)
from sdp_ref.laws.gaussian import DiagonalGaussian, above, normal_tail, scaled
from sdp_ref.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributions import Distribution


@dataclass(frozen=True, eq=False)
class _Components(Law):
    """Independent components of one family, each with a location and a scale."""

    negative: ClassVar[tuple[str, ...]] = ("scale",)

    location: Tensor
    scale: Tensor

    def __post_init__(self) -> None:
        check_pair("location", self.location, "scale", self.scale)

    def push(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Push:
        return scaled(self.location, self.scale, device, dtype)


@dataclass(frozen=True, eq=False)
class Cauchy(_Components):
    """Cauchy laws with independent components.

    Parameters
    ----------
    location, scale : Tensor, shape (B, *event)
        Medians, and half-widths at half-maximum; a scale of zero is a point mass.
    """

    @property
    def standard(self) -> Standard:
        return CAUCHY

    def log_prob(self, value: Tensor) -> Tensor:
        """Raise if a scale is 0."""
        if bool((self.scale <= 0).any()):
            raise UndefinedError("a Cauchy law with a scale of 0 has no density")
        scale = self.scale.double()
        standard = (value.double() - self.location.double()) / scale
        density = -(math.pi * scale).log() - standard.square().log1p()
        return density.flatten(value.ndim - len(self.event_shape)).sum(-1)

    def survival(self, value: Tensor) -> Tensor:
        def tail(x: Tensor) -> Tensor:
            return torch.atan2(torch.ones_like(x), x) / math.pi

        return above(tail, self.location, self.scale, value)

    def as_torch(self, batch: torch.Size) -> Distribution:
        shape = *batch, self.dimension
        location, scale = self.location.double().reshape(shape), self.scale.double().reshape(shape)
        return torch.distributions.Independent(torch.distributions.Cauchy(location, scale), 1)


@dataclass(frozen=True, eq=False)
class SymmetricStable(_Components):
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

    alpha: float

    def __post_init__(self) -> None:
        super().__post_init__()
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


def stable_scale(weight: Tensor, scale: Tensor, alpha: float) -> Tensor:
    """Return the scales of W x for independent symmetric alpha-stable x.

    They are (sum_j abs(w_ij)^alpha s_j^alpha)^(1/alpha). Each sum is taken relative to its largest term, so
    that no power of a term over- or underflows.
    """
    terms = weight.abs() * bounded(scale).unsqueeze(-2)
    largest = bounded(terms.amax(-1, keepdim=True))
    safe = torch.where(largest > 0, largest, torch.ones_like(largest))
    return bounded(largest.squeeze(-1) * power(power(terms / safe, alpha).sum(-1), 1 / alpha))


def bounded(scale: Tensor) -> Tensor:
    """Require that no scale is infinite, since it would silently turn into NaN in later layers."""
    sound = ~scale.detach().isinf().any()
    require((sound, lambda: f"a scale of the stable law is beyond the largest number of {scale.dtype}"))
    return scale


def raised(x: Tensor, exponent: float) -> Tensor:
    """Return abs(x)**exponent, the factor of a measure of spread that adds for independent terms."""
    if exponent == 2:
        return x.square()
    return x.abs() if exponent == 1 else power(x.abs(), exponent)


_SHAPES = ("laplace", "uniform", "triangular", "student_t")


@dataclass(frozen=True)
class Shape:
    """A symmetric univariate law of location 0 and scale 1.

    Attributes
    ----------
    name : str
        ``laplace``, ``uniform`` or ``triangular`` (both on [-1, 1]), or ``student_t``.
    df : float
        Degrees of freedom of Student's t; ignored otherwise.
    """

    name: str
    df: float = 0.0

    def __post_init__(self) -> None:
        if self.name not in _SHAPES:
            raise ValueError(f"unknown shape '{self.name}'; choose from {', '.join(_SHAPES)}")
        if (self.name == "student_t") != (isinstance(self.df, int | float) and 0 < self.df < float("inf")):
            raise ValueError(f"degrees of freedom are a positive number, of student_t alone, got {self.df!r}")

    @property
    def described(self) -> str:
        """Name for messages, such as ``Laplace`` or ``Student t with 3 degrees of freedom``."""
        named = {"laplace": "Laplace", "uniform": "uniform", "triangular": "triangular"}
        return named.get(self.name, f"Student t with {self.df:g} degrees of freedom")

    def distribution(self, location: Tensor, scale: Tensor) -> Distribution:
        """Return the torch distribution with locations and scales of any shape.

        Raises :class:`~sdp_ref.UndefinedError` for the triangular law, which torch does not have.
        """
        distributions = torch.distributions
        match self.name:
            case "laplace":
                return distributions.Laplace(location, scale)
            case "uniform":
                return distributions.Uniform(location - scale, location + scale, validate_args=False)
            case "triangular":
                raise UndefinedError("torch.distributions has no triangular law")
        return distributions.StudentT(self.df, location, scale)

    @property
    def variance(self) -> float:
        """Variance at scale 1; infinite or NaN if it does not exist."""
        match self.name:
            case "laplace":
                return 2.0
            case "uniform":
                return 1 / 3
            case "triangular":
                return 1 / 6
        return self.df / (self.df - 2) if self.df > 2 else float("inf")

    def quantile(self, probability: Tensor) -> Tensor:
        """Return quantiles at probabilities inside (0, 1), float64."""
        if self.name == "student_t":
            from scipy.special import stdtrit

            quantiles = torch.from_numpy(stdtrit(self.df, probability.double().cpu().numpy()))
            return quantiles.to(probability.device)
        if self.name == "triangular":
            # 1 - |x| is the root of twice the probability beyond x on its side
            nearer = torch.minimum(probability, 1 - probability)
            return (1 - (2 * nearer).sqrt()) * (probability - 0.5).sign()
        standard = self.distribution(torch.zeros_like(probability), torch.ones_like(probability))
        return standard.icdf(probability)

    def tail(self, value: Tensor) -> Tensor:
        """Return the probabilities of exceeding the values, float64."""
        from scipy.special import stdtr

        match self.name:
            case "laplace":
                half = (-value.abs()).exp() / 2
                return torch.where(value > 0, half, 1 - half)
            case "uniform":
                return ((1 - value) / 2).clamp(0, 1)
            case "triangular":
                beyond = (1 - value.abs()).clamp(min=0).square() / 2
                return torch.where(value > 0, beyond, 1 - beyond)
        return torch.from_numpy(stdtr(self.df, -value.detach().cpu().numpy())).to(value.device)


@dataclass(frozen=True, eq=False)
class LocationScale(_Components):
    """Laws with independent components of one shape.

    Parameters
    ----------
    location, scale : Tensor, shape (B, *event)
        Scales are positive. The standard deviation is sqrt(2) scale for Laplace, scale / sqrt(3) for uniform
        and scale / sqrt(6) for triangular (the scale is the half-width), and sqrt(df / (df - 2)) scale for
        Student's t.
    shape : Shape
    """

    shape: Shape

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.shape, Shape):
            raise ValueError(f"shape must be a sdp_ref.laws.Shape, got {type(self.shape).__name__}")

    @property
    def described(self) -> str:
        return f"a {self.shape.described} law"

    @property
    def mean(self) -> Tensor:
        if self.shape.name == "student_t" and self.shape.df <= 1:
            raise UndefinedError(f"{self.described} has no mean")
        return self.location

    @property
    def variance(self) -> Tensor:
        if self.shape.variance == float("inf"):
            raise UndefinedError(f"{self.described} has no variance")
        return self.shape.variance * self.scale.square()

    @property
    def covariance(self) -> Tensor:
        return torch.diag_embed(self.variance.flatten(1))

    @property
    def standard(self) -> Standard:
        return Standard(self.shape.name, self.shape.quantile)

    def log_prob(self, value: Tensor) -> Tensor:
        """Raise if a scale is 0."""
        if bool((self.scale <= 0).any()):
            raise UndefinedError(f"{self.described} with a scale of 0 has no density")
        location, scale = self.location.double(), self.scale.double()
        distance = (value.double() - location).abs()
        if self.shape.name == "uniform":  # torch raises for values outside the support
            density = torch.where(distance <= scale, -(2 * scale).log(), -torch.inf)
        elif self.shape.name == "triangular":
            density = (1 - distance / scale).clamp(min=0).log() - scale.log()
        else:
            density = self.shape.distribution(location, scale).log_prob(value.double())
        return density.flatten(value.ndim - len(self.event_shape)).sum(-1)

    def survival(self, value: Tensor) -> Tensor:
        return above(self.shape.tail, self.location, self.scale, value)

    def as_torch(self, batch: torch.Size) -> Distribution:
        shape = *batch, self.dimension
        parameters = (value.double().reshape(shape) for value in (self.location, self.scale))
        return torch.distributions.Independent(self.shape.distribution(*parameters), 1)


@dataclass(frozen=True, eq=False)
class SplitNormal(Law):
    """Split normal laws (two-piece normal) with independent components: errors such as +0.2 -0.1.

    The density is that of a normal law with standard deviation `above` for values above the mode and with
    `below` for values below it, both scaled so that it is continuous. A value exceeds the mode with
    probability above / (above + below), and unless both are equal, the mean is not the mode.

    Parameters
    ----------
    mode : Tensor, shape (B, *event)
        The most likely values, for example the measured ones.
    above, below : Tensor, shape (B, *event)
        The standard deviations; components for which both are zero are point masses.

    References
    ----------
    John, "The three-parameter two-piece normal family of distributions and its fitting", Communications in
    Statistics 1982; Fernandez and Steel, "On Bayesian modeling of fat tails and skewness", JASA 1998.
    """

    negative: ClassVar[tuple[str, ...]] = ("above", "below")

    mode: Tensor
    above: Tensor
    below: Tensor

    def __post_init__(self) -> None:
        check_pair("mode", self.mode, "above", self.above)
        check_pair("mode", self.mode, "below", self.below)

    @property
    def described(self) -> str:
        return "a split normal law"

    @property
    def mean(self) -> Tensor:
        """The mode plus sqrt(2 / pi) (above - below)."""
        return self.mode + math.sqrt(2 / math.pi) * (self.above - self.below)

    @property
    def variance(self) -> Tensor:
        """The variance (1 - 2 / pi) (above - below)^2 + above below."""
        return (1 - 2 / math.pi) * (self.above - self.below).square() + self.above * self.below

    @property
    def covariance(self) -> Tensor:
        return torch.diag_embed(self.variance.flatten(1))

    @property
    def standard(self) -> Standard:
        return UNIFORM

    def push(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Push:
        """Return the quantile functions of the components."""
        target = self.mode.device if device is None else device
        kind = self.mode.dtype if dtype is None else dtype
        mode, above, below = (
            field.detach().flatten().double().cpu() for field in (self.mode, self.above, self.below)
        )
        width = above + below
        share = torch.where(width > 0, below / width, 0.5)

        def draws(uniform: Tensor) -> Tensor:
            uniform = uniform.double().cpu()
            # Probabilities beyond the value in a normal law with the standard deviation of its side.
            left = (uniform * width / (2 * below)).clamp(max=0.5)
            right = ((1 - uniform) * width / (2 * above)).clamp(max=0.5)
            offset = torch.where(
                uniform < share, below * torch.special.ndtri(left), -above * torch.special.ndtri(right)
            )
            return (mode + torch.where(width > 0, offset, 0.0)).to(target, kind)

        return draws

    def log_prob(self, value: Tensor) -> Tensor:
        """Raise if both standard deviations of a component are 0."""
        mode, above, below = self.mode.double(), self.above.double(), self.below.double()
        if bool((above + below <= 0).any()):
            raise UndefinedError(f"{self.described} with standard deviations of 0 has no density")
        distance = value.double() - mode
        side = torch.where(distance > 0, above, below)
        # On a side of width 0 the density is 0, except at the mode.
        squares = torch.where(distance == 0, 0.0, (distance / side).square())
        density = math.log(2 / math.pi) / 2 - (above + below).log() - squares / 2
        return density.flatten(value.ndim - len(self.event_shape)).sum(-1)

    def survival(self, value: Tensor) -> Tensor:
        mode, high, low = self.mode.double(), self.above.double(), self.below.double()
        width = torch.where(high + low > 0, high + low, 1.0)
        over = 2 * high / width * above(normal_tail, mode, high, value)
        # Below the mode: the complement of the other tail, by symmetry.
        under = 1 - 2 * low / width * above(normal_tail, -mode, low, -value.double())
        point = (value.double() < mode).double()
        return torch.where(high + low > 0, torch.where(value.double() >= mode, over, under), point)
