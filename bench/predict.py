"""What a rule says about a group's inputs: the law it is given, its seeds, its precision, its time."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

from bench.keys import OracleKey
from bench.suites import Group, Subject
from sdp_ref.distributions import DiagonalGaussian, Law
from sdp_ref.rules import Rule

_QUICK = 0.05  # s; a rule faster than this is timed three times: the first call warms caches


def input_law(group: Group) -> DiagonalGaussian:
    """Law of the group's inputs, float32, batch of its subjects."""
    variance = torch.full_like(group.locations, group.sigma**2)
    return DiagonalGaussian(group.locations, variance)


def predict(rule: Rule, net: nn.Module, law: Law, subjects: Sequence[Subject]) -> tuple[Law, float]:
    """Law predicted for every input, and the rule's time (s) for one of them, set-up for the net apart.

    In float64: float32 covariances lose the thin directions of nearly flat outputs.
    """
    propagate = seeded(rule, [s.key for s in subjects]).prepare(copy.deepcopy(net).double())
    law = law.to(dtype=torch.float64)
    seconds: list[float] = []
    with torch.no_grad():
        while not seconds or (len(seconds) < 3 and sum(seconds) < _QUICK):
            begun = time.perf_counter()
            predicted = propagate(law)
            if law.location.is_cuda:
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begun)
    return predicted.to(device="cpu"), statistics.median(seconds) / len(subjects)


def seeded(rule: Rule, oracles: Sequence[OracleKey]) -> Rule:
    """Sampling rule with a seed for each input, from the key of its oracle; others as they are."""
    if not hasattr(rule, "seed"):
        return rule
    seeds = tuple(key.seed(f"rule {rule.spec}") for key in oracles)
    return replace(rule, seed=seeds)  # type: ignore[call-arg]
