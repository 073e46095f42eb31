"""What rules say about nets and laws for which there is no oracle, and whether that has changed."""

from __future__ import annotations

import math
from collections.abc import Mapping

from sdp_bench.bench.gate.answers.drift import THRESHOLD, Drift, drift
from sdp_bench.bench.gate.answers.moments import Answer
from sdp_bench.bench.gate.verdict import Finding, Status
from sdp_ref.errors import UnsupportedError


def compare(old: Answer, new: Answer) -> Drift:
    """Drift from one answer to another; infinite if one is a law and the other is not of that family."""
    if old.moments is None and new.moments is None and old.error == new.error:
        return Drift(0.0, 0.0)
    if old.moments is None or new.moments is None or old.family != new.family:
        return Drift(math.inf, math.inf)
    return drift(old.moments, new.moments)


def findings(
    rule: str,
    names: Mapping[str, str],
    old: Mapping[str, Answer],
    new: Mapping[str, Answer],
    *,
    redrawn: bool,
) -> list[Finding]:
    """What has become of a rule's answers.

    Parameters
    ----------
    rule : str
    names : mapping of str to str
        Key of a probe to its name.
    old, new : mapping of str to Answer
    redrawn : bool
        Whether it is a sampling rule that draws otherwise now in the cells with oracles, where its law
        is judged; then it draws otherwise here, too.

    Returns
    -------
    list of Finding
    """
    return [_finding(rule, name, old[key], new[key], redrawn=redrawn) for key, name in names.items()]


def _finding(rule: str, name: str, old: Answer, new: Answer, *, redrawn: bool) -> Finding:
    moved = compare(old, new)
    numbers = moved.numbers
    if moved.size <= THRESHOLD:
        status = Status.ROUNDING if moved.size else Status.UNCHANGED
        return Finding(rule, name, status, new.refusal or f"drift {moved.size:.2g}", numbers)
    if new.refusal and new.error != UnsupportedError.__name__:
        return Finding(rule, name, Status.FAILED, new.refusal, numbers)
    if redrawn and math.isfinite(moved.size):
        return Finding(rule, name, Status.REDRAWN, f"drift {moved.size:.2g}", numbers)
    text = f"{_words(old)} before, now {_words(new)}" if math.isinf(moved.size) else f"drift {moved.size:.2g}"
    return Finding(rule, name, Status.CHANGED, f"{text}; predictions only, no oracle", numbers)


def _words(answer: Answer) -> str:
    return answer.refusal or f"a {answer.family} law"
