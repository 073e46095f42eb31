"""The claim "second order": the mean is correct to second order in the noise."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from sdp_ref.activations import ACTIVATIONS, activation
from sdp_ref.conformance import cases
from sdp_ref.conformance.cases import chain, linear, tensor
from sdp_ref.conformance.checks.moments import require
from sdp_ref.conformance.subject import NotApplicable, Subject
from sdp_ref.conformance.trial import Case, Verdict
from sdp_ref.laws import DiagonalGaussian, Gaussian
from sdp_ref.laws.gaussian import AnyGaussian

_NOISE = (1e-2, 1e-3, 1e-4)
"""Factors of the covariance S, decreasing tenfold."""

_FALL = 0.5
"""The error of (mean - f(m)) / t decreases with t: to a tenth for a correct rule and Gaussian noise, and not
at all for another factor of tr(H S).
"""

_EQUAL = 1e-3
"""Relative to 1/2 sum abs r_k' H r_k: smaller errors need not decrease; quadratures have 1e-4 here."""


def second_order(subject: Subject, seed: int) -> Iterator[Case]:
    """E f(X) = f(m) + 1/2 tr(H S) + o(S), for nets with smooth activations.

    The covariance is not tested: its second-order terms require third derivatives, and no claim covers it.
    """
    require(subject, "second order")
    smooth = [name for name in subject.activations if not ACTIVATIONS[name].kinks]
    if not smooth:
        raise NotApplicable("it takes no smooth activation")
    if subject.sampling:
        raise NotApplicable("it samples: the error of its mean hides the second order")

    def judge(net: nn.Module, x: AnyGaussian) -> Verdict:
        half, scale = half_trace(net, x)
        value = net(x.mean).detach()
        found = []
        for t in _NOISE:
            law = cases.shrunk(x, t)
            found.append((subject.estimate(net, law).mean - value) / t)
        errors = [(each - half).abs() / scale for each in found]
        bad = torch.zeros_like(half, dtype=torch.bool)
        for before, after in itertools.pairwise(errors):
            # written such that NaN and infinity fail
            bad |= ~((after <= _FALL * before) | (after <= _EQUAL))
        share = float((errors[-1] / _EQUAL).max())
        if not bool(bad.any()):
            return Verdict(True, share=min(share, 1.0))
        row, k = (int(i) for i in bad.nonzero()[0])
        got, want = float(found[-1][row, k]), float(half[row, k])
        numbers = {
            "got": got,
            "expected": want,
            "error": abs(got - want),
            "tolerance": _EQUAL * float(scale[row, k]),
        }
        text = (
            f"output {k}: (mean - f(m)) / t at the covariance t S, t = {_NOISE[-1]:g}, is {got:.6g}; "
            f"1/2 tr(H S) is {want:.6g}, and the difference does not vanish with t"
        )
        return Verdict(False, text, numbers, share, _code(x, k, want), row)

    for name in smooth:
        one = chain(linear([[1.0]], [0.5]), activation(name).build())
        yield Case(one, DiagonalGaussian(tensor([[0.25], [-1.25]]), tensor([[1.0], [0.5]])), judge)
        for widths in cases.WIDTHS[1:] if name in cases.representative(subject) else ():
            net = cases.dense(widths, name, seed)
            yield Case(net, cases.diagonal(widths[0], seed), judge)
            yield Case(net, cases.full(widths[0], seed), judge)


# the truncation error of order 4 is 1e-12, rounding over its square 1e-10: both far below _EQUAL
_STEP = 1e-3


def half_trace(net: nn.Module, x: AnyGaussian) -> tuple[Tensor, Tensor]:
    """1/2 tr(H_k S) of each output, and the sum of the absolute values of its terms.

    With S = R R^T the trace is the sum of the second derivatives along the columns of R. They are computed by
    central differences of fourth order, independently of autograd.
    """
    root = x.factor().mT * _STEP  # rows: columns of R
    stencil = {-2: -1 / 12, -1: 4 / 3, 0: -5 / 2, 1: 4 / 3, 2: -1 / 12}
    batch, n, _ = root.shape
    second = torch.zeros((), dtype=root.dtype)
    for j, weight in stencil.items():
        points = (x.mean.unsqueeze(1) + j * root).flatten(0, 1)
        second = second + weight * net(points).detach().unflatten(0, (batch, n))
    second = second / _STEP**2
    return second.sum(1) / 2, second.abs().sum(1).clamp(min=1e-6) / 2


def _code(x: AnyGaussian, k: int, want: float) -> str:
    shrunk = (
        "sr.Gaussian(x.mean, t * x.covariance)"
        if isinstance(x, Gaussian)
        else "sr.DiagonalGaussian(x.mean, t * x.variance)"
    )
    return (
        f"for t in {_NOISE}:\n    y = rule.propagate(net, {shrunk})\n"
        f"    print(t, ((y.mean - net(x.mean)) / t).detach(), 'output {k} must tend to {want:.6g}')"
    )
