"""Statements of the paper that are tested by computation: theorems, and Monte Carlo on random nets."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

from sdp_ref.laws import DiagonalGaussian, Law
from sdp_ref.rules import SDP, MonteCarlo
from sdp_ref.rules import rule as rule_named

from ...bench.studies.selective.risk_coverage import perfect
from ...oracles.exact.theorem import Optimality
from ..results import facts
from ..sections.relu.relu import single_relu, theorem
from ..statement import Answer, Effect, Evidence, Rule
from ..style.labels import number

_NORMAL, _CAUCHY = 2.0, 1.0  # stability index of the noise
_NEAR_ZERO = 1.0
"""Reach of "very close to" in sigma from 0; the figure shows no scale."""
_ROUNDING = 1e-12


def _theorem(chosen: Callable[[Optimality], bool]) -> Rule:
    def rule(_: Evidence) -> Answer:
        checks = [check for check in theorem() if chosen(check)]
        beaten = [check for check in checks if check.verdict == "fails"]
        ties = sum(check.verdict == "tie" for check in checks)
        finding = (
            f"a search over location, scale and point masses finds no law nearer in TV in any of "
            f"{len(checks)} cases; a point mass is as near in {ties}, at median 0"
        )
        if beaten:
            lead = number(-min(check.gap for check in beaten))
            finding = f"in {len(beaten)} of {len(checks)} cases another law is nearer, by {lead} at most"
        fidelity = "quadrature, |median| ≤ 3 scales"
        return Answer.certain(holds=not beaten, finding=finding, fidelity=fidelity, address="#relu")

    return rule


def _nearer(_: Evidence) -> Answer:
    relu = single_relu()
    return Answer.certain(
        holds=all(max(abs(low), abs(high)) <= _NEAR_ZERO for low, high in relu.nearer),
        finding=relu.sentences[0] + f" “Very close” is {_NEAR_ZERO:g}σ or less here.",
        fidelity="quadrature, σ = 0.1 as in the figure; |μ| ≤ 5σ",
        address="#relu",
    )


def example(
    inputs: int, seed: int, outputs: int = 10, batch: int = 1, sigma: float = 1e-8
) -> tuple[nn.Sequential, DiagonalGaussian]:
    """Net with random weights in float64, and the distribution of its input.

    By default sigma is so small that no ReLU changes its side: the true covariance is that of SDP, up to
    rounding.
    """
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        layers = (nn.Linear(inputs, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, outputs))
        location = torch.randn(batch, inputs, dtype=torch.float64)
    net = nn.Sequential(*layers).double()
    return net, DiagonalGaussian(location, torch.full_like(location, sigma**2))


def _location(_: Evidence) -> Answer:
    net, x = example(4, 0, outputs=3, batch=8, sigma=1.0)
    with torch.no_grad():
        values = net(x.mean)
        means = [rule_named(name).propagate(net, x).mean for name in ("sdp", "marginal_sdp")]
        difference = max(float((mean - values).abs().max()) for mean in means)
    scale = float(values.abs().max())
    return Answer.certain(
        holds=difference <= _ROUNDING * scale,
        finding="locations of SDP and marginal SDP differ from the net’s values, of up to "
        f"{number(scale)}, by {number(difference)}",
        fidelity="a 4-100-100-3 net with random weights, 8 inputs, float64",
    )


def _jacobian(_: Evidence) -> Answer:
    net, x = example(4, 0, outputs=3, batch=8, sigma=1.0)
    covariance = rule_named("sdp").propagate(net, x).covariance
    layerwise, value = torch.diag_embed(x.variance), x.mean
    with torch.no_grad():
        for layer in net:  # J C J^T with the Jacobian J of each layer
            if isinstance(layer, nn.Linear):
                layerwise = layer.weight @ layerwise @ layer.weight.T
            else:
                slope = (value > 0).double()
                layerwise = slope[:, :, None] * layerwise * slope[:, None, :]
            value = layer(value)
        gap = float((covariance - layerwise).abs().max() / layerwise.abs().max())
    return Answer.certain(
        holds=gap <= _ROUNDING,
        finding=f"layer by layer and by the Jacobian of the whole net, covariances differ by {number(gap)} "
        "of the largest entry",
        fidelity="a 4-100-100-3 net with random weights, 8 inputs, float64",
    )


def _interval(_: Evidence) -> Answer:
    inside = stats.norm.cdf(1) - stats.norm.cdf(-1)
    width = 2 * stats.norm.ppf(0.975)
    return Answer.certain(
        holds=round(100 * inside, 2) == 68.27 and round(width, 2) == 3.92,
        finding=f"{100 * inside:.4f} % within one standard deviation; 95 % within {width:.4f}",
        fidelity="arithmetic",
    )


def _perfect(_: Evidence) -> Answer:
    area = 100 * perfect(0.5).area
    return Answer.certain(
        holds=math.isclose(area, 12.5),  # as printed
        finding=f"{area:.4g} %, if the risk is the accepted errors as a share of all images (as a share of "
        "the accepted ones it would be 15.3 %)",
        fidelity="arithmetic",
        address="#selective",
    )


INPUTS = (4, 16, 64, 256, 1024)
_SAMPLES, _NETS, _REPEATS = 100, 30, 4
_WORSE = 1.25
"""Factor from which an error counts as deteriorated."""


def estimate_errors() -> list[list[tuple[float, float]]]:
    """Errors of Monte Carlo estimates for each net and each of :data:`INPUTS`, which take eight seconds.

    They are those of the covariance of the outputs, and of the gradient of its trace with respect to all
    weights and biases: relative, by the Frobenius norm, root mean square over repeats.
    """
    return [[_errors(inputs, seed) for inputs in INPUTS] for seed in range(_NETS)]


def _errors(inputs: int, seed: int) -> tuple[float, float]:
    net, x = example(inputs, seed)
    covariance, gradient = _covariance_and_gradient(SDP(create_graph=True).propagate(net, x), net)
    squares = torch.zeros(2, dtype=torch.float64)
    for repeat in range(_REPEATS):
        rule = MonteCarlo(samples=_SAMPLES, seed=seed * _REPEATS + repeat)
        estimated_covariance, estimated_gradient = _covariance_and_gradient(rule.propagate(net, x), net)
        squares[0] += ((estimated_covariance - covariance).norm() / covariance.norm()) ** 2
        squares[1] += ((estimated_gradient - gradient).norm() / gradient.norm()) ** 2
    covariance_error, gradient_error = (squares / _REPEATS).sqrt().tolist()
    return covariance_error, gradient_error


def _covariance_and_gradient(law: Law, net: nn.Module) -> tuple[Tensor, Tensor]:
    """Covariance of a distribution, and the gradient of its trace with respect to weights, as a vector."""
    covariance: Tensor = law.covariance[0]
    weights = list(net.parameters())
    slopes = torch.autograd.grad(covariance.trace(), weights, materialize_grads=True, allow_unused=True)
    return covariance.detach(), torch.cat([slope.flatten() for slope in slopes])


def _deteriorates(column: int, quantity: str) -> Rule:
    """Rule on the growth of an error with the number of inputs; `column` selects it in the stored errors."""

    def rule(_: Evidence) -> Answer | None:
        errors = np.array(facts()["estimate_errors"])[:, :, column]  # nets by numbers of inputs
        growth = Effect(
            f"relative error of {quantity} with {INPUTS[-1]} inputs over that with {INPUTS[0]}",
            np.log(errors[:, -1] / errors[:, 0]),
            math.log(_WORSE),
            math.exp,
        )
        levels = ", ".join(f"{error:.2g}" for error in np.sqrt((errors**2).mean(0)))
        return Answer.of(
            {(): (growth,)},
            "net",
            "nets n-100-100-10 with random weights, noise so small that the truth is known exactly; "
            f"errors {levels} with n = {', '.join(map(str, INPUTS))}",
        )

    return rule


RULES: Mapping[str, Rule] = {
    "theorem": _theorem(lambda check: check.alpha == _NORMAL),
    "theorem-cauchy": _theorem(lambda check: check.alpha == _CAUCHY),
    "theorem-stable": _theorem(lambda check: check.alpha not in (_NORMAL, _CAUCHY)),
    "w1-one-relu": _nearer,
    "location": _location,
    "jacobian": _jacobian,
    "piw": _interval,
    "perfect": _perfect,
    "high-dimensional-covariance": _deteriorates(0, "the covariance"),
    "high-dimensional-gradient": _deteriorates(1, "the gradient"),
}
