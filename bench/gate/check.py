"""A check of rules against a baseline and an older version; creation and update of the baseline."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
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
from .predictions import CheckedRule, GatePrediction, predict
from .speed import Timing
from .verdict import Finding, GateVerdict, Status, Step, exit_code, overall
from .versions import old_version


@dataclass(frozen=True)
class Options:
    """What to check."""

    rules: tuple[str, ...] | None = None  # specs and addresses of plug-ins; by default all rules of the scope
    seed: int | None = None  # seed of the fresh oracles; random by default
    allow_new: bool = False  # whether rules that are not in the baseline pass
    against: str | None = None  # Git revision or folder whose times are compared; by default none are
    allow_slower: tuple[str, ...] = ()  # rules, as in `rules`, that may have become slower


@dataclass(frozen=True, eq=False)
class CheckOutcome:
    """The result of a check."""

    verdicts: tuple[GateVerdict, ...]
    seed: int  # seed of the fresh oracles; the same seed gives the same verdict on accuracy
    environment: dict[str, Any]
    file: Path | None = None  # the baseline
    addresses: Mapping[str, str] = field(default_factory=dict)  # addresses of plug-ins, by spec
    against: str | None = None

    @property
    def status(self) -> str:
        """The most severe status of all verdicts; see `GateVerdict.status`."""
        return overall(self.verdicts)

    @property
    def exit_code(self) -> int:
        return exit_code(self.verdicts)

    @property
    def next_steps(self) -> list[str]:
        """Suggested commands, each with its purpose; empty if there is nothing to do."""
        steps = []
        for verdict in self.verdicts:
            is_accuracy = verdict.kind == accuracy.KIND
            changed = verdict.rules(Status.CHANGED)
            purposes = dict.fromkeys(verdict.rules(Status.FAILED), "to see why it fails")
            purposes |= dict.fromkeys(changed, "to see whether the change is an error")
            for rule, purpose in purposes.items():
                words = ["sdp-bench", "check-rule", self.addresses.get(rule, rule)]
                steps.append(f"{purpose}: {shlex.join(words)}")
            if verdict.having(Status.GONE):
                steps.append(f"to drop the removed rules: {self._command([], '--update')}")
            if changed:
                steps.append(f"to accept the change of accuracy: {self._command(changed, '--update')}")
            if is_accuracy and (new := verdict.rules(Status.NEW)):
                steps.append(f"to add the new rules to the baseline: {self._command(new, '--update')}")
            if slower := verdict.rules(Status.SLOWER):
                accepted = ",".join(self.addresses.get(rule, rule) for rule in slower)
                words = ["--against", self.against or "", "--allow-slower", accepted]
                steps.append(f"to accept the slow-down: {self._command(slower, *words)}")
        return list(dict.fromkeys(steps))

    def _command(self, rules: Sequence[str], *options: str) -> str:
        baseline = ["--baseline", str(self.file)] if self.file else []
        named = ["--rules", ",".join(self.addresses.get(rule, rule) for rule in rules)] if rules else []
        return shlex.join(["sdp-bench", "check", *baseline, *named, *options])


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
    baseline: Baseline | None,
    options: Options,
    scope: GateScope | None = None,
    *,
    file: Path | None = None,
    timing: Timing | None = None,
    step: Step = lambda *_: None,
) -> CheckOutcome:
    """Check rules against a baseline and an older version, in the cells of continuous integration by default.

    Predictions are compared if there is a baseline, also on all probes, and times if `options.against` is
    given. `file` is the path of the baseline, for the commands in the report. A UserError is raised for an
    unknown rule or version, for a baseline with other cells, for a rule that is not in the baseline, unless
    `options.allow_new` is set, and if there is nothing to compare with.
    """
    if baseline is None and not options.against:
        raise UserError("nothing to compare with: give a --baseline for predictions or --against for times")
    scope = scope or GateScope.of_ci()
    rules = rules_of(scope.rules if options.rules is None else options.rules)
    addresses = {name: rule.address for name, rule in rules.items() if isinstance(rule, Plugin)}
    seed = secrets.randbits(63) if options.seed is None else options.seed
    verdicts = []
    with threads(1), ExitStack() as stack:
        old = None
        if options.against:
            allowed = _allowed(options.allow_slower, rules, addresses)
            old = stack.enter_context(old_version(options.against, rules))
        if baseline is not None:
            verdicts.append(_accuracy(baseline, rules, addresses, options, seed, scope, step))
        if old is not None:
            verdicts.append(speed.judge(rules, old, scope, timing or Timing(), allowed=allowed, step=step))
    environment = describe("cpu", 1, 1)
    return CheckOutcome(tuple(verdicts), seed, environment, file, addresses, options.against)


def _allowed(
    named: Sequence[str], rules: Mapping[str, CheckedRule], addresses: Mapping[str, str]
) -> list[str]:
    """Return the rules that may be slower, given specs and addresses; each must be checked."""
    by_name = {addresses.get(rule, rule): rule for rule in rules} | {rule: rule for rule in rules}
    for name in named:
        if name not in by_name:
            raise UserError(f"--allow-slower: '{name}' is not checked; choose from {', '.join(rules)}")
    return [by_name[name] for name in named]


def _accuracy(
    baseline: Baseline,
    rules: Mapping[str, CheckedRule],
    addresses: Mapping[str, str],
    options: Options,
    seed: int,
    scope: GateScope,
    step: Step,
) -> GateVerdict:
    baseline.check_scope(scope)
    for name in () if options.allow_new else rules:  # nothing would be compared
        if name not in baseline.rules:
            raise UserError(
                f"rule '{name}' is not in the baseline; accept it with --rules {addresses.get(name, name)} "
                "--update, or skip it with --allow-new"
            )
    predicted = _predicted(rules, scope, step)
    verdict = accuracy.judge(baseline, predicted, scope, draw=seed, step=step)
    gone = sorted(baseline.rules.keys() - rules.keys()) if options.rules is None else []
    findings = [Finding(name, "", Status.GONE, "not checked; --update drops it") for name in gone]
    return replace(verdict, findings=(*verdict.findings, *findings))


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
    specs: Sequence[str] | None = None, scope: GateScope | None = None, *, step: Step = lambda *_: None
) -> Baseline:
    """Return the baseline of some rules as they are now, by default all of the scope.

    An unknown rule raises a UserError, and a rule that cannot be run a RunFailedError.
    """
    scope = scope or GateScope.of_ci()
    rules = rules_of(scope.rules if specs is None else specs)
    with threads(1):
        predicted = _predicted(rules, scope, step, complete=True)
    found = {name: RuleBaseline(answers) for name, answers in predicted.items()}
    return Baseline(describe("cpu", 1, 1), {key: case.name for key, case in scope.cases.items()}, found)


def update(
    path: Path,
    specs: Sequence[str] | None = None,
    scope: GateScope | None = None,
    *,
    step: Step = lambda *_: None,
) -> list[str]:
    """Write a baseline with the requested rules updated, and return their specs.

    Without `specs`, exactly the rules of the scope are kept. A UserError is raised if the file and the
    request do not fit, and a RunFailedError if a rule cannot be run.
    """
    scope = scope or GateScope.of_ci()
    old = read(path) if path.exists() else None
    newer = make(specs, scope, step=step)
    others: dict[str, RuleBaseline] = {}
    if old is not None and specs is not None:
        old.check_scope(scope)
        others = old.rules
    write(path, replace(newer, rules={**others, **newer.rules}))
    return list(newer.rules)
