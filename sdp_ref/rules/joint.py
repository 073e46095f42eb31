"""Joint Gaussian law of the values of a net that are read later, in blocks.

A residual branch reads a value again after others have been computed from it, and the variance of the sum
depends on their covariance. For an affine op this is Cov(A X, Y) = A Cov(X, Y); for an elementwise function f
of jointly Gaussian X and Y it is Cov(f(X), Y) = E[f'(X)] Cov(X, Y) (Stein's lemma).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from sdp_ref.errors import CovarianceSizeError, NoFormulaError, NoLinearPartError
from sdp_ref.graph.affine import Affine, Elementwise, LinearMap, Normalisation, Rearrangement
from sdp_ref.graph.ops import Shift
from sdp_ref.laws import Gaussian, Law, unchecked

Rows = Callable[..., Tensor]
"""Linear part of an op: maps one matrix of rows (B, R, *event) per input to (B, R, *out)."""


class Live(Protocol):
    """The interface through which an op reads the live values in order to be linearised."""

    means: dict[int, Tensor]

    def size(self, value: int) -> int:
        """Number of components of a value."""

    def within(self, value: int, places: Tensor) -> Tensor:
        """Covariances (B, groups, n, n) within groups of components, with indices `places` (groups, n)."""

    def group_sums(self, value: int, groups: int) -> tuple[Tensor, Tensor]:
        """Sums of variances and of all covariances within groups of adjacent components, (B, groups, 1)."""

    def side_by_side(self, one: int, other: int, shape: torch.Size) -> Tensor:
        """Covariances of corresponding components of two values, both broadcast to an event, (B, *shape)."""


class Joint:
    """Means and covariance blocks of the live values during the walk through a net.

    Value 0 is the input of the net, given by its mean (B, *event), float64, and its covariance (B, n, n), or
    its variance (B, *event) if its components are independent. The matrix is then built only when an op needs
    it.
    """

    def __init__(
        self, mean: Tensor, *, covariance: Tensor | None = None, variance: Tensor | None = None
    ) -> None:
        self.means = {0: mean}
        self._variances = {} if variance is None else {0: variance.flatten(1)}
        # Only pairs i <= j; the others are their transposes.
        self._blocks = {} if covariance is None else {(0, 0): covariance}

    @property
    def live(self) -> tuple[int, ...]:
        return tuple(self.means)

    @property
    def entries(self) -> int:
        return sum(block.numel() for block in self._blocks.values())

    def independent(self, value: int) -> Tensor | None:
        """Variances (B, n) of a value whose matrix has not been built, otherwise None."""
        return None if (value, value) in self._blocks else self._variances[value]

    def block(self, i: int, j: int) -> Tensor:
        """Covariance (B, n_i, n_j) of values `i` and `j`."""
        if i == j and (i, i) not in self._blocks:
            self._blocks[i, i] = torch.diag_embed(self._variances[i])
        return self._blocks[i, j] if i <= j else self._blocks[j, i].mT

    def law(self, value: int) -> Gaussian:
        return unchecked(Gaussian, self.means[value], self.block(value, value))

    def law_of_all(self, values: Sequence[int]) -> Gaussian:
        """Joint law of several values, flattened and concatenated."""
        mean = torch.cat([self.means[v].flatten(1) for v in values], 1)
        rows = [torch.cat([self.block(i, j) for j in values], 2) for i in values]
        return unchecked(Gaussian, mean, torch.cat(rows, 1))

    def within(self, value: int, places: Tensor) -> Tensor:
        variance = self.independent(value)
        if variance is not None:
            return torch.diag_embed(variance[:, places])
        return self.block(value, value)[:, places.unsqueeze(2), places.unsqueeze(1)]

    def side_by_side(self, one: int, other: int, shape: torch.Size) -> Tensor:
        rows, columns = (
            torch.arange(self.size(v)).reshape(self.means[v].shape[1:]).expand(shape).flatten()
            for v in (one, other)
        )
        own = self.independent(one) if one == other else None
        taken = self.block(one, other)[:, rows, columns] if own is None else own[:, rows]
        return taken.reshape(-1, *shape)

    def group_sums(self, value: int, groups: int) -> tuple[Tensor, Tensor]:
        variance = self.independent(value)
        if variance is not None:
            trace = variance.reshape(len(variance), groups, -1).sum(-1, keepdim=True)
            return trace, trace
        own = self.within(value, torch.arange(self.size(value)).reshape(groups, -1))
        trace = own.diagonal(dim1=2, dim2=3).sum(-1, keepdim=True)
        return trace, own.sum((2, 3)).unsqueeze(-1)

    def size(self, value: int) -> int:
        return self.means[value][0].numel()

    def replace(self, old: int, new: int, mean: Tensor, variance: Tensor) -> None:
        """Replace the only value by one with independent components."""
        if self.live != (old,):
            raise ValueError(f"value {old} is not the only live one: {self.live}")
        self.means, self._variances, self._blocks = {new: mean}, {new: variance.flatten(1)}, {}

    def add(self, value: int, mean: Tensor, covariance: Tensor, cross: dict[int, Tensor]) -> None:
        """Add a value, with its covariance with each live one, (B, n_live, n)."""
        if any(other >= value for other in self.means):
            raise ValueError(f"value {value} does not come after the live ones: {self.live}")
        self.means[value] = mean
        self._blocks[value, value] = covariance
        self._blocks.update({(other, value): block for other, block in cross.items()})

    def drop(self, values: Iterable[int]) -> None:
        gone = set(values)
        self.means = {v: mean for v, mean in self.means.items() if v not in gone}
        self._blocks = {k: block for k, block in self._blocks.items() if not gone & set(k)}

    def rename(self, old: int, new: int, mean: Tensor) -> None:
        """Renumber value `old`, whose components keep their order in the new shape."""

        def name(v: int) -> int:
            return new if v == old else v

        blocks = {}
        for (i, j), block in self._blocks.items():
            a, b = name(i), name(j)
            blocks[(a, b) if a <= b else (b, a)] = block if a <= b else block.mT
        self._blocks = blocks
        self._variances = {name(v): variance for v, variance in self._variances.items()}
        self.means = {name(v): m for v, m in self.means.items()} | {new: mean}

    def linear_cross(self, inputs: Sequence[int], rows: Rows, others: Iterable[int]) -> dict[int, Tensor]:
        """Covariances (B, n_other, m) of the values `others` with the image of `inputs` under `rows`."""
        return {
            other: rows(*(self._rows(self.block(other, i), i) for i in inputs)).flatten(2) for other in others
        }

    def linear_covariance(self, inputs: Sequence[int], rows: Rows, cross: dict[int, Tensor]) -> Tensor:
        """Covariance (B, m, m) of the image of `inputs` under `rows`, given their covariance with it."""
        return rows(*(self._rows(cross[i].mT, i) for i in inputs)).flatten(2)

    def _rows(self, block: Tensor, value: int) -> Tensor:
        return block.reshape(*block.shape[:2], *self.means[value].shape[1:])


_NUMBER = 8  # bytes per number
_HINT = "rule 'low_rank' carries covariances as factors of low rank, which fit"


@dataclass(frozen=True)
class Budget:
    """Memory that a rule may use at one op of a net."""

    rule: str
    path: str
    max_bytes: float

    def fit(self, joint: Joint, n: int, *, built: int = 1, entries: int = 0) -> None:
        batch = len(next(iter(joint.means.values())))
        needed = _NUMBER * (joint.entries + batch * (built * n * n + entries))
        if needed > self.max_bytes:
            raise CovarianceSizeError(
                self.rule,
                f"covariances of {batch} x {n} x {n} components: they would take {needed:,} bytes with what "
                f"computing them needs, more than its max_bytes={self.max_bytes:,}",
                self.path,
                needed,
                _HINT,
            )


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


def elementwise_input(law: Gaussian) -> tuple[Tensor, Tensor]:
    """Mean and covariance at the input of an elementwise function.

    A unit with a negative variance, from rounding or from the indefinite covariance of DVIA, is treated as a
    point mass.
    """
    covariance = law.covariance
    negative = covariance.diagonal(dim1=-2, dim2=-1) < 0
    if covariance.device.type != "cpu" or bool(negative.any()):  # avoid waiting for another device
        covariance = covariance.masked_fill(negative.unsqueeze(-1) | negative.unsqueeze(-2), 0.0)
    return law.mean.flatten(1), covariance


@dataclass(frozen=True)
class ElementwiseStep(JointStep):
    """An elementwise function of one value, or of several values at once.

    `handler` maps the law of the value, or of all values concatenated, to that of the result, and needs up to
    `temporaries` matrices. `derivative` is E[f'(X)] from the module, the mean and the variance of X, or None
    if there is no formula. The covariance with values that are read later is Cov(f(X), Y) = E[f'(X)] Cov(X,
    Y) (Stein's lemma).
    """

    handler: Callable[[Gaussian], Law]
    module: nn.Module
    derivative: Callable[[nn.Module, Tensor, Tensor], Tensor] | None
    temporaries: int

    def take(
        self, joint: Joint, budget: Budget, number: int, inputs: tuple[int, ...], others: tuple[int, ...]
    ) -> None:
        """Add the results for `inputs` as the values `number`, `number` + 1, ..."""
        values = tuple(dict.fromkeys(inputs))
        sizes = [joint.size(v) for v in values]
        n = sum(sizes)
        budget.fit(joint, n, built=self.temporaries, entries=n * sum(joint.size(v) for v in others))
        law = joint.law(values[0]) if len(values) == 1 else joint.law_of_all(values)
        slope = self._mean_derivative(law) if others else None
        out = self.handler(law)
        if not isinstance(out, Gaussian):
            raise NoFormulaError(f"a handler that returns a {type(out).__name__}")
        if len(values) == 1:
            means, blocks, slopes = [out.mean], [[out.covariance]], [slope]
        else:
            means = [
                m.reshape(joint.means[v].shape) for m, v in zip(out.mean.split(sizes, 1), values, strict=True)
            ]
            blocks = [list(rows.split(sizes, 2)) for rows in out.covariance.split(sizes, 1)]
            slopes = [None] * len(values) if slope is None else list(slope.split(sizes, 1))
        made: dict[int, int] = {}
        for result, value in enumerate(inputs, start=number):
            if value in made:  # the same function of the same value
                there = (*others, *range(number, result))
                copied(joint, budget, result, made[value], there, joint.means[made[value]])
                continue
            k = values.index(value)
            cross = {made[v]: blocks[values.index(v)][k] for v in made}
            if (derivative := slopes[k]) is not None:
                cross |= {v: joint.block(v, value) * derivative.unsqueeze(1) for v in others}
            joint.add(result, means[k], blocks[k][k], cross)
            made[value] = result

    def _mean_derivative(self, law: Gaussian) -> Tensor:
        if self.derivative is None:
            raise NoFormulaError(
                f"{type(self.module).__name__} beside a residual branch, for want of its mean derivative "
                "(declare it with mean_derivatives)"
            )
        variance = law.covariance.diagonal(dim1=-2, dim2=-1)
        clamped = variance.clamp(min=0).reshape(law.mean.shape)
        slope = self.derivative(self.module, law.mean, clamped).flatten(1)
        return torch.where(variance < 0, 0.0, slope)  # a point mass, as in `elementwise_input`
