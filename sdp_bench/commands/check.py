"""The command that stops regressions of the rules in continuous integration."""

from __future__ import annotations

from pathlib import Path

import click

from sdp_bench.commands.options import Rules

_file = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.option(
    "--baseline",
    type=_file,
    required=True,
    help="File of what the rules predicted and took when they were last accepted.",
)
@click.option(
    "--update", is_flag=True, help="Then accept the rules as they are: write the baseline (of --rules alone)."
)
@click.option(
    "--rules", type=Rules(), help="Instead of all built-in ones: sdp,my_rule.py:MyRule,package.module:MyRule"
)
@click.option("--seed", type=click.IntRange(min=0), help="Of the fresh oracles; a new one each time if none.")
@click.option("--accuracy/--no-accuracy", default=True, help="Whether predictions are compared.")
@click.option("--speed/--no-speed", default=True, help="Whether times are compared.")
@click.option(
    "--oracles/--no-oracles", default=True, help="Whether a part of the recorded oracles is derived again."
)
@click.option(
    "--allow-new", is_flag=True, help="Let rules pass that have no predictions or times in the baseline."
)
@click.option("--json", "json_file", type=_file, help="Write all findings to this file.")
@click.option("--junit", "junit_file", type=_file, help="Write a JUnit file for the CI system.")
@click.option("--markdown", "markdown_file", type=_file, help="Write a summary for a pull request.")
def check(
    baseline: Path,
    update: bool,
    rules: tuple[str, ...] | None,
    seed: int | None,
    accuracy: bool,
    speed: bool,
    oracles: bool,
    allow_new: bool,
    json_file: Path | None,
    junit_file: Path | None,
    markdown_file: Path | None,
) -> None:
    """Compare the rules with a baseline, and fail if they have become less accurate or slower.

    An oracle that is no longer what was recorded of it fails the check, too.

    Exit codes: 0 no, 1 a regression or a change to accept (the output says of which kind), 2 bad input, such
    as a rule that is not in the baseline, 3 a rule could not be run, or nothing could be compared, and none
    has changed. With --update the baseline is written and the code is 0; with --no-accuracy or --no-speed,
    what it has of these stays.
    """
    import json

    from sdp_bench.bench import files
    from sdp_bench.bench.errors import RunFailedError, UserError
    from sdp_bench.bench.gate import render
    from sdp_bench.bench.gate.baseline import read
    from sdp_bench.bench.gate.check import Options
    from sdp_bench.bench.gate.check import check as compare
    from sdp_bench.bench.gate.update import update as write
    from sdp_bench.commands.progress import meter

    if not (accuracy or speed or oracles):
        raise UserError("--no-accuracy, --no-speed and --no-oracles leave nothing to check")
    options = Options(rules, seed, accuracy, speed, oracles, allow_new=allow_new)
    if update:
        if json_file or junit_file or markdown_file:
            raise UserError(
                "--update compares nothing that --json, --junit or --markdown could tell; leave them out"
            )
        with meter("check") as bar:
            names = write(baseline, options, step=bar.done)
        click.echo(f"{baseline} has {', '.join(names)} as they are now")
        return
    known = read(baseline)
    with meter("check") as bar:
        outcome = compare(known, options, step=bar.done)
    click.echo(render.text(outcome))
    wanted = (
        (json_file, lambda: json.dumps(outcome.as_dict(), indent=1, allow_nan=False) + "\n"),
        (junit_file, lambda: render.junit(outcome)),
        (markdown_file, lambda: render.markdown(outcome)),
    )
    unwritten = []
    for path, content in wanted:
        if path is None:
            continue
        try:
            files.write(path, content())
        except RunFailedError as error:  # the others are written all the same
            unwritten.append(str(error))
    if unwritten and not outcome.exit_code:
        raise RunFailedError("; ".join(unwritten))
    for line in unwritten:
        click.echo(line, err=True)
    raise SystemExit(outcome.exit_code)
