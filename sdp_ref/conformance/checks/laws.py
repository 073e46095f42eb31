"""Consistency of moments, samples and density of results other than plain Gaussians."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from sdp_ref.conformance import cases, compare
from sdp_ref.conformance.state import seed_globally
from sdp_ref.conformance.subject import DRAWS, NotApplicable, Prediction, Subject, as_prediction
from sdp_ref.conformance.trial import Case, Verdict
from sdp_ref.errors import UndefinedError
from sdp_ref.laws import DiagonalGaussian, Gaussian, Law


def law(subject: Subject, seed: int) -> Iterator[Case]:
    """Samples have the reported mean and covariance, and the density integrates to one and to that mean."""

    def judge(net: nn.Module, x: Law) -> Verdict:
        seed_globally(0)
        found = subject.rule.propagate(net, x)
        got = as_prediction(found, x).detached()
        if isinstance(found, Gaussian | DiagonalGaussian):
            raise NotApplicable("its results are Gaussian laws, which mean and covariance tell all of")
        verdicts = [each for each in (_drawn(found, got), _integrated(found, got)) if each is not None]
        if not verdicts:
            raise NotApplicable("its results have neither draws nor a density that is known")
        failed = [each for each in verdicts if not each.passed]
        return failed[0] if failed else max(verdicts, key=lambda each: each.share)

    for net, x in cases.generic(subject, seed):
        yield Case(net, x, judge)


_MOMENTS = (
    "y = rule.propagate(net, x)\ndrawn = y.sample(8192, torch.Generator().manual_seed(0)).flatten(2)\n"
    "print(drawn.mean(0), y.mean)\nprint(torch.cov(drawn[:, 0].mT), y.covariance)"
)


def _drawn(found: Law, got: Prediction) -> Verdict | None:
    try:
        draws = found.sample(DRAWS, torch.Generator().manual_seed(0)).detach().flatten(2).double()
    except UndefinedError:
        return None
    mean = draws.mean(0)
    centred = (draws - mean).movedim(0, 1)
    squares = centred.square()
    second = centred.mT @ centred / DRAWS
    fourth = squares.mT @ squares / DRAWS
    errors = compare.StandardErrors(
        (squares.mean(1) / DRAWS).sqrt(), ((fourth - second.square()).clamp(min=0) / DRAWS).sqrt()
    )
    verdict = compare.within(
        Prediction(mean, second, got.full), compare.expected(got.mean, got.covariance, errors), _MOMENTS
    )
    return _told(verdict, "of its draws")


_DENSITY = (
    "y = rule.propagate(net, x)\ntorch.manual_seed(0)\n"
    "wide = torch.distributions.MultivariateNormal(y.mean[0], 2 * y.covariance[0])\n"
    "points = torch.cat([wide.sample((8192,)), y.sample(8192)[:, 0]])\n"
    "own, other = y.log_prob(points.unsqueeze(1))[:, 0].exp(), wide.log_prob(points).exp()\n"
    "weights = own / (own / 2 + other / 2)\n"
    "print(weights.mean(), 'must be 1', (weights.unsqueeze(1) * points).mean(0), y.mean)"
)


def _integrated(found: Law, got: Prediction) -> Verdict | None:
    """Integrals of the density by importance sampling, half from the law itself and half from a Gaussian.

    The Gaussian has twice the covariance. Thanks to the samples from the law itself, no weight exceeds two,
    however narrow the components of a mixture are.
    """
    factor, failed = torch.linalg.cholesky_ex(2 * got.covariance.double())
    if not got.full or bool(failed.any()):
        return None
    generator, event = torch.Generator().manual_seed(1), found.event_shape
    noise = torch.randn((DRAWS, *got.mean.shape), generator=generator, dtype=torch.float64)
    centre, dtype = got.mean.double(), found.location.dtype
    try:
        own = found.sample(DRAWS, generator).detach().flatten(2).double()
        points = torch.cat([centre + (factor @ noise.unsqueeze(-1)).squeeze(-1), own])
        density = found.log_prob(points.unflatten(2, event).to(dtype)).detach()
    except UndefinedError:
        return None
    wide = torch.distributions.MultivariateNormal(centre, scale_tril=factor).log_prob(points)
    weights = 2 / (1 + (wide - density).exp())
    integrand = torch.cat([weights.unsqueeze(2), weights.unsqueeze(2) * (points - centre)], 2)
    one = torch.zeros(centre.shape[0], 1 + centre.shape[1], dtype=torch.float64)
    one[:, 0] = 1
    error = (integrand.mean(0) - one).abs()
    tolerance = compare.STANDARD_ERRORS * integrand.std(0) / (2 * DRAWS) ** 0.5 + compare.RELATIVE * one
    share = _share(error, tolerance)
    text = (
        f"its density integrates to {float(weights.mean()):.6g}, and the mean that it has is off by "
        f"{float(error[:, 1:].max()):.3g}"
    )
    numbers = {"error": float(error.max()), "tolerance": float(tolerance.max())}
    return Verdict(share <= 1, text, numbers, share, _DENSITY)


def _share(error: Tensor, tolerance: Tensor) -> float:
    share = float((error / tolerance.clamp(min=1e-300)).max())
    return float("inf") if math.isnan(share) else share


def _told(verdict: Verdict, whose: str) -> Verdict:
    return Verdict(
        verdict.passed,
        f"{whose}: {verdict.detail}",
        verdict.numbers,
        verdict.share,
        verdict.calls,
        verdict.row,
    )
