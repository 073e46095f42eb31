"""The base class of rules that propagate a full covariance matrix.

Affine ops map covariances exactly. For an elementwise function, the rule's handler computes the moments of
the output, and its covariance with values that are read later follows from Stein's lemma.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, cast

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
from sdp_ref.laws import DiagonalGaussian, Law, joined
from sdp_ref.rules.base import as_gaussian, stored
from sdp_ref.rules.joint import AffineStep, CopyStep, Joint, JointStep, MeanStep, Numbers, Rows
from sdp_ref.rules.joint_elementwise import BranchesStep, ElementwiseStep, ExactMoments
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


def scheduled(
    steps: Sequence[trace.Step],
    operations: Sequence[JointStep],
    errors: Callable[..., AbstractContextManager[None]],
) -> list[Move]:
    """Order the steps so that the functions of several branches are applied to all of them at once.

    `errors` returns the context for a path and numbers of steps, such as `LayerwiseRule.step_errors`.

    The covariances between their results are then as accurate as those within a step. If no step can be
    combined with another, the order is that of the net.
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
            operation=_combined(group, steps, functions, operations, errors),
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


class _Function(NamedTuple):
    """An elementwise function that can be computed together with others.

    Steps with equal functions are computed as one. A function with parameters per component equals another
    only for the same `inputs`. Different functions are combined if they are `exact`.
    """

    activation: Activation
    inputs: Numbers
    exact: bool


def _function(step: trace.Step, operation: JointStep) -> _Function | None:
    """Return the elementwise function of a step if it is registered and can be combined with others."""
    registered = type_before_parametrizations(step.module) in ELEMENTWISE
    if not (registered and isinstance(operation, ElementwiseStep)):
        return None
    activation = activation_of(step.module)
    exact = isinstance(operation.handler, ExactMoments)
    if not (activation.uniform or exact):
        return None
    return _Function(activation, () if activation.uniform else step.inputs, exact)


def _combined(
    group: list[int],
    steps: Sequence[trace.Step],
    functions: Sequence[_Function | None],
    operations: Sequence[JointStep],
    errors: Callable[..., AbstractContextManager[None]],
) -> JointStep:
    """Return one operation for the steps of a group."""
    members: list[list[int]] = []  # steps by function
    function_of = []
    for i in group:
        equal = (k for k, others in enumerate(members) if functions[others[0]] == functions[i])
        k = next(equal, len(members))
        if k == len(members):
            members.append([])
        members[k].append(i)
        function_of.append(k)
    combined = [operations[indices[0]] for indices in members]
    if len(combined) == 1:
        return combined[0]
    contexts = [partial(errors, steps[indices[0]].path, *[i + 1 for i in indices]) for indices in members]
    return BranchesStep(tuple(cast("list[ElementwiseStep]", combined)), tuple(function_of), tuple(contexts))


def _groups(steps: Sequence[trace.Step], functions: Sequence[_Function | None]) -> list[list[int]]:
    """Group the steps (by index) that are computed together, in the order of computation.

    Steps without a function come as early as possible, then the functions of all values that wait for one.
    """
    computed = {0}  # numbers of values
    waiting = list(range(len(steps)))
    groups = []
    while waiting:
        ready = [i for i in waiting if computed.issuperset(steps[i].inputs)]
        without_function = [i for i in ready if functions[i] is None]
        group = without_function[:1] or _together(ready, functions)
        groups.append(_copies_last(steps, functions, group))
        computed.update(i + 1 for i in group)
        waiting = [i for i in waiting if i not in group]
    return groups


def _together(ready: list[int], functions: Sequence[_Function | None]) -> list[int]:
    """Those of the steps that are computed together with the first one."""
    first = functions[ready[0]]
    if first is not None and first.exact:
        return [i for i in ready if (function := functions[i]) is not None and function.exact]
    return [i for i in ready if functions[i] == first]


def _copies_last(
    steps: Sequence[trace.Step], functions: Sequence[_Function | None], group: list[int]
) -> list[int]:
    """Order the steps such that those with the function and inputs of an earlier step come last."""
    first_steps: list[int] = []
    for i in group:
        if not any(steps[i].inputs == steps[k].inputs and functions[i] == functions[k] for k in first_steps):
            first_steps.append(i)
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
        moves = scheduled(steps, joint_steps, self.step_errors)
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
