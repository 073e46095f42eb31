"""Options that several commands share, and their types."""

from __future__ import annotations

import errno
import functools
import itertools
import math
import os
import re
import stat
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sdp_bench.bench.badge import ENDS
from sdp_bench.bench.text import printable
from sdp_bench.commands import echo
from sdp_bench.commands.config import Config

if TYPE_CHECKING:
    from sdp_bench.bench.runtime.table import Row

DATABASE = Path("sdp-bench.sqlite")
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


class Group(click.Group):
    command_class = Command


command = functools.partial(click.command, cls=Command)


class Word(click.ParamType):  # type: ignore[type-arg]  # click 8.1 takes none
    """Non-empty text of printable characters."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = str(value)
        if not text.strip():
            self.fail("value must not be empty; leave the option out", param, ctx)
        if printable(text) != text or len(text.splitlines()) > 1:
            self.fail(f"'{printable(text)}' has control characters, shown as ?", param, ctx)
        return text


word = Word()


class Finite(click.FloatRange):
    """Finite number in a range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):  # NaN is in every range
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


class Listed(click.ParamType):  # type: ignore[type-arg]  # click 8.1 takes none
    """Values of the type `each`, separated by commas; or a list of their texts."""

    each: click.ParamType  # type: ignore[type-arg]

    def split(self, text: str) -> Iterable[str]:
        """Return the texts of the values in a text; a ValueError if it has none."""
        return text.split(",")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        texts = [word.convert(text, param, ctx) for text in (value if isinstance(value, list) else [value])]
        try:
            return tuple(self.each(item, param, ctx) for text in texts for item in self.split(text))
        except click.BadParameter as error:
            text = f"'{','.join(texts)}' is not a list of {self.name} separated by commas"
            self.fail(f"{text}: {error.message}", param, ctx)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Numbers(Listed):
    """Numbers separated by commas."""

    name = "numbers"

    def __init__(self, each: click.IntRange | click.FloatRange) -> None:
        self.each = each


def at_most_cores(jobs: int | None) -> int | None:
    """Limit worker processes to the number of cores, and print a note if that reduces them."""
    from sdp_bench.bench.environment import cores
    from sdp_bench.reports.style.labels import plural

    number = cores()
    if jobs is None or jobs <= number:
        return jobs
    echo(f"--jobs {jobs}: this machine has {plural(number, 'core')}; using {number}", err=True)
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
            self.fail(f"'{value}' is not a share; write 2% or 0.02", param, ctx)
        if not 0 < share <= 1:
            self.fail(f"'{value}' is not above 0 and at most 100%", param, ctx)
        return share


MOST_RULES = 1000
"""Largest number of rules in one spec."""

_LIST = re.compile(r"=\s*\{([^{}]*)\}\s*(?=,|$)")
_STRAY = re.compile(r"(?<![^,:])([^,:=]*)=([^,]*[{}][^,]*)")
_INNER = "\0"  # replaces commas in braces; no text that arrives here contains it


def specs_of(text: str) -> tuple[str, ...]:
    """Return the specs in a text, without braces.

    Specs are separated by commas, as in ``sdp,monte_carlo:samples={10,100}``; a part with '=' and without ':'
    continues the previous spec. A list in braces as a parameter's value stands for a rule with each value,
    and several lists for all combinations, the last one varying fastest. Raises ValueError if braces are used
    in other ways, a list lacks a value, or a spec stands for more than `MOST_RULES` rules.
    """
    specs: list[str] = []
    for part in _LIST.sub(lambda found: found[0].replace(",", _INNER), text).split(","):
        if "=" in part and ":" not in part and specs:
            specs[-1] += f",{part}"
        else:
            specs.append(part.strip())
    return tuple(each for spec in specs for each in _expanded(spec.replace(_INNER, ",")))


def _expanded(spec: str) -> list[str]:
    if stray := _STRAY.search(_LIST.sub("=", spec)):
        raise ValueError(
            f"'{spec}': the values of '{stray[1].strip()}' must be one pair of braces, for example "
            f"{stray[1].strip()}={{10,100}}"
        )
    texts = _LIST.split(spec)  # texts between lists alternate with the contents of lists
    lists = [[value.strip() for value in inside.split(",")] for inside in texts[1::2]]
    if any(not value for values in lists for value in values):
        raise ValueError(f"'{spec}': a list in braces lacks a value")
    names = re.findall(r"(?<![^,:])\s*([^,:=]*?)\s*=", _LIST.sub("=", spec)) if lists else []
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"'{spec}': '{twice[0]}' is given twice")
    fixed = texts[::2]
    if (count := math.prod(map(len, lists))) > MOST_RULES:
        raise ValueError(f"'{fixed[0]}={{...}}' stands for {count} rules; write at most {MOST_RULES}")
    return [
        fixed[0] + "".join(f"={value}{after}" for value, after in zip(values, fixed[1:], strict=True))
        for values in itertools.product(*lists)
    ]


class Rules(Listed):
    """Specs separated by commas, as :func:`specs_of` reads them."""

    name, each = "rules", word

    def split(self, text: str) -> Iterable[str]:
        return specs_of(text)


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
        if not text or any(unicodedata.category(character) == "Cc" for character in text):
            self.fail("a file name must not be empty or contain control characters", param, ctx)
        try:
            mode = Path(text).stat().st_mode
        except OSError as error:
            if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
                self.fail(f"{text}: {error.strerror}", param, ctx)
            mode = 0
        if not self.streams and mode and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            self.fail(f"{text} is a device or a pipe, not a regular file", param, ctx)
        return super().convert(value, param, ctx)


class BadgeFile(Place):
    """File of a badge, whose suffix selects the format."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path: Path = super().convert(value, param, ctx)
        if path.suffix not in ENDS:
            self.fail(f"{path}: a badge is a file {' or '.join(ENDS)}", param, ctx)
        return path


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


at_most = functools.partial(click.IntRange, None)
"""Integer that the machine can represent; the lower limit is checked where it is used."""


def option(
    flag: str, about: str, kind: Any = None, *names: str, **attributes: Any
) -> Callable[[CommandT], CommandT]:
    """Return a decorator that adds an option: a text, or of the type `kind`; bool is a flag.

    A flag ``--on/--off`` is on by default. `about` is the help, and `names` are other spellings and the name
    of the parameter.
    """
    if "/" in flag:
        kind = bool
        attributes.setdefault("default", True)
    return click.option(flag, *names, type=kind or word, is_flag=kind is bool, help=about, **attributes)


database = option("--database", "Results file.", file_, default=DATABASE)
jobs = option("--jobs", "Number of worker processes (default: one per core).", workers)
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
        "Numbers of the runs to combine, separated by commas (default: the newest).",
        Numbers(click.IntRange(1, 2**63 - 1)),
        "numbers",
    ),
    option("--all-runs", "Combine all runs of the file.", bool),
)
"""The options `numbers` and `all_runs`, which select runs of a results file."""

runtime_table = option("--runtime", "CSV table of timings.", file_, "runtime_table", default=RUNTIME)
preset = option("--preset", "Size of the experiments: smoke, quick or paper.", default="quick")
device = option("--device", "Device: cpu, cuda, cuda:1, ...", default="cpu")
inputs = functools.partial(
    option,
    "--inputs",
    "Inputs of the net: x.csv (one row per input), x.npy, shape (B, *event), or several in x.npz.",
    file_,
)
net_input = option("--net-input", "Name or position (0, 1, ...) of the noisy input.", metavar="NAME")
net_output = option("--net-output", "Key, field or position of the output: logits, 0, ...", metavar="NAME")
rows = option("--rows", "Use only this many inputs, from the start of the file.", count)
noise = option(
    "--noise",
    "Noise family, instead of the default: gaussian, laplace, uniform, student_t:5, cauchy, stable:1.5, "
    "mixture:0.9*1+0.1*5, scales:1/0.5/2 (or FILE), covariance:FILE, residuals:FILE (.csv or .npy).",
    metavar="FAMILY",
)

config = functools.partial(
    option,
    "--config",
    "TOML file with values of these options; the command line takes precedence.",
    file_,
    cls=Config,
    expose_value=False,
    metavar="FILE.toml",
)
"""Adds the option, with the arguments of :class:`Config`."""

badge = option(
    "--badge",
    "Write the verdict as a badge: FILE.svg, or FILE.json for shields.io; may be repeated.",
    BadgeFile(dir_okay=False),
    "badge_files",
    multiple=True,
)

limits = together(
    option("--time-limit", "Time limit of your rule in seconds.", seconds, default=600.0),
    option("--memory-limit", "Memory limit of your rule in GiB (resident).", gibibytes),
)
"""The limits of a rule that runs in a separate process."""

users_code = together(
    option(
        "--rule",
        "Your rule that was measured: my_rule.py:MyRule; results do not hold its code. May be repeated.",
        word,
        "rules",
        multiple=True,
        metavar="FILE.py:CLASS",
    ),
    option(
        "--net",
        "Your net that was measured: my_net.py:build, or a file .pt2 or .onnx. May be repeated.",
        word,
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
        Rules(),
    ),
    option("--sigma", "Noise levels, instead of the default: 0.1,1,10.", sigmas_, "sigmas"),
    noise,
    option("--activation", "Activation: relu, leaky_relu, sigmoid, silu, gelu or tanh."),
    option("--depth", "Numbers of hidden layers: 1,2,4.", depths_, "depths"),
    option("--width", "Units per hidden layer.", at_most(10_000)),
    option("--nets", "Nets per architecture (seeds 0, 1, ...), or seeds of a study.", at_most(10_000)),
    option("--net-source", "Source of the nets: trained (and cached), or committed with the package."),
    option("--inputs", "Inputs per net (flowers, images).", at_most(10**6)),
    option("--slow-rules/--no-slow-rules", "Include or skip rules that take seconds per net.", default=None),
    option("--samples", "Samples per oracle and per prediction.", at_most(10**8)),
    option("--pilot-samples", "Samples of the pilot, which fixes bins and cells.", at_most(10**8)),
    option("--sampler", "Sampler: mc (plain Monte Carlo) or sobol (scrambled)."),
    option("--bins", "Bins per axis of the paper-like histogram.", at_most(254)),
    option("--bin-range", "Range of these bins: quantiles (of the pilot), minmax or joint."),
    option("--cells", "Equal-mass cells of the headline total variation.", at_most(10**6)),
    option("--difference-bins", "Bins per pairwise score difference.", at_most(10_000)),
    option("--output-bins", "Bins per single output, under Cauchy noise.", at_most(10**5)),
    option("--margin-bins", "Bins of the margins, pairs and slices of ten logits.", at_most(10_000)),
    option("--w1-points", "Points per side of W1.", at_most(20_000)),
    option("--w1-pairs", "Pairs of oracles for the floor of W1.", at_most(1000)),
    option("--certified-points", "Points per side of the certified W1.", at_most(10**6)),
    option("--optimizer", "Optimizer of the training: sgd or adam."),
    option("--learning-rate", "Learning rate of the training.", Finite(0, min_open=True)),
    option("--epochs", "Epochs of the training.", at_most(10**7)),
    option("--datasets", "Data sets of the experiment uci: yacht,boston.", Rules()),
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


def timed_rows(path: Path) -> tuple[Row, ...]:
    """Rows of a runtime table; empty if the file does not exist."""
    from sdp_bench.bench.errors import UserError
    from sdp_bench.bench.runtime import table

    try:
        return tuple(table.load(path)) if path.exists() else ()
    except (ValueError, OSError) as error:
        raise UserError(f"cannot read the runtime table {path}: {error}") from error
