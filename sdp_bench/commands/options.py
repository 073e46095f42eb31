"""Options that several commands share, and their types."""

from __future__ import annotations

import errno
import functools
import math
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sdp_bench.bench.badge import ENDS
from sdp_bench.bench.text import printable
from sdp_bench.commands.config import Config
from sdp_bench.commands.screen import echo
from sdp_bench.commands.sweeps import specs_of

if TYPE_CHECKING:
    from sdp_bench.bench.runtime.table import Row

DATABASE = Path("sdp-bench.sqlite")
RUNTIME = Path("runtime.csv")
BAD_VERDICT = 1
"""Exit code of a bad verdict."""
TIME_LIMIT = 600.0  # s
FAILED = 3
"""Exit code if something failed to run."""

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


class Command(click.Command):
    """A command that rejects repeated options, of which click would silently use the last.

    Values that are not on the command line come from the file of :data:`config`, if it has that option.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        said, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for param in given:
            single = isinstance(param, click.Option) and not (param.multiple or param.is_flag or param.count)
            if single and given.count(param) > 1:
                name = max(param.opts, key=len)
                raise click.UsageError(f"{name} is given twice", ctx)
        file = next((param for param in given if isinstance(param, Config)), None)
        if file is None or ctx.resilient_parsing or any(param.is_eager for param in given):  # --help
            return super().parse_args(ctx, args)
        # Arguments are always among them; the value of a missing one differs between versions of click.
        there = {str(p.name) for p in given if isinstance(p, click.Option) or _has_words(said[str(p.name)])}
        ctx.default_map = values = file.values(ctx, said[str(file.name)], there)
        rest = super().parse_args(ctx, args)
        for name in file.arguments.values():  # click requests no defaults for these
            if name in values:
                ctx.params[name] = values[name]
                ctx.set_parameter_source(name, click.core.ParameterSource.DEFAULT_MAP)
        return rest


def _has_words(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value)


class Group(click.Group):
    command_class = Command


command = functools.partial(click.command, cls=Command)


class Word(click.ParamType):  # type: ignore[type-arg]  # click 8.1 takes none
    """Non-empty text of printable characters."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = str(value)
        if not text.strip():
            self.fail("an empty text says nothing; leave the option out", param, ctx)
        if printable(text) != text:
            self.fail(f"'{printable(text)}' has characters (?) that are no text", param, ctx)
        return text


class Finite(click.FloatRange):
    """Finite number in a range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):  # NaN is in every range
            self.fail(f"{value} is no finite number", param, ctx)
        return number


class Numbers(click.ParamType):  # type: ignore[type-arg]  # click 8.1 takes none
    """Numbers separated by commas, each of the type `each`; or a list of their texts."""

    def __init__(self, each: click.IntRange | click.FloatRange) -> None:
        self.each, self.name = each, "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        try:
            texts = value if isinstance(value, list) else str(value).split(",")
            return tuple(self.each(item, param, ctx) for item in texts)
        except click.BadParameter as error:
            what = "whole numbers" if isinstance(self.each, click.IntRange) else "numbers"
            shown = ",".join(value) if isinstance(value, list) else value
            message = f"'{shown}' is not a list of {what} separated by commas: {error.message}"
            self.fail(message, param, ctx)


def jobs(command: CommandT) -> CommandT:
    """Option for the number of worker processes; :func:`at_most_cores` limits it."""
    option = click.option("--jobs", type=workers, help="Worker processes (default: one a core).")
    return option(command)


def at_most_cores(jobs: int | None) -> int | None:
    """Limit worker processes to the number of cores, and print a note if that reduces them."""
    from sdp_bench.bench.environment import cores

    if jobs is None or jobs <= cores():
        return jobs
    number = cores()
    there = f"{number} core" + "s" * (number > 1)
    echo(f"--jobs {jobs}: this machine has {there}; using {number}", err=True)
    return number


class Shard(click.ParamType):  # type: ignore[type-arg]  # click 8.1 takes none
    """A part i/n, counted from 1."""

    name = "i/n"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        found = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", str(value))
        if found is None or not 1 <= int(found[1]) <= int(found[2]):
            self.fail(f"'{value}' is not a part i/n with 1 <= i <= n", param, ctx)
        return int(found[1]), int(found[2])


class Share(click.ParamType):  # type: ignore[type-arg]  # click 8.1 takes none
    """A share above 0 and at most 100 %: ``2%`` or ``0.02``."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = str(value).strip()
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            self.fail(f"'{value}' is no share; write 2% or 0.02", param, ctx)
        if not 0 < share <= 1:
            self.fail(f"'{value}' is no share above 0 and at most 100%", param, ctx)
        return share


class Rules(click.ParamType):  # type: ignore[type-arg]  # click 8.1 takes none
    """Specs separated by commas, as :func:`sdp_bench.commands.sweeps.specs_of` reads them; or a list."""

    name = "rules"
    each: click.ParamType = Word()  # type: ignore[type-arg]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        texts = value if isinstance(value, list) else [value]
        try:
            return tuple(spec for text in texts for spec in specs_of(word.convert(text, param, ctx)))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Place(click.Path):
    """A path with a name that file systems accept.

    With `streams` it may be a device or a pipe, such as ``/dev/stdout``. Files that are read as a whole must
    be regular, since reading a stream might never end.
    """

    def __init__(self, *, streams: bool = False, **options: Any) -> None:
        super().__init__(path_type=Path, **options)
        self.streams = streams

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = os.fspath(value)
        if not text or "\0" in text:
            self.fail("an empty text, or one with the character NUL, names no file", param, ctx)
        try:
            mode = Path(text).stat().st_mode
        except OSError as error:
            if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
                self.fail(f"{text}: {error.strerror}", param, ctx)
            mode = 0
        if not self.streams and mode and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            self.fail(f"{text} is a device or a pipe, and no file", param, ctx)
        return super().convert(value, param, ctx)


class BadgeFile(Place):
    """File of a badge, whose suffix selects the format."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path: Path = super().convert(value, param, ctx)
        if path.suffix not in ENDS:
            self.fail(f"{path}: a badge is a file {' or '.join(ENDS)}", param, ctx)
        return path


word = Word()
file_ = Place(dir_okay=False)
stream = Place(dir_okay=False, streams=True)
"""A file to write, or an existing terminal or pipe."""
folder_ = Place(file_okay=False)

count = click.IntRange(1, 10**6)
workers = click.IntRange(1, 10_000)
seed_ = click.IntRange(0, 2**63 - 1)
seconds = Finite(0, 1e8, min_open=True)
gibibytes = Finite(0, 1e6, min_open=True)
sigmas_ = Numbers(Finite(max=1e18))  # their squares fit into float32
depths_ = Numbers(click.IntRange(max=1000))


def at_most(number: int) -> click.IntRange:
    """Integer that the machine can represent; the lower limit is checked where it is used."""
    return click.IntRange(max=number)


database = click.option(
    "--database",
    type=file_,
    default=DATABASE,
    show_default=True,
    help="Results file.",
)


def runs(command: CommandT) -> CommandT:
    """Add the options `numbers` and `all_runs`, which select runs of a results file."""
    for option in (
        click.option("--all-runs", is_flag=True, help="Show all runs of the file together."),
        click.option(
            "--run",
            "numbers",
            type=Numbers(click.IntRange(1, 2**63 - 1)),
            help="Runs to show together (default: the newest).",
        ),
    ):
        command = option(command)
    return command


runtime_table = click.option(
    "--runtime",
    "runtime_table",
    type=file_,
    default=RUNTIME,
    show_default=True,
    help="Table of timings.",
)


noise = click.option(
    "--noise",
    type=word,
    metavar="FAMILY",
    help="Noise instead of the experiments' own: gaussian, laplace, uniform, student_t:5, cauchy, "
    "stable:1.5, mixture:0.9*1+0.1*5, scales:1/0.5/2 (or FILE.npy), covariance:FILE.npy, residuals:FILE.npy",
)


config = functools.partial(
    click.option,
    "--config",
    cls=Config,
    type=file_,
    expose_value=False,
    metavar="FILE.toml",
    help="File with values of these options; the command line wins over it.",
)
"""Adds the option, with the arguments of :class:`Config`."""


badge = click.option(
    "--badge",
    "badge_files",
    type=BadgeFile(dir_okay=False),
    multiple=True,
    help="Write the verdict as a badge: FILE.svg, or FILE.json for shields.io; may be repeated.",
)


def limits(command: CommandT) -> CommandT:
    """Add the limits of a rule that runs in a separate process."""
    for option in (
        click.option("--memory-limit", type=gibibytes, help="GiB that a rule of yours may take (resident)."),
        click.option(
            "--time-limit",
            type=seconds,
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
        help="Rules instead of the experiments' own: sdp,monte_carlo:samples={10,100},my_rule.py:MyRule; "
        "peers: other people's packages that are installed.",
    ),
    click.option("--sigma", "sigmas", type=sigmas_, help="Noise levels instead of the experiments' own."),
    noise,
    click.option(
        "--activation", type=word, help="Activation of the nets: relu, leaky_relu, sigmoid, silu, gelu, tanh."
    ),
    click.option("--depth", "depths", type=depths_, help="Hidden layers of the nets: 1,2,4"),
    click.option("--width", type=at_most(10_000), help="Units of a hidden layer."),
    click.option(
        "--nets",
        type=at_most(10_000),
        help="Nets an architecture (seeds 0, 1, ...), or seeds.",
    ),
    click.option("--net-source", type=word, help="trained (and cached), or committed with the package."),
    click.option(
        "--inputs",
        type=at_most(10**6),
        help="Inputs a net (flowers, images).",
    ),
    click.option("--slow-rules/--no-slow-rules", default=None, help="Rules that take seconds a net."),
    click.option(
        "--samples",
        type=at_most(10**8),
        help="Samples of each oracle and of each prediction.",
    ),
    click.option(
        "--pilot-samples", type=at_most(10**8), help="Samples of the draw that fixes bins and cells."
    ),
    click.option("--sampler", type=word, help="mc or sobol (scrambled)."),
    click.option("--bins", type=at_most(254), help="Bins an axis of the paper-like histogram."),
    click.option(
        "--bin-range", type=word, help="What they span: quantiles (of the pilot), minmax, or joint."
    ),
    click.option("--cells", type=at_most(10**6), help="Equal-mass cells of the headline total variation."),
    click.option("--difference-bins", type=at_most(10_000), help="Bins of each pairwise score difference."),
    click.option(
        "--output-bins", type=at_most(10**5), help="Bins of each output by itself, under Cauchy noise."
    ),
    click.option(
        "--margin-bins", type=at_most(10_000), help="Bins of margins, pairs and slices of ten logits."
    ),
    click.option("--w1-points", type=at_most(20_000), help="Points a side of W1."),
    click.option("--w1-pairs", type=at_most(1000), help="Oracle-oracle pairs behind the floor of W1."),
    click.option("--certified-points", type=at_most(10**6), help="Points a side of the certified W1."),
    click.option("--optimizer", type=word, help="sgd or adam."),
    click.option("--learning-rate", type=Finite(), help="Of the training."),
    click.option("--epochs", type=at_most(10**7), help="Of the training."),
    click.option("--datasets", type=Rules(), help="Sets of the experiment uci: yacht,boston"),
    click.option("--features", type=word, help="Scaling of the nets' inputs: raw or standardised."),
    click.option("--device", type=word, help="cpu, cuda, cuda:1 ..."),
)


def settings(command: CommandT) -> CommandT:
    """Add the options for the settings of a run."""
    for option in reversed(_SETTINGS):
        command = option(command)
    return command


def timed_rows(path: Path) -> tuple[Row, ...]:
    """Rows of a runtime table; empty if the file does not exist."""
    from sdp_bench.bench.errors import UserError
    from sdp_bench.bench.runtime import table

    try:
        return tuple(table.load(path)) if path.exists() else ()
    except (ValueError, OSError) as error:
        raise UserError(f"cannot read the runtime table {path}: {error}") from error
