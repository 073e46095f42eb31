"""What rules predict in the cases of a scope, as plain numbers, and how far two predictions differ.

Plug-ins predict in a separate process.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sdp_ref import laws
from sdp_ref.errors import on_one_line
from sdp_ref.laws import Law
from sdp_ref.rules import Propagator

from ..errors import MeasuredCodeError, measured_code, one_line
from ..executors.local import in_separate_process
from ..experiments.predict import prepared, seeds_of, with_seed
from ..plugins.code import no_exit
from ..plugins.plugin import Plugin
from .cases import GateScope, Probe, Way

Array = NDArray[np.float64]

THRESHOLD = 1e-3
"""A larger drift is a change. A covariance that is 0.5 % too large drifts by 0.005, a mean shifted by 0.2 %
of a standard deviation by 0.002. Other processors and libraries change float64 moments by about 1e-9.
"""
REPEATABLE = 1e-10
"""Largest relative difference between two calls of a rule without seeds: threads may sum in another order."""

_NULL = 1e-12  # of the largest variance: such directions have standard deviations below 1e-6 of the largest
_POINT = 1e-18  # of the squared mean: the rounding error of a point mass's variance
_LARGEST = 1e100  # squares of larger numbers, and their sums, may overflow
_GAUSSIAN = "Gaussian"


@dataclass(frozen=True, eq=False)
class GatePrediction:
    """The distribution that a rule predicts in one case, or the error that it raises."""

    family: str = ""  # ``Gaussian``, ``Cauchy``, ``stable, alpha 1.5``; empty for an error
    # mean, shape (m,), and covariance (m, m) or variances (m,); locations and squared scales without moments
    mean: Array = field(default_factory=lambda: np.empty(0))
    spread: Array = field(default_factory=lambda: np.empty(0))
    error: str = ""  # ``UnsupportedError: ...``; empty if there is a prediction

    def __post_init__(self) -> None:
        if self.error:
            return
        shapes = [self.mean.shape, self.mean.shape * 2]
        if self.mean.ndim != 1 or not self.mean.size or self.spread.shape not in shapes:
            raise ValueError("the predicted mean and covariance have mismatched shapes")
        numbers = np.concatenate([self.mean, self.spread.ravel()])
        if not bool((np.abs(numbers) < _LARGEST).all()):
            raise ValueError("the predicted moments are not finite")
        if bool((self.variance < 0).any()):
            raise ValueError("a predicted variance is negative")

    @classmethod
    def of(cls, law: Law) -> GatePrediction:
        """Return the answer of a law, batch 1; a ValueError if its parameters are not finite."""
        family = type(law).__name__
        if isinstance(law, laws.Cauchy | laws.SymmetricStable):
            family = "Cauchy" if isinstance(law, laws.Cauchy) else f"stable, alpha {law.alpha:g}"
            mean, spread = law.location, law.scale.square().flatten(1)
        elif isinstance(law, laws.DiagonalGaussian | laws.LocationScale | laws.SplitNormal):
            mean, spread = law.mean, law.variance.flatten(1)
        else:
            mean, spread = law.mean, law.covariance
        if isinstance(law, laws.Gaussian | laws.DiagonalGaussian):
            family = _GAUSSIAN
        first_mean, first_spread = mean.flatten(1)[0], spread[0]
        return cls(family, first_mean.detach().double().numpy(), first_spread.detach().double().numpy())

    @cached_property
    def variance(self) -> Array:
        return self.spread if self.spread.ndim == 1 else np.diag(self.spread)

    @cached_property
    def covariance(self) -> Array:
        return self.spread if self.spread.ndim == 2 else np.diag(self.spread)

    @property
    def law(self) -> laws.Gaussian | laws.DiagonalGaussian:
        """The Gaussian with this mean and covariance, batch 1."""
        mean, spread = torch.from_numpy(self.mean)[None], torch.from_numpy(self.spread)[None]
        if self.spread.ndim == 1:
            return laws.unchecked(laws.DiagonalGaussian, mean, spread)
        return laws.unchecked(laws.Gaussian, mean, spread)

    @property
    def kind(self) -> str:
        """Family of the law, or type of the error."""
        return self.family or self.error.partition(":")[0]

    def __str__(self) -> str:
        return self.error or f"a {self.family} law"

    def to_json(self) -> dict[str, Any]:
        if self.error:
            return {"error": self.error}
        name = "covariance" if self.spread.ndim == 2 else "variance"
        return {"family": self.family, "mean": self.mean.tolist(), name: self.spread.tolist()}

    @classmethod
    def from_json(cls, entry: dict[str, Any]) -> GatePrediction:
        """Inverse of `to_json`; a KeyError, TypeError or ValueError for anything else."""
        if "error" in entry:
            return cls(error=str(entry["error"]))
        spread = entry["covariance"] if "covariance" in entry else entry["variance"]
        return cls(str(entry["family"]), np.array(entry["mean"], float), np.array(spread, float))


@dataclass(frozen=True)
class Drift:
    """Difference of two predictions, relative to the older one; infinite if they are of different kinds."""

    mean: float  # norm of ``L^-1 d`` for a mean that moved by d, in standard deviations
    covariance: float  # Frobenius norm of ``L^-1 D L^-T`` over sqrt(m), for a covariance that changed by D

    @property
    def size(self) -> float:
        size = float(np.max([self.mean, self.covariance]))
        return np.inf if np.isnan(size) else size  # an overflow is a change

    @property
    def numbers(self) -> dict[str, float]:
        return {"mean drift": self.mean, "covariance drift": self.covariance}


def drift(old: GatePrediction, new: GatePrediction) -> Drift:
    """Return the drift from `old` to `new`: 0 if all numbers are equal, or if both are errors of one type.

    L L^T is the older covariance. Numerically null directions, with a variance below 1e-12 of the largest
    (and 1e-18 of the squared mean), count as if they had that variance: a rule that gives them spread is
    detected, and rounding errors in these directions are ignored.
    """
    if old.kind != new.kind or old.mean.shape != new.mean.shape:
        return Drift(np.inf, np.inf)
    if np.array_equal(old.mean, new.mean) and np.array_equal(old.covariance, new.covariance):
        return Drift(0.0, 0.0)
    values, vectors = np.linalg.eigh(old.covariance)
    whitening = vectors / np.sqrt(np.maximum(values, null_variance(old)))
    shift = whitening.T @ (new.mean - old.mean)
    change = whitening.T @ (new.covariance - old.covariance) @ whitening
    return Drift(float(np.linalg.norm(shift)), float(np.linalg.norm(change) / np.sqrt(len(shift))))


def null_variance(answer: GatePrediction) -> float:
    """Return the variance that is negligible compared with the predicted moments."""
    largest = float(np.linalg.norm(answer.covariance, 2))
    return max(_NULL * largest, _POINT * float(np.square(answer.mean).sum()), float(np.finfo(float).tiny))


def repeats(first: GatePrediction, second: GatePrediction) -> bool:
    """Return whether two predictions differ by rounding only, `REPEATABLE` of their largest numbers."""
    if first.error or first.kind != second.kind or first.spread.shape != second.spread.shape:
        return first.kind == second.kind and bool(first.error)
    deviation = float(np.sqrt(np.abs(first.variance).max()))
    pairs = ((first.mean, second.mean, deviation), (first.spread, second.spread, 0.0))
    return all(
        bool((np.abs(a - b) <= REPEATABLE * max(np.abs(a).max(), scale)).all()) for a, b, scale in pairs
    )


def common_factor(olds: Sequence[Array], news: Sequence[Array]) -> float | None:
    """Return k if every new number is k times the old one, to five digits, or None; 1 if nothing changed."""
    old = np.concatenate([array.ravel() for array in olds])
    new = np.concatenate([array.ravel() for array in news])
    nonzero = old != 0
    if not nonzero.any() or (new[~nonzero] != 0).any():
        return None
    factors = new[nonzero] / old[nonzero]
    return float(factors.mean()) if np.ptp(factors) <= 1e-5 * np.abs(factors).max() else None


CheckedRule = Propagator | Plugin
"""A rule of the gate."""


def predict(rule: CheckedRule, scope: GateScope) -> dict[str, GatePrediction]:
    """Return a rule's predictions by the key of the cell or probe.

    In cells the rule is called twice, and both predictions must agree up to rounding. A rule that fails has
    an error for an answer.
    """
    if not isinstance(rule, Plugin):
        return _predict(rule, scope)
    try:
        with measured_code():  # a plug-in may raise or return anything
            found = in_separate_process(_predict, rule, scope, address=rule.address)
            return {key: found[key] for key in scope.cases}
    except MeasuredCodeError as error:
        return {key: GatePrediction(error=on_one_line(str(error))) for key in scope.cases}


def _predict(rule: CheckedRule, scope: GateScope) -> dict[str, GatePrediction]:
    rule = rule.load() if isinstance(rule, Plugin) else rule
    found: dict[str, GatePrediction] = {}
    for group in scope.groups:
        keys = group.keys
        seeds = seeds_of(rule, keys)
        law = group.law.to(dtype=torch.float64)  # as in the experiments
        try:
            with torch.no_grad():  # on nets of their own, in case that the rule changes them
                first = prepared(rule, group.net.build().double(), seeds)(law)
                second = prepared(rule, group.net.build().double(), seeds)(law)
            here = [GatePrediction.of(first[k]) for k in range(first.batch)]
            again = [GatePrediction.of(second[k]) for k in range(second.batch)]
        except Exception as error:  # noqa: BLE001  a rule may raise anything
            here = again = [GatePrediction(error=one_line(error))] * len(keys)
        if not all(map(repeats, here, again)):
            hint = "" if hasattr(rule, "seed") else "; a rule that draws samples needs a field `seed`"
            here = [
                GatePrediction(error=f"not deterministic: two calls predict different moments{hint}")
            ] * len(keys)
        found |= {key.hex: answer for key, answer in zip(keys, here, strict=True)}
    return found | answers(rule, scope.probes)


def answers(rule: Propagator, probes: Iterable[Probe]) -> dict[str, GatePrediction]:
    """Return a rule's answer to each probe, by key; an error is an answer too."""
    found = {}
    for probe in probes:
        net, way, seeds = probe.build(), probe.way, seeds_of(rule, [probe.root])
        try:
            with torch.no_grad(), warnings.catch_warnings(), no_exit():
                warnings.simplefilter("ignore")  # for example that a marginal rule drops covariances
                if way is Way.DIRECT:
                    seeded = with_seed(rule, *seeds) if seeds else rule
                    law = way.ask(functools.partial(seeded.propagate, net), probe.law)
                else:
                    law = way.ask(prepared(rule, net, [*seeds] * way.laws), probe.law)
                found[probe.key] = GatePrediction.of(law)
        except Exception as error:  # noqa: BLE001  a rule may raise anything, and that is its answer
            found[probe.key] = GatePrediction(error=one_line(error))
    return found
