"""A rule's predictions for the inputs of a group, with its seeds, precision and time."""

from __future__ import annotations

import copy
import functools
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from sdp_bench.bench.identity.keys import OracleKey, SeedRoot
from sdp_bench.bench.metrics.oracle import Oracle
from sdp_bench.bench.metrics.prediction import Prediction
from sdp_bench.bench.plugins.code import no_exit
from sdp_ref.errors import ReplacedLawWarning
from sdp_ref.laws import Cauchy, Law, SymmetricStable, joined, law_of
from sdp_ref.rules import Propagator

_QUICK = 0.05  # s; faster rules are timed three times, since the first call warms caches


def predict(rule: Propagator, net: nn.Module, law: Law, roots: Sequence[OracleKey]) -> tuple[Law, float]:
    """Return the law predicted for each input, float64 on the CPU, and the time (s) per input without set-up.

    Computes in float64: float32 covariances lose the thin directions of nearly flat outputs. `law` is that of
    the inputs, and `roots` are the keys of their oracles, from which a sampling rule's seeds are derived.
    """
    seeds = seeds_of(rule, roots)
    propagate = prepared(rule, copy.deepcopy(net).double(), seeds)
    law = law.to(dtype=torch.float64)
    seconds: list[float] = []
    with torch.no_grad(), unsaid():
        while not seconds or (len(seconds) < 3 and sum(seconds) < _QUICK):
            begun = time.perf_counter()
            predicted = propagate(law)
            if law.location.is_cuda:
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begun)
    return predicted.to(device="cpu"), statistics.median(seconds) / len(roots)


@contextmanager
def unsaid() -> Iterator[None]:
    """Silence the warnings of rules that replace the noise by another law at each input.

    The replacement is stated once for readers: see `sdp_bench.bench.noise.Noise.note`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReplacedLawWarning)
        yield


def prediction_of(rule: Propagator, law: Law, oracle: Oracle) -> Prediction:
    """Return a prediction for metrics from the law, batch 1, predicted for the oracle's input.

    A stable law has independent components and gives marginals only. For a rule that linearises the net (with
    a method `linear_image`), the joint law, that of f(x) + J eps, has no closed form. It is sampled, with the
    same noise for all rules.
    """
    if hasattr(rule, "linear_image") and isinstance(law, Cauchy | SymmetricStable):
        return Prediction(law, oracle, functools.partial(_samples_of_image, rule.linear_image, oracle))
    return Prediction(law, oracle)


def _samples_of_image(linear_image: Callable[..., Callable[[Tensor], Tensor]], oracle: Oracle) -> Tensor:
    x = oracle.law.to(device="cpu", dtype=torch.float64)
    return oracle.draw(linear_image(copy.deepcopy(oracle.net).to("cpu", torch.float64), x.location), x)


def seeds_of(rule: Propagator, roots: Iterable[OracleKey | SeedRoot]) -> list[int]:
    """Return the seeds of a sampling rule, one from each root; empty for a rule without a field `seed`."""
    purpose = f"rule {getattr(rule, 'spec', rule.name)}"
    return [root.seed(purpose) for root in roots] if hasattr(rule, "seed") else []


def prepared(rule: Propagator, net: nn.Module, seeds: Sequence[int]) -> Callable[[Law], Law]:
    """Return the rule as a function of a batch of laws, after its set-up for the net.

    `seeds` has one seed for each law. A rule with a method `with_seeds` gets all at once.
    """
    if not seeds:
        return _of_net(rule, net)
    if hasattr(rule, "with_seeds"):
        return _of_net(rule.with_seeds(seeds), net)
    each = [_of_net(with_seed(rule, seed), net) for seed in seeds]
    return lambda law: joined([one(law[place]) for place, one in enumerate(each)])


def with_seed(rule: Propagator, seed: int) -> Propagator:
    """Return a copy of the rule with another seed."""
    if is_dataclass(rule):
        return replace(rule, seed=seed)
    changed: Any = copy.copy(rule)
    changed.seed = seed
    return cast(Propagator, changed)


def _of_net(rule: Propagator, net: nn.Module) -> Callable[[Law], Law]:
    prepare = getattr(rule, "prepare", None)
    with no_exit():
        propagate = prepare(net) if prepare else functools.partial(rule.propagate, net)

    def guarded(law: Law) -> Law:
        with no_exit():
            return law_of(propagate(law))

    return guarded
