"""Invariances: scale, order, batch, repetition, global random generators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from sdp_ref.activations import ACTIVATIONS
from sdp_ref.conformance import cases, compare
from sdp_ref.conformance.cases import chain, dense, diagonal, full, linear
from sdp_ref.conformance.compare import within
from sdp_ref.conformance.subject import (
    NotApplicable,
    Prediction,
    Subject,
    as_prediction,
    generators,
    seed_globally,
)
from sdp_ref.conformance.trial import Case, Verdict, over_generic_cases
from sdp_ref.laws import DiagonalGaussian, Gaussian, Law
from sdp_ref.laws.gaussian import AnyGaussian

SCALES = (1e-6, 1e-3, 1e3, 1e6)


def scale(subject: Subject, seed: int) -> Iterator[Case]:
    """A net with f(c x) = c f(x) maps the law of c X to that of c f(X), c from 1e-6 to 1e6."""
    homogeneous = [name for name in subject.activations if ACTIVATIONS[name].homogeneous]
    if not homogeneous:
        raise NotApplicable("it takes no positively homogeneous activation (ReLU, LeakyReLU)")

    def judge(net: nn.Module, x: AnyGaussian) -> Verdict:
        sample = subject.estimate(net, x)
        errors, worst = compare.simulated(subject, net, x), Verdict(True)
        for c in SCALES:
            rescaled = Prediction(c * sample.mean, c**2 * sample.covariance, sample.full)
            want = compare.like(rescaled, errors and errors.times(c))
            verdict = within(subject.estimate(net, cases.moved(x, c * x.mean, c**2)), want)
            if not verdict.passed:
                return replace(verdict, detail=f"with c = {c:g}: {verdict.detail}")
            worst = max(worst, verdict, key=lambda v: v.share)
        return worst

    for net, x in cases.layers(cases.WIDTHS, homogeneous[0], seed, bias=False):
        yield Case(net, x, judge)


def permutation(subject: Subject, seed: int) -> Iterator[Case]:
    """Outputs follow a permutation; permuting hidden units and independent inputs has no effect.

    Correlated inputs keep their order: a factor of their covariance may depend on it, and so do points that
    are computed from it (those of the unscented transform).
    """

    def judge(net: nn.Module, x: AnyGaussian) -> Verdict:
        layers = [m for m in net.children() if isinstance(m, nn.Linear)]
        sizes = [layers[0].in_features] + [layer.out_features for layer in layers]
        orders = [torch.arange(n).roll(1) for n in sizes]
        if isinstance(x, Gaussian):
            orders[0] = torch.arange(sizes[0])
            permuted_x: AnyGaussian = x
        else:
            permuted_x = DiagonalGaussian(x.mean[:, orders[0]], x.variance[:, orders[0]])
        prediction = subject.estimate(net, x)
        out = orders[-1]
        covariance = prediction.covariance[:, out][:, :, out]
        permuted = Prediction(prediction.mean[:, out], covariance, prediction.full)
        permuted_net = _permuted(net, orders)
        want = compare.like(permuted, compare.simulated(subject, permuted_net, permuted_x))
        verdict = within(subject.estimate(permuted_net, permuted_x), want)
        if verdict.passed:
            return verdict
        text = ", ".join(str(order.tolist()) for order in orders)
        text = f"with inputs, units and outputs in the order {text}: {verdict.detail}"
        return replace(verdict, detail=text, row=None)

    for name in cases.representative(subject):
        for net, x in cases.layers(((2, 1, 1), (2, 2, 1), (1, 1, 2), *cases.WIDTHS[1:]), name, seed):
            yield Case(net, x, judge)


def _permuted(net: nn.Module, orders: list[Tensor]) -> nn.Module:
    """The net with its inputs, hidden units and outputs in the given orders."""
    modules: list[nn.Module] = []
    number = 0
    for module in net.children():
        if isinstance(module, nn.Linear):
            before, after = orders[number], orders[number + 1]
            modules.append(linear(module.weight[after][:, before], module.bias[after]))
            number += 1
        else:
            modules.append(module)
    return chain(*modules)


_LARGE = (5, 17)
"""More laws than a block of four or sixteen, for rules that work in blocks."""


def batch(subject: Subject, seed: int) -> Iterator[Case]:
    def judge(net: nn.Module, x: AnyGaussian) -> Verdict:
        together = subject.estimate(net, x)
        for row in range(x.batch):
            alone = x[row]
            part = Prediction(together.mean[row : row + 1], together.covariance[row : row + 1], together.full)
            want = compare.like(subject.estimate(net, alone), compare.simulated(subject, net, alone))
            verdict = within(part, want)
            if not verdict.passed:
                text = f"row {row} of {x.batch}, compared with the law alone: {verdict.detail}"
                return replace(verdict, detail=text, row=None)
        return verdict

    for name in cases.representative(subject):
        for widths in cases.WIDTHS[:3]:
            net = dense(widths, name, seed)
            for size in (2, 3) if widths != cases.WIDTHS[1] else (2, 3, *_LARGE):
                yield Case(net, diagonal(widths[0], seed, size), judge)
                yield Case(net, full(widths[0], seed, size), judge)


_ROUNDING = 1e-10
"""Relative difference of repeated calls: BLAS sums may depend on the memory alignment of a matrix."""


def _same(first: Prediction, second: Prediction) -> Verdict:
    return within(second, compare.expected(first.mean, first.covariance, relative=_ROUNDING))


@over_generic_cases
def determinism(subject: Subject, net: nn.Module, x: AnyGaussian) -> Verdict:
    """Two predictions for the same net and law are equal."""
    first = subject.predict(net, x).detached()
    second = subject.predict(net, x).detached()
    return _same(first, second)


@dataclass(frozen=True)
class _Prepared:
    """A rule that is called through its `prepare`, after another law."""

    rule: Any

    def propagate(self, net: nn.Module, x: AnyGaussian) -> Law:
        predict = self.rule.prepare(net)
        predict(cases.moved(x, x.mean, 2.0))
        return predict(x)


@over_generic_cases
def prepare(subject: Subject, net: nn.Module, x: AnyGaussian) -> Verdict:
    """`prepare(net)(x)` equals `propagate(net, x)`, including on repeated use of the function."""
    if not hasattr(subject.rule, "prepare"):
        raise NotApplicable("it has no `prepare`")
    want = compare.like(subject.estimate(net, x), compare.simulated(subject, net, x))
    return within(subject.estimate(net, x, _Prepared), want)


def threads(subject: Subject, seed: int) -> Iterator[Case]:
    """One thread and two give the same result, up to rounding."""

    def judge(net: nn.Module, x: AnyGaussian) -> Verdict:
        before = torch.get_num_threads()
        results = []
        try:
            for number in (1, 2):
                torch.set_num_threads(number)
                results.append(subject.estimate(net, x))
        finally:  # the rule may raise
            torch.set_num_threads(before)
        want = compare.like(results[0], compare.simulated(subject, net, x))
        return within(results[1], want)

    yield from (Case(net, x, judge) for net, x in cases.generic(subject, seed))
    wide, (inputs,) = cases.structured(None, seed)["wide"]  # large enough for torch to use several threads
    yield Case(wide, diagonal(inputs, seed), judge)


@over_generic_cases
def global_generators(subject: Subject, net: nn.Module, x: AnyGaussian) -> Verdict:
    """A prediction neither reads nor moves the global generators of torch, numpy and random."""

    def result() -> Prediction:
        return as_prediction(subject.rule.propagate(net, x), x).detached()

    seed_globally(1)
    before = generators()
    first = result()
    if generators() != before:
        sources = ("torch", "numpy", "random")
        moved = [s for s, a, b in zip(sources, before, generators(), strict=True) if a != b]
        return Verdict(False, f"it moved the global generator of {' and '.join(moved)}", {}, 1.0)
    seed_globally(1)
    if not _same(first, result()).passed:
        raise NotApplicable("it does not repeat itself under one global seed (see determinism)")
    seed_globally(2)
    return _same(first, result())
