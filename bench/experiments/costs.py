"""How long work will take: from counts, and costs measured once on one machine.

The costs are of one thread of an AMD EPYC core with AVX-512 in 2026, torch 2.13. Elsewhere they are
off by a factor, the same for all groups, so shares of the whole stay right.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sdp_bench.bench.nets.architectures import NETWORKS, Architecture, ClassifierArchitecture
from sdp_bench.bench.nets.net import Net
from sdp_ref.activations import ACTIVATIONS

_FLOPS = 75e9  # of an oracle's forward pass, a second
_DRAW = 0.25e-6  # s a sample: an oracle's input noise, a rule's samples
_RULE_PASSES = 40  # forward passes that a rule costs, in float64
_OF_COVARIANCES = ("moment_matching", "dvia")  # which take most of an input's time on images
_PRODUCTS = 28e9  # flops of the products that a layer's covariances are summed from, a second
_LAYER_ERRORS = 0.15  # s: roots of the covariances of one layer of 100 units, and their distances
_CUT = 0.02  # s that a rule is asked about the net that ends after a layer
_FINDING = 1.0  # s: a stored measurement's net and input, and the first use of what draws
_PAGE = 2.0  # s: a drill-down's figures
_REGIONS = 10.0  # s of the rule "exact" for one input, between .1 and 20 where it does not refuse
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
    """
    architecture = net.architecture
    if isinstance(architecture, ClassifierArchitecture):
        network, names = NETWORKS[architecture.name], [rule.partition(":")[0] for rule in rules]
        passes = samples * oracles + _RULE_PASSES * len(rules)
        passes += 2 * math.prod(architecture.event) * names.count("unscented")
        covariances = sum(name in _OF_COVARIANCES for name in names)
        return passes * network.seconds + covariances * network.covariance_seconds + measuring
    of_rules = 0.0
    if isinstance(architecture, Architecture):
        flops = 2 * sum(n * m for n, m in pairwise(architecture.widths))
        units, activation = architecture.depth * architecture.width, ACTIVATIONS[architecture.activation]
        forward = flops / _FLOPS + activation.value_seconds * units
        slow = [rule for rule in rules if rule.partition(":")[0] == "moment_matching"]
        of_rules = len(slow) * architecture.depth * activation.layer_seconds
        of_rules += _REGIONS * sum(rule.partition(":")[0] == "exact" for rule in rules)
    else:  # a net of the user's, which was timed when it was found
        forward = getattr(net, "row_seconds", 0.0)
    return samples * (oracles * (forward + _DRAW) + _DRAW * len(rules) / 4) + measuring + of_rules


def training_seconds(architecture: Architecture, epochs: int, nets: int) -> float:
    """Time (s) that training nets of one architecture together takes on one core."""
    return _TRAINING * epochs * nets * architecture.depth * architecture.width


def elapsed(work: Sequence[float], workers: int) -> float:
    """Time (s) that pieces of work take on some workers, handed out in their order."""
    ends = [0.0] * workers
    for piece in work:
        ends[ends.index(min(ends))] += piece
    return max(ends)


_MOST_PRODUCTS = 1.3e11


def samples_by_layer(samples: int, units: Iterable[int]) -> int:
    """How many of an oracle's samples give the moments of its layers in a drill-down.

    All of a million for up to 12 hidden layers of 100 units, half a million for 24: as many, to a power of
    two, as their products are summed of in some seconds.

    Parameters
    ----------
    samples : int
        Of the oracle.
    units : iterable of int
        Of the layers whose covariances are summed.

    Returns
    -------
    int
        At most `samples`, and no fewer than 2^14 of them.
    """
    most = max(2**14, int(_MOST_PRODUCTS / sum(n * n for n in units)))
    return samples if samples <= most else 1 << (most.bit_length() - 1)


@dataclass(frozen=True)
class Effort:
    """Time (s) that a drill-down takes on two cores, about.

    Attributes
    ----------
    truth : float
        For what is drawn of the net, which all rules share.
    rule, page : float
        For the rule's errors, and the page.
    """

    truth: float
    rule: float
    page: float


def of_drilldown(net: Net, samples: int, rule: str) -> Effort:
    """What a drill-down takes.

    Parameters
    ----------
    net : Net
    samples : int
        Of the oracle.
    rule : str
        Its spec.
    """
    architecture = net.architecture
    page = _PAGE + 1e-6 * samples
    if not isinstance(architecture, Architecture):  # nothing is said by layer
        return Effort(_FINDING, 0.0, page)
    depth, units = architecture.depth, architecture.width
    activation = ACTIVATIONS[architecture.activation]
    flops = 2 * sum(n * m for n, m in pairwise(architecture.widths))
    forward = flops / _FLOPS + activation.value_seconds * units * depth + _DRAW
    drawn = samples_by_layer(samples, [units] * depth)
    products = depth * 2 * units**2 / _PRODUCTS
    of_layer = activation.layer_seconds * (units / 100) ** 2
    # at each activation what the true laws and the rule's were at all those before it
    images = depth * (depth + 1) * of_layer
    asked = depth * (depth + 1) * of_layer if rule.partition(":")[0] == "moment_matching" else 0.0
    layers = (2 * depth + 1) * (_CUT + _LAYER_ERRORS * (units / 100) ** 3 / 2)
    truth = _FINDING + (samples * forward + drawn * (forward + products)) / 2
    return Effort(truth, asked + images / 2 + layers, page)
