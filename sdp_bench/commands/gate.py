"""Commands for continuous integration: the gate for regressions of rules, and checks of oracles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sdp_bench.commands.options import (
    Group,
    Rules,
    Shard,
    badge,
    command,
    config,
    file_,
    limits,
    seed_,
    stream,
    word,
)
from sdp_bench.commands.screen import echo

if TYPE_CHECKING:
    from collections.abc import Mapping

_manifests = click.option(
    "--manifests", type=file_, help="File of manifests (default: the committed one of the CI cells)."
)


@command()
@click.option(
    "--baseline",
    type=file_,
    required=True,
    help="File of what the rules predicted and took when they were last accepted.",
)
@click.option(
    "--update", is_flag=True, help="Then accept the rules as they are: write the baseline (of --rules alone)."
)
@click.option(
    "--rules", type=Rules(), help="Instead of all built-in ones: sdp,my_rule.py:MyRule,package.module:MyRule"
)
@click.option("--seed", type=seed_, help="Of the fresh oracles; a new one each time if none.")
@click.option("--accuracy/--no-accuracy", default=True, help="Whether predictions are compared.")
@click.option("--speed/--no-speed", default=True, help="Whether times are compared.")
@click.option(
    "--oracles/--no-oracles", default=True, help="Whether a part of the recorded oracles is derived again."
)
@click.option(
    "--allow-new", is_flag=True, help="Let rules pass that have no predictions or times in the baseline."
)
@click.option("--json", "json_file", type=stream, help="Write all findings to this file.")
@click.option("--junit", "junit_file", type=stream, help="Write a JUnit file for the CI system.")
@click.option("--markdown", "markdown_file", type=stream, help="Write a summary for a pull request.")
@badge
@limits
@config()
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
    badge_files: tuple[Path, ...],
    time_limit: float,
    memory_limit: float | None,
) -> None:
    """Compare the rules with a baseline, and fail if they have become less accurate or slower.

    An oracle that is no longer what was recorded of it fails the check, too. A rule of yours runs in
    processes of its own. Files of an earlier check are removed first.

    Exit codes: 0 no, 1 a regression or a change to accept (the output says of which kind), 2 bad input, such
    as a rule that is not in the baseline, 3 a rule could not be run, or nothing could be compared, and none
    has changed. With --update the baseline is written and the code is 0; with --no-accuracy or --no-speed,
    what it has of these stays.
    """
    import json

    from sdp_bench.bench import files
    from sdp_bench.bench.errors import RunFailedError, UserError
    from sdp_bench.bench.executors.local import Limits, limited
    from sdp_bench.bench.gate import render
    from sdp_bench.bench.gate.baseline import read
    from sdp_bench.bench.gate.check import Options
    from sdp_bench.bench.gate.check import check as compare
    from sdp_bench.bench.gate.update import update as write
    from sdp_bench.bench.text import public
    from sdp_bench.commands.progress import meter

    most = Limits(time_limit, memory_limit)
    if not (accuracy or speed or oracles):
        raise UserError("--no-accuracy, --no-speed and --no-oracles leave nothing to check")
    options = Options(rules, seed, accuracy, speed, oracles, allow_new=allow_new)
    outputs = [path for path in (json_file, junit_file, markdown_file, *badge_files) if path]
    if update:
        if outputs:
            raise UserError(
                "--update compares nothing that --json, --junit, --markdown or --badge could tell; "
                "leave them out"
            )
        files.check_writable(baseline)
        with meter("check") as bar, limited(most):
            names = write(baseline, options, step=bar.done)
        echo(f"{baseline} has {', '.join(names)} as they are now")
        return
    if any(path.resolve() == baseline.resolve() for path in outputs):
        raise UserError(f"{baseline} is the baseline, which --update alone writes; name another file")
    for path in outputs:
        files.remove_old(path)
    known = read(baseline)
    with meter("check") as bar, limited(most):
        outcome = compare(known, options, file=baseline, step=bar.done)
    echo(render.text(outcome))
    for step in render.next_steps(outcome):
        echo(f"next, {step}")
    plain = public(json.dumps(outcome.as_dict(), indent=1, allow_nan=False)) + "\n"
    contents: dict[Path | None, str | bytes] = {
        json_file: plain,
        junit_file: render.junit(outcome),
        markdown_file: render.markdown(outcome),
        **{path: render.badge(outcome).text(path) for path in badge_files},
    }
    unwritten = _unwritten({path: content for path, content in contents.items() if path})
    if unwritten and not outcome.exit_code:
        raise RunFailedError("; ".join(unwritten))
    for line in unwritten:
        echo(line, err=True)
    raise SystemExit(outcome.exit_code)


def _unwritten(contents: Mapping[Path, str | bytes]) -> list[str]:
    """Write files and return an error line for each failure; the others are written all the same."""
    from sdp_bench.bench import files
    from sdp_bench.bench.errors import RunFailedError

    lines = []
    for path, content in contents.items():
        try:
            files.write(path, content)
        except RunFailedError as error:
            lines.append(str(error))
    return lines


@click.group(cls=Group)
def oracles() -> None:
    """Manifests of oracles: method, seed, statistics, checks made, versions, hash."""


@oracles.command()
@_manifests
@click.option("--shard", type=Shard(), help="Part i of n, written i/n; by default each in its turn.")
def verify(manifests: Path | None, shard: tuple[int, int] | None) -> None:
    """Derive a part of the recorded oracles again; exit code 1 if one disagrees.

    Without --shard it is one of four parts, by GITHUB_RUN_NUMBER or the day of the year. On the platform
    that an oracle was recorded on its samples must be equal to the last bit, elsewhere up to
    rounding. Hashes are checked of all manifests, and that each CI cell has one.
    """
    from sdp_bench.bench.gate.oracles.manifest import MANIFESTS
    from sdp_bench.bench.gate.oracles.verify import verify as verify_oracles
    from sdp_bench.bench.gate.verdict import exit_code
    from sdp_bench.commands.progress import meter

    with meter("oracles") as bar:
        verdict = verify_oracles(manifests or MANIFESTS, shard, report=bar.done)
    for finding in verdict.findings:
        if finding.stops:
            echo(str(finding))
    echo(f"{verdict.summary}; {verdict.note}")
    raise SystemExit(exit_code([verdict]))


@oracles.command("record")
@_manifests
def record_(manifests: Path | None) -> None:
    """Record manifests of the oracles of all CI cells; an oracle that fails a check is refused."""
    from sdp_bench.bench import files
    from sdp_bench.bench.gate.oracles import manifest as oracle_manifest
    from sdp_bench.commands.progress import meter

    path = manifests or oracle_manifest.MANIFESTS
    files.check_writable(path)
    made = []
    sources = oracle_manifest.ci_oracles()
    with meter("oracles") as bar:
        for done, source in enumerate(sources, 1):
            made.append(oracle_manifest.record(*source))
            bar.done(done, len(sources), made[-1].title)
    oracle_manifest.save(made, path)
    echo(f"{len(made)} manifests, all checks passed: {path}")


@oracles.command()
@click.argument("key", type=word)
@click.option("--database", type=file_, help="Results file, for an oracle of an ordinary run.")
@_manifests
@click.option(
    "--derive", is_flag=True, help="Draw an oracle of --database again, with statistics and checks."
)
def show(key: str, database: Path | None, manifests: Path | None, derive: bool) -> None:
    """Show the manifest of the oracle KEY, or of the one whose key begins so, as JSON.

    KEY is the first part of a measurement's key. Without --database it is one of the recorded oracles. The
    manifest of an ordinary run's oracle comes from what the results file keeps: key, sampler, samples,
    the seed that the key gives, and the run's versions.
    """
    from sdp_bench.bench.errors import UserError
    from sdp_bench.bench.gate.documents import as_text
    from sdp_bench.bench.gate.oracles import manifest as oracle_manifest
    from sdp_bench.bench.replay import oracles as stored_oracles
    from sdp_bench.bench.results.store import Store

    if database is None:
        if derive:
            raise click.UsageError(
                "--derive needs --database; `sdp-bench oracles verify` derives recorded ones"
            )
        stored = oracle_manifest.load(manifests or oracle_manifest.MANIFESTS)
        found = [manifest.as_dict() for manifest, _ in stored if manifest.key.startswith(key)]
        if len(found) != 1:
            raise UserError(f"{len(found) or 'no'} recorded oracles have a key that begins with '{key}'")
        shown = found[0]
    else:
        with Store(database) as store:
            shown = (
                stored_oracles.drawn_again(store, key).as_dict()
                if derive
                else stored_oracles.description(store, key)
            )
    echo(as_text(shown, lists_apart=True))
