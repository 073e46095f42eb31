"""A check of rules against a baseline."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sdp_bench.bench import rules as plugins
from sdp_bench.bench.environment import describe, threads
from sdp_bench.bench.errors import UserError
from sdp_bench.bench.experiments.laws import canonical_rules
from sdp_bench.bench.gate.baseline import Baseline, RuleBaseline
from sdp_bench.bench.gate.causes.told import Told, accepting
from sdp_bench.bench.gate.cells import Scope
from sdp_bench.bench.gate.comparisons import accuracy, speed
from sdp_bench.bench.gate.comparisons.speed import Timing
from sdp_bench.bench.gate.guests import Asked, Guest
from sdp_bench.bench.gate.oracles.verify import verify
from sdp_bench.bench.gate.predictions import Predicted, predict
from sdp_bench.bench.gate.verdict import (
    PASSED,
    RANKED,
    REGRESSION,
    Cause,
    Finding,
    Status,
    Verdict,
    exit_code,
)
from sdp_bench.bench.metrics.references import Reference
from sdp_bench.bench.plugins.plugin import plugin_of

Step = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Options:
    """What to check."""

    rules: tuple[str, ...] | None = None  # specs and addresses of plug-ins; by default all rules of the scope
    seed: int | None = None  # seed of the fresh oracles; random by default
    # which checks to run
    accuracy: bool = True
    speed: bool = True
    oracles: bool = False
    allow_new: bool = False  # whether rules without predictions or times in the baseline pass


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of a check."""

    verdicts: tuple[Verdict, ...]
    seed: int  # seed of the fresh oracles; the same seed gives the same verdict on accuracy
    environment: dict[str, Any]
    file: Path = Path("ci.json")  # the baseline
    addresses: Mapping[str, str] = field(default_factory=dict)  # addresses of plug-ins, by spec

    @property
    def status(self) -> str:
        """The most severe status of all verdicts; see `Verdict.status`."""
        statuses = [verdict.status for verdict in self.verdicts]
        return next((word for word in RANKED if word in statuses), PASSED)

    @property
    def exit_code(self) -> int:
        return exit_code(self.verdicts)

    @property
    def told(self) -> list[Told]:
        """Reasons why rules do not pass, one line per rule."""
        causes: dict[str, list[tuple[str, Cause]]] = {}
        for verdict in self.verdicts:
            for cause in verdict.causes:
                causes.setdefault(cause.subject, []).append((verdict.kind, cause))
        return [self._told(rule, found) for rule, found in causes.items()]

    def _told(self, rule: str, found: Sequence[tuple[str, Cause]]) -> Told:
        kinds = [kind for kind, _ in found]
        compared = {verdict.kind for verdict in self.verdicts for f in verdict.compared if f.subject == rule}
        accept = self.accepting([rule], kinds[0] if len(kinds) == 1 else "")
        return Told(tuple(cause for _, cause in found), accept, alone=compared > set(kinds))

    def accepting(self, rules: Sequence[str], kind: str = "") -> str:
        """Return the command that accepts rules into the baseline, optionally only for one kind of check."""
        only = {accuracy.KIND: ["--no-speed"], speed.KIND: ["--no-accuracy"]}.get(kind, [])
        return accepting(self.file, [self.addresses.get(rule, rule) for rule in rules], only)

    def as_dict(self) -> dict[str, Any]:
        return {
            "exit code": self.exit_code,
            "causes": [told.as_dict() for told in self.told],
            "regressions": [verdict.kind for verdict in self.verdicts if verdict.status == REGRESSION],
            "seed": self.seed,
            "environment": self.environment,
            "verdicts": [verdict.as_dict() for verdict in self.verdicts],
        }


def rules_of(specs: Sequence[str]) -> dict[str, Asked]:
    """Return rules or guests by canonical spec, given specs and addresses of plug-ins."""
    names, found = plugins.resolve(specs)
    rules: dict[str, Asked] = {}
    for name in canonical_rules(names, found):
        if plugin := plugin_of(name, found):
            rules[name] = Guest(plugin)
            continue
        rule = plugins.rule_of(name)
        if isinstance(rule, Reference):
            raise UserError(f"'{name}' is a reference, no rule; it cannot regress")
        rules[name] = rule
    return rules


def check(
    baseline: Baseline,
    options: Options,
    scope: Scope | None = None,
    *,
    file: Path = Path("ci.json"),
    timing: Timing | None = None,
    step: Step = lambda *_: None,
) -> Outcome:
    """Check rules against a baseline.

    `scope` defaults to the cells of continuous integration and all probes. `file` is the path of the
    baseline, for the commands in the report, and `timing` configures the measurement of times. `step` is
    called with number, total and name of each step.

    A UserError is raised for an unknown rule, for a baseline with other cells, and for a rule without
    predictions or times in the baseline, unless `options.allow_new` is set.
    """
    scope = scope or Scope.of_ci()
    specs = scope.rules if options.rules is None else options.rules
    rules = rules_of(specs)
    addresses = {name: rule.address for name, rule in rules.items() if isinstance(rule, Guest)}
    baseline.check_scope(scope)
    if not options.allow_new:
        _refuse_new(baseline, rules, scope, timed=options.speed)
    seed = secrets.randbits(63) if options.seed is None else options.seed
    verdicts = []
    with threads(1):
        if options.accuracy:
            predicted = predict_all(rules, scope, baseline.rules, step)
            verdicts.append(accuracy.judge(baseline, rules, predicted, scope, draw=seed, step=step))
        if options.speed:
            verdicts.append(speed.judge(baseline, rules, scope, timing or Timing(), step))
    if options.rules is None and verdicts:
        gone = sorted(baseline.rules.keys() - rules.keys())
        findings = tuple(Finding(name, "", Status.GONE, "not checked; --update drops it") for name in gone)
        verdicts[0] = replace(verdicts[0], findings=verdicts[0].findings + findings)
    if options.oracles:
        verdicts.append(verify(report=step))
    return Outcome(tuple(verdicts), seed, describe("cpu", 1, 1), file, addresses)


def _refuse_new(baseline: Baseline, rules: Mapping[str, Asked], scope: Scope, *, timed: bool) -> None:
    """Raise a UserError if something requested is not in the baseline: nothing would be compared."""
    for name in rules:
        if name not in baseline.rules:
            raise UserError(
                f"rule '{name}' is not in the baseline; accept it with --rules {name} --update, or let it "
                "pass with --allow-new"
            )
    for name in rules if timed else ():
        if not scope.nets.keys() <= baseline.rules[name].speed.keys():
            raise UserError(
                f"the baseline has no times of rule '{name}'; take them with --update --no-accuracy, leave "
                "times out with --no-speed, or let it pass with --allow-new"
            )


def predict_all(
    rules: Mapping[str, Asked],
    scope: Scope,
    known: Mapping[str, RuleBaseline],
    step: Step = lambda *_: None,
) -> dict[str, Predicted]:
    """Return the predictions of all rules, under the baseline's seeds if it has any."""
    found = {}
    for number, (name, rule) in enumerate(rules.items()):
        step(number, len(rules), name)
        found[name] = predict(rule, scope, known.get(name))
    return found
