"""The verdict on accuracy: drift of predictions, and errors of sampling rules under fresh seeds.

See `sdp_bench.bench.gate` for the table of decisions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from sdp_bench.bench.errors import OutsideError
from sdp_bench.bench.gate.answers.drift import THRESHOLD, Drift, drift
from sdp_bench.bench.gate.baseline import Baseline, RuleBaseline
from sdp_bench.bench.gate.causes.explain import Seen, explain
from sdp_bench.bench.gate.cells import Cell, Scope
from sdp_bench.bench.gate.comparisons import probes, sampling
from sdp_bench.bench.gate.comparisons.evidence import Evidence
from sdp_bench.bench.gate.comparisons.sampling import Sample
from sdp_bench.bench.gate.guests import Asked
from sdp_bench.bench.gate.predictions import Drawn, Predicted, draws_in
from sdp_bench.bench.gate.probes import Probe
from sdp_bench.bench.gate.verdict import Cause, Finding, Status, Verdict
from sdp_bench.oracles.moments.moments import gaussian_kl

KIND = "accuracy"
ALL_CELLS = "all cells together"
Step = Callable[[int, int, str], None]


@dataclass(frozen=True, eq=False)
class _Comparison:
    """One rule's predictions, in the baseline and now."""

    name: str
    rule: Asked
    old: RuleBaseline
    new: Predicted

    @cached_property
    def drifts(self) -> dict[str, Drift]:
        found = {key: drift(moments, self.new.moments[key]) for key, moments in self.old.predictions.items()}
        for key, answer in self.old.probes.items():
            found[key] = probes.compare(answer, self.new.answers[key])
        return found

    @cached_property
    def is_redrawn(self) -> bool:
        """Whether this is a sampling rule whose draws differ under the baseline's seeds."""
        moved = any(THRESHOLD < each.size < math.inf for each in self.drifts.values())
        return moved and bool(self.old.draws) and self.new.samples

    def is_drawn(self, key: str) -> bool:
        """Return whether fresh draws add to the drift: only if both are laws with the same outputs."""
        return self.is_redrawn and key in self.old.draws and math.isfinite(self.drifts[key].size)

    def needs_oracle(self, key: str) -> bool:
        """Return whether a cell needs a fresh oracle."""
        return self.is_drawn(key) or self.drifts[key].size > THRESHOLD


@dataclass(frozen=True, eq=False)
class _Asked:
    """Results of fresh draws and oracles, by rule and cell key; an empty key stands for all cells."""

    samples: dict[tuple[str, str], Sample] = field(default_factory=dict)
    evidence: dict[tuple[str, str], list[Evidence]] = field(default_factory=dict)
    distances: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    failures: dict[tuple[str, str], str] = field(default_factory=dict)

    def keeps_its_draws(self, name: str) -> bool:
        """Return whether a rule significantly reuses the baseline's random numbers, with other results."""
        return sampling.keeps_its_draws(self.evidence.get((name, ""), ()))


def judge(
    baseline: Baseline,
    rules: Mapping[str, Asked],
    predicted: Mapping[str, Predicted],
    scope: Scope,
    *,
    draw: int,
    step: Step = lambda *_: None,
) -> Verdict:
    """Compare predictions with the baseline's; `draw` seeds the fresh oracles and fresh draws."""
    findings: list[Finding] = []
    compared: list[_Comparison] = []
    for name, rule in rules.items():
        if name not in baseline.rules:
            findings.append(Finding(name, "", Status.NEW, "not compared; --update takes it up"))
        elif predicted[name].error:
            findings.append(Finding(name, "", Status.FAILED, predicted[name].error))
        else:
            compared.append(_Comparison(name, rule, baseline.rules[name], predicted[name]))
    needed = {
        key: place
        for key, place in scope.places.items()
        if any(each.needs_oracle(key) if key in scope.cells else each.is_drawn(key) for each in compared)
    }
    asked = _ask(compared, needed, draw, step)
    causes: list[Cause] = []
    for each in compared:
        found = [_finding(each, key, place, asked) for key, place in scope.places.items()]
        if together := asked.evidence.get((each.name, "")):
            found.append(_of_evidence(each.name, ALL_CELLS, sampling.status(together), together))
        findings += found
        causes += _causes(each, scope, found, asked)
    oracles = sum(key in scope.cells for key in needed)
    return Verdict(KIND, tuple(findings), _note(compared, oracles, draw), tuple(causes))


def _ask(
    compared: Sequence[_Comparison], places: Mapping[str, Cell | Probe], draw: int, step: Step
) -> _Asked:
    """Collect fresh draws and oracles where needed, with p-values adjusted over all tests."""
    asked = _Asked()
    drawn: dict[tuple[str, str], Drawn] = {}
    for each in compared:
        keys = [key for key in places if each.is_drawn(key)]
        seeded = [(places[key], sampling.fresh_seeds(each.name, places[key], draw)) for key in keys]
        drawn |= {
            (each.name, key): found for key, found in zip(keys, draws_in(each.rule, seeded), strict=True)
        }
    for number, (key, place) in enumerate(places.items()):
        step(number, len(places), place.name)
        oracle = place.fresh_moments(draw) if isinstance(place, Cell) else None
        for each in compared:
            found = drawn.get((each.name, key))
            if isinstance(found, OutsideError):
                asked.failures[each.name, key] = str(found)
            elif found is not None:
                reference, metric = each.old.moments[key], each.old.draws[key].metric
                asked.samples[each.name, key] = sampling.of_draws(found, reference, oracle, metric)
            elif oracle is not None and each.needs_oracle(key):
                laws = each.old.predictions[key].law, each.new.moments[key].law
                before, now = (gaussian_kl(oracle, law).value for law in laws)
                asked.distances[each.name, key] = before, now
    step(len(places), len(places), "")
    olds = {each.name: each.old.draws for each in compared}
    today = {each.name: each.new.laws for each in compared}
    asked.evidence.update(sampling.evidence(olds, asked.samples, today))
    return asked


def _finding(compared: _Comparison, key: str, place: Cell | Probe, asked: _Asked) -> Finding:
    name, moved = compared.name, compared.drifts[key]
    if (name, key) in asked.failures:
        return Finding(name, place.name, Status.FAILED, asked.failures[name, key])
    evidence = asked.evidence.get((name, key))
    if evidence is None and isinstance(place, Probe):
        return probes.finding(name, place.name, compared.old.probes[key], compared.new.answers[key], moved)
    status = Status.ROUNDING if moved.size else Status.UNCHANGED
    if moved.size > THRESHOLD:
        status = Status.CHANGED
    if evidence:
        judged = sampling.status(evidence)
        if moved.size <= THRESHOLD:
            status = status if judged is Status.REDRAWN else judged
        elif judged is Status.WORSE or not asked.keeps_its_draws(name):
            status = judged
        return _of_evidence(name, place.name, status, evidence, moved)
    text, numbers = f"drift {moved.size:.2g}", moved.numbers
    if (name, key) in asked.distances:
        before, now = asked.distances[name, key]
        text += f"; KL to a fresh oracle {now:.3g}, before {before:.3g}"
        numbers |= {"KL": now, "KL before": before}
    return Finding(name, place.name, status, text, numbers)


def _of_evidence(
    name: str, cell: str, status: Status, found: Sequence[Evidence], moved: Drift | None = None
) -> Finding:
    texts = [f"drift {moved.size:.2g}"] if moved else []
    numbers = moved.numbers if moved else {}
    for each in found:
        texts.append(each.text)
        numbers |= each.numbers
    return Finding(name, cell, status, "; ".join(texts), numbers)


def _causes(compared: _Comparison, scope: Scope, found: Sequence[Finding], asked: _Asked) -> Iterator[Cause]:
    statuses = {finding.cell: finding.status for finding in found}
    drawn = asked.samples if not asked.keeps_its_draws(compared.name) else {}
    now = compared.new.laws
    seen = []
    for key, place in scope.places.items():
        sample = drawn.get((compared.name, key))
        if sample is not None:
            old = compared.old.draws[key]
            seen.append(Seen.of_draws(place, statuses[place.name], sample.units, old, sample.summary))
        else:
            laws, comparable = (
                (compared.old.moments.get(key), now.get(key)),
                math.isfinite(compared.drifts[key].size),
            )
            seen.append(Seen(place, statuses[place.name], *laws, comparable=comparable))
    together = next((finding for finding in found if finding.cell == ALL_CELLS), None)
    cause = explain(compared.name, seen, together)
    if cause is not None:
        yield cause


def _note(compared: Sequence[_Comparison], oracles: int, draw: int) -> str:
    sizes = [each.drifts[key].size for each in compared for key in each.old.predictions]
    if not sizes:
        return "no prediction was compared"
    small = [size for size in sizes if size <= THRESHOLD]
    largest = max(small, default=0.0)
    said = "exactly 0" if largest == 0 else f"at most {largest:.2g} (rounding)"
    asked = f"{oracles} fresh oracles, seed {draw}" if oracles else "no oracle was needed"
    return f"{len(small)} of {len(sizes)} predictions in cells with oracles unchanged, drift {said}; {asked}"
