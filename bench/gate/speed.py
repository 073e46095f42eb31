"""The verdict on speed: the times of two versions of a rule, measured alternately in one session.

The layout of memory and the load of the machine change times from process to process. A pair of processes,
one for each version, therefore counts as one observation, and a comparison measures as many fresh pairs as it
needs: a group-sequential test on the logarithm of the ratio of the two times.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sdp_ref.errors import UnsupportedError, on_one_line

from ..datasets.base import stratified_rows
from ..executors.local import limits_here
from ..nets import net as trained
from ..plugins.plugin import Plugin
from ..text import plural, public
from .cases import GateScope
from .predictions import CheckedRule
from .verdict import Finding, GateVerdict, Status, Step
from .versions import OldVersion, VersionRule
from .worker import OVER_MEMORY

KIND = "speed"
DETECTED = 1.10
"""Factor of a slow-down that a check should see: measuring ends early only if it is excluded."""
TOLERANCE = 1.03
"""Factor between the times of two versions that is not a slow-down."""
FALSE_ALARMS = 0.01
"""Probability of a false alarm in a whole check, divided over its comparisons and looks (Bonferroni)."""
MISSES = 0.05
"""One-sided probability with which a look excludes a slow-down by `DETECTED` although there is one."""

_TURN = 2e-3  # s; shorter work is repeated
_MOST_REPETITIONS = 1000
_BATCH = 8
_SIGMA = 1.0
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    # Otherwise glibc returns memory to the system and requests it again in each call, or not, by chance:
    # times of equal code differed by up to 50 % between processes.
    "MALLOC_MMAP_THRESHOLD_": str(2**25),
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
    "MALLOC_TOP_PAD_": str(2**26),
}
_WORKER = Path(__file__).with_name("worker.py")

Pair = tuple[str, str]
"""Spec of a rule and name of a net."""
Observation = float | tuple[Status, str]
"""Logarithm of new over old time, or the status of a comparison that is not possible, and why."""


@dataclass(frozen=True)
class Timing:
    """How times are measured."""

    clock: Callable[[], float] = time.process_time  # other programs hardly change the processor time
    rounds: int = 16  # of a pair of processes
    looks: tuple[int, ...] = (3, 6, 12, 24, 48)  # numbers of pairs after which a comparison may end


class _NotTimedError(Exception):
    """A version of a rule could not be timed; `reason` is its error, without the name of the version."""

    def __init__(self, status: Status, version: str, reason: str) -> None:
        super().__init__(f"the {version} version fails: {reason}")
        self.status, self.reason = status, reason


class _Worker:
    """A process that times rules of one version, see `worker`; it ends with the block."""

    def __init__(self, path: list[str], setup: bytes, number: int, *, is_old: bool) -> None:
        self._unsent, self._is_old = setup, is_old
        self._limits, self._is_late = limits_here(), False
        memory = self._limits.memory
        argument = json.dumps([path, None if memory is None else memory * 2**30])
        command = [sys.executable, "-P", "-B", str(_WORKER), argument]
        environment = {**os.environ, **_ENVIRONMENT, "PYTHONHASHSEED": str(number)}
        self._process = subprocess.Popen(  # noqa: S603  this Python and a file of this package
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        if hasattr(os, "sched_setaffinity"):
            # A virtual processor may be twice as slow as another one for seconds.
            cpus = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(self._process.pid, {cpus[(os.getpid() + number // 2) % len(cpus)]})

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        with suppress(OSError):  # what was not sent
            self._process.communicate()

    def seconds(self, pair: Pair, repetitions: int = 1) -> float:
        """Return the seconds of one execution, or raise a `_NotTimedError`."""
        alarm = threading.Timer(self._limits.seconds or threading.TIMEOUT_MAX, self._stop)
        alarm.start()
        try:
            answer = self._answer((*pair, repetitions))
        finally:
            alarm.cancel()  # also after an interrupt: Python waits for its threads before it ends
        if isinstance(answer, float) and answer > 0:
            return answer
        if isinstance(answer, str):
            reason = public(on_one_line(answer))
        elif answer is not None:
            reason = "too short to be timed"
        elif self._is_late:
            reason = f"stopped at the time limit of {self._limits.seconds:g} s"
        elif self._ended() == OVER_MEMORY:
            reason = f"stopped at the memory limit of {self._limits.memory:g} GiB"
        else:
            reason = "the worker process died (it ended itself, was killed, or was out of memory)"
        if self._is_old:
            raise _NotTimedError(Status.NEW, "older", reason)
        raise _NotTimedError(Status.FAILED, "current", reason)

    def _answer(self, request: object) -> Any:
        """Return the answer of the process; None if it has ended."""
        requests, answers = self._process.stdin, self._process.stdout
        if requests is None or answers is None:  # they are pipes
            return None
        try:
            requests.write(self._unsent + pickle.dumps(request))
            requests.flush()
            self._unsent = b""
            return json.loads(answers.readline())
        except (OSError, ValueError):
            return None

    def _stop(self) -> None:
        self._is_late = True
        self._process.kill()

    def _ended(self) -> int:
        """End the process, which may live on without answering, and return its exit code."""
        self._process.kill()
        return self._process.wait()


def observations(
    pairs: Collection[Pair],
    rules: Mapping[str, CheckedRule],
    old: OldVersion,
    scope: GateScope,
    timing: Timing,
    number: int,
) -> dict[Pair, Observation]:
    """Compare two versions of rules on nets once, in fresh processes.

    Each plug-in has separate processes. The older version is the first in every second pair by `number`.
    """
    old_first = number % 2 == 1
    by_process: dict[str, list[Pair]] = {}
    for pair in pairs:
        rule = rules[pair[0]]
        by_process.setdefault(rule.address if isinstance(rule, Plugin) else "", []).append(pair)
    found: dict[Pair, Observation] = {}
    for address, together in by_process.items():
        names = dict.fromkeys(name for name, _ in together)
        new_setup = _setup({name: old.current[name] for name in names}, scope, timing)
        old_setup = _setup({name: old.rules[name] for name in names}, scope, timing)
        # The built-in rules of an older version are those of its own sdp_ref.
        old_path = sys.path if address else [str(old.folder), *sys.path]
        with ExitStack() as stack:
            workers = {}
            for is_old in (old_first, not old_first):
                path, setup = (old_path, old_setup) if is_old else (sys.path, new_setup)
                workers[is_old] = stack.enter_context(_Worker(path, setup, number, is_old=is_old))
            found |= _in_turns(together, workers[False], workers[True], timing.rounds, old_first=old_first)
    return found


def _setup(rules: Mapping[str, VersionRule | str], scope: GateScope, timing: Timing) -> bytes:
    """Return what a worker needs: rules, nets, a float64 batch of 8 with its noise, and a clock."""
    groups = scope.nets
    nets = {name: group.net.build().double() for name, group in groups.items()}
    data = trained.inputs_of(next(iter(groups.values())).net)
    inputs = data.batch(list(stratified_rows(data.labels, _BATCH))).double()
    return pickle.dumps((rules, nets, inputs, _SIGMA, timing.clock))


def _in_turns(
    pairs: Collection[Pair], new: _Worker, old: _Worker, rounds: int, *, old_first: bool
) -> dict[Pair, Observation]:
    """Time both versions in the order ABBA or BAAB in each round; return medians of rounds."""
    failures: dict[Pair, Observation] = {}
    repetitions: dict[Pair, int] = {}
    logs: dict[Pair, list[float]] = {}
    for pair in pairs:
        # If neither version supports a net, the older one comes first: there is nothing to compare.
        order = (old, new) if _is_unsupported(new, pair) else (new, old)
        try:
            for worker in order:
                worker.seconds(pair)  # the first call takes longer
            seconds = min(worker.seconds(pair) for worker in order)
        except _NotTimedError as error:
            failures[pair] = error.status, str(error)
        else:
            repetitions[pair] = max(1, min(round(_TURN / seconds), _MOST_REPETITIONS))
            logs[pair] = []
    for number in range(rounds):
        # The second of two successive turns is faster.
        first, second = (old, new) if old_first == (number % 2 == 0) else (new, old)
        for pair in [pair for pair in logs if pair not in failures]:
            try:
                a, b, b_again, a_again = (
                    worker.seconds(pair, repetitions[pair]) for worker in (first, second, second, first)
                )
            except _NotTimedError as error:
                failures[pair] = error.status, str(error)
            else:
                log = math.log((a + a_again) / (b + b_again))
                logs[pair].append(-log if first is old else log)
    return {pair: statistics.median(of_rounds) for pair, of_rounds in logs.items() if of_rounds} | failures


def _is_unsupported(worker: _Worker, pair: Pair) -> bool:
    try:
        worker.seconds(pair)
    except _NotTimedError as error:
        return error.reason.startswith(UnsupportedError.__name__)
    return False


@dataclass(frozen=True)
class Change:
    """Estimate of the factor between the times of two versions, from the logarithms of pairs of processes."""

    logs: tuple[float, ...]

    @property
    def factor(self) -> float:
        return math.exp(statistics.fmean(self.logs))

    def bounds(self, level: float) -> tuple[float, float]:
        """Return the lower and upper bound of Student's t, each at a one-sided error rate."""
        from scipy.stats import t

        error = statistics.stdev(self.logs) / math.sqrt(len(self.logs))
        distance = math.exp(float(t.isf(level, len(self.logs) - 1)) * error)
        return self.factor / distance, self.factor * distance


def judge(
    rules: Mapping[str, CheckedRule],
    old: OldVersion,
    scope: GateScope,
    timing: Timing,
    *,
    allowed: Collection[str] = (),
    step: Step = lambda *_: None,
) -> GateVerdict:
    """Compare times with those of an older version; return a verdict with a finding for each rule and net.

    After each of `timing.looks` numbers of pairs of processes, a comparison ends if a slow-down by `DETECTED`
    is excluded, or if a slow-down by more than `TOLERANCE` is shown: then the rule is slower. The rules in
    `allowed` may be slower.
    """
    undecided = [(name, net) for net in scope.nets for name in old.rules]
    logs: dict[Pair, list[float]] = {pair: [] for pair in undecided}
    decided: dict[Pair, tuple[Status, str]] = {}
    level = FALSE_ALARMS / max(1, len(undecided) * len(timing.looks))
    number = 0  # of pairs of processes
    for look, most in enumerate(timing.looks):
        while undecided and number < most:
            step(look, len(timing.looks), f"speed, {len(undecided)} comparisons")
            for pair, observation in observations(undecided, rules, old, scope, timing, number).items():
                if isinstance(observation, float):
                    logs[pair].append(observation)
                else:
                    decided[pair] = observation
            undecided = [pair for pair in undecided if pair not in decided]
            number += 1
        for pair in undecided:
            change = Change(tuple(logs[pair]))
            if change.bounds(level)[0] > TOLERANCE:
                decided[pair] = Status.ACCEPTED if pair[0] in allowed else Status.SLOWER, ""
            elif (highest := change.bounds(MISSES)[1]) < DETECTED:
                decided[pair] = Status.FASTER if highest * DETECTED < 1 else Status.UNCHANGED, ""
        undecided = [pair for pair in undecided if pair not in decided]
    step(len(timing.looks), len(timing.looks), "")
    findings = [Finding(name, "", Status.NEW, reason) for name, reason in old.missing.items()]
    for pair, values in logs.items():
        status, reason = decided.get(pair, (Status.UNCHANGED, ""))
        findings.append(Finding(*pair, status, reason) if reason else _finding(pair, status, values))
    note = (
        f"times of {_BATCH} inputs relative to {old.name}; slower if shown to exceed {TOLERANCE:g} times the "
        "older version's"
    )
    if noisy := len(undecided):
        note += (
            f"; {plural(noisy, 'comparison')} could not exclude a slow-down by {DETECTED - 1:.0%}, because "
            "times vary too much: repeat the check on a quieter machine"
        )
    return GateVerdict(KIND, tuple(findings), note)


def _finding(pair: Pair, status: Status, logs: Sequence[float]) -> Finding:
    change = Change(tuple(logs))
    low, high = change.bounds(MISSES)
    text = f"{change.factor:.2f} times the old time, {low:.2f} to {high:.2f}"
    numbers = {"change": change.factor, "at least": low, "at most": high, "processes": float(len(logs))}
    return Finding(*pair, status, text, numbers)
