"""The verdict on accuracy: drift of predictions, and statistics of sampling rules under fresh seeds.

See ``docs/ci.md`` for the table of decisions.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping, Sequence

from sdp_bench.bench.gate import sampling
from sdp_bench.bench.gate.baseline import Baseline
from sdp_bench.bench.gate.cases import Cell, Scope
from sdp_bench.bench.gate.predictions import (
    THRESHOLD,
    Answer,
    Asked,
    Drift,
    Predictions,
    common_factor,
    draws_in,
    drift,
)
from sdp_bench.bench.gate.sampling import Draws, Evidence
from sdp_bench.bench.gate.verdict import ALL_CASES, Finding, Status, Step, Verdict
from sdp_bench.oracles.moments.moments import Moments, gaussian_kl
from sdp_ref.errors import UnsupportedError

KIND = "accuracy"


def judge(
    baseline: Baseline,
    rules: Mapping[str, Asked],
    predicted: Mapping[str, Predictions],
    scope: Scope,
    *,
    draw: int,
    step: Step = lambda *_: None,
) -> Verdict:
    """Compare predictions with the baseline's; `draw` seeds the fresh oracles and fresh draws."""
    new = [name for name in rules if name not in baseline.rules]
    findings = [Finding(name, "", Status.NEW, "not compared; --update adds it") for name in new]
    olds = {name: baseline.rules[name] for name in rules if name in baseline.rules}
    drifts = {
        name: {key: drift(answer, predicted[name].answers[key]) for key, answer in old.answers.items()}
        for name, old in olds.items()
    }
    oracles: dict[str, Moments] = {}  # of changed cells, shared by the rules

    def oracle_of(key: str) -> Moments | None:
        if key not in oracles and isinstance(case := scope.cases[key], Cell):
            oracles[key] = case.fresh_moments(draw)
        return oracles.get(key)

    samples: dict[tuple[str, str], Draws] = {}
    failures: dict[tuple[str, str], str] = {}
    distances: dict[tuple[str, str], dict[str, float]] = {}
    for number, (name, old) in enumerate(olds.items()):
        step(number, len(olds), name)
        moved = [key for key, found in drifts[name].items() if THRESHOLD < found.size < math.inf]
        if moved and old.draws and predicted[name].samples:  # does not reproduce the baseline with its seeds
            keys = [key for key in scope.cases if key in old.draws and drifts[name][key].size < math.inf]
            seeded = [(scope.cases[key], sampling.fresh_seeds(name, scope.cases[key], draw)) for key in keys]
            for key, drawn in zip(keys, draws_in(rules[name], seeded), strict=True):
                if isinstance(drawn, str):
                    failures[name, key] = drawn
                    continue
                metric = old.draws[key].metric
                samples[name, key] = sampling.summary_of(drawn, old.answers[key], oracle_of(key), metric)
        for key in moved:
            compared = (name, key) in samples or (name, key) in failures
            if not compared and (oracle := oracle_of(key)):
                sides = predicted[name].answers[key], old.answers[key]
                kls = [gaussian_kl(oracle, answer.law).value for answer in sides]
                distances[name, key] = dict(zip(("KL", "KL before"), kls, strict=True))
    step(len(olds), len(olds), "")
    evidence = sampling.evidence({name: old.draws for name, old in olds.items()}, samples)
    for name, old in olds.items():
        own = []
        for key, case in scope.cases.items():
            moved_here, now = drifts[name][key], predicted[name].answers[key]
            if error := failures.get((name, key)):
                own.append(Finding(name, case.name, Status.FAILED, error))
            elif tests := evidence.get((name, key)):
                own.append(_of_evidence(name, case.name, tests, moved_here.numbers))
            else:
                numbers = distances.get((name, key), {})
                status, text = _of_drift(old.answers[key], now, moved_here, numbers)
                own.append(Finding(name, case.name, status, text, moved_here.numbers | numbers))
        stopped = [key for key, finding in zip(scope.cases, own, strict=True) if finding.stops]
        if tests := evidence.get((name, "")):
            own.append(_of_evidence(name, ALL_CASES, tests, {}))
        elif stopped:
            own.append(_overall(name, old.answers, predicted[name].answers, drifts[name], stopped))
        elif len({finding.text for finding in own}) == 1 and own[0].status is Status.FAILED:
            own = [Finding(name, "", Status.FAILED, own[0].text)]
        findings += own
    sizes = [found.size for own in drifts.values() for found in own.values()]
    if not sizes:
        return Verdict(KIND, tuple(findings), "no prediction was compared")
    small = [size for size in sizes if size <= THRESHOLD]
    largest = max(small, default=0.0)
    text = "drift exactly 0" if largest == 0 else f"drift at most {largest:.2g}"
    no_oracles = "no fresh oracles (for changed cells only)"
    used = f"fresh oracles: {len(oracles)}, seed {draw}" if oracles else no_oracles
    note = f"{len(small)} of {len(sizes)} predictions unchanged or rounded ({text}); {used}"
    if distances:
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


def _of_evidence(name: str, case: str, evidence: Sequence[Evidence], numbers: dict[str, float]) -> Finding:
    found = functools.reduce(operator.or_, (one.numbers for one in evidence), numbers)
    return Finding(name, case, sampling.status(evidence), "; ".join(one.text for one in evidence), found)


def _overall(
    name: str,
    olds: Mapping[str, Answer],
    news: Mapping[str, Answer],
    drifts: Mapping[str, Drift],
    changed: Sequence[str],
) -> Finding:
    """Summarise the changed predictions of a rule: their common factor, or the largest change."""
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
    where = f"in {len(changed)} of {len(drifts)} cells and probes"
    return Finding(name, ALL_CASES, Status.CHANGED, f"{', '.join(texts)} {where}", numbers)
