"""Form of a result: dtype, symmetry, definiteness, and finiteness for extreme inputs."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from sdp_ref.activations import ACTIVATIONS, activation
from sdp_ref.conformance import cases
from sdp_ref.conformance.cases import chain, linear, tensor, units
from sdp_ref.conformance.compare import like, simulated, within
from sdp_ref.conformance.subject import NotApplicable, Subject
from sdp_ref.conformance.trial import Case, Judge, Verdict
from sdp_ref.laws import DiagonalGaussian, Gaussian, Law
from sdp_ref.laws.gaussian import AnyGaussian

_DTYPE = "y = rule.propagate(net, x)\nprint(x.location.dtype, y.mean.dtype, y.covariance.dtype)"


def dtype(subject: Subject, seed: int) -> Iterator[Case]:
    """Mean and covariance have the dtype of the input."""

    def judge(net: nn.Module, x: Law) -> Verdict:
        got = subject.predict(net, x)
        for name, value in (("mean", got.mean), ("covariance", got.covariance)):
            if value.dtype != x.location.dtype:
                text = f"an input of {x.location.dtype} gives a {name} of {value.dtype}"
                return Verdict(False, text, calls=_DTYPE)
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
        return within(single, like(exact, simulated(subject, net, x), relative=_SINGLE), _PRECISION)

    for net, x in cases.generic(subject, seed):
        # representable in float32, so that both results are for the same law
        yield Case(copy.deepcopy(net).float().double(), x.to(torch.float32).to(torch.float64), judge)


_PRECISION = (
    "y = rule.propagate(net.float(), x.to(torch.float32))\nz = rule.propagate(net.double(), x)\n"
    "print(y.mean, z.mean, y.covariance, z.covariance, sep='\\n')"
)

_ASYMMETRY = 1e-10
"""Relative to the standard deviations: far above the rounding of J S J^T, far below an error in a formula."""


def symmetry(subject: Subject, seed: int) -> Iterator[Case]:
    def judge(net: nn.Module, x: Law) -> Verdict:
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
        text = f"C and its transpose differ by {error:.3g}"
        calls = "y = rule.propagate(net, x)\nprint(y.covariance - y.covariance.mT)"
        return Verdict(False, text, numbers, worst, calls)

    for net, x in cases.generic(subject, seed):
        yield Case(net, x, judge)


_INDEFINITE = 1e-5
"""Relative to the largest eigenvalue: covariances by quadrature may be off by 1e-6 of the input variance."""


def semidefinite(subject: Subject, seed: int) -> Iterator[Case]:
    """No eigenvalue (for marginal results: no variance) is negative."""

    def judge(net: nn.Module, x: Law) -> Verdict:
        got = subject.predict(net, x).detached()
        c = got.covariance.double()
        if not bool(torch.isfinite(c).all()):
            raise NotApplicable("its covariance is not finite (see the checks that ask for that)")
        values = torch.linalg.eigvalsh((c + c.mT) / 2) if got.full else got.variance.double().sort().values
        relative = values[:, 0] / values[:, -1].clamp(min=1e-300)
        row = int(relative.argmin())
        smallest, largest = float(values[row, 0]), float(values[row, -1])
        numbers = {"smallest": smallest, "largest": largest, "tolerance": -_INDEFINITE * abs(largest)}
        if smallest >= numbers["tolerance"]:
            return Verdict(True, numbers=numbers, share=max(0.0, -float(relative[row])) / _INDEFINITE)
        kind = "eigenvalue" if got.full else "variance"
        calls = "y = rule.propagate(net, x)\nprint(torch.linalg.eigvalsh(y.covariance))"
        text = f"smallest {kind} {smallest:.3g} beside a largest of {largest:.3g}"
        return Verdict(False, text, numbers, calls=calls, row=row)

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
                text = f"{name}{index[1:]} is {float(value[tuple(index)])}"
                return Verdict(False, text, row=index[0])
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
    one = DiagonalGaussian(40 * std * tensor([[-1.0], [1.0]] * 3), std**2)
    pattern = tensor([[1, -1, 1], [-1, -1, -1], [1, 0, -1]])
    unit = tensor([[[1, 0.5, -0.5], [0.5, 1, 0.2], [-0.5, 0.2, 1]]])
    size = tensor([1, 1, 1, 1e-3, 1e-3, 1e-3, 1e3, 1e3, 1e3]).unsqueeze(1)
    three = Gaussian(40 * size * pattern.repeat(3, 1), size.unsqueeze(2) ** 2 * unit)
    for name in subject.activations:
        wide = name not in _NOT_WIDE
        for last in (False, True):
            yield Case(units(name, 1, last=last), one if wide else one[:4], judge)
            yield Case(units(name, 3, last=last), three if wide else three[:6], judge)


def perfect_correlation(subject: Subject, _seed: int) -> Iterator[Case]:
    """Finite at correlations of 1 and -1."""
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
