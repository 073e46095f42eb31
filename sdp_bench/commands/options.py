"""Options that several commands take, and their types."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

DATABASE = Path("sdp-bench.sqlite")
RUNTIME = Path("runtime.csv")
BAD_VERDICT = 1
"""Exit code of a bad verdict."""
TIME_LIMIT = 600.0  # s
FAILED = 3
"""Exit code where something failed to run."""

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


class Numbers(click.ParamType):  # type: ignore[type-arg]  # click 8.1 takes none
    """Numbers separated by commas."""

    def __init__(self, kind: type[int] | type[float]) -> None:
        self.kind, self.name = kind, "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Tuple of numbers."""
        if isinstance(value, tuple):
            return value
        try:
            return tuple(self.kind(item) for item in str(value).split(","))
        except ValueError:
            what = "whole numbers" if self.kind is int else "numbers"
            self.fail(f"'{value}' is not a list of {what} separated by commas", param, ctx)


class Shard(click.ParamType):  # type: ignore[type-arg]  # click 8.1 takes none
    """A part i/n, counted from 1."""

    name = "i/n"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Part and number of parts."""
        if isinstance(value, tuple):
            return value
        part, slash, parts = str(value).partition("/")
        if not (slash and part.isdigit() and parts.isdigit() and 1 <= int(part) <= int(parts)):
            self.fail(f"'{value}' is not a part i/n with 1 <= i <= n", param, ctx)
        return int(part), int(parts)


class Share(click.ParamType):  # type: ignore[type-arg]  # click 8.1 takes none
    """A share above 0 and at most 100 %: ``2%`` or ``0.02``."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The share as a number."""
        text = str(value).strip()
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            self.fail(f"'{value}' is no share; write 2% or 0.02", param, ctx)
        if not 0 < share <= 1:
            self.fail(f"'{value}' is no share above 0 and at most 100%", param, ctx)
        return share


class Rules(click.ParamType):  # type: ignore[type-arg]  # click 8.1 takes none
    """Rule specs separated by commas; a part with '=' and no ':' goes on with the spec before it."""

    name = "rules"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        """Tuple of specs."""
        specs: list[str] = []
        for part in str(value).split(","):
            if "=" in part and ":" not in part and specs:
                specs[-1] += f",{part}"
            else:
                specs.append(part.strip())
        return tuple(specs)


file_ = click.Path(dir_okay=False, path_type=Path)
folder_ = click.Path(file_okay=False, path_type=Path)

database = click.option(
    "--database",
    type=file_,
    default=DATABASE,
    show_default=True,
    help="Results file.",
)

runtime_table = click.option(
    "--runtime",
    "runtime_table",
    type=file_,
    default=RUNTIME,
    show_default=True,
    help="Table of timings.",
)

positive = click.FloatRange(min=0, min_open=True)


def limits(command: CommandT) -> CommandT:
    """Give a command the limits of a rule that runs in a process of its own."""
    for option in (
        click.option("--memory-limit", type=positive, help="GiB that a rule of yours may take (resident)."),
        click.option(
            "--time-limit",
            type=positive,
            default=TIME_LIMIT,
            show_default=True,
            help="Seconds in which a rule of yours must have answered.",
        ),
    ):
        command = option(command)
    return command


_SETTINGS = (
    click.option(
        "--rules",
        type=Rules(),
        help="Rules instead of the experiments' own: sdp,monte_carlo:samples=100,my_rule.py:MyRule",
    ),
    click.option(
        "--sigma", "sigmas", type=Numbers(float), help="Noise levels instead of the experiments' own."
    ),
    click.option("--activation", help="Activation of the nets: relu, leaky_relu, sigmoid, silu, gelu, tanh."),
    click.option("--depth", "depths", type=Numbers(int), help="Hidden layers of the nets: 1,2,4"),
    click.option("--width", type=int, help="Units of a hidden layer."),
    click.option("--nets", type=int, help="Nets an architecture (seeds 0, 1, ...), for every experiment."),
    click.option("--net-source", help="trained (and cached), or committed with the package."),
    click.option("--inputs", type=int, help="Inputs a net (flowers, images), for every experiment."),
    click.option("--slow-rules/--no-slow-rules", default=None, help="Rules that take seconds a net."),
    click.option(
        "--samples", type=int, help="Samples of each oracle and of each prediction, for every experiment."
    ),
    click.option("--pilot-samples", type=int, help="Samples of the draw that fixes bins and cells."),
    click.option("--sampler", help="mc or sobol (scrambled)."),
    click.option("--bins", type=int, help="Bins an axis of the paper-like histogram."),
    click.option("--bin-range", help="What they span: quantiles (of the pilot), minmax, or joint."),
    click.option("--cells", type=int, help="Equal-mass cells of the headline total variation."),
    click.option("--difference-bins", type=int, help="Bins of each pairwise score difference."),
    click.option("--output-bins", type=int, help="Bins of each output by itself, under Cauchy noise."),
    click.option("--margin-bins", type=int, help="Bins of margins, pairs and slices of ten logits."),
    click.option("--w1-points", type=int, help="Points a side of W1."),
    click.option("--w1-pairs", type=int, help="Oracle-oracle pairs behind the floor of W1."),
    click.option("--certified-points", type=int, help="Points a side of the certified W1."),
    click.option("--optimizer", help="sgd or adam."),
    click.option("--learning-rate", type=float, help="Of the training."),
    click.option("--epochs", type=int, help="Of the training."),
    click.option("--datasets", type=Rules(), help="Sets of the experiment uci: yacht,boston"),
    click.option("--features", help="Scaling of the nets' inputs: raw or standardised."),
    click.option("--device", help="cpu, cuda, cuda:1 ..."),
)


def settings(command: CommandT) -> CommandT:
    """Give a command the options that make up the settings of a run."""
    for option in reversed(_SETTINGS):
        command = option(command)
    return command
