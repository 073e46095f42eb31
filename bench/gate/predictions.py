"""What rules say about the cells and probes of a scope."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch

from sdp_bench.bench.errors import one_line
from sdp_bench.bench.experiments.law_group import LawGroup
from sdp_bench.bench.experiments.predict import prepared, seeds_of, with_seed
from sdp_bench.bench.gate.answers.drift import repeats
from sdp_bench.bench.gate.answers.moments import Answer, PredictedMoments
from sdp_bench.bench.gate.baseline import RuleBaseline
from sdp_bench.bench.gate.cells import Cell, Scope
from sdp_bench.bench.gate.probes import Probe, Way
from sdp_bench.bench.plugins.code import no_exit
from sdp_ref.laws import Law, joined
from sdp_ref.rules import Propagator

_AT_ONCE = 128  # draws: more would only take more memory


@dataclass(frozen=True, eq=False)
class Predicted:
    """What a rule says now, or why it does not.

    Attributes
    ----------
    moments : dict of str to PredictedMoments
        By the key of the cell's oracle.
    answers : dict of str to Answer
        By the key of the probe.
    error : str
        Why there are no predictions; empty if there are.
    """

    moments: dict[str, PredictedMoments] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    error: str = ""

    @property
    def laws(self) -> dict[str, PredictedMoments]:
        """By the key of the cell, or of the probe if there is a law."""
        found = {key: answer.moments for key, answer in self.answers.items() if answer.moments is not None}
        return {**self.moments, **found}


def predict(rule: Propagator, scope: Scope, known: RuleBaseline | None = None) -> Predicted:
    """Predictions of one rule in all cells, a sampling rule's under the baseline's seeds where it has any.

    It must say the same twice, up to rounding (:data:`sdp_bench.bench.gate.answers.drift.REPEATABLE`).

    Parameters
    ----------
    rule : Propagator
    scope : Scope
        Cells and probes.
    known : RuleBaseline, optional
        Of the rule.

    Returns
    -------
    Predicted
        With an error in place of predictions, if the rule fails in a cell.
    """
    moments: dict[str, PredictedMoments] = {}
    for group in scope.groups:
        keys = [subject.key for subject in group.subjects]
        seeds = seeds_of(rule, keys)
        if known is not None:
            kept = [known.predictions[key.hex].seed for key in keys]
            seeds = [seed if old is None else old for seed, old in zip(seeds, kept, strict=bool(seeds))]
        try:
            first, second = (_predicted(rule, group, group.law, seeds) for _ in range(2))
        except Exception as error:  # noqa: BLE001  a rule may raise anything
            return Predicted(error=f"{group.title}: {one_line(error)}")
        if not all(repeats(a, b) for a, b in zip(first, second, strict=True)):
            hint = "" if hasattr(rule, "seed") else "; a sampling rule needs a field `seed`"
            return Predicted(error=f"{group.title}: says something else when it is asked again{hint}")
        moments |= {key.hex: one for key, one in zip(keys, first, strict=True)}
    return Predicted(moments, answers(rule, scope.probes))


def draws(rule: Propagator, place: Cell | Probe, seeds: Sequence[int]) -> list[PredictedMoments]:
    """Moments that a sampling rule predicts in a cell or probe under each of some seeds.

    Returns
    -------
    list of PredictedMoments
        One a seed, in their order; of a law without moments its locations and squared scales.

    Raises
    ------
    ValueError
        If a prediction is not finite, or of another family; and whatever the rule raises.
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
    net = group.net.build().double()  # in float64, as the suites do
    with torch.no_grad():
        predicted = prepared(rule, net, seeds)(law.to(dtype=torch.float64))
    return [PredictedMoments.of(predicted[place], *seeds[place : place + 1]) for place in range(law.batch)]


def answers(rule: Propagator, probes: Iterable[Probe]) -> dict[str, Answer]:
    """What a rule says about each probe, asked in its way, by its key; an error is an answer, too."""
    found = {}
    for probe in probes:
        seeds = seeds_of(rule, [probe.root])
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that a marginal rule drops covariances, say
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
