"""Laws without moments: Cauchy and symmetric alpha-stable ones, and how their scales add up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sdp_ref.laws.base import Law, check_location, check_scale

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Cauchy(Law):
    """Cauchy laws with independent components.

    Parameters
    ----------
    location, scale : Tensor, shape (B, *event)
        Medians and half-widths at half-maximum; scales are >= 0.

    Raises
    ------
    ValueError
        If a shape, dtype or value does not fit; the message says which.
    """

    location: Tensor
    scale: Tensor

    def __post_init__(self) -> None:
        check_location("location", self.location)
        check_scale("scale", self.scale, self.location)


@dataclass(frozen=True, eq=False)
class SymmetricStable(Law):
    r"""Symmetric alpha-stable laws with independent components.

    The characteristic function of a component is exp(i t location - abs(scale t)^alpha), so
    alpha = 1 is the Cauchy law and alpha = 2 a Gaussian of variance 2 scale^2.

    Parameters
    ----------
    location, scale : Tensor, shape (B, *event)
        Medians and scales; scales are >= 0.
    alpha : float
        Stability, in (0, 2].

    Raises
    ------
    ValueError
        If a shape, dtype or value does not fit; the message says which.
    """

    location: Tensor
    scale: Tensor
    alpha: float

    def __post_init__(self) -> None:
        check_location("location", self.location)
        check_scale("scale", self.scale, self.location)
        if not (isinstance(self.alpha, int | float) and 0 < self.alpha <= 2):
            raise ValueError(f"alpha must be a number in (0, 2], got {self.alpha!r}")


def stable_scale(weight: Tensor, scale: Tensor, alpha: float) -> Tensor:
    """Scales of W x for independent symmetric alpha-stable x.

    They are (sum_j abs(w_ij)^alpha s_j^alpha)^(1/alpha). Each sum is taken relative to its largest
    term, so that no power of a term over- or underflows.

    Parameters
    ----------
    weight : Tensor, shape (..., m, n)
    scale : Tensor, shape (..., n)
    alpha : float
        In (0, 2].

    Returns
    -------
    Tensor, shape (..., m)

    Raises
    ------
    ValueError
        If a scale, or one of the sums, is beyond the largest number of its dtype.
    """
    import torch

    terms = weight.abs() * bounded(scale).unsqueeze(-2)
    largest = bounded(terms.amax(-1, keepdim=True))
    safe = torch.where(largest > 0, largest, torch.ones_like(largest))
    return bounded(largest.squeeze(-1) * power(power(terms / safe, alpha).sum(-1), 1 / alpha))


def bounded(scale: Tensor) -> Tensor:
    """Give back scales that are not infinite: further on these would turn to NaN, which says nothing.

    Parameters
    ----------
    scale : Tensor

    Returns
    -------
    Tensor

    Raises
    ------
    ValueError
        If some scale is infinite.
    """
    if bool(scale.detach().isinf().any()):
        raise ValueError(f"a scale of the stable law is beyond the largest number of {scale.dtype}")
    return scale


def power(x: Tensor, exponent: float) -> Tensor:
    """x**exponent for x >= 0; the gradient at 0 is 0, where that of a small power is infinite."""
    import torch

    positive = ~(x <= 0)  # so that NaN stays NaN
    return torch.where(positive, torch.where(positive, x, 1.0).pow(exponent), 0.0)
