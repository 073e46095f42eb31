"""The command ``check``: the gate for regressions of rules in continuous integration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdp_bench import values
from sdp_bench.commands import echo, options
from sdp_bench.commands.options import option

if TYPE_CHECKING:
    from sdp_bench.bench.executors.local import Limits
    from sdp_bench.bench.gate.check import Options


@options.command(example="sdp-bench check --baseline ci.json --against main --rules my_rule.py:MyRule")
@option("--baseline", "Baseline: the accepted predictions of rules, JSON.", values.FILE)
@option("--against", "Git revision, or folder of another checkout, with whose times to compare.", values.WORD)
@option(
    "--update",
    "Accept the current rules (or only --rules): write the baseline instead of checking.",
    values.FLAG,
)
@option(
    "--rules",
    "Rules to check, instead of all built-in ones: sdp,my_rule.py:MyRule,package.module:MyRule.",
    values.RULES,
)
@option("--seed", "Seed of the fresh oracles; random by default.", values.SEED)
@option("--allow-new", "Skip rules that are not in the baseline.", values.FLAG)
@option("--allow-slower", "Rules that may have become slower, as in --rules.", values.RULES)
@option("--json", "JSON file of all findings.", values.STREAM, "json_file")
@option("--junit", "JUnit XML file for the CI system.", values.STREAM, "junit_file")
@option("--markdown", "Markdown summary for a pull request.", values.STREAM, "markdown_file")
@options.badge
@options.limits
@options.config()
def check(
    baseline: Path | None,
    update: bool,
    json_file: Path | None,
    junit_file: Path | None,
    markdown_file: Path | None,
    badge_files: tuple[Path, ...],
    time_limit: float,
    memory_limit: float | None,
    **chosen: Any,
) -> None:
    """Check whether predictions of rules have changed (--baseline) or rules have become slower (--against).

    Your rule runs in separate processes. Output files of an earlier check are removed first.

    Exit codes: 0 nothing changed; 1 a regression, or a change to accept; 2 bad input, for example a rule that
    is not in the baseline; 3 a rule could not be run, or nothing could be compared, and nothing else has
    changed. With --update the exit code is 0 once the baseline is written.
    """
    from sdp_bench.bench import files
    from sdp_bench.bench.errors import UserError
    from sdp_bench.bench.executors.local import Limits, limited
    from sdp_bench.bench.gate import report
    from sdp_bench.bench.gate.baseline import read
    from sdp_bench.bench.gate.check import Options
    from sdp_bench.bench.gate.check import check as compare
    from sdp_bench.progress import Screen

    limits = Limits(time_limit, memory_limit)
    request = Options(**{**chosen, "allow_slower": chosen["allow_slower"] or ()})
    outputs = [path for path in (json_file, junit_file, markdown_file, *badge_files) if path]
    if update:
        if baseline is None:
            raise UserError("--update writes the baseline; name it with --baseline")
        if outputs or request.against:
            raise UserError(
                "--update compares nothing; leave out --against, --json, --junit, --markdown and --badge"
            )
        _update(baseline, request, limits)
        return
    if baseline and any(path.resolve() == baseline.resolve() for path in outputs):
        raise UserError(
            f"{baseline} is the baseline, which only --update may write; choose another output file"
        )
    for path in outputs:
        files.remove_old(path)
    accepted = read(baseline, request.rules or ()) if baseline else None
    with Screen().meter("check") as progress, limited(limits):
        outcome = compare(accepted, request, file=baseline, step=progress.done)
    echo(report.text(outcome))
    if json_file:
        files.write(json_file, report.as_json(outcome))
    if junit_file:
        files.write(junit_file, report.junit(outcome))
    if markdown_file:
        files.write(markdown_file, report.markdown(outcome))
    for path in badge_files:
        files.write(path, report.badge(outcome).text(path))
    raise SystemExit(outcome.exit_code)


def _update(baseline: Path, request: Options, limits: Limits) -> None:
    """Write the current predictions of the requested rules to the baseline."""
    from sdp_bench.bench import files
    from sdp_bench.bench.executors.local import limited
    from sdp_bench.bench.gate.check import update
    from sdp_bench.progress import Screen

    files.check_writable(baseline)
    with Screen().meter("check") as progress, limited(limits):
        names = update(baseline, request.rules, step=progress.done)
    echo(f"{baseline} has the current {', '.join(names)}")
