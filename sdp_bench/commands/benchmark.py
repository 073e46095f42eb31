"""Commands of the public benchmark: its problems, submissions, and the leaderboard."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sdp_bench.commands.options import (
    BAD_VERDICT,
    Group,
    Shard,
    Share,
    at_most_cores,
    command,
    file_,
    folder_,
    jobs,
    limits,
    line,
    seconds,
    seed_,
    word,
)
from sdp_bench.commands.screen import echo

if TYPE_CHECKING:
    from sdp_bench.bench.plugins.plugin import Plugin
    from sdp_bench.bench.submissions.making import About

DATABASE = Path("submissions.sqlite")
LEADERBOARD = Path("reports/html/leaderboard")
LIMIT = 1800.0  # s


@click.group(cls=Group)
def problems() -> None:
    """The frozen problems that rules are entered for."""


@problems.command("list")
def list_() -> None:
    """List the places of the problem set: net, noise, inputs and what is measured there."""
    from sdp_bench.bench.problems.problem_set import problem_set

    found = problem_set()
    for place in found.places:
        rows = ", ".join(map(str, place.rows))
        metrics = ", ".join(each.partition(":")[0] for each in place.metrics)
        echo(f"{place.name:32} inputs {rows}; {place.samples} samples; {metrics}")
    echo(f"{found.name}: {len(found.problems)} problems at {len(found.places)} places, digest {found.digest}")


@problems.command()
@click.option("-o", "--output", type=folder_, required=True, help="Folder of the set; new or empty.")
@jobs
def make(output: Path, jobs: int | None) -> None:
    """Make a problem set: draw its oracles, check each, and write all files.

    This is how the set of the package was made. Exit code 3 if an oracle is not admitted.
    """
    from sdp_bench.bench.environment import cores
    from sdp_bench.bench.executors.local import begin_server
    from sdp_bench.bench.problems import making
    from sdp_bench.commands.progress import meter

    begin_server()
    with meter("places") as bar:
        digest = making.write(making.draft(), output, at_most_cores(jobs) or cores(), bar.done)
    echo(f"{output}: digest {digest}")


@problems.command()
@click.option("--shard", type=Shard(), default="1/12", show_default=True, help="Part i/n of the problems.")
def verify(shard: tuple[int, int]) -> None:
    """Draw a part of the oracles again, against what is frozen; exit code 1 if one differs."""
    from sdp_bench.bench.gate.verdict import exit_code
    from sdp_bench.bench.problems.verifying import verify as verify_problems
    from sdp_bench.commands.progress import meter

    with meter("oracles") as bar:
        verdict = verify_problems(shard, bar.done)
    for finding in verdict.findings:
        if finding.stops:
            echo(str(finding))
    echo(f"{verdict.summary}; {verdict.note}")
    raise SystemExit(exit_code([verdict]))


@problems.command()
@click.option("-o", "--output", type=folder_, required=True, help="Folder; new or empty.")
@click.option("--onnx", is_flag=True, help="Nets as ONNX models, too; needs the extra onnx.")
def export(output: Path, onnx: bool) -> None:
    """Copy the problem set to a folder, for those who do not use this package."""
    from sdp_bench.bench.problems import exporting
    from sdp_bench.bench.problems.problem_set import NAME

    for reason in exporting.export(NAME, output, onnx=onnx):
        echo(f"no ONNX model of {reason}", err=True)
    echo(f"{NAME}: {output}")


@click.group(cls=Group)
def submission() -> None:
    """Rules entered for the problem set."""


@submission.command("make")
@click.argument("rules", type=word, nargs=-1, required=True, metavar="RULE...")
@click.option("-o", "--output", type=file_, help="File of the submission; one RULE.")
@click.option("--folder", type=folder_, help="Folder of submissions, a file for each RULE.")
@click.option("--author", "authors", type=line, multiple=True, help="Who enters it; may be repeated.")
@click.option("--licence", type=line, help="Of the rule: MIT, Apache-2.0 ...")
@click.option("--rule-version", type=line, help="Of the rule [default: the package's, of its own rules].")
@click.option("--url", type=word, help="Where there is more of it: https://...")
@click.option(
    "--guarantee",
    "guarantees",
    type=word,
    multiple=True,
    help="What the rule promises: 'coverage 90% >= 0.9'. One that is not kept is shown first.",
)
@jobs
@click.option(
    "--kit-limit", type=seconds, default=LIMIT, show_default=True, help="Seconds of kit and timing."
)
@click.option(
    "--group-limit", type=seconds, default=LIMIT, show_default=True, help="Seconds a place may take."
)
@click.option(
    "--database", type=file_, default=DATABASE, show_default=True, help="What is measured is kept here."
)
def make_(
    rules: tuple[str, ...],
    output: Path | None,
    folder: Path | None,
    authors: tuple[str, ...],
    licence: str | None,
    rule_version: str | None,
    url: str | None,
    guarantees: tuple[str, ...],
    jobs: int | None,
    kit_limit: float,
    group_limit: float,
    database: Path,
) -> None:
    """Measure RULE... on all problems and write what is entered: a JSON file for each.

    RULE is path/to/my_rule.py:MyRule, package.module:MyRule, an installed entry point, a built-in rule, or
    `peers`. Interrupted, the same command goes on where it was. A rule of yours needs --author and --licence.
    """
    from sdp_bench.bench import files
    from sdp_bench.bench.errors import UserError
    from sdp_bench.bench.executors.local import Limits, begin_server, limited
    from sdp_bench.bench.experiments.laws import canonical_rules
    from sdp_bench.bench.metrics.references import references
    from sdp_bench.bench.problems.problem_set import problem_set
    from sdp_bench.bench.results.store import Store
    from sdp_bench.bench.rules import resolve
    from sdp_bench.bench.submissions import making
    from sdp_bench.bench.submissions.submission import Guarantee, of_json
    from sdp_bench.commands.progress import Screen

    if (output is None) == (folder is None):
        raise UserError("say where to: --output my_rule.json, or --folder submissions")
    if url and not re.fullmatch(r"https?://[^\s\"'<>]+", url):
        raise UserError(f"--url {url}: an address begins with https://")
    found = problem_set()
    stated = tuple(map(Guarantee.of, guarantees))
    for each in stated:
        if not found.asks(each.metric, each.at):
            raise UserError(f"the guarantee '{each}' speaks of nothing that {found.name} measures")
    begin_server()
    most = Limits(kit_limit)
    with limited(most):
        specs, plugins = resolve(tuple(dict.fromkeys(rules)))
    names = canonical_rules(specs, plugins)
    for name in references().keys() & set(names):
        raise UserError(f"'{name}' is made from the truth itself, and cannot be entered")
    about = {
        name: _about(
            name, plugins, making.About(authors, licence or "", rule_version or "", url or "", stated)
        )
        for name in names
    }
    if output is not None and len(names) > 1:
        raise UserError(f"{output} is one file, and there are {len(names)} rules; give a --folder")
    said = [making.entered(name, plugins, about[name]) for name in names]
    paths = [output or (folder or Path()) / f"{each.slug}.json" for each in said]
    _check_replaceable(paths)
    screen = Screen()
    with Store(database, writing=True) as store:
        making.measure(store, names, plugins, found, at_most_cores(jobs), group_limit, screen)
        for rule, path in zip(said, paths, strict=True):
            made = making.submission(store, rule, plugins, found, stated, most, screen.say)
            try:
                text = made.text()
                of_json(_plain(text))
            except ValueError as error:
                raise UserError(f"{rule.name} cannot be entered: {error}") from error
            files.write(path, text)
            echo(f"{path}: {sum(1 for _ in made.numbers())} numbers of {len(made.measurements)} problems")


def _check_replaceable(paths: Sequence[Path]) -> None:
    """Raise UserError unless each file is new or a submission, which may be replaced."""
    from sdp_bench.bench import files
    from sdp_bench.bench.errors import UserError
    from sdp_bench.bench.submissions.submission import read

    for path in paths:
        if paths.count(path) > 1:
            raise UserError(f"two of these rules would be {path}; enter them one by one, with --output")
        files.check_writable(path)
        if path.is_file():
            try:
                read(path)
            except UserError as error:
                raise UserError(
                    f"{path} is there, and is no submission; give the new one another name"
                ) from error


def _plain(text: str) -> object:
    import json

    return json.loads(text)


def _about(name: str, plugins: tuple[Plugin, ...], given: About) -> About:
    """Metadata of a rule; for the package's own rules and adapters of other packages, the package's."""
    from dataclasses import replace

    from sdp_bench.bench.environment import describe
    from sdp_bench.bench.errors import UserError
    from sdp_bench.bench.plugins.plugin import plugin_of

    plugin = plugin_of(name, plugins)
    if plugin is None or plugin.code.module.startswith("sdp_bench."):
        version = name.partition("version=")[2].partition(",")[0] or str(describe("cpu", 1, 1)["sdp-bench"])
        return replace(
            given,
            authors=given.authors or ("the authors of sdp-bench",),
            licence=given.licence or "MIT",
            version=given.version or version,
        )
    if not given.authors or not given.licence:
        raise UserError(f"say who enters {name}: --author 'A. Author' --licence MIT")
    return replace(given, version=given.version or "1")


@submission.command("check")
@click.argument("file", type=file_)
@click.option(
    "--share", type=Share(), default="5%", show_default=True, help="Of the problems, measured again."
)
@click.option("--seed", type=seed_, default=0, show_default=True, help="Of their choice.")
@click.option("--trust-code", is_flag=True, help="Run the code that stands in FILE; it runs as you do.")
@limits
def check_(
    file: Path, share: float, seed: int, trust_code: bool, time_limit: float, memory_limit: float | None
) -> None:
    """Check the submission in FILE: its schema, its arithmetic, and a share of its numbers measured again.

    What it guarantees and does not keep comes first. Code that stands in FILE is run with --trust-code alone;
    built-in rules are measured again in any case. Exit code: 1 if something does not come out, 2 if FILE is
    no submission.
    """
    from sdp_bench.bench.executors.local import Limits
    from sdp_bench.bench.problems.problem_set import problem_set
    from sdp_bench.bench.submissions.checking import check
    from sdp_bench.bench.submissions.submission import read
    from sdp_bench.commands.progress import meter

    found = read(file)
    with meter("places") as bar:
        checked = check(
            found,
            problem_set(found.problem_set.name),
            share,
            seed,
            trusted=trust_code,
            limits=Limits(time_limit, memory_limit),
            told=bar.done,
        )
    for each in (*checked.violated, *checked.wrong):
        echo(each)
    verdict = "stands" if checked.passed else "does not stand"
    echo(f"{found.rule.name}: {verdict}; {'; '.join(checked.notes)}")
    if not checked.passed:
        raise SystemExit(BAD_VERDICT)


@command()
@click.argument("folder", type=folder_, default=Path("submissions"))
@click.option("--output", type=folder_, default=LEADERBOARD, show_default=True, help="Folder of the page.")
def leaderboard(folder: Path, output: Path) -> None:
    """Write the leaderboard of the submissions in FOLDER: a page, its tables as JSON, and badges.

    Exit code 2 if a file of FOLDER is no submission, or not for this version's problem set.
    """
    from sdp_bench.bench.errors import UserError
    from sdp_bench.bench.problems.problem_set import problem_set
    from sdp_bench.bench.submissions.submission import read
    from sdp_bench.reports.leaderboard.page import build

    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise UserError(f"there is no submission in {folder}")
    found, problems = [read(path) for path in paths], problem_set()
    for path, each in zip(paths, found, strict=True):
        if each.problem_set.digest != problems.digest:
            raise UserError(f"{path} is not for {problems.name} of digest {problems.digest[:16]}")
    echo(f"leaderboard: {build(found, problems, output)}")
