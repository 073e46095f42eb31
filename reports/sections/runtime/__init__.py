"""The section on costs of rules relative to the net's own pass, compared with the paper's table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from ....bench.runtime.table import Row, beside_paper
from ....bench.runtime.timing import REGULAR, ImageNet, Mlp, sized
from ...paper import experiment
from ...results import Results
from ...section import Context, Section
from ...site import CHOICE
from ...style import labels
from ...style.names import NetKind, RuleTraits

_METHODS = {"regular": "the net itself", "distprop": "SDP by distprop"}
_PHASES = {"forward": "forward", "training_step": "training step"}


class Runtime(Section):
    name = "runtime"
    title = "Runtime"
    page = CHOICE
    order = 120

    def build(self, results: Results) -> Context | None:
        if not results.runtime or results.frame.empty:
            return None
        images = [row for row in results.runtime if isinstance(sized(row.architecture), ImageNet)]
        return {"blocks": list(blocks(images)), "scan": scan(results.runtime)}


def scan(rows: Sequence[Row]) -> Context | None:
    """Ratios of fully connected nets by inputs and outputs; None without any."""
    own = [(net, row) for row in rows if isinstance(net := sized(row.architecture), Mlp)]
    timed = {(net, row.method): row for net, row in own if row.phase == "forward"}
    if not timed:
        return None
    nets = tuple(dict.fromkeys(net for net, _ in timed))
    methods = tuple(dict.fromkeys(method for _, method in timed if method != REGULAR))
    known = [tuple(timed.get((net, method)) for method in methods) for net in nets]
    names = tuple(_METHODS.get(method) or RuleTraits().label(method) for method in methods)
    return {"about": _about(own[0][1]), "methods": names, "rows": list(zip(nets, known, strict=True))}


def _about(row: Row) -> str:
    return (
        f"batch {row.batch}, {row.device}, {labels.plural(row.threads, 'CPU thread')}, "
        f"torch {row.torch}, medians of {labels.plural(row.rounds, 'round')}"
    )


def blocks(rows: Sequence[Row]) -> Iterator[Context]:
    """Methods timed alternately on one net, forward or in a training step, with the paper's ratios."""
    compared = beside_paper(rows, experiment("runtime_cifar10"))
    for (architecture, phase), own in groupby(compared, lambda pair: (pair[0].architecture, pair[0].phase)):
        pairs = list(own)
        yield {
            "title": f"{_title(architecture)}, {_PHASES.get(phase, phase)}",
            "about": _about(pairs[0][0]),
            "timings": [
                (_METHODS.get(row.method) or RuleTraits().label(row.method), row, paper)
                for row, paper in pairs
            ],
        }


def _title(architecture: str) -> str:
    net = sized(architecture)
    if isinstance(net, Mlp):
        return architecture
    own = f" with {net.width} channels on {net.channels} × {net.size} × {net.size}" if net.width else ""
    return NetKind(net.kind, 0).label + own
