"""Cases in which every rule must be exact: affine nets, and vanishing noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from sdp_ref.activations import activation
from sdp_ref.conformance import cases, compare, reference
from sdp_ref.conformance.cases import OPS, chain, dense, diagonal, full, linear
from sdp_ref.conformance.subject import NotApplicable, Subject
from sdp_ref.conformance.trial import Case, Judge, Verdict
from sdp_ref.laws import DiagonalGaussian, Gaussian
from sdp_ref.laws.gaussian import AnyGaussian


def affine(subject: Subject, seed: int) -> Iterator[Case]:
    """Mean A m + b and covariance A S A^T; for marginal rules one layer and independent inputs."""
    judge = partial(_agrees_with_linearisation, subject)
    sizes = ((1, 1), (2, 1), (3, 3), (2, 3, 2), (3, 4, 4, 2), (6, 6), (6, 6, 3))
    for net, x in cases.layers(sizes, None, seed):
        yield Case(net, x, judge)
    for n in (2, 3):
        for x in cases.singular(n, seed):
            yield Case(dense((n, n), None, seed), x, judge)
    for net, shape in cases.structured(None, seed).values():
        n = math.prod(shape)
        for x in (diagonal(n, seed), full(n, seed)):
            yield Case(net, cases.moved(x, x.mean.unflatten(1, shape)), judge)
    for kind in cases.CONVOLUTIONS:
        net, shape = cases.convolved(kind, None, seed)
        x = diagonal(math.prod(shape), seed)
        yield Case(net, cases.moved(x, x.mean.unflatten(1, shape)), judge)


SMALL = 1e-4
"""Standard deviation of small noise. Deviations from f(x) and J S J^T are then 1e-8 relative for smooth nets,
and 0 away from kinks; a covariance from differences of outputs still has twelve digits.
"""


def small_noise(subject: Subject, seed: int) -> Iterator[Case]:
    """Mean f(x) and covariance J S J^T; for marginal rules one layer with its activation, and single ops."""
    judge = partial(_agrees_with_linearisation, subject)
    for name in subject.activations:
        unit = chain(linear([[1.0]], [0.5]), activation(name).build())
        point = DiagonalGaussian(cases.tensor([[0.25], [-0.75]]), cases.tensor([[SMALL**2]] * 2))
        yield Case(unit, point, judge)
        if name == "leaky_relu":
            yield Case(chain(linear([[1.0]], [0.5]), nn.LeakyReLU(0.1)), point, judge)
        sizes = ((2, 2), *cases.WIDTHS[1:]) if name in cases.representative(subject) else ()
        for widths in sizes:
            yield from _small(partial(_layers, widths, name), judge, seed)
        for kind in cases.structured(name, seed) if sizes else ():
            yield from _small(partial(_structured, kind, name), judge, seed)
        for kind in cases.CONVOLUTIONS if name in cases.representative(subject)[:1] else ():
            net, x = _away_from_kinks(partial(cases.convolved, kind, name), seed)
            yield Case(net, x, judge)
    for name, module in OPS.items():
        mean = cases.tensor([reference.of_op(name)[0].mean])
        yield Case(chain(module), DiagonalGaussian(mean, torch.full_like(mean, SMALL**2)), judge)


Made = tuple[nn.Sequential, tuple[int, ...]]


def _layers(widths: tuple[int, ...], name: str, seed: int) -> Made:
    net = dense(widths, name, seed)
    return chain(*net, activation(name).build()) if len(widths) == 2 else net, widths[:1]


def _structured(kind: str, name: str, seed: int) -> Made:
    return cases.structured(name, seed)[kind]


def _small(make: Callable[[int], Made], judge: Judge, seed: int) -> Iterator[Case]:
    net, x = _away_from_kinks(make, seed)
    for law in (x, cases.moved(full(x.dimension, seed), x.mean, SMALL**2)):
        yield Case(net, law, judge)


def _away_from_kinks(make: Callable[[int], Made], seed: int) -> tuple[nn.Module, AnyGaussian]:
    """Net and point where all units are at least 500 standard deviations from 0, and the outputs vary."""
    for attempt in range(1000):
        net, shape = make(seed + 1000 * attempt)
        flat = diagonal(math.prod(shape), seed + attempt)
        mean = flat.mean.unflatten(1, shape)
        if _nearest(net, mean) > 0.1 and not torch.equal(net(mean), net(mean + 1e-3)):
            return net, cases.moved(flat, mean, SMALL**2)
    raise AssertionError("no such net away from its kinks")


def _nearest(net: nn.Module, mean: Tensor) -> float:
    """Distance to the nearest kink: the smallest absolute output of all affine layers.

    In a net without affine layers, it is that of the first module (a pool).
    """
    values: list[Tensor] = []
    layers = _affine_layers(net) or [*net.children()][:1]
    hooks = [m.register_forward_hook(lambda _m, _x, y: values.append(y)) for m in layers]
    net(mean)
    for hook in hooks:
        hook.remove()
    return min(float(value.abs().min()) for value in values)


_AFFINE = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.ConvTranspose2d, nn.BatchNorm1d)


def _affine_layers(net: nn.Module) -> list[nn.Module]:
    return [module for module in net.modules() if isinstance(module, _AFFINE)]


def _agrees_with_linearisation(subject: Subject, net: nn.Module, x: AnyGaussian) -> Verdict:
    got = subject.estimate(net, x)
    # a residual connection correlates units, as a second layer does
    deep = len(_affine_layers(net)) > 1 or any(isinstance(module, cases.Residual) for module in net.modules())
    if not got.full and (deep or isinstance(x, Gaussian)):
        raise NotApplicable("a marginal rule is exact for one layer and independent inputs only")
    mean, covariance = linearised(net, x)
    errors = compare.of_gaussian(covariance) if subject.sampling else None
    scale = covariance.diagonal(dim1=-2, dim2=-1).sqrt() if deep else None
    scale = None if scale is None else scale + mean.abs() + 1e-3
    return compare.within(got, compare.expected(mean, covariance, errors, mean_scale=scale))


def linearised(net: nn.Module, x: AnyGaussian) -> tuple[Tensor, Tensor]:
    """f(m) and J S J^T, with the Jacobian from torch.autograd."""
    rows = []
    for m, s in zip(x.mean, x.covariance, strict=True):
        jacobian = torch.autograd.functional.jacobian(lambda v: net(v.unsqueeze(0))[0], m).flatten(1)
        rows.append(jacobian @ s @ jacobian.T)
    return net(x.mean).detach(), torch.stack(rows)


def point_masses(subject: Subject, seed: int) -> Iterator[Case]:
    """An input without noise yields f(x) without variance, alone and in a batch with noisy inputs."""

    def judge(net: nn.Module, x: AnyGaussian) -> Verdict:
        got = subject.predict(net, x).detached()
        where = x.variance == 0
        if bool(where.all()):
            want = net(x.mean).detach()
            return compare.within(got, _point(want, torch.zeros_like(got.covariance)))
        # one unit per input: the other results only have to be finite
        covariance = torch.where(where.unsqueeze(-1) | where.unsqueeze(-2), 0.0, got.covariance)
        mean = torch.where(where, net(x.mean).detach(), got.mean)
        return compare.within(got, _point(mean, covariance))

    for name in cases.representative(subject):
        for n in (1, 2, 3):
            m = cases.tensor([[0.0], [0.5], [-0.5], [30.0]]).repeat(1, n)
            yield Case(cases.units(name, n), DiagonalGaussian(m, 0 * m), judge)
            yield Case(cases.units(name, n), Gaussian(m, 0 * torch.diag_embed(m)), judge)
        for widths in cases.WIDTHS:
            x = diagonal(widths[0], seed)
            yield Case(dense(widths, name, seed), DiagonalGaussian(x.mean, 0 * x.variance), judge)
        m = cases.tensor([[0.0, 0.25], [0.5, 0.25], [-0.5, 0.25]])
        variance = cases.tensor([[0.0, 1.0]]).repeat(3, 1)
        yield Case(cases.units(name, 2), DiagonalGaussian(m, variance), judge)
        yield Case(cases.units(name, 2), Gaussian(m, torch.diag_embed(variance)), judge)


def _point(mean: Tensor, covariance: Tensor) -> compare.Expected:
    """Tolerances for rounding only: 1e-9 of the mean, and its square for covariances."""
    scale = 1e-9 * (1 + mean.abs().amax(-1, keepdim=True))
    square = scale.unsqueeze(-1).square().expand_as(covariance)
    return compare.Expected(mean, covariance, scale.expand_as(mean), square)
