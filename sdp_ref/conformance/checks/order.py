"""The order of convergence as the noise goes to 0: errors proportional to sigma^k."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor, nn

from sdp_ref.activations import ACTIVATIONS
from sdp_ref.conformance import cases
from sdp_ref.conformance.cases import dense, tensor
from sdp_ref.conformance.subject import Subject, as_prediction
from sdp_ref.conformance.trial import Case, Verdict
from sdp_ref.laws import DiagonalGaussian, Gaussian, Law, Mixture
from sdp_ref.laws.gaussian import AnyGaussian

QUANTITIES = ("mean", "covariance", "law")
NETS = ("affine", "smooth", "kinked")
ORDERS = tuple(f"{net} {quantity}" for net in NETS for quantity in QUANTITIES)
"""Names of the orders that a rule may claim."""

_NOISE = (0.2, 0.1, 0.05, 0.025)
_FREQUENCIES = (1.0, 2.0)  # per standard deviation of an output
_EXACT = 1e-6  # relative to the spread; the reference at kinks errs by a tenth of it
_SLACK = 0.3  # the next term of the expansion changes an order of the sequence by less

Nodes = tuple[Tensor, Tensor]
"""Standardised points (N, 2), and weights (N,), which sum to 1."""


def orders(subject: Subject, seed: int) -> Iterator[Case]:
    """Orders of mean, covariance and law on two-layer nets of two inputs; those claimed must be reached.

    The kinks of the kinked net pass through the mean of its input, where they matter at every noise level.
    """
    claimed: Mapping[str, float] = getattr(subject.rule, "orders", None) or {}
    names = cases.representative(subject)
    smooth = [name for name in names if not ACTIVATIONS[name].kinks]
    kinked = [name for name in names if ACTIVATIONS[name].homogeneous]
    widths = (2, 3, 3, 2)
    x = cases.diagonal(2, seed)
    yield Case(dense(widths, None, seed), x, partial(_judged, subject, "affine", _hermite(), claimed))
    for name in smooth:
        yield Case(dense(widths, name, seed), x, partial(_judged, subject, "smooth", _hermite(), claimed))
    for name in kinked:
        at_kink = cases.moved(x, torch.zeros_like(x.mean))
        net = dense(widths, name, seed, bias=False)
        yield Case(net, at_kink, partial(_judged, subject, "kinked", _polar(), claimed))


@cache
def _hermite() -> Nodes:
    """Gauss-Hermite rule: exact to rounding for analytic functions on the scale of the noise."""
    points, weights = np.polynomial.hermite_e.hermegauss(30)
    product = np.stack(np.meshgrid(points, points, indexing="ij"), -1).reshape(-1, 2)
    mass = np.outer(weights, weights).ravel()
    return tensor(product), tensor(mass / mass.sum())


@cache
def _polar() -> Nodes:
    """Polar coordinates: a function that is homogeneous about the origin is smooth in the radius.

    The error of 4096 angles is 1e-7 at kinks.
    """
    angle = 2 * math.pi * (np.arange(4096) + 0.5) / 4096
    t, weights = np.polynomial.legendre.leggauss(32)
    radius = 4.5 * (t + 1)
    mass = weights * radius * np.exp(-(radius**2) / 2)
    directions = np.stack([np.cos(angle), np.sin(angle)], -1)
    points = (radius[:, None, None] * directions).reshape(-1, 2)
    weight = np.repeat(mass, len(angle))
    return tensor(points), tensor(weight / weight.sum())


def _judged(
    subject: Subject, kind: str, nodes: Nodes, claimed: Mapping[str, float], net: nn.Module, x: AnyGaussian
) -> Verdict:
    errors = [_errors(subject, net, cases.moved(x, x.mean, sigma**2), nodes) for sigma in _NOISE]
    orders = {}
    for quantity in QUANTITIES:
        if quantity in errors[0]:
            absolute, relative = zip(*[at_sigma[quantity] for at_sigma in errors], strict=True)
            orders[f"{kind} {quantity}"] = _order(absolute, relative)
    for name, order in orders.items():
        # written such that NaN fails
        if name in claimed and not order >= claimed[name] - _SLACK:
            numbers = {"got": order, "expected": float(claimed[name])}
            text = f"the error of the {name} is of order {order:.2f} in the noise, not {claimed[name]:g}"
            return Verdict(False, text, numbers)
    return Verdict(True, orders=orders)


def _order(absolute: tuple[float, ...], relative: tuple[float, ...]) -> float:
    """Slope of the logarithms at the smallest noise with an error above rounding; infinite without any."""
    order = math.inf
    for (before, after), size in zip(itertools.pairwise(absolute), relative[1:], strict=True):
        if not size <= _EXACT:
            order = math.log2(before / after)
    return order


def _errors(subject: Subject, net: nn.Module, x: AnyGaussian, nodes: Nodes) -> dict[str, tuple[float, float]]:
    """Absolute error, and error relative to the true spread, of each quantity."""
    points, weights = nodes
    rows = x.mean.unsqueeze(1) + points @ x.factor().mT
    outputs = net(rows.flatten(0, 1)).detach().unflatten(0, (x.batch, -1))
    mean = weights @ outputs
    centred = outputs - mean.unsqueeze(1)
    covariance = centred.mT @ (weights.unsqueeze(1) * centred)
    std = covariance.diagonal(dim1=1, dim2=2).sqrt()
    law = subject.law(net, x)
    got = as_prediction(law, x).detached()
    if not got.full:
        covariance = torch.diag_embed(covariance.diagonal(dim1=1, dim2=2))
    predicted = got.covariance if got.full else torch.diag_embed(got.variance)
    mean_error = float((got.mean - mean).norm())
    covariance_error = float((predicted - covariance).norm())
    errors = {
        "mean": (mean_error, mean_error / float(std.norm())),
        "covariance": (covariance_error, covariance_error / float(covariance.norm())),
    }
    true = torch.stack([_wave(t * centred / std.unsqueeze(1), weights) for t in _FREQUENCIES])
    characteristic = _characteristic(law, mean, std)
    if characteristic is not None:
        law_error = float((characteristic - true).abs().max())
        errors["law"] = (law_error, law_error)
    return errors


def _wave(phase: Tensor, weights: Tensor) -> Tensor:
    """E exp(i phase) for values (B, N, n), (B, n)."""
    return torch.complex(weights @ phase.cos(), weights @ phase.sin())


def _characteristic(law: Law, mean: Tensor, std: Tensor) -> Tensor | None:
    """Characteristic functions (frequencies, B, n) of the outputs, centred and scaled; None if unknown."""
    parts = law.components if isinstance(law, Mixture) else law
    if not isinstance(parts, Gaussian | DiagonalGaussian):
        return None
    weights = law.weights if isinstance(law, Mixture) else mean.new_ones(len(mean), 1)
    shape = (len(mean), -1, mean.shape[1])
    shift = (parts.mean.detach().reshape(shape) - mean.unsqueeze(1)) / std.unsqueeze(1)
    variance = parts.variance.detach().reshape(shape) / std.square().unsqueeze(1)
    waves = [torch.exp(torch.complex(-(t**2) / 2 * variance, t * shift)) for t in _FREQUENCIES]
    return torch.stack([torch.einsum("bk,bkn->bn", weights.to(wave.dtype), wave) for wave in waves])
