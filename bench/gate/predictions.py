"""Predictions of rules in the cells and probes of a scope."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from sdp_bench.bench.errors import OutsideError, one_line, outside
from sdp_bench.bench.experiments.law_group import LawGroup
from sdp_bench.bench.experiments.predict import prepared, seeds_of, with_seed
from sdp_bench.bench.gate.answers.drift import repeats
from sdp_bench.bench.gate.answers.moments import Answer, PredictedMoments
from sdp_bench.bench.gate.baseline import RuleBaseline
from sdp_bench.bench.gate.cells import Cell, Scope
from sdp_bench.bench.gate.guests import Asked, Guest
from sdp_bench.bench.gate.probes import Probe, Way
from sdp_bench.bench.plugins.code import no_exit
from sdp_ref.errors import on_one_line
from sdp_ref.laws import Law, joined
from sdp_ref.rules import Propagator

_AT_ONCE = 128  # draws: more would only take more memory


@dataclass(frozen=True, eq=False)
class Predicted:
    """A rule's predictions, or the reason why there are none."""

    moments: dict[str, PredictedMoments] = field(default_factory=dict)  # by the key of the cell's oracle
    answers: dict[str, Answer] = field(default_factory=dict)  # by the key of the probe
    error: str = ""  # why there are no predictions; empty if there are
    samples: bool = False  # whether the rule has seeds

    @property
    def laws(self) -> dict[str, PredictedMoments]:
        """Moments by the key of the cell, or of a probe with a law."""
        found = {key: answer.moments for key, answer in self.answers.items() if answer.moments is not None}
        return {**self.moments, **found}

    def to_json(self) -> dict[str, Any]:
        return {
            "moments": {key: each.to_json() for key, each in self.moments.items()},
            "answers": {key: each.to_json() for key, each in self.answers.items()},
            "error": self.error,
            "samples": self.samples,
        }

    @classmethod
    def from_json(cls, plain: dict[str, Any], scope: Scope) -> Predicted:
        """Inverse of `to_json`; a KeyError, TypeError or ValueError if the values do not fit the scope."""
        if plain["error"]:
            return cls(error=on_one_line(plain["error"]))
        moments = {key: PredictedMoments.from_json(plain["moments"][key]) for key in scope.cells}
        answers = {key: Answer.from_json(plain["answers"][key]) for key in scope.probe_names}
        return cls(moments, answers, samples=bool(plain["samples"]))


def predict(rule: Asked, scope: Scope, known: RuleBaseline | None = None) -> Predicted:
    """Return a rule's predictions in all cells, with the baseline's seeds if it has any.

    Two calls must agree up to rounding (`sdp_bench.bench.gate.answers.drift.REPEATABLE`). If the rule fails
    in a cell, the result has an error instead of predictions.
    """
    drawn = {} if known is None else {key: each.seed for key, each in known.predictions.items()}
    if not isinstance(rule, Guest):
        return _predict(rule, scope, drawn)
    try:
        with outside():
            return Predicted.from_json(rule.ask(_plain, scope, drawn), scope)
    except OutsideError as error:
        return Predicted(error=str(error))


def _predict(rule: Propagator, scope: Scope, drawn: Mapping[str, int | None]) -> Predicted:
    """Run `predict` in this process; `drawn` are the baseline's seeds by cell."""
    moments: dict[str, PredictedMoments] = {}
    for group in scope.groups:
        keys = [subject.key for subject in group.subjects]
        seeds = seeds_of(rule, keys)
        kept = [drawn.get(key.hex) for key in keys]
        seeds = [seed if old is None else old for seed, old in zip(seeds, kept, strict=bool(seeds))]
        try:
            first, second = (_predicted(rule, group, group.law, seeds) for _ in range(2))
        except Exception as error:  # noqa: BLE001  a rule may raise anything
            return Predicted(error=f"{group.title}: {one_line(error)}")
        if not all(repeats(a, b) for a, b in zip(first, second, strict=True)):
            hint = "" if hasattr(rule, "seed") else "; a sampling rule needs a field `seed`"
            return Predicted(error=f"{group.title}: says something else when it is asked again{hint}")
        moments |= {key.hex: one for key, one in zip(keys, first, strict=True)}
    return Predicted(moments, answers(rule, scope.probes), samples=_samples(rule))


def _samples(rule: Propagator) -> bool:
    """Return whether a rule draws samples: a rule with a seed may declare that its configuration does not."""
    return hasattr(rule, "seed") and getattr(rule, "sampling", 0) is not None


def _plain(rule: Propagator, scope: Scope, drawn: Mapping[str, int | None]) -> dict[str, Any]:
    return _predict(rule, scope, drawn).to_json()


Drawn = list[PredictedMoments] | OutsideError
"""A rule's predictions for several seeds, or the reason why there are none."""


def draws_in(rule: Asked, places: Sequence[tuple[Cell | Probe, Sequence[int]]]) -> list[Drawn]:
    """Return the result of `draws` for each cell or probe, with its seeds."""
    if not places:
        return []
    if not isinstance(rule, Guest):
        return [_tried(rule, *place) for place in places]
    try:
        with outside():
            found = rule.ask(_plain_draws, places)
            return [_of_plain(each, len(seeds)) for each, (_, seeds) in zip(found, places, strict=True)]
    except OutsideError as error:
        return [error] * len(places)


def _tried(rule: Propagator, place: Cell | Probe, seeds: Sequence[int]) -> Drawn:
    try:
        with outside():  # a rule may raise any error under other seeds
            return draws(rule, place, seeds)
    except OutsideError as error:
        return error


def _plain_draws(rule: Propagator, places: Sequence[tuple[Cell | Probe, Sequence[int]]]) -> list[Any]:
    found = draws_in(rule, places)
    return [str(each) if isinstance(each, OutsideError) else [m.to_json() for m in each] for each in found]


def _of_plain(found: str | list[dict[str, Any]], number: int) -> Drawn:
    if isinstance(found, str):
        return OutsideError(on_one_line(found))
    if len(found) != number:
        raise ValueError(f"{len(found)} draws for {number} seeds")
    return [PredictedMoments.from_json(each) for each in found]


def draws(rule: Propagator, place: Cell | Probe, seeds: Sequence[int]) -> list[PredictedMoments]:
    """Return the moments that a sampling rule predicts in a cell or probe, one for each seed.

    For a law without moments these are locations and squared scales. A ValueError is raised if a prediction
    is not finite or of another family.
    """
    found: list[PredictedMoments] = []
    net = place.build()
    law = place.law.to(dtype=next(net.parameters()).dtype)
    for start in range(0, len(seeds), _AT_ONCE):
        some = seeds[start : start + _AT_ONCE]
        with torch.no_grad():
            predicted = prepared(rule, net, some)(joined([law] * len(some)))
        answers = (Answer.of(predicted[row]) for row in range(len(some)))
        found += [answer.moments for answer in answers if answer.moments is not None]
    return found


def _predicted(rule: Propagator, group: LawGroup, law: Law, seeds: Sequence[int]) -> list[PredictedMoments]:
    net = group.net.build().double()  # float64, as in the suites
    with torch.no_grad():
        predicted = prepared(rule, net, seeds)(law.to(dtype=torch.float64))
    return [PredictedMoments.of(predicted[place], *seeds[place : place + 1]) for place in range(law.batch)]


def answers(rule: Propagator, probes: Iterable[Probe]) -> dict[str, Answer]:
    """Return a rule's answer to each probe, by key; an error is an answer too."""
    found = {}
    for probe in probes:
        seeds = seeds_of(rule, [probe.root])
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # for example that a marginal rule drops covariances
                found[probe.key] = Answer.of(_asked(rule, probe, seeds))
        except Exception as error:  # noqa: BLE001  a rule may raise anything, and that is its answer
            found[probe.key] = Answer(refusal=one_line(error))
    return found


def _asked(rule: Propagator, probe: Probe, seeds: Sequence[int]) -> Law:
    net, way = probe.build(), probe.way
    if way is not Way.DIRECT:
        return way.ask(prepared(rule, net, [*seeds] * way.laws), probe.law)
    seeded = with_seed(rule, *seeds) if seeds else rule
    with no_exit():
        return way.ask(functools.partial(seeded.propagate, net), probe.law)
