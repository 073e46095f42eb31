"""The command ``sdp-bench budget``: divides the variance of a net's outputs among its inputs."""

from __future__ import annotations

from pathlib import Path

from sdp_bench import values
from sdp_bench.commands import echo, options
from sdp_bench.commands.options import option


@options.command(example="sdp-bench budget my_net.py:build --inputs table.csv --sigma 0.1")
@options.argument("net", values.WORD)
@options.inputs(required=True)
@options.net_input
@options.net_output
@options.rows
@option("--sigma", "Noise levels: 0.1,1 (1 by default if the noise has numbers per input).", values.SIGMAS)
@options.noise
@options.groups
@option("--samples", "Samples; the net is evaluated this often for each group.", values.BUDGET_SAMPLES)
@option("--seed", "Random seed of the samples.", values.SEED, default=0)
@option("--output", "CSV table of all shares, with covariances and correlations.", values.STREAM)
def budget(
    net: str,
    inputs: Path,
    net_input: str | None,
    net_output: str | None,
    rows: int | None,
    sigma: tuple[float, ...] | None,
    noise: str | None,
    groups: str | None,
    samples: int | None,
    seed: int,
    output: Path | None,
) -> None:
    """Divide the variance of each output of NET among its inputs: an uncertainty budget.

    NET is path/to/my_net.py:build, package.module:build, a file .pt2 (torch.export) or .onnx, or
    published:NAME. For each group of inputs the shares are total and first-order Sobol indices from samples,
    with 95 % intervals, and the share in the variance of the linearised output. `sdp-bench validate --net
    --budget` adds the same to a scorecard.
    """
    from sdp_bench.bench import files, text
    from sdp_bench.bench.budget.budget import SAMPLES, budget_on
    from sdp_bench.bench.budget.sentences import sentences
    from sdp_bench.bench.nets.own.net import find
    from sdp_bench.bench.noise import noise_of
    from sdp_bench.progress import Screen

    family = noise_of(noise) if noise else None
    if output is not None:
        files.check_writable(output)
    found = find(net, inputs, rows, net_input, net_output)
    columns = files.column_names(inputs)
    table = budget_on(
        found, family, sigma, groups or "", columns, samples or SAMPLES, seed, progress=Screen()
    )
    if output is not None:
        files.write(output, text.table(table).to_csv(index=False))
    for note in table.attrs["notes"]:
        echo(f"note: {note}")
    for line in sentences(table, table.attrs["net"]):
        echo(line)
