"""Ops that read several components: exactness of the claimed moments."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from sdp_ref.conformance import compare, reference
from sdp_ref.conformance.cases import chain, tensor
from sdp_ref.conformance.checks.moments import stated_tolerance
from sdp_ref.conformance.ops import OPS
from sdp_ref.conformance.reference import Moments
from sdp_ref.conformance.subject import NotApplicable, Subject
from sdp_ref.conformance.trial import Case, Verdict
from sdp_ref.laws import DiagonalGaussian, Gaussian
from sdp_ref.laws.gaussian import AnyGaussian

_EXACT = 1e-5
"""Relative to standard deviations and variances, if mean and covariance have a closed form."""

APPROXIMATE = {
    "largest": (0.02, 0.1),
    "quotient": (0.05, 0.05),
    "length": (0.05, 0.15),
    "softmax": (0.3, 0.1),
    "log softmax": (0.3, 0.1),
    "layer norm": (0.3, 0.15),
    "RMS norm": (0.2, 0.1),
    "attention": (0.2, 0.15),
}
"""Tolerances without a closed form at noise of 0.3: of a mean in standard deviations of the output, of a
covariance relative to the largest variance.
"""


def several(subject: Subject, _seed: int) -> Iterator[Case]:
    """Mean and covariance of an op, exact if they have a closed form and otherwise approximate.

    For marginal claims, means and variances for independent components.
    """
    if not {"moments", "marginal moments"}.intersection(subject.claims):
        raise NotApplicable('it claims neither "moments" nor "marginal moments"')
    whole = "moments" in subject.claims
    for name, module in OPS.items():
        for row in reference.of_op(name)[: None if whole else 1]:
            yield _case(subject, name, module, row, whole)


def _case(subject: Subject, name: str, module: nn.Module, row: Moments, whole: bool) -> Case:
    mean, covariance, own = tensor([row.mean]), tensor([row.covariance]), stated_tolerance(subject)
    x: AnyGaussian = Gaussian(mean, covariance)
    if torch.equal(covariance[0], covariance[0].diagonal().diag()):
        x = DiagonalGaussian(mean, covariance.diagonal(dim1=1, dim2=2))
    expectation, moments = tensor([row.expectation]), tensor([row.moments])
    variance = moments.diagonal(dim1=1, dim2=2)
    of_mean, of_covariance = APPROXIMATE.get(name, (_EXACT, _EXACT))
    mean_tolerance = max(of_mean, own) * variance.sqrt()
    tolerance = (max(of_covariance, own) * variance.amax()).expand_as(moments)

    def judge(net: nn.Module, x: AnyGaussian) -> Verdict:
        got = subject.estimate(net, x)
        if whole and not got.full and moments.shape[-1] > 1:
            return Verdict(False, 'it claims "moments" and gives no covariances', row=0)
        errors = compare.simulated(subject, net, x)
        want = compare.Expected(expectation, moments, mean_tolerance, tolerance)
        if errors is not None:
            want = compare.Expected(
                expectation,
                moments,
                mean_tolerance + compare.STANDARD_ERRORS * errors.mean,
                tolerance + compare.STANDARD_ERRORS * errors.covariance,
            )
        return compare.within(got, want)

    return Case(chain(module), x, judge)
