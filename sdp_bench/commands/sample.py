"""The command ``sdp-bench sample``: samples a net until quantities of its outputs are precise enough."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sdp_bench import values
from sdp_bench.commands import echo, options
from sdp_bench.commands.options import FAILED, option

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

SAMPLES = Path("sample-results")
_PRINTED = 100  # most rows of a printed table
_DECIMALS = 8  # most decimals of a printed number; others have an exponent


@options.command(example="sdp-bench sample my_net.py:build --inputs x.npy --sigma 0.1 --until 1%")
@options.argument("net", values.WORD)
@options.inputs(required=True)
@options.net_input
@options.net_output
@options.rows
@option("--sigma", "Noise levels: 0.1,1 (1 by default if the noise has numbers per input).", values.SIGMAS)
@options.noise
@option(
    "--quantity",
    "Quantities of each output, separated by commas: mean, sd, quantile:0.95, class (probability that the "
    "output is the largest), above:51 (probability that it exceeds 51).",
    values.QUANTITIES,
    default="sd",
)
@option(
    "--until",
    "Tolerance: 1% of the standard deviation of the output, or 1 percentage point of a probability.",
    values.SHARE,
    default="1%",
)
@option(
    "--max-samples",
    "Limit of the samples for each input and noise level.",
    values.MAX_SAMPLES,
    default=10**6,
)
@option("--block", "Samples per block (default: depends on the tolerance, 100 to 10000).", values.COUNT)
@option("--seed", "Random seed of the samples.", values.SEED, default=0)
@option("--output", "CSV table of the estimates.", values.STREAM)
@option("--database", "Folder with the finished blocks.", values.FOLDER, default=SAMPLES)
def sample(
    net: str,
    inputs: Path,
    net_input: str | None,
    net_output: str | None,
    rows: int | None,
    sigma: tuple[float, ...] | None,
    noise: str | None,
    quantity: tuple[str, ...],
    until: float,
    max_samples: int,
    block: int | None,
    seed: int,
    output: Path | None,
    database: Path,
) -> None:
    """Sample NET until quantities of its outputs are known within a tolerance.

    NET is path/to/my_net.py:build, package.module:build, a file .pt2 (torch.export) or .onnx, or
    published:NAME. The 95 % interval of each estimate, which is printed in parentheses, is then at most the
    tolerance to either side, as in the adaptive procedure of JCGM 101 (GUM Supplement 1). The same command
    resumes an interrupted one, and gives the same numbers as an uninterrupted one.

    Exit code 3 if an estimate is not precise enough after the maximum number of samples.
    """
    from sdp_bench.bench import files, text
    from sdp_bench.bench.nets.own.net import find
    from sdp_bench.bench.noise import noise_of
    from sdp_bench.bench.sampling.adaptive import SampleRequest, sample_until
    from sdp_bench.bench.sampling.quantities import quantity_of
    from sdp_bench.progress import Screen

    request = SampleRequest(
        quantities=tuple(dict.fromkeys(map(quantity_of, quantity))),
        tolerance=until,
        max_samples=max_samples,
        seed=seed,
        block=block,
    )
    family = noise_of(noise) if noise else None
    if output is not None:
        files.check_writable(output)
    found = find(net, inputs, rows, net_input, net_output)
    table = sample_until(found, family, sigma, request, database, Screen())
    if output is not None:
        files.write(output, text.table(table).to_csv(index=False))
    for note in table.attrs["notes"]:
        echo(f"note: {note}")
    for line in _lines(table):
        echo(line)
    for line in table.attrs["limits"]:
        echo(f"limits: {line}")
    if table.attrs["shortfall"]:
        echo(f"verdict: {table.attrs['shortfall']}")
        raise SystemExit(FAILED)
    total = int(table.groupby(["sigma", "input"])["samples"].first().sum())
    known = "the estimate is" if len(table) == 1 else f"all {len(table):,} estimates are"
    if constant := int((~table["reached"]).sum()):
        known = f"all estimates except {constant:,} of constant outputs are"
    echo(f"verdict: {known} within {100 * until:g} % ({text.plural(total, 'sample')})")


def _lines(table: pd.DataFrame) -> Iterator[str]:
    """Lines of a table of estimates with their intervals, one row per noise level, input and output."""
    import pandas as pd

    from sdp_bench.bench.text import plural

    keys = ["sigma", "input", "output"]
    wide = table.assign(shown=table.apply(_shown, axis=1)).pivot(
        index=[*keys, "samples"], columns="quantity", values="shown"
    )
    wide = wide[list(dict.fromkeys(table["quantity"]))].reset_index()
    columns = [*(name for name in wide.columns if name != "samples"), "samples"]
    wide = wide[columns].rename(columns={"sigma": "σ"})
    wide["samples"] = wide["samples"].map("{:,}".format)
    with pd.option_context("display.width", None, "display.max_columns", None, "display.max_rows", None):
        yield from wide[:_PRINTED].to_string(index=False).splitlines()
    if len(wide) > _PRINTED:
        yield f"... and {plural(len(wide) - _PRINTED, 'more row')} (--output FILE.csv writes all)"
    if not table["reached"].all():
        yield "! is not within the tolerance"


def _shown(row: pd.Series) -> str:
    """An estimate and its interval, with two digits of half the interval's width."""
    import math

    from sdp_bench.bench.sampling.quantities import PROBABILITIES

    numbers, unit = [row["estimate"], row["low"], row["high"]], ""
    if row["quantity"].partition(":")[0] in PROBABILITIES:
        numbers, unit = [100 * number for number in numbers], " %"
    half, form = (numbers[2] - numbers[1]) / 2, ".6g"
    if 0 < half < math.inf:
        decimals = 1 - math.floor(math.log10(half))
        before = math.floor(math.log10(max(map(abs, numbers)))) + 1  # digits before the point
        form = f".{decimals}f" if 0 <= decimals <= _DECIMALS else f".{max(before + decimals, 1)}g"
    estimate, low, high = (format(number, form) for number in numbers)
    return f"{estimate}{unit} ({low} to {high}){'' if row['reached'] else ' !'}"
