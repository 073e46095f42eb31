"""Creation and update of a baseline: all of it, some rules, or only predictions or times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sdp_bench.bench.environment import describe, threads
from sdp_bench.bench.errors import OutsideError, RunFailedError, UserError
from sdp_bench.bench.gate import sampling, speed
from sdp_bench.bench.gate.answers import THRESHOLD, drift
from sdp_bench.bench.gate.baseline import Baseline, RuleBaseline, read, write
from sdp_bench.bench.gate.cells import Cell, Scope
from sdp_bench.bench.gate.check import Options, Step, rules_of
from sdp_bench.bench.gate.predictions import Asked, Predictions, draws_in, predict
from sdp_bench.bench.gate.sampling import Draws
from sdp_bench.bench.gate.speed import Timing


def make(
    specs: Sequence[str] | None = None,
    scope: Scope | None = None,
    *,
    timing: Timing | None = None,
    step: Step = lambda *_: None,
) -> Baseline:
    """Return the baseline of some rules as they are now.

    `specs` default to all rules of the scope, and `scope` to the cells of continuous integration and all
    probes. Without `timing` the baseline has no times. `step` is called with number, total and name of each
    step. An unknown rule raises a UserError, and a rule that cannot be run a RunFailedError.
    """
    scope = scope or Scope.of_ci()
    rules = rules_of(scope.rules if specs is None else specs)
    with threads(1):
        found = {}
        for number, (name, rule) in enumerate(rules.items()):
            step(number, len(rules), name)
            predicted = _predicted(name, rule, scope, None)
            found[name] = RuleBaseline(predicted.answers, _draws(name, rule, scope, predicted, step))
        if timing is not None:
            step(0, 1, "speed")
            found = speed.timed(found, rules, scope, timing)
    return Baseline(describe("cpu", 1, 1), {key: case.name for key, case in scope.cases.items()}, found)


def update(
    path: Path,
    options: Options,
    scope: Scope | None = None,
    *,
    timing: Timing | None = None,
    step: Step = lambda *_: None,
) -> list[str]:
    """Write a baseline with the requested rules updated, and return their specs.

    Without `options.rules`, exactly the rules of the scope are kept. Without `options.speed`, times and their
    processor stay as in the file. Without `options.accuracy`, only times are updated, for rules whose
    predictions are unchanged. Other arguments are those of `make`.

    A UserError is raised if the file exists and is not a baseline, if it has other cells and only some rules
    are requested, if neither predictions nor times are requested, and if only times are requested for a rule
    that is not in the file or has changed. A rule that cannot be run raises a RunFailedError.
    """
    if not (options.accuracy or options.speed):
        raise UserError("--no-accuracy and --no-speed leave nothing to update")
    scope = scope or Scope.of_ci()
    timing = timing or Timing()
    old = read(path) if path.exists() or not options.accuracy else None
    if old is not None and not options.accuracy:
        timed = _retimed(old, options.rules, scope, timing, step)
        write(path, replace(old, rules={**old.rules, **timed}))
        return list(timed)
    newer = make(options.rules, scope, timing=timing if options.speed else None, step=step)
    rules = newer.rules
    if old is not None:
        if options.rules is not None:
            old.check_scope(scope)
        if not options.speed:
            kept = {name: old.rules[name] for name in rules.keys() & old.rules.keys()}
            rules |= {name: replace(rules[name], cpu=was.cpu, speed=was.speed) for name, was in kept.items()}
    others = {} if old is None or options.rules is None else old.rules
    write(path, replace(newer, rules={**others, **rules}))
    return list(rules)


def _predicted(name: str, rule: Asked, scope: Scope, known: RuleBaseline | None) -> Predictions:
    """Return the predictions of a rule, which must not fail in any cell."""
    predicted = predict(rule, scope, known.answers if known else None)
    for key, cell in scope.cells.items():
        if error := predicted.answers[key].error:
            raise RunFailedError(f"no baseline is written: rule '{name}' fails on {cell.name}: {error}")
    return predicted


def _draws(name: str, rule: Asked, scope: Scope, predicted: Predictions, step: Step) -> dict[str, Draws]:
    """Return a sampling rule's summary over many seeds in each case with a law; empty for other rules."""
    if not predicted.samples:
        return {}
    cases = {key: case for key, case in scope.cases.items() if not predicted.answers[key].error}
    drawn = draws_in(rule, [(case, sampling.fresh_seeds(name, case, 0)) for case in cases.values()])
    found: dict[str, Draws] = {}
    for number, ((key, case), answers) in enumerate(zip(cases.items(), drawn, strict=True)):
        step(number, len(cases), f"{name}: {case.name}")
        if isinstance(answers, OutsideError):
            raise RunFailedError(f"no baseline is written: rule '{name}' fails on {case.name}: {answers}")
        oracle = case.fresh_moments(0) if isinstance(case, Cell) else None
        found[key] = sampling.sample_of(answers, predicted.answers[key], oracle).summary
    return found


def _retimed(
    old: Baseline, specs: Sequence[str] | None, scope: Scope, timing: Timing, step: Step
) -> dict[str, RuleBaseline]:
    """Return rules with new times, whose predictions must equal the baseline's."""
    rules = rules_of(scope.rules if specs is None else specs)
    old.check_scope(scope)
    if unknown := [name for name in rules if name not in old.rules]:
        raise UserError(f"rule '{unknown[0]}' is not in the baseline; leave out --no-accuracy to add it")
    with threads(1):
        for number, (name, rule) in enumerate(rules.items()):
            step(number, len(rules), name)
            known = old.rules[name]
            now = _predicted(name, rule, scope, known).answers
            moved = max(drift(answer, now[key]).size for key, answer in known.answers.items())
            if moved > THRESHOLD:
                raise UserError(
                    f"the predictions of rule '{name}' have changed (drift {moved:.2g}), so the baseline "
                    "would combine old predictions with new times; leave out --no-accuracy"
                )
        step(0, 1, "speed")
        return speed.timed({name: old.rules[name] for name in rules}, rules, scope, timing)
