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


@options.command(example="sdp-bench check --baseline ci.json --rules sdp --no-speed")
@option(
    "--baseline", "Baseline: the accepted predictions and times of rules, JSON.", values.FILE, required=True
)
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
@option("--accuracy/--no-accuracy", "Compare predictions, or skip this check.")
@option("--speed/--no-speed", "Compare times, or skip this check.")
@option("--allow-new", "Skip rules without predictions or times in the baseline.", values.FLAG)
@option("--json", "JSON file of all findings.", values.STREAM, "json_file")
@option("--junit", "JUnit XML file for the CI system.", values.STREAM, "junit_file")
@option("--markdown", "Markdown summary for a pull request.", values.STREAM, "markdown_file")
@options.badge
@options.limits
@options.config()
def check(
    baseline: Path,
    update: bool,
    json_file: Path | None,
    junit_file: Path | None,
    markdown_file: Path | None,
    badge_files: tuple[Path, ...],
    time_limit: float,
    memory_limit: float | None,
    **chosen: Any,
) -> None:
    """Compare rules with a baseline; fail if their predictions have changed or they are slower.

    Your rule runs in a separate process. Output files of an earlier check are removed first.

    Exit codes: 0 nothing changed; 1 a regression, or a change to accept; 2 bad input, for example a rule that
    is not in the baseline; 3 a rule could not be run, or nothing could be compared, and nothing else has
    changed. With --update the exit code is 0 once the baseline is written; with --no-accuracy or --no-speed,
    the baseline keeps its old predictions or times.
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
    request = Options(**chosen)
    if not (request.accuracy or request.speed):
        raise UserError("--no-accuracy and --no-speed leave nothing to check")
    outputs = [path for path in (json_file, junit_file, markdown_file, *badge_files) if path]
    if update:
        if outputs:
            raise UserError("--update compares nothing; leave out --json, --junit, --markdown and --badge")
        _update(baseline, request, limits)
        return
    if any(path.resolve() == baseline.resolve() for path in outputs):
        raise UserError(
            f"{baseline} is the baseline, which only --update may write; choose another output file"
        )
    for path in outputs:
        files.remove_old(path)
    accepted = read(baseline, request.rules or ())
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
    """Write the current predictions and times of the requested rules to the baseline."""
    from sdp_bench.bench import files
    from sdp_bench.bench.environment import busy
    from sdp_bench.bench.executors.local import limited
    from sdp_bench.bench.gate.check import update
    from sdp_bench.progress import Screen

    files.check_writable(baseline)
    with Screen().meter("check") as progress, limited(limits):
        names = update(baseline, request, step=progress.done)
    echo(f"{baseline} has the current {', '.join(names)}")
    if request.speed and (warning := busy()):
        echo(f"times may be off: {warning}")
