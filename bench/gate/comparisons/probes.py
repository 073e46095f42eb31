"""Comparison of predictions on probes, nets and laws without an oracle."""

from __future__ import annotations

import math

from sdp_bench.bench.gate.answers.drift import THRESHOLD, Drift, drift
from sdp_bench.bench.gate.answers.moments import Answer
from sdp_bench.bench.gate.verdict import Finding, Status
from sdp_ref.errors import UnsupportedError


def compare(old: Answer, new: Answer) -> Drift:
    """Return the drift of an answer; infinite if one is a law and the other is not of that family."""
    if old.moments is None and new.moments is None and old.error == new.error:
        return Drift(0.0, 0.0)
    if old.moments is None or new.moments is None or old.family != new.family:
        return Drift(math.inf, math.inf)
    return drift(old.moments, new.moments)


def finding(rule: str, name: str, old: Answer, new: Answer, moved: Drift) -> Finding:
    """Return the finding on a rule's answer to a probe, if its drift is sufficient."""
    numbers = moved.numbers
    if moved.size <= THRESHOLD:
        status = Status.ROUNDING if moved.size else Status.UNCHANGED
        return Finding(rule, name, status, new.refusal or f"drift {moved.size:.2g}", numbers)
    if new.refusal and new.error != UnsupportedError.__name__:
        return Finding(rule, name, Status.FAILED, new.refusal, numbers)
    text = f"{_words(old)} before, now {_words(new)}" if math.isinf(moved.size) else f"drift {moved.size:.2g}"
    return Finding(rule, name, Status.CHANGED, f"{text}; predictions only, no oracle", numbers)


def _words(answer: Answer) -> str:
    return answer.refusal or f"a {answer.family} law"
