"""The verdict on speed: ratios of times to a regular forward pass, measured in the same run."""

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
"""A rule must be shown to be slower than this, relative to the regular pass and to the baseline. Halfway, as
ratios go, between no change and the 1.5x that must not be missed."""

_CONFIDENCE = 0.995  # one-sided, of each lower bound; an alarm needs three in a row
_LEAST = 2e-3  # s a work: shorter ones are repeated
_MOST_REPEATS = 1000
_BATCH = 8
_SIGMA = 1.0

REGULAR = "regular"
Work = Callable[[], object]
Clock = Callable[[], float]
Step = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Timing:
    """How times are taken.

    Attributes
    ----------
    now : callable
        Clock, in seconds.
    rounds : int
        At first.
    rounds_again : int
        Where a rule looks slower, twice more; and for a baseline.
    cpu : str
        Name of the processor.
    """

    now: Clock = clock
    rounds: int = 15
    rounds_again: int = 45
    cpu: str = field(default_factory=cpu_name)


def times(
    rules: Mapping[str, Asked], group: LawGroup, rounds: int, now: Clock
) -> tuple[dict[str, Ratios], dict[str, str]]:
    """Times of rules on a net over those of a regular pass in the same process, a plug-in's in its own.

    Parameters
    ----------
    rules : mapping of str to Propagator or Guest
    group : LawGroup
        Whose net it is.
    rounds : int
    now : callable
        Clock; for a plug-in one that can be pickled.

    Returns
    -------
    found : dict of str to Ratios
        Of the rules that can be timed.
    failed : dict of str to str
        The others, with what they say.
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
    """What is timed on a net: a regular pass and each rule, on one batch of 8 inputs, in float64.

    A rule's work for the net alone (`prepare`) is done before.

    Parameters
    ----------
    rules : mapping of str to Propagator
    group : LawGroup
        Whose net it is.

    Returns
    -------
    found : dict of str to callable
        The regular pass, and the rules that can be timed.
    failed : dict of str to str
        The others, with what they say.
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
    """Times of a rule over those of a regular pass.

    Attributes
    ----------
    rounds : tuple of float
        Of single rounds.
    least : float
        Of the shortest times of either: what neighbours on the machine disturb least.
    """

    rounds: tuple[float, ...]
    least: float

    @classmethod
    def of(cls, rounds: Iterable[float], least: float) -> Ratios:
        """From numbers that may be anything; a ValueError or TypeError if they are no ratios of times."""
        found = cls(tuple(map(float, rounds)), float(least))
        if not (found.rounds and all(0 < each < math.inf for each in (*found.rounds, found.least))):
            raise ValueError("its times are not positive")
        return found

    @property
    def summary(self) -> Speed:
        """As a baseline keeps them."""
        found = Ratio.of(list(self.rounds), [1.0] * len(self.rounds))
        return Speed(found.median, found.lower, found.upper, self.least)

    def slower(self, old: Speed) -> float:
        """How many times slower than a baseline at least: by the bound of the median, and by the shortest."""
        return min(lower_bound(self.rounds) / old.median, self.least / old.least)


def measure(works: Mapping[str, Work], rounds: int, now: Clock = clock) -> dict[str, Ratios]:
    """Time of each work over that of the regular pass, in some rounds taken by turns."""
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
    """Lower confidence bound of the median: an order statistic, by the binomial law of those below it."""
    from scipy.stats import binom

    below = int(binom.ppf(1 - _CONFIDENCE, len(ratios), 0.5))
    return sorted(ratios)[max(0, below - 1)]


def baseline_speeds(rules: Mapping[str, Asked], scope: Scope, timing: Timing) -> dict[str, dict[str, Speed]]:
    """Ratios to keep, by rule and net.

    Returns
    -------
    dict of str to dict of str to Speed
        Times over those of a regular pass.

    Raises
    ------
    RunFailedError
        If a rule cannot be timed.
    """
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
    """Compare today's ratios with the baseline's.

    A rule is slower if both the lower confidence bound of its median ratio and the ratio of the shortest
    times are more than :data:`LIMIT` times the baseline's, at first and in two further measurements with
    more rounds.

    Parameters
    ----------
    baseline : Baseline
    rules : mapping of str to Propagator
    scope : Scope
        Of its groups, the nets are timed once each.
    timing : Timing
    step : callable
        Told how far it is: number, of how many, and what.

    Returns
    -------
    Verdict
        With a finding for each rule and net.
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
    """By how much and on how many nets a rule is slower, if it is."""
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
    """What has become of the times on one net."""
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
    """The first group of each net."""
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
