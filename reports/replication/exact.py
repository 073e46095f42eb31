"""Theorems and computations of the paper, checked by quadrature and arithmetic instead of samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from scipy import stats
from torch import nn

from sdp_bench.bench.studies.selective.risk_coverage import perfect
from sdp_bench.oracles.exact.theorem import Optimality
from sdp_bench.reports.replication.statement import Answer, Evidence, Rule
from sdp_bench.reports.sections.relu.relu import single_relu
from sdp_bench.reports.style.labels import number
from sdp_ref.laws import DiagonalGaussian
from sdp_ref.rules import rule as rule_named

_NORMAL, _CAUCHY = 2.0, 1.0  # stability index of the noise
_NEAR_ZERO = 1.0
"""Reach of "very close to" in sigma from 0; the figure shows no scale."""
_ROUNDING = 1e-12


def _theorem(chosen: Callable[[Optimality], bool]) -> Rule:
    def rule(_: Evidence) -> Answer:
        checks = [check for check in single_relu().checks if chosen(check)]
        beaten = [check for check in checks if check.verdict == "fails"]
        ties = sum(check.verdict == "tie" for check in checks)
        found = (
            f"a search over location, scale and point masses finds no law nearer in TV in any of "
            f"{len(checks)} cases; a point mass is as near in {ties}, at median 0"
        )
        if beaten:
            lead = number(-min(check.gap for check in beaten))
            found = f"in {len(beaten)} of {len(checks)} cases another law is nearer, by {lead} at most"
        return Answer.certain(
            holds=not beaten,
            found=found,
            fidelity="quadrature, |median| ≤ 3 scales",
            address="#relu",
        )

    return rule


def _nearer(_: Evidence) -> Answer:
    relu = single_relu()
    spans = [(low / relu.nearer.sigma, high / relu.nearer.sigma) for low, high in relu.nearer.intervals]
    return Answer.certain(
        holds=all(max(abs(low), abs(high)) <= _NEAR_ZERO for low, high in spans),
        found=relu.sentences[0] + f" “Very close” is {_NEAR_ZERO:g}σ or less here.",
        fidelity="quadrature, σ = 0.1 as in the figure; |μ| ≤ 5σ",
        address="#relu",
    )


def _net() -> tuple[nn.Sequential, DiagonalGaussian]:
    torch.manual_seed(0)
    layers = (nn.Linear(4, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 3))
    x = torch.randn(8, 4, dtype=torch.float64)
    return nn.Sequential(*layers).double(), DiagonalGaussian(x, torch.ones_like(x))


def _location(_: Evidence) -> Answer:
    net, x = _net()
    with torch.no_grad():
        values = net(x.mean)
        apart = max(
            float((rule_named(name).propagate(net, x).mean - values).abs().max())
            for name in ("sdp", "marginal_sdp")
        )
    scale = float(values.abs().max())
    return Answer.certain(
        holds=apart <= _ROUNDING * scale,
        found=f"locations of SDP and marginal SDP differ from the net’s values, of up to {number(scale)}, by "
        f"{number(apart)}",
        fidelity="a 4-100-100-3 net with random weights, 8 inputs, float64",
    )


def _jacobian(_: Evidence) -> Answer:
    net, x = _net()
    covariance = rule_named("sdp").propagate(net, x).covariance
    product = torch.diag_embed(x.variance)
    value = x.mean
    with torch.no_grad():
        for layer in net:  # the Jacobian of each layer
            if isinstance(layer, nn.Linear):
                product = layer.weight @ product @ layer.weight.T
                value = layer(value)
            else:
                slope = (value > 0).double()
                product = slope[:, :, None] * product * slope[:, None, :]
                value = layer(value)
        apart = float((covariance - product).abs().max() / product.abs().max())
    return Answer.certain(
        holds=apart <= _ROUNDING,
        found=f"layer by layer and by the Jacobian of the whole net, covariances differ by {number(apart)} "
        "of the largest entry",
        fidelity="a 4-100-100-3 net with random weights, 8 inputs, float64",
    )


def _interval(_: Evidence) -> Answer:
    inside = stats.norm.cdf(1) - stats.norm.cdf(-1)
    width = 2 * stats.norm.ppf(0.975)
    return Answer.certain(
        holds=round(100 * inside, 2) == 68.27 and round(width, 2) == 3.92,
        found=f"{100 * inside:.4f} % within one standard deviation; 95 % within {width:.4f}",
        fidelity="arithmetic",
    )


def _perfect(_: Evidence) -> Answer:
    area = 100 * perfect(0.5).area
    return Answer.certain(
        holds=math.isclose(area, 12.5),  # as printed
        found=f"{area:.4g} %, if the risk is the accepted errors as a share of all images (as a share of the "
        "accepted ones it would be 15.3 %)",
        fidelity="arithmetic",
        address="#selective",
    )


RULES: Mapping[str, Rule] = {
    "theorem": _theorem(lambda check: check.alpha == _NORMAL),
    "theorem-cauchy": _theorem(lambda check: check.alpha == _CAUCHY),
    "theorem-stable": _theorem(lambda check: check.alpha not in (_NORMAL, _CAUCHY)),
    "w1-one-relu": _nearer,
    "location": _location,
    "jacobian": _jacobian,
    "piw": _interval,
    "perfect": _perfect,
}
