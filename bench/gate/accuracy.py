"""The verdict on accuracy: the drift of predictions.

See ``docs/ci.md`` for the table of decisions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sdp_ref.errors import UnsupportedError

from ...oracles.moments.moments import Moments, gaussian_kl
from .baseline import Baseline
from .cases import GateCell, GateScope
from .predictions import THRESHOLD, Drift, GatePrediction, common_factor, drift
from .verdict import ALL_CASES, Finding, GateVerdict, Status, Step

KIND = "accuracy"


def judge(
    baseline: Baseline,
    predicted: Mapping[str, Mapping[str, GatePrediction]],
    scope: GateScope,
    *,
    draw: int,
    step: Step = lambda *_: None,
) -> GateVerdict:
    """Compare predictions, by rule and case, with the baseline's; `draw` seeds the fresh oracles."""
    findings = [
        Finding(name, "", Status.NEW, "not in the baseline; --update adds it")
        for name in predicted
        if name not in baseline.rules
    ]
    compared = [name for name in predicted if name in baseline.rules]
    oracles: dict[str, Moments] = {}  # of changed cells, shared by the rules
    sizes: list[float] = []
    for number, name in enumerate(compared):
        step(number, len(compared), name)
        old, new = baseline.rules[name].answers, predicted[name]
        drifts = {key: drift(old[key], new[key]) for key in scope.cases}
        sizes += [moved.size for moved in drifts.values()]
        findings += _findings(name, old, new, drifts, scope, oracles, draw)
    step(len(compared), len(compared), "")
    if not sizes:
        return GateVerdict(KIND, tuple(findings), "no prediction was compared")
    return GateVerdict(KIND, tuple(findings), _note(sizes, oracles, draw))


def _findings(
    name: str,
    old: Mapping[str, GatePrediction],
    new: Mapping[str, GatePrediction],
    drifts: Mapping[str, Drift],
    scope: GateScope,
    oracles: dict[str, Moments],
    draw: int,
) -> list[Finding]:
    """Return the findings on one rule, by case and in all; those of changed cells are added to `oracles`."""
    findings = []
    for key, case in scope.cases.items():
        divergences: dict[str, float] = {}
        # Predictions of different kinds, with an infinite drift, have no common divergence.
        if isinstance(case, GateCell) and THRESHOLD < drifts[key].size < math.inf:
            if key not in oracles:
                oracles[key] = case.fresh_moments(draw)
            divergences = {
                "KL": gaussian_kl(oracles[key], new[key].law).value,
                "KL before": gaussian_kl(oracles[key], old[key].law).value,
            }
        status, text = _of_drift(old[key], new[key], drifts[key], divergences)
        findings.append(Finding(name, case.name, status, text, drifts[key].numbers | divergences))
    changed = [key for key, finding in zip(scope.cases, findings, strict=True) if finding.stops]
    if changed:
        numbers = [finding.numbers for finding in findings]
        return [*findings, _overall(name, old, new, drifts, changed, numbers)]
    if len({finding.text for finding in findings}) == 1 and findings[0].status is Status.FAILED:
        return [Finding(name, "", Status.FAILED, findings[0].text)]
    return findings


def _note(sizes: Sequence[float], oracles: Mapping[str, Moments], draw: int) -> str:
    """Return a remark on the size of drifts that count as rounding, and on the fresh oracles."""
    small = [size for size in sizes if size <= THRESHOLD]
    largest = max(small, default=0.0)
    text = "drift exactly 0" if largest == 0 else f"drift at most {largest:.2g}"
    no_oracles = "no fresh oracles (for changed cells only)"
    used = f"fresh oracles: {len(oracles)}, seed {draw}" if oracles else no_oracles
    note = f"{len(small)} of {len(sizes)} predictions unchanged or rounded ({text}); {used}"
    if oracles:
        note += "; a smaller KL divergence does not show that a change is correct"
    return note


def _of_drift(
    old: GatePrediction, new: GatePrediction, moved: Drift, distances: Mapping[str, float]
) -> tuple[Status, str]:
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
    olds: Mapping[str, GatePrediction],
    news: Mapping[str, GatePrediction],
    drifts: Mapping[str, Drift],
    changed: Sequence[str],
    numbers_of_cases: Sequence[Mapping[str, float]],
) -> Finding:
    """Summarise the changed predictions of a rule: their common factor, or the largest change."""
    comparable = [key for key in changed if drifts[key].size < math.inf]
    texts, numbers = [], {}
    for what in ("mean", "covariance"):
        largest = max((getattr(drifts[key], what) for key in comparable), default=0.0)
        if largest <= THRESHOLD:
            continue
        old_numbers = [getattr(olds[key], what) for key in comparable]
        new_numbers = [getattr(news[key], what) for key in comparable]
        factor = common_factor(old_numbers, new_numbers)
        if factor is not None:
            texts.append(f"{what} x {factor:.4g}")
            numbers[f"{what} factor"] = factor
        else:
            size = f"{largest:.2g} standard deviations" if what == "mean" else f"{largest:.2%}"
            texts.append(f"{what} changed by up to {size}")
    if others := len(changed) - len(comparable):
        texts.append(f"another kind of result in {others} of these")
    text = f"{', '.join(texts)} in {len(changed)} of {len(drifts)} cells and probes"
    smaller = [case["KL"] < case["KL before"] for case in numbers_of_cases if "KL" in case]
    if smaller:
        text += f"; KL to fresh oracles smaller in {sum(smaller)} of {len(smaller)} cells"
    return Finding(name, ALL_CASES, Status.CHANGED, text, numbers)
