"""The command that checks a propagation rule against the conformance kit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sdp_bench.commands.options import BAD_VERDICT, seed_, stream, word
from sdp_bench.commands.screen import echo

if TYPE_CHECKING:
    from sdp_ref.conformance import CheckResult


@click.command("check-rule")
@click.argument("rule", type=word, required=False)
@click.option(
    "--only", type=word, multiple=True, metavar="CHECK", help="Run this check alone; may be repeated."
)
@click.option("--list", "listed", is_flag=True, help="List the checks and what each asks.")
@click.option(
    "--json",
    "json_file",
    type=stream,
    metavar="FILE",
    help="Write the report as JSON; - for standard output.",
)
@click.option("--seed", type=seed_, default=0, show_default=True, help="Of the cases.")
def check_rule(
    rule: str | None, only: tuple[str, ...], listed: bool, json_file: Path | None, seed: int
) -> None:
    """Check that a propagation rule keeps what every rule, or its own claims, promise.

    RULE is a built-in rule (sdp, monte_carlo:samples=100) or one of yours: path/to/rule.py:MyRule,
    package.module:MyRule, or an entry point. The exit code is 1 if a check fails that the rule does not
    declare as a known fault, or if none ran. What was found stands on standard output, the verdict last.
    """
    import json

    import sdp_ref
    from sdp_bench.bench import files, rules
    from sdp_bench.bench.errors import UserError
    from sdp_bench.bench.plugins.plugin import load
    from sdp_ref.conformance import CHECKS
    from sdp_ref.conformance.kit import named_checks

    if listed:
        for check in CHECKS:
            echo(f"{check.name:24} {check.question}")
        return
    if rule is None:
        raise UserError("name a rule, sdp or path/to/rule.py:MyRule say; --list shows the checks")
    quiet = json_file == Path("-")
    target = None if quiet else json_file
    if target is not None:
        files.check_writable(target)

    def told(result: CheckResult) -> None:
        echo(str(result), err=quiet)

    try:
        built_in = rule.partition(":")[0] in sdp_ref.rules()
        chosen = sdp_ref.rule(rule) if built_in else load(rule, rules.RULES)
        sdp_ref.check_rule(chosen, only=[], seed=seed)  # what is no rule, or no check, is told at once
        named_checks(only or None)
        echo(f"rule '{getattr(chosen, 'spec', chosen.name)}'", err=quiet)
        report = sdp_ref.check_rule(chosen, only=only or None, seed=seed, progress=told)
    except ValueError as error:
        raise UserError(str(error)) from error
    echo(report.conclusion, err=quiet)
    text = json.dumps(report.as_dict(), indent=1)
    if quiet:
        echo(text)
    elif target is not None:
        files.write(target, text + "\n")
    if report.unexpected or not report.ran:
        raise SystemExit(BAD_VERDICT)
