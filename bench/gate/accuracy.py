"""The verdict on accuracy: the drift of predictions.

See ``docs/ci.md`` for the table of decisions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sdp_ref.errors import UnsupportedError

from ...oracles.moments.moments import Moments, gaussian_kl
from .baseline import Baseline
from .cases import Cell, Scope
from .predictions import THRESHOLD, Answer, Drift, common_factor, drift
from .verdict import ALL_CASES, Finding, Status, Step, Verdict

KIND = "accuracy"


def judge(
    baseline: Baseline,
    predicted: Mapping[str, Mapping[str, Answer]],
    scope: Scope,
    *,
    draw: int,
    step: Step = lambda *_: None,
) -> Verdict:
    """Compare predictions, by rule and case, with the baseline's; `draw` seeds the fresh oracles."""
    findings = [
        Finding(name, "", Status.NEW, "not compared; --update adds it")
        for name in predicted
        if name not in baseline.rules
    ]
    olds = {name: baseline.rules[name].answers for name in predicted if name in baseline.rules}
    oracles: dict[str, Moments] = {}  # of changed cells, shared by the rules
    sizes: list[float] = []
    for number, (name, old) in enumerate(olds.items()):
        step(number, len(olds), name)
        new = predicted[name]
        drifts = {key: drift(old[key], new[key]) for key in scope.cases}
        sizes += [found.size for found in drifts.values()]
        own = []
        for key, case in scope.cases.items():
            divergences: dict[str, float] = {}
            if THRESHOLD < drifts[key].size < math.inf and isinstance(case, Cell):
                oracle = oracles[key] = oracles.get(key) or case.fresh_moments(draw)
                kls = [gaussian_kl(oracle, answer.law).value for answer in (new[key], old[key])]
                divergences = dict(zip(("KL", "KL before"), kls, strict=True))
            status, text = _of_drift(old[key], new[key], drifts[key], divergences)
            own.append(Finding(name, case.name, status, text, drifts[key].numbers | divergences))
        changed = [key for key, finding in zip(scope.cases, own, strict=True) if finding.stops]
        if changed:
            own.append(_overall(name, old, new, drifts, changed, [f.numbers for f in own]))
        elif len({finding.text for finding in own}) == 1 and own[0].status is Status.FAILED:
            own = [Finding(name, "", Status.FAILED, own[0].text)]
        findings += own
    step(len(olds), len(olds), "")
    if not sizes:
        return Verdict(KIND, tuple(findings), "no prediction was compared")
    small = [size for size in sizes if size <= THRESHOLD]
    largest = max(small, default=0.0)
    text = "drift exactly 0" if largest == 0 else f"drift at most {largest:.2g}"
    no_oracles = "no fresh oracles (for changed cells only)"
    used = f"fresh oracles: {len(oracles)}, seed {draw}" if oracles else no_oracles
    note = f"{len(small)} of {len(sizes)} predictions unchanged or rounded ({text}); {used}"
    if oracles:
        note += "; a smaller KL divergence does not show that a change is correct"
    return Verdict(KIND, tuple(findings), note)


def _of_drift(old: Answer, new: Answer, moved: Drift, distances: Mapping[str, float]) -> tuple[Status, str]:
    """Return status and text of a prediction under the seeds of the baseline."""
    if moved.size <= THRESHOLD:
        status = Status.ROUNDING if moved.size else Status.UNCHANGED
        return status, new.error or f"drift {moved.size:.2g}"
    if new.error and new.kind != UnsupportedError.__name__:
        return Status.FAILED, new.error
    if math.isinf(moved.size):
        return Status.CHANGED, f"{old} before, now {new}"
    text = f"mean changed by {moved.mean:.2g} standard deviations, covariance by {moved.covariance:.2g}"
    if distances:
        text += f"; KL to a fresh oracle {distances['KL']:.3g}, before {distances['KL before']:.3g}"
    return Status.CHANGED, text


def _overall(
    name: str,
    olds: Mapping[str, Answer],
    news: Mapping[str, Answer],
    drifts: Mapping[str, Drift],
    changed: Sequence[str],
    found: Sequence[Mapping[str, float]],
) -> Finding:
    """Summarise the changed predictions of a rule: their common factor, or the largest change.

    `found` are the numbers of its cases.
    """
    comparable = [key for key in changed if drifts[key].size < math.inf]
    texts, numbers = [], {}
    for what in ("mean", "covariance"):
        largest = max((getattr(drifts[key], what) for key in comparable), default=0.0)
        if largest <= THRESHOLD:
            continue
        sides = ([getattr(side[key], what) for key in comparable] for side in (olds, news))
        factor = common_factor(*sides)
        if factor is not None:
            texts.append(f"{what} x {factor:.4g}")
            numbers[f"{what} factor"] = factor
        else:
            size = f"{largest:.2g} standard deviations" if what == "mean" else f"{largest:.2%}"
            texts.append(f"{what} changed by up to {size}")
    if others := len(changed) - len(comparable):
        texts.append(f"another kind of result in {others} of these")
    text = f"{', '.join(texts)} in {len(changed)} of {len(drifts)} cells and probes"
    if compared := [own["KL"] < own["KL before"] for own in found if "KL" in own]:
        text += f"; KL to fresh oracles smaller in {sum(compared)} of {len(compared)} cells"
    return Finding(name, ALL_CASES, Status.CHANGED, text, numbers)
