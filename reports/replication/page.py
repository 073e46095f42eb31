"""Verdicts on the paper's statements as a page and as CSV."""

from __future__ import annotations

import functools
import math
import textwrap
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from ...bench.experiments import Experiment
from ...bench.experiments.classifiers import RESNET
from ...bench.nets.architectures import NETWORKS
from ...bench.studies.introduction import EXPERIMENT as INTRODUCTION
from ...bench.studies.robustness import EXPERIMENT as ROBUSTNESS
from ...bench.studies.selective import EXPERIMENT as SELECTIVE
from ...bench.studies.two_moons import EXPERIMENT as TWO_MOONS
from ...bench.studies.uci import EXPERIMENT as UCI
from ..paper import RESNETS, experiment, simulation_tables
from ..results import Results
from ..section import Part
from ..sections import introduction, robustness, selective, two_moons, uci
from ..sections.robustness import SETS
from ..site import PAPER, address
from ..statement import Effect, Evidence, Rule, Statement, Topic, Trial, judged
from ..statistics.verdicts import Outcome
from ..style import labels
from ..style.figure import SMALL, Figure, clean, look, panels
from ..style.names import NetKind
from ..style.theme import INK, LIGHT, ORDERED, Style, shade
from ..tables.tables import differences
from ..writing import rendered
from . import claims, computed, cost, simulation
from .claims import HEADLINE_CONVENTION, MAIN_CONVENTION, SUITES, TV_SIGMAS
from .nearness import columns, nearer, nearness, table_28
from .simulation import IMAGES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RULES: dict[str, Rule] = {
    **claims.RULES,
    **computed.RULES,
    **cost.RULES,
    **simulation.RULES,
    **uci.RULES,
    **selective.RULES,
    **robustness.RULES,
    **introduction.RULES,
    **two_moons.RULES,
}
"""Rules by the keys of their statements."""


@functools.cache
def _data(name: str) -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))


@functools.cache
def topics() -> tuple[Topic, ...]:
    return tuple(
        Topic(
            key,
            topic["title"],
            tuple(Statement(name, rule=RULES.get(name), **own) for name, own in topic["statements"].items()),
        )
        for key, topic in _data("statements.toml").items()
    )


OTHER_TRAINING = set(SUITES.values()) - {MAIN_CONVENTION[1]}
"""Conventions of training that are not drawn."""
_FEWEST, _MOST = 2, 20  # conventions
_LEVELS = 5  # noise levels that are drawn one by one; of more effects the deciding one is drawn
_ROW = 0.2  # in

RIVALS = {
    "tv-covariance": ("marginal moment matching",),
    "tv-dvia-better": ("DVIA as published", "DVIA, regular pass"),
    "tv-mc": ("100 Monte Carlo samples",),
}
"""Statements on the lead of SDP in 1 − TV, drawn side by side, with the titles of their panels."""
_SAME_EFFECTS = {*RIVALS, "tv-dvia"}


@look()
def main_forest(topics: Iterable[Topic]) -> Figure | None:
    """Lead of SDP over its rivals, by convention and noise level; None unless all were measured."""
    statements = {one.key: one for topic in topics for one in topic.statements}
    parts: list[tuple[str, list[Trial]]] = []
    for key, titles in RIVALS.items():
        versions: dict[str, list[Trial]] = {}
        for version, trial in _drawn(statements[key]):
            versions.setdefault(version, []).append(trial)
        parts += zip(titles, versions.values(), strict=False)
    if len({len(trials) for _, trials in parts}) != 1 or len(parts) < 4:
        return None
    styled = _levels(parts[0][1][0].effects)
    names = [trial.convention[0] for trial in parts[0][1]]
    drawing, every = panels(
        [title for title, _ in parts],
        styled.values(),
        columns=4,
        width=1.75,
        height=0.36 * len(names),
        left=0.22,
        below=0.42,
        margin=0.8,
    )
    for axes, (_, trials) in zip(every, parts, strict=True):
        _draw(axes, trials, names, styled)
        axes.axvline(0, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.set_xlabel("lead of SDP in 1 − TV")
        if axes is not every[0]:
            axes.set_yticklabels([])
    title = "SDP compared with its rivals: effects by convention and noise level"
    caption = (
        "1 − TV of SDP less that of the rival: medians over nets with 95 % intervals. Right of the dashed "
        "line SDP is more accurate. Rows are conventions of total variation: the paper states 10 × 10 × 10 "
        "bins, but not their range. The first two are nearest to its numbers."
    )
    return Figure("figure-rivals", title, caption, drawing)


@look()
def forest(statement: Statement) -> Figure | None:
    """Effects of a statement under each convention; None without intervals, or with too few or many rows."""
    rows = _drawn(statement)
    trials = [trial for _, trial in rows]
    if statement.key in _SAME_EFFECTS or not _FEWEST <= len(rows) <= _MOST:
        return None
    if all(math.isnan(trial.deciding.range[1]) for trial in trials):
        return None
    levels = [effect.sigma for effect in trials[0].effects]
    by_level = 1 < len(levels) <= _LEVELS and all(levels) and len(set(levels)) == len(levels)
    styled = _levels(trials[0].effects) if by_level else {}
    several = len({version for version, _ in rows}) > 1
    names = []
    for version, trial in rows:
        name = " / ".join(choice for choice in trial.convention if choice != "SGD 0.01") or "–"
        names.append(textwrap.shorten(name, 52, placeholder=" …") + f" ({version})" * several)
    left = min(0.065 * max(map(len, names)), 3.6) + 0.15
    drawing, (axes,) = panels(
        [""], styled.values(), width=3.9, height=_ROW * len(rows) + 0.1, left=left, right=1.0, above=0.08
    )
    _draw(axes, trials, names, styled)
    for place, trial in enumerate(trials):  # next to the row
        axes.text(
            1.02, place, f"{trial.verdict}", transform=axes.get_yaxis_transform(), fontsize=SMALL, va="center"
        )
    effects = [effect for trial in trials for effect in (trial.effects if by_level else (trial.deciding,))]
    thresholds = {effect.shown(effect.threshold) for effect in effects}
    if len(thresholds) == 1:
        axes.axvline(thresholds.pop(), color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    needed = {effect.needed for effect in effects}
    suffix = f" (needed: {needed.pop()})" if len(needed) == 1 else ""
    part = "" if by_level or len(trials[0].effects) == 1 else "least favourable part, e.g. "
    label = textwrap.shorten(f"{part}{effects[0].name}", 62 - len(suffix), placeholder=" …")
    axes.set_xlabel(clean(label + suffix))
    return Figure(f"forest-{statement.key}", f"Effects by convention: {statement.key}", "", drawing)


def _drawn(statement: Statement) -> list[tuple[str, Trial]]:
    return [row for row in statement.rows if not set(row[1].convention) & OTHER_TRAINING]


def _levels(effects: Iterable[Effect]) -> dict[str, Style]:
    return {
        effect.sigma: Style(f"σ = {effect.sigma}", shade(colour, LIGHT), "o")
        for effect, colour in zip(effects, ORDERED, strict=False)
    }


def _draw(axes: Axes, trials: Sequence[Trial], names: Sequence[str], styled: Mapping[str, Style]) -> None:
    for place, trial in enumerate(trials):
        effects = trial.effects if styled else (trial.deciding,)
        for k, effect in enumerate(effects):
            height = place + 0.7 * ((k + 0.5) / len(effects) - 0.5)
            colour = styled[effect.sigma].colour if styled else INK
            mean, low, high = effect.range
            axes.plot([mean], [height], color=colour, marker="o", markersize=3, linestyle="none")
            if math.isfinite(low):
                axes.hlines(height, low, high, color=colour, linewidth=1.1)
    axes.set_yticks(range(len(names)), [clean(name) for name in names], fontsize=SMALL)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")


METRICS = {"1-tv": "1 − TV", "w1": "W1", "std_ratio": "ratios of standard deviations", "tv_class": "TV"}
"""Names of metrics in the paper's tables, by :attr:`Metric.published`."""
_WIDE = "not compared: the spreads over images are larger than the means"


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
    every = (*_simulated(evidence), *_images(evidence), *_shown(evidence))
    return sorted(every, key=lambda one: (one.label.startswith("Figure"), int(one.label.split()[1])))


def _simulated(evidence: Evidence) -> Iterator[Counterpart]:
    for _, own in simulation_tables().groupby("table"):
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
    compared = [(table, [d for d in differences([table]) if d.cell.rule in methods]) for table in found]
    # An experiment may have its own design for what another one has at the paper's; the largest counts.
    table, cells = max(compared, key=lambda pair: (pair[0].units, bool(pair[1])))
    differ = sum(cell.differs for cell in cells)
    said = f"{differ} of {len(cells)} cells differ" if cells else ""
    misprint = _data("counterparts.toml")["misprints"].get(label, "")
    title += f" ({misprint})" if misprint else ""
    return Counterpart(label, title, table.design, said, f"#{table.experiment}")


def _images(evidence: Evidence) -> Iterator[Counterpart]:
    images = evidence.of(RESNET.name).groupby("activation", observed=True)["input"].nunique()
    nearest = next((network for network in RESNETS if network in images), RESNETS[0])
    resnet = NetKind(nearest, NETWORKS[nearest].depth)
    methods = frozenset(experiment("tv_class_resnet18")["method"])
    titles = {"Table 3": "TV of classes, ResNet-18", "Table 37": "the same with standard deviations"}
    for label, title in titles.items():
        beside = _beside(evidence, label, title, "tv_class", resnet, methods)
        if beside.address:
            few = ", a demonstration" if images[nearest] < IMAGES else ""
            beside = replace(beside, design=beside.design + few, found=_WIDE)
        yield beside


def _shown(evidence: Evidence) -> Iterator[Counterpart]:
    uci = evidence.of(UCI.name)
    sets = ", ".join(sorted(uci["dataset"].unique())) if len(uci) else ""
    designs = {
        "#uci": f"{sets}; {_repeated(evidence, UCI)}" if sets else "",
        "#runtime": ", ".join(sorted({row.device for row in evidence.results.runtime})),
        "#selective": _repeated(evidence, SELECTIVE),
        "#robustness": _trained(evidence, ROBUSTNESS),
        "#introduction": _trained(evidence, INTRODUCTION),
        "#two-moons": _repeated(evidence, TWO_MOONS),
    }
    for label, title, design, anchor in _data("counterparts.toml")["shown"]:
        design = designs.get(anchor, design)
        yield Counterpart(label, title, design, "", anchor if design else "")


def _repeated(evidence: Evidence, experiment: Experiment) -> str:
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


TABLE = "paper.csv"

_TEMPLATE = Path(__file__).with_name("template.html")
_ORDER = 0
_CONVENTIONS, _UNREACHED = 12, 12  # rows of tables that are shown


@dataclass(frozen=True, eq=False)
class Rulings:
    """Verdicts on the paper's statements, by topic."""

    results: Results
    topics: tuple[Topic, ...]

    @classmethod
    def of(cls, results: Results) -> Rulings:
        return cls(results, judged(topics(), results))

    @property
    def tally(self) -> dict[Outcome, int]:
        """Number of statements by outcome; statements about DVIA use DVIA as published."""
        counts = Counter(one.answer.verdicts.outcome for topic in self.topics for one in topic.statements)
        return {outcome: counts[outcome] for outcome in Outcome if counts[outcome]}

    @property
    def summary(self) -> str:
        (first, number), *others = self.tally.items()
        verb = "is" if number == 1 else "are"
        counts = [f"{number} {verb} {first}", *(f"{count} {outcome}" for outcome, count in others)]
        return f"Of {labels.plural(sum(self.tally.values()), 'statement')}, {labels.listed(counts)}."

    @property
    def about_dvia(self) -> dict[str, Counter[Outcome]]:
        """Number of statements by outcome for both versions of DVIA; empty if none was judged for both."""
        both = [(s.answer, s.regular) for topic in self.topics for s in topic.statements if s.regular]
        names = ("DVIA as published", "DVIA with its covariance at the regular pass")
        counts = (Counter(one.verdicts.outcome for one in own) for own in zip(*both, strict=True))
        return dict(zip(names, counts, strict=True)) if both else {}

    @property
    def outcomes_of_dvia(self) -> list[Outcome]:
        return [outcome for outcome in Outcome if any(own[outcome] for own in self.about_dvia.values())]

    def statement(self, key: str) -> Statement:
        return next(one for topic in self.topics for one in topic.statements if one.key == key)

    @property
    def main_effects(self) -> dict[str, dict[str, Effect]]:
        """Mean lead of SDP over noise levels, by partition and rival; empty if one was not measured."""
        covariance, dvia = self.statement("tv-covariance"), self.statement("tv-dvia-better")
        compared = (
            ("marginal moment matching", covariance.answer),
            ("the variant of DVIA (close to Table 28)", dvia.regular),
            ("DVIA as published", dvia.answer),
        )
        partitions = {
            MAIN_CONVENTION: "ten bins for each output, between the joint extremes of oracle and prediction",
            HEADLINE_CONVENTION: "equal-mass cells, which are the same for all rules (headline)",
        }
        leads = {
            partition: {
                rival: mean
                for rival, answer in compared
                for trial in (answer.trials if answer else ())
                if trial.convention == convention and trial.effects and (mean := trial.mean)
            }
            for convention, partition in partitions.items()
        }
        return leads if all(len(effects) == len(compared) for effects in leads.values()) else {}

    @property
    def main_verdict(self) -> str:
        """Whether SDP is more accurate than its rivals: ``Yes``, ``In part`` or ``No``."""
        ahead = [one.range[1] > 0 for effects in self.main_effects.values() for one in effects.values()]
        return "Yes" if all(ahead) else "In part" if any(ahead) else "No"

    @property
    def main_findings(self) -> Iterator[str]:
        """Comparisons of SDP with each rival, as sentences."""
        leads = list(self.main_effects.values())
        for rival in list(leads[0]) if leads else []:
            ends = [effects[rival].range[1:] for effects in leads]
            if all(low > 0 for low, _ in ends):
                yield f"In both partitions, SDP is more accurate than {rival}."
            elif all(high < 0 for _, high in ends):
                yield f"In both partitions, SDP is less accurate than {rival}."
            else:
                yield f"Whether SDP is more accurate than {rival} depends on the partition."

    @property
    def main_claim(self) -> str:
        """Effects of SDP against DVIA and marginal moment matching in words; empty if not measured."""
        if not self.main_effects:
            return ""
        sentences = []
        for partition, effects in self.main_effects.items():
            leads = [effect.said(f"{{size}} {{side}} that of {rival}") for rival, effect in effects.items()]
            sentences.append(f"With {partition}, 1 − TV of SDP is {labels.listed(leads)}.")
        averaged = (
            f"These are medians over nets of means over {len(TV_SIGMAS)} noise levels, with 95 % intervals."
        )
        return f"{self.main_verdict}. {' '.join(sentences)} {averaged}"


def shown(rulings: Rulings, places: Mapping[str, str]) -> tuple[Part, dict[str, str]]:
    """Verdicts as a part of the report, and its tables as files.

    `places` are files of the report by anchor; links to other places are removed.
    """
    results, evidence = rulings.results, Evidence(rulings.results)
    topics = rulings.topics
    nearest = nearness(results.frame)
    dvia_table = table_28(results.frame)
    variables = {
        "topics": topics,
        "forests": {one.key: forest(one) for topic in topics for one in topic.statements},
        "main": main_forest(topics),
        "rulings": rulings,
        "nearness": nearest,
        "dvia_table": dvia_table,
        "nearer": nearer(results.frame),
        "columns": columns(results.frame),
        "names": METRICS,
        "shown_conventions": _CONVENTIONS,
        "shown_unreached": _UNREACHED,
        "counterparts": counterparts(evidence),
        "linked": {f"#{anchor}" for anchor in places},
        "finished": results.meta.get("finished") or "",
        "table": TABLE,
    }
    html = rendered(_TEMPLATE, results.traits, variables)
    navigation = [(f"topic-{one.key}", one.title) for one in topics]
    navigation += [("dvia", "The paper’s DVIA")] if dvia_table else []
    navigation += [("conventions", "Conventions")] if nearest else []
    navigation.append(("counterparts", "Tables and figures"))
    part = Part(PAPER, _ORDER, tuple(navigation), html)
    return part, {TABLE: _csv(topics, places)}


def _rows(topics: Iterable[Topic]) -> Iterator[dict[str, str]]:
    for topic in topics:
        for one in topic.statements:
            first, last = one.lines
            row = {
                "topic": topic.title,
                "lines": f"{first}" if first == last else f"{first}-{last}",
                "quote": one.quote,
                "reading": one.reading,
            }
            for suffix, answer in (("", one.answer), ("_regular_dvia", one.regular)):
                row |= {
                    f"outcome{suffix}": answer.verdicts.outcome if answer else "",
                    f"ruling{suffix}": answer.verdicts.words if answer else "",
                    f"found{suffix}": answer.found if answer else "",
                    f"why_undecided{suffix}": answer.why if answer else "",
                }
            yield row | {"fidelity": one.answer.fidelity, "address": one.answer.address}


def _csv(topics: Sequence[Topic], places: Mapping[str, str]) -> str:
    frame = pd.DataFrame(_rows(topics))
    anchors = frame["address"].str.removeprefix("#")
    frame["address"] = [address(anchor, places) if anchor in places else "" for anchor in anchors]
    return frame.to_csv(index=False, lineterminator="\n")
