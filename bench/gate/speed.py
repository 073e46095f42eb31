"""The verdict on speed: times relative to a regular forward pass, measured in the same processes.

The layout of memory and the load of the machine change the ratio of two times from process to process. A
process therefore counts as one observation, and a comparison measures in as many fresh processes as it needs:
a group-sequential test on the logarithm of the ratio.
"""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

import torch

from ..datasets.base import stratified_rows
from ..environment import busy, cpu_name
from ..errors import MeasuredCodeError, RunFailedError, measured_code, one_line
from ..executors.local import in_separate_process
from ..experiments.law_group import LawGroup
from ..experiments.predict import prepared, seeds_of
from ..nets import net as trained
from ..noise import GAUSSIAN
from ..plugins.plugin import Plugin
from .baseline import Baseline, RuleBaseline, Speed
from .cases import GateScope
from .predictions import CheckedRule
from .verdict import Finding, GateVerdict, Status, Step

KIND = "speed"
DETECTED = 1.15
"""Factor of a slow-down that a check should see: measuring ends early only if it is excluded."""
TOLERANCE = 1.03
"""Factor between the ratios of two sessions on the same machine that is not a slow-down."""
FALSE_ALARMS = 0.01
"""Probability of a false alarm in a whole check, divided over its comparisons and looks (Bonferroni)."""
MISSES = 0.05
"""One-sided probability with which a look excludes a slow-down by `DETECTED` although there is one."""

_LEAST = 2e-3  # s per timing: shorter work is repeated
_MOST_REPEATS = 1000
_BATCH = 8
_SIGMA = 1.0

Work = Callable[[], object]
Clock = Callable[[], float]
Stopwatch = Callable[[], float]
"""Measures a work and returns its seconds."""
Pair = tuple[str, str]
"""Spec of a rule and name of a net."""
Groups = Mapping[str, LawGroup]


@dataclass(frozen=True)
class Timing:
    """How times are measured."""

    clock: Clock = time.process_time  # other programs hardly change the processor time
    rounds: int = 10  # in a process
    looks: tuple[int, ...] = (3, 6, 12, 24, 48)  # numbers of processes after which a comparison may end
    processes: int = 24  # of a baseline
    cpu: str = field(default_factory=cpu_name)


Times = dict[Pair, float | str]
"""Times relative to the regular pass, from one process, or why a rule cannot be timed."""


def times(
    pairs: Collection[Pair], rules: Mapping[str, CheckedRule], groups: Groups, rounds: int, clock: Clock
) -> Times:
    """Return times of rules on nets, relative to regular passes, from a fresh process.

    A plug-in is timed in a separate process. `clock` must be picklable.
    """
    addresses = {name: rule.address if isinstance(rule, Plugin) else "" for name, rule in rules.items()}
    ratios: Times = {}
    for address in dict.fromkeys(addresses[name] for name, _ in pairs):
        together = [pair for pair in pairs if addresses[pair[0]] == address]
        chosen = {name: rules[name] for name, _ in together}
        try:
            with measured_code():
                ratios |= in_separate_process(
                    _measure, together, chosen, groups, rounds, clock, address=address
                )
        except MeasuredCodeError as error:
            ratios |= dict.fromkeys(together, str(error))
    return ratios


def _measure(
    pairs: Collection[Pair], rules: Mapping[str, CheckedRule], groups: Groups, rounds: int, clock: Clock
) -> Times:
    """Time each rule between two regular passes, all pairs by turns, without `prepare`."""
    ratios: Times = {}
    works: dict[Pair, tuple[Stopwatch, Stopwatch]] = {}
    with torch.no_grad():
        for net_name in dict.fromkeys(net for _, net in pairs):
            names = [name for name, net in pairs if net == net_name]
            regular, propagations = _works({name: rules[name] for name in names}, groups[net_name], clock)
            for name, propagation in propagations.items():
                if isinstance(propagation, str):
                    ratios[name, net_name] = propagation
                else:
                    works[name, net_name] = regular, propagation
        rounds_of: dict[Pair, list[float]] = {pair: [] for pair in works}
        for _ in range(rounds):
            for pair, (regular, propagation) in works.items():
                before, seconds, after = regular(), propagation(), regular()
                rounds_of[pair].append(2 * seconds / (before + after))
    return ratios | {pair: statistics.geometric_mean(of_rounds) for pair, of_rounds in rounds_of.items()}


def _works(
    rules: Mapping[str, CheckedRule], group: LawGroup, clock: Clock
) -> tuple[Stopwatch, dict[str, Stopwatch | str]]:
    """Return stopwatches of the regular pass and of each rule, on a float64 batch of 8."""
    net = group.net.build().double()
    data = trained.inputs_of(group.net)
    inputs = data.batch(list(stratified_rows(data.labels, _BATCH))).double()
    law = GAUSSIAN.law(inputs, _SIGMA)
    keys = [group.keys[0]] * len(inputs)
    propagations: dict[str, Stopwatch | str] = {}
    for name, selected in rules.items():
        try:
            rule = selected.load() if isinstance(selected, Plugin) else selected
            propagate = prepared(rule, net, seeds_of(rule, keys))
            propagations[name] = _stopwatch(functools.partial(propagate, law), clock)
        except Exception as error:  # noqa: BLE001  a rule may raise anything
            propagations[name] = one_line(error)
    return _stopwatch(functools.partial(net, inputs), clock), propagations


def _stopwatch(work: Work, clock: Clock) -> Stopwatch:
    """Return a function that works for about 2 ms or once, and returns the seconds of one execution."""
    work()
    start = clock()
    work()
    seconds = clock() - start
    short = seconds * _MOST_REPEATS <= _LEAST
    repeats = _MOST_REPEATS if short else max(1, round(_LEAST / seconds))

    def measure() -> float:
        # The caches hold the data of another work, so a first execution would make the time of one depend on
        # the number of repetitions, which differs between processes. Long works hardly notice.
        if seconds < _LEAST:
            work()
        start = clock()
        for _ in range(repeats):
            work()
        return (clock() - start) / repeats

    return measure


@dataclass(frozen=True)
class Change:
    """Estimate of the factor between the ratios of two sessions, by the ratios of their processes."""

    now: tuple[float, ...]
    before: tuple[float, ...]

    @property
    def factor(self) -> float:
        return statistics.geometric_mean(self.now) / statistics.geometric_mean(self.before)

    def bound(self, level: float) -> float:
        """Return the factor between `factor` and its lower or upper bound, at a one-sided error rate.

        It is Welch's t with the degrees of freedom of the smaller sample, which bounds the error rate for all
        ratios of the variances (Mickey and Brown 1966). Welch's own degrees of freedom, which are estimated,
        give false alarms with few processes.
        """
        from scipy.stats import t

        variances = []
        for ratios in (self.now, self.before):
            logs = [math.log(ratio) for ratio in ratios]
            variances.append(statistics.variance(logs) / len(logs))
        degrees = min(len(self.now), len(self.before)) - 1
        return math.exp(float(t.isf(level, degrees)) * math.sqrt(sum(variances)))


def timed(
    known: Mapping[str, RuleBaseline],
    rules: Mapping[str, CheckedRule],
    scope: GateScope,
    timing: Timing,
    step: Step = lambda *_: None,
) -> dict[str, RuleBaseline]:
    """Return baselines of rules with new times; a RunFailedError if a rule cannot be timed."""
    pairs = [(name, net) for name in known for net in scope.nets]
    processes: list[Times] = []
    for number in range(timing.processes):
        step(number, timing.processes, "speed")
        processes.append(times(pairs, rules, scope.nets, timing.rounds, timing.clock))
        for (name, net), ratio in processes[-1].items():
            if isinstance(ratio, str):
                raise RunFailedError(f"no baseline is written: rule '{name}' on {net}: {ratio}")
    baselines = {}
    for name, rule in known.items():
        speeds = {}
        for net in scope.nets:
            ratios = [ratio for process in processes if isinstance(ratio := process[name, net], float)]
            speeds[net] = Speed(tuple(ratios))
        baselines[name] = replace(rule, cpu=timing.cpu, speed=speeds)
    return baselines


def judge(
    baseline: Baseline,
    rules: Mapping[str, CheckedRule],
    scope: GateScope,
    timing: Timing,
    step: Step = lambda *_: None,
) -> GateVerdict:
    """Compare ratios with the baseline's and return a verdict with a finding for each rule and net.

    After each of `timing.looks` numbers of processes, a comparison ends if a slow-down by `DETECTED` is
    excluded, or if a slow-down by more than `TOLERANCE` is shown: then the rule is slower.
    """
    known = {name: baseline.rules[name] for name in rules if name in baseline.rules}
    before = {
        (name, net): rule.speed[net]
        for name, rule in known.items()
        for net in scope.nets
        if net in rule.speed
    }
    comparison = _Comparison({pair: speed.ratios for pair, speed in before.items()}, len(timing.looks))
    for look, processes in enumerate(timing.looks):
        for _ in range(processes - (timing.looks[look - 1] if look else 0)):
            if comparison.undecided:
                step(look, len(timing.looks), f"speed, {len(comparison.undecided)} comparisons")
                comparison.add(times(comparison.undecided, rules, scope.nets, timing.rounds, timing.clock))
        comparison.decide()
    step(len(timing.looks), len(timing.looks), "")
    findings = [comparison.finding(name, net) for net in scope.nets for name in rules]
    note = (
        f"times of {_BATCH} inputs relative to a regular pass, in {timing.looks[0]} to {timing.looks[-1]} "
        f"processes; slower if shown to exceed {TOLERANCE:g} times the baseline"
    )
    if noisy := len(comparison.undecided):
        note += (
            f"; {noisy} comparisons are too noisy to exclude a slow-down by {DETECTED - 1:.0%}: repeat them "
            "on a quieter machine"
        )
    if warning := busy():
        note += f"; {warning}"
    others: dict[str, list[str]] = {}
    for name, rule in known.items():
        if rule.speed and rule.cpu != timing.cpu:
            others.setdefault(rule.cpu, []).append(name)
    for cpu, names in others.items():
        note += f"; times of {', '.join(names)} are from another processor ({cpu}), whose ratios may differ"
    return GateVerdict(KIND, tuple(findings), note)


class _Comparison:
    """Ratios of the pairs in a baseline, with what has been decided."""

    def __init__(self, before: Mapping[Pair, tuple[float, ...]], looks: int) -> None:
        self.undecided = list(before)
        self._before = before
        self._now: dict[Pair, list[float]] = {pair: [] for pair in before}
        self._failures: dict[Pair, str] = {}
        self._slower: set[Pair] = set()
        self._level = FALSE_ALARMS / max(1, len(before) * looks)

    def add(self, ratios: Times) -> None:
        """Take the ratios of one more process; a rule that cannot be timed is decided."""
        for pair, ratio in ratios.items():
            if isinstance(ratio, str):
                self._failures[pair] = ratio
                self.undecided.remove(pair)
            else:
                self._now[pair].append(ratio)

    def decide(self) -> None:
        undecided = []
        for pair in self.undecided:
            change = self._change(pair)
            if change.factor / change.bound(self._level) > TOLERANCE:
                self._slower.add(pair)
            elif change.factor * change.bound(MISSES) >= DETECTED:
                undecided.append(pair)
        self.undecided = undecided

    def _change(self, pair: Pair) -> Change:
        return Change(tuple(self._now[pair]), self._before[pair])

    def finding(self, rule: str, net: str) -> Finding:
        pair = rule, net
        if pair not in self._before:
            return Finding(rule, net, Status.NEW, "its speed is not in the baseline")
        if pair in self._failures:
            return Finding(rule, net, Status.FAILED, self._failures[pair])
        change = self._change(pair)
        bound = change.bound(MISSES)
        low, high = change.factor / bound, change.factor * bound
        status = Status.WORSE if pair in self._slower else Status.UNCHANGED
        if high * DETECTED < 1:
            status = Status.BETTER
        ratio, before = statistics.geometric_mean(change.now), statistics.geometric_mean(change.before)
        text = f"{change.factor:.2f} times the baseline's ratio, {low:.2f} to {high:.2f} "
        text += f"({ratio:.3g} regular passes, before {before:.3g})"
        numbers = {
            "ratio": ratio,
            "baseline ratio": before,
            "change": change.factor,
            "at least": low,
            "at most": high,
            "processes": float(len(change.now)),
        }
        return Finding(rule, net, status, text, numbers)
