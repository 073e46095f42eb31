"""Plug-in rules with faults, and a few cells in which the gate must detect them."""

from torch.utils._python_dispatch import TorchDispatchMode

from sdp_bench.bench.experiments import ci
from sdp_bench.bench.gate.baseline import read, write
from sdp_bench.bench.gate.cases import GateScope
from sdp_bench.bench.gate.cases import probes as all_probes
from sdp_bench.bench.gate.check import make

RULE = """
import sdp_ref as sr

class Mine:
    name = "mine"

    def propagate(self, net, x):
        for _ in range({times}):
            law = self.once(net, x)
        return law

    def once(self, net, x):
        law = sr.propagate(net, x, rule={rule!r})
        mean, covariance = law.mean, law.covariance
        mean[:, 0] += {shift} * covariance[:, 0, 0].sqrt()
        return sr.Gaussian(mean, {scale} * covariance)
"""


def write_rule(path, rule="moment_matching", *, scale=1.0, shift=0.0, times=1):
    """Write a plug-in that predicts the same as a built-in rule except for changes; return its address."""
    path.write_text(RULE.format(rule=rule, scale=scale, shift=shift, times=times))
    return f"{path}:Mine"


def few_cells(*, depth=1, sigmas=(1.0,), inputs=2, samples=2**14, probes=False, rules=ci.RULES):
    """One net with a few noise levels and inputs, with or without probes."""
    groups = ci.groups(["sdp"], samples=samples, pilot_samples=2**13, cells=64, inputs=inputs, sigmas=sigmas)
    chosen = tuple(group for group in groups if group.net.architecture.depth == depth)
    return GateScope(rules, chosen, all_probes() if probes else ())


def baseline_of(path, scope, *addresses):
    """Baseline of rules, written to a file and read again."""
    write(path, make(addresses, scope))
    return read(path)


class Operations(TorchDispatchMode):
    """A clock that counts torch's operations, so that times are equal on all machines."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))

    def __call__(self):
        return self.count * 1e-3

    def __reduce__(self):
        return _counting, ()


def _counting():
    """Start a clock in the process of a plug-in."""
    return Operations().__enter__()


SAMPLER = """
from dataclasses import dataclass
import torch
import sdp_ref as sr
from torch import nn

@dataclass(frozen=True)
class Sampler:
    seed: int = 0
    name = "sampler"

    def propagate(self, net, x):
        law = sr.rule("monte_carlo", samples={samples}, seed=self.seed + {offset}).propagate(net, x)
        mean, covariance = law.mean, law.covariance
        if {when}:
            {change}
        return sr.Gaussian(mean, covariance)
"""


def write_sampler(path, change="pass", *, when="True", samples=20, offset=0):
    """Write a sampling plug-in that predicts the same as simple Monte Carlo except for a change."""
    path.write_text(SAMPLER.format(samples=samples, offset=offset, when=when, change=change))
    return f"{path}:Sampler"
