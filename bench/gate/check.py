"""A check of rules against a baseline, and its creation and update: all of it, or a part."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .. import rules as plugins
from ..environment import describe, threads
from ..errors import RunFailedError, UserError
from ..experiments.laws import canonical_rules
from ..metrics.references import Reference
from ..plugins.plugin import Plugin, plugin_of
from . import accuracy, speed
from .baseline import Baseline, RuleBaseline, read, write
from .cases import GateScope
from .predictions import THRESHOLD, CheckedRule, GatePrediction, drift, predict
from .speed import Timing
from .verdict import PASSED, RANKED, STOPPING, Finding, GateVerdict, Status, Step, exit_code


@dataclass(frozen=True)
class Options:
    """What to check."""

    rules: tuple[str, ...] | None = None  # specs and addresses of plug-ins; by default all rules of the scope
    seed: int | None = None  # seed of the fresh oracles; random by default
    # which checks to run
    accuracy: bool = True
    speed: bool = True
    allow_new: bool = False  # whether rules without predictions or times in the baseline pass


@dataclass(frozen=True, eq=False)
class CheckOutcome:
    """The result of a check."""

    verdicts: tuple[GateVerdict, ...]
    seed: int  # seed of the fresh oracles; the same seed gives the same verdict on accuracy
    environment: dict[str, Any]
    file: Path = Path("ci.json")  # the baseline
    addresses: Mapping[str, str] = field(default_factory=dict)  # addresses of plug-ins, by spec

    @property
    def status(self) -> str:
        """The most severe status of all verdicts; see `GateVerdict.status`."""
        statuses = [verdict.status for verdict in self.verdicts]
        return next((status for status in RANKED if status in statuses), PASSED)

    @property
    def exit_code(self) -> int:
        return exit_code(self.verdicts)

    @property
    def next_steps(self) -> list[str]:
        """Suggested commands, each with its purpose; empty if there is nothing to do."""
        steps = []
        same = {
            rule
            for verdict in self.verdicts
            if verdict.kind == accuracy.KIND
            for rule in verdict.rules(*Status)
            if rule not in verdict.rules(*STOPPING, Status.FAILED, Status.NEW)
        }
        for verdict in self.verdicts:
            moved = verdict.rules(Status.WORSE, Status.CHANGED) if verdict.kind == accuracy.KIND else []
            purposes = dict.fromkeys(verdict.rules(Status.FAILED), "to see why it fails")
            purposes |= dict.fromkeys(moved, "to see whether the change is an error")
            for rule, purpose in purposes.items():
                words = ["sdp-bench", "check-rule", self.addresses.get(rule, rule)]
                steps.append(f"{purpose}: {shlex.join(words)}")
            if verdict.having(Status.GONE):
                steps.append(f"to drop the removed rules: {self._update([])}")
            new = verdict.rules(Status.NEW)
            only = {accuracy.KIND: ["--no-speed"], speed.KIND: ["--no-accuracy"]}[verdict.kind]
            for rules, purpose, options in (
                (verdict.rules(Status.WORSE, Status.CHANGED), f"accept the change of {verdict.kind}", only),
                ([r for r in new if r not in same], "add the new rules to the baseline", []),
                ([r for r in new if r in same], "add times to the baseline", only),
                (verdict.rules(Status.BETTER), "keep the improvement in the baseline", only),
            ):
                if rules:
                    steps.append(f"to {purpose}: {self._update(rules, *options)}")
        return list(dict.fromkeys(steps))

    def _update(self, rules: Sequence[str], *options: str) -> str:
        named = ["--rules", ",".join(self.addresses.get(rule, rule) for rule in rules)] if rules else []
        words = ["sdp-bench", "check", "--baseline", str(self.file), *named, "--update", *options]
        return shlex.join(words)


def rules_of(specs: Sequence[str]) -> dict[str, CheckedRule]:
    """Return rules or plug-ins by canonical spec, given specs and addresses of plug-ins."""
    names, found = plugins.resolve(specs)
    rules: dict[str, CheckedRule] = {}
    for name in canonical_rules(names, found):
        if plugin := plugin_of(name, found):
            rules[name] = plugin
            continue
        rule = plugins.rule_of(name)
        if isinstance(rule, Reference):
            raise UserError(f"'{name}' is a reference, not a rule; the gate checks rules only")
        rules[name] = rule
    return rules


def check(
    baseline: Baseline,
    options: Options,
    scope: GateScope | None = None,
    *,
    file: Path = Path("ci.json"),
    timing: Timing | None = None,
    step: Step = lambda *_: None,
) -> CheckOutcome:
    """Check rules against a baseline, in the cells of continuous integration and all probes by default.

    `file` is the path of the baseline, for the commands in the report. A UserError is raised for an unknown
    rule, for a baseline with other cells, and for a rule without predictions or times in the baseline, unless
    `options.allow_new` is set.
    """
    scope = scope or GateScope.of_ci()
    rules = rules_of(scope.rules if options.rules is None else options.rules)
    addresses = {
        name: ":".join(filter(None, (rule.address, rule.options)))
        for name, rule in rules.items()
        if isinstance(rule, Plugin)
    }
    baseline.check_scope(scope)
    for name in () if options.allow_new else rules:  # nothing would be compared
        if name not in baseline.rules:
            raise UserError(
                f"rule '{name}' is not in the baseline; accept it with --rules {addresses.get(name, name)} "
                "--update, or skip it with --allow-new"
            )
        if options.speed and not scope.nets.keys() <= baseline.rules[name].speed.keys():
            raise UserError(
                f"the baseline has no times of rule '{name}' that this release can compare; measure them "
                "with --update --no-accuracy, skip times with --no-speed, or skip the rule with --allow-new"
            )
    seed = secrets.randbits(63) if options.seed is None else options.seed
    verdicts = []
    with threads(1):
        if options.accuracy:
            predicted = _predicted(rules, scope, step)
            verdicts.append(accuracy.judge(baseline, predicted, scope, draw=seed, step=step))
        if options.speed:
            verdicts.append(speed.judge(baseline, rules, scope, timing or Timing(), step))
    if options.rules is None and verdicts:
        gone = sorted(baseline.rules.keys() - rules.keys())
        findings = tuple(Finding(name, "", Status.GONE, "not checked; --update drops it") for name in gone)
        verdicts[0] = replace(verdicts[0], findings=verdicts[0].findings + findings)
    return CheckOutcome(tuple(verdicts), seed, describe("cpu", 1, 1), file, addresses)


def _predicted(
    rules: Mapping[str, CheckedRule], scope: GateScope, step: Step, *, complete: bool = False
) -> dict[str, dict[str, GatePrediction]]:
    """Return the predictions of rules; a RunFailedError if one fails in a cell and all must be `complete`."""
    predicted = {}
    for number, (name, rule) in enumerate(rules.items()):
        step(number, len(rules), name)
        predicted[name] = predict(rule, scope)
        for key, cell in scope.cells.items() if complete else ():
            if error := predicted[name][key].error:
                raise RunFailedError(f"no baseline is written: rule '{name}' fails on {cell.name}: {error}")
    return predicted


def make(
    specs: Sequence[str] | None = None,
    scope: GateScope | None = None,
    *,
    timing: Timing | None = None,
    step: Step = lambda *_: None,
) -> Baseline:
    """Return the baseline of some rules as they are now, by default all of the scope.

    Without `timing` the baseline has no times. An unknown rule raises a UserError, and a rule that cannot be
    run a RunFailedError.
    """
    scope = scope or GateScope.of_ci()
    rules = rules_of(scope.rules if specs is None else specs)
    with threads(1):
        predicted = _predicted(rules, scope, step, complete=True)
        found = {name: RuleBaseline(answers) for name, answers in predicted.items()}
        if timing is not None:
            found = speed.timed(found, rules, scope, timing, step)
    return Baseline(describe("cpu", 1, 1), {key: case.name for key, case in scope.cases.items()}, found)


def update(
    path: Path,
    options: Options,
    scope: GateScope | None = None,
    *,
    timing: Timing | None = None,
    step: Step = lambda *_: None,
) -> list[str]:
    """Write a baseline with the requested rules updated, and return their specs.

    Without `options.rules`, exactly the rules of the scope are kept. Without `options.speed`, times and their
    processor stay as in the file. Without `options.accuracy`, only times are updated, for rules with
    unchanged predictions. A UserError is raised if the file and the request do not fit, and a RunFailedError
    if a rule cannot be run.
    """
    if not (options.accuracy or options.speed):
        raise UserError("--no-accuracy and --no-speed leave nothing to update")
    scope = scope or GateScope.of_ci()
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


def _retimed(
    old: Baseline, specs: Sequence[str] | None, scope: GateScope, timing: Timing, step: Step
) -> dict[str, RuleBaseline]:
    """Return rules with new times; their predictions must equal the baseline's."""
    rules = rules_of(scope.rules if specs is None else specs)
    old.check_scope(scope)
    if unknown := [name for name in rules if name not in old.rules]:
        raise UserError(f"rule '{unknown[0]}' is not in the baseline; leave out --no-accuracy to add it")
    with threads(1):
        for name, now in _predicted(rules, scope, step, complete=True).items():
            known = old.rules[name].answers
            moved = max(drift(answer, now[key]).size for key, answer in known.items())
            if moved > THRESHOLD:
                raise UserError(
                    f"the predictions of rule '{name}' have changed (drift {moved:.2g}), so the baseline "
                    "would combine old predictions with new times; leave out --no-accuracy"
                )
        return speed.timed({name: old.rules[name] for name in rules}, rules, scope, timing, step)
