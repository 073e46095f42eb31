"""Moment matching (assumed density filtering): each layer's law replaced by the Gaussian of its moments.

Frey & Hinton (1999), Gast & Roth (2018) and others for the marginal form. The full form keeps the
exact covariance matrix of every layer's output given a Gaussian input to that layer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from sdp_ref.activations import ELEMENTWISE, activation_of
from sdp_ref.errors import UnsupportedError
from sdp_ref.graph.norms import NORMS
from sdp_ref.graph.ops import MatrixProduct, Maximum, MaximumOfPairs, Multiply, VectorNorm
from sdp_ref.laws import Cauchy, DiagonalGaussian, Gaussian, Law, SymmetricStable, unchecked
from sdp_ref.rules.base import as_gaussian
from sdp_ref.rules.full.elementwise import elementwise_input
from sdp_ref.rules.full.rule import FullCovarianceRule
from sdp_ref.rules.layerwise import LayerwiseRule
from sdp_ref.rules.marginal.linearized import (
    norm_at_mean_scale,
    softmax_by_mean_field,
    vector_norm_by_its_square,
)
from sdp_ref.rules.marginal.products import maximum_moments, product_moments
from sdp_ref.rules.marginal.rule import MarginalRule


@dataclass(frozen=True)
class MarginalMomentMatching(MarginalRule):
    """Exact mean and variance of each unit, layer by layer; correlations are dropped.

    At max-pooling, which has no closed form, it does as marginal SDP does.
    """

    name: ClassVar[str] = "marginal_moment_matching"
    title: ClassVar[str] = "marginal moment matching"
    colour: ClassVar[str] = "#e69f00"
    rank: ClassVar[int] = 60
    claims: ClassVar[frozenset[str]] = frozenset({"marginal moments"})

    def start(self, x: Law) -> Law:
        """See :class:`LayerwiseRule`."""
        if isinstance(x, Cauchy | SymmetricStable):
            raise UnsupportedError(self.name, f"{type(x).__name__} input, which has no variance")
        return super().start(x)


@MarginalMomentMatching.prepares(*ELEMENTWISE)
def _marginal_elementwise(_rule: LayerwiseRule, module: nn.Module) -> Callable[[DiagonalGaussian], Law]:
    activation = activation_of(module)

    def propagate(law: DiagonalGaussian) -> Law:
        return unchecked(DiagonalGaussian, *activation.mean_variance(law.mean, law.variance))

    return propagate


@MarginalMomentMatching.handles(Multiply, MatrixProduct)
def _marginal_product(
    _rule: LayerwiseRule, module: nn.Module, a: DiagonalGaussian, b: DiagonalGaussian
) -> Law:
    return product_moments(module, a, b)


@MarginalMomentMatching.handles(Maximum)
@MarginalMomentMatching.handles(MaximumOfPairs, note="by pairs")
def _marginal_maximum(
    _rule: LayerwiseRule, _module: Maximum, a: DiagonalGaussian, b: DiagonalGaussian
) -> Law:
    return maximum_moments(a, b)


@MarginalMomentMatching.handles(VectorNorm, note="by its mean square")
def _marginal_vector_norm(_rule: LayerwiseRule, module: VectorNorm, law: DiagonalGaussian) -> Law:
    return vector_norm_by_its_square(module, law)


@MarginalMomentMatching.handles(*NORMS, note="linearised with its mean scale")
def _marginal_norm(_rule: LayerwiseRule, module: nn.Module, law: DiagonalGaussian) -> Law:
    return norm_at_mean_scale(module, law)


@MarginalMomentMatching.handles(nn.Softmax, note="by mean field")
def _marginal_softmax(_rule: LayerwiseRule, module: nn.Softmax, law: DiagonalGaussian) -> Law:
    return softmax_by_mean_field(module, law)


@dataclass(frozen=True)
class MomentMatching(FullCovarianceRule):
    """Exact mean and full covariance of each layer's output given a Gaussian input to the layer.

    At max-pooling, which has no closed form, it takes the component of the largest mean, as SDP does.
    Branches whose non-linearities are of one kind are taken through them at once. Between values that
    have been through different ones since they parted, the covariance is the first term of its
    series, E[f'(X)] E[g'(Y)] Cov(X, Y).

    Parameters
    ----------
    tolerance : float
        Largest error of a covariance, relative to the two inputs' standard deviations, where it
        has no closed form (sigmoid, SiLU, tanh); from 1e-10 to 1.
    max_bytes : int
        See :class:`~sdp_ref.rules.full.rule.FullCovarianceRule`.

    Raises
    ------
    ValueError
        If `tolerance` is not in that range.
    """

    name: ClassVar[str] = "moment_matching"
    title: ClassVar[str] = "moment matching (full)"
    colour: ClassVar[str] = "#009e73"
    rank: ClassVar[int] = 30
    claims: ClassVar[frozenset[str]] = frozenset({"moments"})
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.tolerance, int | float) or not 1e-10 <= self.tolerance < 1:
            raise ValueError(f"moment_matching needs a tolerance from 1e-10 to 1, got {self.tolerance!r}")

    def finish(self, law: Law, x: Law) -> Law:
        """As :class:`FullCovarianceRule`; a variance that rounding made negative is 0."""
        full = as_gaussian(self.name, law)
        return super().finish(unchecked(Gaussian, full.mean, elementwise_input(full)[1]), x)


@MomentMatching.prepares(*ELEMENTWISE)
def _full_elementwise(rule: MomentMatching, module: nn.Module) -> Callable[[Gaussian], Law]:
    activation = activation_of(module)

    def propagate(law: Gaussian) -> Law:
        flat = activation.flattened(law.mean.shape[1:])
        mean, covariance = flat.mean_covariance(*elementwise_input(law), tolerance=rule.tolerance)
        return unchecked(Gaussian, mean.reshape(law.mean.shape), covariance)

    return propagate
