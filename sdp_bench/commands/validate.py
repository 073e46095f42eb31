"""The command ``sdp-bench validate``: checks and measures a new rule, and writes its scorecard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sdp_bench.commands.options import (
    Rules,
    at_most,
    at_most_cores,
    command,
    config,
    count,
    depths_,
    file_,
    folder_,
    jobs,
    noise,
    seconds,
    sigmas_,
    word,
)
from sdp_bench.commands.screen import echo

SCORECARD = Path("reports/html/scorecard")
DATABASE = Path("validate.sqlite")
KIT_LIMIT = 600.0  # s
GROUP_LIMIT = 1800.0  # s


@command()
@click.argument("rules", type=word, nargs=-1, metavar="RULE...")
@click.option(
    "--net",
    "net_address",
    type=word,
    metavar="FILE.py:build",
    help="Measure on this net of yours instead; or a file: .pt2 (torch.export) or .onnx.",
)
@click.option(
    "--inputs", "inputs_file", type=file_, help="Its inputs: x.npy, shape (B, *event), or several in x.npz."
)
@click.option("--net-input", type=word, metavar="NAME", help="Name or place (0, 1 ...) of the noisy input.")
@click.option(
    "--net-output", type=word, metavar="NAME", help="Key, field or place of the output to take: logits, 0 ..."
)
@click.option("--rows", type=count, help="Take the first so many inputs only.")
@click.option("--sigma", "sigmas", type=sigmas_, help="Noise levels: 0.1,1 (needed with --net).")
@noise
@click.option(
    "--experiment",
    "experiments",
    type=word,
    multiple=True,
    help="Experiments to run instead of the default cells.",
)
@click.option("--preset", type=word, default="quick", show_default=True, help="smoke, quick or paper.")
@click.option("--depth", "depths", type=depths_, help="Hidden layers of the nets [default: 1,2,4].")
@click.option("--activation", type=word, help="Activation of the nets: relu, gelu, tanh ...")
@click.option("--nets", type=click.IntRange(1, 10_000), help="Nets of each depth [default: 3; smoke: 1].")
@click.option("--rules", "beside", type=Rules(), help="Rules to stand beside, instead of all built-in ones.")
@click.option("--samples", type=at_most(10**8), help="Samples of each oracle and of each prediction.")
@click.option("--w1-points", type=at_most(20_000), help="Points a side of W1.")
@click.option("--conformance/--no-conformance", default=True, help="Run the conformance kit first.")
@click.option("--kit-limit", type=seconds, default=KIT_LIMIT, show_default=True, help="Seconds it may take.")
@click.option(
    "--group-limit", type=seconds, default=GROUP_LIMIT, show_default=True, help="Seconds a group may take."
)
@jobs
@click.option("--database", type=file_, default=DATABASE, show_default=True, help="Results file.")
@click.option(
    "--output",
    type=folder_,
    default=SCORECARD,
    show_default=True,
    help="Folder of the page.",
)
@config()
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
    **options: Any,
) -> None:
    """Check RULE... and compare it with the built-in rules, in one command and on one page.

    RULE is path/to/my_rule.py:MyRule, package.module:MyRule, an installed entry point, or a built-in rule.
    The conformance kit runs first, then the rule on small nets beside all built-in rules (Iris nets of 1, 2
    and 4 ReLU layers, 10^6 samples), or on a net of yours (--net). Without RULE, --net compares the built-in
    rules on that net.

    A rule on which the kit hangs or dies is not measured; the others are.

    What was found stands on standard output, a line for each thing and the verdict of each rule, or of the
    net, last; the page has the same words beside all numbers. Progress goes to standard error.

    Exit code: 2 for bad input; else 1 if the rule fails a check that it does not declare as a known fault, or
    the kit ran and had no check that could run on it, whatever else there was; else 3 if it, or anything,
    failed to run, or nothing was measured of it; else 0.
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
        raise UserError("--net needs --inputs: x.npy, an array of shape (B, *event)")
    else:
        net = partial(find, net_address, inputs_file, rows, net_input, net_output)
    question = Question(
        rules=rules,
        net=net,
        experiments=experiments,
        preset=preset,
        beside=beside or (),
        options={name: value for name, value in options.items() if value is not None},
        conformance=conformance,
        kit_limit=kit_limit,
        group_limit=group_limit,
        jobs=at_most_cores(jobs),
        command=command_line(),
    )
    found = validated(question, database, Screen(), output)
    for verdict in found.verdicts:
        echo(verdict.details)
    echo(f"scorecard: {build(found.card, output)}")
    for verdict in found.verdicts:
        echo(verdict.last)
    if found.exit_code:
        raise SystemExit(found.exit_code)
