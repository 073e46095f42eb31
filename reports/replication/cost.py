"""What the paper says of the rules' times."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

import numpy as np

from sdp_bench.bench.runtime.table import Row
from sdp_bench.reports.replication.statement import (
    Answer,
    Effect,
    Evidence,
    Rule,
    Tried,
    finite,
    tried,
)
from sdp_bench.reports.style.labels import layers, number

_NETS = {"cnn3": "3-layer CNN", "resnet18": "ResNet-18"}
_OUTPUTS = 10
_SIMILAR = 1.25
"""Factor within which times are "around" and "similar", and beyond which "slightly" ends."""
_ADDRESS = "#runtime"


def _design(row: Row) -> str:
    return (
        f"{row.device}, {row.threads} thread{'s' * (row.threads > 1)}, batches of {row.batch}; "
        "the paper: one V100, batches of 128"
    )


def _multiples(
    phase: str,
    method: str,
    other: str,
    words: str,
    accepted: Callable[[float], bool],
    nets: Collection[str] = _NETS,
) -> Rule:
    """Ruling on one method's time as a multiple of another's on `nets`; both nets of the paper are told."""

    def rule(evidence: Evidence) -> Answer | None:
        rows = {
            name: (evidence.timed(net, method, phase), evidence.timed(net, other, phase))
            for net, name in _NETS.items()
        }
        known = {name: (one, two) for name, (one, two) in rows.items() if one and two}
        decisive = known.keys() & {_NETS[net] for net in nets}
        if not decisive:
            return None
        ratios = {name: one.seconds / two.seconds for name, (one, two) in known.items()}
        said = ", ".join(f"{number(ratio)} ({name})" for name, ratio in ratios.items())
        design = _design(next(iter(known.values()))[0])
        holds = all(accepted(ratios[name]) for name in decisive)
        return Answer.certain(holds=holds, found=f"{words}: {said}", fidelity=design, address=_ADDRESS)

    return rule


def _fraction(evidence: Evidence) -> Tried | None:
    """Times of SDP and DVIA on the nets of the simulation, by net."""
    frame = evidence.of("iris-tv", activation="relu")
    frame = frame[frame["rule"].isin(("sdp", "dvia"))]
    # A first call reads and plans; medians leave such out.
    times = frame.pivot_table("seconds", "net", "rule", aggfunc="median", observed=True)
    if not {"sdp", "dvia"} <= set(times):
        return None
    ratios = finite(np.log(times["dvia"] / times["sdp"]))
    effect = Effect("time of DVIA over that of SDP", ratios, shown=math.exp)
    design = f"{layers(frame['depth'])} of 100, on CPUs"
    return tried([effect], "net", design, "#choice")


RULES: Mapping[str, Rule] = {
    "cost-marginal": _multiples(
        "forward",
        "marginal_sdp",
        "regular",
        "marginal SDP over a regular pass",
        lambda ratio: 2 / _SIMILAR <= ratio <= 2 * _SIMILAR,
    ),
    "cost-marginal-small": _multiples(
        "training_step",
        "marginal_sdp",
        "regular",
        "a training step of marginal SDP over a regular one",
        lambda ratio: ratio <= _SIMILAR,
        nets=("cnn3",),  # the small one
    ),
    "cost-moment-matching": _multiples(
        "forward",
        "marginal_moment_matching",
        "marginal_sdp",
        "marginal moment matching over marginal SDP",
        lambda ratio: 1 <= ratio <= _SIMILAR,
    ),
    "cost-sdp": _multiples(
        "forward",
        "sdp",
        "regular",
        "SDP over a regular pass",
        lambda ratio: _OUTPUTS / _SIMILAR <= ratio <= _OUTPUTS * _SIMILAR,
    ),
    "cost-fraction": _fraction,
}
