"""Variance of Monte Carlo estimators relative to independent samples: the table of docs/rules.md."""

import math

import torch

import sdp_ref as sr
from sdp_bench.bench.datasets.base import stratified_rows
from sdp_bench.bench.experiments import ci
from sdp_bench.bench.nets.net import inputs_of

ESTIMATES, FLOWERS, SIGMAS = 200, 3, (0.01, 0.1, 1.0, 10.0)
RULES = {
    "antithetic": "monte_carlo:samples=100,sampler=antithetic",
    "whitened": "monte_carlo:samples=100,sampler=whitened",
    "Sobol": "monte_carlo:samples=100,sampler=sobol",
    "lattice": "monte_carlo:samples=100,sampler=lattice",
    "control variate": "control_variate:samples=100",
    "control variate, Jacobian": "control_variate:samples=100,coefficient=jacobian",
    "control variate, Sobol": "control_variate:samples=100,sampler=sobol",
}


def variances(spec, net, x, sigma):
    """Of mean and covariance, summed over their entries."""
    rule = sr.rule(spec).with_seeds(list(range(ESTIMATES)))
    law = sr.DiagonalGaussian(x.expand(ESTIMATES, -1).contiguous(), torch.full((ESTIMATES, 4), sigma**2))
    found = rule.propagate(net, law)
    return found.mean.var(0).sum().item(), found.covariance.flatten(1).var(0).sum().item()


def main():
    """Print the table."""
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    found = next(group.net for group in ci.groups() if group.net.architecture.depth == 4)
    net, data = found.build().double(), inputs_of(found)
    inputs = data.batch(list(stratified_rows(data.labels, FLOWERS))).double()
    plain = {
        (i, s): variances("monte_carlo:samples=100", net, x[None], s)
        for i, x in enumerate(inputs)
        for s in SIGMAS
    }
    columns = [f"{what}, σ = {s:g}" for what in ("mean", "covariance") for s in SIGMAS]
    print("| | " + " | ".join(columns) + " |")
    print("| --- |" + " --- |" * len(columns))
    for name, spec in RULES.items():
        gains = {(i, s): variances(spec, net, x[None], s) for i, x in enumerate(inputs) for s in SIGMAS}
        ratios = [
            math.exp(sum(math.log(plain[i, s][m] / gains[i, s][m]) for i in range(FLOWERS)) / FLOWERS)
            for m in (0, 1)
            for s in SIGMAS
        ]
        print(f"| {name} | " + " | ".join(f"{ratio:.3g}" for ratio in ratios) + " |")


if __name__ == "__main__":
    main()
