"""The command ``sdp-bench validate``: checks and measures a new rule, and writes its scorecard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sdp_bench.commands import echo, options
from sdp_bench.commands.options import Rules, at_most, depths_, file_, folder_, option, seconds, sigmas_

SCORECARD = Path("reports/html/scorecard")
DATABASE = Path("validate.sqlite")
KIT_LIMIT = 600.0  # s
GROUP_LIMIT = 1800.0  # s


@options.command(example="sdp-bench validate path/to/my_rule.py:MyRule --preset smoke")
@click.argument("rules", type=options.word, nargs=-1, metavar="RULE...")
@option(
    "--net",
    "Your net, instead of small Iris nets: code, or a file .pt2 (torch.export) or .onnx.",
    metavar="FILE.py:build",
)
@options.inputs()
@options.net_input
@options.net_output
@options.rows
@option(
    "--sigma", "Noise levels: 0.1,1 (required with --net; 1 with scales, a covariance or residuals).", sigmas_
)
@options.noise
@option(
    "--experiment",
    "Experiment to run, instead of the default cells; may be repeated.",
    None,
    "experiments",
    multiple=True,
)
@options.preset
@option("--depth", "Numbers of hidden layers [default: 1,2,4].", depths_, "depths")
@option("--activation", "Activation of the nets: relu, gelu, tanh, ...")
@option("--nets", "Nets per depth [default: 3; smoke: 1].", click.IntRange(1, 10_000))
@option("--rules", "Rules to compare with, instead of all built-in ones.", Rules(), "beside")
@option("--samples", "Samples per oracle and per prediction.", at_most(10**8))
@option("--w1-points", "Points per side of W1.", at_most(20_000))
@option("--conformance/--no-conformance", "Run the conformance kit first, or skip it.")
@option("--kit-limit", "Time limit of the kit in seconds.", seconds, default=KIT_LIMIT)
@option("--group-limit", "Time limit per group in seconds.", seconds, default=GROUP_LIMIT)
@options.jobs
@option("--database", "Results file.", file_, default=DATABASE)
@option("--output", "Folder for the scorecard.", folder_, default=SCORECARD)
@options.config()
def validate(rules: tuple[str, ...], jobs: int | None, output: Path, **given: Any) -> None:
    """Check RULE..., compare it with the built-in rules, and write a scorecard.

    RULE is path/to/my_rule.py:MyRule, package.module:MyRule, an installed entry point, or a built-in rule.
    The conformance kit runs first. Then all rules are measured on small nets (Iris nets of 1, 2 and 4 ReLU
    layers, 10^6 samples) or on your net (--net). Without RULE, --net compares the built-in rules on that net.
    A rule with which the kit hangs or crashes is not measured.

    Results are printed to standard output, the verdicts last; the scorecard has the same sentences and all
    numbers. Progress is printed to standard error.

    Exit code, first match: 2 for bad input; 1 if a rule fails a check that it does not declare as a known
    fault, or no check could run; 3 if something failed to run or a rule was not measured; 0 otherwise.
    """
    from sdp_bench import python
    from sdp_bench.reports.site import PAGE

    scorecard = python.validate(rules, jobs=options.at_most_cores(jobs), output=output, **given)
    for verdict in scorecard.verdicts:
        echo(verdict.details)
    echo(f"scorecard: {output / PAGE}")
    echo(scorecard.verdict)
    raise SystemExit(scorecard.exit_code)
