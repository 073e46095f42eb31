"""Options that several commands share, and their types."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sdp_bench import values
from sdp_bench.bench.errors import UserError
from sdp_bench.commands import echo
from sdp_bench.commands.config import Config

if TYPE_CHECKING:
    from sdp_bench.bench.results.folder import Stored
    from sdp_bench.bench.runtime.table import Row

RESULTS = Path("results")
RUNTIME = Path("runtime.csv")
BAD_VERDICT = 1
"""Exit code of a bad verdict."""
FAILED = 3
"""Exit code if something failed to run."""

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


class Command(click.Command):
    """A command with an example and groups of options in its help, which rejects repeated options.

    Without this check click would silently use the last value of a repeated option. `sections` maps the
    first option of each section to its title.
    """

    def __init__(
        self, *args: Any, example: str, sections: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self.epilog, self.sections = f"\b\nExample:\n  {example}", sections or {}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows: dict[str, list[tuple[str, str]]] = {}
        title = "Options"
        for param in self.get_params(ctx):
            title = next((self.sections[name] for name in param.opts if name in self.sections), title)
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)):
                rows.setdefault(title, []).append(record)
        for title, records in rows.items():
            with formatter.section(title):
                formatter.write_dl(records)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for param in given:
            single = isinstance(param, click.Option) and not (param.multiple or param.is_flag or param.count)
            if single and given.count(param) > 1:
                name = max(param.opts, key=len)
                raise click.UsageError(f"{name} is given twice", ctx)
        return super().parse_args(ctx, args)


class CommandGroup(click.Group):
    command_class = Command


command = functools.partial(click.command, cls=Command)


class ValueType(click.ParamType):  # type: ignore[type-arg]  # click 8.1 takes none
    """click's type of a kind of value, which the kind reads.

    Subclasses also inherit from a type of click, which adds the limits to the help, or the completion.
    """

    kind: values.Kind

    def __init__(self, kind: values.Kind) -> None:
        self.kind, self.name = kind, kind.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self.kind.read(value)
        except UserError as error:
            self.fail(str(error), param, ctx)


class _Limited(ValueType, click.FloatRange):
    def __init__(self, kind: values.Whole | values.Real) -> None:
        click.FloatRange.__init__(self, kind.low, kind.high, kind.is_open)
        super().__init__(kind)


class _Choice(ValueType, click.Choice):  # type: ignore[type-arg]
    def __init__(self, kind: values.Choice) -> None:
        click.Choice.__init__(self, kind.choices)
        super().__init__(kind)


class _Path(ValueType, click.Path):
    def __init__(self, kind: values.Location) -> None:
        click.Path.__init__(self, file_okay=not kind.is_folder, dir_okay=kind.is_folder)
        super().__init__(kind)


def type_of(kind: values.Kind) -> ValueType:
    """Return click's type of a kind of value."""
    if isinstance(kind, values.Whole | values.Real):
        return _Limited(kind)
    if isinstance(kind, values.Choice):
        return _Choice(kind)
    if isinstance(kind, values.Location):
        return _Path(kind)
    return ValueType(kind)


def at_most_cores(jobs: int | None) -> int | None:
    """Limit worker processes to the number of cores, and print a note if that reduces them."""
    from sdp_bench.bench.environment import cores
    from sdp_bench.reports.style.labels import plural

    number = cores()
    if jobs is None or jobs <= number:
        return jobs
    echo(f"--jobs {jobs}: this machine has {plural(number, 'core')}; using {number}", err=True)
    return number


def argument(name: str, kind: values.Kind, **attributes: Any) -> Callable[[CommandT], CommandT]:
    """Return a decorator that adds an argument."""
    return click.argument(name, type=type_of(kind), **attributes)


def option(
    flag: str, about: str, kind: values.Kind = values.WORD, *names: str, **attributes: Any
) -> Callable[[CommandT], CommandT]:
    """Return a decorator that adds an option: a text, or of another kind.

    A flag ``--on/--off`` is on by default. `about` is the help, and `names` are other spellings and the name
    of the parameter.
    """
    if "/" in flag:
        kind = values.FLAG
        attributes.setdefault("default", True)
    is_flag = kind is values.FLAG
    type_ = bool if is_flag else type_of(kind)
    return click.option(flag, *names, type=type_, is_flag=is_flag, help=about, **attributes)


database = option("--database", "Folder of results.", values.RESULTS, default=RESULTS)
jobs = option("--jobs", "Number of worker processes (default: one per core).", values.WORKERS)
"""The number of worker processes; :func:`at_most_cores` limits it."""


def together(*options: Callable[[CommandT], CommandT]) -> Callable[[CommandT], CommandT]:
    """Return a decorator that adds several options, in this order."""

    def add(command: CommandT) -> CommandT:
        for option in reversed(options):
            command = option(command)
        return command

    return add


runs = together(
    option(
        "--run",
        "Runs to combine, or parts of their ids, separated by commas (default: the newest).",
        values.RUNS,
        "run_ids",
    ),
    option("--all-runs", "Combine all runs.", values.FLAG),
)
"""The options `run_ids` and `all_runs`, which select runs."""

runtime_table = option("--runtime", "CSV table of timings.", values.FILE, "runtime_table", default=RUNTIME)
preset = option("--preset", "Size of the experiments: smoke, quick or paper.", default="quick")
device = option("--device", "Device: cpu, cuda, cuda:1, ...", default="cpu")
inputs = functools.partial(
    option,
    "--inputs",
    "Inputs of the net: x.csv (one row per input), x.npy, shape (B, *event), or several in x.npz.",
    values.FILE,
)
net_input = option("--net-input", "Name or position (0, 1, ...) of the noisy input.", metavar="NAME")
net_output = option(
    "--net-output",
    "Key, field or position of the output, or a column of a single one: logits, 0, ...",
    metavar="NAME",
)
has_class = option(
    "--class/--no-class",
    "Whether the largest output is a decision; --no-class omits the use 'class', for regression.",
    values.FLAG,
    "has_class",
    default=None,
)
rows = option("--rows", "Use only this many inputs, from the start of the file.", values.COUNT)
noise = option(
    "--noise",
    "Noise family, instead of the default: gaussian, laplace, uniform, triangular, student_t:5, cauchy, "
    "stable:1.5, mixture:0.9*1+0.1*5; with standard deviations per input, scales:1/0.5/2 (or FILE), or above "
    "and below, split_normal:+0.2-0.1/+1-2; with half-widths, uniform:0.5/1/2 or triangular:0.5/1/2; "
    "covariance:FILE, residuals:FILE (.csv or .npy).",
    metavar="FAMILY",
)
groups = option(
    "--groups",
    "Inputs that the budget takes together: columns (speed+slope,temperature), 8 blocks of a signal (8), or "
    "a grid of an image (4x4).",
    values.WORD,
)

config = functools.partial(
    option,
    "--config",
    "TOML file with values of these options; the command line takes precedence.",
    values.FILE,
    cls=Config,
    expose_value=False,
    metavar="FILE.toml",
)
"""Adds the option, with the arguments of :class:`Config`."""

badge = option(
    "--badge",
    "Write the verdict as a badge: FILE.svg, or FILE.json for shields.io; may be repeated.",
    values.BADGE,
    "badge_files",
    multiple=True,
)

limits = together(
    option("--time-limit", "Time limit of your rule in seconds.", values.SECONDS, default=600.0),
    option("--memory-limit", "Memory limit of your rule in GiB (resident).", values.GIBIBYTES),
)
"""The limits of a rule that runs in a separate process."""

users_code = together(
    option(
        "--rule",
        "Your rule that was measured: my_rule.py:MyRule; results do not hold its code. May be repeated.",
        values.WORD,
        "rules",
        multiple=True,
        metavar="FILE.py:CLASS",
    ),
    option(
        "--net",
        "Your net that was measured: my_net.py:build, or a file .pt2 or .onnx. May be repeated.",
        values.WORD,
        "nets",
        multiple=True,
        metavar="FILE.py:FUNCTION",
    ),
)
"""The rules and nets of a user that stored measurements need."""

settings = together(
    option(
        "--rules",
        "Rules, instead of the default: sdp,monte_carlo:samples={10,100},my_rule.py:MyRule; `peers` "
        "stands for all installed packages with an adapter.",
        values.RULES,
    ),
    option("--sigma", "Noise levels, instead of the default: 0.1,1,10.", values.SIGMAS, "sigmas"),
    noise,
    option("--activation", "Activation: relu, leaky_relu, sigmoid, silu, gelu or tanh."),
    option("--depth", "Numbers of hidden layers: 1,2,4.", values.DEPTHS, "depths"),
    option("--width", "Units per hidden layer.", values.Whole(high=10_000)),
    option(
        "--nets", "Nets per architecture (seeds 0, 1, ...), or seeds of a study.", values.Whole(high=10_000)
    ),
    option("--net-source", "Source of the nets: trained (and cached), or committed with the package."),
    option("--inputs", "Inputs per net (flowers, images).", values.Whole(high=10**6)),
    option("--slow-rules/--no-slow-rules", "Include or skip rules that take seconds per net.", default=None),
    option("--samples", "Samples per oracle and per prediction.", values.SAMPLES),
    option("--pilot-samples", "Samples of the pilot, which fixes bins and cells.", values.SAMPLES),
    option("--sampler", "Sampler: mc (plain Monte Carlo) or sobol (scrambled)."),
    option("--bins", "Bins per axis of the paper-like histogram.", values.Whole(high=254)),
    option("--bin-range", "Range of these bins: quantiles (of the pilot), minmax or joint."),
    option("--cells", "Equal-mass cells of the headline total variation.", values.Whole(high=10**6)),
    option("--difference-bins", "Bins per pairwise score difference.", values.Whole(high=10_000)),
    option("--output-bins", "Bins per single output, under Cauchy noise.", values.Whole(high=10**5)),
    option(
        "--margin-bins", "Bins of the margins, pairs and slices of ten logits.", values.Whole(high=10_000)
    ),
    option("--w1-points", "Points per side of W1.", values.W1_POINTS),
    option("--w1-pairs", "Pairs of oracles for the floor of W1.", values.Whole(high=1000)),
    option("--certified-points", "Points per side of the certified W1.", values.Whole(high=10**6)),
    option("--optimizer", "Optimizer of the training: sgd or adam."),
    option("--learning-rate", "Learning rate of the training.", values.POSITIVE),
    option("--epochs", "Epochs of the training.", values.Whole(high=10**7)),
    option("--datasets", "Data sets of the experiment uci: yacht,boston.", values.RULES),
    option("--features", "Scaling of the nets' inputs: raw or standardised."),
    option("--device", "Device: cpu, cuda, cuda:1, ..."),
)
"""The options for the settings of a run."""

SECTIONS = {
    "--all": "Experiments",
    "--rules": "Rules, nets and noise",
    "--samples": "Oracles",
    "--bins": "Metrics",
    "--optimizer": "Training",
    "--device": "Execution",
    "--help": "Options",
}
"""The first option of each section of the help of `run`."""


def given(*names: str) -> dict[str, str]:
    """Options that differ from their defaults, of the parameters of these names or of all."""
    context = click.get_current_context()
    return {
        str(param.name): max(param.opts, key=len)
        for param in context.command.params
        if context.get_parameter_source(str(param.name)) != click.core.ParameterSource.DEFAULT
        and (not names or param.name in names)
    }


def say_notes(stored: Stored) -> None:
    """Print lines about damaged files and contradictions on standard error."""
    for line in stored.notes:
        echo(line, err=True)


def timed_rows(path: Path) -> tuple[Row, ...]:
    """Rows of a runtime table; empty if the file does not exist."""
    from sdp_bench.bench.runtime import table

    try:
        return tuple(table.load(path)) if path.exists() else ()
    except (ValueError, OSError) as error:
        raise UserError(f"cannot read the runtime table {path}: {error}") from error
