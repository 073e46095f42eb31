"""The section on costs of rules relative to the net's own pass, compared with the paper's table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from sdp_bench.bench.runtime.table import Comparison, Row, beside_paper
from sdp_bench.bench.runtime.workloads import REGULAR, ImageNet, Mlp, sized
from sdp_bench.reports.paper.printed import experiment
from sdp_bench.reports.results import Results
from sdp_bench.reports.section import Context, Section
from sdp_bench.reports.site import CHOICE
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.nets import NetKind
from sdp_bench.reports.style.rules import RuleTraits

_METHODS = {"regular": "the net itself", "distprop": "SDP by distprop"}
_PHASES = {"forward": "forward", "training_step": "training step"}


@dataclass(frozen=True)
class Timing:
    """One method: its label, seconds per pass or step, seconds per epoch, and its ratios."""

    method: str
    seconds: float
    epoch_seconds: float
    ratio: Comparison


@dataclass(frozen=True)
class Block:
    """Methods timed alternately on one net, forward or in a training step."""

    title: str
    about: str
    timings: tuple[Timing, ...]


@dataclass(frozen=True)
class Scan:
    """Forward passes of fully connected nets by inputs and outputs: a row per method for each net."""

    about: str
    methods: tuple[str, ...]
    rows: tuple[tuple[Mlp, tuple[Row | None, ...]], ...]


class Runtime(Section):
    """Ratios to the net's own pass, next to the paper's."""

    name = "runtime"
    title = "Runtime"
    page = CHOICE
    order = 120

    def build(self, results: Results) -> Context | None:
        if not results.runtime or results.frame.empty:
            return None
        images = [row for row in results.runtime if isinstance(sized(row.architecture), ImageNet)]
        return {"blocks": runtime(images), "scan": scan(results.runtime)}


def runtime(rows: Sequence[Row]) -> list[Block]:
    return list(_blocks(rows))


def scan(rows: Sequence[Row]) -> Scan | None:
    """Ratios of fully connected nets by inputs and outputs; None without any."""
    own = [(net, row) for row in rows if isinstance(net := sized(row.architecture), Mlp)]
    timed = {(net, row.method): row for net, row in own if row.phase == "forward"}
    if not timed:
        return None
    nets = tuple(dict.fromkeys(net for net, _ in timed))
    methods = tuple(dict.fromkeys(method for _, method in timed if method != REGULAR))
    known = [tuple(timed.get((net, method)) for method in methods) for net in nets]
    names = tuple(_METHODS.get(method) or RuleTraits().label(method) for method in methods)
    return Scan(_about(own[0][1]), names, tuple(zip(nets, known, strict=True)))


def _about(row: Row) -> str:
    return (
        f"batch {row.batch}, {row.device}, {labels.plural(row.threads, 'CPU thread')}, "
        f"torch {row.torch}, medians of {labels.plural(row.rounds, 'round')}"
    )


def _blocks(rows: Sequence[Row]) -> Iterator[Block]:
    compared = zip(rows, beside_paper(list(rows), experiment("runtime_cifar10")), strict=True)
    for (architecture, phase), own in groupby(compared, lambda pair: (pair[0].architecture, pair[0].phase)):
        pairs = list(own)
        first = pairs[0][0]
        yield Block(
            f"{_title(architecture)}, {_PHASES.get(phase, phase)}",
            _about(first),
            tuple(
                Timing(
                    _METHODS.get(row.method) or RuleTraits().label(row.method),
                    row.seconds,
                    row.epoch_seconds,
                    each,
                )
                for row, each in pairs
            ),
        )


def _title(architecture: str) -> str:
    """Title of an image net, with its images if they are not of its usual kind."""
    net = sized(architecture)
    if isinstance(net, Mlp):
        return architecture
    own = f" with {net.width} channels on {net.channels} × {net.size} × {net.size}" if net.width else ""
    return NetKind(net.kind, 0).label + own
