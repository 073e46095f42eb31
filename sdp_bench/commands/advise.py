"""The command ``sdp-bench advise``: whether linearisation is accurate for a net, without an oracle."""

from __future__ import annotations

from typing import Any

import click

from sdp_bench.commands import echo, options
from sdp_bench.commands.options import option


@options.command(example="sdp-bench advise my_net.py:build --inputs x.npy --sigma 0.1,1")
@click.argument("net", type=options.word)
@options.inputs(required=True)
@options.net_input
@options.net_output
@options.rows
@option("--sigma", "Noise levels: 0.1,1 (1 by default with scales or a covariance).", options.sigmas_)
@options.noise
def advise(**given: Any) -> None:
    """Advise whether linearisation (the rule sdp) is accurate for NET, within seconds and without an oracle.

    NET is path/to/my_net.py:build, package.module:build, or a file .pt2 (torch.export) or .onnx. For each
    input and noise level the net is evaluated at 65 points. The last lines state how often such advice was
    wrong on nets that played no part in its thresholds. `sdp-bench validate --net` measures all rules.
    """
    from sdp_bench import python
    from sdp_bench.bench.advice.thresholds import sentences

    table = python.advise(**given)
    for note in table.attrs["notes"]:
        echo(f"note: {note}")
    for line in sentences(table.to_dict("records"), table.attrs["net"]):
        echo(line)
