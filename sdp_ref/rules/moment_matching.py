"""Moment matching (assumed density filtering): each layer's law replaced by the Gaussian of its moments.

Frey & Hinton (1999), Gast & Roth (2018) and others for the marginal form. The full form keeps the
exact covariance matrix of every layer's output given a Gaussian input to that layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from sdp_ref.distributions import Cauchy, DiagonalGaussian, Gaussian, Law, SymmetricStable, unchecked
from sdp_ref.graph import Add, UnsupportedError
from sdp_ref.rules.base import ELEMENTWISE, LayerwiseRule, activation_of, as_gaussian, as_marginal


@dataclass(frozen=True)
class MarginalMomentMatching(LayerwiseRule):
    """Exact mean and variance of each unit, layer by layer; correlations are dropped."""

    name: ClassVar[str] = "marginal_moment_matching"
    claims: ClassVar[frozenset[str]] = frozenset({"marginal moments"})

    def start(self, x: Law) -> Law:
        """See :class:`LayerwiseRule`."""
        if isinstance(x, Cauchy | SymmetricStable):
            raise UnsupportedError(self.name, f"{type(x).__name__} input, which has no variance")
        return as_marginal(self.name, x)


@MarginalMomentMatching.handles(nn.Linear)
def _marginal_linear(_rule: LayerwiseRule, layer: nn.Linear, law: DiagonalGaussian) -> Law:
    mean = F.linear(law.mean, layer.weight, layer.bias)
    return unchecked(DiagonalGaussian, mean, F.linear(law.variance, layer.weight.square()))


@MarginalMomentMatching.handles(*ELEMENTWISE)
def _marginal_elementwise(_rule: LayerwiseRule, module: nn.Module, law: DiagonalGaussian) -> Law:
    return unchecked(DiagonalGaussian, *activation_of(module).mean_variance(law.mean, law.variance))


@MarginalMomentMatching.handles(Add)
def _marginal_add(_rule: LayerwiseRule, _module: nn.Module, a: DiagonalGaussian, b: DiagonalGaussian) -> Law:
    return unchecked(DiagonalGaussian, a.mean + b.mean, a.variance + b.variance)


@dataclass(frozen=True)
class FullCovarianceRule(LayerwiseRule):
    """What the rules share that carry a full covariance matrix from layer to layer.

    They walk in float64 whatever the input's dtype: thin directions of the output have variances
    far below float32's rounding of the large ones.
    """

    def start(self, x: Law) -> Law:
        """See :class:`LayerwiseRule`."""
        return as_gaussian(self.name, x).to(dtype=x.location.double().dtype)

    def finish(self, law: Law, x: Law) -> Law:
        """Symmetrise the rounding away and go back to the dtype of `x`."""
        assert isinstance(law, Gaussian)
        covariance = (law.covariance + law.covariance.mT) / 2
        return unchecked(Gaussian, law.mean, covariance).to(dtype=x.location.dtype)


@FullCovarianceRule.handles(nn.Linear)
def _full_linear(rule: LayerwiseRule, layer: nn.Linear, law: Gaussian) -> Law:
    if law.mean.ndim != 2:
        raise UnsupportedError(rule.name, f"Linear on an event of shape {tuple(law.event_shape)}")
    weight = layer.weight.double()
    bias = None if layer.bias is None else layer.bias.double()
    return unchecked(Gaussian, F.linear(law.mean, weight, bias), weight @ law.covariance @ weight.mT)


def elementwise_input(law: Gaussian) -> tuple[Tensor, Tensor]:
    """Mean (B, n) and covariance (B, n, n) of a law that an elementwise function is applied to.

    A unit whose variance is negative, by rounding or by an indefinite covariance of DVIA, is taken
    for a point mass.
    """
    covariance = law.covariance
    negative = covariance.diagonal(dim1=-2, dim2=-1) < 0
    if bool(negative.any()):
        covariance = covariance.masked_fill(negative.unsqueeze(-1) | negative.unsqueeze(-2), 0.0)
    return law.mean.flatten(1), covariance


@dataclass(frozen=True)
class MomentMatching(FullCovarianceRule):
    """Exact mean and full covariance of each layer's output given a Gaussian input to the layer.

    Parameters
    ----------
    tolerance : float
        Largest error of a covariance, relative to the two inputs' standard deviations, where it
        has no closed form (sigmoid, SiLU, tanh); from 1e-10 to 1.

    Raises
    ------
    ValueError
        If `tolerance` is not in that range.
    """

    name: ClassVar[str] = "moment_matching"
    claims: ClassVar[frozenset[str]] = frozenset({"moments"})
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        if not isinstance(self.tolerance, int | float) or not 1e-10 <= self.tolerance < 1:
            raise ValueError(f"moment_matching needs a tolerance from 1e-10 to 1, got {self.tolerance!r}")

    def finish(self, law: Law, x: Law) -> Law:
        """As :class:`FullCovarianceRule`; a variance that rounding made negative is 0."""
        assert isinstance(law, Gaussian)
        return super().finish(unchecked(Gaussian, law.mean, elementwise_input(law)[1]), x)


@MomentMatching.handles(*ELEMENTWISE)
def _full_elementwise(rule: MomentMatching, module: nn.Module, law: Gaussian) -> Law:
    mean, covariance = activation_of(module).mean_covariance(
        *elementwise_input(law), tolerance=rule.tolerance
    )
    return unchecked(Gaussian, mean.reshape(law.mean.shape), covariance)
