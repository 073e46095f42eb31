"""The command that checks a propagation rule with the conformance kit."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from sdp_bench import values
from sdp_bench.commands import echo, options
from sdp_bench.commands.options import option

if TYPE_CHECKING:
    from sdp_bench.bench.badge import Badge
    from sdp_bench.bench.executors.local import Limits
    from sdp_ref.conformance import ConformanceReport


@options.command("check-rule", example="sdp-bench check-rule path/to/my_rule.py:MyRule --json report.json")
@options.argument("rule", values.WORD, required=False)
@option("--only", "Run only this check; may be repeated.", multiple=True, metavar="CHECK")
@option("--list", "List the checks with their questions.", values.FLAG, "listed")
@option("--json", "JSON file of the report; - for standard output.", values.STREAM, "json_file")
@options.badge
@option("--seed", "Random seed of the test cases.", values.SEED, default=0)
@options.limits
def check_rule(
    rule: str | None,
    only: tuple[str, ...],
    listed: bool,
    json_file: Path | None,
    badge_files: tuple[Path, ...],
    seed: int,
    time_limit: float,
    memory_limit: float | None,
) -> None:
    """Check a rule with the conformance kit.

    The kit checks properties of every rule and those that the rule claims. RULE is a built-in rule (sdp,
    monte_carlo:samples=100) or your own: path/to/rule.py:MyRule, package.module:MyRule, or an entry point. It
    runs in a separate process. Results are printed to standard output, the verdict last.

    Exit code: 1 if a check fails that the rule does not declare as a known fault, or if no check ran; 2 for
    bad input; 3 if the rule ends its process or exceeds a limit.
    """
    import json

    from sdp_bench.bench import files
    from sdp_bench.bench.errors import UserError
    from sdp_bench.bench.executors.local import Limits
    from sdp_ref.conformance import CHECKS

    if listed:
        for check in CHECKS:
            echo(f"{check.name:24} {check.question}")
        return
    if rule is None:
        raise UserError("name a rule, for example sdp or path/to/rule.py:MyRule; --list shows the checks")
    quiet = json_file == Path("-")
    for path in filter(None, (None if quiet else json_file, *badge_files)):
        files.remove_old(path)
    report = _report(rule, only or None, seed, Limits(time_limit, memory_limit), quiet=quiet)
    echo(report.conclusion, err=quiet)
    text = json.dumps(report.as_dict(), indent=1)
    if quiet:
        echo(text)
    elif json_file is not None:
        files.write(json_file, text + "\n")
    for path in badge_files:
        files.write(path, _badge(report).text(path))
    if report.unexpected or not report.ran:
        raise SystemExit(options.BAD_VERDICT)


def _badge(report: ConformanceReport) -> Badge:
    """Counts of passed and failed checks; declared failures do not count as failed."""
    from sdp_bench.bench.badge import Badge

    known = len(report.failed) - len(report.unexpected)
    counts = f"{report.count('passed')} passed, {len(report.unexpected)} failed"
    message = (counts + f", {known} known" * bool(known)) if report.ran else "no check applies"
    return Badge(f"{report.rule} conformance", message, not report.unexpected if report.ran else None)


def _report(
    rule: str, only: tuple[str, ...] | None, seed: int, most: Limits, *, quiet: bool
) -> ConformanceReport:
    """Run the kit and print its results as they arrive."""
    from sdp_bench.bench import rules
    from sdp_bench.bench.errors import RunFailedError, UserError
    from sdp_bench.bench.executors import WorkerError
    from sdp_bench.bench.executors.local import begin_server, limited
    from sdp_bench.bench.experiments.laws import canonical_rules
    from sdp_bench.bench.runs.conformance import conformance
    from sdp_ref.conformance.kit import named_checks

    say = functools.partial(echo, err=quiet)
    begin_server()
    try:
        named_checks(only)  # report invalid checks and rules at once
        with limited(most):
            names, plugins = rules.resolve([rule])
        if len(names) > 1:
            raise UserError(f"'{rule}' stands for several rules; choose one of {', '.join(names)}")
        (name,) = canonical_rules(names, plugins)
        say(f"rule '{name}'")
        return conformance(name, plugins, most, only=only, seed=seed, on_result=say)
    except WorkerError as error:
        raise RunFailedError(f"{rule}: {error}") from error
    except ValueError as error:
        raise UserError(str(error)) from error
