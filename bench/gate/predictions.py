"""Predictions of rules in the cases of a scope, in this process or, for plug-ins, in a separate one."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from sdp_bench.bench.errors import OutsideError, one_line, outside
from sdp_bench.bench.executors.local import apart
from sdp_bench.bench.experiments.law_group import LawGroup
from sdp_bench.bench.experiments.predict import prepared, seeds_of, with_seed
from sdp_bench.bench.gate.answers import Answer, repeats
from sdp_bench.bench.gate.cells import Case, Scope
from sdp_bench.bench.gate.probes import Probe, Way
from sdp_bench.bench.plugins.code import no_exit
from sdp_bench.bench.plugins.plugin import Plugin
from sdp_ref.errors import on_one_line
from sdp_ref.laws import joined
from sdp_ref.rules import Propagator

Asked = Propagator | Plugin
"""A rule of the gate."""
T = TypeVar("T")

_AT_ONCE = 128  # draws per call; larger batches only take more memory


@dataclass(frozen=True, eq=False)
class Predictions:
    """The predictions of one rule."""

    answers: dict[str, Answer]  # by the key of the cell or probe
    samples: bool = False  # whether the rule draws samples


def ask(rule: Asked, fn: Callable[..., T], /, *args: Any) -> T:
    """Return the plain data that a function computes of a rule and `args`, for a plug-in in another process.

    An OutsideError is raised if a plug-in fails, ends the process or takes too long.
    """
    if not isinstance(rule, Plugin):
        return fn(rule, *args)
    with outside():
        answer: T = apart(_loaded, rule, fn, *args, address=rule.address)
    return answer


def _loaded(plugin: Plugin, fn: Callable[..., T], *args: Any) -> T:
    with outside():
        return fn(plugin.load(), *args)


def predict(rule: Asked, scope: Scope, known: Mapping[str, Answer] | None = None) -> Predictions:
    """Return a rule's predictions in all cases, with the seeds of the `known` predictions if there are any.

    In cells the rule is called twice, and both predictions must agree up to rounding. A rule that fails has
    an error for an answer.
    """
    seeds = {key: answer.seed for key, answer in (known or {}).items() if answer.seed is not None}
    try:
        found = ask(rule, _predict, scope, seeds)
        with outside():  # a plug-in may return anything
            return Predictions({key: found.answers[key] for key in scope.cases}, found.samples)
    except OutsideError as error:
        return Predictions({key: Answer(error=on_one_line(str(error))) for key in scope.cases})


def _predict(rule: Propagator, scope: Scope, seeds: Mapping[str, int]) -> Predictions:
    found: dict[str, Answer] = {}
    for group in scope.groups:
        keys = [subject.key for subject in group.subjects]
        chosen = [seeds.get(key.hex, seed) for key, seed in zip(keys, seeds_of(rule, keys), strict=False)]
        try:
            here, again = (_in_group(rule, group, chosen) for _ in range(2))
        except Exception as error:  # noqa: BLE001  a rule may raise anything
            here = again = [Answer(error=one_line(error))] * len(keys)
        if not all(map(repeats, here, again)):
            hint = "" if hasattr(rule, "seed") else "; a rule that draws samples needs a field `seed`"
            here = [Answer(error=f"not deterministic: two calls predict different moments{hint}")] * len(keys)
        found |= {key.hex: answer for key, answer in zip(keys, here, strict=True)}
    # A rule with a seed may declare that its configuration draws no samples.
    samples = hasattr(rule, "seed") and getattr(rule, "sampling", 0) is not None
    return Predictions(found | answers(rule, scope.probes), samples)


def _in_group(rule: Propagator, group: LawGroup, seeds: Sequence[int]) -> list[Answer]:
    net = group.net.build().double()  # float64, as in the experiments
    with torch.no_grad():
        predicted = prepared(rule, net, seeds)(group.law.to(dtype=torch.float64))
    return [Answer.of(predicted[row], *seeds[row : row + 1]) for row in range(predicted.batch)]


def answers(rule: Propagator, probes: Iterable[Probe]) -> dict[str, Answer]:
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
                found[probe.key] = Answer.of(law)
        except Exception as error:  # noqa: BLE001  a rule may raise anything, and that is its answer
            found[probe.key] = Answer(error=one_line(error))
    return found


def draws_in(rule: Asked, cases: Sequence[tuple[Case, Sequence[int]]]) -> list[list[Answer] | str]:
    """Return the result of `draws` in each case with its seeds, or the error that the rule raises."""
    try:
        return ask(rule, _draws_in, cases) if cases else []
    except OutsideError as error:
        return [str(error)] * len(cases)


def _draws_in(rule: Propagator, cases: Sequence[tuple[Case, Sequence[int]]]) -> list[list[Answer] | str]:
    found: list[list[Answer] | str] = []
    for case, seeds in cases:
        try:
            with outside():  # a rule may raise any error under other seeds
                found.append(draws(rule, case, seeds))
        except OutsideError as error:
            found.append(str(error))
    return found


def draws(rule: Propagator, case: Case, seeds: Sequence[int]) -> list[Answer]:
    """Return a sampling rule's predictions in one case, one per seed; a ValueError if one is not finite."""
    found: list[Answer] = []
    net = case.build()
    law = case.law.to(dtype=next(net.parameters()).dtype)
    for start in range(0, len(seeds), _AT_ONCE):
        some = seeds[start : start + _AT_ONCE]
        with torch.no_grad():
            predicted = prepared(rule, net, some)(joined([law] * len(some)))
        found += [Answer.of(predicted[row]) for row in range(len(some))]
    return found
