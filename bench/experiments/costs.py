"""How long work will take: from counts, and costs measured once on one machine.

The costs are of one thread of an AMD EPYC core with AVX-512 in 2026, torch 2.13. Elsewhere they are
off by a factor, the same for all groups, so shares of the whole stay right.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from sdp_bench.bench.nets.architectures import Architecture, ImageArchitecture
from sdp_bench.bench.nets.net import Net
from sdp_ref.activations import ACTIVATIONS

_FLOPS = 75e9  # of an oracle's forward pass, a second
_DRAW = 0.25e-6  # s a sample: an oracle's input noise, a rule's samples
_IMAGE = {"resnet18": 0.02, "cnn3": 0.0005}  # s a forward pass of one image
_RULE_PASSES = 40  # forward passes that a rule costs, in float64
_TRAINING = 1.2e-6  # s an epoch, net and hidden unit


def seconds(net: Net, samples: int, oracles: int, rules: Sequence[str], measuring: float) -> float:
    """Time (s) that one input of a net takes on one core.

    Parameters
    ----------
    net : Net
    samples : int
        Of each oracle.
    oracles : int
        That are drawn.
    rules : sequence of str
        Specs of the rules that are compared.
    measuring : float
        Time (s) that the metrics take.

    Returns
    -------
    float
    """
    architecture = net.architecture
    if isinstance(architecture, ImageArchitecture):
        return (samples + _RULE_PASSES * len(rules)) * _IMAGE[architecture.name]
    covariances = 0.0
    if isinstance(architecture, Architecture):
        flops = 2 * sum(n * m for n, m in pairwise(architecture.widths))
        units, activation = architecture.depth * architecture.width, ACTIVATIONS[architecture.activation]
        forward = flops / _FLOPS + activation.value_seconds * units
        slow = [rule for rule in rules if rule.partition(":")[0] == "moment_matching"]
        covariances = len(slow) * architecture.depth * activation.layer_seconds
    else:  # a net of the user's, which was timed when it was found
        forward = getattr(net, "row_seconds", 0.0)
    return samples * (oracles * (forward + _DRAW) + _DRAW * len(rules) / 4) + measuring + covariances


def training_seconds(architecture: Architecture, epochs: int, nets: int) -> float:
    """Time (s) that training nets of one architecture together takes on one core."""
    return _TRAINING * epochs * nets * architecture.depth * architecture.width


def elapsed(work: Sequence[float], workers: int) -> float:
    """Time (s) that pieces of work take on some workers, handed out in their order."""
    ends = [0.0] * workers
    for piece in work:
        ends[ends.index(min(ends))] += piece
    return max(ends)
