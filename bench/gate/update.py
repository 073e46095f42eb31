"""The baseline that a check would leave: all of it, some rules, predictions or times alone."""

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
    """Baseline of some rules as they are now.

    Parameters
    ----------
    specs : sequence of str, optional
        Instead of all that the scope names.
    scope : Scope, optional
        What rules are asked about; by default the cells of continuous integration and all probes.
    timing : Timing, optional
        How times are taken; if none, none are.
    step : callable
        Told how far it is: number, of how many, and what.

    Raises
    ------
    UserError
        If there is no such rule.
    RunFailedError
        If one cannot be run.
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
    """Write a baseline: the rules asked for anew, others as they were.

    Parameters
    ----------
    path : Path
    options : Options
        Without `rules` all that the scope names, and only these, are kept. Without `speed` the times stay
        those of the file, with the processor that they were taken on. Without `accuracy` the predictions
        stay, and times alone are taken anew: of rules that still predict what the file has.
    scope : Scope, optional
        What rules are asked about; by default the cells of continuous integration and all probes.
    timing : Timing, optional
        How times are taken.
    step : callable
        Told how far it is: number, of how many, and what.

    Returns
    -------
    list of str
        Rules that it took up.

    Raises
    ------
    UserError
        If the file is there and is no baseline, or is about other cells and only some rules are asked for;
        if neither predictions nor times are wanted; and if times alone are wanted of a rule that is not in
        the file, or predicts something else now.
    RunFailedError
        If a rule cannot be run, or the file cannot be written.
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
    """Predictions of all rules, every one of which must have some."""
    predicted = predict_all(rules, scope, known, step)
    for name, each in predicted.items():
        if each.error:
            raise RunFailedError(f"no baseline is written: rule '{name}' fails on {each.error}")
    return predicted


def _draws(name: str, rule: Asked, scope: Scope, predicted: Predicted, step: Step) -> dict[str, Draws]:
    """What a sampling rule says over many seeds, in each cell and probe; nothing of other rules."""
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
    """Rules with times of today, whose predictions are still those of the baseline."""
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
