"""The verdict on speed: times relative to a regular forward pass, measured in the same run."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from ..datasets.base import stratified_rows
from ..environment import cpu_name
from ..errors import MeasuredCodeError, RunFailedError, measured_code, one_line
from ..executors.local import in_separate_process
from ..experiments.law_group import LawGroup
from ..experiments.predict import prepared, seeds_of
from ..nets import net as trained
from ..noise import GAUSSIAN
from ..plugins.plugin import Plugin
from ..runtime.timing import by_turns
from .baseline import Baseline, RuleBaseline, Speed
from .cases import GateScope
from .predictions import Asked
from .verdict import Finding, GateVerdict, Status, Step

KIND = "speed"
LIMIT = 1.25
"""Factor by which a rule must be shown to be slower, relative to the regular pass and to the baseline. On a
logarithmic scale it is halfway between no change and the factor 1.5 that must be detected.
"""

_CONFIDENCE = 0.995  # one-sided, for each lower bound; an alarm needs three in a row
_LEAST = 2e-3  # s per timing: shorter work is repeated
_MOST_REPEATS = 1000
_BATCH = 8
_SIGMA = 1.0
_REGULAR = ""  # name of the regular pass among the works

Work = Callable[[], object]
Clock = Callable[[], float]


@dataclass(frozen=True)
class Timing:
    """How times are measured."""

    clock: Clock = time.process_time  # other programs hardly change the processor time
    rounds: int = 15  # rounds of the first measurement
    rounds_again: int = 45  # rounds of the two repetitions if a rule looks slower, and of a baseline
    cpu: str = field(default_factory=cpu_name)


@dataclass(frozen=True)
class Ratios:
    """Times of a rule relative to a regular pass."""

    rounds: tuple[float, ...]  # ratios of single rounds
    least: float  # ratio of the shortest times, which other load on the machine affects least

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    def slower(self, old: Speed) -> float:
        """Return the least slowdown since a baseline, by the median's lower bound and the shortest times."""
        return min(lower_bound(self.rounds) / old.median, self.least / old.least)


Times = dict[str, Ratios | str]
"""Times of rules by spec, or why a rule cannot be timed."""


def times(rules: Mapping[str, Asked], group: LawGroup, rounds: int, clock: Clock) -> Times:
    """Return times of rules on a group's net relative to a regular pass in the same process.

    A plug-in is timed in its own process, for which `clock` must be picklable.
    """
    plugins = {name: rule for name, rule in rules.items() if isinstance(rule, Plugin)}
    found = _measure({name: rules[name] for name in rules if name not in plugins}, group, rounds, clock)
    for name, plugin in plugins.items():
        try:
            with measured_code():
                found |= in_separate_process(
                    _measure, {name: plugin}, group, rounds, clock, address=plugin.address
                )
        except MeasuredCodeError as error:
            found[name] = str(error)
    return found


def _measure(rules: Mapping[str, Asked], group: LawGroup, rounds: int, clock: Clock) -> Times:
    """Time a regular pass and each rule by turns, on a float64 batch of 8 and without its `prepare`."""
    net = group.net.build().double()
    data = trained.inputs_of(group.net)
    inputs = data.batch(list(stratified_rows(data.labels, _BATCH))).double()
    law = GAUSSIAN.law(inputs, _SIGMA)
    keys = [group.keys[0]] * len(inputs)
    works: dict[str, Work] = {_REGULAR: functools.partial(net, inputs)}
    found: Times = {}
    with torch.no_grad():
        for name, asked in rules.items():
            rule = asked.load() if isinstance(asked, Plugin) else asked
            try:
                work: Work = functools.partial(prepared(rule, net, seeds_of(rule, keys)), law)
                work()
            except Exception as error:  # noqa: BLE001  a rule may raise anything
                found[name] = one_line(error)
            else:
                works[name] = work
        if len(works) == 1:
            return found
        repeats = {}
        for name, (seconds,) in by_turns(works, 1, now=clock).items():
            short = seconds * _MOST_REPEATS <= _LEAST
            repeats[name] = _MOST_REPEATS if short else max(1, round(_LEAST / seconds))
        repeated = {name: functools.partial(_repeat, work, repeats[name]) for name, work in works.items()}
        times = by_turns(repeated, rounds, warmup=0, now=clock)
    per_pass = {name: [taken / repeats[name] for taken in times[name]] for name in works}
    regular = per_pass.pop(_REGULAR)
    for name, own in per_pass.items():
        ratios = tuple(a / b for a, b in zip(own, regular, strict=True))
        found[name] = Ratios(ratios, min(own) / min(regular))
    return found


def _repeat(work: Work, times: int) -> None:
    for _ in range(times):
        work()


def lower_bound(ratios: Sequence[float]) -> float:
    """Return a lower confidence bound of the median: an order statistic, by the binomial distribution."""
    from scipy.stats import binom

    below = int(binom.ppf(1 - _CONFIDENCE, len(ratios), 0.5))
    return sorted(ratios)[max(0, below - 1)]


def timed(
    known: Mapping[str, RuleBaseline], rules: Mapping[str, Asked], scope: GateScope, timing: Timing
) -> dict[str, RuleBaseline]:
    """Return baselines of rules with new times; a RunFailedError if a rule cannot be timed."""
    found: dict[str, dict[str, Speed]] = {name: {} for name in known}
    for net, group in scope.nets.items():
        for name, ratios in times(rules, group, timing.rounds_again, timing.clock).items():
            if isinstance(ratios, str):
                raise RunFailedError(f"no baseline is written: rule '{name}' on {net}: {ratios}")
            found[name][net] = Speed(ratios.median, ratios.least)
    return {name: replace(rule, cpu=timing.cpu, speed=found[name]) for name, rule in known.items()}


def judge(
    baseline: Baseline,
    rules: Mapping[str, Asked],
    scope: GateScope,
    timing: Timing,
    step: Step = lambda *_: None,
) -> GateVerdict:
    """Compare ratios with the baseline's and return a verdict with a finding for each rule and net.

    A rule is slower if both the lower confidence bound of its median ratio and the ratio of the shortest
    times exceed `LIMIT` times the baseline's, in the first and in two further measurements with more rounds.
    """
    findings: list[Finding] = []
    known = {name: baseline.rules[name] for name in rules if name in baseline.rules}
    for number, (net, group) in enumerate(scope.nets.items()):
        step(number, len(scope.nets), f"speed on {net}")
        findings += _on_net(known, rules, net, group, timing)
    step(len(scope.nets), len(scope.nets), "")
    note = (
        f"times of {_BATCH} inputs relative to a regular pass, by turns; limit {LIMIT:g} times the baseline"
    )
    others: dict[str, list[str]] = {}
    for name, old in known.items():
        if old.speed and old.cpu != timing.cpu:
            others.setdefault(old.cpu, []).append(name)
    for cpu, names in others.items():
        note += f"; times of {', '.join(names)} are from another processor ({cpu}), whose ratios may differ"
    return GateVerdict(KIND, tuple(findings), note)


def _on_net(
    known: Mapping[str, RuleBaseline], rules: Mapping[str, Asked], net: str, group: LawGroup, timing: Timing
) -> Iterator[Finding]:
    old = {name: rule.speed[net] for name, rule in known.items() if net in rule.speed}
    found: Times = {}
    suspects = list(old)
    for rounds in (timing.rounds, timing.rounds_again, timing.rounds_again):
        if suspects:
            again = times({name: rules[name] for name in suspects}, group, rounds, timing.clock)
            found |= again
            timed = {name: ratios for name, ratios in again.items() if isinstance(ratios, Ratios)}
            suspects = [name for name, ratios in timed.items() if ratios.slower(old[name]) > LIMIT]
    for name in rules:
        if name not in old:
            yield Finding(name, net, Status.NEW, "its speed is not in the baseline")
        elif isinstance(ratios := found[name], str):
            yield Finding(name, net, Status.FAILED, ratios)
        else:
            yield _finding(name, net, old[name], ratios, slower=name in suspects)


def _finding(rule: str, net: str, old: Speed, ratios: Ratios, *, slower: bool) -> Finding:
    median, bound = ratios.median, ratios.slower(old)
    change = median / old.median
    status = Status.WORSE if slower else Status.UNCHANGED
    if not slower and max(change, ratios.least / old.least) * LIMIT < 1:
        status = Status.BETTER
    text = f"{change:.2f} times the baseline's ratio, at least {bound:.2f} "
    text += f"({median:.3g} regular passes, before {old.median:.3g})"
    numbers = {"ratio": median, "baseline ratio": old.median, "change": change, "at least": bound}
    return Finding(rule, net, status, text, numbers)
