"""Estimates of run times, from counts and costs that were measured once on one machine.

The costs are for one thread of an AMD EPYC core with AVX-512 in 2026, torch 2.13. Other machines differ by a
factor common to all groups, so relative times remain valid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from sdp_ref.activations import ACTIVATIONS

from ..nets.architectures import NETWORKS, Architecture, ClassifierArchitecture
from ..nets.net import Net

START = 5.0
"""Time (s) until the first worker has its modules."""
_FLOPS = 75e9  # flop/s of an oracle's forward pass
_DRAW = 0.25e-6  # s per sample: an oracle's input noise, a rule's samples
_RULE_PASSES = 40  # cost of a rule in forward passes, in float64
_CALLS = 2 * 2  # of a rule, in forward passes of float32: one to warm up, one to time it
_OF_COVARIANCES = ("moment_matching", "dvia")  # these take most of an input's time on images
_REGIONS = 10.0  # s of the rule "exact" for one input, between .1 and 20 if supported
_TRAINING = 1.2e-6  # s per epoch, net and hidden unit


def seconds(net: Net, samples: int, oracles: int, rules: Sequence[str], measuring: float) -> float:
    """Return the time (s) of one input of a net on one core; `measuring` is the time of the metrics."""
    architecture = net.architecture
    names = [rule.partition(":")[0] for rule in rules]
    unscented_points = 2 * math.prod(getattr(architecture, "event", (0,))) * names.count("unscented")
    if isinstance(architecture, ClassifierArchitecture):
        network = NETWORKS[architecture.name]
        passes = samples * oracles + _RULE_PASSES * len(rules) + unscented_points
        covariances = sum(name in _OF_COVARIANCES for name in names)
        return passes * network.seconds + covariances * network.covariance_seconds + measuring
    if isinstance(architecture, Architecture):
        activation = ACTIVATIONS[architecture.activation]
        products = sum(inputs * outputs for inputs, outputs in pairwise(architecture.widths))
        units = architecture.depth * architecture.width
        forward = 2 * products / _FLOPS + activation.value_seconds * units
        of_rules = names.count("moment_matching") * architecture.depth * activation.layer_seconds
        of_rules += _REGIONS * names.count("exact")
    else:  # a user's net, which was timed when it was found
        forward = getattr(net, "row_seconds", 0.0)
        of_rules = _CALLS * forward * (unscented_points + _RULE_PASSES * len(rules))
    by_sample = oracles * (forward + _DRAW) + _DRAW * len(rules) / 4
    return samples * by_sample + measuring + of_rules


def training_seconds(architecture: Architecture, epochs: int, nets: int) -> float:
    """Return the time (s) to train nets of one architecture together on one core."""
    return _TRAINING * epochs * nets * architecture.depth * architecture.width


def elapsed(work: Sequence[float], workers: int) -> float:
    """Return the time (s) of tasks on some workers, started in their order."""
    ends = [0.0] * workers
    for piece in work:
        ends[ends.index(min(ends))] += piece
    return max(ends)
