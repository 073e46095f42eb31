"""Gaussian laws, with a full covariance matrix and with independent components."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sdp_ref.laws.base import Law, check_location, check_scale, check_tensor

if TYPE_CHECKING:
    from torch import Tensor

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

    mean: Tensor
    covariance: Tensor

    def __post_init__(self) -> None:
        import torch

        check_location("mean", self.mean)
        check_tensor("covariance", self.covariance, self.mean)
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
        if bool((variance < 0).any()):
            raise ValueError(f"covariance has a negative variance ({variance.min().item():.3g})")
        scale = variance.amax(-1)
        asymmetry = (covariance - covariance.mT).abs().amax((-2, -1))
        if bool((asymmetry > _ASYMMETRY * scale).any()):
            raise ValueError(f"covariance is not symmetric (largest difference {asymmetry.max().item():.3g})")
        eigenvalues = torch.linalg.eigvalsh(covariance.double())
        low, high = eigenvalues[:, 0], eigenvalues[:, -1]
        if bool((low < -_INDEFINITE * high).any()):
            raise ValueError(
                f"covariance is not positive semi-definite (smallest eigenvalue {low.min().item():.3g})"
            )

    @property
    def location(self) -> Tensor:
        """The mean, shape (B, *event)."""
        return self.mean

    @property
    def variance(self) -> Tensor:
        """Marginal variances, shape (B, *event)."""
        return self.covariance.diagonal(dim1=-2, dim2=-1).reshape(self.mean.shape)

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

    mean: Tensor
    variance: Tensor

    def __post_init__(self) -> None:
        check_location("mean", self.mean)
        check_scale("variance", self.variance, self.mean)

    @property
    def location(self) -> Tensor:
        """The mean, shape (B, *event)."""
        return self.mean

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


AnyGaussian = Gaussian | DiagonalGaussian
"""A law that has a mean and a covariance."""


def _sqrt(x: Tensor) -> Tensor:
    """Square root, 0 for what is not positive; its gradient there is 0 and not infinite."""
    import torch

    positive = x > 0
    return torch.where(positive, torch.where(positive, x, 1.0).sqrt(), 0.0)
