"""The command ``sdp-bench advise``: whether linearisation is accurate for a net, without an oracle."""

from __future__ import annotations

from pathlib import Path

import click

from sdp_bench.commands import echo, options


@options.command(example="sdp-bench advise my_net.py:build --inputs x.npy --sigma 0.1,1")
@click.argument("net_address", type=options.word, metavar="NET")
@options.inputs(required=True)
@options.net_input
@options.net_output
@options.rows
@click.option(
    "--sigma",
    "sigmas",
    type=options.sigmas_,
    help="Noise levels: 0.1,1 (1 by default with scales or a covariance).",
)
@options.noise
def advise(
    net_address: str,
    inputs_file: Path,
    net_input: str | None,
    net_output: str | None,
    rows: int | None,
    sigmas: tuple[float, ...] | None,
    noise: str | None,
) -> None:
    """Advise whether linearisation (the rule sdp) is accurate for NET, within seconds and without an oracle.

    NET is path/to/my_net.py:build, package.module:build, or a file .pt2 (torch.export) or .onnx. For each
    input and noise level the net is evaluated at 65 points. The last lines state how often such advice was
    wrong on nets that played no part in its thresholds. `sdp-bench validate --net` measures all rules.
    """
    from sdp_bench.bench.advice.advice import advise_on
    from sdp_bench.bench.advice.thresholds import sentences
    from sdp_bench.bench.errors import UserError
    from sdp_bench.bench.executors.local import apart
    from sdp_bench.bench.nets.own.net import find
    from sdp_bench.bench.noise import noise_of

    family = noise_of(noise or "gaussian")
    if sigmas is None and family.values is None:
        raise UserError("--sigma is required: 0.1,1")
    net = find(net_address, inputs_file, rows, net_input, net_output)
    table = apart(advise_on, net, family, sigmas or (1.0,), address=net_address)
    for line in sentences(table, net.architecture.name):
        echo(line)
