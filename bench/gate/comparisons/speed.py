"""The verdict on speed: times relative to a regular forward pass, measured in the same run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from sdp_bench.bench.datasets.base import stratified_rows
from sdp_bench.bench.environment import cpu_name
from sdp_bench.bench.errors import OutsideError, RunFailedError, one_line, outside
from sdp_bench.bench.experiments.law_group import LawGroup
from sdp_bench.bench.experiments.predict import prepared, seeds_of
from sdp_bench.bench.gate.baseline import Baseline, Speed
from sdp_bench.bench.gate.cells import Scope, net_label
from sdp_bench.bench.gate.guests import Asked, Guest
from sdp_bench.bench.gate.verdict import Cause, Finding, Status, Verdict, What
from sdp_bench.bench.nets import net as trained
from sdp_bench.bench.noise import GAUSSIAN
from sdp_bench.bench.runtime.timing import Ratio, by_turns, clock
from sdp_ref.rules import Propagator

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

REGULAR = "regular"
Work = Callable[[], object]
Clock = Callable[[], float]
Step = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Timing:
    """How times are measured."""

    now: Clock = clock  # clock, in seconds
    rounds: int = 15  # rounds of the first measurement
    rounds_again: int = 45  # rounds of the two repetitions if a rule looks slower, and of a baseline
    cpu: str = field(default_factory=cpu_name)


def times(
    rules: Mapping[str, Asked], group: LawGroup, rounds: int, now: Clock
) -> tuple[dict[str, Ratios], dict[str, str]]:
    """Return times of rules on a group's net relative to a regular pass in the same process.

    A plug-in is timed in its own process, for which the clock `now` must be picklable. The second result has
    the errors of rules that cannot be timed.
    """
    built_in = {name: rule for name, rule in rules.items() if not isinstance(rule, Guest)}
    ready, failed = works(built_in, group)
    found = measure(ready, rounds, now) if len(ready) > 1 else {}
    for name, rule in rules.items():
        if isinstance(rule, Guest):
            try:
                with outside():
                    found[name] = Ratios.of(*rule.ask(_plain, group, rounds, now))
            except OutsideError as error:
                failed[name] = str(error)
    return found, failed


def _plain(rule: Propagator, group: LawGroup, rounds: int, now: Clock) -> tuple[list[float], float]:
    ready, failed = works({"": rule}, group)
    if failed:
        raise OutsideError(failed[""])
    ratios = measure(ready, rounds, now)[""]
    return list(ratios.rounds), ratios.least


def works(rules: Mapping[str, Propagator], group: LawGroup) -> tuple[dict[str, Work], dict[str, str]]:
    """Return the timed functions on a group's net: a regular pass and each rule, on 8 inputs, in float64.

    A rule's set-up for the net (`prepare`) is done before. The second result has the errors of rules that
    cannot be timed.
    """
    net = group.net.build().double()
    data = trained.inputs_of(group.net)
    inputs = data.batch(list(stratified_rows(data.labels, _BATCH))).double()
    law = GAUSSIAN.law(inputs, _SIGMA)
    keys = [group.subjects[0].key] * len(inputs)
    found: dict[str, Work] = {REGULAR: torch.no_grad()(lambda: net(inputs))}
    failed: dict[str, str] = {}
    for name, rule in rules.items():
        try:
            propagate = prepared(rule, net, seeds_of(rule, keys))
            work: Work = torch.no_grad()(lambda propagate=propagate: propagate(law))
            work()
        except Exception as error:  # noqa: BLE001  a rule may raise anything
            failed[name] = one_line(error)
            continue
        found[name] = work
    return found, failed


@dataclass(frozen=True)
class Ratios:
    """Times of a rule relative to a regular pass."""

    rounds: tuple[float, ...]  # ratios of single rounds
    least: float  # ratio of the shortest times, which other load on the machine affects least

    @classmethod
    def of(cls, rounds: Iterable[float], least: float) -> Ratios:
        """Return validated ratios; a ValueError or TypeError for invalid numbers."""
        found = cls(tuple(map(float, rounds)), float(least))
        if not (found.rounds and all(0 < each < math.inf for each in (*found.rounds, found.least))):
            raise ValueError("its times are not positive")
        return found

    @property
    def summary(self) -> Speed:
        found = Ratio.of(list(self.rounds), [1.0] * len(self.rounds))
        return Speed(found.median, found.lower, found.upper, self.least)

    def slower(self, old: Speed) -> float:
        """Return the least slowdown since a baseline, by the median's lower bound and the shortest times."""
        return min(lower_bound(self.rounds) / old.median, self.least / old.least)


def measure(works: Mapping[str, Work], rounds: int, now: Clock = clock) -> dict[str, Ratios]:
    """Return the interleaved times of each function relative to the regular pass."""
    repeats = {name: _repeats(work, now) for name, work in works.items()}
    repeated = {name: _repeated(work, repeats[name]) for name, work in works.items()}
    seconds = by_turns(repeated, rounds, now=now)
    per_pass = {name: [second / repeats[name] for second in each] for name, each in seconds.items()}
    regular = per_pass.pop(REGULAR)
    return {
        name: Ratios(tuple(a / b for a, b in zip(each, regular, strict=True)), min(each) / min(regular))
        for name, each in per_pass.items()
    }


def _repeats(work: Work, now: Clock) -> int:
    work()
    start = now()
    work()
    took = now() - start
    return _MOST_REPEATS if took * _MOST_REPEATS <= _LEAST else max(1, round(_LEAST / took))


def _repeated(work: Work, times: int) -> Work:
    def run() -> None:
        for _ in range(times):
            work()

    return run


def lower_bound(ratios: Sequence[float]) -> float:
    """Return a lower confidence bound of the median: an order statistic, by the binomial distribution."""
    from scipy.stats import binom

    below = int(binom.ppf(1 - _CONFIDENCE, len(ratios), 0.5))
    return sorted(ratios)[max(0, below - 1)]


def baseline_speeds(rules: Mapping[str, Asked], scope: Scope, timing: Timing) -> dict[str, dict[str, Speed]]:
    """Return ratios for a baseline, by rule and net; a RunFailedError if a rule cannot be timed."""
    found: dict[str, dict[str, Speed]] = {name: {} for name in rules}
    for group in _nets(scope):
        ratios_of, failed = times(rules, group, timing.rounds_again, timing.now)
        for name, said in failed.items():
            raise RunFailedError(f"no baseline is written: rule '{name}' on {net_label(group)}: {said}")
        for name, ratios in ratios_of.items():
            found[name][net_label(group)] = ratios.summary
    return found


def judge(
    baseline: Baseline,
    rules: Mapping[str, Asked],
    scope: Scope,
    timing: Timing,
    step: Step = lambda *_: None,
) -> Verdict:
    """Compare ratios with the baseline's and return a verdict with a finding for each rule and net.

    A rule is slower if both the lower confidence bound of its median ratio and the ratio of the shortest
    times exceed `LIMIT` times the baseline's, in the first and in two further measurements with more rounds.
    Each net is timed once. `step` is called with number, total and name of each step.
    """
    findings: list[Finding] = []
    nets = _nets(scope)
    for number, group in enumerate(nets):
        step(number, len(nets), f"speed on {net_label(group)}")
        findings += _judged(baseline, rules, group, timing)
    step(len(nets), len(nets), "")
    note = f"times of {_BATCH} inputs over a regular pass, by turns; limit {LIMIT:g} times the baseline"
    others: dict[str, list[str]] = {}
    for name in rules:
        old = baseline.rules.get(name)
        if old is not None and old.speed and old.cpu != timing.cpu:
            others.setdefault(old.cpu, []).append(name)
    for made_on, names in others.items():
        note += f"; times of {', '.join(names)} are of another processor ({made_on}), whose ratios may differ"
    causes = [cause for name in rules for cause in _causes([f for f in findings if f.subject == name])]
    return Verdict(KIND, tuple(findings), note, tuple(causes))


def _causes(findings: Sequence[Finding]) -> Iterator[Cause]:
    """Yield by how much and on how many nets a rule is slower."""
    slower = [finding for finding in findings if finding.status is Status.WORSE]
    if slower:
        factors = [finding.numbers["change"] for finding in slower]
        least, most = min(factors), max(factors)
        factor = f"{least:.2f}" if least == most else f"{least:.2f} to {most:.2f}"
        nets = f"on {len(slower)} of {len(findings)} net{'' if len(findings) == 1 else 's'}"
        numbers = {"least change": least, "most change": most}
        yield Cause(slower[0].subject, What.SPEED, f"slower, {factor} times the ratio, {nets}", numbers)


def _judged(
    baseline: Baseline, rules: Mapping[str, Asked], group: LawGroup, timing: Timing
) -> Iterator[Finding]:
    label = net_label(group)
    stored = {name: baseline.rules[name].speed for name in rules if name in baseline.rules}
    known = {name: speeds[label] for name, speeds in stored.items() if label in speeds}
    ratios, failed = times({name: rules[name] for name in known}, group, timing.rounds, timing.now)
    suspects = [name for name, each in ratios.items() if each.slower(known[name]) > LIMIT]
    for _ in range(2):
        if suspects:
            chosen = {name: rules[name] for name in suspects}
            again, failed_again = times(chosen, group, timing.rounds_again, timing.now)
            ratios, failed = ratios | again, failed | failed_again
            suspects = [name for name in suspects if ratios[name].slower(known[name]) > LIMIT]
    for name in rules:
        if name not in known:
            yield Finding(name, label, Status.NEW, "its speed is not in the baseline")
        elif name in failed:
            yield Finding(name, label, Status.FAILED, failed[name])
        else:
            yield _finding(name, label, known[name], ratios[name], slower=name in suspects)


def _nets(scope: Scope) -> list[LawGroup]:
    """Return the first group of each net."""
    found: dict[str, LawGroup] = {}
    for group in scope.groups:
        found.setdefault(group.net.digest, group)
    return list(found.values())


def _finding(rule: str, net: str, old: Speed, ratios: Ratios, *, slower: bool) -> Finding:
    median = statistics.median(ratios.rounds)
    change = median / old.median
    status = Status.WORSE if slower else Status.UNCHANGED
    if not slower and max(change, ratios.least / old.least) * LIMIT < 1:
        status = Status.BETTER
    text = f"{change:.2f} times the baseline's ratio ({median:.3g} regular passes, before {old.median:.3g})"
    bound = ratios.slower(old)
    numbers = {"ratio": median, "baseline ratio": old.median, "change": change, "at least": bound}
    return Finding(rule, net, status, text, numbers)
