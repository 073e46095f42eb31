"""Errors of moment matching in nets with parallel branches of different functions; see docs/rules.md.

``python docs/examples/branches.py`` takes about a minute on one thread. It prints the relative error of the
covariance (Frobenius norm) compared with 10⁶ samples, for covariances between the branches of first order
(those of a subclass with custom handlers) and for exact ones.
"""

import itertools

import torch
from torch import nn

import sdp_ref as sr
from sdp_ref.activations import ELEMENTWISE, activation_of
from sdp_ref.rules import MomentMatching

INPUTS, WIDTH, SAMPLES = 6, 12, 10**6
FUNCTIONS = (torch.relu, torch.tanh, torch.sin, torch.special.ndtr)


class FirstOrder(MomentMatching):
    """Moment matching with E[f'] E[g'] Cov(X, Y) between branches with different functions."""

    name = "first_order"


@FirstOrder.handles(*ELEMENTWISE)
def elementwise(_rule, module, law):
    """Exact moments of a single function."""
    mean, covariance = activation_of(module).mean_covariance(law.mean.flatten(1), law.covariance)
    return sr.Gaussian(mean.reshape(law.mean.shape), (covariance + covariance.mT) / 2)


class Layer(nn.Module):
    """The sum of a linear map and of four functions of separate linear maps or of a common one."""

    def __init__(self, inputs, outputs, *, common):
        super().__init__()
        maps = [nn.Linear(inputs, outputs) for _ in FUNCTIONS]
        self.first = nn.ModuleList(maps[:1] * len(FUNCTIONS) if common else maps)
        self.direct = nn.Linear(inputs, outputs)

    def forward(self, x):
        """Compute it."""
        branches = [function(layer(x)) for function, layer in zip(FUNCTIONS, self.first, strict=True)]
        return self.direct(x) + sum(branches)


class Recurrent(nn.Module):
    """The last hidden state of an LSTM."""

    def __init__(self, steps):
        super().__init__()
        self.lstm = nn.LSTM(INPUTS, WIDTH, batch_first=True)
        self.steps = steps

    def forward(self, x):
        """Compute it."""
        return self.lstm(x)[0][:, -1]


def residual(depth, *, common):
    """A net of such layers."""
    widths = [INPUTS] + depth * [WIDTH]
    return nn.Sequential(*[Layer(n, m, common=common) for n, m in itertools.pairwise(widths)])


NETS = {
    "1 layer": (lambda: residual(1, common=False), (INPUTS,)),
    "4 layers": (lambda: residual(4, common=False), (INPUTS,)),
    "1 layer, common map": (lambda: residual(1, common=True), (INPUTS,)),
    "4 layers, common map": (lambda: residual(4, common=True), (INPUTS,)),
    "LSTM, 8 steps": (lambda: Recurrent(8), (8, INPUTS)),
}


@torch.no_grad()
def main():
    """Print a line for each net and noise level."""
    print(f"{'net':20} sigma  first order    exact")
    for name, (build, event) in NETS.items():
        torch.manual_seed(0)
        net = build().double().eval()
        mean = torch.randn(1, *event, dtype=torch.float64)
        noise = torch.randn(SAMPLES // 2, *event, dtype=torch.float64)
        for sigma in (0.3, 1.0, 3.0):
            outputs = net(torch.cat([mean + sigma * noise, mean - sigma * noise]))
            true = outputs.mT.cov()
            x = sr.DiagonalGaussian(mean, torch.full_like(mean, sigma**2))
            errors = []
            for rule in (FirstOrder(), MomentMatching()):
                predicted = rule.propagate(net, x).covariance[0]
                errors.append(float((predicted - true).norm() / true.norm()))
            print(f"{name:20} {sigma:5} {errors[0]:12.1%} {errors[1]:8.1%}", flush=True)


if __name__ == "__main__":
    main()
