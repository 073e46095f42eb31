"""The larger of two values, and lengths of vectors: moments of their own, a slope for what is read later."""

from __future__ import annotations

import torch
from torch import Tensor

from sdp_ref.activations.relu import ReLU
from sdp_ref.graph.lengths import root_moments
from sdp_ref.graph.ops import Maximum, VectorNorm
from sdp_ref.laws import Gaussian, unchecked
from sdp_ref.rules.full.elementwise import elementwise_input
from sdp_ref.rules.full.joint import Joint, Rows
from sdp_ref.rules.full.products import broadcast, places_in
from sdp_ref.rules.full.steps import LinearStep


class MaximumStep(LinearStep):
    """The larger of two values: max(X, Y) = Y + (X - Y)_+, of which all moments are known.

    Mean, covariance, and covariances with what is read later are exact where the law of all is Gaussian
    (Clark 1961, "The greatest of a finite set of random variables"): those with a third value Z are
    P(X > Y) Cov(X, Z) + P(Y > X) Cov(Y, Z), by Stein's lemma.

    Parameters
    ----------
    module : Maximum
    """

    temporaries = 16

    def __init__(self, module: Maximum) -> None:
        self.module = module

    def bound(self, joint: Joint, inputs: tuple[int, ...]) -> tuple[Tensor, Rows]:
        """See :class:`LinearStep`."""
        left, right = (joint.means[v] for v in inputs)
        shape = self.module(left, right).shape
        difference, covariance = elementwise_input(self._difference(joint, inputs, shape))
        variance = covariance.diagonal(dim1=1, dim2=2)
        gain = ReLU().mean_variance(difference, variance)[0].reshape(shape)
        passed = ReLU().mean_derivative(difference, variance).reshape(shape).unsqueeze(1)

        def rows(of_left: Tensor, of_right: Tensor) -> Tensor:
            return passed * of_left + (1 - passed) * of_right

        return right + gain, rows

    def entries(self, joint: Joint, inputs: tuple[int, ...], mean: Tensor) -> int:  # noqa: ARG002
        """See :class:`LinearStep`."""
        return self.temporaries * mean[0].numel() ** 2

    def completed(
        self, joint: Joint, inputs: tuple[int, ...], mean: Tensor, covariance: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See :class:`LinearStep`; by what the covariance of ramps differs from that of their slopes."""
        difference, between = elementwise_input(self._difference(joint, inputs, mean.shape))
        ramps = ReLU().mean_covariance(difference, between)[1]
        passed = ReLU().mean_derivative(difference, between.diagonal(dim1=1, dim2=2))
        return mean, covariance + ramps - passed.unsqueeze(2) * between * passed.unsqueeze(1)

    @staticmethod
    def _difference(joint: Joint, inputs: tuple[int, ...], shape: torch.Size) -> Gaussian:
        """Law of the first value less the second, both broadcast to `shape`."""
        a, b = inputs
        places = (places_in(joint.means[v].shape[1:], shape[1:]) for v in inputs)
        left, right, both = broadcast((joint.block(a, a), joint.block(b, b), joint.block(a, b)), *places)
        mean = (joint.means[a] - joint.means[b]).flatten(1)
        return unchecked(Gaussian, mean, left + right - both - both.mT)


class VectorNormStep(LinearStep):
    """Euclidean lengths, by the exact moments of their squares.

    The root of each is taken for that of a gamma variable (:func:`~sdp_ref.graph.lengths.root_moments`), and
    its covariances for those of the square times a slope, by which its standard deviation is right.

    Parameters
    ----------
    module : VectorNorm
    """

    def __init__(self, module: VectorNorm) -> None:
        self.module = module

    def bound(self, joint: Joint, inputs: tuple[int, ...]) -> tuple[Tensor, Rows]:
        """See :class:`LinearStep`."""
        mean = joint.means[inputs[0]]
        length, slope, _ = self._lengths(joint, inputs)
        gain = 2 * mean * self._spread(slope, mean)

        def rows(x: Tensor) -> Tensor:
            return self.module.summed(x * gain.unsqueeze(1))

        return length, rows

    def entries(self, joint: Joint, inputs: tuple[int, ...], mean: Tensor) -> int:  # noqa: ARG002
        """See :class:`LinearStep`."""
        return 3 * joint.size(inputs[0]) ** 2

    def completed(
        self, joint: Joint, inputs: tuple[int, ...], mean: Tensor, covariance: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See :class:`LinearStep`; what squares of covariances add."""
        _, slope, square = self._lengths(joint, inputs)
        by_slope = slope.flatten(1).unsqueeze(2) * square * slope.flatten(1).unsqueeze(1)
        return mean, covariance + by_slope

    def _lengths(self, joint: Joint, inputs: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
        """Means of the lengths, their slopes, and the covariances (B, m, m) that squared covariances make."""
        (value,) = inputs
        mean, block = joint.means[value], joint.block(value, value)
        own = block.diagonal(dim1=1, dim2=2).reshape(mean.shape)
        squared = self._summed(2 * block.square(), mean)
        linear = self._summed(4 * mean.flatten(1).unsqueeze(2) * block * mean.flatten(1).unsqueeze(1), mean)
        square = self.module.summed(mean.square() + own)
        variance = (squared + linear).diagonal(dim1=1, dim2=2).reshape(square.shape).clamp(min=0)
        length, spread = root_moments(square, variance)
        moves = variance > 0
        ratio = torch.where(moves, spread, 1.0) / torch.where(moves, variance, 1.0)
        slope = torch.where(moves, ratio.sqrt(), 0.0)
        return length, slope, squared

    def _summed(self, matrix: Tensor, mean: Tensor) -> Tensor:
        """Sums over the components of each pair of lengths, (B, m, m) of (B, n, n)."""
        half = self.module.summed(matrix.reshape(*matrix.shape[:2], *mean.shape[1:])).flatten(2).mT
        return self.module.summed(half.reshape(*half.shape[:2], *mean.shape[1:])).flatten(2)

    def _spread(self, lengths: Tensor, mean: Tensor) -> Tensor:
        """For each component what there is of its length."""
        if not self.module.keepdim:
            for dim in sorted(d % mean.ndim for d in self.module.dims):
                lengths = lengths.unsqueeze(dim)
        return lengths.expand_as(mean)
