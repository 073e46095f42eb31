"""The command ``sdp-bench validate``: checks and measures a new rule, and writes its scorecard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sdp_bench import values
from sdp_bench.commands import echo, options
from sdp_bench.commands.options import option

SCORECARD = Path("reports/html/scorecard")
RESULTS = Path("validate-results")


@options.command(example="sdp-bench validate path/to/my_rule.py:MyRule --preset smoke")
@options.argument("rules", values.WORD, nargs=-1, metavar="RULE...")
@option(
    "--net",
    "Your net, instead of small Iris nets: code, a file .pt2 (torch.export) or .onnx, or published:NAME.",
    metavar="FILE.py:build",
)
@options.inputs()
@options.net_input
@options.net_output
@options.has_class
@options.rows
@option(
    "--sigma",
    "Noise levels: 0.1,1 (required with --net; 1 with scales, a covariance or residuals).",
    values.SIGMAS,
    "sigmas",
)
@options.noise
@option(
    "--budget/--no-budget",
    "Add an uncertainty budget of your net: the share of each input in the variance of each output.",
    values.FLAG,
    default=False,
)
@options.groups
@option(
    "--experiment",
    "Experiment to run, instead of the default cells; may be repeated.",
    values.WORD,
    "experiments",
    multiple=True,
)
@options.preset
@option("--depth", "Numbers of hidden layers [default: 1,2,4].", values.DEPTHS, "depths")
@option("--activation", "Activation of the nets: relu, gelu, tanh, ...")
@option("--nets", "Nets per depth [default: 3; smoke: 1].", values.NETS)
@option("--rules", "Rules to compare with, instead of the usual built-in ones.", values.RULES, "compare_with")
@option("--samples", "Samples per oracle and per prediction.", values.SAMPLES)
@option("--w1-points", "Points per side of W1.", values.W1_POINTS)
@option("--conformance/--no-conformance", "Run the conformance kit first, or skip it.")
@option("--kit-limit", "Time limit of the kit in seconds.", values.SECONDS, default=values.KIT_LIMIT)
@option("--group-limit", "Time limit per group in seconds.", values.SECONDS, default=values.GROUP_LIMIT)
@options.jobs
@option("--database", "Folder of results.", values.RESULTS, default=RESULTS)
@option("--output", "Folder for the scorecard.", values.FOLDER, default=SCORECARD)
@options.config()
def validate(
    rules: tuple[str, ...],
    net: str | None,
    inputs: Path | None,
    net_input: str | None,
    net_output: str | None,
    has_class: bool | None,
    rows: int | None,
    budget: bool,
    groups: str | None,
    experiments: tuple[str, ...],
    preset: str,
    compare_with: tuple[str, ...] | None,
    conformance: bool,
    kit_limit: float,
    group_limit: float,
    jobs: int | None,
    database: Path,
    output: Path,
    **settings: Any,
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
    from sdp_bench.bench import files
    from sdp_bench.bench.nets.own.net import finder
    from sdp_bench.bench.validation import run
    from sdp_bench.progress import Screen, command_line
    from sdp_bench.reports.folder import check
    from sdp_bench.reports.scorecard.page import FILES, build, scorecard_of
    from sdp_bench.reports.site import PAGE

    request = run.ValidationRequest(
        rules=rules,
        net=finder(net, inputs, rows, net_input, net_output, has_class),
        experiments=experiments,
        preset=preset,
        compare_with=compare_with or (),
        options={name: value for name, value in settings.items() if value is not None},
        conformance=conformance,
        budget=budget,
        groups=groups or "",
        columns=files.column_names(inputs) if inputs else (),
        kit_limit=kit_limit,
        group_limit=group_limit,
        jobs=options.at_most_cores(jobs),
        command=command_line(),
    )
    check(output, FILES)
    validation = run.validate(request, database, Screen(), output / PAGE)
    scorecard = scorecard_of(validation, database)
    build(scorecard, output)
    for line in scorecard.budget_lines:
        echo(line)
    for verdict in scorecard.verdicts:
        echo(verdict.details)
    echo(f"scorecard: {output / PAGE}")
    echo(scorecard.verdict)
    raise SystemExit(scorecard.exit_code)
