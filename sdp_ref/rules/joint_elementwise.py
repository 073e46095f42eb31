"""Elementwise functions of a joint law: of one value, or of several values at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sdp_ref.activations import Activation
from sdp_ref.activations.branches import Branch, branch_covariance
from sdp_ref.errors import NoFormulaError
from sdp_ref.laws import Gaussian, Law, unchecked
from sdp_ref.rules.joint import Joint, JointStep, Numbers, add_copy, elementwise_input


@dataclass(frozen=True)
class ExactMoments:
    """Handler with the exact moments of a non-linearity; covariances without a formula err by `tolerance`."""

    activation: Activation
    tolerance: float

    def __call__(self, law: Gaussian) -> Gaussian:
        flat = self.activation.flattened(law.mean.shape[1:])
        mean, covariance = flat.mean_covariance(*elementwise_input(law), tolerance=self.tolerance)
        return unchecked(Gaussian, mean.reshape(law.mean.shape), covariance)

    def branch(self, law: Gaussian, result: Gaussian) -> Branch:
        """The function together with the laws of its argument and result."""
        mean, covariance = elementwise_input(law)
        flat = self.activation.flattened(law.mean.shape[1:])
        return Branch(flat, mean, *[c.diagonal(dim1=1, dim2=2) for c in (covariance, result.covariance)])


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
        BranchesStep((self,), (0,) * len(inputs), (nullcontext,)).add_result(joint, number, inputs, others)

    def results(self, joint: Joint, values: Numbers, *, derivative: bool) -> _Results:
        """Apply the function to distinct values, with the mean derivatives if required."""
        law = joint.law(values[0]) if len(values) == 1 else joint.law_of_all(values)
        slope = self._mean_derivative(law) if derivative else None
        result = self.handler(law)
        if not isinstance(result, Gaussian):
            raise NoFormulaError(f"a handler that returns a {type(result).__name__}")
        return _Results(self, values, [joint.size(v) for v in values], law, result, slope)

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


@dataclass(frozen=True, eq=False)
class _Results:
    """Results of a function of distinct values of these sizes.

    `law` is that of all values concatenated, `result` that of the results, and `derivative` (B, n) the mean
    derivatives, or None if no other value is live.
    """

    step: ElementwiseStep
    values: Numbers
    sizes: list[int]
    law: Gaussian
    result: Gaussian
    derivative: Tensor | None

    def means(self, joint: Joint) -> Iterator[tuple[int, Tensor]]:
        """Mean of the result for each value."""
        if len(self.values) == 1:  # a handler of a single value may change its size
            yield self.values[0], self.result.mean
            return
        for value, mean in zip(self.values, self.result.mean.split(self.sizes, 1), strict=True):
            yield value, mean.reshape(joint.means[value].shape)

    def derivatives(self) -> dict[int, Tensor]:
        """Mean derivatives by value; empty if no other value is live."""
        if self.derivative is None:
            return {}
        return dict(zip(self.values, self.derivative.split(self.sizes, 1), strict=True))

    def covariance(self, other: _Results, joint: Joint) -> Tensor:
        """Covariance with the results of another function; both handlers are :class:`ExactMoments`."""
        first, second = self.step.handler, other.step.handler
        assert isinstance(first, ExactMoments)  # noqa: S101  as `scheduled` groups them
        assert isinstance(second, ExactMoments)  # noqa: S101
        rows = [torch.cat([joint.block(u, v) for v in other.values], 2) for u in self.values]
        tolerance = min(first.tolerance, second.tolerance)
        branches = first.branch(self.law, self.result), second.branch(other.law, other.result)
        return branch_covariance(*branches, torch.cat(rows, 1), tolerance)


@dataclass(frozen=True)
class BranchesStep(JointStep):
    """Elementwise functions that are applied at once, so that the covariances of their results are exact.

    Input i takes the function `steps[function_of[i]]`. If there are several functions, their handlers are
    :class:`ExactMoments`. `errors` are contexts that attribute the errors of a function to its steps.
    """

    steps: tuple[ElementwiseStep, ...]
    function_of: Numbers
    errors: tuple[Callable[[], AbstractContextManager[None]], ...]

    def add_result(self, joint: Joint, number: int, inputs: Numbers, others: Numbers) -> None:
        """Add the results for `inputs` as the values `number`, `number` + 1, ..."""
        n = sum(joint.size(v) for v in dict.fromkeys(inputs))
        temporaries = max(step.temporaries for step in self.steps)
        joint.fit(n, built=temporaries, entries=n * sum(joint.size(v) for v in others))
        keys = list(zip(self.function_of, inputs, strict=True))
        results = []
        for function, step in enumerate(self.steps):
            values = tuple(dict.fromkeys(value for f, value in keys if f == function))
            with self.errors[function]():
                results.append(step.results(joint, values, derivative=bool(others)))
        means: dict[Key, Tensor] = {}
        derivatives: dict[Key, Tensor] = {}
        for function, result in enumerate(results):
            means |= {(function, value): mean for value, mean in result.means(joint)}
            derivatives |= {(function, value): slope for value, slope in result.derivatives().items()}
        blocks = _blocks(results, joint)
        result_of: dict[Key, int] = {}
        for new, (function, value) in enumerate(keys, start=number):
            key = function, value
            if key in result_of:  # the same function of the same value
                earlier = result_of[key]
                live = (*others, *range(number, new))
                add_copy(joint, new, earlier, live, joint.means[earlier])
                continue
            cross = {result_of[other]: blocks[other, key] for other in result_of}
            for other in others:
                cross[other] = joint.block(other, value) * derivatives[key].unsqueeze(1)
            joint.add(new, means[key], blocks[key, key], cross)
            result_of[key] = new


Key = tuple[int, int]
"""Number of a function, and number of the value that it is applied to."""


def _blocks(results: Sequence[_Results], joint: Joint) -> dict[tuple[Key, Key], Tensor]:
    """Covariance blocks of the results of all functions."""
    blocks: dict[tuple[Key, Key], Tensor] = {}
    for f, first in enumerate(results):
        for g, second in enumerate(results):
            if f == g and len(first.values) == 1:
                blocks[(f, first.values[0]), (f, first.values[0])] = first.result.covariance
                continue
            if f > g:
                continue
            covariance = first.result.covariance if f == g else first.covariance(second, joint)
            for u, rows in zip(first.values, covariance.split(first.sizes, 1), strict=True):
                for v, block in zip(second.values, rows.split(second.sizes, 2), strict=True):
                    blocks[(f, u), (g, v)] = block
                    if f != g:
                        blocks[(g, v), (f, u)] = block.mT
    return blocks
