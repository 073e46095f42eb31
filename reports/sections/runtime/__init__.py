"""The section on costs of rules relative to the net's own pass, compared with the paper's table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from ....bench.runtime.table import Row, beside_paper
from ....bench.runtime.timing import REGULAR, ImageNet, Mlp, sized
from ...paper import experiment
from ...results import BASELINES, Results
from ...section import Context, Section
from ...site import SPEED
from ...style import labels
from ...style.names import NetKind, RuleTraits

_METHODS = {"regular": "the net itself", "distprop": "SDP by distprop"}
_HISTORY = "speed-history.html"
"""Page with times by version of the package, which comes with the committed results."""
_PHASES = {"forward": "forward", "training_step": "training step"}


class Runtime(Section):
    name = "runtime"
    title = "Runtime"
    page = SPEED
    order = 120

    def build(self, results: Results) -> Context | None:
        if not results.runtime or results.frame.empty:
            return None
        images = [row for row in results.runtime if isinstance(sized(row.architecture), ImageNet)]
        history = _HISTORY if results.published else ""
        return {"blocks": list(blocks(images)), "scan": scan(results.runtime), "history": history}

    def files(self, results: Results, context: Context) -> Mapping[str, str]:  # noqa: ARG002
        name = context["history"]
        return {name: (BASELINES / name).read_text(encoding="utf-8")} if name else {}


def scan(rows: Sequence[Row]) -> Context | None:
    """Ratios of fully connected nets by inputs and outputs; None without any."""
    timed: dict[Mlp, dict[str, Row]] = {}
    about = ""
    for row in rows:
        net = sized(row.architecture)
        if isinstance(net, Mlp):
            about = about or _about(row)
            if row.phase == "forward":
                timed.setdefault(net, {})[row.method] = row
    if not timed:
        return None
    methods = dict.fromkeys(method for by_method in timed.values() for method in by_method)
    shown = [method for method in methods if method != REGULAR]
    names = tuple(_label(method) for method in shown)
    table = [(net, tuple(by_method.get(method) for method in shown)) for net, by_method in timed.items()]
    return {"about": about, "methods": names, "rows": table}


def _label(method: str) -> str:
    return _METHODS.get(method) or RuleTraits().label(method)


def _about(row: Row) -> str:
    return (
        f"batch {row.batch}, {row.device}, {labels.plural(row.threads, 'CPU thread')}, "
        f"torch {row.torch}, medians of {labels.plural(row.rounds, 'round')}"
    )


def blocks(rows: Sequence[Row]) -> Iterator[Context]:
    """Methods timed alternately on one net, forward or in a training step, with the paper's ratios."""
    compared = beside_paper(rows, experiment("runtime_cifar10"))
    for (architecture, phase), group in groupby(compared, lambda pair: (pair[0].architecture, pair[0].phase)):
        pairs = list(group)
        if all(row.method == REGULAR for row, _ in pairs):
            continue  # its time only serves to extrapolate those of rules
        first_row, _ = pairs[0]
        yield {
            "title": f"{_title(architecture)}, {_PHASES.get(phase, phase)}",
            "about": _about(first_row),
            "timings": [(_label(row.method), row, paper) for row, paper in pairs],
            "has_paper": any(paper for _, paper in pairs),
        }


def _title(architecture: str) -> str:
    net = sized(architecture)
    if isinstance(net, Mlp):
        return architecture
    label = NetKind(net.kind, 0).label
    if not net.width:
        return label
    return f"{label} with {net.width} channels on {net.channels} × {net.size} × {net.size}"
