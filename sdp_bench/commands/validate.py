"""The command ``sdp-bench validate``: checks and measures a new rule, and writes its scorecard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sdp_bench.commands import echo, options

SCORECARD = Path("reports/html/scorecard")
DATABASE = Path("validate.sqlite")
KIT_LIMIT = 600.0  # s
GROUP_LIMIT = 1800.0  # s


@options.command(example="sdp-bench validate path/to/my_rule.py:MyRule --preset smoke")
@click.argument("rules", type=options.word, nargs=-1, metavar="RULE...")
@click.option(
    "--net",
    "net_address",
    type=options.word,
    metavar="FILE.py:build",
    help="Your net, instead of small Iris nets: code, or a file .pt2 (torch.export) or .onnx.",
)
@options.inputs()
@options.net_input
@options.net_output
@options.rows
@click.option(
    "--sigma",
    "sigmas",
    type=options.sigmas_,
    help="Noise levels: 0.1,1 (required with --net; 1 with scales, a covariance or residuals).",
)
@options.noise
@click.option(
    "--experiment",
    "experiments",
    type=options.word,
    multiple=True,
    help="Experiment to run, instead of the default cells; may be repeated.",
)
@options.preset
@click.option("--depth", "depths", type=options.depths_, help="Numbers of hidden layers [default: 1,2,4].")
@click.option("--activation", type=options.word, help="Activation of the nets: relu, gelu, tanh, ...")
@click.option("--nets", type=click.IntRange(1, 10_000), help="Nets per depth [default: 3; smoke: 1].")
@click.option(
    "--rules", "beside", type=options.Rules(), help="Rules to compare with, instead of all built-in ones."
)
@click.option("--samples", type=options.at_most(10**8), help="Samples per oracle and per prediction.")
@click.option("--w1-points", type=options.at_most(20_000), help="Points per side of W1.")
@click.option(
    "--conformance/--no-conformance", default=True, help="Run the conformance kit first, or skip it."
)
@click.option(
    "--kit-limit", type=options.seconds, default=KIT_LIMIT, help="Time limit of the kit in seconds."
)
@click.option(
    "--group-limit", type=options.seconds, default=GROUP_LIMIT, help="Time limit per group in seconds."
)
@options.jobs
@click.option("--database", type=options.file_, default=DATABASE, help="Results file.")
@click.option("--output", type=options.folder_, default=SCORECARD, help="Folder for the scorecard.")
@options.config()
def validate(
    rules: tuple[str, ...],
    net_address: str | None,
    inputs_file: Path | None,
    rows: int | None,
    net_input: str | None,
    net_output: str | None,
    conformance: bool,
    kit_limit: float,
    jobs: int | None,
    group_limit: float,
    database: Path,
    output: Path,
    experiments: tuple[str, ...],
    preset: str,
    beside: tuple[str, ...] | None,
    **given: Any,
) -> None:
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
    from functools import partial

    from sdp_bench.bench.errors import UserError
    from sdp_bench.bench.nets.own.net import find
    from sdp_bench.commands.progress import Screen, command_line
    from sdp_bench.reports.scorecard.page import build
    from sdp_bench.reports.scorecard.validation import Question, validated

    net = None
    if net_address is None:
        if any(each is not None for each in (inputs_file, rows, net_input, net_output)):
            raise UserError("--inputs, --rows, --net-input and --net-output go with --net")
    elif inputs_file is None:
        raise UserError("--net needs --inputs: x.csv with one row per input, or x.npy of shape (B, *event)")
    else:
        net = partial(find, net_address, inputs_file, rows, net_input, net_output)
    question = Question(
        rules=rules,
        net=net,
        experiments=experiments,
        preset=preset,
        beside=beside or (),
        options={name: value for name, value in given.items() if value is not None},
        conformance=conformance,
        kit_limit=kit_limit,
        group_limit=group_limit,
        jobs=options.at_most_cores(jobs),
        command=command_line(),
    )
    found = validated(question, database, Screen(), output)
    for verdict in found.verdicts:
        echo(verdict.details)
    echo(f"scorecard: {build(found, output)}")
    for verdict in found.verdicts:
        echo(verdict.last)
    raise SystemExit(found.exit_code)
