"""Predictions of rules with their seeds, precision and time."""

from __future__ import annotations

import copy
import functools
import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from sdp_ref.errors import ReplacedLawWarning, UndefinedError
from sdp_ref.laws import Cauchy, Law, SymmetricStable, joined, law_of
from sdp_ref.rules import Propagator

from ..environment import threads
from ..identity import OracleKey, SeedRoot
from ..metrics.oracle import Oracle, Prediction
from ..operations import operations
from ..plugins.code import no_exit

_REPEATS = 5
_ENOUGH = 0.5  # s of timed calls; slower rules are repeated less often
_LONG = 10.0  # s; the lazy initialisation of a first call, 2 to 5 s, matters little to slower rules
_LONG_BUILT_IN = 2.0  # s; workers have imported what built-in rules need, so they gain less than 0.02 s


def predict(
    rule: Propagator, net: nn.Module, law: Law, roots: Sequence[OracleKey]
) -> tuple[Law, list[float], Callable[[], float]]:
    """Return the law predicted for each input, float64 on the CPU, times (s) per input, and a count.

    The count calls the rule once more and returns its operations per input, in regular passes; an
    UndefinedError if the net has no operations in PyTorch.

    Computes in float64: float32 covariances lose the thin directions of nearly flat outputs. `law` is that of
    the inputs, and `roots` are the keys of their oracles, from which a sampling rule's seeds are derived.
    Times are CPU times (wall times on a GPU) of repeated calls for all inputs on one thread, without set-up
    and without the first call, unless that took long. Other processes hardly change CPU times.
    """
    seeds = seeds_of(rule, roots)
    net = copy.deepcopy(net).double()
    propagate = prepared(rule, net, seeds)
    law = law.to(dtype=torch.float64)
    now = time.perf_counter if law.location.is_cuda else time.process_time

    def timed() -> tuple[Law, float]:
        """Return the predicted laws and the time per input."""
        start = now()
        predicted = propagate(law)
        if law.location.is_cuda:
            torch.cuda.synchronize()
        return predicted, (now() - start) / len(roots)

    with torch.no_grad(), without_replacement_warnings(), threads(1):
        predicted, first_seconds = timed()
        is_long = first_seconds * len(roots) > _longest_repeated(rule, law)
        seconds = [first_seconds] if is_long else [timed()[1]]
        while len(seconds) < _REPEATS and sum(seconds) * len(roots) < _ENOUGH:
            seconds.append(timed()[1])

    @functools.cache
    def passes() -> float:
        with torch.no_grad(), without_replacement_warnings(), threads(1):
            regular = operations(lambda: net(law.location))
            if not regular:
                raise UndefinedError("the net has no operations in PyTorch, in which rules are counted")
            return operations(lambda: propagate(law)) / regular

    return predicted.to(device="cpu"), seconds, passes


def _longest_repeated(rule: Propagator, law: Law) -> float:
    """Return the time (s) of a first call from which on it is not repeated."""
    is_built_in = type(rule).__module__.startswith("sdp_ref.")
    return _LONG_BUILT_IN if is_built_in and not law.location.is_cuda else _LONG


@contextmanager
def without_replacement_warnings() -> Iterator[None]:
    """Silence the warnings of rules that replace the noise by another law at each input.

    The replacement is stated once for readers: see `sdp_bench.bench.noise.Noise.note`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReplacedLawWarning)
        yield


def prediction_of(
    rule: Propagator, law: Law, oracle: Oracle, passes: Callable[[], float] = lambda: math.nan
) -> Prediction:
    """Return a prediction for metrics from the law, batch 1, predicted for the oracle's input.

    A stable law has independent components and gives marginals only. For a rule that linearises the net (with
    a method `linear_image`), the joint law, that of f(x) + J eps, has no closed form. It is sampled, with the
    same noise for all rules.
    """
    if hasattr(rule, "linear_image") and isinstance(law, Cauchy | SymmetricStable):
        return Prediction(
            law, oracle, functools.partial(_samples_of_image, rule.linear_image, oracle), passes
        )
    return Prediction(law, oracle, passes=passes)


def _samples_of_image(linear_image: Callable[..., Callable[[Tensor], Tensor]], oracle: Oracle) -> Tensor:
    x = oracle.law.to(device="cpu", dtype=torch.float64)
    net = copy.deepcopy(oracle.net).to("cpu", torch.float64)
    return oracle.draw(linear_image(net, x.location), x)


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
    by_law = [_of_net(with_seed(rule, seed), net) for seed in seeds]
    return lambda laws: joined([propagate(laws[index]) for index, propagate in enumerate(by_law)])


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
