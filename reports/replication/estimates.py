"""Statements of the paper on Monte Carlo estimates with many inputs, tested on random nets."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sdp_bench.reports.replication.statement import Effect, Evidence, Rule, Tried, tried
from sdp_ref.laws import DiagonalGaussian, Law
from sdp_ref.rules import SDP, MonteCarlo

INPUTS = (4, 16, 64, 256, 1024)
_SAMPLES, _OUTPUTS, _NETS, _REPEATS = 100, 10, 30, 4
_WORSE = 1.25
"""Factor from which an error counts as deteriorated."""
_SIGMA = 1e-8
"""So small that no ReLU changes its side: the true covariance is that of SDP, up to rounding."""


@dataclass(frozen=True)
class Errors:
    """Relative errors of estimates (Frobenius, root mean square over repeats), shape (nets, len(INPUTS)).

    `covariance` is that of the outputs, and `gradient` that of its trace with respect to all weights and
    biases.
    """

    covariance: Tensor
    gradient: Tensor


@functools.cache
def errors() -> Errors:
    """Errors of Monte Carlo estimates on nets of the simulation's width, by number of inputs."""
    found = [[_errors(inputs, seed) for inputs in INPUTS] for seed in range(_NETS)]
    both = torch.tensor(found, dtype=torch.float64)
    return Errors(both[..., 0], both[..., 1])


def example(inputs: int, seed: int) -> tuple[nn.Sequential, DiagonalGaussian]:
    """Net with random weights in float64, and the distribution of its input, with batch 1."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        layers = (nn.Linear(inputs, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, _OUTPUTS))
        location = torch.randn(1, inputs, dtype=torch.float64)
    net = nn.Sequential(*layers).double()
    return net, DiagonalGaussian(location, torch.full_like(location, _SIGMA**2))


def _errors(inputs: int, seed: int) -> tuple[float, float]:
    net, x = example(inputs, seed)
    truth = _derived(SDP(create_graph=True).propagate(net, x), net)
    squares = torch.zeros(2, dtype=torch.float64)
    for repeat in range(_REPEATS):
        estimate = MonteCarlo(samples=_SAMPLES, seed=seed * _REPEATS + repeat)
        for place, (one, true) in enumerate(
            zip(_derived(estimate.propagate(net, x), net), truth, strict=True)
        ):
            squares[place] += ((one - true).norm() / true.norm()) ** 2
    covariance, gradient = (squares / _REPEATS).sqrt().tolist()
    return covariance, gradient


def _derived(law: Law, net: nn.Module) -> tuple[Tensor, Tensor]:
    """Covariance of a distribution, and the gradient of its trace with respect to weights, as a vector."""
    covariance: Tensor = law.covariance[0]
    slopes = torch.autograd.grad(covariance.trace(), list(net.parameters()), allow_unused=True)
    every = [
        torch.zeros_like(weight) if slope is None else slope
        for slope, weight in zip(slopes, net.parameters(), strict=True)
    ]
    return covariance.detach(), torch.cat([slope.flatten() for slope in every])


def _deteriorates(name: str, what: str) -> Rule:
    def rule(_: Evidence) -> Tried | None:
        by_inputs: Tensor = getattr(errors(), name)
        worse = Effect(
            f"relative error of {what} with {INPUTS[-1]} inputs over that with {INPUTS[0]}",
            (by_inputs[:, -1] / by_inputs[:, 0]).log().numpy(),
            math.log(_WORSE),
            math.exp,
        )
        levels = ", ".join(f"{error:.2g}" for error in by_inputs.square().mean(0).sqrt().tolist())
        return tried(
            (worse,),
            "net",
            f"nets n-100-100-{_OUTPUTS} with random weights, noise so small that the truth is known exactly; "
            f"errors {levels} with n = {', '.join(map(str, INPUTS))}",
        )

    return rule


RULES: Mapping[str, Rule] = {
    "high-dimensional-covariance": _deteriorates("covariance", "the covariance"),
    "high-dimensional-gradient": _deteriorates("gradient", "the gradient"),
}
