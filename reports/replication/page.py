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
from ..section import RenderedSection
from ..sections import introduction, robustness, selective, two_moons, uci
from ..sections.robustness import SETS
from ..site import PAPER, address
from ..statement import Answer, Convention, Effect, Evidence, Rule, Statement, Topic, Trial, judged
from ..statistics.verdicts import Outcome
from ..style import labels
from ..style.figure import SIDE, SMALL, Figure, look, panels
from ..style.names import NetKind
from ..style.theme import INK, LIGHT, ORDERED, Style, clean, marked, shade
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
    """Return the topics and statements of ``statements.toml``, each statement with its rule."""
    loaded = []
    for topic_key, topic in _data("statements.toml").items():
        statements = tuple(
            Statement(key, rule=RULES.get(key), **fields) for key, fields in topic["statements"].items()
        )
        loaded.append(Topic(topic_key, topic["title"], statements))
    return tuple(loaded)


OTHER_TRAINING = set(SUITES.values()) - {MAIN_CONVENTION[1]}
"""Conventions of training that are not drawn."""
_FEWEST, _MOST = 2, 20  # conventions
_LEVELS = 5  # noise levels that are drawn one by one; of more effects the deciding one is drawn
_ROW = 0.2  # in

RIVALS = {
    "tv-covariance": ("marginal moment matching",),
    "tv-dvia-better": ("DVIA", "DVIA*"),
    "tv-mc": ("MC 100",),
}
"""Statements on the lead of SDP in 1 − TV, drawn side by side, with the titles of their panels."""
_SAME_EFFECTS = {*RIVALS, "tv-dvia"}


@look()
def main_forest(topics: Iterable[Topic]) -> Figure | None:
    """Lead of SDP over its rivals, by convention and noise level; None unless all were measured."""
    statements = {statement.key: statement for topic in topics for statement in topic.statements}
    panel_titles: list[str] = []
    trials_of_panels: list[list[Trial]] = []
    for key, titles in RIVALS.items():
        trials_of_version: dict[str, list[Trial]] = {}
        for version, trial in _drawn(statements[key]):
            trials_of_version.setdefault(version, []).append(trial)
        for title, trials in zip(titles, trials_of_version.values(), strict=False):
            panel_titles.append(title)
            trials_of_panels.append(trials)
    row_counts = {len(trials) for trials in trials_of_panels}
    if len(row_counts) != 1 or len(panel_titles) < 4:
        return None
    first_trials = trials_of_panels[0]
    styles = _styles_of_levels(first_trials[0].effects)
    names = [trial.convention[0] for trial in first_trials]
    drawing, axes_of_panels = panels(
        panel_titles,
        styles.values(),
        columns=4,
        width=1.75,
        height=0.36 * len(names),
        left=0.22,
        below=0.42,
        margin=0.8,
    )
    for axes, trials in zip(axes_of_panels, trials_of_panels, strict=True):
        _draw(axes, trials, names, styles)
        axes.axvline(0, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.set_xlabel("lead of SDP in 1 − TV")
        if axes is not axes_of_panels[0]:
            axes.set_yticklabels([])
    for label in axes_of_panels[0].get_yticklabels():
        label.set_gid(SIDE)
    title = "SDP compared with its rivals: effects by convention and noise level"
    caption = (
        "1 − TV of SDP less that of the rival: medians over nets with 95 % intervals. Right of the dashed "
        "line SDP is more accurate. Rows are conventions of total variation: the paper states 10 × 10 × 10 "
        "bins, but not their range. The first two are nearest to its numbers."
    )
    return Figure("figure-rivals", title, caption, drawing)


@look()
def small_forest(rulings: Rulings) -> Figure | None:
    """Mean lead of SDP over each rival, by partition; None if the main claim was not measured."""
    leads = rulings.main_effects
    if not leads:
        return None
    effects = {partition: dict(of_rivals) for partition, of_rivals in leads.items()}
    for convention, of_rivals in zip((MAIN_CONVENTION, HEADLINE_CONVENTION), effects.values(), strict=True):
        samples = _mean_effect(rulings.statement("tv-mc").answer, convention)
        if samples:
            of_rivals[RIVALS["tv-mc"][0]] = samples
    rivals = list(dict.fromkeys(rival for of_rivals in effects.values() for rival in of_rivals))
    styles = [
        Style(name, shade(colour, LIGHT), "o")
        for name, colour in zip(_PARTITIONS, ORDERED[::4], strict=False)
    ]
    height = 0.3 * len(rivals)
    drawing, (axes,) = panels(
        [""], styles, width=2.2, height=height, left=1.5, right=0.06, above=0.02, below=0.4
    )
    for offset, style, of_rivals in zip((-0.15, 0.15), styles, effects.values(), strict=False):
        for row, rival in enumerate(rivals):
            if rival not in of_rivals:
                continue
            mean, low, high = of_rivals[rival].range
            tip = f": lead over {rival} {labels.interval(mean, low, high)}"
            line = style.line | {"gid": marked(style.label, [tip]), "markersize": 3.5}
            axes.plot([mean], [row + offset], **line)
            if math.isfinite(low):
                axes.hlines(row + offset, low, high, color=style.colour, linewidth=1.3, gid=style.series)
    names = [_SHORT_NAMES.get(name, name) for name in map(_without_remark, rivals)]
    axes.set_yticks(range(len(rivals)), list(map(clean, names)), fontsize=SMALL)
    axes.set(ylim=(len(rivals) - 0.5, -0.5), xlabel="lead of SDP in 1 − TV")
    axes.axvline(0, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.grid(visible=False, axis="y")
    caption = (
        "The claim (Petersen et al. 2024): SDP competes with DVIA at a fraction of its cost, and is superior "
        "to marginal moment matching. Medians over nets with 4 ReLU layers with 95 % intervals, in two kinds "
        "of bins. Right of the dashed line SDP is more accurate."
    )
    return Figure("figure-claim", "Lead of SDP over its rivals", caption, drawing)


_SHORT_NAMES = {"DVIA as published": "DVIA", "the variant of DVIA": "DVIA*"}
"""Names of rivals in figures, as in tables."""
_PARTITIONS = ("joint extremes", "equal-mass cells")
"""Short names of the partitions of the main claim."""


def _without_remark(rival: str) -> str:
    return rival.partition(" (")[0]


@look()
def forest(statement: Statement) -> Figure | None:
    """Effects of a statement under each convention; None without intervals, or with too few or many rows."""
    rows = _drawn(statement)
    trials = [trial for _, trial in rows]
    if statement.key in _SAME_EFFECTS or not _FEWEST <= len(rows) <= _MOST:
        return None
    if all(math.isnan(trial.deciding.range[1]) for trial in trials):
        return None
    has_levels = _has_distinct_levels(trials[0])
    styles = _styles_of_levels(trials[0].effects) if has_levels else {}
    names = _row_names(rows)
    left = min(0.065 * max(map(len, names)), 3.6) + 0.15
    height = _ROW * len(rows) + 0.1
    drawing, (axes,) = panels(
        [""], styles.values(), width=3.9, height=height, left=left, right=1.0, above=0.08
    )
    _draw(axes, trials, names, styles)
    right_margin = axes.get_yaxis_transform()
    for row, trial in enumerate(trials):
        axes.text(1.02, row, f"{trial.verdict}", transform=right_margin, fontsize=SMALL, va="center")
    drawn = [effect for trial in trials for effect in (trial.effects if has_levels else [trial.deciding])]
    thresholds = {effect.shown(effect.threshold) for effect in drawn}
    if len(thresholds) == 1:
        axes.axvline(thresholds.pop(), color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    needed = {effect.needed for effect in drawn}
    suffix = f" (needed: {needed.pop()})" if len(needed) == 1 else ""
    prefix = "" if has_levels or len(trials[0].effects) == 1 else "least favourable part, e.g. "
    label = textwrap.shorten(f"{prefix}{drawn[0].name}", 62 - len(suffix), placeholder=" …")
    axes.set_xlabel(clean(label + suffix))
    return Figure(f"forest-{statement.key}", f"Effects by convention: {statement.key}", "", drawing)


def _has_distinct_levels(trial: Trial) -> bool:
    """Whether the effects of a trial are few, and each of another noise level."""
    levels = [effect.sigma for effect in trial.effects]
    return 1 < len(levels) <= _LEVELS and all(levels) and len(set(levels)) == len(levels)


def _row_names(rows: Sequence[tuple[str, Trial]]) -> list[str]:
    """Names of conventions, with the version of DVIA if there are several."""
    has_versions = len({version for version, _ in rows}) > 1
    names = []
    for version, trial in rows:
        name = " / ".join(choice for choice in trial.convention if choice != "SGD 0.01") or "–"
        name = textwrap.shorten(name, 52, placeholder=" …")
        names.append(f"{name} ({version})" if has_versions else name)
    return names


def _drawn(statement: Statement) -> list[tuple[str, Trial]]:
    """Measured trials with the version of DVIA, except those of other training recipes."""
    return [
        (version, trial) for version, trial in statement.rows if OTHER_TRAINING.isdisjoint(trial.convention)
    ]


def _styles_of_levels(effects: Iterable[Effect]) -> dict[str, Style]:
    """Styles by noise level."""
    return {
        effect.sigma: Style(f"σ = {effect.sigma}", shade(colour, LIGHT), "o")
        for effect, colour in zip(effects, ORDERED, strict=False)
    }


def _draw(axes: Axes, trials: Sequence[Trial], names: Sequence[str], styles: Mapping[str, Style]) -> None:
    """Draw a row of intervals for each trial: of every noise level in `styles`, or of the deciding effect."""
    for row, trial in enumerate(trials):
        effects = trial.effects if styles else (trial.deciding,)
        for index, effect in enumerate(effects):
            height = row + 0.7 * ((index + 0.5) / len(effects) - 0.5)
            colour = styles[effect.sigma].colour if styles else INK
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

    `label` is ``Table 9``, and `title` its content. `design` is the fidelity of the counterpart, `agreement`
    the number of cells that differ in words, and `address` is relative to the report's folder. They are empty
    if there is no counterpart.
    """

    label: str
    title: str
    design: str = ""
    agreement: str = ""
    address: str = ""


def counterparts(evidence: Evidence) -> list[Counterpart]:
    """Return the counterparts of all tables of the paper, then of all its figures, by number."""
    unsorted = [*_simulated(evidence), *_images(evidence), *_shown(evidence)]

    def order(counterpart: Counterpart) -> tuple[bool, int]:
        kind, number = counterpart.label.split()[:2]
        return kind.startswith("Figure"), int(number)

    return sorted(unsorted, key=order)


def _simulated(evidence: Evidence) -> Iterator[Counterpart]:
    for _, rows in simulation_tables().groupby("table"):
        first = rows.iloc[0]
        kind = NetKind(str(first["activation"]), int(first["depth"]))
        title = f"{METRICS[first['metric']]}, {kind.label}"
        if rows["method"].str.startswith("monte_carlo").all():
            title += ", Monte Carlo estimates"
        methods = frozenset(rows["method"])
        yield _counterpart(evidence, str(first["label"]), title, str(first["metric"]), kind, methods)


def _counterpart(
    evidence: Evidence, label: str, title: str, metric: str, kind: NetKind, methods: frozenset[str]
) -> Counterpart:
    compared = []
    for table in evidence.results.tables:
        if table.metric.published == metric and table.kind == kind and methods & set(table.rules):
            cells = [cell for cell in differences([table]) if cell.cell.rule in methods]
            compared.append((table, cells))
    if not compared:
        return Counterpart(label, title)
    # Several experiments may have such a table, with designs of their own; the largest counts.
    table, cells = max(compared, key=lambda pair: (pair[0].units, bool(pair[1])))
    agreement = ""
    if cells:
        agreement = f"{sum(cell.differs for cell in cells)} of {len(cells)} cells differ"
    misprint = _data("counterparts.toml")["misprints"].get(label, "")
    if misprint:
        title += f" ({misprint})"
    return Counterpart(label, title, table.design, agreement, f"#{table.experiment}")


def _images(evidence: Evidence) -> Iterator[Counterpart]:
    images = evidence.of(RESNET.name).groupby("activation", observed=True)["input"].nunique()
    nearest = next((network for network in RESNETS if network in images), RESNETS[0])
    resnet = NetKind(nearest, NETWORKS[nearest].depth)
    methods = frozenset(experiment("tv_class_resnet18")["method"])
    titles = {"Table 3": "TV of classes, ResNet-18", "Table 37": "the same with standard deviations"}
    for label, title in titles.items():
        counterpart = _counterpart(evidence, label, title, "tv_class", resnet, methods)
        if counterpart.address:
            suffix = ", a demonstration" if images[nearest] < IMAGES else ""
            counterpart = replace(counterpart, design=counterpart.design + suffix, agreement=_WIDE)
        yield counterpart


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
    rows = evidence.of(experiment.name)
    if rows.empty:
        return ""
    sets = ", ".join(label for name, label in SETS.items() if (rows["dataset"] == name).any())
    scales = labels.plural(rows["sigma"].dropna().nunique(), "scale")
    runs = labels.plural(int(rows["seed"].nunique()), "run")
    return f"{sets}, {scales}, {runs}"


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
        """Judge all statements."""
        return cls(results, judged(topics(), results))

    @property
    def statements(self) -> list[Statement]:
        return [statement for topic in self.topics for statement in topic.statements]

    @property
    def tally(self) -> dict[Outcome, int]:
        """Number of statements by outcome; statements about DVIA use DVIA as published."""
        counts = Counter(statement.answer.verdicts.outcome for statement in self.statements)
        return {outcome: counts[outcome] for outcome in Outcome if counts[outcome]}

    @property
    def summary(self) -> str:
        """The tally as a sentence."""
        (first, number), *others = self.tally.items()
        verb = "is" if number == 1 else "are"
        counts = [f"{number} {verb} {first}"]
        counts += [f"{count} {outcome}" for outcome, count in others]
        return f"Of {labels.plural(sum(self.tally.values()), 'statement')}, {labels.listed(counts)}."

    @property
    def about_dvia(self) -> dict[str, Counter[Outcome]]:
        """Number of statements by outcome for both versions of DVIA; empty if none was judged for both."""
        published, regular = Counter[Outcome](), Counter[Outcome]()
        for statement in self.statements:
            if statement.regular:
                published[statement.answer.verdicts.outcome] += 1
                regular[statement.regular.verdicts.outcome] += 1
        if not published:
            return {}
        return {"DVIA": published, "DVIA*": regular}

    @property
    def outcomes_of_dvia(self) -> list[Outcome]:
        counts = self.about_dvia.values()
        return [outcome for outcome in Outcome if any(count[outcome] for count in counts)]

    def statement(self, key: str) -> Statement:
        """Return the statement with this key."""
        return next(statement for statement in self.statements if statement.key == key)

    @property
    def main_effects(self) -> dict[str, dict[str, Effect]]:
        """Mean lead of SDP over noise levels, by partition and rival; empty if one was not measured."""
        covariance, dvia = self.statement("tv-covariance"), self.statement("tv-dvia-better")
        answers = {
            "marginal moment matching": covariance.answer,
            "the variant of DVIA (close to Table 28)": dvia.regular,
            "DVIA as published": dvia.answer,
        }
        partitions = {
            MAIN_CONVENTION: "ten bins for each output, between the joint extremes of oracle and prediction",
            HEADLINE_CONVENTION: "equal-mass cells, which are the same for all rules (headline)",
        }
        leads: dict[str, dict[str, Effect]] = {}
        for convention, partition in partitions.items():
            leads[partition] = {}
            for rival, answer in answers.items():
                mean = _mean_effect(answer, convention) if answer else None
                if mean is None:
                    return {}
                leads[partition][rival] = mean
        return leads

    @property
    def main_verdict(self) -> str:
        """Whether SDP is more accurate than its rivals: ``Yes``, ``In part`` or ``No``."""
        is_ahead = []
        for effects in self.main_effects.values():
            for effect in effects.values():
                _, low, _ = effect.range
                is_ahead.append(low > 0)
        if all(is_ahead):
            return "Yes"
        return "In part" if any(is_ahead) else "No"

    @property
    def main_findings(self) -> Iterator[str]:
        """Comparisons of SDP with each rival, as sentences."""
        leads = list(self.main_effects.values())
        for rival in leads[0] if leads else ():
            ranges = [effects[rival].range for effects in leads]
            if all(low > 0 for _, low, _ in ranges):
                yield f"In both partitions, SDP is more accurate than {rival}."
            elif all(high < 0 for _, _, high in ranges):
                yield f"In both partitions, SDP is less accurate than {rival}."
            else:
                yield f"Whether SDP is more accurate than {rival} depends on the partition."

    @functools.cached_property
    def figure(self) -> Figure | None:
        """Forest plot of the main claim."""
        return small_forest(self)

    @property
    def answer(self) -> str:
        """Whether the main claim holds, and how many statements do, in at most 40 words."""
        outcomes: dict[str, list[str]] = {}
        open_rivals: list[str] = []
        leads = list(self.main_effects.values())
        for rival in leads[0] if leads else ():
            ranges = [effects[rival].range for effects in leads]
            name = _without_remark(rival)
            if all(low > 0 for _, low, _ in ranges):
                outcomes.setdefault("more accurate than", []).append(name)
            elif all(high < 0 for _, _, high in ranges):
                outcomes.setdefault("less accurate than", []).append(name)
            else:
                open_rivals.append(name)
        sentences = [f"{self.main_verdict}."] if leads else []
        if outcomes:
            parts = [f"{outcome} {labels.listed(rivals)}" for outcome, rivals in outcomes.items()]
            sentences.append(f"SDP is {labels.listed(parts)}.")
        if open_rivals:
            sentences.append(f"Whether it beats {labels.listed(open_rivals)} depends on the bins.")
        supported, refuted = self.tally.get(Outcome.SUPPORTED, 0), self.tally.get(Outcome.REFUTED, 0)
        total = sum(self.tally.values())
        counts = f"{supported} are supported, {refuted} refuted and {total - supported - refuted} neither"
        return " ".join([*sentences, f"Of {labels.plural(total, 'statement')}, {counts}."])

    @property
    def main_claim(self) -> str:
        """Effects of SDP against DVIA and marginal moment matching in words; empty if not measured."""
        if not self.main_effects:
            return ""
        sentences = []
        for partition, effects in self.main_effects.items():
            leads = [
                effect.in_words(f"{{size}} {{side}} that of {rival}") for rival, effect in effects.items()
            ]
            sentences.append(f"With {partition}, 1 − TV of SDP is {labels.listed(leads)}.")
        averaged = (
            f"These are medians over nets of means over {len(TV_SIGMAS)} noise levels, with 95 % intervals."
        )
        return f"{self.main_verdict}. {' '.join(sentences)} {averaged}"


def _mean_effect(answer: Answer, convention: Convention) -> Effect | None:
    """Mean effect over noise levels under a convention; None if it was not measured."""
    trial = next((trial for trial in answer.trials if trial.convention == convention), None)
    return trial.mean if trial and trial.effects else None


def shown(rulings: Rulings, files: Mapping[str, str]) -> tuple[RenderedSection, dict[str, str]]:
    """Verdicts as a part of the report, and its tables as files.

    `files` are files of the report by anchor; links to other anchors are removed.
    """
    results, evidence = rulings.results, Evidence(rulings.results)
    topics = rulings.topics
    nearest = nearness(results.frame)
    dvia_table = table_28(results.frame)
    variables = {
        "topics": topics,
        "forests": {statement.key: forest(statement) for statement in rulings.statements},
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
        "linked": {f"#{anchor}" for anchor in files},
        "finished": results.meta.get("finished") or "",
        "table": TABLE,
    }
    html = rendered(_TEMPLATE, results.traits, variables)
    navigation = [(f"topic-{topic.key}", topic.title) for topic in topics]
    if dvia_table:
        navigation.append(("dvia", "The paper’s DVIA"))
    if nearest:
        navigation.append(("conventions", "Conventions"))
    navigation.append(("counterparts", "Tables and figures"))
    part = RenderedSection(PAPER, _ORDER, tuple(navigation), html)
    return part, {TABLE: _csv(topics, files)}


def _rows(topics: Iterable[Topic]) -> Iterator[dict[str, str]]:
    for topic in topics:
        for statement in topic.statements:
            first, last = statement.lines
            row = {
                "topic": topic.title,
                "lines": f"{first}" if first == last else f"{first}-{last}",
                "quote": statement.quote,
                "reading": statement.reading,
            }
            row |= _answer_columns(statement.answer, "")
            row |= _answer_columns(statement.regular, "_regular_dvia")
            yield row | {"fidelity": statement.answer.fidelity, "address": statement.answer.address}


def _answer_columns(answer: Answer | None, suffix: str) -> dict[str, str]:
    return {
        f"outcome{suffix}": answer.verdicts.outcome if answer else "",
        f"ruling{suffix}": answer.verdicts.words if answer else "",
        f"found{suffix}": answer.finding if answer else "",
        f"why_undecided{suffix}": answer.why if answer else "",
    }


def _csv(topics: Sequence[Topic], files: Mapping[str, str]) -> str:
    frame = pd.DataFrame(_rows(topics))
    anchors = frame["address"].str.removeprefix("#")
    frame["address"] = [address(anchor, files) if anchor in files else "" for anchor in anchors]
    return frame.to_csv(index=False, lineterminator="\n")
