"""The verdict on accuracy: drift of predictions, and statistics of sampling rules under fresh seeds.

See `sdp_bench.bench.gate` for the table of decisions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from sdp_bench.bench.errors import OutsideError
from sdp_bench.bench.gate import sampling
from sdp_bench.bench.gate.answers import THRESHOLD, Drift, common_factor, drift
from sdp_bench.bench.gate.baseline import Baseline, RuleBaseline
from sdp_bench.bench.gate.cells import Cell, Scope
from sdp_bench.bench.gate.guests import Asked
from sdp_bench.bench.gate.predictions import Drawn, Predictions, draws_in
from sdp_bench.bench.gate.sampling import Evidence, Sample
from sdp_bench.bench.gate.verdict import ALL_CASES, Finding, Status, Verdict
from sdp_bench.oracles.moments.moments import gaussian_kl
from sdp_ref.errors import UnsupportedError

KIND = "accuracy"
Step = Callable[[int, int, str], object]


@dataclass(frozen=True, eq=False)
class _Comparison:
    """One rule's predictions, in the baseline and now."""

    name: str
    rule: Asked
    old: RuleBaseline
    new: Predictions

    @cached_property
    def drifts(self) -> dict[str, Drift]:
        return {key: drift(answer, self.new.answers[key]) for key, answer in self.old.answers.items()}

    @cached_property
    def is_redrawn(self) -> bool:
        """Whether this is a sampling rule that does not reproduce the baseline under the baseline's seeds."""
        moved = any(THRESHOLD < drift.size < math.inf for drift in self.drifts.values())
        return moved and bool(self.old.draws) and self.new.samples

    def is_drawn(self, key: str) -> bool:
        """Return whether fresh draws are compared: only if both are laws with the same outputs."""
        return self.is_redrawn and key in self.old.draws and math.isfinite(self.drifts[key].size)


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
    compared = [
        _Comparison(name, rule, baseline.rules[name], predicted[name])
        for name, rule in rules.items()
        if name in baseline.rules
    ]
    drawn: dict[tuple[str, str], Drawn] = {}
    for comparison in compared:
        cases = {key: case for key, case in scope.cases.items() if comparison.is_drawn(key)}
        seeded = [(case, sampling.fresh_seeds(comparison.name, case, draw)) for case in cases.values()]
        drawn |= {
            (comparison.name, key): d for key, d in zip(cases, draws_in(comparison.rule, seeded), strict=True)
        }
    samples: dict[tuple[str, str], Sample] = {}
    distances: dict[tuple[str, str], tuple[float, float]] = {}
    oracles = 0
    for number, (key, case) in enumerate(scope.cases.items()):
        changed = [
            comparison
            for comparison in compared
            if comparison.is_drawn(key) or comparison.drifts[key].size > THRESHOLD
        ]
        if not changed:
            continue
        step(number, len(scope.cases), case.name)
        oracle = case.fresh_moments(draw) if isinstance(case, Cell) else None
        oracles += oracle is not None
        for comparison in changed:
            old, now = comparison.old.answers[key], comparison.new.answers[key]
            found = drawn.get((comparison.name, key))
            if isinstance(found, list):
                samples[comparison.name, key] = sampling.sample_of(
                    found, old, oracle, comparison.old.draws[key].metric
                )
            elif (
                oracle is not None
                and found is None
                and math.isfinite(comparison.drifts[key].size)
                and not now.error
            ):
                distances[comparison.name, key] = (
                    gaussian_kl(oracle, old.law).value,
                    gaussian_kl(oracle, now.law).value,
                )
    step(len(scope.cases), len(scope.cases), "")
    evidence = sampling.evidence({comparison.name: comparison.old.draws for comparison in compared}, samples)
    for comparison in compared:
        own = []
        for key, case in scope.cases.items():
            here = drawn.get((comparison.name, key))
            if isinstance(here, OutsideError):
                own.append(Finding(comparison.name, case.name, Status.FAILED, str(here)))
            elif tests := evidence.get((comparison.name, key)):
                own.append(_of_evidence(comparison.name, case.name, tests, comparison.drifts[key]))
            else:
                own.append(_of_drift(comparison, key, case.name, distances.get((comparison.name, key))))
        if tests := evidence.get((comparison.name, "")):
            own.append(_of_evidence(comparison.name, ALL_CASES, tests))
        elif any(finding.stops for finding in own):
            own.append(
                _overall(comparison, [key for key, f in zip(scope.cases, own, strict=True) if f.stops])
            )
        elif len({f.text for f in own}) == 1 and own[0].status is Status.FAILED:
            own = [Finding(comparison.name, "", Status.FAILED, own[0].text)]
        findings += own
    return Verdict(KIND, tuple(findings), _note(compared, oracles, draw))


def _of_drift(comparison: _Comparison, key: str, case: str, distances: tuple[float, float] | None) -> Finding:
    old, new, moved = comparison.old.answers[key], comparison.new.answers[key], comparison.drifts[key]
    numbers = moved.numbers
    if moved.size <= THRESHOLD:
        status = Status.ROUNDING if moved.size else Status.UNCHANGED
        return Finding(comparison.name, case, status, new.error or f"drift {moved.size:.2g}", numbers)
    if new.error and new.kind != UnsupportedError.__name__:
        return Finding(comparison.name, case, Status.FAILED, new.error)
    if math.isinf(moved.size):
        return Finding(comparison.name, case, Status.CHANGED, f"{old} before, now {new}", numbers)
    text = f"mean changed by {moved.mean:.2g} standard deviations, covariance by {moved.covariance:.2g}"
    if distances:
        before, now = distances
        text += f"; KL to a fresh oracle {now:.3g}, before {before:.3g}"
        numbers |= {"KL": now, "KL before": before}
    return Finding(comparison.name, case, Status.CHANGED, text, numbers)


def _of_evidence(name: str, case: str, evidence: Sequence[Evidence], moved: Drift | None = None) -> Finding:
    numbers = moved.numbers if moved else {}
    for one in evidence:
        numbers |= one.numbers
    return Finding(name, case, sampling.status(evidence), "; ".join(one.text for one in evidence), numbers)


def _overall(comparison: _Comparison, changed: Sequence[str]) -> Finding:
    """Summarise the changed predictions of a rule: their common factor, or the largest change."""
    comparable = [key for key in changed if comparison.drifts[key].size < math.inf]
    texts, numbers = [], {}
    for what in ("mean", "covariance"):
        largest = max((getattr(comparison.drifts[key], what) for key in comparable), default=0.0)
        if largest <= THRESHOLD:
            continue
        olds, news = (
            [getattr(side[key], what) for key in comparable]
            for side in (comparison.old.answers, comparison.new.answers)
        )
        factor = common_factor(olds, news)
        if factor is not None:
            texts.append(f"{what} x {factor:.4g}")
            numbers[f"{what} factor"] = factor
        else:
            size = f"{largest:.2g} standard deviations" if what == "mean" else f"{largest:.2%}"
            texts.append(f"{what} changed by up to {size}")
    if others := len(changed) - len(comparable):
        texts.append(f"another kind of result in {others} of these")
    where = f"in {len(changed)} of {len(comparison.drifts)} cells and probes"
    return Finding(comparison.name, ALL_CASES, Status.CHANGED, f"{', '.join(texts)} {where}", numbers)


def _note(compared: Sequence[_Comparison], oracles: int, draw: int) -> str:
    sizes = [drift.size for comparison in compared for drift in comparison.drifts.values()]
    if not sizes:
        return "no prediction was compared"
    small = [size for size in sizes if size <= THRESHOLD]
    largest = max(small, default=0.0)
    text = "exactly 0" if largest == 0 else f"at most {largest:.2g} (rounding)"
    fresh = f"fresh oracles: {oracles}, seed {draw}" if oracles else "no oracle was needed"
    return f"{len(small)} of {len(sizes)} predictions unchanged, drift {text}; {fresh}"
