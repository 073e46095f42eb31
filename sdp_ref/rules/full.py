"""The base class of rules that propagate a full covariance matrix.

Affine ops map covariances exactly. For an elementwise function, the rule's handler computes the moments of
the output, and its covariance with values that are read later follows from Stein's lemma.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from sdp_ref.activations import ELEMENTWISE, Activation, activation_of
from sdp_ref.errors import CovarianceSizeError, NoFormulaError
from sdp_ref.graph import trace
from sdp_ref.graph.affine import AFFINE
from sdp_ref.graph.nonlinear import MAX_POOLS, NORMS, Attention, max_pool, softmax_dim
from sdp_ref.graph.ops import Add, Cat, MatrixProduct, Maximum, MaximumOfPairs, Multiply, Quotient, VectorNorm
from sdp_ref.jacobian.local import linear_part
from sdp_ref.laws import DiagonalGaussian, Gaussian, Law, joined
from sdp_ref.rules.base import as_gaussian, stored
from sdp_ref.rules.joint import AffineStep, CopyStep, Joint, JointStep, MeanStep, Numbers, Rows, add_copy
from sdp_ref.rules.joint_ops import (
    MaximumStep,
    NormStep,
    SoftmaxStep,
    VectorNormStep,
    linearised,
    product_step,
)
from sdp_ref.rules.layerwise import IDENTITIES, HandlerT, SizedRule, inherited


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

    def add_result(self, joint: Joint, number: int, inputs: Numbers, others: Numbers) -> None:
        """Add the results for `inputs` as the values `number`, `number` + 1, ..."""
        values = tuple(dict.fromkeys(inputs))
        n = sum(joint.size(v) for v in values)
        joint.fit(n, built=self.temporaries, entries=n * sum(joint.size(v) for v in others))
        law = joint.law(values[0]) if len(values) == 1 else joint.law_of_all(values)
        derivative = self._mean_derivative(law) if others else None
        result = self.handler(law)
        if not isinstance(result, Gaussian):
            raise NoFormulaError(f"a handler that returns a {type(result).__name__}")
        self._add_results(joint, number, inputs, others, result, derivative)

    @staticmethod
    def _add_results(
        joint: Joint, number: int, inputs: Numbers, others: Numbers, law: Gaussian, derivative: Tensor | None
    ) -> None:
        """Divide the law of all results, and add them one by one.

        `law` has one result for each distinct input, concatenated, and `derivative` (B, n) the mean
        derivatives of the function at these inputs, if there are `others`.
        """
        values = tuple(dict.fromkeys(inputs))
        means, blocks = _divided(law, joint, values)
        derivatives: dict[int, Tensor] = {}
        if derivative is not None:
            sizes = [joint.size(v) for v in values]
            derivatives = dict(zip(values, derivative.split(sizes, 1), strict=True))
        result_of: dict[int, int] = {}
        for result, value in enumerate(inputs, start=number):
            if value in result_of:  # the same function of the same value
                earlier = result_of[value]
                live = (*others, *range(number, result))
                add_copy(joint, result, earlier, live, joint.means[earlier])
                continue
            cross = {result_of[v]: blocks[v, value] for v in result_of}
            if derivatives:
                for other in others:
                    cross[other] = joint.block(other, value) * derivatives[value].unsqueeze(1)
            joint.add(result, means[value], blocks[value, value], cross)
            result_of[value] = result

    def _mean_derivative(self, law: Gaussian) -> Tensor:
        if self.derivative is None:
            raise NoFormulaError(
                f"{type(self.module).__name__} next to a residual branch, without its mean derivative "
                "(declare it with mean_derivatives)"
            )
        variance = law.covariance.diagonal(dim1=-2, dim2=-1)
        clamped = variance.clamp(min=0).reshape(law.mean.shape)
        slope = self.derivative(self.module, law.mean, clamped).flatten(1)
        return torch.where(variance < 0, 0.0, slope)  # a point mass, as in `elementwise_input`


def _divided(
    law: Gaussian, joint: Joint, values: Numbers
) -> tuple[dict[int, Tensor], dict[tuple[int, int], Tensor]]:
    """Means and covariance blocks of the results of a function of several values, by these values."""
    if len(values) == 1:  # a handler of a single value may change its size
        (value,) = values
        return {value: law.mean}, {(value, value): law.covariance}
    sizes = [joint.size(v) for v in values]
    means, blocks = {}, {}
    for value, mean in zip(values, law.mean.split(sizes, 1), strict=True):
        means[value] = mean.reshape(joint.means[value].shape)
    for first, rows in zip(values, law.covariance.split(sizes, 1), strict=True):
        for second, block in zip(values, rows.split(sizes, 2), strict=True):
            blocks[first, second] = block
    return means, blocks


@dataclass(frozen=True)
class Move:
    """A step, or several steps that apply the same function and are computed together.

    The results are numbered from `number` on; `step_numbers` are their numbers in the net. `inputs` has one
    value per step if there are several steps. `unneeded` are the values that are not read afterwards.
    """

    operation: JointStep
    number: int
    inputs: Numbers
    path: str
    unneeded: frozenset[int]
    step_numbers: Numbers


def scheduled(steps: Sequence[trace.Step], operations: Sequence[JointStep]) -> list[Move]:
    """Order the steps so that a function that occurs in several branches is applied to all of them at once.

    The covariance between its results is then as accurate as that within each. If no function can be shared,
    the order is that of the net.
    """
    functions = [_function(step, operation) for step, operation in zip(steps, operations, strict=True)]
    groups = _groups(steps, functions)
    if all(len(group) == 1 for group in groups):
        groups = [[i] for i in range(len(steps))]
    new_steps = _renumbered(steps, groups)
    unneeded = trace.last_uses(new_steps)
    moves = []
    first = 0  # index of the group's first step in the new order
    for group in groups:
        members = slice(first, first + len(group))
        inputs: list[int] = []
        for step in new_steps[members]:
            inputs += step.inputs
        move = Move(
            operation=operations[group[0]],
            number=first + 1,
            inputs=tuple(inputs),
            path=new_steps[first].path,
            unneeded=frozenset[int]().union(*unneeded[members]),
            step_numbers=tuple(i + 1 for i in group),
        )
        moves.append(move)
        first += len(group)
    return moves


def _renumbered(steps: Sequence[trace.Step], groups: list[list[int]]) -> list[trace.Step]:
    """Put the steps in the order of the groups, with their inputs numbered accordingly.

    Value 0 is the input of the net, and value i + 1 the result of step i.
    """
    order = [i for group in groups for i in group]
    new_number = {0: 0}
    for position, i in enumerate(order):
        new_number[i + 1] = position + 1
    return [replace(steps[i], inputs=tuple(new_number[v] for v in steps[i].inputs)) for i in order]


def _function(step: trace.Step, operation: JointStep) -> Activation | None:
    """Return the elementwise function of a step if it is registered and the same for all components."""
    if type_before_parametrizations(step.module) not in ELEMENTWISE:
        return None
    activation = activation_of(step.module)
    return activation if activation.uniform and isinstance(operation, ElementwiseStep) else None


def _groups(steps: Sequence[trace.Step], functions: Sequence[Activation | None]) -> list[list[int]]:
    """Group the steps (by index) that are computed together, in the order of computation.

    Steps without a shared function come as early as possible, then one function for all values that wait for
    it.
    """
    computed = {0}  # numbers of values
    waiting = list(range(len(steps)))
    groups = []
    while waiting:
        ready = [i for i in waiting if computed.issuperset(steps[i].inputs)]
        without_function = [i for i in ready if functions[i] is None]
        if without_function:
            group = without_function[:1]
        else:
            function = functions[ready[0]]
            group = [i for i in ready if functions[i] == function]
        groups.append(_copies_last(steps, group))
        computed.update(i + 1 for i in group)
        waiting = [i for i in waiting if i not in group]
    return groups


def _copies_last(steps: Sequence[trace.Step], group: list[int]) -> list[int]:
    """Order the steps such that those with the inputs of an earlier step come last."""
    distinct: dict[Numbers, int] = {}
    for i in group:
        distinct.setdefault(steps[i].inputs, i)
    first_steps = list(distinct.values())
    return first_steps + [i for i in group if i not in first_steps]


@dataclass(frozen=True)
class FullCovarianceRule(SizedRule):
    """Base class of rules that propagate a full covariance matrix from layer to layer.

    They compute in float64 for every dtype of the input, because thin directions of the output can have
    variances far below the float32 rounding of the large ones. Values that are read again later, for example
    in residual branches, are propagated as one joint Gaussian.

    Batches are split such that the covariance matrices of one step fit into `max_bytes`.
    """

    temporaries: ClassVar[int] = 16
    """Peak number of matrices (B, n, n) that an elementwise handler needs, including the result."""

    _derivatives: ClassVar[ChainMap[type[nn.Module], Callable[..., Tensor]]] = ChainMap()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._derivatives = inherited(cls, "_derivatives")

    @classmethod
    def mean_derivatives(cls, *kinds: type[nn.Module]) -> Callable[[HandlerT], HandlerT]:
        """Register the decorated function as E[f'(X)] for elementwise modules of the given classes.

        It is called as ``function(module, mean, variance)`` with float64 tensors (B, *event) and returns
        such a tensor. It is required if a value is read again after the module, for example in a residual
        branch; :meth:`handles` suffices in a chain.
        """

        def register(function: HandlerT) -> HandlerT:
            cls._derivatives.update(dict.fromkeys(kinds, function))
            return function

        return register

    def start(self, x: Law) -> Law:
        """Keep independent components as they are."""
        law = x if isinstance(x, DiagonalGaussian) else as_gaussian(self.name, x)
        return law.to(dtype=torch.float64)

    def finish(self, law: Law, x: Law) -> Law:
        """Convert to the dtype of `x`."""
        full = as_gaussian(self.name, law)
        return stored(full.mean, full.covariance, x.location.dtype)

    def linearise(self, module: nn.Module) -> JointStep:
        """Use forward derivatives along the rows of covariances."""
        return linearised(module)

    def walk(self, steps: Sequence[trace.Step], operations: Sequence[Any]) -> Callable[[Law], Law]:
        """Propagate the values that are read later as one joint Gaussian."""
        joint_steps = []
        for number, (step, operation) in enumerate(zip(steps, operations, strict=True), start=1):
            joint_steps.append(self._joint_step(number, step, operation))
        moves = scheduled(steps, joint_steps)
        last = len(steps)

        def walked(x: Law) -> Law:
            law = self.start(x)
            if isinstance(law, DiagonalGaussian):
                joint = Joint(self.fit, law.mean, variance=law.variance)
            else:
                full = as_gaussian(self.name, law)
                joint = Joint(self.fit, full.mean, covariance=full.covariance)
            for move in moves:
                others = tuple(v for v in joint.live if v not in move.unneeded)
                joint.path = move.path
                with self.step_errors(move.path, *move.step_numbers):
                    move.operation.add_result(joint, move.number, move.inputs, others)
                joint.drop(move.unneeded)
            built = 0 if joint.independent(last) is None else 1
            joint.path = ""
            joint.fit(joint.size(last), built=built)
            return self.finish(joint.law(last), x)

        return fitting_batches(walked)

    def _joint_step(self, number: int, step: trace.Step, handler: Callable[..., Any]) -> JointStep:
        """Convert the result of a handler to a step of a joint law."""
        if isinstance(handler, JointStep):
            return handler
        kind = type_before_parametrizations(step.module)
        with self.step_errors(step.path, number):
            if len(step.inputs) != 1:
                raise NoFormulaError(f"{kind.__name__} of several values")
        return ElementwiseStep(handler, step.module, self._derivatives.get(kind), self.temporaries)


def fitting_batches(walked: Callable[[Law], Law]) -> Callable[[Law], Law]:
    """Split batches (B, *event) until they fit, in halves, since only the largest step shows the memory."""

    def propagate(x: Law) -> Law:
        try:
            return walked(x)
        except CovarianceSizeError:
            if x.batch == 1:
                raise
        return joined([propagate(x[: x.batch // 2]), propagate(x[x.batch // 2 :])])

    return propagate


def _affine(module: nn.Module) -> JointStep:
    return AffineStep(AFFINE[type_before_parametrizations(module)](module))


def _add(_module: nn.Module) -> JointStep:
    return MeanStep(lambda a, b: (a + b, torch.add), single=True)


def _cat(module: Any) -> JointStep:
    def bind(*means: Tensor) -> tuple[Tensor, Rows]:
        dim = module.dim % means[0].ndim + 1  # rows have an additional dimension
        return module(*means), lambda *rows: torch.cat(rows, dim)

    return MeanStep(bind, single=True)


def _log_softmax(module: Any) -> JointStep:
    def bind(mean: Tensor) -> tuple[Tensor, Rows]:
        softmax_dim(module, mean)
        return linear_part(module, [mean])

    return MeanStep(bind)


def _max_pool(module: nn.Module) -> JointStep:
    """Select the component with the largest mean of each window, as in the paper's section on MaxPool."""

    def bind(mean: Tensor) -> tuple[Tensor, Rows]:
        maxima, index = max_pool(module, mean)
        selected = index.flatten(2).unsqueeze(1)  # (B, 1, channels, windows)

        def rows(x: Tensor) -> Tensor:
            of_maxima = x.flatten(3).gather(3, selected.expand(-1, x.shape[1], -1, -1))
            return of_maxima.reshape(*x.shape[:2], *maxima.shape[1:])

        return maxima, rows

    return MeanStep(bind, single=True)


_STEPS: list[tuple[Callable[[Any], JointStep], tuple[type[nn.Module], ...], str]] = [
    (_affine, tuple(AFFINE), ""),
    (lambda _module: CopyStep(), IDENTITIES, ""),
    (_add, (Add,), ""),
    (_cat, (Cat,), ""),
    (product_step, (Multiply, MatrixProduct), ""),
    (MaximumStep, (Maximum,), ""),
    (MaximumStep, (MaximumOfPairs,), "by pairs"),
    (VectorNormStep, (VectorNorm,), "by its mean square"),
    (linearised, (Quotient, Attention), "linearised"),
    (SoftmaxStep, (nn.Softmax,), "by mean field"),
    (_log_softmax, (nn.LogSoftmax,), "linearised"),
    (NormStep, NORMS, "linearised with its mean scale"),
    (_max_pool, MAX_POOLS, "by its largest mean"),
]
"""Functions that make the step of a module, the modules' classes, and the approximation."""

for _make, _kinds, _note in _STEPS:
    FullCovarianceRule.prepares(*_kinds, note=_note)(lambda _rule, module, make=_make: make(module))


@FullCovarianceRule.mean_derivatives(*ELEMENTWISE)
def _elementwise_derivative(module: nn.Module, mean: Tensor, variance: Tensor) -> Tensor:
    return activation_of(module).mean_derivative(mean, variance)
