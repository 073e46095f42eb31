"""Comparison of results relative to tolerances.

Deterministic rules are compared in float64 with a relative tolerance of 1e-5, relative to sqrt(C_ii C_jj) for
covariances and to the standard deviation (and the mean itself) for means. This is ten times the quadrature
error that is acceptable without closed forms (moment matching's default is 1e-6), and thousands of times
rounding. Sampling rules get six standard errors in addition. All checks make fewer than 10^4 such
comparisons: with a two-sided tail probability of 2e-9 each, the probability of any false alarm is below 2e-5.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor, nn

from sdp_ref.conformance.subject import DRAWS, Prediction, Subject
from sdp_ref.conformance.trial import Verdict
from sdp_ref.laws.gaussian import AnyGaussian

RELATIVE = 1e-5
STANDARD_ERRORS = 6.0


@dataclass(frozen=True)
class Expected:
    """Expected mean (B, n) and covariance (B, n, n) with tolerances."""

    mean: Tensor
    covariance: Tensor
    mean_tolerance: Tensor
    covariance_tolerance: Tensor

    def rows(self, index: Sequence[int]) -> Expected:
        selected = {f.name: getattr(self, f.name)[list(index)] for f in fields(self)}
        return Expected(**selected)

    def plus(self, errors: StandardErrors | None) -> Expected:
        """With wider tolerances for results that have standard errors."""
        if errors is None:
            return self
        return replace(
            self,
            mean_tolerance=self.mean_tolerance + STANDARD_ERRORS * errors.mean,
            covariance_tolerance=self.covariance_tolerance + STANDARD_ERRORS * errors.covariance,
        )


@dataclass(frozen=True)
class StandardErrors:
    """Standard errors of mean (B, n) and covariance (B, n, n) from :data:`DRAWS` independent samples."""

    mean: Tensor
    covariance: Tensor

    def times(self, factor: float) -> StandardErrors:
        return StandardErrors(factor * self.mean, factor**2 * self.covariance)


def of_gaussian(covariance: Tensor) -> StandardErrors:
    """Standard errors for samples of a Gaussian law: Var(c_ij) = (C_ii C_jj + C_ij^2) / k."""
    v = covariance.diagonal(dim1=-2, dim2=-1)
    product = v.unsqueeze(-1) * v.unsqueeze(-2)
    return StandardErrors((v / DRAWS).sqrt(), ((product + covariance.square()) / DRAWS).sqrt())


def simulated(subject: Subject, net: nn.Module, x: AnyGaussian) -> StandardErrors | None:
    """Standard errors of a sampling rule if its samples are those of net(X), from 2^13 samples."""
    if not subject.sampling:
        return None
    noise = _normals(x.dimension) @ x.factor().mT
    outputs = net((x.mean.unsqueeze(1) + noise).flatten(0, 1)).detach().unflatten(0, (x.batch, -1)).flatten(2)
    return moments_of(outputs)[2]


def moments_of(samples: Tensor) -> tuple[Tensor, Tensor, StandardErrors]:
    """Mean and covariance of samples (B, k, n), and the standard errors of :data:`DRAWS` such samples."""
    mean = samples.mean(1, keepdim=True)
    centred = samples - mean
    squares = centred.square()
    second = centred.mT @ centred / centred.shape[1]
    fourth = squares.mT @ squares / centred.shape[1]
    errors = (fourth - second.square()).clamp(min=0) / DRAWS
    return mean.squeeze(1), second, StandardErrors((squares.mean(1) / DRAWS).sqrt(), errors.sqrt())


@functools.lru_cache(maxsize=8)
def _normals(n: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(20240).standard_normal((2**13, n)))


def expected(
    mean: Tensor,
    covariance: Tensor,
    errors: StandardErrors | None = None,
    *,
    relative: float = RELATIVE,
    mean_scale: Tensor | None = None,
) -> Expected:
    s = covariance.diagonal(dim1=-2, dim2=-1).abs().sqrt()
    # an output with little variance is compared at a thousandth of the largest, to allow for cancellation
    s = s + 1e-3 * s.amax(-1, keepdim=True)
    scale = s + mean.abs().amax(-1, keepdim=True) if mean_scale is None else mean_scale
    mean_tolerance = relative * scale
    covariance_tolerance = relative * s.unsqueeze(-1) * s.unsqueeze(-2)
    # the variance of a constant output is the square of the rounding of its value
    rounding = (1e-13 * mean.abs().amax(-1)).square()
    covariance_tolerance = covariance_tolerance + rounding.unsqueeze(-1).unsqueeze(-1)
    return Expected(mean, covariance, mean_tolerance, covariance_tolerance).plus(errors)


def like(other: Prediction, errors: StandardErrors | None, *, relative: float = RELATIVE) -> Expected:
    """Expected result of a second prediction that estimates the same law as `other`.

    The samples may differ (they may depend on the order of inputs, or on the batch), so both have their
    standard error.
    """
    if errors is not None:
        errors = StandardErrors(2**0.5 * errors.mean, 2**0.5 * errors.covariance)
    return expected(other.mean, other.covariance, errors, relative=relative)


def within(got: Prediction, want: Expected) -> Verdict:
    """Compare a result with its tolerances; for a marginal one, only the diagonal."""
    pairs: list[tuple[str, Tensor, Tensor, Tensor]] = [("mean", got.mean, want.mean, want.mean_tolerance)]
    if got.full:
        pairs.append(("covariance", got.covariance, want.covariance, want.covariance_tolerance))
    else:
        variance = want.covariance.diagonal(dim1=-2, dim2=-1)
        tolerance = want.covariance_tolerance.diagonal(dim1=-2, dim2=-1)
        pairs.append(("variance", got.variance, variance, tolerance))
    worst = Verdict(True)
    for name, value, reference, tolerance in pairs:
        if value.shape != reference.shape:
            text = f"{name} has shape {tuple(value.shape)}, not {tuple(reference.shape)}"
            return Verdict(False, text)
        error = (value.double() - reference).abs()
        # results that are not finite have the largest error; 0 / 0 is agreement
        share = torch.where(error <= tolerance, error / tolerance.clamp(min=1e-300), error / tolerance)
        share = torch.where(torch.isfinite(error), share, torch.inf)
        index = np.unravel_index(int(share.argmax()), share.shape)
        at_worst = float(share[index])
        if at_worst > worst.share:
            actual, expected = float(value[index]), float(reference[index])
            allowed = float(tolerance[index])
            numbers = {
                "got": actual,
                "expected": expected,
                "error": float(error[index]),
                "tolerance": allowed,
            }
            entry = ", ".join(str(int(i)) for i in index)
            text = f"{name}[{entry}] is {actual:.6g}, must be {expected:.6g} to within {allowed:.2g}"
            worst = Verdict(at_worst <= 1, text, numbers, at_worst, int(index[0]))
    return worst
