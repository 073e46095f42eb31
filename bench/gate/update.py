"""Creation and update of a baseline: all of it, some rules, or only predictions or times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from sdp_bench.bench.environment import describe, threads
from sdp_bench.bench.errors import OutsideError, RunFailedError, UserError
from sdp_bench.bench.gate.answers.draws import Draws
from sdp_bench.bench.gate.answers.drift import THRESHOLD, drift
from sdp_bench.bench.gate.baseline import Baseline, RuleBaseline, read, write
from sdp_bench.bench.gate.cells import Cell, Scope
from sdp_bench.bench.gate.check import Options, Step, predict_all, rules_of
from sdp_bench.bench.gate.comparisons import probes, sampling, speed
from sdp_bench.bench.gate.comparisons.speed import Timing
from sdp_bench.bench.gate.guests import Asked
from sdp_bench.bench.gate.predictions import Predicted, draws_in


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
        predicted = _predicted(rules, scope, {}, step)
        found = {
            name: RuleBaseline(each.moments, _draws(name, rules[name], scope, each, step), each.answers)
            for name, each in predicted.items()
        }
        if timing is not None:
            found = _timed(found, rules, scope, timing, step)
    cells = {key: {"cell": cell.name, **asdict(cell.key)} for key, cell in scope.cells.items()}
    return Baseline(describe("cpu", 1, 1), scope.nets, cells, scope.probe_names, found)


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


def _predicted(
    rules: Mapping[str, Asked], scope: Scope, known: Mapping[str, RuleBaseline], step: Step
) -> dict[str, Predicted]:
    """Return predictions of all rules; each must have some."""
    predicted = predict_all(rules, scope, known, step)
    for name, each in predicted.items():
        if each.error:
            raise RunFailedError(f"no baseline is written: rule '{name}' fails on {each.error}")
    return predicted


def _draws(name: str, rule: Asked, scope: Scope, predicted: Predicted, step: Step) -> dict[str, Draws]:
    """Return a sampling rule's summary over many seeds in each cell and probe; empty for other rules."""
    if not predicted.samples:
        return {}
    places = {key: scope.places[key] for key in predicted.laws}
    drawn = draws_in(rule, [(each, sampling.fresh_seeds(name, each, 0)) for each in places.values()])
    found: dict[str, Draws] = {}
    for number, ((key, place), one) in enumerate(zip(places.items(), drawn, strict=True)):
        step(number, len(places), f"{name}: {place.name}")
        if isinstance(one, OutsideError):
            raise RunFailedError(f"no baseline is written: rule '{name}' fails on {place.name}: {one}")
        oracle = place.fresh_moments(0) if isinstance(place, Cell) else None
        found[key] = sampling.of_draws(one, predicted.laws[key], oracle).summary
    return found


def _timed(
    found: Mapping[str, RuleBaseline],
    rules: Mapping[str, Asked],
    scope: Scope,
    timing: Timing,
    step: Step,
) -> dict[str, RuleBaseline]:
    step(0, 1, "speed")
    times = speed.baseline_speeds(rules, scope, timing)
    return {name: replace(each, cpu=timing.cpu, speed=times[name]) for name, each in found.items()}


def _retimed(
    old: Baseline, specs: Sequence[str] | None, scope: Scope, timing: Timing, step: Step
) -> dict[str, RuleBaseline]:
    """Return rules with new times, whose predictions must equal the baseline's."""
    rules = rules_of(scope.rules if specs is None else specs)
    old.check_scope(scope)
    for name in rules:
        if name not in old.rules:
            raise UserError(
                f"rule '{name}' is not in the baseline, so it has no times; leave out --no-accuracy"
            )
    with threads(1):
        for name, each in _predicted(rules, scope, old.rules, step).items():
            known = old.rules[name]
            moved = [drift(moments, each.moments[key]).size for key, moments in known.predictions.items()]
            moved += [probes.compare(answer, each.answers[key]).size for key, answer in known.probes.items()]
            if max(moved) > THRESHOLD:
                raise UserError(
                    f"rule '{name}' predicts something else than the baseline (drift {max(moved):.2g}); "
                    "its times alone would be those of another rule; leave out --no-accuracy"
                )
        return _timed({name: old.rules[name] for name in rules}, rules, scope, timing, step)
