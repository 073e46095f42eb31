"""The verdict on accuracy: drift of the predictions, and of sampling rules their errors under fresh seeds.

See :mod:`sdp_bench.bench.gate` for the table of decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from sdp_bench.bench.errors import one_line
from sdp_bench.bench.gate.answers.drift import THRESHOLD, Drift, drift
from sdp_bench.bench.gate.baseline import Baseline, RuleBaseline
from sdp_bench.bench.gate.cells import Cell, Scope
from sdp_bench.bench.gate.comparisons import probes, sampling
from sdp_bench.bench.gate.comparisons.evidence import Evidence, adjust
from sdp_bench.bench.gate.predictions import Predicted
from sdp_bench.bench.gate.verdict import Finding, Status, Verdict
from sdp_bench.oracles.moments.moments import gaussian_kl
from sdp_ref.rules import Propagator

KIND = "accuracy"
ALL_CELLS = "all cells together"
Step = Callable[[int, int, str], None]


@dataclass(frozen=True, eq=False)
class _Comparison:
    """One rule's predictions beside the baseline's."""

    name: str
    rule: Propagator
    old: RuleBaseline
    new: Predicted

    @cached_property
    def drifts(self) -> dict[str, Drift]:
        """By the keys of the cells."""
        return {key: drift(moments, self.new.moments[key]) for key, moments in self.old.predictions.items()}

    @property
    def is_redrawn(self) -> bool:
        """Whether it is a sampling rule that draws otherwise under the baseline's seeds."""
        moved = any(each.size > THRESHOLD for each in self.drifts.values())
        return moved and hasattr(self.rule, "seed")

    @property
    def has_errors(self) -> bool:
        """Whether its errors tell more than its drift: not if it was no sampling rule in the baseline."""
        return self.is_redrawn and bool(self.old.errors)

    def needs_oracle(self, key: str) -> bool:
        """Whether there is something to ask a fresh oracle in a cell."""
        return self.has_errors or self.drifts[key].size > THRESHOLD


@dataclass(frozen=True, eq=False)
class _Asked:
    """What fresh oracles say, by rule and key of the cell; of all cells together by an empty key."""

    errors: dict[tuple[str, str], list[Evidence]] = field(default_factory=dict)
    distances: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    failures: dict[tuple[str, str], str] = field(default_factory=dict)


def judge(
    baseline: Baseline,
    rules: Mapping[str, Propagator],
    predicted: Mapping[str, Predicted],
    scope: Scope,
    *,
    draw: int,
    step: Step = lambda *_: None,
) -> Verdict:
    """Compare today's predictions with the baseline's.

    Parameters
    ----------
    baseline : Baseline
    rules : mapping of str to Propagator
        By spec.
    predicted : mapping of str to Predicted
        Of each rule.
    scope : Scope
        What they were asked about.
    draw : int
        Root of the seeds of the fresh oracles, and of a sampling rule's fresh draws.
    step : callable
        Told about each fresh oracle: number, of how many, and the cell.

    Returns
    -------
    Verdict
    """
    findings: list[Finding] = []
    compared: list[_Comparison] = []
    for name, rule in rules.items():
        if name not in baseline.rules:
            findings.append(Finding(name, "", Status.NEW, "not compared; --update takes it up"))
        elif predicted[name].error:
            findings.append(Finding(name, "", Status.FAILED, predicted[name].error))
        else:
            compared.append(_Comparison(name, rule, baseline.rules[name], predicted[name]))
    needed = [cell for key, cell in scope.cells.items() if any(each.needs_oracle(key) for each in compared)]
    asked = _ask(compared, needed, draw, step)
    for each in compared:
        old, new = each.old.probes, each.new.answers
        findings += probes.findings(each.name, baseline.probes, old, new, redrawn=each.is_redrawn)
        findings += [_finding(each, cell, asked) for cell in scope.cells.values()]
        if together := asked.errors.get((each.name, "")):
            findings.append(_of_errors(each.name, ALL_CELLS, sampling.status(together), together))
    return Verdict(KIND, tuple(findings), _note(compared, len(needed), draw))


def _ask(compared: Sequence[_Comparison], cells: Sequence[Cell], draw: int, step: Step) -> _Asked:
    """Ask fresh oracles about all that needs one, with p-values adjusted for all of it."""
    errors: dict[tuple[str, str], list[Evidence]] = {}
    asked = _Asked()
    for number, cell in enumerate(cells):
        step(number, len(cells), cell.words)
        oracle, key = cell.fresh_moments(draw), cell.key.hex
        for each in compared:
            if each.has_errors:
                seeds = sampling.fresh_seeds(each.rule, cell.key, draw)
                try:
                    errors[each.name, key] = sampling.compare(
                        each.rule, cell, oracle, each.old.errors[key], seeds
                    )
                except Exception as error:  # noqa: BLE001  a rule may raise anything under other seeds
                    asked.failures[each.name, key] = one_line(error)
            elif each.needs_oracle(key):
                laws = each.old.predictions[key].law, each.new.moments[key].law
                before, now = (gaussian_kl(oracle, law).value for law in laws)
                asked.distances[each.name, key] = before, now
    step(len(cells), len(cells), "")
    for name in {name: None for name, _ in errors}:
        errors[name, ""] = sampling.pooled([found for (rule, _), found in errors.items() if rule == name])
    asked.errors.update(adjust(errors))
    return asked


def _finding(compared: _Comparison, cell: Cell, asked: _Asked) -> Finding:
    place, moved = (compared.name, cell.key.hex), compared.drifts[cell.key.hex]
    if place in asked.failures:
        return Finding(compared.name, cell.words, Status.FAILED, asked.failures[place])
    status = Status.ROUNDING if moved.size else Status.UNCHANGED
    if moved.size > THRESHOLD:
        status = Status.CHANGED
    if found := asked.errors.get(place):
        judged = sampling.status(found)
        if judged is not Status.REDRAWN or moved.size > THRESHOLD:
            status = judged
        return _of_errors(compared.name, cell.words, status, found, moved)
    text, numbers = f"drift {moved.size:.2g}", moved.numbers
    if place in asked.distances:
        before, now = asked.distances[place]
        text += f"; KL to a fresh oracle {now:.3g}, before {before:.3g}"
        numbers |= {"KL": now, "KL before": before}
    return Finding(compared.name, cell.words, status, text, numbers)


def _of_errors(
    name: str, cell: str, status: Status, found: Sequence[Evidence], moved: Drift | None = None
) -> Finding:
    texts = [f"drift {moved.size:.2g}"] if moved else []
    numbers = moved.numbers if moved else {}
    for each in found:
        texts.append(each.text)
        numbers |= each.numbers
    return Finding(name, cell, status, "; ".join(texts), numbers)


def _note(compared: Sequence[_Comparison], oracles: int, draw: int) -> str:
    sizes = [moved.size for each in compared for moved in each.drifts.values()]
    if not sizes:
        return "no prediction was compared"
    small = [size for size in sizes if size <= THRESHOLD]
    largest = max(small, default=0.0)
    said = "exactly 0" if largest == 0 else f"at most {largest:.2g} (rounding)"
    asked = f"{oracles} fresh oracles, seed {draw}" if oracles else "no oracle was needed"
    return f"{len(small)} of {len(sizes)} predictions in cells with oracles unchanged, drift {said}; {asked}"
