"""Ops on values with low-rank plus diagonal covariances: their linear parts and variances."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sdp_ref.activations import Activation
from sdp_ref.activations.relu import ReLU
from sdp_ref.errors import NoFormulaError, NoFormulaForLawError, NoLinearPartError
from sdp_ref.graph.ops import MatrixProduct
from sdp_ref.rules.joint import AffineStep, CopyStep, JointStep, LinearStep, Rows
from sdp_ref.rules.joint_ops import MaximumStep, ProductStep, VectorNormStep
from sdp_ref.rules.low_rank.compression import adjoint
from sdp_ref.rules.low_rank.factors import Factors, Image

_CHUNK = 2**24  # entries of images of components in memory at once
_MOST = 2**29
"""Largest linear part, in entries, that is evaluated component by component: more would take hours."""
_SAME = 1e-9
_ROWS = 128
"""Number of components whose covariances beyond the first order are computed, as a sample of all."""


class FactorStep(ABC):
    """An op on values with factors and remainders."""

    @abstractmethod
    def image(self, factors: Factors, inputs: Sequence[int]) -> Image:
        """Compute the result of the op from live values."""


class CopyFactors(FactorStep):
    def image(self, factors: Factors, inputs: Sequence[int]) -> Image:
        variance = factors.variance(inputs[0])
        return Image(factors.means[inputs[0]], lambda x: x, variance, variance, parallel=True)


class LinearFactors(FactorStep):
    """An op that is linear up to a constant and, optionally, additional moments.

    `step` is that of the rules with full covariances.
    """

    def __init__(self, step: LinearStep) -> None:
        self.step = step
        self.single: bool = getattr(step, "single", False)

    def image(self, factors: Factors, inputs: Sequence[int]) -> Image:
        mean, rows = self.step.bound(factors, tuple(inputs))
        if mean.ndim < 2:
            raise NoLinearPartError("a value of one number a row (keep a dimension: x[:, :1])")
        linear = self.squares(factors, inputs, rows, mean)
        if factors.latent:
            linear = linear + rows(*(factors.factors[v] for v in inputs)).square().sum(1)
        shift, more = self.beyond(factors, inputs, linear)
        return Image(
            mean + shift,
            rows,
            linear,
            linear + more,
            self.single and _parallel(factors, inputs, rows, mean.shape[1:]),
            self.left_out(factors, inputs, rows, linear + more),
        )

    def squares(self, factors: Factors, inputs: Sequence[int], rows: Rows, mean: Tensor) -> Tensor:
        """Variances (B, *out) of the output from the remainders."""
        total = torch.zeros_like(mean)
        for value in dict.fromkeys(inputs):
            root = factors.remainders[value].sqrt().unsqueeze(1)
            if self.single:
                total = total + _alone(factors, inputs, value, rows, root).square().sum(1)
                continue
            n = factors.size(value)
            if n * mean[0].numel() > _MOST:
                raise NoFormulaError(
                    f"a Jacobian of {mean[0].numel()} by {n} components, more than {_MOST:,} entries"
                )
            chunk = max(1, _CHUNK // max(1, len(mean) * max(n, mean[0].numel())))
            for places in torch.arange(n, device=mean.device).split(chunk):
                basis = nn.functional.one_hot(places, n).to(mean).reshape(1, -1, *root.shape[2:]) * root
                total = total + _alone(factors, inputs, value, rows, basis).square().sum(1)
        return total

    def beyond(
        self,
        factors: Factors,  # noqa: ARG002
        inputs: Sequence[int],  # noqa: ARG002
        linear: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Means and variances of the output in addition to those of the linear part."""
        return torch.zeros_like(linear), torch.zeros_like(linear)

    def left_out(
        self,
        factors: Factors,  # noqa: ARG002
        inputs: Sequence[int],  # noqa: ARG002
        rows: Rows,  # noqa: ARG002
        variance: Tensor,  # noqa: ARG002
    ) -> Tensor | float:
        """Share of the covariances that the linear part omits, as in :class:`Image`."""
        return 0.0


class AffineFactors(LinearFactors):
    def __init__(self, step: AffineStep) -> None:
        super().__init__(step)
        self.op = step.op
        self.single = step.op.diagonal

    def image(self, factors: Factors, inputs: Sequence[int]) -> Image:
        self.op.check(factors.means[inputs[0]])
        return super().image(factors, inputs)

    def squares(
        self,
        factors: Factors,
        inputs: Sequence[int],
        rows: Rows,  # noqa: ARG002
        mean: Tensor,  # noqa: ARG002
    ) -> Tensor:
        return self.op.spread(factors.remainders[inputs[0]], 2)


class ProductFactors(LinearFactors):
    """An elementwise product of two values: exact means and variances, by the theorem of Isserlis."""

    def __init__(self, step: ProductStep) -> None:
        super().__init__(step)
        self.single = True

    def beyond(
        self,
        factors: Factors,
        inputs: Sequence[int],
        linear: Tensor,
    ) -> tuple[Tensor, Tensor]:
        a, b = inputs
        both = factors.side_by_side(a, b, linear.shape[1:])
        return both, factors.variance(a) * factors.variance(b) + both.square()

    @torch.no_grad()
    def left_out(
        self, factors: Factors, inputs: Sequence[int], rows: Rows, variance: Tensor
    ) -> Tensor | float:
        """Share of Cov(X, Z) Cov(Y, W) + Cov(X, W) Cov(Y, Z) for products XY and ZW."""
        if not factors.latent:
            return 0.0
        image = rows(*(factors.factors[v] for v in inputs)).flatten(2)
        shape = (*image.shape[:2], *variance.shape[1:])
        left, right = (factors.factors[v].expand(shape).flatten(2) for v in inputs)

        def covariances(some: Tensor) -> tuple[Tensor, Tensor]:
            def between(one: Tensor, other: Tensor) -> Tensor:
                return one[:, :, some].mT @ other

            more = between(left, left) * between(right, right) + between(left, right) * between(right, left)
            return between(image, image), more

        return _share(covariances, variance.flatten(1), factors.latent)


class MaximumFactors(LinearFactors):
    """The larger of two values: exact means and variances (Clark 1961)."""

    def __init__(self, step: MaximumStep) -> None:
        super().__init__(step)
        self.step: MaximumStep = step
        self.single = True

    def beyond(
        self,
        factors: Factors,
        inputs: Sequence[int],
        linear: Tensor,  # noqa: ARG002
    ) -> tuple[Tensor, Tensor]:
        """Difference between the variance of a ramp and that of its linear part."""
        difference, variance = self.step.apart(factors, tuple(inputs))
        ramp = ReLU().mean_variance(difference, variance)[1]
        passed = ReLU().mean_derivative(difference, variance)
        return torch.zeros_like(ramp), ramp - passed.square() * variance


class LengthFactors(LinearFactors):
    """Euclidean lengths of groups of components, as in the rules with full covariances."""

    def __init__(self, step: VectorNormStep) -> None:
        super().__init__(step)
        self.step: VectorNormStep = step

    def squares(
        self,
        factors: Factors,
        inputs: Sequence[int],
        rows: Rows,  # noqa: ARG002
        mean: Tensor,  # noqa: ARG002
    ) -> Tensor:
        _, gain, _ = self.step.lengths(factors, tuple(inputs))
        return self.step.module.summed(gain.square() * factors.remainders[inputs[0]])

    def beyond(self, factors: Factors, inputs: Sequence[int], linear: Tensor) -> tuple[Tensor, Tensor]:
        _, _, more = self.step.lengths(factors, tuple(inputs))
        return torch.zeros_like(linear), more


class MatrixFactors(LinearFactors):
    """A product of matrices: exact means and variances, by the theorem of Isserlis."""

    def squares(self, factors: Factors, inputs: Sequence[int], rows: Rows, mean: Tensor) -> Tensor:
        a, b = inputs
        if a == b:
            return super().squares(factors, inputs, rows, mean)
        left, right = (factors.remainders[v] for v in inputs)
        return left @ factors.means[b].square() + factors.means[a].square() @ right

    def beyond(self, factors: Factors, inputs: Sequence[int], linear: Tensor) -> tuple[Tensor, Tensor]:
        a, b = inputs
        if a == b and bool((factors.remainders[a] > 0).any()):
            raise NoFormulaForLawError("a product of matrices of a value with itself")
        left, right = factors.factors[a], factors.factors[b]
        of_left, of_right = factors.remainders[a], factors.remainders[b]
        mean = torch.zeros_like(linear)
        variance = of_left @ factors.variance(b) + left.square().sum(1) @ of_right
        for k in range(factors.latent):
            here, there = left[:, k : k + 1] @ right, left @ right[:, k : k + 1]
            mean = mean + here[:, k]
            variance = variance + here.square().sum(1) + (here * there).sum(1)
        return mean, variance


class ElementwiseFactors(FactorStep):
    """An elementwise function with the first term of its covariances, E[f'(X)] E[f'(Y)] Cov(X, Y).

    Means and variances are exact. E[f'(X)]^2 Var X is at most Var f(X) (Cacoullos 1982), so the variance in
    addition to the linear part is not negative.
    """

    def __init__(self, activation: Activation) -> None:
        self.activation = activation

    def image(self, factors: Factors, inputs: Sequence[int]) -> Image:
        (value,) = inputs
        before = factors.variance(value)
        mean, variance = self.activation.mean_variance(factors.means[value], before)
        slope = self.activation.mean_derivative(factors.means[value], before)
        linear = slope.square() * before
        beyond = self._left_out(factors.factors[value].flatten(2), before, slope, variance)
        return Image(mean, lambda x: x * slope.unsqueeze(1), linear, variance, True, beyond)

    @staticmethod
    @torch.no_grad()
    def _left_out(factor: Tensor, before: Tensor, slope: Tensor, variance: Tensor) -> Tensor | float:
        """Share of the covariances beyond the first order.

        By their Hermite series, the covariance of f(X) and f(Y) beyond the first order is at most the square
        of the correlation of X and Y times the standard deviations of their parts beyond the first order.
        """
        if not factor.shape[1]:
            return 0.0
        moves = before > 0
        inverse = torch.where(moves, torch.where(moves, before, 1.0).rsqrt(), 0.0)
        standard, image = (factor * each.flatten(1).unsqueeze(1) for each in (inverse, slope))
        own = (variance - slope.square() * before).clamp(min=0).sqrt().flatten(1).unsqueeze(1)

        def covariances(some: Tensor) -> tuple[Tensor, Tensor]:
            correlation = standard[:, :, some].mT @ standard
            return image[:, :, some].mT @ image, correlation.square() * own[:, :, some].mT * own

        return _share(covariances, variance.flatten(1), factor.shape[1])


_FORMS: Mapping[type[LinearStep], Callable[[Any], FactorStep]] = {
    AffineStep: AffineFactors,
    ProductStep: ProductFactors,
    MaximumStep: MaximumFactors,
    VectorNormStep: LengthFactors,
    LinearStep: LinearFactors,
}
"""Factor steps by joint steps, the most specific ones first."""


def factor_step(step: JointStep | FactorStep) -> FactorStep:
    match step:
        case FactorStep():
            return step
        case CopyStep():
            return CopyFactors()
        case ProductStep(module=MatrixProduct()):
            return MatrixFactors(step)
    for kind, form in _FORMS.items():
        if isinstance(step, kind):
            return form(step)
    raise NoFormulaError("a handler of the law of one value")


def _share(
    covariances: Callable[[Tensor], tuple[Tensor, Tensor]], variance: Tensor, at_a_time: int
) -> Tensor:
    """Frobenius norm of omitted covariances, relative to that of all."""
    n, top = variance.shape[1], variance.amax(1)
    # squares of values far from 1 may over- or underflow
    unit = torch.where(top > 0, top, 1.0)[:, None, None]
    generator = torch.Generator().manual_seed(0)
    some = torch.arange(n) if n <= _ROWS else torch.randperm(n, generator=generator)[:_ROWS]
    missing, there = variance.new_zeros(2, len(variance))
    for part in some.split(at_a_time):
        kept, left_out = covariances(part)
        own = torch.arange(len(part)), part
        kept[:, *own], left_out[:, *own] = variance[:, part], 0.0
        missing = missing + (left_out / unit).square().sum((1, 2))
        there = there + (kept / unit).square().sum((1, 2))
    whole = missing + there
    return torch.where(whole > 0, missing / torch.where(whole > 0, whole, 1.0), 0.0).sqrt()


def _alone(factors: Factors, inputs: Sequence[int], value: int, rows: Rows, given: Tensor) -> Tensor:
    """Image of rows (B, R, *event) of one value, with those of the others zero."""
    batch, count = given.shape[:2]
    return rows(
        *(given if v == value else given.new_zeros(batch, count, *factors.means[v].shape[1:]) for v in inputs)
    )


@torch.no_grad()
def _parallel(factors: Factors, inputs: Sequence[int], rows: Rows, out: torch.Size) -> bool:
    """Whether no component of an input is read twice, as in overlapping windows or copies.

    The linear part A of each input then has a diagonal A A^T, which is tested on two random vectors.
    """
    generator = torch.Generator().manual_seed(0)
    for value in dict.fromkeys(inputs):
        mean = factors.means[value]
        given = torch.rand(1, 2, *out, generator=generator, dtype=mean.dtype) + 0.5
        given = given.to(mean.device).expand(len(mean), *given.shape[1:])

        def alone(x: Tensor, value: int = value) -> Tensor:
            return _alone(factors, inputs, value, rows, x)

        (back,) = adjoint(alone, [mean.shape[1:]], given)
        image = alone(back)
        first, second = (image / given).unbind(1)
        if not torch.allclose(first, second, rtol=_SAME, atol=_SAME * float(first.abs().max())):
            return False
    return True
