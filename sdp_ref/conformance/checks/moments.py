"""Claimed moments after one hidden layer, and claims about small noise."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from sdp_ref.activations import ACTIVATIONS, activation
from sdp_ref.conformance import cases, compare, reference
from sdp_ref.conformance.cases import OPS, chain, indices, linear, tensor, units
from sdp_ref.conformance.reference import OpMoments, Pair, Unit
from sdp_ref.conformance.subject import DRAWS, NotApplicable, Subject
from sdp_ref.conformance.trial import Case, Judge, Verdict
from sdp_ref.laws import DiagonalGaussian, Gaussian
from sdp_ref.laws.gaussian import AnyGaussian

CLAIMS = ("moments", "marginal moments", "second order", "class")
"""Claims that are checked: mean and covariance, mean and variance, mean and classes at small noise."""

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
            yield _compared(subject, net, x, _joint_expected(subject, rows, last=last), full=True)


def marginal_moments(subject: Subject, _seed: int) -> Iterator[Case]:
    """Linear and activation: mean and variance of one unit, shape (B, 1)."""
    require(subject, "marginal moments")

    for name in reference.known(subject.activations):
        rows = reference.single(name)
        net = chain(linear([[2.0]], [1.0]), activation(name).build())
        std = tensor([[unit.std] for unit in rows])
        x = DiagonalGaussian((tensor([[unit.mean] for unit in rows]) - 1) / 2, std**2 / 4)
        mean = tensor([[unit.expectation] for unit in rows])
        covariance = tensor([[[unit.variance]] for unit in rows])
        spread = tensor([[[unit.spread]] for unit in rows])
        yield _compared(subject, net, x, _tolerances(subject, mean, covariance, spread, std))


def _compared(
    subject: Subject, net: nn.Module, x: AnyGaussian, want: compare.Expected, *, full: bool = False
) -> Case:
    """Case that compares moments; if `full`, a result needs covariances."""

    def judge(net: nn.Module, part: AnyGaussian) -> Verdict:
        got = subject.estimate(net, part)
        if full and not got.full:
            text = 'it claims "moments" and gives no covariances; a marginal rule claims "marginal moments"'
            return Verdict(False, text, row=0)
        return compare.within(got, want.rows(indices(part, x)))

    return Case(net, x, judge)


def require(subject: Subject, claim: str) -> None:
    """Raise NotApplicable for a rule without this claim."""
    if claim not in subject.claims:
        raise NotApplicable(f'it does not claim "{claim}"')


def _joint_input(name: str, rows: Sequence[Pair], *, last: bool) -> tuple[nn.Module, Gaussian]:
    # powers of two, so that the units' means and covariance are exact
    w, b = tensor([2.0, 0.5]), tensor([1.0, -1.0])
    mean, std = tensor([pair.mean for pair in rows]), tensor([pair.std for pair in rows])
    rho = tensor([[[1.0, pair.rho], [pair.rho, 1.0]] for pair in rows])
    s = std.unsqueeze(-1) * std.unsqueeze(-2) * rho
    modules = [linear(torch.diag(w), b), activation(name).build()]
    if last:
        modules.append(linear([[1.0, -1.0]], [0.5]))
    return chain(*modules), Gaussian((mean - b) / w, s / w.outer(w))


def _joint_expected(subject: Subject, rows: Sequence[Pair], *, last: bool) -> compare.Expected:
    mean, std = tensor([pair.expectation for pair in rows]), tensor([pair.std for pair in rows])
    covariance = _matrices([(*pair.variance, pair.covariance) for pair in rows])
    spread = _matrices([pair.spread for pair in rows])
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


def _matrices(rows: Iterable[Sequence[float]]) -> Tensor:
    """Matrices from rows of two variances and a covariance."""
    return tensor([[[a, c], [c, b]] for a, b, c in rows])


def _tolerances(
    subject: Subject, mean: Tensor, covariance: Tensor, spread: Tensor, std: Tensor
) -> compare.Expected:
    """Expected moments with tolerances; `std` are those of the inputs of the units.

    A covariance is the mean of a product; `spread` are the variances of these products, for standard errors.
    """
    stated = stated_tolerance(subject)
    std_products = std.unsqueeze(-1) * std.unsqueeze(-2)
    is_variance = torch.eye(mean.shape[-1], dtype=torch.bool)
    absolute = torch.where(is_variance, max(_VARIANCE, stated), max(_ABSOLUTE, stated))
    covariance_tolerance = compare.RELATIVE * covariance.abs() + absolute * std_products
    mean_tolerance = max(1e-6, stated) * std + 1e-12 * mean.abs()
    expected = compare.Expected(mean, covariance, mean_tolerance, covariance_tolerance)
    if not subject.sampling:
        return expected
    variance = covariance.diagonal(dim1=-2, dim2=-1)
    mean_error, covariance_error = (variance / DRAWS).sqrt(), (spread.clamp(min=0) / DRAWS).sqrt()
    return expected.plus(compare.StandardErrors(mean_error, covariance_error))


def stated_tolerance(subject: Subject) -> float:
    """Error of moments that a rule admits by a `tolerance` above the usual 1e-6, otherwise 0."""
    tolerance = getattr(subject.rule, "tolerance", None)
    return tolerance if isinstance(tolerance, float) and 1e-6 < tolerance < 1 else 0.0


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
            at_low, at_high = subject.estimate(net, x), subject.estimate(net, other)
            if not at_low.full:
                raise NotApplicable("a marginal result has no off-diagonal entries")
            a, b = float(at_low.covariance[0, 0, 1]), float(at_high.covariance[0, 0, 1])
            share = (b - a) / truth
            numbers = {"here": a, "there": b, "change": b - a, "true_change": truth}
            text = (
                f"from mean {low:g} to {high:g} the covariance of two units goes from {a:.4g} "
                f"to {b:.4g}, a change of {b - a:.4g} where the true one is {truth:.4g}"
            )
            return Verdict(share >= 0.1, text, numbers)

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


def diagonal(subject: Subject, seed: int) -> Iterator[Case]:
    """A unit's variance is that of the law whose mean the rule predicts, alone and in a layer.

    The mean shows how a rule treats the Gaussian input X of a unit: E f(X) if it integrates, f(E X) if it
    linearises. If the mean is one of these, the variance must be Var f(X) or f'(E X)^2 Var X, respectively.
    Rules that do neither (sigma points) are not tested for this, and sampling rules are tested by
    `sampling-error`.
    """
    for name in reference.known(subject.activations):
        if name in _POLYNOMIALS:
            continue
        rows = [u for u in reference.single(name) if u.std == 1 and -4 <= u.mean <= 4]
        x = DiagonalGaussian(tensor([[u.mean] for u in rows]), tensor([[1.0]] * len(rows)))
        yield Case(units(name, 1), x, _judge_of_units(subject, name, rows, x))
    yield from _in_company(subject, seed)


_POLYNOMIALS = ("square", "power")  # of degree 3: sigma points have the exact mean but not the variance
_DISTINCT = 1e-3  # in standard deviations: E f(X) and f(E X) are distinguishable
_EQUAL = 1e-5  # in standard deviations of f(X): the means count as equal
_CONSISTENT = 1e-3  # relative error of variances: DVIA's are 12 % off at mean / std = -2, quadratures 1e-6


def _judge_of_units(subject: Subject, name: str, rows: Sequence[Unit], whole: AnyGaussian) -> Judge:
    def judge(net: nn.Module, x: AnyGaussian) -> Verdict:
        if subject.sampling:
            raise NotApplicable("the variance of a unit alone is an estimate (see sampling-error)")
        got = subject.estimate(net, x)
        worst, judged = Verdict(True), 0
        for row, unit in enumerate(rows[i] for i in indices(x, whole)):
            verdict = _consistent(subject, name, unit, float(got.mean[row, 0]), float(got.variance[row, 0]))
            if verdict is None:
                continue
            judged += 1
            if not verdict.passed:
                return replace(verdict, row=row)
            worst = max(worst, verdict, key=lambda v: v.share)
        if not judged:
            raise NotApplicable("its mean of a unit is neither E f(X) nor f(E X)")
        return worst

    return judge


def _consistent(subject: Subject, name: str, unit: Unit, mean: float, variance: float) -> Verdict | None:
    """Whether the variance is that of the law with this mean; None if the mean does not determine it."""
    point = tensor([unit.mean]).requires_grad_()
    value = activation(name).build().double()(point)
    (slope,) = torch.autograd.grad(value.sum(), point)
    std = unit.variance**0.5
    integrated, linearised = unit.expectation, float(value.detach())
    if abs(integrated - linearised) < _DISTINCT * std:
        return None
    if abs(mean - integrated) <= _EQUAL * std:
        truth, kind = unit.variance, "E f(X), as of a rule that integrates"
    elif abs(mean - linearised) <= _EQUAL * std and unit.mean not in ACTIVATIONS[name].kinks:
        truth, kind = float(slope) ** 2 * unit.std**2, "f(E X), as of a rule that linearises"
    else:  # at a kink both slopes are acceptable
        return None
    # include the exact variance, in case the linearised one is 0
    tolerance = _CONSISTENT * max(truth, unit.variance) + stated_tolerance(subject)
    error = abs(variance - truth)
    numbers = {"mean": mean, "got": variance, "expected": truth, "error": error, "tolerance": tolerance}
    off = f" ({variance / truth - 1:+.1%})" if truth else ""
    text = f"mean {mean:.6g} is {kind}; the variance with it is {truth:.6g}, not {variance:.6g}{off}"
    return Verdict(error <= tolerance, text, numbers, error / tolerance)


def _in_company(subject: Subject, seed: int) -> Iterator[Case]:
    def judge(net: nn.Module, x: AnyGaussian) -> Verdict:
        whole = subject.estimate(net, x)
        *before, end = net.children()
        last = cast(nn.Linear, end)  # as constructed by `cases.dense`
        for i in range(last.out_features):
            alone = chain(*before, linear(last.weight[i : i + 1], last.bias[i : i + 1]))
            part = type(whole)(
                whole.mean[:, i : i + 1], whole.covariance[:, i : i + 1, i : i + 1], whole.full
            )
            want = compare.like(subject.estimate(alone, x), compare.simulated(subject, alone, x))
            verdict = compare.within(part, want)
            if not verdict.passed:
                text = f"output {i} compared with the same output alone: {verdict.detail}"
                return replace(verdict, detail=text)
        return verdict

    for name in cases.representative(subject):
        for net, x in cases.layers(((1, 1, 2), (2, 2, 2), (4, 4, 3, 2)), name, seed):
            yield Case(net, x, judge)


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
            yield _op_case(subject, name, module, row, whole)


def _op_case(subject: Subject, name: str, module: nn.Module, row: OpMoments, whole: bool) -> Case:
    mean, covariance = tensor([row.mean]), tensor([row.covariance])
    stated = stated_tolerance(subject)
    x: AnyGaussian = Gaussian(mean, covariance)
    if torch.equal(covariance[0], covariance[0].diagonal().diag()):
        x = DiagonalGaussian(mean, covariance.diagonal(dim1=1, dim2=2))
    expectation, moments = tensor([row.expectation]), tensor([row.moments])
    variance = moments.diagonal(dim1=1, dim2=2)
    of_mean, of_covariance = APPROXIMATE.get(name, (_EXACT, _EXACT))
    mean_tolerance = max(of_mean, stated) * variance.sqrt()
    tolerance = (max(of_covariance, stated) * variance.amax()).expand_as(moments)
    net = chain(module)
    want = compare.Expected(expectation, moments, mean_tolerance, tolerance)
    want = want.plus(compare.simulated(subject, net, x))
    return _compared(subject, net, x, want, full=whole and moments.shape[-1] > 1)


_NOISE = (1e-2, 1e-3, 1e-4)
"""Factors of the covariance S, decreasing tenfold."""

_FALL = 0.5
"""The error of (mean - f(m)) / t decreases with t: to a tenth for a correct rule and Gaussian noise, and not
at all for another factor of tr(H S).
"""

_VANISHED = 1e-3
"""Relative to 1/2 sum abs r_k' H r_k: smaller errors need not decrease; quadratures have 1e-4 here."""


def second_order(subject: Subject, seed: int) -> Iterator[Case]:
    """E f(X) = f(m) + 1/2 tr(H S) + o(S), for nets with smooth activations.

    The error of (mean - f(m)) / t, at covariances t S that decrease tenfold, must decrease with t unless it
    is negligible. The covariance is not tested: its second-order terms require third derivatives, and no
    claim covers it.
    """
    require(subject, "second order")
    smooth = [name for name in subject.activations if not ACTIVATIONS[name].kinks]
    if not smooth:
        raise NotApplicable("it takes no smooth activation")
    if subject.sampling:
        raise NotApplicable("it samples: the error of its mean hides the second order")

    def judge(net: nn.Module, x: AnyGaussian) -> Verdict:
        expected, scale = half_trace(net, x)
        value = net(x.mean).detach()
        shifts = []
        for t in _NOISE:
            mean = subject.estimate(net, cases.moved(x, x.mean, t)).mean
            shifts.append((mean - value) / t)
        errors = [(shift - expected).abs() / scale for shift in shifts]
        wrong = torch.zeros_like(expected, dtype=torch.bool)
        for before, after in itertools.pairwise(errors):
            decreases = after <= _FALL * before
            # written such that NaN and infinity fail
            wrong |= ~(decreases | (after <= _VANISHED))
        share = float((errors[-1] / _VANISHED).max())
        if not bool(wrong.any()):
            return Verdict(True, share=min(share, 1.0))
        row, k = wrong.nonzero()[0].tolist()
        got, want = float(shifts[-1][row, k]), float(expected[row, k])
        tolerance = _VANISHED * float(scale[row, k])
        numbers = {"got": got, "expected": want, "error": abs(got - want), "tolerance": tolerance}
        text = (
            f"output {k}: (mean - f(m)) / t at the covariance t S, t = {_NOISE[-1]:g}, is {got:.6g}; "
            f"1/2 tr(H S) is {want:.6g}, and the difference does not vanish with t"
        )
        return Verdict(False, text, numbers, share, row)

    for name in smooth:
        net = chain(linear([[1.0]], [0.5]), activation(name).build())
        yield Case(net, DiagonalGaussian(tensor([[0.25], [-1.25]]), tensor([[1.0], [0.5]])), judge)
        sizes = cases.WIDTHS[1:] if name in cases.representative(subject) else ()
        for net, x in cases.layers(sizes, name, seed):
            yield Case(net, x, judge)


def class_probabilities(subject: Subject, seed: int) -> Iterator[Case]:
    """Probabilities of two classes that are equal at m are correct to first order in the noise.

    At the covariance t S, the difference D of the two outputs has the mean t b, b = 1/2 tr(H S), the variance
    t g' S g and the third cumulant 3 t^2 g' S H S g, with its gradient g and its Hessian H. The Edgeworth
    series of P(D > 0) yields (P - 1/2) / sqrt(t) -> phi(0) (b / s - g' S H S g / (2 s^3)), s^2 = g' S g. A
    Gaussian with the exact mean and covariance lacks the second term.
    """
    require(subject, "class")
    smooth = [name for name in cases.representative(subject) if not ACTIVATIONS[name].kinks]
    if not smooth:
        raise NotApplicable("it takes no smooth activation")
    if subject.sampling:
        raise NotApplicable("it samples: its error hides the first order")

    def judge(net: nn.Module, x: AnyGaussian) -> Verdict:
        wanted, scale = _tilt(net, x)
        errors, got = [], 0.0
        for t in _NOISE:
            law = subject.rule.propagate(net, cases.moved(x, x.mean, t))
            got = float(law.class_probabilities()[0][0, 0] - 0.5) / t**0.5
            errors.append(abs(got - wanted) / scale)
        decreases = all(b <= max(_FALL * a, _VANISHED) for a, b in itertools.pairwise(errors))
        tolerance = _VANISHED * scale
        numbers = {"got": got, "expected": wanted, "error": abs(got - wanted), "tolerance": tolerance}
        text = (
            f"(P - 1/2) / sqrt(t) of the first of two equal classes at the covariance t S, "
            f"t = {_NOISE[-1]:g}, is {got:.6g}; the Edgeworth series has {wanted:.6g}, and the difference "
            "does not vanish with t"
        )
        return Verdict(decreases, "" if decreases else text, numbers, errors[-1] / _VANISHED)

    for name in smooth:
        for widths in ((1, 1, 2), (2, 3, 2), (3, 4, 4, 2)):
            for net, x in cases.layers((widths,), name, seed):
                last = cast(nn.Linear, [*net.children()][-1])
                with torch.no_grad():
                    last.bias.sub_(net(x.mean)[0])
                yield Case(net, x, judge)


def _tilt(net: nn.Module, x: AnyGaussian) -> tuple[float, float]:
    """Limit of (P - 1/2) / sqrt(t), and the sum of the absolute values of its two terms."""

    def difference(point: Tensor) -> Tensor:
        first, second = net(point.unsqueeze(0))[0]
        return first - second

    root = x.factor()[0]
    gradient = root.mT @ torch.autograd.functional.jacobian(difference, x.mean[0])  # by standard coordinates
    hessian = root.mT @ torch.autograd.functional.hessian(difference, x.mean[0]) @ root
    s = gradient.norm()
    terms = torch.stack([hessian.trace() / 2 / s, -(gradient @ hessian @ gradient) / (2 * s**3)])
    terms = terms / (2 * torch.pi) ** 0.5
    return float(terms.sum()), float(terms.abs().sum())


# the truncation error of order 4 is 1e-12, rounding over its square 1e-10: both far below _VANISHED
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
