"""What rules cost, as multiples of the net's own pass, beside the paper's runtime table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from sdp_bench.bench.runtime.table import Comparison, Row, beside_paper
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
    """One method: its name for people, seconds a pass or step, seconds an epoch, and its ratios."""

    method: str
    seconds: float
    epoch_seconds: float
    ratio: Comparison


@dataclass(frozen=True)
class Block:
    """Methods that took turns on one net, forward or in a training step."""

    title: str
    about: str
    timings: tuple[Timing, ...]


class Runtime(Section):
    """Ratios to the net's own pass, beside the paper's."""

    name = "runtime"
    title = "Runtime"
    page = CHOICE
    order = 120

    def build(self, results: Results) -> Context | None:
        """Blocks by net and phase; None where nothing was timed or measured."""
        if not results.runtime or results.frame.empty:
            return None
        return {"blocks": runtime(results.runtime)}


def runtime(rows: Sequence[Row]) -> list[Block]:
    """Blocks of a runtime table, in its order; none where nothing was timed."""
    return list(_blocks(rows))


def _blocks(rows: Sequence[Row]) -> Iterator[Block]:
    compared = zip(rows, beside_paper(list(rows), experiment("runtime_cifar10")), strict=True)
    for (architecture, phase), own in groupby(compared, lambda pair: (pair[0].architecture, pair[0].phase)):
        pairs = list(own)
        first = pairs[0][0]
        yield Block(
            f"{NetKind(architecture, 0).label}, {_PHASES.get(phase, phase)}",
            f"batch {first.batch}, {first.device}, {labels.plural(first.threads, 'CPU thread')}, "
            f"torch {first.torch}, medians of {labels.plural(first.rounds, 'round')}",
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
