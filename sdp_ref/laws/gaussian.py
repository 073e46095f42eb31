"""Gaussian laws with a full or a diagonal covariance matrix."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sdp_ref.errors import UndefinedError
from sdp_ref.laws.base import (
    NORMAL,
    Law,
    Push,
    Standard,
    check_kind,
    check_location,
    check_pair,
    check_shape,
    check_tensor,
    finite,
    power,
    require,
)
from sdp_ref.laws.classes import class_probabilities
from sdp_ref.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributions import Distribution

_ASYMMETRY = 1e-6  # relative to the largest diagonal entry; float32 products are symmetric to about 1e-7
_INDEFINITE = 1e-6  # relative to the largest eigenvalue; float32 products of a factor reach about 1e-7


@dataclass(frozen=True, eq=False)
class Gaussian(Law):
    """Gaussian laws with full covariance.

    Parameters
    ----------
    mean : Tensor, shape (B, *event)
    covariance : Tensor, shape (B, n, n)
        Symmetric positive semidefinite matrix over the flattened event of n components.
    """

    negative: ClassVar[tuple[str, ...]] = ("variance",)

    mean: Tensor
    covariance: Tensor

    @property
    def location(self) -> Tensor:
        """The mean; a property is several times as fast as :meth:`Law.__getattr__`."""
        return self.mean

    def __post_init__(self) -> None:
        check_location("mean", self.mean)
        check_kind("covariance", self.covariance, self.mean)
        check_shape("covariance", self.covariance, (self.batch, self.dimension, self.dimension))
        covariance = self.covariance.detach()
        if covariance.numel() == 0:
            return
        variance = covariance.diagonal(dim1=-2, dim2=-1)
        asymmetry = (covariance - covariance.mT).abs().amax((-2, -1))
        require(
            finite("mean", self.mean),
            finite("covariance", covariance),
            (
                (variance >= 0).all(),
                lambda: f"covariance has a negative variance ({variance.min().item():.3g})",
            ),
            (
                (asymmetry <= _ASYMMETRY * variance.amax(-1)).all(),
                lambda: f"covariance is not symmetric (largest difference {asymmetry.max().item():.3g})",
            ),
        )
        eigenvalues = torch.linalg.eigvalsh(covariance.double())
        low, high = eigenvalues[:, 0], eigenvalues[:, -1]
        require(
            (
                (low >= -_INDEFINITE * high).all(),
                lambda: (
                    f"covariance is not positive semi-definite (smallest eigenvalue {low.min().item():.3g})"
                ),
            )
        )

    @property
    def variance(self) -> Tensor:
        return self.covariance.diagonal(dim1=-2, dim2=-1).reshape(self.mean.shape)

    @property
    def standard(self) -> Standard:
        return NORMAL

    def push(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Push:
        location = self.mean.detach().reshape(-1).to(device, dtype)
        factor = self.factor()[0].detach().T.to(location)
        return lambda noise: torch.addmm(location, noise.to(location), factor)

    def log_prob(self, value: Tensor) -> Tensor:
        return _log_density(self, value)

    def survival(self, value: Tensor) -> Tensor:
        return above(normal_tail, self.mean, power(self.variance.double(), 0.5), value)

    def class_probabilities(self) -> tuple[Tensor, Tensor]:
        return class_probabilities(self.mean.flatten(1), self.covariance)

    def as_torch(self, batch: torch.Size) -> Distribution:
        """Raise if the covariance is singular, since torch requires positive definite ones."""
        n = self.dimension
        _definite(self)
        mean, covariance = self.mean.double().reshape(*batch, n), self.covariance.double()
        return torch.distributions.MultivariateNormal(mean, covariance.reshape(*batch, n, n))

    def factor(self) -> Tensor:
        """Return a matrix F with F F^T = covariance, shape (B, n, n), float64.

        It is the lower Cholesky factor if that exists. Otherwise it is computed from eigenvectors, and
        negative eigenvalues (by a rule with an indefinite covariance) are set to zero. Its gradient then
        omits the rotation of the eigenvectors, whose derivative need not exist. Columns that the rounding of
        the stored covariance explains are set to zero.
        """
        covariance = self.covariance.double()
        rounding = _rounding_of(self.covariance)
        factor, failed, thin = _cholesky(covariance, rounding)
        singular = failed != 0
        if not bool(singular.any() | thin.any()):
            return factor
        factor = torch.where(thin.unsqueeze(-2), 0.0, factor)  # rounding of other components fills a column
        if not bool(singular.any()):
            return factor
        rest = covariance[singular]
        scales = _scales_apart(rest, self.covariance.dtype)
        scaled = rest / scales.unsqueeze(-1) / scales.unsqueeze(-2)
        vectors = torch.linalg.eigh(scaled.detach()).eigenvectors
        # Rayleigh quotients equal the eigenvalues, and their gradient does not divide by eigenvalue gaps.
        values = (vectors * (scaled @ vectors)).sum(-2)
        largest = values.detach().amax(-1, keepdim=True)
        values = torch.where(values > rounding * largest, values, 0.0)
        clipped: Tensor = scales.unsqueeze(-1) * vectors * power(values, 0.5).unsqueeze(-2)
        if not bool((~singular).any()):
            return clipped
        definite = torch.linalg.cholesky(covariance[~singular])
        definite = torch.where(thin[~singular].unsqueeze(-2), 0.0, definite)
        return torch.zeros_like(covariance).index_put((~singular,), definite).index_put((singular,), clipped)


@dataclass(frozen=True, eq=False)
class CompressedGaussian(Gaussian):
    """Gaussian laws from a rule that dropped covariances, with estimates of how much it dropped.

    Parameters
    ----------
    mean : Tensor, shape (B, *event)
    covariance : Tensor, shape (B, n, n)
    dropped : Tensor, shape (B,)
        Frobenius norm of the dropped covariances relative to that of the full matrix, summed over all layers
        that dropped some.
    beyond : Tensor, shape (B,)
        The same for the higher-order covariances that the rule omits at elementwise functions and products of
        components: an estimate of their largest size. Omissions at matrix products, maxima, norms and softmax
        are not counted.
    """

    negative: ClassVar[tuple[str, ...]] = ("variance", "dropped", "beyond")

    dropped: Tensor
    beyond: Tensor

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("dropped", "beyond"):
            check_shape(name, check_tensor(name, getattr(self, name), self.mean), (self.batch,))


@dataclass(frozen=True, eq=False)
class Edgeworth(Gaussian):
    """Gaussian laws with third cumulants, which correct the probabilities of classes.

    Everything else, samples and density included, is that of the Gaussian with this mean and covariance: the
    Edgeworth series can have a negative density.

    Parameters
    ----------
    mean : Tensor, shape (B, *event)
    covariance : Tensor, shape (B, n, n)
    third : Tensor, shape (B, n, n, n)
        E[(Y - mean)_i (Y - mean)_j (Y - mean)_k] over the flattened event.
    """

    third: Tensor

    def __post_init__(self) -> None:
        super().__post_init__()
        n = self.dimension
        check_shape("third", check_tensor("third", self.third, self.mean), (self.batch, n, n, n))

    def class_probabilities(self) -> tuple[Tensor, Tensor]:
        """See :meth:`Law.class_probabilities`; numbers below 0 are possible if the skewness is strong."""
        return class_probabilities(self.mean.flatten(1), self.covariance, self.third)


@dataclass(frozen=True, eq=False)
class DiagonalGaussian(Law):
    """Gaussian laws with independent components.

    Parameters
    ----------
    mean, variance : Tensor, shape (B, *event)
        A variance of zero is a point mass.
    """

    negative: ClassVar[tuple[str, ...]] = ("variance",)

    mean: Tensor
    variance: Tensor

    @property
    def location(self) -> Tensor:
        """The mean; a property is several times as fast as :meth:`Law.__getattr__`."""
        return self.mean

    def __post_init__(self) -> None:
        check_pair("mean", self.mean, "variance", self.variance)

    @property
    def standard(self) -> Standard:
        return NORMAL

    def push(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Push:
        return scaled(self.mean, self.variance.detach().double().sqrt(), device, dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        return _log_density(self, value)

    def survival(self, value: Tensor) -> Tensor:
        return above(normal_tail, self.mean, self.standard_deviation, value)

    def class_probabilities(self) -> tuple[Tensor, Tensor]:
        return class_probabilities(self.mean.flatten(1), self.covariance)

    def as_torch(self, batch: torch.Size) -> Distribution:
        """Raise if a variance is zero, since torch requires positive ones."""
        _definite(self)
        shape = *batch, self.dimension
        mean, deviation = self.mean.double().reshape(shape), self.standard_deviation.reshape(shape)
        return torch.distributions.Independent(torch.distributions.Normal(mean, deviation), 1)

    @property
    def standard_deviation(self) -> Tensor:
        """Standard deviations, shape (B, *event), float64; the gradient at a point mass is 0."""
        return power(self.variance.double(), 0.5)

    @property
    def covariance(self) -> Tensor:
        return torch.diag_embed(self.variance.flatten(1))

    def factor(self) -> Tensor:
        """Return a matrix F with F F^T = covariance, shape (B, n, n), float64."""
        return torch.diag_embed(self.standard_deviation.flatten(1))


def scaled(
    location: Tensor, scale: Tensor, device: torch.device | str | None, dtype: torch.dtype | None
) -> Push:
    """Return the map z -> location + scale z for variates of shape (rows, n) and parameters of batch one."""
    centre = location.detach().reshape(-1).to(device, dtype)
    spread = scale.detach().reshape(-1).to(centre)
    return lambda noise: torch.addcmul(centre, noise.to(centre), spread)


def above(tail: Callable[[Tensor], Tensor], location: Tensor, scale: Tensor, value: Tensor) -> Tensor:
    """Return P(X > value) for location-scale laws; a scale of 0 is a point mass."""
    centred, scale = value.double() - location.double(), scale.double()
    point = scale <= 0
    spread = tail(centred / torch.where(point, 1.0, scale))
    return torch.where(point, (centred < 0).double(), spread)


_FAR = 5.0


def normal_tail(value: Tensor) -> Tensor:
    tail: Tensor = torch.special.ndtr(-value)
    # far out, ndtr is a difference that cancels
    return torch.where(value > _FAR, torch.special.erfc(value / math.sqrt(2)) / 2, tail)


def _rounding_of(covariance: Tensor) -> float:
    """Relative rounding error of eigenvalues of a stored covariance: of its entries, and of LAPACK."""
    n, digits = covariance.shape[-1], torch.finfo(covariance.dtype).eps
    stored = 4 * digits * math.sqrt(n) if covariance.dtype != torch.float64 else 0.0
    return 8 * n * torch.finfo(torch.float64).eps + stored


def _cholesky(covariance: Tensor, rounding: float) -> tuple[Tensor, Tensor, Tensor]:
    """Cholesky factors, nonzero (B,) where they do not exist, and columns (B, n) that are rounding errors."""
    factor, failed = torch.linalg.cholesky_ex(covariance)
    # a squared pivot is the variance of a component given those before it
    pivots = factor.detach().diagonal(dim1=-2, dim2=-1)
    variances = covariance.detach().diagonal(dim1=-2, dim2=-1)
    return factor, failed, pivots.square() <= rounding * variances


_APART = 1e6


def _scales_apart(covariance: Tensor, dtype: torch.dtype) -> Tensor:
    """Standard deviations, shape (B, n), or ones where no variance is lost in the rounding of the largest."""
    variance = covariance.detach().diagonal(dim1=-2, dim2=-1)
    variance = torch.where(variance > 0, variance, 1.0)
    uneven = variance.amax(-1, keepdim=True) > _APART * variance.amin(-1, keepdim=True)
    return torch.where(uneven | torch.tensor(dtype != torch.float64), variance.sqrt(), 1.0)


def _definite(law: Gaussian | DiagonalGaussian) -> Tensor:
    """Cholesky factor, shape (B, n, n), or standard deviations, shape (B, n); raise where it is singular."""
    if isinstance(law, DiagonalGaussian):
        factor, singular = law.standard_deviation.flatten(1), law.variance <= 0
    else:
        factor, failed, thin = _cholesky(law.covariance.double(), _rounding_of(law.covariance))
        singular = (failed != 0) | thin.any(-1)
    if bool(singular.any()):
        raise UndefinedError("a Gaussian law with a singular covariance has no density")
    return factor


def _log_density(law: Gaussian | DiagonalGaussian, value: Tensor) -> Tensor:
    factor = _definite(law)
    centred = (value.double() - law.mean.double()).flatten(value.ndim - len(law.event_shape))
    if isinstance(law, DiagonalGaussian):
        whitened, lengths = centred / factor, factor
    else:  # invert the factor instead of solving for each value: there are many values and few components
        inverse = torch.linalg.solve_triangular(factor, torch.eye(law.dimension).to(factor), upper=False)
        whitened = torch.einsum("bij,...bj->...bi", inverse, centred)
        lengths = factor.diagonal(dim1=-2, dim2=-1)
    constant = lengths.log().sum(-1) + law.dimension / 2 * math.log(2 * math.pi)
    return -whitened.square().sum(-1) / 2 - constant


AnyGaussian = Gaussian | DiagonalGaussian
"""A Gaussian law with any covariance."""
