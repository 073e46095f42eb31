"""Consistency of variances with means, and of units in a layer with single units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import nn

from sdp_ref.activations import ACTIVATIONS, activation
from sdp_ref.conformance import cases, compare, reference
from sdp_ref.conformance.cases import chain, indices, linear, tensor, units
from sdp_ref.conformance.checks.moments import stated_tolerance
from sdp_ref.conformance.reference import Unit
from sdp_ref.conformance.subject import NotApplicable, Subject
from sdp_ref.conformance.trial import Case, Judge, Verdict
from sdp_ref.laws import DiagonalGaussian
from sdp_ref.laws.gaussian import AnyGaussian


def diagonal(subject: Subject, seed: int) -> Iterator[Case]:
    """A unit's variance is that of the law whose mean the rule predicts, alone and in a layer.

    The mean shows how a rule treats the Gaussian input X of a unit: E f(X) if it integrates, f(E X) if it
    linearises. If the mean is one of these, the variance must be Var f(X) or f'(E X)^2 Var X, respectively.
    Rules that do neither (sigma points) are not tested for this, and sampling rules are tested by
    `sampling-error`.
    """
    for name in reference.known(subject.activations):
        if name in _POLYNOMIALS:
            continue
        rows = [u for u in reference.single(name) if u.std == 1 and -4 <= u.mean <= 4]
        x = DiagonalGaussian(tensor([[u.mean] for u in rows]), tensor([[1.0]] * len(rows)))
        yield Case(units(name, 1), x, _judge_of_units(subject, name, rows, x))
    yield from _in_company(subject, seed)


_POLYNOMIALS = ("square", "power")  # of degree 3: sigma points have the exact mean but not the variance
_DISTINCT = 1e-3  # in standard deviations: E f(X) and f(E X) are distinguishable
_EQUAL = 1e-5  # in standard deviations of f(X): the means count as equal
_CONSISTENT = 1e-3  # relative error of variances: DVIA's are 12 % off at mean / std = -2, quadratures 1e-6


def _judge_of_units(subject: Subject, name: str, rows: Sequence[Unit], whole: AnyGaussian) -> Judge:
    def judge(net: nn.Module, x: AnyGaussian) -> Verdict:
        if subject.sampling:
            raise NotApplicable("the variance of a unit alone is an estimate (see sampling-error)")
        got = subject.estimate(net, x)
        worst, judged = Verdict(True), 0
        for row, unit in enumerate(rows[i] for i in indices(x, whole)):
            verdict = _consistent(subject, name, unit, float(got.mean[row, 0]), float(got.variance[row, 0]))
            if verdict is None:
                continue
            judged += 1
            if not verdict.passed:
                return replace(verdict, row=row)
            worst = max(worst, verdict, key=lambda v: v.share)
        if not judged:
            raise NotApplicable("its mean of a unit is neither E f(X) nor f(E X)")
        return worst

    return judge


def _consistent(subject: Subject, name: str, unit: Unit, mean: float, variance: float) -> Verdict | None:
    """Whether the variance is that of the law with this mean; None if the mean does not determine it."""
    point = tensor([unit.mean]).requires_grad_()
    value = activation(name).build().double()(point)
    (slope,) = torch.autograd.grad(value.sum(), point)
    std = unit.variance**0.5
    integrated, linearised = unit.expectation, float(value.detach())
    if abs(integrated - linearised) < _DISTINCT * std:
        return None
    if abs(mean - integrated) <= _EQUAL * std:
        truth, kind = unit.variance, "E f(X), as of a rule that integrates"
    elif abs(mean - linearised) <= _EQUAL * std and unit.mean not in ACTIVATIONS[name].kinks:
        truth, kind = float(slope) ** 2 * unit.std**2, "f(E X), as of a rule that linearises"
    else:  # at a kink both slopes are acceptable
        return None
    # include the exact variance, in case the linearised one is 0
    tolerance = _CONSISTENT * max(truth, unit.variance) + stated_tolerance(subject)
    error = abs(variance - truth)
    numbers = {"mean": mean, "got": variance, "expected": truth, "error": error, "tolerance": tolerance}
    off = f" ({variance / truth - 1:+.1%})" if truth else ""
    text = f"mean {mean:.6g} is {kind}; the variance with it is {truth:.6g}, not {variance:.6g}{off}"
    return Verdict(error <= tolerance, text, numbers, error / tolerance)


def _in_company(subject: Subject, seed: int) -> Iterator[Case]:
    def judge(net: nn.Module, x: AnyGaussian) -> Verdict:
        whole = subject.estimate(net, x)
        *before, end = net.children()
        last = cast(nn.Linear, end)  # as constructed by `cases.dense`
        for i in range(last.out_features):
            alone = chain(*before, linear(last.weight[i : i + 1], last.bias[i : i + 1]))
            part = type(whole)(
                whole.mean[:, i : i + 1], whole.covariance[:, i : i + 1, i : i + 1], whole.full
            )
            want = compare.like(subject.estimate(alone, x), compare.simulated(subject, alone, x))
            verdict = compare.within(part, want)
            if not verdict.passed:
                calls = (
                    f"import copy\nalone, i = copy.deepcopy(net), {i}\n"
                    f"alone[-1] = nn.Linear({last.in_features}, 1).to(torch.float64)\n"
                    "alone[-1].weight.data = net[-1].weight.data[[i]]\n"
                    "alone[-1].bias.data = net[-1].bias.data[[i]]\n"
                    "y, z = rule.propagate(net, x), rule.propagate(alone, x)\n"
                    "print(y.mean[:, i], z.mean[:, 0])\nprint(y.covariance[:, i, i], z.covariance[:, 0, 0])"
                )
                text = f"output {i} beside the others, against alone: {verdict.detail}"
                return Verdict(False, text, verdict.numbers, verdict.share, calls, verdict.row)
        return verdict

    for name in cases.representative(subject):
        for widths in ((1, 1, 2), (2, 2, 2), (4, 4, 3, 2)):
            net = cases.dense(widths, name, seed)
            for x in (cases.diagonal(widths[0], seed), cases.full(widths[0], seed)):
                yield Case(net, x, judge)
