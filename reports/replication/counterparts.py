"""The paper's tables and figures, and their counterparts here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sdp_bench.bench.experiments import Experiment
from sdp_bench.bench.experiments.classifiers import RESNET
from sdp_bench.bench.nets.architectures import NETWORKS
from sdp_bench.bench.studies.introduction import EXPERIMENT as INTRODUCTION
from sdp_bench.bench.studies.robustness import EXPERIMENT as ROBUSTNESS
from sdp_bench.bench.studies.selective import EXPERIMENT as SELECTIVE
from sdp_bench.bench.studies.two_moons import EXPERIMENT as TWO_MOONS
from sdp_bench.bench.studies.uci import EXPERIMENT as UCI
from sdp_bench.reports.paper import printed
from sdp_bench.reports.replication.images import IMAGES
from sdp_bench.reports.replication.statement import Evidence
from sdp_bench.reports.sections.robustness.words import SETS
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.nets import NetKind
from sdp_bench.reports.tables.published import differences
from sdp_bench.reports.tables.tables import Table

_MISPRINTS = {
    "Table 1": "Table 9 has its numbers, the column k=100 those of k=5 in Table 17",
    "Table 2": "it has the numbers of Table 22, of six layers",
}
METRICS = {"1-tv": "1 − TV", "w1": "W1", "std_ratio": "ratios of standard deviations", "tv_class": "TV"}
"""Names of metrics in the paper's tables, by :attr:`Metric.published`."""
_WIDE = "not compared: the spreads over images are larger than the means"
_ROBUST = "#robustness"
_FIGURES = (
    ("Figure 1", "two moons", "", "#two-moons"),
    ("Figure 2", "laws after one ReLU", "two inputs of our own, exactly", "#relu"),
    ("Figure 3", "W1 after one ReLU", "the same by quadrature", "#relu"),
    ("Figure 4", "risk over coverage", "", "#selective"),
    ("Figure 5", "robustness on MNIST", "", _ROBUST),
    ("Figure 6", "attacks by objective, and non-zero gradients", "", _ROBUST),
    ("Figure 7", "robustness on MNIST, other strengths", "", _ROBUST),
    ("Figure 8", "adversarial robustness, MNIST and CIFAR-10", "", _ROBUST),
    ("Figure 9", "robustness to noise, MNIST and CIFAR-10", "", _ROBUST),
    ("Figure 10", "layer of introduction", "", "#introduction"),
)


@dataclass(frozen=True)
class Counterpart:
    """A table or figure of the paper, and its counterpart.

    `label` is ``Table 9``, and `title` its content. `design` is the fidelity of the counterpart, `found` the
    number of cells that agree, and `address` is relative to the report's folder. They are empty if there is
    none.
    """

    label: str
    title: str
    design: str = ""
    found: str = ""
    address: str = ""


def counterparts(evidence: Evidence) -> list[Counterpart]:
    tables = sorted((*_simulated(evidence), *_others(evidence)), key=lambda one: int(one.label.split()[1]))
    return [*tables, *_figures(evidence)]


def _simulated(evidence: Evidence) -> Iterator[Counterpart]:
    for _, own in printed.tables().groupby("table"):
        first = own.iloc[0]
        kind = NetKind(str(first["activation"]), int(first["depth"]))
        title = f"{METRICS[first['metric']]}, {kind.label}"
        if own["method"].str.startswith("monte_carlo").all():
            title += ", Monte Carlo estimates"
        methods = frozenset(own["method"])
        yield _beside(evidence, str(first["label"]), title, str(first["metric"]), kind, methods)


def _beside(
    evidence: Evidence, label: str, title: str, metric: str, kind: NetKind, methods: frozenset[str]
) -> Counterpart:
    found = [
        table
        for table in evidence.results.tables
        if table.metric.published == metric and table.kind == kind and methods & set(table.rules)
    ]
    if not found:
        return Counterpart(label, title)
    # An experiment may have its own design for what another one has at the paper's; the largest counts.
    table = max(found, key=lambda each: (each.units, bool(_cells(each, methods))))
    cells = _cells(table, methods)
    differ = sum(cells.values())
    said = f"{len(cells) - differ} of {len(cells)} cells within the spreads, {differ} beyond" if cells else ""
    misprint = _MISPRINTS.get(label, "")
    return Counterpart(
        label,
        f"{title} ({misprint})" if misprint else title,
        table.design,
        said,
        f"#{table.experiment}",
    )


def _cells(table: Table, methods: frozenset[str]) -> dict[tuple[float, str, str], bool]:
    """Whether cells differ from the paper's by more than both spreads."""
    return {
        (each.row.sigma, each.row.component, each.cell.rule): each.differs
        for each in differences([table])
        if each.cell.rule in methods
    }


def _others(evidence: Evidence) -> Iterator[Counterpart]:
    images = evidence.of(RESNET.name).groupby("activation", observed=True)["input"].nunique()
    nearest = next((network for network in printed.RESNETS if network in images), printed.RESNETS[0])
    resnet = NetKind(nearest, NETWORKS[nearest].depth)
    methods = frozenset(printed.experiment("tv_class_resnet18")["method"])
    for label, title in (
        ("Table 3", "TV of classes, ResNet-18"),
        ("Table 37", "the same with standard deviations"),
    ):
        beside = _beside(evidence, label, title, "tv_class", resnet, methods)
        if beside.address:
            few = ", a demonstration" if images[nearest] < IMAGES else ""
            beside = replace(beside, design=beside.design + few, found=_WIDE)
        yield beside
    uci = evidence.of(UCI.name)
    sets = sorted(uci["dataset"].unique()) if len(uci) else []
    design = f"{', '.join(sets)}; {labels.plural(int(uci['seed'].nunique()), 'seed')}" if sets else ""
    for label, title in (
        ("Table 4", "prediction intervals"),
        ("Table 38", "negative log-likelihoods"),
        ("Table 40", "prediction intervals, 5 and 1000 samples"),
    ):
        yield Counterpart(label, title, design, "", "#uci" if sets else "")
    seeds = _repeated(evidence, SELECTIVE)
    for label, title in (
        ("Table 5", "selective prediction"),
        ("Table 39", "the same with standard deviations"),
    ):
        yield Counterpart(label, title, seeds, "", "#selective" if seeds else "")
    timed = {row.device for row in evidence.results.runtime}
    yield Counterpart("Table 6", "times", ", ".join(sorted(timed)), "", "#runtime" if timed else "")


def _figures(evidence: Evidence) -> Iterator[Counterpart]:
    designs = {
        "#selective": _repeated(evidence, SELECTIVE),
        _ROBUST: _trained(evidence, ROBUSTNESS),
        "#introduction": _trained(evidence, INTRODUCTION),
        "#two-moons": _repeated(evidence, TWO_MOONS),
    }
    for label, title, design, address in _FIGURES:
        design = designs.get(address, design)
        yield Counterpart(label, title, design, "", address if design else "")


def _repeated(evidence: Evidence, experiment: Experiment) -> str:
    """Number of seeds of an experiment in words; empty without any."""
    seeds = int(evidence.of(experiment.name)["seed"].nunique())
    return labels.plural(seeds, "seed") if seeds else ""


def _trained(evidence: Evidence, experiment: Experiment) -> str:
    """Data sets, scales and runs of trained classifiers in words; empty without any."""
    own = evidence.of(experiment.name)
    if own.empty:
        return ""
    sets = ", ".join(SETS[name] for name in SETS if (own["dataset"] == name).any())
    scales = labels.plural(own["sigma"].dropna().nunique(), "scale")
    return f"{sets}, {scales}, {labels.plural(int(own['seed'].nunique()), 'run')}"
