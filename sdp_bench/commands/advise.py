"""The command ``sdp-bench advise``: whether linearisation is accurate for a net, without an oracle."""

from __future__ import annotations

from pathlib import Path

from sdp_bench import values
from sdp_bench.commands import echo, options
from sdp_bench.commands.options import option


@options.command(example="sdp-bench advise my_net.py:build --inputs x.npy --sigma 0.1,1")
@options.argument("net", values.WORD)
@options.inputs(required=True)
@options.net_input
@options.net_output
@options.has_class
@options.rows
@option("--sigma", "Noise levels: 0.1,1 (1 by default with scales or a covariance).", values.SIGMAS)
@options.noise
@option("--seed", "Random seed of the samples.", values.SEED, default=0)
def advise(
    net: str,
    inputs: Path,
    net_input: str | None,
    net_output: str | None,
    has_class: bool | None,
    rows: int | None,
    sigma: tuple[float, ...] | None,
    noise: str | None,
    seed: int,
) -> None:
    """Advise whether linearisation (the rule sdp) is accurate for NET, without an oracle.

    NET is path/to/my_net.py:build, package.module:build, a file .pt2 (torch.export) or .onnx, or
    published:NAME. The noise must be Gaussian. For each input and noise level the net is evaluated at 10,000
    samples, or up to 40,000 near a limit. The last lines state how often such advice was wrong on other nets.
    `sdp-bench validate --net` measures all rules.
    """
    from sdp_bench.bench.advice.advice import advise_on
    from sdp_bench.bench.advice.outcomes import sentences
    from sdp_bench.bench.nets.own.net import find
    from sdp_bench.bench.noise import noise_of
    from sdp_bench.progress import Screen

    family = noise_of(noise) if noise else None
    found = find(net, inputs, rows, net_input, net_output, has_class)
    table = advise_on(found, family, sigma, Screen(), seed=seed)
    for note in table.attrs["notes"]:
        echo(f"note: {note}")
    for line in sentences(table.to_dict("records"), table.attrs["net"]):
        echo(line)
