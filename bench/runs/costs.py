"""How long work will take: from counts, and costs measured once on one machine.

The costs are of one thread of an AMD EPYC core with AVX-512 in 2026, torch 2.13. Elsewhere they are
off by a factor, the same for all groups, so shares of the whole stay right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from sdp_bench.bench.experiments.suites import Group, Subject
from sdp_bench.bench.experiments.task import TaskGroup
from sdp_bench.bench.metrics import metric
from sdp_bench.bench.metrics.references import references
from sdp_bench.bench.nets.architectures import Architecture, ImageArchitecture
from sdp_ref.activations import ACTIVATIONS

_FLOPS = 75e9  # of an oracle's forward pass, a second
_DRAW = 0.25e-6  # s a sample: an oracle's input noise, a rule's samples
_IMAGE = {"resnet18": 0.02, "cnn3": 0.0005}  # s a forward pass of one image
_RULE_PASSES = 40  # forward passes that a rule costs, in float64
_TRAINING = 1.2e-6  # s an epoch, net and hidden unit


def seconds(group: Group | TaskGroup) -> float:
    """Time (s) that a group takes on one core."""
    if isinstance(group, TaskGroup):
        return group.seconds
    return 1.0 + sum(_subject_seconds(group, subject) for subject in group.subjects)


def _subject_seconds(group: Group, subject: Subject) -> float:
    architecture, samples = group.net.architecture, subject.key.samples
    if isinstance(architecture, ImageArchitecture):
        forward = _IMAGE[architecture.name]
        return (subject.key.samples + _RULE_PASSES * len(subject.rules)) * forward
    layer = 0.0
    if isinstance(architecture, Architecture):
        flops = 2 * sum(n * m for n, m in pairwise(architecture.widths))
        units, activation = architecture.depth * architecture.width, ACTIVATIONS[architecture.activation]
        forward = flops / _FLOPS + activation.value_seconds * units
        layer = activation.layer_seconds
    else:  # a net of the user's, which was timed when it was found
        forward = getattr(group.net, "row_seconds", 0.0)
    oracles = 1 + sum(each.oracles for name, each in references().items() if name in subject.rules)
    took = samples * (oracles * (forward + _DRAW) + _DRAW * len(subject.rules) / 4)
    for spec, rules in Counter(spec for spec, _ in subject.pairs).items():
        took += metric(spec).seconds(samples, rules)
    slow = [r for r in subject.rules if r.partition(":")[0] == "moment_matching"]
    return took + len(slow) * architecture.depth * layer


def training_seconds(architecture: Architecture, epochs: int, nets: int) -> float:
    """Time (s) that training nets of one architecture together takes on one core."""
    return _TRAINING * epochs * nets * architecture.depth * architecture.width


def elapsed(work: Sequence[float], workers: int) -> float:
    """Time (s) that pieces of work take on some workers, handed out in their order."""
    ends = [0.0] * workers
    for piece in work:
        ends[ends.index(min(ends))] += piece
    return max(ends)
