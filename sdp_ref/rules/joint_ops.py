"""Ops of a joint law that read several components: products, maxima, lengths, norms, softmax.

Moments of products follow from the theorem of Isserlis (1918). For centred X, Y, Z, W: E[XY] = Cov(X, Y), and
Cov(XY, ZW) = Cov(X, Z) Cov(Y, W) + Cov(X, W) Cov(Y, Z). Nonzero means add a linear part, which alone
determines the covariance of a product with a third value.
"""

from __future__ import annotations

import math
from abc import ABC
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sdp_ref.activations.relu import ReLU
from sdp_ref.errors import NoFormulaForLawError
from sdp_ref.graph.nonlinear import Norm, ScalarGroups, mean_field, root_moments, softmax_dim
from sdp_ref.graph.ops import MatrixProduct, pointwise
from sdp_ref.jacobian.local import in_dtype, linear_part
from sdp_ref.laws import Gaussian, unchecked
from sdp_ref.rules.joint import (
    Factored,
    Image,
    Joint,
    LinearStep,
    Live,
    MeanStep,
    Moments,
    Numbers,
    Rows,
    elementwise_input,
    omitted_share,
)

Blocks = tuple[Tensor, Tensor, Tensor]
"""Covariances (B, n, n') of the first value, of the second, and between the two."""

Events = tuple[torch.Size, torch.Size]


@dataclass(frozen=True)
class ModuleStep(LinearStep, ABC):
    """An op that a module defines."""

    module: Any


class ProductStep(ModuleStep):
    """An elementwise product of two values.

    Mean, covariance, and covariances with values that are read later are exact under a jointly Gaussian law.
    """

    single = True

    def linearisation(self, joint: Live, inputs: Numbers) -> tuple[Tensor, Rows]:
        left, right = joint.means[inputs[0]], joint.means[inputs[1]]

        def rows(of_left: Tensor, of_right: Tensor) -> Tensor:
            by_right: Tensor = self.module(left.unsqueeze(1), of_right)
            by_left: Tensor = self.module(of_left, right.unsqueeze(1))
            return by_left + by_right

        return self.module(left, right), rows

    def temporary_entries(self, joint: Joint, inputs: Numbers, mean: Tensor) -> int:  # noqa: ARG002
        return 4 * mean[0].numel() ** 2

    def corrected_moments(self, joint: Joint, inputs: Numbers, mean: Tensor, covariance: Tensor) -> Moments:
        """Add the contribution of the covariances to mean and covariance."""
        a, b = inputs
        events = joint.means[a].shape[1:], joint.means[b].shape[1:]
        blocks = joint.block(a, a), joint.block(b, b), joint.block(a, b)
        more, square = self.quadratic(events, mean.shape[1:], blocks)
        return mean + more.reshape(mean.shape), covariance + square

    def quadratic(self, events: Events, out: torch.Size, blocks: Blocks) -> tuple[Tensor, Tensor]:
        """Contribution of covariances to mean (B, m) and covariance (B, m, m) of the product.

        Isserlis: E[XY] = Cov(X, Y), and Cov(XY, ZW) = Cov(X, Z) Cov(Y, W) + Cov(X, W) Cov(Y, Z).
        """
        sources = source_indices(events[0], out), source_indices(events[1], out)
        left, right, both = broadcast(blocks, sources[0], sources[1])
        return both.diagonal(dim1=1, dim2=2), left * right + both * both.mT

    def moment_corrections(self, factors: Factored, inputs: Numbers, linear: Tensor) -> Moments:
        a, b = inputs
        both = factors.side_by_side(a, b, linear.shape[1:])
        return both, factors.variance(a) * factors.variance(b) + both.square()

    @torch.no_grad()
    def omission(self, factors: Factored, inputs: Numbers, rows: Rows, variance: Tensor) -> Tensor | float:
        """Share of Cov(X, Z) Cov(Y, W) + Cov(X, W) Cov(Y, Z) for products XY and ZW."""
        if not factors.latent:
            return 0.0
        a, b = inputs
        image = rows(factors.factors[a], factors.factors[b]).flatten(2)
        shape = (*image.shape[:2], *variance.shape[1:])
        left = factors.factors[a].expand(shape).flatten(2)
        right = factors.factors[b].expand(shape).flatten(2)

        def covariances(components: Tensor) -> tuple[Tensor, Tensor]:
            def between(first: Tensor, second: Tensor) -> Tensor:
                return first[:, :, components].mT @ second

            same_sides = between(left, left) * between(right, right)
            opposite_sides = between(left, right) * between(right, left)
            return between(image, image), same_sides + opposite_sides

        return omitted_share(covariances, variance.flatten(1), factors.latent)


class MatrixProductStep(ProductStep):
    """A product of matrices (*heads, i, j) and (*heads, j, k), with the same properties."""

    single = False

    def temporary_entries(self, joint: Joint, inputs: Numbers, mean: Tensor) -> int:
        m = mean[0].numel()
        left, right = joint.means[inputs[0]], joint.means[inputs[1]]
        repeats = math.prod(mean.shape[1:-2])
        n_left = repeats * math.prod(left.shape[-2:])
        n_right = repeats * math.prod(right.shape[-2:])
        return n_left**2 + n_right**2 + 2 * n_left * n_right + 2 * m**2

    def quadratic(self, events: Events, out: torch.Size, blocks: Blocks) -> tuple[Tensor, Tensor]:
        """Contribution of covariances to mean (B, m) and covariance (B, m, m) of the product.

        For Z_ik = sum_j X_ij Y_jk, the terms of an elementwise product are summed over j.
        """
        heads = out[:-2]
        i, k = out[-2:]
        j = events[0][-1]
        h = math.prod(heads)
        of_left = source_indices(events[0], (*heads, i, j))
        of_right = source_indices(events[1], (*heads, j, k))
        left, right, both = broadcast(blocks, of_left, of_right)
        left = left.reshape(-1, h, i, j, h, i, j)
        right = right.reshape(-1, h, j, k, h, j, k)
        both = both.reshape(-1, h, i, j, h, j, k)
        mean = torch.einsum("bhijhjk->bhik", both).flatten(1)
        square = torch.einsum("bhijgpl,bhjkglq->bhikgpq", left, right)
        square = square + torch.einsum("bhijglq,bgplhjk->bhikgpq", both, both)
        return mean, square.reshape(-1, mean.shape[1], mean.shape[1])

    def remainder_variances(self, factors: Factored, inputs: Numbers, rows: Rows, mean: Tensor) -> Tensor:
        a, b = inputs
        if a == b:
            return super().remainder_variances(factors, inputs, rows, mean)
        left, right = factors.remainders[a], factors.remainders[b]
        return left @ factors.means[b].square() + factors.means[a].square() @ right

    def moment_corrections(self, factors: Factored, inputs: Numbers, linear: Tensor) -> Moments:
        a, b = inputs
        if a == b and bool((factors.remainders[a] > 0).any()):
            raise NoFormulaForLawError("a product of matrices of a value with itself")
        left, right = factors.factors[a], factors.factors[b]
        of_left, of_right = factors.remainders[a], factors.remainders[b]
        mean = torch.zeros_like(linear)
        variance = of_left @ factors.variance(b) + left.square().sum(1) @ of_right
        # with X = L z and Y = R z, the product is sum_kl z_k z_l L_k R_l
        for k in range(factors.latent):
            first_k = left[:, k : k + 1] @ right  # L_k R_l for all l
            second_k = left @ right[:, k : k + 1]  # L_l R_k for all l
            mean = mean + first_k[:, k]
            variance = variance + first_k.square().sum(1) + (first_k * second_k).sum(1)
        return mean, variance

    def omission(self, factors: Factored, inputs: Numbers, rows: Rows, variance: Tensor) -> float:  # noqa: ARG002
        """Unknown for matrices, and not counted."""
        return 0.0


def product_step(module: nn.Module) -> ProductStep:
    """Step of a product of two values: elementwise, or of matrices (*heads, i, j) and (*heads, j, k)."""
    return MatrixProductStep(module) if isinstance(module, MatrixProduct) else ProductStep(module)


def source_indices(event: torch.Size, out: Numbers) -> Tensor | None:
    """Index of the component of an event that each component of a broadcast event `out` reads, flattened.

    None if the events are equal.
    """
    if tuple(event) == tuple(out):
        return None
    return torch.arange(math.prod(event)).reshape(event).expand(out).flatten()


def broadcast(blocks: Blocks, of_left: Tensor | None, of_right: Tensor | None) -> Blocks:
    """Covariances of two values after broadcasting, given the :func:`source_indices` of both."""

    def selected(block: Tensor, rows: Tensor | None, columns: Tensor | None) -> Tensor:
        if rows is not None:
            block = block[:, rows.to(block.device)]
        if columns is not None:
            block = block[:, :, columns.to(block.device)]
        return block

    left, right, both = blocks
    return (
        selected(left, of_left, of_left),
        selected(right, of_right, of_right),
        selected(both, of_left, of_right),
    )


class MaximumStep(ModuleStep):
    """The larger of two values: max(X, Y) = Y + (X - Y)_+, with known moments.

    Mean, covariance, and covariances with values that are read later are exact under a jointly Gaussian law
    (Clark 1961, "The greatest of a finite set of random variables"): those with a third value Z are P(X > Y)
    Cov(X, Z) + P(Y > X) Cov(Y, Z), by Stein's lemma.
    """

    single = True

    def linearisation(self, joint: Live, inputs: Numbers) -> tuple[Tensor, Rows]:
        difference, variance = self.difference_moments(joint, inputs)
        gain = ReLU().mean_variance(difference, variance)[0]
        passed = ReLU().mean_derivative(difference, variance).unsqueeze(1)

        def rows(of_left: Tensor, of_right: Tensor) -> Tensor:
            return passed * of_left + (1 - passed) * of_right

        return joint.means[inputs[1]] + gain, rows

    def difference_moments(self, joint: Live, inputs: Numbers) -> tuple[Tensor, Tensor]:
        """Mean and variance of the difference of the values, (B, *out)."""
        a, b = inputs
        shape = self.module(joint.means[a], joint.means[b]).shape[1:]
        difference = joint.means[a] - joint.means[b]
        both = joint.side_by_side(a, b, shape)
        variance = joint.side_by_side(a, a, shape) + joint.side_by_side(b, b, shape) - 2 * both
        return difference, variance.clamp(min=0)

    def temporary_entries(self, joint: Joint, inputs: Numbers, mean: Tensor) -> int:  # noqa: ARG002
        return 16 * mean[0].numel() ** 2

    def corrected_moments(self, joint: Joint, inputs: Numbers, mean: Tensor, covariance: Tensor) -> Moments:
        """Add the difference between the covariance of ramps and that of their linear parts."""
        difference, between = elementwise_input(self._difference(joint, inputs, mean.shape))
        ramps = ReLU().mean_covariance(difference, between)[1]
        passed = ReLU().mean_derivative(difference, between.diagonal(dim1=1, dim2=2))
        return mean, covariance + ramps - passed.unsqueeze(2) * between * passed.unsqueeze(1)

    def moment_corrections(self, factors: Factored, inputs: Numbers, linear: Tensor) -> Moments:  # noqa: ARG002
        """Add the difference between the variance of a ramp and that of its linear part."""
        difference, variance = self.difference_moments(factors, inputs)
        ramp = ReLU().mean_variance(difference, variance)[1]
        passed = ReLU().mean_derivative(difference, variance)
        return torch.zeros_like(ramp), ramp - passed.square() * variance

    @staticmethod
    def _difference(joint: Joint, inputs: Numbers, shape: torch.Size) -> Gaussian:
        """Law of the difference of the values, both broadcast to `shape`."""
        a, b = inputs
        of_a = source_indices(joint.means[a].shape[1:], shape[1:])
        of_b = source_indices(joint.means[b].shape[1:], shape[1:])
        blocks = joint.block(a, a), joint.block(b, b), joint.block(a, b)
        left, right, both = broadcast(blocks, of_a, of_b)
        mean = (joint.means[a] - joint.means[b]).flatten(1)
        return unchecked(Gaussian, mean, left + right - both - both.mT)


class VectorNormStep(ModuleStep):
    """Euclidean lengths, by the exact moments of their squares.

    The square is approximated by a gamma variable to compute its root
    (:func:`~sdp_ref.graph.nonlinear.root_moments`). Covariances are those of the square times a slope that
    yields the correct standard deviation.
    """

    def linearisation(self, joint: Live, inputs: Numbers) -> tuple[Tensor, Rows]:
        length, gain, _ = self.lengths(joint, inputs)

        def rows(x: Tensor) -> Tensor:
            return self.module.summed(x * gain.unsqueeze(1))

        return length, rows

    def temporary_entries(self, joint: Joint, inputs: Numbers, mean: Tensor) -> int:  # noqa: ARG002
        return 3 * joint.size(inputs[0]) ** 2

    def corrected_moments(self, joint: Joint, inputs: Numbers, mean: Tensor, covariance: Tensor) -> Moments:
        """Add the contribution of squared covariances."""
        (value,) = inputs
        slope = self._moments(joint, value)[1].unsqueeze(2)
        squared = self._summed(2 * joint.block(value, value).square(), joint.means[value])
        return mean, covariance + slope * squared * slope.mT

    def remainder_variances(self, factors: Factored, inputs: Numbers, rows: Rows, mean: Tensor) -> Tensor:  # noqa: ARG002
        _, gain, _ = self.lengths(factors, inputs)
        return self.module.summed(gain.square() * factors.remainders[inputs[0]])

    def moment_corrections(self, factors: Factored, inputs: Numbers, linear: Tensor) -> Moments:
        _, _, more = self.lengths(factors, inputs)
        return torch.zeros_like(linear), more

    def lengths(self, joint: Live, inputs: Numbers) -> tuple[Tensor, Tensor, Tensor]:
        """Mean lengths (B, *out), weights of the linear part (B, *event), remaining variances (B, *out)."""
        (value,) = inputs
        mean = joint.means[value]
        length, slope, remaining = self._moments(joint, value)
        out = self.module(mean).shape
        gain = 2 * mean * self._spread(slope.reshape(out), mean)
        return length.reshape(out), gain, remaining.reshape(out)

    def _moments(self, joint: Live, value: int) -> tuple[Tensor, Tensor, Tensor]:
        """For each length: mean, slope of the linear part of its square, and remaining variance.

        For X ~ N(m, C), E[X^T X] = m^T m + tr C, and Var[X^T X] = 4 m^T C m + 2 tr C^2; the first term is
        that of the linear part. The slope is the ratio of the standard deviations of length and square.
        """
        centre, covariance = self._vectors(joint, value)
        square_mean = (centre.square() + covariance.diagonal(dim1=2, dim2=3)).sum(2)
        quadratic = 2 * covariance.square().sum((2, 3))
        linear = 4 * torch.einsum("bgi,bgij,bgj->bg", centre, covariance, centre)
        square_variance = (quadratic + linear).clamp(min=0)
        length, length_variance = root_moments(square_mean, square_variance)
        varies = square_variance > 0
        ratio = torch.where(varies, length_variance, 1.0) / torch.where(varies, square_variance, 1.0)
        slope = torch.where(varies, ratio.sqrt(), 0.0)
        return length, slope, slope.square() * quadratic

    def _vectors(self, joint: Live, value: int) -> tuple[Tensor, Tensor]:
        """Means (B, lengths, n) and covariances (B, lengths, n, n) of the vectors of n components."""
        mean = joint.means[value]
        event = mean.shape[1:]
        dims = sorted(d % mean.ndim - 1 for d in self.module.dims)
        other_dims = [d for d in range(len(event)) if d not in dims]
        components = torch.arange(joint.size(value)).reshape(event).permute(*other_dims, *dims)
        components = components.reshape(math.prod(event[d] for d in other_dims), -1)
        return mean.flatten(1)[:, components], joint.within(value, components)

    def _summed(self, matrix: Tensor, mean: Tensor) -> Tensor:
        """Sums over the components of each pair of lengths, from (B, n, n) to (B, m, m)."""
        half = self.module.summed(matrix.reshape(*matrix.shape[:2], *mean.shape[1:])).flatten(2).mT
        return self.module.summed(half.reshape(*half.shape[:2], *mean.shape[1:])).flatten(2)

    def _spread(self, lengths: Tensor, mean: Tensor) -> Tensor:
        if not self.module.keepdim:
            for dim in sorted(d % mean.ndim for d in self.module.dims):
                lengths = lengths.unsqueeze(dim)
        return lengths.expand_as(mean)


def linearised(module: nn.Module) -> MeanStep:
    """Step of any differentiable op: its value and its derivative at the means."""

    def bind(*means: Tensor) -> tuple[Tensor, Rows]:
        return linear_part(partial(in_dtype, module), means)

    return MeanStep(bind, single=pointwise(module))


@dataclass(frozen=True)
class ScalarGroupsStep(LinearStep):
    """A norm or softmax over groups of components that depends on one number t for each group.

    Means and variances of the results f(t) are exact under a Gaussian law. With covariance matrices, so are
    all covariances (with values that are read later by Stein's lemma). With factors, f is replaced by a
    linear function that yields the correct standard deviation, which keeps the covariance within a group.
    """

    groups: ScalarGroups

    def linearisation(self, joint: Live, inputs: Numbers) -> tuple[Tensor, Rows]:
        number, variance = self._numbers(joint, inputs)
        results = self.groups.activation.mean_variance(number, variance)[0]
        slope = self.groups.activation.mean_derivative(number, variance)
        return self._with_slope(joint, inputs, results, slope)

    def image(self, factors: Factored, inputs: Numbers) -> Image:
        number, variance = self._numbers(factors, inputs)
        results, result_variance = self.groups.activation.mean_variance(number, variance)
        varies = (variance > 0) & (result_variance > 0)
        ratio = torch.where(varies, result_variance, 1.0) / torch.where(varies, variance, 1.0)
        slope = torch.where(varies, ratio.sqrt(), 0.0)
        linearisation = self._with_slope(factors, inputs, results, slope)
        return MeanStep(lambda _: linearisation).image(factors, inputs)

    def _with_slope(
        self, joint: Live, inputs: Numbers, results: Tensor, slope: Tensor
    ) -> tuple[Tensor, Rows]:
        """Linearisation with `results` and slopes (B, groups) of f at the numbers of the groups."""
        groups = self.groups

        def rows(x: Tensor) -> Tensor:
            numbers = slope.unsqueeze(1) * groups.numbers(x.flatten(2))
            return groups.spread(numbers, groups.gain).reshape(x.shape)

        return groups.finished(results).reshape(joint.means[inputs[0]].shape), rows

    def _numbers(self, joint: Live, inputs: Numbers) -> tuple[Tensor, Tensor]:
        """Means and variances (B, groups) of the numbers."""
        (value,) = inputs
        weights = self.groups.weights
        within = joint.within(value, self.groups.places)
        variance = torch.einsum("i,bgij,j->bg", weights, within, weights)
        return self.groups.numbers(joint.means[value].flatten(1)), variance.clamp(min=0)

    def temporary_entries(self, joint: Joint, inputs: Numbers, mean: Tensor) -> int:  # noqa: ARG002
        return 4 * joint.size(inputs[0]) ** 2

    def corrected_moments(self, joint: Joint, inputs: Numbers, mean: Tensor, covariance: Tensor) -> Moments:  # noqa: ARG002
        """Replace the covariance of the linear part by that of the results."""
        (value,) = inputs
        groups = self.groups
        number, variance = self._numbers(joint, inputs)
        block = groups.numbers(groups.numbers(joint.block(value, value)).mT)
        same = torch.eye(block.shape[1], dtype=torch.bool, device=block.device)
        between = torch.where(same, variance.unsqueeze(1), (block + block.mT) / 2)
        results = groups.activation.mean_covariance(number, between)[1]
        rows = groups.spread(results, groups.gain)
        return mean, groups.spread(rows.mT, groups.gain)


class GroupsStep(ModuleStep):
    """A norm or softmax; if its groups depend on one number each, by :class:`ScalarGroupsStep`."""

    def add_result(self, joint: Joint, number: int, inputs: Numbers, others: Numbers) -> None:
        if groups := ScalarGroups.of(self.module, joint.means[inputs[0]]):
            ScalarGroupsStep(groups).add_result(joint, number, inputs, others)
        else:
            super().add_result(joint, number, inputs, others)

    def image(self, factors: Factored, inputs: Numbers) -> Image:
        if groups := ScalarGroups.of(self.module, factors.means[inputs[0]]):
            return ScalarGroupsStep(groups).image(factors, inputs)
        return super().image(factors, inputs)


class NormStep(GroupsStep):
    """A norm, linearised at its mean scale: the mean square under the law replaces that at the mean.

    The module is one of :data:`~sdp_ref.graph.nonlinear.NORMS`.
    """

    def linearisation(self, joint: Live, inputs: Numbers) -> tuple[Tensor, Rows]:
        (value,) = inputs
        mean = joint.means[value]
        form = Norm.of(self.module, mean)
        trace, total = joint.group_sums(value, form.groups)
        n = joint.size(value) // form.groups
        # mean increase of the mean squares of groups by the noise, (B, groups, 1)
        increase = trace / n - total / n**2 if form.centred else trace / n
        z, inverse = form.scores(mean, increase)

        def rows(x: Tensor) -> Tensor:
            t = x.reshape(*x.shape[:2], *z.shape[1:])
            if form.centred:
                t = t - t.mean(-1, keepdim=True)
            score, divisor = z.unsqueeze(1), inverse.unsqueeze(1)
            y = (t - score * (score * t).mean(-1, keepdim=True)) * divisor
            y = y.reshape(x.shape)
            return y if form.gain is None else y * form.gain

        return form.finished(z, mean), rows


class SoftmaxStep(GroupsStep):
    """A softmax with its mean-field mean and the derivative of that."""

    def add_result(self, joint: Joint, number: int, inputs: Numbers, others: Numbers) -> None:
        mean = joint.means[inputs[0]]
        n = mean.shape[softmax_dim(self.module, mean)]
        joint.fit(joint.size(inputs[0]), entries=5 * n * joint.size(inputs[0]))
        super().add_result(joint, number, inputs, others)

    def linearisation(self, joint: Live, inputs: Numbers) -> tuple[Tensor, Rows]:
        (value,) = inputs
        mean = joint.means[value]
        dim = softmax_dim(self.module, mean) % mean.ndim
        groups = torch.arange(joint.size(value)).reshape(mean.shape[1:]).movedim(dim - 1, -1)
        groups = groups.flatten(0, -2) if groups.ndim > 1 else groups.unsqueeze(0)
        covariance = joint.within(value, groups)
        variance = covariance.diagonal(dim1=2, dim2=3)
        difference_variance = variance.unsqueeze(3) + variance.unsqueeze(2) - covariance - covariance.mT
        scores = mean.movedim(dim, -1)
        p, jacobian = mean_field(scores.reshape(variance.shape), difference_variance.clamp(min=0))

        def rows(x: Tensor) -> Tensor:
            t = x.movedim(dim + 1, -1)
            y = torch.einsum("bgij,brgj->brgi", jacobian, t.reshape(*t.shape[:2], *variance.shape[1:]))
            return y.reshape(t.shape).movedim(-1, dim + 1)

        return p.reshape(scores.shape).movedim(-1, dim), rows
