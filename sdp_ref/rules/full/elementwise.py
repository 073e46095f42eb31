"""Elementwise functions of the joint law of a net's live values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sdp_ref.errors import NoFormulaError
from sdp_ref.laws import Gaussian, Law
from sdp_ref.rules.full.budget import Budget
from sdp_ref.rules.full.joint import Joint
from sdp_ref.rules.full.steps import JointStep, copied


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
