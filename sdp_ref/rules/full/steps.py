"""Steps of a net on the joint law of its live values: affine ops, sums, selections and copies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from torch import Tensor

from sdp_ref.errors import NoLinearPartError
from sdp_ref.graph.affine import Affine, Elementwise, LinearMap, Normalisation, Rearrangement
from sdp_ref.graph.ops import Shift
from sdp_ref.rules.full.budget import Budget
from sdp_ref.rules.full.joint import Joint, Live, Rows


class JointStep(ABC):
    """An op that maps the joint law of its inputs and of the values that are read later."""

    @abstractmethod
    def take(
        self, joint: Joint, budget: Budget, number: int, inputs: tuple[int, ...], others: tuple[int, ...]
    ) -> None:
        """Add value `number`, computed from `inputs`, and its covariance with `others` to the joint law.

        Raises :class:`~sdp_ref.CovarianceSizeError` if the matrices do not fit in the budget.
        """


class LinearStep(JointStep):
    """An op that is linear up to a constant and, optionally, additional moments."""

    def take(
        self, joint: Joint, budget: Budget, number: int, inputs: tuple[int, ...], others: tuple[int, ...]
    ) -> None:
        mean, rows = self.bound(joint, inputs)
        _check_event(mean)
        m = mean[0].numel()
        partners = dict.fromkeys((*others, *inputs))
        fresh = sum(joint.size(v) ** 2 for v in partners if joint.independent(v) is not None)
        fresh += self.entries(joint, inputs, mean)
        budget.fit(joint, m, entries=fresh + sum(joint.size(v) * m for v in partners))
        cross = joint.linear_cross(inputs, rows, partners)
        covariance = joint.linear_covariance(inputs, rows, cross)
        mean, covariance = self.completed(joint, inputs, mean, covariance)
        joint.add(number, mean, covariance, {v: cross[v] for v in others})

    @abstractmethod
    def bound(self, joint: Live, inputs: tuple[int, ...]) -> tuple[Tensor, Rows]:
        """Return the mean of the output and the linear part."""

    def entries(self, joint: Joint, inputs: tuple[int, ...], mean: Tensor) -> int:  # noqa: ARG002
        """Number of entries per input of the batch that :meth:`completed` allocates."""
        return 0

    def completed(
        self,
        joint: Joint,  # noqa: ARG002
        inputs: tuple[int, ...],  # noqa: ARG002
        mean: Tensor,
        covariance: Tensor,
    ) -> tuple[Tensor, Tensor]:
        return mean, covariance


class MeanStep(LinearStep):
    """An op that is linear given the means of its inputs.

    `bind` maps the means to the mean of the output and the linear part. If `single`, each component of the
    output reads at most one component of each value.
    """

    def __init__(self, bind: Callable[..., tuple[Tensor, Rows]], single: bool = False) -> None:
        self.bind, self.single = bind, single

    def bound(self, joint: Live, inputs: tuple[int, ...]) -> tuple[Tensor, Rows]:
        return self.bind(*(joint.means[i] for i in inputs))


class AffineStep(LinearStep):
    """An affine op of one value, with shortcuts for common cases."""

    def __init__(self, op: Affine) -> None:
        self.op = op

    def bound(self, joint: Live, inputs: tuple[int, ...]) -> tuple[Tensor, Rows]:
        def rows(x: Tensor) -> Tensor:
            y = self.op.rows(x.flatten(0, 1))
            return y.reshape(*x.shape[:2], *y.shape[1:])

        return self.op.value(joint.means[inputs[0]]), rows

    def take(
        self, joint: Joint, budget: Budget, number: int, inputs: tuple[int, ...], others: tuple[int, ...]
    ) -> None:
        (value,) = inputs
        mean = joint.means[value]
        self.op.check(mean)
        variance = joint.independent(value)
        if self._leaves_covariance(mean):
            copied(joint, budget, number, value, others, self.op.value(mean))
        elif isinstance(self.op, LinearMap) and mean.ndim == 2:
            self._multiplied(joint, budget, number, value, others)
        elif variance is not None and self._is_diagonal(mean) and not others:
            spread = self.op.spread(variance.reshape(mean.shape), 2)
            joint.replace(value, number, self.op.value(mean), spread)
        else:
            super().take(joint, budget, number, inputs, others)

    def _leaves_covariance(self, mean: Tensor) -> bool:
        if isinstance(self.op, Rearrangement):
            return self.op.keeps_order
        return isinstance(self.op.module, Shift) and self.op.value(mean[:1]).shape == mean[:1].shape

    def _is_diagonal(self, mean: Tensor) -> bool:
        scales = isinstance(self.op, Normalisation | Elementwise)
        return scales and self.op.value(mean[:1]).shape == mean[:1].shape

    def _multiplied(
        self, joint: Joint, budget: Budget, number: int, value: int, others: tuple[int, ...]
    ) -> None:
        """Multiply by the weight matrix, without building the input's covariance matrix if it is diagonal."""
        weight = self.op.module.weight.double()
        m, n = weight.shape
        variance, mean = joint.independent(value), self.op.value(joint.means[value])
        budget.fit(joint, m, entries=m * n + sum(joint.size(v) * m for v in others))
        left = weight @ joint.block(value, value) if variance is None else weight * variance.unsqueeze(1)
        cross = {v: left.mT if v == value else joint.block(v, value) @ weight.mT for v in others}
        joint.add(number, mean, left @ weight.mT, cross)


class CopyStep(JointStep):
    def take(
        self, joint: Joint, budget: Budget, number: int, inputs: tuple[int, ...], others: tuple[int, ...]
    ) -> None:
        copied(joint, budget, number, inputs[0], others, joint.means[inputs[0]])


def copied(
    joint: Joint, budget: Budget, number: int, value: int, others: tuple[int, ...], mean: Tensor
) -> None:
    """Add a value with the covariance of another, without computing or copying it."""
    _check_event(mean)
    if value not in others:
        joint.rename(value, number, mean)
        return
    if joint.independent(value) is not None:
        budget.fit(joint, joint.size(value))
    joint.add(number, mean, joint.block(value, value), {v: joint.block(v, value) for v in others})


def _check_event(mean: Tensor) -> None:
    if mean.ndim < 2:
        raise NoLinearPartError("a value of one number a row (keep a dimension: x[:, :1])")
