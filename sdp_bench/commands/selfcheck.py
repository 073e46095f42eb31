"""The command ``sdp-bench selfcheck``: error rates of floors, intervals, verdicts, gate and kit."""

from __future__ import annotations

import time
from pathlib import Path

import click

from sdp_bench.commands.options import (
    BAD_VERDICT,
    Share,
    at_most_cores,
    command,
    folder_,
    jobs,
    seed_,
    stream,
    word,
)
from sdp_bench.commands.screen import echo

FOLDER = Path("reports/html/selfcheck")


@command()
@click.argument("checks", type=word, nargs=-1, metavar="[CHECK]...")
@click.option(
    "--trials", type=Share(), default="100%", show_default=True, help="Share of the trials of a full check."
)
@click.option("--seed", type=seed_, default=0, show_default=True, help="Of the simulations.")
@jobs
@click.option(
    "--output",
    type=folder_,
    default=FOLDER,
    show_default=True,
    help="Folder of the page.",
)
@click.option(
    "--markdown", "markdown_file", type=stream, help="Write it as a page of the documentation, too."
)
def selfcheck(
    checks: tuple[str, ...],
    trials: float,
    seed: int,
    jobs: int | None,
    output: Path,
    markdown_file: Path | None,
) -> None:
    """Try floors, intervals, verdicts, gate and kit on cases whose truth is known, and count errors.

    CHECK is verdicts, intervals, ...; all of them without any. Exit code 1 if a promise is not kept.
    """
    from sdp_bench.bench.environment import cores, cpu_name
    from sdp_bench.bench.files import check_writable, write
    from sdp_bench.commands.progress import command_line, meter
    from sdp_bench.reports.folder import check
    from sdp_bench.reports.parts import PAGE
    from sdp_bench.reports.selfcheck.checks import chosen, run
    from sdp_bench.reports.selfcheck.page import DATA, Findings

    started = time.monotonic()
    wanted = chosen(checks)
    check(output, (PAGE, DATA))
    for path in (output / PAGE, markdown_file):
        if path is not None:
            check_writable(path)
    with meter("checks") as shown:
        found = run(wanted, shown, share=trials, seed=seed, jobs=at_most_cores(jobs) or cores())
    rates = [rate for each in found.values() for rate in each]
    findings = Findings(rates, command_line(), cpu_name(), time.monotonic() - started)
    for rate in findings.broken:
        low, high = rate.promised
        echo(f"not kept: {rate.what} ({rate.condition}): {rate.rate:.3f}, promised {low:g} to {high:g}")
    page = findings.write(output)
    if markdown_file is not None:
        write(markdown_file, findings.markdown())
    echo(f"verdict: {findings.verdict}")
    echo(f"page: {page}")
    if findings.broken:
        raise SystemExit(BAD_VERDICT)
