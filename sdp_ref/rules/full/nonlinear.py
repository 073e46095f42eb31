"""The larger of two values, and lengths of vectors: exact or gamma moments, and a slope for covariances."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sdp_ref.activations.relu import ReLU
from sdp_ref.graph.nonlinear import root_moments
from sdp_ref.graph.ops import Maximum, VectorNorm
from sdp_ref.laws import Gaussian, unchecked
from sdp_ref.rules.full.elementwise import elementwise_input
from sdp_ref.rules.full.joint import Joint, Live, Rows
from sdp_ref.rules.full.products import broadcast, places_in
from sdp_ref.rules.full.steps import LinearStep


class MaximumStep(LinearStep):
    """The larger of two values: max(X, Y) = Y + (X - Y)_+, with known moments.

    Mean, covariance, and covariances with values that are read later are exact under a jointly Gaussian law
    (Clark 1961, "The greatest of a finite set of random variables"): those with a third value Z are P(X > Y)
    Cov(X, Z) + P(Y > X) Cov(Y, Z), by Stein's lemma.
    """

    temporaries = 16

    def __init__(self, module: Maximum) -> None:
        self.module = module

    def bound(self, joint: Live, inputs: tuple[int, ...]) -> tuple[Tensor, Rows]:
        difference, variance = self.apart(joint, inputs)
        gain = ReLU().mean_variance(difference, variance)[0]
        passed = ReLU().mean_derivative(difference, variance).unsqueeze(1)

        def rows(of_left: Tensor, of_right: Tensor) -> Tensor:
            return passed * of_left + (1 - passed) * of_right

        return joint.means[inputs[1]] + gain, rows

    def apart(self, joint: Live, inputs: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Mean and variance of the difference of the values, (B, *out)."""
        a, b = inputs
        shape = self.module(joint.means[a], joint.means[b]).shape[1:]
        difference = joint.means[a] - joint.means[b]
        both = joint.side_by_side(a, b, shape)
        variance = joint.side_by_side(a, a, shape) + joint.side_by_side(b, b, shape) - 2 * both
        return difference, variance.clamp(min=0)

    def entries(self, joint: Joint, inputs: tuple[int, ...], mean: Tensor) -> int:  # noqa: ARG002
        return self.temporaries * mean[0].numel() ** 2

    def completed(
        self, joint: Joint, inputs: tuple[int, ...], mean: Tensor, covariance: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Add the difference between the covariance of ramps and that of their linear parts."""
        difference, between = elementwise_input(self._difference(joint, inputs, mean.shape))
        ramps = ReLU().mean_covariance(difference, between)[1]
        passed = ReLU().mean_derivative(difference, between.diagonal(dim1=1, dim2=2))
        return mean, covariance + ramps - passed.unsqueeze(2) * between * passed.unsqueeze(1)

    @staticmethod
    def _difference(joint: Joint, inputs: tuple[int, ...], shape: torch.Size) -> Gaussian:
        """Law of the difference of the values, both broadcast to `shape`."""
        a, b = inputs
        places = (places_in(joint.means[v].shape[1:], shape[1:]) for v in inputs)
        left, right, both = broadcast((joint.block(a, a), joint.block(b, b), joint.block(a, b)), *places)
        mean = (joint.means[a] - joint.means[b]).flatten(1)
        return unchecked(Gaussian, mean, left + right - both - both.mT)


class VectorNormStep(LinearStep):
    """Euclidean lengths, by the exact moments of their squares.

    The square is approximated by a gamma variable to compute its root
    (:func:`~sdp_ref.graph.nonlinear.root_moments`). Covariances are those of the square times a slope that
    yields the correct standard deviation.
    """

    def __init__(self, module: VectorNorm) -> None:
        self.module = module

    def bound(self, joint: Live, inputs: tuple[int, ...]) -> tuple[Tensor, Rows]:
        length, gain, _ = self.lengths(joint, inputs)

        def rows(x: Tensor) -> Tensor:
            return self.module.summed(x * gain.unsqueeze(1))

        return length, rows

    def entries(self, joint: Joint, inputs: tuple[int, ...], mean: Tensor) -> int:  # noqa: ARG002
        return 3 * joint.size(inputs[0]) ** 2

    def completed(
        self, joint: Joint, inputs: tuple[int, ...], mean: Tensor, covariance: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Add the contribution of squared covariances."""
        (value,) = inputs
        slope = self._moments(joint, value)[1].unsqueeze(2)
        squared = self._summed(2 * joint.block(value, value).square(), joint.means[value])
        return mean, covariance + slope * squared * slope.mT

    def lengths(self, joint: Live, inputs: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
        """Mean lengths (B, *out), weights of the linear part (B, *event), remaining variances (B, *out)."""
        (value,) = inputs
        mean = joint.means[value]
        length, slope, beyond = self._moments(joint, value)
        out = self.module(mean).shape
        gain = 2 * mean * self._spread(slope.reshape(out), mean)
        return length.reshape(out), gain, beyond.reshape(out)

    def _moments(self, joint: Live, value: int) -> tuple[Tensor, Tensor, Tensor]:
        """For each length: mean, slope of the linear part of its square, and remaining variance."""
        mean = joint.means[value]
        event = mean.shape[1:]
        dims = sorted(d % mean.ndim - 1 for d in self.module.dims)
        kept = [d for d in range(len(event)) if d not in dims]
        places = torch.arange(joint.size(value)).reshape(event).permute(*kept, *dims)
        places = places.reshape(math.prod(event[d] for d in kept), -1)
        own, centre = joint.within(value, places), mean.flatten(1)[:, places]
        squared = 2 * own.square().sum((2, 3))
        linear = 4 * torch.einsum("bgi,bgij,bgj->bg", centre, own, centre)
        square = (centre.square() + own.diagonal(dim1=2, dim2=3)).sum(2)
        variance = (squared + linear).clamp(min=0)
        length, spread = root_moments(square, variance)
        moves = variance > 0
        ratio = torch.where(moves, spread, 1.0) / torch.where(moves, variance, 1.0)
        slope = torch.where(moves, ratio.sqrt(), 0.0)
        return length, slope, slope.square() * squared

    def _summed(self, matrix: Tensor, mean: Tensor) -> Tensor:
        """Sums over the components of each pair of lengths, from (B, n, n) to (B, m, m)."""
        half = self.module.summed(matrix.reshape(*matrix.shape[:2], *mean.shape[1:])).flatten(2).mT
        return self.module.summed(half.reshape(*half.shape[:2], *mean.shape[1:])).flatten(2)

    def _spread(self, lengths: Tensor, mean: Tensor) -> Tensor:
        if not self.module.keepdim:
            for dim in sorted(d % mean.ndim for d in self.module.dims):
                lengths = lengths.unsqueeze(dim)
        return lengths.expand_as(mean)
