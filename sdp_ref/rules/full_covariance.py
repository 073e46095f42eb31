"""What the rules share that carry a full covariance matrix from layer to layer.

Affine ops map covariances exactly; an elementwise function gives the moments of its output by the
rule's own handler, and its covariance with values that are read again later by Stein's lemma.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from sdp_ref import graph
from sdp_ref.activations import Activation
from sdp_ref.affine import AFFINE, Affine, Elementwise, LinearMap, Normalisation, Rearrangement
from sdp_ref.distributions import DiagonalGaussian, Gaussian, Law, unchecked
from sdp_ref.errors import CovarianceSizeError
from sdp_ref.graph import Add, Net, UnsupportedError
from sdp_ref.joint import Joint, Rows
from sdp_ref.ops import Cat, Shift
from sdp_ref.pooling import MAX_POOLS, max_pool
from sdp_ref.rules.base import ELEMENTWISE, IDENTITIES, HandlerT, LayerwiseRule, activation_of, as_gaussian
from sdp_ref.rules.schedule import Move, scheduled

_NUMBER = 8  # bytes
_DEFAULT_BYTES = 4 * 2**30


@dataclass(frozen=True)
class FullCovarianceRule(LayerwiseRule):
    """What the rules share that carry a full covariance matrix from layer to layer.

    They walk in float64 whatever the input's dtype: thin directions of the output have variances
    far below float32's rounding of the large ones. The values that are read again later (those that
    residual branches add, say) are walked as one joint Gaussian.

    Parameters
    ----------
    max_bytes : int
        What the covariance matrices of one step and the temporaries of computing them may take. A
        step that would take more, for one input of the batch, is refused before anything is allocated
        for it; batches are cut to fit. What autograd keeps, where gradients are on, comes on top.

    Raises
    ------
    ValueError
        If `max_bytes` is not a positive number.
    """

    temporaries: ClassVar[int] = 16
    """Matrices (B, n, n) that an elementwise handler takes at its peak, the result included."""

    _derivatives: ClassVar[dict[type[nn.Module], Callable[..., Tensor]]] = {}

    max_bytes: int = field(default=_DEFAULT_BYTES, kw_only=True)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._derivatives = {}

    def __post_init__(self) -> None:
        if not isinstance(self.max_bytes, int | float) or not self.max_bytes > 0:
            raise ValueError(f"{self.name} needs max_bytes above 0, got {self.max_bytes!r}")

    @classmethod
    def mean_derivatives(cls, *kinds: type[nn.Module]) -> Callable[[HandlerT], HandlerT]:
        """Declare the decorated function as E[f'(X)] for elementwise modules of these `kinds`.

        It is called as ``function(module, mean, variance)`` with float64 tensors (B, n) and returns
        another. A net needs it where a value is read again after the module, beside a residual
        branch say; :meth:`handles` alone will do in a chain.
        """

        def register(function: HandlerT) -> HandlerT:
            cls._derivatives.update(dict.fromkeys(kinds, function))
            return function

        return register

    def start(self, x: Law) -> Law:
        """See :class:`LayerwiseRule`; independent components are left as such."""
        law = x if isinstance(x, DiagonalGaussian) else as_gaussian(self.name, x)
        return law.to(dtype=torch.float64)

    def finish(self, law: Law, x: Law) -> Law:
        """Symmetrise the rounding away and go back to the dtype of `x`."""
        assert isinstance(law, Gaussian)
        covariance = (law.covariance + law.covariance.mT) / 2
        return unchecked(Gaussian, law.mean, covariance).to(dtype=x.location.dtype)

    def prepare(self, net: Net) -> Callable[[Law], Law]:
        """Trace the net and find a handler for each op; see :class:`Rule`."""
        steps, operations = self.operations(net)
        functions = [_function(step, operation) for step, operation in zip(steps, operations, strict=True)]
        moves = scheduled(steps, operations, functions)
        last = len(steps)

        def walk(x: Law) -> Law:
            joint = _begun(self.start(x))
            for move in moves:
                with self.placed(move.steps[0]):
                    others = tuple(v for v in joint.live if v not in move.unneeded)
                    if isinstance(move.operation, JointStep):
                        move.operation.take(self, joint, move.number, move.steps[0].inputs, others)
                    else:
                        self._elementwise(move, joint, others)
                joint.drop(move.unneeded)
            self.fit(joint, joint.size(last), built=0 if joint.independent(last) is None else 1)
            return self.finish(joint.law(last), x)

        def propagate(x: Law) -> Law:
            try:
                return walk(x)
            except CovarianceSizeError:
                if x.batch == 1:
                    raise
            parts = [propagate(x[: x.batch // 2]), propagate(x[x.batch // 2 :])]
            fields = ([getattr(part, name) for part in parts] for name in ("mean", "covariance"))
            return unchecked(Gaussian, *(torch.cat(field) for field in fields))

        return propagate

    def fit(self, joint: Joint, n: int, *, built: int = 1, entries: int = 0) -> None:
        """Refuse a step whose matrices would not fit in `max_bytes`.

        Parameters
        ----------
        joint : Joint
            What is held already.
        n : int
            Components of the step's output.
        built : int
            How many (B, n, n) matrices the step takes.
        entries : int
            Numbers, for one input of the batch, that it takes besides.

        Raises
        ------
        CovarianceSizeError
            If they would not.
        """
        batch = len(next(iter(joint.means.values())))
        needed = _NUMBER * (joint.entries + batch * (built * n * n + entries))
        if needed > self.max_bytes:
            raise CovarianceSizeError(
                self.name,
                f"covariances of {batch} x {n} x {n} components: they would take {needed:,} bytes with what "
                f"computing them needs, more than its max_bytes={self.max_bytes:,}",
                bytes=needed,
            )

    def _elementwise(self, move: Move, joint: Joint, others: tuple[int, ...]) -> None:
        """Apply one function to one value, or to several at once, side by side."""
        module = move.steps[0].module
        if any(len(step.inputs) != 1 for step in move.steps):
            raise UnsupportedError("", f"{type(module).__name__} of several values")
        values = tuple(dict.fromkeys(step.inputs[0] for step in move.steps))
        sizes = [joint.size(v) for v in values]
        n = sum(sizes)
        self.fit(joint, n, built=self.temporaries, entries=n * sum(joint.size(v) for v in others))
        law = joint.law(values[0]) if len(values) == 1 else joint.law_of_all(values)
        slope = self._mean_derivative(module, law) if others else None
        out = move.operation(law)
        if not isinstance(out, Gaussian):
            raise UnsupportedError("", f"a handler that returns a {type(out).__name__}")
        if len(values) == 1:
            means, blocks, slopes = [out.mean], [[out.covariance]], [slope]
        else:
            means = [
                m.reshape(joint.means[v].shape) for m, v in zip(out.mean.split(sizes, 1), values, strict=True)
            ]
            blocks = [list(rows.split(sizes, 2)) for rows in out.covariance.split(sizes, 1)]
            slopes = [None] * len(values) if slope is None else list(slope.split(sizes, 1))
        made: dict[int, int] = {}
        for number, step in enumerate(move.steps, start=move.number):
            value = step.inputs[0]
            if value in made:  # the same function of the same value
                there = (*others, *range(move.number, number))
                _copied(self, joint, number, made[value], there, joint.means[made[value]])
                continue
            k = values.index(value)
            cross = {made[v]: blocks[values.index(v)][k] for v in made}
            if (derivative := slopes[k]) is not None:
                cross |= {v: joint.block(v, value) * derivative.unsqueeze(1) for v in others}
            joint.add(number, means[k], blocks[k][k], cross)
            made[value] = number

    def _mean_derivative(self, module: nn.Module, law: Gaussian) -> Tensor:
        kind = type_before_parametrizations(module)
        tables = (vars(cls).get("_derivatives", {}) for cls in type(self).__mro__)
        function = next((table[kind] for table in tables if kind in table), None)
        if function is None:
            raise UnsupportedError(
                "",
                f"{kind.__name__} beside a residual branch, for want of its mean derivative "
                "(declare it with mean_derivatives)",
            )
        variance = law.covariance.diagonal(dim1=-2, dim2=-1)
        slope = function(module, law.mean.flatten(1), variance.clamp(min=0))
        return torch.where(variance < 0, 0.0, slope)  # a point mass, as in elementwise_input


def _function(step: graph.Step, operation: Callable[..., Any]) -> Activation | None:
    """Elementwise function of the table that a step applies, if it does."""
    known = isinstance(step.module, ELEMENTWISE) and not isinstance(operation, JointStep)
    return activation_of(step.module) if known else None


def _begun(law: Law) -> Joint:
    if isinstance(law, DiagonalGaussian):
        return Joint(law.mean, variance=law.variance)
    assert isinstance(law, Gaussian)
    return Joint(law.mean, covariance=law.covariance)


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


class JointStep(ABC):
    """An op that knows how to take the joint law of its inputs and of what is read later."""

    @abstractmethod
    def take(
        self,
        rule: FullCovarianceRule,
        joint: Joint,
        number: int,
        inputs: tuple[int, ...],
        others: tuple[int, ...],
    ) -> None:
        """Add value `number`, made from values `inputs`; values `others` are read later."""


class LinearStep(JointStep):
    """An op that is linear, up to a constant, once the means of its inputs are known.

    Parameters
    ----------
    bind : callable
        From the means to the mean of the output and the linear part.
    """

    def __init__(self, bind: Callable[..., tuple[Tensor, Rows]]) -> None:
        self.bind = bind

    def take(
        self,
        rule: FullCovarianceRule,
        joint: Joint,
        number: int,
        inputs: tuple[int, ...],
        others: tuple[int, ...],
    ) -> None:
        """See :class:`JointStep`."""
        mean, rows = self.bind(*(joint.means[i] for i in inputs))
        _check_event(mean)
        m = mean[0].numel()
        partners = dict.fromkeys((*others, *inputs))
        fresh = sum(joint.size(v) ** 2 for v in partners if joint.independent(v) is not None)
        rule.fit(joint, m, entries=fresh + sum(joint.size(v) * m for v in partners))
        cross = joint.linear_cross(inputs, rows, partners)
        covariance = joint.linear_covariance(inputs, rows, cross)
        joint.add(number, mean, covariance, {v: cross[v] for v in others})


class AffineStep(LinearStep):
    """An affine op of one value, with shorter ways where there are some."""

    def __init__(self, op: Affine) -> None:
        super().__init__(self._bound)
        self.op = op

    def _bound(self, mean: Tensor) -> tuple[Tensor, Rows]:
        def rows(x: Tensor) -> Tensor:
            y = self.op.rows(x.flatten(0, 1))
            return y.reshape(*x.shape[:2], *y.shape[1:])

        return self.op.value(mean), rows

    def take(
        self,
        rule: FullCovarianceRule,
        joint: Joint,
        number: int,
        inputs: tuple[int, ...],
        others: tuple[int, ...],
    ) -> None:
        """See :class:`JointStep`."""
        (value,) = inputs
        mean = joint.means[value]
        self.op.check(mean)
        variance = joint.independent(value)
        if self._leaves_covariance(mean):
            _copied(rule, joint, number, value, others, self.op.value(mean))
        elif isinstance(self.op, LinearMap) and mean.ndim == 2:
            self._multiplied(rule, joint, number, value, others)
        elif variance is not None and self._is_diagonal(mean) and not others:
            spread = self.op.spread(variance.reshape(mean.shape), 2)
            joint.replace(value, number, self.op.value(mean), spread)
        else:
            super().take(rule, joint, number, inputs, others)

    def _leaves_covariance(self, mean: Tensor) -> bool:
        if isinstance(self.op, Rearrangement):
            return self.op.keeps_order
        return isinstance(self.op.module, Shift) and self.op.value(mean[:1]).shape == mean[:1].shape

    def _is_diagonal(self, mean: Tensor) -> bool:
        scales = isinstance(self.op, Normalisation | Elementwise)
        return scales and self.op.value(mean[:1]).shape == mean[:1].shape

    def _multiplied(
        self, rule: FullCovarianceRule, joint: Joint, number: int, value: int, others: tuple[int, ...]
    ) -> None:
        """Products with the weight matrix, without the input's own matrix where it is diagonal."""
        weight = self.op.module.weight.double()
        m, n = weight.shape
        variance, mean = joint.independent(value), self.op.value(joint.means[value])
        rule.fit(joint, m, entries=m * n + sum(joint.size(v) * m for v in others))
        left = weight @ joint.block(value, value) if variance is None else weight * variance.unsqueeze(1)
        cross = {v: left.mT if v == value else joint.block(v, value) @ weight.mT for v in others}
        joint.add(number, mean, left @ weight.mT, cross)


class CopyStep(JointStep):
    """An op that gives back what it took."""

    def take(
        self,
        rule: FullCovarianceRule,
        joint: Joint,
        number: int,
        inputs: tuple[int, ...],
        others: tuple[int, ...],
    ) -> None:
        """See :class:`JointStep`."""
        _copied(rule, joint, number, inputs[0], others, joint.means[inputs[0]])


def _copied(
    rule: FullCovarianceRule, joint: Joint, number: int, value: int, others: tuple[int, ...], mean: Tensor
) -> None:
    """Add a value with the covariance of another; nothing is computed and nothing copied."""
    _check_event(mean)
    if value not in others:
        joint.rename(value, number, mean)
        return
    if joint.independent(value) is not None:
        rule.fit(joint, joint.size(value))
    joint.add(number, mean, joint.block(value, value), {v: joint.block(v, value) for v in others})


def _check_event(mean: Tensor) -> None:
    if mean.ndim < 2:
        raise UnsupportedError("", "a value of one number a row (keep a dimension: x[:, :1])")


@FullCovarianceRule.prepares(*AFFINE)
def _affine(_rule: FullCovarianceRule, module: nn.Module) -> JointStep:
    return AffineStep(AFFINE[type_before_parametrizations(module)](module))


@FullCovarianceRule.prepares(*IDENTITIES)
def _identity(_rule: FullCovarianceRule, _module: nn.Module) -> JointStep:
    return CopyStep()


@FullCovarianceRule.prepares(Add)
def _add(_rule: FullCovarianceRule, _module: nn.Module) -> JointStep:
    def bind(a: Tensor, b: Tensor) -> tuple[Tensor, Rows]:
        if a.shape != b.shape:
            raise UnsupportedError(
                "", f"a sum of values of shapes {tuple(a.shape[1:])} and {tuple(b.shape[1:])}"
            )
        return a + b, torch.add

    return LinearStep(bind)


@FullCovarianceRule.prepares(Cat)
def _cat(_rule: FullCovarianceRule, module: Cat) -> JointStep:
    def bind(*means: Tensor) -> tuple[Tensor, Rows]:
        dim = module.dim % means[0].ndim + 1  # rows have one dimension more
        return module(*means), lambda *rows: torch.cat(rows, dim)

    return LinearStep(bind)


@FullCovarianceRule.prepares(*MAX_POOLS)
def _max_pool(_rule: FullCovarianceRule, module: nn.Module) -> JointStep:
    """Take the component with the largest mean of each window, as the paper's MaxPool section does."""

    def bind(mean: Tensor) -> tuple[Tensor, Rows]:
        maxima, index = max_pool(module, mean)
        chosen = index.flatten(2).unsqueeze(1)  # (B, 1, channels, places)

        def rows(x: Tensor) -> Tensor:
            picked = x.flatten(3).gather(3, chosen.expand(-1, x.shape[1], -1, -1))
            return picked.reshape(*x.shape[:2], *maxima.shape[1:])

        return maxima, rows

    return LinearStep(bind)


@FullCovarianceRule.mean_derivatives(*ELEMENTWISE)
def _elementwise_derivative(module: nn.Module, mean: Tensor, variance: Tensor) -> Tensor:
    return activation_of(module).mean_derivative(mean, variance)
