"""Running: one group in a worker, and a whole plan from a driver."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, as_completed
from dataclasses import dataclass, replace

import torch
from torch import nn

import sdp_ref
from bench import measures
from bench.keys import OracleKey
from bench.store import Failure, Record, Store
from bench.suites import Group, Plan, Subject
from bench.truth import Prediction, Truth
from sdp_ref.distributions import DiagonalGaussian, Law
from sdp_ref.rules import Rule

Fresh = frozenset[tuple[str, str, str]]
"""Measurements (subject, rule, metric) that need not be made again."""

_QUICK = 0.05  # s; a rule faster than this is timed three times: the first call warms caches
ALL = "*"
"""In the place of a rule: the whole subject failed."""


@dataclass(frozen=True)
class GroupResult:
    """What came of a group: its records, its failures, and how long it took (s)."""

    records: list[Record]
    failures: list[Failure]
    seconds: float


def input_law(group: Group) -> DiagonalGaussian:
    """Law of the group's inputs, float32, batch of its subjects."""
    variance = torch.full_like(group.locations, group.sigma**2)
    return DiagonalGaussian(group.locations, variance)


def run_group(group: Group, done: Fresh) -> GroupResult:
    """Measure all that a group wants and that is not `done`.

    The rules run on all inputs at once; then each oracle is drawn and every prediction compared
    with it. A rule that fails is recorded and the others go on.
    """
    start = time.perf_counter()
    device = group.settings.device
    net = group.net.build().to(device)
    law = input_law(group)
    missing = {
        subject.key.hex: [
            (metric, rule)
            for metric, rules in subject.wanted
            for rule in rules
            if (subject.key.hex, rule, metric) not in done
        ]
        for subject in group.subjects
    }
    names = dict.fromkeys(rule for pairs in missing.values() for _, rule in pairs)
    records: list[Record] = []
    failures: list[Failure] = []
    predicted: dict[str, tuple[Law, float]] = {}
    for name in names:
        begun = time.perf_counter()
        try:
            predicted[name] = predict(sdp_ref.rule(name), net, law.to(device=device), group.subjects)
        except Exception as error:
            seconds = time.perf_counter() - begun
            failures += [Failure(s.key.hex, name, _one_line(error), seconds) for s in group.subjects]
    for place, subject in enumerate(group.subjects):
        wanted = [(metric, rule) for metric, rule in missing[subject.key.hex] if rule in predicted]
        if not wanted:
            continue
        truth = Truth(net, law[place], subject.key, group.settings)
        begun = time.perf_counter()
        try:
            _ = truth.samples
        except Exception as error:
            failures.append(Failure(subject.key.hex, ALL, _one_line(error), time.perf_counter() - begun))
            continue
        for name in dict.fromkeys(rule for _, rule in wanted):
            law_of_all, seconds = predicted[name]
            begun = time.perf_counter()
            try:
                prediction = Prediction(law_of_all[place], truth)
                records += [
                    record
                    for metric, rule in wanted
                    if rule == name
                    for record in measure(truth, prediction, name, metric, seconds)
                ]
            except Exception as error:
                failures.append(Failure(subject.key.hex, name, _one_line(error), time.perf_counter() - begun))
    return GroupResult(records, failures, time.perf_counter() - start)


def measure(truth: Truth, prediction: Prediction, rule: str, metric: str, seconds: float) -> list[Record]:
    """Records of one metric of one prediction.

    Raises
    ------
    ValueError
        If the metric comes out as NaN.
    """
    definition = measures.of_spec(metric)
    mark = measures.fingerprint(type(sdp_ref.rule(rule)).__module__, metric)
    records = []
    for component, estimate in definition.measure(truth, prediction):
        if estimate.value != estimate.value:
            raise ValueError(f"{metric} is not a number")
        records.append(
            Record(
                truth.key.hex,
                rule,
                metric,
                component,
                float(estimate.value),
                float(estimate.floor),
                float(estimate.floor95),
                float(estimate.stderr),
                definition.unit,
                seconds,
                mark,
            )
        )
    return records


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


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


# The driver -------------------------------------------------------------------------------------


def fresh(store: Store, plan: Plan) -> Fresh:
    """Measurements that the store holds as today's code would make them."""
    marks = {
        (metric, rule): measures.fingerprint(type(sdp_ref.rule(rule)).__module__, metric)
        for metrics, rules in plan.suites.values()
        for metric in metrics
        for rule in rules
    }
    subjects = {key for _, key in plan.members}
    return frozenset(
        (subject, rule, metric)
        for subject, rule, metric, mark in store.measured(subjects)
        if marks.get((metric, rule)) == mark
    )


def is_done(group: Group, done: Fresh) -> bool:
    """Whether nothing is left to measure in a group."""
    return all(
        (subject.key.hex, rule, metric) in done
        for subject in group.subjects
        for metric, rules in subject.wanted
        for rule in rules
    )


def execute(
    groups: Sequence[Group],
    done: Fresh,
    store: Store,
    run: int,
    executor: Executor,
    on_group: Callable[[Group, GroupResult], None],
) -> None:
    """Run groups and store each as it is finished.

    A worker that dies or runs out of time makes its group a failed one; whatever ends the driver
    loses no group that was finished before.
    """
    futures: dict[Future[GroupResult], Group] = {}
    for group in groups:
        keys = {s.key.hex for s in group.subjects}
        known = frozenset(item for item in done if item[0] in keys)
        futures[executor.submit(run_group, group, known)] = group
    for future in as_completed(futures):
        group = futures.pop(future)
        try:
            result = future.result()
        except Exception as error:
            line = _one_line(error)
            result = GroupResult([], [Failure(s.key.hex, ALL, line, 0.0) for s in group.subjects], 0.0)
        store.write_group(run, result.records, result.failures, [s.key.hex for s in group.subjects])
        on_group(group, result)
