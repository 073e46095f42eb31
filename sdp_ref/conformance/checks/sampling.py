"""Convergence of sampling rules with the number of samples."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from sdp_ref.conformance import cases, compare, reference
from sdp_ref.conformance.cases import tensor, units
from sdp_ref.conformance.subject import NotApplicable, Subject
from sdp_ref.conformance.trial import Case, Verdict
from sdp_ref.laws import DiagonalGaussian, Law

LEVELS = (2**10, 2**14, 2**18)
"""Numbers of samples. Errors of independent samples decrease to a quarter at each step."""

_FALL = 0.6
"""Maximum ratio of the errors to those with sixteen times fewer samples. The errors are root-mean-squares of
16 means and 136 covariances of independent units: for chi-square errors with only 60 degrees of freedom the
probability that a true quarter appears as 0.6 is below 1e-10.
"""


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
        s = variance.sqrt()

        def judge(net: nn.Module, x: Law) -> Verdict:
            errors = []
            for rule in rules:
                got = subject.predict(net, x, rule).detached()
                parts = [((got.mean - mean) / s).flatten()]
                gap = (got.covariance - torch.diag_embed(variance)) / s.unsqueeze(-1) / s.unsqueeze(-2)
                upper = torch.ones(gap.shape[-2:], dtype=torch.bool).triu()
                # for independent units, a marginal result is correct to have no covariances
                parts.append(
                    gap[:, upper].flatten() if got.full else gap.diagonal(dim1=-2, dim2=-1).flatten()
                )
                errors.append(float(torch.cat(parts).square().mean().sqrt()))
            numbers = {f"error_{k}": error for k, error in zip(LEVELS, errors, strict=True)}
            told = ", ".join(f"{e:.3g} with {k}" for k, e in zip(LEVELS, errors, strict=True))
            good = all(
                # below this tolerance, the result counts as exact
                after <= _FALL * before or after <= compare.RELATIVE
                for before, after in itertools.pairwise(errors)
            )
            text = f"errors relative to the standard deviations are {told} samples"
            return Verdict(good, text, numbers, calls=calls)

        calls = _code(subject, mean, variance)

        x = DiagonalGaussian(tensor([[u.mean for u in layer]]), tensor([[1.0] * 16]))
        return Case(units(name, 16), x, judge)

    for name in cases.representative(subject):
        yield case(name)


def _code(subject: Subject, mean: Tensor, variance: Tensor) -> str:
    set_it = (
        "other = dataclasses.replace(rule, samples=k)"
        if dataclasses.is_dataclass(subject.rule)
        else "other = copy.copy(rule)\n    other.samples = k"
    )
    return (
        "import copy\nimport dataclasses\n"
        f"mean = torch.tensor({mean.tolist()}, dtype=torch.float64)\n"
        f"variance = torch.tensor({variance.tolist()}, dtype=torch.float64)\n"
        f"for k in {LEVELS}:\n    {set_it}\n    y = other.propagate(net, x)\n"
        "    a = (y.mean - mean) / variance.sqrt()\n    b = (y.covariance - torch.diag_embed(variance))\n"
        "    b = b / variance.sqrt().unsqueeze(2) / variance.sqrt().unsqueeze(1)\n"
        "    print(k, a.square().mean().sqrt(), b.square().mean().sqrt())"
    )
