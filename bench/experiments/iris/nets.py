"""Nets and noise levels of the experiments on Iris."""

from __future__ import annotations

from collections.abc import Sequence

from sdp_bench.bench.nets.architectures import Architecture

SIGMAS = (0.1, 1.0, 10.0, 100.0, 1000.0)
W1_SIGMAS = (0.01, 0.1, 1.0)


def architectures(**depths: Sequence[int]) -> tuple[Architecture, ...]:
    """Return nets with hidden layers of 100 units, given depths by activation: ``relu=(1, 2)``."""
    return tuple(Architecture(depth, kind) for kind, each in depths.items() for depth in each)


RELU = architectures(relu=(1, 2, 4, 6))
FOUR = architectures(relu=(4,))
