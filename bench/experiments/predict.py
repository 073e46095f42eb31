"""What a rule says about the inputs of a group: its seeds, its precision, its time."""

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

_QUICK = 0.05  # s; a rule faster than this is timed three times: the first call warms caches


def predict(rule: Propagator, net: nn.Module, law: Law, roots: Sequence[OracleKey]) -> tuple[Law, float]:
    """Law predicted for every input, and the rule's time (s) for one of them, set-up for the net apart.

    In float64: float32 covariances lose the thin directions of nearly flat outputs.

    Parameters
    ----------
    rule : Propagator
    net : nn.Module
    law : Law
        Of the inputs.
    roots : sequence of OracleKey
        Of the inputs' oracles: a sampling rule's seeds come from them.

    Returns
    -------
    law : Law
        Float64, on the CPU.
    seconds : float
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
    """Let rules not warn, at each input, that they take another law in the place of the noise.

    What they take is said once, where people read: see :attr:`sdp_bench.bench.noise.Noise.note`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReplacedLawWarning)
        yield


def prediction_of(rule: Propagator, law: Law, oracle: Oracle) -> Prediction:
    """What metrics need of the law, batch 1, that a rule predicts for the oracle's input.

    A stable law has independent components: it tells the outputs one by one. What a rule that linearises
    the net, one with a method `linear_image`, says of them together, the law of f(x) + J eps, has no closed
    form and is sampled, from the same noise for all.
    """
    if hasattr(rule, "linear_image") and isinstance(law, Cauchy | SymmetricStable):
        return Prediction(law, oracle, functools.partial(_samples_of_image, rule.linear_image, oracle))
    return Prediction(law, oracle)


def _samples_of_image(linear_image: Callable[..., Callable[[Tensor], Tensor]], oracle: Oracle) -> Tensor:
    x = oracle.law.to(device="cpu", dtype=torch.float64)
    return oracle.draw(linear_image(copy.deepcopy(oracle.net).to("cpu", torch.float64), x.location), x)


def seeds_of(rule: Propagator, roots: Iterable[OracleKey | SeedRoot]) -> list[int]:
    """Seeds of a sampling rule's draws, one from each root; none of a rule without a field `seed`."""
    purpose = f"rule {getattr(rule, 'spec', rule.name)}"
    return [root.seed(purpose) for root in roots] if hasattr(rule, "seed") else []


def prepared(rule: Propagator, net: nn.Module, seeds: Sequence[int]) -> Callable[[Law], Law]:
    """Rule as a function of a batch of laws, with what depends on the net done.

    Parameters
    ----------
    rule : Propagator
    net : nn.Module
    seeds : sequence of int
        Of :func:`seeds_of`, one for each law; all at once for a rule with a method `with_seeds`.
    """
    if not seeds:
        return _of_net(rule, net)
    if hasattr(rule, "with_seeds"):
        return _of_net(rule.with_seeds(seeds), net)
    each = [_of_net(with_seed(rule, seed), net) for seed in seeds]
    return lambda law: joined([one(law[place]) for place, one in enumerate(each)])


def with_seed(rule: Propagator, seed: int) -> Propagator:
    """Rule with another seed, a copy."""
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
