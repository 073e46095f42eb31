"""Form of a result: dtype, symmetry, definiteness, and finiteness for extreme inputs."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sdp_ref.activations import ACTIVATIONS, activation
from sdp_ref.conformance import cases, compare
from sdp_ref.conformance.cases import chain, linear, tensor, units
from sdp_ref.conformance.compare import like, simulated, within
from sdp_ref.conformance.subject import (
    DRAWS,
    NotApplicable,
    Prediction,
    Subject,
    as_prediction,
    seed_globally,
)
from sdp_ref.conformance.trial import Case, Judge, Verdict, over_generic_cases
from sdp_ref.errors import UndefinedError
from sdp_ref.laws import DiagonalGaussian, Gaussian, Law
from sdp_ref.laws.gaussian import AnyGaussian


def dtype(subject: Subject, seed: int) -> Iterator[Case]:
    """Mean (B, m) and covariance (B, m, m) have the dtype of the input."""

    def judge(net: nn.Module, x: Law) -> Verdict:
        got = subject.predict(net, x)
        for name, value in (("mean", got.mean), ("covariance", got.covariance)):
            if value.dtype != x.location.dtype:
                return Verdict(False, f"an input of {x.location.dtype} gives a {name} of {value.dtype}")
        return Verdict(True)

    for kind in (torch.float32, torch.float64):
        for net, x in cases.generic(subject, seed):
            yield Case(copy.deepcopy(net).to(kind), x.to(kind), judge)


_SINGLE = 1e-3
"""Relative: cancellation may cost four of the seven digits of float32, while an error exceeds 0.1 %."""


def precision(subject: Subject, seed: int) -> Iterator[Case]:
    """Results in float32 agree with those in float64 to 0.1 %."""

    def judge(net: nn.Module, x: AnyGaussian) -> Verdict:
        exact = subject.estimate(net, x)
        single = subject.estimate(copy.deepcopy(net).float(), x.to(torch.float32))
        return within(single, like(exact, simulated(subject, net, x), relative=_SINGLE))

    for net, x in cases.generic(subject, seed):
        # representable in float32, so that both results are for the same law
        yield Case(copy.deepcopy(net).float().double(), x.to(torch.float32).to(torch.float64), judge)


_ASYMMETRY = 1e-10
"""Relative to the standard deviations: far above the rounding of J S J^T, far below an error in a formula."""


@over_generic_cases
def symmetry(subject: Subject, net: nn.Module, x: AnyGaussian) -> Verdict:
    """Covariances (B, m, m) are symmetric, to 1e-10 of the product of standard deviations."""
    got = subject.predict(net, x).detached()
    if not got.full:
        raise NotApplicable("a marginal result has no off-diagonal entries")
    gap = (got.covariance - got.covariance.mT).abs()
    s = got.variance.clamp(min=0).sqrt().amax(-1)
    share = gap.amax((-2, -1)) / (_ASYMMETRY * s.square()).clamp(min=1e-300)
    worst = float(share.max())
    if worst <= 1:
        return Verdict(True, share=worst)
    error = float(gap.max())
    numbers = {"error": error, "tolerance": _ASYMMETRY * float(s.max()) ** 2}
    return Verdict(False, f"C and its transpose differ by {error:.3g}", numbers, worst)


_INDEFINITE = 1e-5
"""Relative to the largest eigenvalue: covariances by quadrature may be off by 1e-6 of the input variance."""


def semidefinite(subject: Subject, seed: int) -> Iterator[Case]:
    """No eigenvalue (for marginal results: no variance) is negative."""

    def judge(net: nn.Module, x: Law) -> Verdict:
        got = subject.predict(net, x).detached()
        c = got.covariance.double()
        if not bool(torch.isfinite(c).all()):
            raise NotApplicable("its covariance is not finite (see the checks of finiteness)")
        values = torch.linalg.eigvalsh((c + c.mT) / 2) if got.full else got.variance.double().sort().values
        relative = values[:, 0] / values[:, -1].clamp(min=1e-300)
        row = int(relative.argmin())
        smallest, largest = float(values[row, 0]), float(values[row, -1])
        numbers = {"smallest": smallest, "largest": largest, "tolerance": -_INDEFINITE * abs(largest)}
        if smallest >= numbers["tolerance"]:
            return Verdict(True, numbers=numbers, share=max(0.0, -float(relative[row])) / _INDEFINITE)
        kind = "eigenvalue" if got.full else "variance"
        return Verdict(False, f"smallest {kind} {smallest:.3g} and largest {largest:.3g}", numbers, row=row)

    yield from (Case(net, x, judge) for net, x in cases.generic(subject, seed))
    for name in cases.representative(subject):
        # two sources of noise for all units: pairwise approximations lose definiteness here
        for n in (2, 3, 4, 6, 8, 12, 16) if ACTIVATIONS[name].kinks else (2, 3, 4):
            rng = np.random.default_rng(n)
            root = np.round(rng.standard_normal((_ATTEMPTS, n, 2)), 1)
            mean = np.round(rng.standard_normal((_ATTEMPTS, n)), 1)
            x = Gaussian(tensor(mean), tensor(root @ root.transpose(0, 2, 1)))
            yield Case(units(name, n), x, judge)


_ATTEMPTS = 20  # laws per width: DVIA loses definiteness for some of them only


def _finite(subject: Subject) -> Judge:
    def judge(net: nn.Module, x: Law) -> Verdict:
        got = subject.predict(net, x).detached()
        for name, value in (("mean", got.mean), ("covariance" if got.full else "variance", got.covariance)):
            bad = ~torch.isfinite(value)
            if bool(bad.any()):
                index = [int(i) for i in bad.nonzero()[0]]
                return Verdict(False, f"{name}{index[1:]} is {float(value[tuple(index)])}", row=index[0])
        return Verdict(True)

    return judge


_NOT_WIDE = ("exp", "mish")
"""At a standard deviation of 1e3 the moments of exp overflow, and torch's second derivative of Mish is NaN
where exp is infinite.
"""


def far_tails(subject: Subject, _seed: int) -> Iterator[Case]:
    """Finite at abs(mean / std) = 40, at standard deviations of 1e-3, 1 and 1e3."""
    judge = _finite(subject)
    std = tensor([[1.0], [1.0], [1e-3], [1e-3], [1e3], [1e3]])
    of_one_unit = DiagonalGaussian(40 * std * tensor([[-1.0], [1.0]] * 3), std**2)
    signs = tensor([[1, -1, 1], [-1, -1, -1], [1, 0, -1]])
    correlation = tensor([[[1, 0.5, -0.5], [0.5, 1, 0.2], [-0.5, 0.2, 1]]])
    stds = tensor([1, 1, 1, 1e-3, 1e-3, 1e-3, 1e3, 1e3, 1e3]).unsqueeze(1)
    of_three_units = Gaussian(40 * stds * signs.repeat(3, 1), stds.unsqueeze(2) ** 2 * correlation)
    for name in subject.activations:
        wide = name not in _NOT_WIDE
        for last in (False, True):
            yield Case(units(name, 1, last=last), of_one_unit if wide else of_one_unit[:4], judge)
            yield Case(units(name, 3, last=last), of_three_units if wide else of_three_units[:6], judge)


def perfect_correlation(subject: Subject, _seed: int) -> Iterator[Case]:
    """Finite for two units with correlation 1 or -1, at equal, opposite and different means."""
    judge = _finite(subject)
    means = ((0.0, 0.0), (0.7, 0.7), (0.7, -0.7), (0.7, 0.2), (-2.0, 1.0))
    grid = list(itertools.product(means, (1.0, -1.0), (1.0, 2.0)))
    s = tensor([[[1.0, rho * std], [rho * std, std**2]] for _, rho, std in grid])
    x = Gaussian(tensor([mean for mean, _, _ in grid]), s)
    for name in subject.activations:
        for last in (False, True):
            yield Case(units(name, 2, last=last), x, judge)


def deficient_rank(subject: Subject, _seed: int) -> Iterator[Case]:
    """Finite for a singular covariance without perfectly correlated pairs, and for more units than inputs."""
    judge = _finite(subject)
    roots = (
        [[1, 0], [0, 1], [1, 1]],
        [[1, 0], [0, 1], [1, 1], [1, -1]],
        [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 1, 1]],
    )
    for name in subject.activations:
        for last in (False, True):
            for root in roots:
                b = tensor(root)
                n = len(root)
                mean = tensor([np.zeros(n), np.linspace(-1, 1, n)])
                yield Case(units(name, n, last=last), Gaussian(mean, (b @ b.T).repeat(2, 1, 1)), judge)
        wide = chain(linear(roots[1]), activation(name).build())
        yield Case(wide, DiagonalGaussian(tensor([[0.3, 0.3]]), tensor([[1.0, 1.0]])), judge)


@over_generic_cases
def inputs_kept(subject: Subject, net: nn.Module, x: AnyGaussian) -> Verdict:
    """The tensors of the input law keep values, shapes, gradients and identity."""
    tensors = {f.name: v for f in fields(x) if isinstance(v := getattr(x, f.name), Tensor)}
    before = {name: (v.clone(), v.requires_grad, v.shape) for name, v in tensors.items()}
    subject.predict(net, x)
    for name, v in tensors.items():
        value, flag, shape = before[name]
        differences = {
            "values": v.shape != shape or not torch.equal(v, value),
            "requires_grad": v.requires_grad != flag,
            ".grad": v.grad is not None,
            "identity": getattr(x, name) is not v,
        }
        if changed := [text for text, differs in differences.items() if differs]:
            return Verdict(False, f"{name} of the input changed: {', '.join(changed)}")
    return Verdict(True)


def net_kept(subject: Subject, seed: int) -> Iterator[Case]:
    """Weights, buffers, gradients, hooks and training flags are unchanged, in both modes of the net."""

    def judge(net: nn.Module, x: Law) -> Verdict:
        before = _state(net)
        subject.predict(net, x)
        after = _state(net)
        changed = [key for key in {**before, **after} if not _equal(before.get(key), after.get(key))]
        if not changed:
            return Verdict(True)
        name = changed[0]
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        return Verdict(False, f"{name} of the net changed{more}")

    for training in (False, True):
        for net, x in cases.generic(subject, seed):
            yield Case(net.requires_grad_().train(training), x, judge)
    name = cases.representative(subject)[0]
    for extra in (nn.BatchNorm1d(2, dtype=torch.float64), nn.Dropout(0.5)):
        net = cases.dense((2, 2, 1), name, seed)
        with_extra = chain(net[0], extra, activation(name).build(), net[2]).requires_grad_()
        yield Case(with_extra, cases.diagonal(2, seed), judge)


def _state(net: nn.Module) -> dict[str, Any]:
    state: dict[str, Any] = {"structure": [type(module).__name__ for module in net.modules()]}
    for path, module in net.named_modules():
        at = f"'{path}'" if path else "the whole"
        state[f"training flag of {at}"] = module.training
        for name, value in vars(module).items():
            if name.endswith("hooks"):
                state[f"{name.strip('_')} of {at}"] = len(value)
    for kind, named in (("parameter", net.named_parameters()), ("buffer", net.named_buffers())):
        for name, value in named:
            state[f"{kind} {name}"] = value.detach().clone()
            state[f"requires_grad of {name}"] = value.requires_grad
            state[f"gradient of {name}"] = None if value.grad is None else value.grad.clone()
    return state


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    return type(a) is type(b) and a == b


@over_generic_cases
def law(subject: Subject, net: nn.Module, x: AnyGaussian) -> Verdict:
    """Samples have the reported mean and covariance, and the density integrates to one and to that mean."""
    seed_globally(0)
    result = subject.rule.propagate(net, x)
    got = as_prediction(result, x).detached()
    if isinstance(result, Gaussian | DiagonalGaussian):
        raise NotApplicable("its results are Gaussian, so mean and covariance determine them")
    verdicts = [v for v in (_sampled(result, got), _integrated(result, got)) if v is not None]
    if not verdicts:
        raise NotApplicable("its results have neither samples nor a known density")
    failed = [verdict for verdict in verdicts if not verdict.passed]
    return failed[0] if failed else max(verdicts, key=lambda verdict: verdict.share)


def _sampled(result: Law, got: Prediction) -> Verdict | None:
    """Whether samples have the reported moments; None if the law cannot be sampled."""
    try:
        draws = result.sample(DRAWS, torch.Generator().manual_seed(0)).detach().flatten(2).double()
    except UndefinedError:
        return None
    mean, second, errors = compare.moments_of(draws.movedim(0, 1))
    verdict = compare.within(
        Prediction(mean, second, got.full), compare.expected(got.mean, got.covariance, errors)
    )
    return replace(verdict, detail=f"of its samples: {verdict.detail}")


def _integrated(result: Law, got: Prediction) -> Verdict | None:
    """Whether the density integrates to one and to the reported mean; None if it is not known.

    Integrals are computed by importance sampling: with p the density and q that of the points, they are the
    means of p / q and of p / q (x - mean), which must be 1 and 0.
    """
    factor, failed = torch.linalg.cholesky_ex(2 * got.covariance.double())
    if not got.full or bool(failed.any()):
        return None
    mean = got.mean.double()
    try:
        points, weights = _importance_sample(result, mean, factor)
    except UndefinedError:
        return None
    integrand = torch.cat([weights.unsqueeze(2), weights.unsqueeze(2) * (points - mean)], 2)
    expected = torch.zeros(mean.shape[0], 1 + mean.shape[1], dtype=torch.float64)
    expected[:, 0] = 1
    error = (integrand.mean(0) - expected).abs()
    errors_of_means = compare.STANDARD_ERRORS * integrand.std(0) / (2 * DRAWS) ** 0.5
    tolerance = errors_of_means + compare.RELATIVE * expected
    share = float((error / tolerance.clamp(min=1e-300)).nan_to_num(torch.inf, torch.inf).max())
    text = (
        f"its density integrates to {float(weights.mean()):.6g}, and the error of its mean is "
        f"{float(error[:, 1:].max()):.3g}"
    )
    numbers = {"error": float(error.max()), "tolerance": float(tolerance.max())}
    return Verdict(share <= 1, text, numbers, share)


def _importance_sample(result: Law, mean: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
    """Points (2 DRAWS, B, m), half from a Gaussian and half from the law, and weights p / q (2 DRAWS, B).

    The Gaussian g has twice the covariance, given by its `factor`. With q = (p + g) / 2, the weight is
    2 / (1 + g / p), at most two, however narrow the components of a mixture are.
    """
    generator = torch.Generator().manual_seed(1)
    noise = torch.randn((DRAWS, *mean.shape), generator=generator, dtype=torch.float64)
    from_law = result.sample(DRAWS, generator).detach().flatten(2).double()
    points = torch.cat([mean + (factor @ noise.unsqueeze(-1)).squeeze(-1), from_law])
    inputs = points.unflatten(2, result.event_shape).to(result.location.dtype)
    log_density = result.log_prob(inputs).detach()
    log_gaussian = torch.distributions.MultivariateNormal(mean, scale_tril=factor).log_prob(points)
    return points, 2 / (1 + (log_gaussian - log_density).exp())
