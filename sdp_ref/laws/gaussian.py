"""Gaussian laws, with a full covariance matrix and with independent components."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sdp_ref.errors import UndefinedError
from sdp_ref.laws.base import (
    Law,
    Push,
    check_kind,
    check_location,
    check_pair,
    check_tensor,
    finite,
    require,
)
from sdp_ref.laws.standard import NORMAL, Standard

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.distributions import Distribution

_ASYMMETRY = 1e-6  # of the largest diagonal entry; float32 products are symmetric to about 1e-7
_INDEFINITE = 1e-6  # of the largest eigenvalue; float32 products of a factor reach about 1e-7


@dataclass(frozen=True, eq=False)
class Gaussian(Law):
    """Gaussian laws with full covariance.

    Parameters
    ----------
    mean : Tensor, shape (B, *event)
    covariance : Tensor, shape (B, n, n)
        Symmetric and positive semi-definite, over the flattened event of n components.

    Raises
    ------
    ValueError
        If a shape, dtype or value does not fit; the message says which.
    """

    negative: ClassVar[tuple[str, ...]] = ("variance",)

    mean: Tensor
    covariance: Tensor

    def __post_init__(self) -> None:
        import torch

        check_location("mean", self.mean)
        check_kind("covariance", self.covariance, self.mean)
        n = self.dimension
        if self.covariance.shape != (self.batch, n, n):
            raise ValueError(
                f"covariance must have shape {(self.batch, n, n)} for a mean of shape "
                f"{tuple(self.mean.shape)}, got {tuple(self.covariance.shape)}"
            )
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
    def location(self) -> Tensor:
        """The mean, shape (B, *event)."""
        return self.mean

    @property
    def variance(self) -> Tensor:
        """Marginal variances, shape (B, *event)."""
        return self.covariance.diagonal(dim1=-2, dim2=-1).reshape(self.mean.shape)

    @property
    def standard(self) -> Standard:
        return NORMAL

    def push(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Push:
        import torch

        location = self.mean.detach().reshape(-1).to(device, dtype)
        factor = self.factor()[0].detach().T.to(location)
        return lambda noise: torch.addmm(location, noise.to(location), factor)

    def log_prob(self, value: Tensor) -> Tensor:
        """See :class:`Law`; where the covariance is singular there is no density."""
        return _log_density(self, value)

    def survival(self, value: Tensor) -> Tensor:
        return above(_normal_tail, self.mean, _sqrt(self.variance.double()), value)

    def as_torch(self, batch: torch.Size) -> Distribution:
        """See :class:`Law`; torch's covariances are positive definite."""
        from torch.distributions import MultivariateNormal

        n = self.dimension
        _definite(self)
        mean, covariance = self.mean.double().reshape(*batch, n), self.covariance.double()
        return MultivariateNormal(mean, covariance.reshape(*batch, n, n))

    def factor(self) -> Tensor:
        """A matrix F with F F^T = covariance, shape (B, n, n), float64.

        Cholesky's where the covariance is positive definite; else by eigenvectors, with negative
        eigenvalues (rounding, or a rule whose covariance is indefinite) clipped to zero. There the
        gradient leaves out the turning of the eigenvectors, which need not have one.

        Returns
        -------
        Tensor, shape (B, n, n), float64
            In units of the components; lower triangular where it is Cholesky's.
        """
        import torch

        covariance = self.covariance.double()
        factor: Tensor
        factor, failed = torch.linalg.cholesky_ex(covariance)
        singular = failed != 0
        if not bool(singular.any()):
            return factor
        rest = covariance[singular]
        vectors = torch.linalg.eigh(rest.detach()).eigenvectors
        # Rayleigh quotients: equal to the eigenvalues, and their gradient needs no gaps between those.
        values = (vectors * (rest @ vectors)).sum(-2)
        clipped: Tensor = vectors * _sqrt(values).unsqueeze(-2)
        if not bool(failed.eq(0).any()):
            return clipped
        definite = torch.linalg.cholesky(covariance[~singular])
        return torch.zeros_like(covariance).index_put((~singular,), definite).index_put((singular,), clipped)


@dataclass(frozen=True, eq=False)
class CompressedGaussian(Gaussian):
    """Gaussian laws of a rule that dropped covariances on the way, and knows how much.

    Parameters
    ----------
    mean : Tensor, shape (B, *event)
    covariance : Tensor, shape (B, n, n)
    dropped : Tensor, shape (B,)
        The Frobenius norm of the covariances that were dropped, as a share of that of the covariance matrix
        which they were dropped from, added up over all the places where some were.
    beyond : Tensor, shape (B,)
        As `dropped`, of the covariances that functions of one value and products of components make beyond
        the first order, which are left out: an estimate of the most that these can be. What products of
        matrices, maxima, lengths and softmax leave out is not counted.

    Raises
    ------
    ValueError
        If a shape, dtype or value does not fit; the message says which.
    """

    negative: ClassVar[tuple[str, ...]] = ("variance", "dropped", "beyond")

    dropped: Tensor
    beyond: Tensor

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("dropped", "beyond"):
            share = check_tensor(name, getattr(self, name), self.mean)
            if share.shape != (self.batch,):
                raise ValueError(f"{name} must have shape {(self.batch,)}, got {tuple(share.shape)}")


@dataclass(frozen=True, eq=False)
class DiagonalGaussian(Law):
    """Gaussian laws with independent components.

    Parameters
    ----------
    mean, variance : Tensor, shape (B, *event)
        Variances are >= 0; zero is a point mass.

    Raises
    ------
    ValueError
        If a shape, dtype or value does not fit; the message says which.
    """

    negative: ClassVar[tuple[str, ...]] = ("variance",)

    mean: Tensor
    variance: Tensor

    def __post_init__(self) -> None:
        check_pair("mean", self.mean, "variance", self.variance)

    @property
    def location(self) -> Tensor:
        """The mean, shape (B, *event)."""
        return self.mean

    @property
    def standard(self) -> Standard:
        return NORMAL

    def push(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Push:
        return scaled(self.mean, self.variance.detach().double().sqrt(), device, dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        """See :class:`Law`; where a variance is 0 there is no density."""
        return _log_density(self, value)

    def survival(self, value: Tensor) -> Tensor:
        return above(_normal_tail, self.mean, self.standard_deviation, value)

    def as_torch(self, batch: torch.Size) -> Distribution:
        """See :class:`Law`; torch's variances are positive."""
        from torch.distributions import Independent, Normal

        _definite(self)
        shape = *batch, self.dimension
        return Independent(
            Normal(self.mean.double().reshape(shape), self.standard_deviation.reshape(shape)), 1
        )

    @property
    def standard_deviation(self) -> Tensor:
        """Of each component, shape (B, *event), float64; its gradient at a point mass is 0."""
        return _sqrt(self.variance.double())

    @property
    def covariance(self) -> Tensor:
        """Diagonal covariance as a dense matrix, shape (B, n, n)."""
        import torch

        return torch.diag_embed(self.variance.flatten(1))

    def factor(self) -> Tensor:
        """A matrix F with F F^T = covariance, shape (B, n, n), float64."""
        import torch

        return torch.diag_embed(self.standard_deviation.flatten(1))


def scaled(
    location: Tensor, scale: Tensor, device: torch.device | str | None, dtype: torch.dtype | None
) -> Push:
    """Map z -> location + scale z of variates, shape (rows, n), for parameters of a batch of one law."""
    import torch

    centre = location.detach().reshape(-1).to(device, dtype)
    spread = scale.detach().reshape(-1).to(centre)
    return lambda noise: torch.addcmul(centre, noise.to(centre), spread)


def above(tail: Callable[[Tensor], Tensor], location: Tensor, scale: Tensor, value: Tensor) -> Tensor:
    """Probability of more than a value under laws of a location and a scale; of scale 0 they are points."""
    import torch

    centred, scale = value.double() - location.double(), scale.double()
    point = scale <= 0
    spread = tail(centred / torch.where(point, 1.0, scale))
    return torch.where(point, (centred < 0).double(), spread)


def _normal_tail(value: Tensor) -> Tensor:
    import torch

    tail: Tensor = torch.special.ndtr(-value)
    return tail


def _definite(law: Gaussian | DiagonalGaussian) -> Tensor:
    """Cholesky factor, shape (B, n, n), or standard deviations, shape (B, n); float64."""
    import torch

    factor: Tensor
    if isinstance(law, DiagonalGaussian):
        factor, failed = law.standard_deviation.flatten(1), law.variance <= 0
    else:
        factor, failed = torch.linalg.cholesky_ex(law.covariance.double())
    if bool(failed.any()):
        raise UndefinedError("a Gaussian law with a singular covariance has no density")
    return factor


def _log_density(law: Gaussian | DiagonalGaussian, value: Tensor) -> Tensor:
    import torch

    factor = _definite(law)
    centred = (value.double() - law.mean.double()).flatten(value.ndim - len(law.event_shape))
    if isinstance(law, DiagonalGaussian):
        whitened, lengths = centred / factor, factor
    else:  # the inverse of the factor and not a solution for each value: values are many, components few
        inverse = torch.linalg.solve_triangular(factor, torch.eye(law.dimension).to(factor), upper=False)
        whitened = torch.einsum("bij,...bj->...bi", inverse, centred)
        lengths = factor.diagonal(dim1=-2, dim2=-1)
    constant = lengths.log().sum(-1) + law.dimension / 2 * math.log(2 * math.pi)
    return -whitened.square().sum(-1) / 2 - constant


AnyGaussian = Gaussian | DiagonalGaussian
"""A law that has a mean and a covariance."""


def _sqrt(x: Tensor) -> Tensor:
    """Square root, 0 for what is not positive; its gradient there is 0 and not infinite."""
    import torch

    positive = x > 0
    return torch.where(positive, torch.where(positive, x, 1.0).sqrt(), 0.0)
