"""Moment matching (assumed density filtering): each layer's law is replaced by the Gaussian with its moments.

Frey & Hinton (1999), Gast & Roth (2018) and others for the marginal form. The full form keeps the exact
covariance matrix of every layer's output given a Gaussian input to that layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from sdp_ref.activations import ELEMENTWISE, activation_of
from sdp_ref.activations.base import SHORT
from sdp_ref.activations.relu import ReLU
from sdp_ref.errors import UnsupportedError
from sdp_ref.graph.nonlinear import NORMS, Norm, ScalarGroups, mean_field, root_moments, softmax_dim
from sdp_ref.graph.ops import MatrixProduct, Maximum, MaximumOfPairs, Multiply, VectorNorm
from sdp_ref.laws import Cauchy, DiagonalGaussian, Gaussian, Law, SymmetricStable, unchecked
from sdp_ref.rules.base import as_gaussian, smooth_orders
from sdp_ref.rules.full import FullCovarianceRule
from sdp_ref.rules.joint import elementwise_input
from sdp_ref.rules.joint_elementwise import ExactMoments
from sdp_ref.rules.marginal import CHUNK, MarginalRule, fitting, normalised, with_spread


@dataclass(frozen=True)
class MarginalMomentMatching(MarginalRule):
    """Exact mean and variance of each unit, layer by layer; correlations are dropped.

    At max-pooling, which has no closed form, it takes the component with the largest mean.

    Parameters
    ----------
    precision : float
        Acceptable relative error, from 0 to 1, of each unit's mean and standard deviation given the law of
        the previous layer. From 1e-5 on, ReLU, leaky ReLU and PReLU use short formulas in the dtype of the
        net, which is several times as fast in float32. Below, and for all other functions, integrals in
        float64 are accurate to about 1e-11. The error is relative down to 1e-37 of the standard deviation of
        the input; where the mean of a leaky ReLU crosses 0 it is relative to the two terms of the mean. A
        float32 law stores no variances below 1e-38, such as that of ReLU 14 standard deviations below 0.
    fallback : str
        See :class:`~sdp_ref.rules.layerwise.LayerwiseRule`.
    """

    name: ClassVar[str] = "marginal_moment_matching"
    title: ClassVar[str] = "marginal moment matching"
    colour: ClassVar[str] = "#e69f00"
    rank: ClassVar[int] = 60
    claims: ClassVar[frozenset[str]] = frozenset({"marginal moments"})
    precision: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        precision = self.precision
        if isinstance(precision, bool) or not isinstance(precision, int | float) or not 0 <= precision < 1:
            raise ValueError(f"{self.name} needs a precision from 0 to 1, 1e-5 say, got {precision!r}")

    def start(self, x: Law) -> Law:
        if isinstance(x, Cauchy | SymmetricStable):
            raise UnsupportedError(self.name, f"{type(x).__name__} input, which has no variance")
        return super().start(x)


@MarginalMomentMatching.prepares(*ELEMENTWISE)
def _marginal_elementwise(
    rule: MarginalMomentMatching, module: nn.Module
) -> Callable[[DiagonalGaussian], Law]:
    activation = activation_of(module)
    short = rule.precision >= SHORT
    moments = activation.short_mean_variance if short else activation.mean_variance

    def propagate(law: DiagonalGaussian) -> Law:
        return unchecked(DiagonalGaussian, *moments(law.mean, law.variance))

    return propagate


@MarginalMomentMatching.handles(Multiply, MatrixProduct)
def _marginal_product(
    _rule: MarginalMomentMatching, module: nn.Module, a: DiagonalGaussian, b: DiagonalGaussian
) -> Law:
    """Mean and variance of a product of two values, elementwise or of matrices.

    Exact for independent components, Var XY = E[X]^2 Var Y + E[Y]^2 Var X + Var X Var Y, and for the
    square of a value, Var X^2 = 4 E[X]^2 Var X + 2 Var(X)^2.
    """
    mean: Tensor = module(a.mean, b.mean)
    if a is b and not isinstance(module, MatrixProduct):
        variance = a.variance * (4 * a.mean.square() + 2 * a.variance)
        return unchecked(DiagonalGaussian, mean + a.variance, variance)
    first = module(a.variance, b.mean.square() + b.variance)
    return unchecked(DiagonalGaussian, mean, first + module(a.mean.square(), b.variance))


@MarginalMomentMatching.handles(Maximum)
@MarginalMomentMatching.handles(MaximumOfPairs, note="by pairs")
def _marginal_maximum(
    _rule: MarginalMomentMatching, _module: Maximum, a: DiagonalGaussian, b: DiagonalGaussian
) -> Law:
    """Mean and variance of the larger of two values, exact for independent components.

    Clark (1961), "The greatest of a finite set of random variables": max(X, Y) = X + (Y - X)_+, with X the
    one with the larger mean, and Cov(X, (Y - X)_+) = -P(Y > X) Var X by Stein's lemma.
    """
    if a is b:
        return a
    a_is_larger = a.mean >= b.mean
    larger_mean = torch.where(a_is_larger, a.mean, b.mean)
    smaller_mean = torch.where(a_is_larger, b.mean, a.mean)
    larger_variance = torch.where(a_is_larger, a.variance, b.variance)
    smaller_variance = torch.where(a_is_larger, b.variance, a.variance)
    difference, variance = smaller_mean - larger_mean, larger_variance + smaller_variance  # of Y - X
    ramp_mean, ramp_variance = ReLU().mean_variance(difference, variance)
    # P(Y > X); of two constants, X is the larger
    exceeds = torch.where(variance > 0, ReLU().mean_derivative(difference, variance), 0.0)
    # Var X + Var (Y - X)_+ + 2 Cov(X, (Y - X)_+)
    result_variance = larger_variance * (1 - 2 * exceeds) + ramp_variance
    return unchecked(DiagonalGaussian, larger_mean + ramp_mean, result_variance)


@MarginalMomentMatching.handles(VectorNorm, note="by its mean square")
def _marginal_vector_norm(_rule: MarginalMomentMatching, module: VectorNorm, law: DiagonalGaussian) -> Law:
    """Euclidean length by the moments of its square; see :func:`~sdp_ref.graph.nonlinear.root_moments`."""
    x, v = law.mean, law.variance
    square, variance = module.summed(x.square() + v), module.summed(v * (4 * x.square() + 2 * v))
    mean, spread = root_moments(square, variance)
    return with_spread(law, mean, spread)


def _of_numbers(groups: ScalarGroups, law: DiagonalGaussian) -> Law:
    """Exact moments of a norm or softmax that depends on one number for each group."""
    number = groups.numbers(law.mean.flatten(1))
    variance = (law.variance.flatten(1)[:, groups.places] * groups.weights.square()).sum(-1)
    mean, spread = groups.activation.mean_variance(number, variance)
    mean, spread = groups.finished(mean), groups.spread(spread, groups.gain.square())
    return with_spread(law, mean.reshape(law.mean.shape), spread.reshape(law.mean.shape))


@MarginalMomentMatching.handles(*NORMS, note="linearised with its mean scale")
def _marginal_norm(_rule: MarginalMomentMatching, module: nn.Module, law: DiagonalGaussian) -> Law:
    """Linearise with the mean square under the law as s^2, instead of that at the mean."""
    if groups := ScalarGroups.of(module, law.location):
        return _of_numbers(groups, law)
    form = Norm.of(module, law.location)
    variance = form.grouped(law.variance)
    extra = variance.mean(-1, keepdim=True) * (1 - 1 / variance.shape[-1] if form.centred else 1)
    return normalised(form, law, extra)


@MarginalMomentMatching.handles(nn.Softmax, note="by mean field")
def _marginal_softmax(_rule: MarginalMomentMatching, module: nn.Softmax, law: DiagonalGaussian) -> Law:
    if groups := ScalarGroups.of(module, law.location):
        return _of_numbers(groups, law)
    dim = softmax_dim(module, law.location)
    x = law.mean.movedim(dim, -1)
    n = fitting(x.shape[-1])
    step = max(1, CHUNK // max(1, n * n))
    means, variances = [], []
    rows = law.variance.movedim(dim, -1).reshape(-1, n)
    for m, v in zip(x.reshape(-1, n).split(step), rows.split(step), strict=True):
        p, jacobian = mean_field(m, v.unsqueeze(2) + v.unsqueeze(1))
        means.append(p)
        variances.append((jacobian.square() @ v.unsqueeze(2)).squeeze(2))
    mean = torch.cat(means).reshape(x.shape).movedim(-1, dim)
    variance = torch.cat(variances).reshape(x.shape).movedim(-1, dim)
    return with_spread(law, mean, variance)


@dataclass(frozen=True)
class MomentMatching(FullCovarianceRule):
    """Exact mean and full covariance of each layer's output given a Gaussian input to the layer.

    At max-pooling, which has no closed form, it takes the component with the largest mean, as SDP does.
    The non-linearities of several branches, equal or different, are applied to all of them at once. Their
    covariances are then exact as well.

    Parameters
    ----------
    tolerance : float
        Largest error of a covariance without closed form (sigmoid, SiLU, tanh), relative to the two
        standard deviations of the input; from 1e-10 to 1.
    max_bytes : int
        See :class:`~sdp_ref.rules.layerwise.SizedRule`.
    """

    name: ClassVar[str] = "moment_matching"
    title: ClassVar[str] = "moment matching (full)"
    colour: ClassVar[str] = "#009e73"
    rank: ClassVar[int] = 30
    claims: ClassVar[frozenset[str]] = frozenset({"moments"})
    orders: ClassVar[Mapping[str, float]] = smooth_orders(4, 4)
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.tolerance, int | float) or not 1e-10 <= self.tolerance < 1:
            raise ValueError(f"moment_matching needs a tolerance from 1e-10 to 1, got {self.tolerance!r}")

    def finish(self, law: Law, x: Law) -> Law:
        """Also set variances that are negative from rounding to 0."""
        full = as_gaussian(self.name, law)
        return super().finish(unchecked(Gaussian, full.mean, elementwise_input(full)[1]), x)


@MomentMatching.prepares(*ELEMENTWISE)
def _full_elementwise(rule: MomentMatching, module: nn.Module) -> Callable[[Gaussian], Law]:
    return ExactMoments(activation_of(module), rule.tolerance)
