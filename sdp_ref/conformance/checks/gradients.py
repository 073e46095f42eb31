"""Gradients of predictions: finite, and equal to finite differences."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sdp_ref.conformance import cases, compare, reference
from sdp_ref.conformance.cases import tensor, units
from sdp_ref.conformance.subject import NotApplicable, Prediction, Subject, with_attribute
from sdp_ref.conformance.trial import Case, Verdict
from sdp_ref.laws import DiagonalGaussian, Gaussian, Law
from sdp_ref.laws.gaussian import AnyGaussian

_STEPS = (1e-4, 1e-5, 1e-6, 1e-7)
"""Step sizes of the differences. Agreement for one is sufficient: a sample or sigma point may cross a kink
within a step.
"""

_TOLERANCE = 1e-4
"""Relative to the largest entry: central differences have errors of 1e-8 here, quadratures of 1e-5."""


def gradients(subject: Subject, seed: int) -> Iterator[Case]:
    """Gradients of a random combination of mean and covariance by the input law and the weights.

    At singular inputs, where a derivative need not exist, they only have to be finite.
    """
    if not getattr(subject.rule, "differentiable", True):
        raise NotApplicable("it declares that it is not differentiable")
    rule = subject.rule
    if hasattr(rule, "create_graph"):
        rule = with_attribute(rule, "create_graph", True) or rule
    order = cases.representative(subject)
    if subject.sampling:
        order = order[::-1]  # samples near a kink make differences noisy
    name = order[0]
    for net, x in cases.layers(((1, 1, 1), (2, 2, 2), (3, 2, 2)), name, seed):
        net.requires_grad_()
        if getattr(rule, "differentiable", False):
            yield Case(net, x, partial(_has_graph, subject, rule))
        yield Case(net, x, partial(_against_differences, subject, rule))
    for singular in _singular():
        yield Case(units(name, 2, last=True), singular, partial(_finite, subject, rule))


def _singular() -> Iterator[AnyGaussian]:
    zero = tensor([[0.5, -0.25]])
    yield DiagonalGaussian(zero, 0 * zero)
    yield DiagonalGaussian(zero, tensor([[0.0, 1.0]]))
    for rho in (1.0, -1.0):
        yield Gaussian(zero, tensor([[[1.0, rho], [rho, 1.0]]]))


def _leaves(x: AnyGaussian) -> tuple[list[Tensor], Callable[[Sequence[Tensor]], AnyGaussian]]:
    """Tensors to differentiate by, and a function that builds a valid law from them."""
    if isinstance(x, DiagonalGaussian):
        return [x.mean.clone(), x.variance.clone()], lambda v: DiagonalGaussian(v[0], v[1])
    root = torch.linalg.cholesky(x.covariance)
    return [x.mean.clone(), root], lambda v: Gaussian(v[0], v[1] @ v[1].mT)


def _scalar(subject: Subject, rule: Any, net: nn.Module, x: AnyGaussian) -> Tensor:
    got = subject.predict(net, x, rule)
    if not (got.mean.requires_grad or got.covariance.requires_grad) and torch.is_grad_enabled():
        raise NotApplicable("its result carries no graph")
    return _combined(got)


def _combined(got: Prediction) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    total = torch.zeros((), dtype=got.mean.dtype)
    for value in (got.mean, got.covariance):
        # symmetric weights, because rules may assign a gradient to C_ij or to C_ji
        w = torch.rand(value.shape, generator=generator, dtype=torch.float64) + 0.5
        w = (w + w.mT) / 2 if value.ndim == 3 else w
        total = total + (w * value).sum()
    return total


def _has_graph(subject: Subject, rule: Any, net: nn.Module, x: AnyGaussian) -> Verdict:
    values, law_of = _leaves(x)
    got = subject.predict(net, law_of([v.requires_grad_() for v in values]), rule)
    if got.mean.requires_grad and got.covariance.requires_grad:
        return Verdict(True)
    return Verdict(False, "it declares that it is differentiable, and mean or covariance carries no graph")


def _against_differences(subject: Subject, rule: Any, net: nn.Module, x: AnyGaussian) -> Verdict:
    values, law_of = _leaves(x)
    leaves = [v.requires_grad_() for v in values]
    weights = dict(net.named_parameters())
    first = subject.predict(net, x, rule).detached()
    second = subject.predict(net, x, rule).detached()
    if not (torch.allclose(first.mean, second.mean) and torch.allclose(first.covariance, second.covariance)):
        raise NotApplicable("it does not repeat itself (see determinism): differences would be noise")
    total = _scalar(subject, rule, net, law_of(leaves))
    variables = [*leaves, *weights.values()]
    gradients = torch.autograd.grad(total, variables, allow_unused=True)
    names = ["mean", "variance" if isinstance(x, DiagonalGaussian) else "factor of the covariance", *weights]
    worst = Verdict(True)
    for name, variable, gradient in zip(names, variables, gradients, strict=True):
        if gradient is None and name in weights:
            continue  # a rule may treat the net as constant
        got = torch.zeros_like(variable) if gradient is None else gradient
        if not bool(torch.isfinite(got).all()):
            return Verdict(False, f"the gradient in the {name} is not finite")
        best = Verdict(False, share=float("inf"))
        for step in _STEPS:
            want = _differences(subject, rule, net, variable, lambda: law_of(leaves), step)
            verdict = _gradient_verdict(name, got, want)
            if verdict.share < best.share:
                best = verdict
            if best.passed:
                break
        if not best.passed:
            return best
        worst = max(worst, best, key=lambda v: v.share)
    return worst


def _gradient_verdict(name: str, got: Tensor, want: Tensor) -> Verdict:
    """Compare a gradient with differences, relative to the largest entry of both."""
    scale = max(float(want.abs().max()), float(got.abs().max()), 1e-3)
    error, tolerance = (got - want).abs(), _TOLERANCE * scale
    largest = int(error.argmax())
    gradient, difference = float(got.flatten()[largest]), float(want.flatten()[largest])
    text = f"in the {name} the gradient is {gradient:.6g}, finite differences give {difference:.6g}"
    numbers = {
        "got": gradient,
        "expected": difference,
        "error": float(error.flatten()[largest]),
        "tolerance": tolerance,
    }
    share = float(error.max()) / tolerance
    return Verdict(share <= 1, text, numbers, share)


def _differences(
    subject: Subject, rule: Any, net: nn.Module, leaf: Tensor, law: Callable[[], AnyGaussian], step: float
) -> Tensor:
    result = torch.zeros_like(leaf, requires_grad=False)
    for index in np.ndindex(*leaf.shape):
        kept = float(leaf.data[index])
        ends = []
        for sign in (1.0, -1.0):
            leaf.data[index] = kept + sign * step
            ends.append(float(_combined(subject.predict(net, law(), rule).detached())))
        leaf.data[index] = kept
        result[index] = (ends[0] - ends[1]) / (2 * step)
    return result


def _finite(subject: Subject, rule: Any, net: nn.Module, x: AnyGaussian) -> Verdict:
    mean = x.location.clone().requires_grad_()
    second = (x.variance if isinstance(x, DiagonalGaussian) else x.covariance).clone().requires_grad_()
    total = _scalar(subject, rule, net, type(x)(mean, second))
    gradients = torch.autograd.grad(total, [mean, second], allow_unused=True)
    names = ("mean", "variance" if isinstance(x, DiagonalGaussian) else "covariance")
    for name, gradient in zip(names, gradients, strict=True):
        if gradient is not None and not bool(torch.isfinite(gradient).all()):
            return Verdict(False, f"at a singular input the gradient in the {name} is not finite")
    return Verdict(True)


LEVELS = (2**10, 2**14, 2**18)
"""Numbers of samples. Errors of independent samples decrease to a quarter at each step."""

_FALL = 0.6
"""Maximum ratio of the errors to those with sixteen times fewer samples. The errors are root-mean-squares of
16 means and 136 covariances of independent units: for chi-square errors with only 60 degrees of freedom the
probability that a true quarter appears as 0.6 is below 1e-10.
"""


def _moment_error(got: Prediction, mean: Tensor, variance: Tensor) -> float:
    """Root mean square error of means and covariances of independent units, in standard deviations."""
    s = variance.sqrt()
    of_means = ((got.mean - mean) / s).flatten()
    errors = (got.covariance - torch.diag_embed(variance)) / s.unsqueeze(-1) / s.unsqueeze(-2)
    if got.full:
        upper = torch.ones(errors.shape[-2:], dtype=torch.bool).triu()
        of_covariances = errors[:, upper].flatten()
    else:  # for independent units, a marginal result is correct to have no covariances
        of_covariances = errors.diagonal(dim1=-2, dim2=-1).flatten()
    return float(torch.cat([of_means, of_covariances]).square().mean().sqrt())


def sampling_error(subject: Subject, _seed: int) -> Iterator[Case]:
    """The errors of mean and covariance of a layer of 16 independent units decrease with the samples."""
    if not subject.sampling:
        raise NotApplicable("it does not sample (it has no integer attribute `samples`)")
    rules = [subject.with_samples(k) for k in LEVELS]
    if None in rules:
        raise NotApplicable("its `samples` cannot be set on a copy of it")

    def case(name: str) -> Case:
        some = [unit for unit in reference.single(name) if unit.std == 1 and abs(unit.mean) <= 2]
        layer = [some[i % len(some)] for i in range(16)]
        mean, variance = tensor([[u.expectation for u in layer]]), tensor([[u.variance for u in layer]])

        def judge(net: nn.Module, x: Law) -> Verdict:
            errors = [
                _moment_error(subject.predict(net, x, rule).detached(), mean, variance) for rule in rules
            ]
            numbers = {f"error_{k}": error for k, error in zip(LEVELS, errors, strict=True)}
            shown = ", ".join(f"{e:.3g} with {k}" for k, e in zip(LEVELS, errors, strict=True))
            good = all(
                # below this tolerance, the result counts as exact
                after <= _FALL * before or after <= compare.RELATIVE
                for before, after in itertools.pairwise(errors)
            )
            text = f"errors relative to the standard deviations are {shown} samples"
            return Verdict(good, text, numbers)

        x = DiagonalGaussian(tensor([[u.mean for u in layer]]), tensor([[1.0] * 16]))
        return Case(units(name, 16), x, judge)

    for name in cases.representative(subject):
        yield case(name)
