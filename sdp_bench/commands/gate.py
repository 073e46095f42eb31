"""Commands for continuous integration: the gate for regressions of rules, and checks of oracles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sdp_bench import values
from sdp_bench.commands import echo, options
from sdp_bench.commands.options import option

_manifests = option(
    "--manifests", "File of manifests (default: the committed one of the CI cells).", values.FILE
)


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
@option("--oracles/--no-oracles", "Draw a quarter of the recorded oracles again, or skip this.")
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

    An oracle that differs from its recorded manifest also fails the check. Your rule runs in a separate
    process. Output files of an earlier check are removed first.

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
    from sdp_bench.bench.gate.check import update as write
    from sdp_bench.progress import Screen

    most = Limits(time_limit, memory_limit)
    wanted = Options(**chosen)
    if not (wanted.accuracy or wanted.speed or wanted.oracles):
        raise UserError("--no-accuracy, --no-speed and --no-oracles leave nothing to check")
    outputs = [path for path in (json_file, junit_file, markdown_file, *badge_files) if path]
    if update and outputs:
        raise UserError("--update compares nothing; leave out --json, --junit, --markdown and --badge")
    if update:
        files.check_writable(baseline)
        with Screen().meter("check") as bar, limited(most):
            names = write(baseline, wanted, step=bar.done)
        echo(f"{baseline} has the current {', '.join(names)}")
        return
    if any(path.resolve() == baseline.resolve() for path in outputs):
        raise UserError(
            f"{baseline} is the baseline, which only --update may write; choose another output file"
        )
    for path in outputs:
        files.remove_old(path)
    known = read(baseline, wanted.rules or ())
    with Screen().meter("check") as bar, limited(most):
        outcome = compare(known, wanted, file=baseline, step=bar.done)
    echo(report.text(outcome))
    contents: dict[Path | None, str | bytes] = {
        json_file: report.as_json(outcome),
        junit_file: report.junit(outcome),
        markdown_file: report.markdown(outcome),
        **{path: report.badge(outcome).text(path) for path in badge_files},
    }
    for file, content in contents.items():
        if file:
            files.write(file, content)
    raise SystemExit(outcome.exit_code)


@click.group(cls=options.Group)
def oracles() -> None:
    """Record, verify and show manifests of oracles: method, seed, statistics, versions."""


@oracles.command(example="sdp-bench oracles verify --shard 1/4")
@_manifests
@option("--shard", "Part i of n to verify, written i/n (default: one of four parts by turns).", values.PART)
def verify(manifests: Path | None, shard: tuple[int, int] | None) -> None:
    """Draw a part of the recorded oracles again; exit code 1 if one differs by more than rounding.

    Without --shard it is one of four parts, chosen by GITHUB_RUN_NUMBER or the day of the year. The hashes of
    all manifests are checked, and that each CI cell has a manifest.
    """
    from sdp_bench.bench.gate.check import of_oracles
    from sdp_bench.bench.gate.verdict import exit_code
    from sdp_bench.bench.manifests import MANIFESTS
    from sdp_bench.progress import Screen

    with Screen().meter("oracles") as bar:
        verdict = of_oracles(manifests or MANIFESTS, shard, step=bar.done)
    for finding in verdict.findings:
        if finding.stops:
            echo(str(finding))
    echo(f"{verdict.summary}; {verdict.note}")
    raise SystemExit(exit_code([verdict]))


@oracles.command("record", example="sdp-bench oracles record --manifests oracles.json")
@_manifests
def record_(manifests: Path | None) -> None:
    """Record manifests of the oracles of all CI cells."""
    from sdp_bench.bench import files
    from sdp_bench.bench import manifests as library
    from sdp_bench.progress import Screen

    path = manifests or library.MANIFESTS
    files.check_writable(path)
    made, sources = [], library.ci_oracles()
    with Screen().meter("oracles") as bar:
        for done, source in enumerate(sources, 1):
            made.append(library.record(*source))
            bar.done(done, len(sources), library.title_of(made[-1]))
    library.save(made, path)
    echo(f"{len(made)} manifests in {path}")


@oracles.command(example="sdp-bench oracles show 1f")
@options.argument("key", values.WORD)
@option("--database", "Results file that contains the oracle.", values.FILE)
@_manifests
def show(key: str, database: Path | None, manifests: Path | None) -> None:
    """Show the manifest of the oracle whose key begins with KEY, as JSON.

    KEY is the first part of a measurement's key. Without --database it is one of the recorded oracles. With
    --database the manifest comes from the results file: key, sampler, samples, seed, and the versions of the
    run.
    """
    from sdp_bench.bench import manifests as library
    from sdp_bench.bench.errors import UserError
    from sdp_bench.bench.files import as_text
    from sdp_bench.bench.replay.replay import description
    from sdp_bench.bench.results.store import Store

    if database is None:
        stored = library.load(manifests or library.MANIFESTS)
        found = [manifest for manifest in stored if manifest["key"].startswith(key)]
        if len(found) != 1:
            raise UserError(f"{len(found) or 'no'} recorded oracles have a key that begins with '{key}'")
        shown = found[0]
    else:
        with Store(database) as store:
            shown = description(store, key)
    echo(as_text(shown, lists_apart=True))
