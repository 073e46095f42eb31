"""Exactness of the claimed moments after one hidden layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from sdp_ref.activations import activation
from sdp_ref.conformance import compare, reference
from sdp_ref.conformance.cases import chain, indices, linear, tensor, units
from sdp_ref.conformance.reference import Pair
from sdp_ref.conformance.subject import DRAWS, NotApplicable, Subject
from sdp_ref.conformance.trial import Case, Verdict
from sdp_ref.laws import DiagonalGaussian, Gaussian
from sdp_ref.laws.gaussian import AnyGaussian

CLAIMS = ("moments", "marginal moments", "second order")
"""Claims that are checked: mean and covariance, mean and variance, mean at small noise."""

_ABSOLUTE = 3e-6
"""Tolerance of a covariance, relative to the input's standard deviations: three times the default tolerance
of a rule that integrates numerically.
"""

_VARIANCE = 1e-9
"""Tolerance of a variance, relative to that of the input: one-dimensional integrals are cheap to compute
accurately, and errors of a tail variance (3e-6 four standard deviations below a ReLU's kink) must exceed it.
"""


def joint_moments(subject: Subject, _seed: int) -> Iterator[Case]:
    """Linear and activation: mean and covariance of two units; with another layer those of a difference."""
    require(subject, "moments")
    for name in reference.known(subject.activations):
        rows = reference.pairs(name)
        for last in (False, True):
            net, x = _joint_input(name, rows, last=last)
            want = _joint_expected(subject, rows, last=last)

            def judge(
                net: nn.Module, x: AnyGaussian, want: compare.Expected = want, whole: AnyGaussian = x
            ) -> Verdict:
                got = subject.estimate(net, x)
                if not got.full:
                    text = (
                        'it claims "moments" and gives no covariances; '
                        'a marginal rule claims "marginal moments"'
                    )
                    return Verdict(False, text, row=0)
                return compare.within(got, want.rows(indices(x, whole)))

            yield Case(net, x, judge)


def marginal_moments(subject: Subject, _seed: int) -> Iterator[Case]:
    require(subject, "marginal moments")

    for name in reference.known(subject.activations):
        rows = reference.single(name)
        net = chain(linear([[2.0]], [1.0]), activation(name).build())
        std = tensor([[unit.std] for unit in rows])
        x = DiagonalGaussian((tensor([[unit.mean] for unit in rows]) - 1) / 2, std**2 / 4)
        mean = tensor([[unit.expectation] for unit in rows])
        covariance = tensor([[[unit.variance]] for unit in rows])
        spread = tensor([[[unit.spread]] for unit in rows])
        want = _tolerances(subject, mean, covariance, spread, std)

        def judge(
            net: nn.Module, x: AnyGaussian, want: compare.Expected = want, whole: AnyGaussian = x
        ) -> Verdict:
            return compare.within(subject.estimate(net, x), want.rows(indices(x, whole)))

        yield Case(net, x, judge)


def require(subject: Subject, claim: str) -> None:
    """Raise NotApplicable for a rule without this claim."""
    if claim not in subject.claims:
        raise NotApplicable(f'it does not claim "{claim}"')


def _joint_input(name: str, rows: Sequence[Pair], *, last: bool) -> tuple[nn.Module, Gaussian]:
    # powers of two, so that the units' means and covariance are exact
    w, b = tensor([2.0, 0.5]), tensor([1.0, -1.0])
    mean = tensor([[unit.mean for unit in pair.units] for pair in rows])
    std = tensor([[unit.std for unit in pair.units] for pair in rows])
    rho = tensor([[[1.0, pair.rho], [pair.rho, 1.0]] for pair in rows])
    s = std.unsqueeze(-1) * std.unsqueeze(-2) * rho
    modules = [linear(torch.diag(w), b), activation(name).build()]
    if last:
        modules.append(linear([[1.0, -1.0]], [0.5]))
    return chain(*modules), Gaussian((mean - b) / w, s / w.outer(w))


def _joint_expected(subject: Subject, rows: Sequence[Pair], *, last: bool) -> compare.Expected:
    mean = tensor([[unit.expectation for unit in pair.units] for pair in rows])
    std = tensor([[unit.std for unit in pair.units] for pair in rows])
    covariance = _matrices([(p.units[0].variance, p.covariance, p.units[1].variance) for p in rows])
    spread = _matrices([(p.units[0].spread, p.spread, p.units[1].spread) for p in rows])
    want = _tolerances(subject, mean, covariance, spread, std)
    if not last:
        return want
    a = tensor([[1.0, -1.0]])
    # |a|, since in the worst case errors of the parts add
    return compare.Expected(
        mean @ a.T + 0.5,
        a @ covariance @ a.T,
        want.mean_tolerance @ a.abs().T,
        a.abs() @ want.covariance_tolerance @ a.abs().T,
    )


def _matrices(rows: Sequence[tuple[float, float, float]]) -> Tensor:
    return tensor([[[a, b], [b, c]] for a, b, c in rows])


def _tolerances(
    subject: Subject, mean: Tensor, covariance: Tensor, spread: Tensor, std: Tensor
) -> compare.Expected:
    own = stated_tolerance(subject)
    ss = std.unsqueeze(-1) * std.unsqueeze(-2)
    eye = torch.eye(mean.shape[-1], dtype=torch.bool)
    absolute = torch.where(eye, max(_VARIANCE, own), max(_ABSOLUTE, own))
    tolerance = compare.RELATIVE * covariance.abs() + absolute * ss
    of_mean = max(1e-6, own) * std + 1e-12 * mean.abs()
    if subject.sampling:
        variance = covariance.diagonal(dim1=-2, dim2=-1)
        of_mean = of_mean + compare.STANDARD_ERRORS * (variance / DRAWS).sqrt()
        tolerance = tolerance + compare.STANDARD_ERRORS * (spread.clamp(min=0) / DRAWS).sqrt()
    return compare.Expected(mean, covariance, of_mean, tolerance)


def stated_tolerance(subject: Subject) -> float:
    """Error of moments that a rule admits by a `tolerance` above the usual 1e-6, otherwise 0."""
    own = getattr(subject.rule, "tolerance", None)
    return own if isinstance(own, float) and 1e-6 < own < 1 else 0.0


_SHIFTS = ((-2.0, 2.0), (4.0, 0.0), (0.0, 4.0))
"""Shifts (from, to) of the mean: the slope increases along one of them, except for even functions."""

_COMMON = ("relu", "leaky_relu", "gelu", "silu", "sigmoid", "tanh")
"""Activations of this check. For others (sin, hard steps), rules with few points, which are correct about the
mean, have covariance errors that exceed these changes.
"""

_GROWS = 0.2
"""Minimum true and linearised change of a covariance, relative to the true covariance after the shift."""


def mean_shift(subject: Subject, _seed: int) -> Iterator[Case]:
    """If the mean moves from a small to a large slope, the covariance increases as the true one does.

    A tenth of the true change is required: linearisation and DVIA show most of it, and sigma points at five
    standard deviations (kappa = 20) a quarter where a tanh saturates.
    """

    def judge_of(name: str, low: float, high: float) -> Case:
        truth, other = _true_change(name, low, high), _correlated(high)

        def judge(net: nn.Module, x: AnyGaussian) -> Verdict:
            here, there = subject.estimate(net, x), subject.estimate(net, other)
            if not here.full:
                raise NotApplicable("a marginal result has no off-diagonal entries")
            a, b = float(here.covariance[0, 0, 1]), float(there.covariance[0, 0, 1])
            share = (b - a) / truth
            numbers = {"here": a, "there": b, "change": b - a, "true_change": truth}
            text = (
                f"from mean {low:g} to {high:g} the covariance of two units goes from {a:.4g} "
                f"to {b:.4g}, a change of {b - a:.4g} where the true one is {truth:.4g}"
            )
            calls = (
                "y = rule.propagate(net, x)\n"
                f"there = sr.Gaussian(torch.full_like(x.mean, {high}), x.covariance)\n"
                "z = rule.propagate(net, there)\n"
                "print(y.covariance, z.covariance)"
            )
            return Verdict(share >= 0.1, text, numbers, calls=calls)

        return Case(units(name, 2), _correlated(low), judge)

    for name in reference.known(name for name in subject.activations if name in _COMMON):
        change, shift = max((_seen_change(name, *shift), shift) for shift in _SHIFTS)
        if change > _GROWS * reference.pair(name, shift[1]).covariance:
            yield judge_of(name, *shift)


def _seen_change(name: str, low: float, high: float) -> float:
    """The smaller of the true change of a covariance and that of a linearisation."""
    points = tensor([low, high]).requires_grad_()
    (slope,) = torch.autograd.grad(activation(name).build().double()(points).sum(), points)
    linear = 0.5 * float(slope[1].square() - slope[0].square())
    return min(_true_change(name, low, high), linear)


def _true_change(name: str, low: float, high: float) -> float:
    return reference.pair(name, high).covariance - reference.pair(name, low).covariance


def _correlated(mean: float) -> Gaussian:
    return Gaussian(tensor([[mean, mean]]), tensor([[[1.0, 0.5], [0.5, 1.0]]]))
