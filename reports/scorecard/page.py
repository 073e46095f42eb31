"""The scorecard of a rule: whether it is right, how it compares, and what it costs, on one page."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sdp_bench.bench.files import write, writing
from sdp_bench.bench.metrics import Metric, primary, recorded_metric
from sdp_bench.bench.metrics.total_variation import ClassTotalVariation
from sdp_bench.reports.page import DATA, PAGE
from sdp_bench.reports.results import Results
from sdp_bench.reports.scorecard.comparisons import Comparisons, Condition, comparisons
from sdp_bench.reports.sections.figures.figures import figures
from sdp_bench.reports.statistics.costs import ARCHITECTURE, Costs
from sdp_bench.reports.statistics.replicates import Contest, Replicates
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.drawing import Figure
from sdp_bench.reports.style.nets import NetKind
from sdp_bench.reports.style.rules import RuleTraits
from sdp_bench.reports.tables.tables import Table, headline
from sdp_bench.reports.writing import environment, recorded

CONFORMANCE = "conformance.json"

_TEMPLATE = Path(__file__).with_name("template.html")

RATIOS = "Ratio of standard deviations: the factor that it is off by"


@dataclass(frozen=True)
class Candidate:
    """A rule under test.

    `name` is that of the records, `mark` a hash of its code and of what that rests on; a built-in rule has
    neither address nor source. `report` is that of the conformance kit as plain values, `trouble` why there
    is none; `unmeasured` says that it was to be measured and has no record.
    """

    name: str
    address: str = ""
    source: str = ""
    mark: str = ""
    report: Mapping[str, Any] | None = None
    trouble: str = ""
    unmeasured: bool = False

    @property
    def unexpected(self) -> list[str]:
        """Checks that it fails and does not declare as known faults."""
        return list(self.report["unexpected"]) if self.report else []

    @property
    def unchecked(self) -> bool:
        """Whether the kit ran and had no check for it."""
        return bool(self.report) and not self.report["ran"]  # type: ignore[index]

    @property
    def counted(self) -> str:
        """How many checks ran, passed, failed, were skipped."""
        if not self.report:
            return ""
        counts, every = self.report["counts"], len(self.report["checks"])
        known = counts["failed"] - len(self.unexpected)
        faults = f" ({known} of them a declared fault)" if known else ""
        return (
            f"{self.report['ran']} of {every} checks ran: {counts['passed']} passed, {counts['failed']} "
            f"failed{faults}, {counts['skipped']} skipped"
        )


@dataclass(frozen=True)
class CostRow:
    """One rule's time for one input on one kind of net, its multiple of SDP's, and as samples."""

    rule: str
    seconds: float
    times_sdp: float
    samples: float


@dataclass(frozen=True)
class CostTable:
    """Times on one kind of net."""

    title: str
    rows: tuple[CostRow, ...]


@dataclass(frozen=True)
class Answer:
    """Which rules may be best at one sigma, of all and of those that do not sample, with the best mean."""

    noise: str
    title: str
    best: tuple[Contest, float]
    deterministic: tuple[Contest, float] | None


@dataclass(frozen=True)
class Judged:
    """A rule under test, its name for people, and all that was found of it."""

    candidate: Candidate
    label: str
    blocks: tuple[Comparisons, ...]
    verdict: tuple[str, ...]
    failures: tuple[Mapping[str, Any], ...]

    @property
    def first(self) -> Comparisons | None:
        """Contests by what it is judged by in the first place."""
        return _first(self.blocks)


def build(results: Results, candidates: Sequence[Candidate], folder: Path, notes: Sequence[str] = ()) -> Path:
    """Write the scorecard, the measurements beside it, and the conformance reports as JSON.

    Parameters
    ----------
    results : Results
        Of one run; its frame may be empty.
    candidates : sequence of Candidate
        Rules under test; without any, the page says which rule to take.
    folder : Path
        Where ``index.html``, ``results.csv`` and ``conformance.json`` go; each is replaced as a whole. One
        of an earlier rule is taken away where the kit gave no report; measurements there stay where there
        are no new ones.
    notes : sequence of str
        What to know of the net and of what was measured.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    RunFailedError
        If the folder cannot be written.
    """
    text = page(results, candidates, notes)
    reports = {each.name: dict(each.report) for each in candidates if each.report}
    if reports:
        write(folder / CONFORMANCE, json.dumps(reports, indent=1) + "\n")
    else:
        with writing(folder):
            (folder / CONFORMANCE).unlink(missing_ok=True)
    if len(results.frame) or not (folder / DATA).exists():
        write(folder / DATA, results.frame.to_csv(index=False, lineterminator="\n"))
    return write(folder / PAGE, text)


def page(results: Results, candidates: Sequence[Candidate], notes: Sequence[str] = ()) -> str:
    """HTML text of the scorecard; see :func:`build`."""
    frame = results.frame
    timed = cost_tables(frame, results.traits)
    judged = [judge(results, each, timed) for each in candidates]
    ours = {each.name for each in candidates}
    return (
        environment(results.traits)
        .get_template(str(_TEMPLATE))
        .render(
            ratios=RATIOS,
            condition_label=condition_label,
            ordinal=ordinal,
            meta={"command": "", "finished": "", "seconds": 0} | dict(results.meta),
            title=", ".join(each.label for each in judged) or "Which rule for this net",
            judged=judged,
            notes=notes,
            measured=_measured(frame),
            few=_few(frame),
            answers=answers(frame, results.traits) if not candidates else [],
            costs=timed,
            figures=drawings(results.tables, frame, results.traits),
            styles=results.styles,
            tables=results.tables,
            left_out=results.meta.get("left_out", ()),
            ours=ours,
            failures=results.failed,
            settings=recorded(results.meta),
            nets=results.meta.get("nets", ()),
            data=DATA,
            conformance=CONFORMANCE,
        )
    )


def judge(results: Results, candidate: Candidate, timed: Sequence[CostTable]) -> Judged:
    """Everything that was found of one rule."""
    measured = candidate.name in set(results.frame["rule"])
    blocks = tuple(comparisons(results.frame, candidate.name, results.traits)) if measured else ()
    broken = tuple(failure for failure in results.failed if failure["rule"] in (candidate.name, ""))
    label = results.traits.label(candidate.name)
    said = [*_on_conformance(candidate, label, measured=bool(blocks))]
    if candidate.unmeasured:
        said.append(f"Nothing was measured: {label} has no result on any net.")
    if broken:
        said.append(f"It failed in {labels.plural(len(broken), 'place')}, listed below.")
    first = _first(blocks)
    if first and first.measured:
        said += _on_accuracy(first, results.traits)
    if cost := _on_cost(candidate.name, timed):
        said.append(cost)
    return Judged(candidate, label, blocks, tuple(said), broken)


def _on_conformance(candidate: Candidate, label: str, *, measured: bool) -> Iterator[str]:
    """What the conformance kit says of a rule, which has measurements or has none."""
    if candidate.trouble:
        rest = "; what is below was measured before." if measured else "."
        yield (
            f"The conformance kit did not finish: {candidate.trouble}. So the rule was not measured now{rest}"
        )
    elif not candidate.report:
        yield f"The conformance kit was not run on {label}."
    elif bad := candidate.unexpected:
        yield f"{label} fails {labels.plural(len(bad), 'check')} ({', '.join(bad)})."
    elif candidate.unchecked:
        yield f"No conformance check could run on {label}, so nothing is shown."
    else:
        rest = "." if candidate.report["passed"] else "; the others are faults that it declares."
        yield (
            f"{label} passes {candidate.report['counts']['passed']} of the {candidate.report['ran']} "
            f"conformance checks that could run{rest}"
        )


def _on_accuracy(block: Comparisons, traits: RuleTraits) -> list[str]:
    conditions = block.measured
    rivals = [other for other in block.others if not traits.is_reference(other)]
    plain = [other for other in rivals if not traits.is_sampling(other)]
    tallies = []
    for other in plain:
        tally = block.tally(other)
        tallies.append((other, tally["better"], tally["worse"]))
    said = []
    title = block.metric.title
    if tallies:
        parts = [f"{traits.label(other)} {better} better, {worse} worse" for other, better, worse in tallies]
        said.append(
            f"By {title}, at {labels.plural(len(conditions), 'place')} (kind of net and σ), against "
            f"{'; '.join(parts)}; level at the rest."
        )
    ranked = max(condition.ranked for condition in conditions)
    best = sum(condition.rank == 1 for condition in conditions)
    said.append(
        f"Its rank by that among {ranked} rules, sampling included, is {block.mean_rank:.1f} in the mean; it "
        f"is first at {best} of {labels.plural(len(conditions), 'place')}."
    )
    exact = [condition for condition in conditions if condition.indistinguishable]
    text = f"It cannot be told from the exact law at {len(exact)} of them"
    worst = max(
        conditions, key=lambda condition: condition.shortfall if math.isfinite(condition.shortfall) else -1.0
    )
    if math.isfinite(worst.shortfall):
        text += f"; it is furthest from it at {condition_label(worst)} ({labels.number(worst.value, 3)} for "
        text += f"{labels.number(worst.floor, 3)})"
    said.append(text + ".")
    return said


def _on_cost(rule: str, timed: Sequence[CostTable]) -> str:
    rows = [row for table in timed for row in table.rows if row.rule == rule]
    if not rows:
        return ""
    last = rows[-1]
    text = f"One input takes {labels.duration(last.seconds)} on {timed[-1].title}"
    times = [row.times_sdp for row in rows if math.isfinite(row.times_sdp)]
    if times and rule != "sdp":
        span = labels.number(min(times))
        if len(times) > 1 and labels.number(max(times)) != span:
            span += f" to {labels.number(max(times))}"
        text += f", {span} times what SDP takes"
    if math.isfinite(last.samples):
        text += f", as long as {_samples(last.samples)} Monte Carlo samples"
    return text + "."


def _samples(samples: float) -> str:
    return f"about {float(f'{samples:.2g}'):,.0f}" if samples >= 1 else "fewer than one"


def _first(blocks: Sequence[Comparisons]) -> Comparisons | None:
    known = {block.metric.name: block for block in blocks}
    return next((known[name] for name in primary() if name in known), None)


def condition_label(condition: Condition) -> str:
    """Kind of net and sigma, for people."""
    return f"{condition.kind.label}, {condition.scale}\u00a0=\u00a0{condition.sigma:g}"


def ordinal(number: int) -> str:
    """``1st``, ``2nd``, ``11th``."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def cost_tables(frame: pd.DataFrame, traits: RuleTraits) -> list[CostTable]:
    """Times of all rules on each kind of net, with SDP's and plain sampling's as yardsticks."""
    by_kind = []
    for _, kind in frame.groupby(ARCHITECTURE, sort=True):
        costs = Costs.measured(kind, traits)
        sdp = costs.by_rule.get("sdp")
        rows = tuple(
            CostRow(rule, cost.seconds, cost.seconds / sdp.seconds if sdp else math.nan, cost.samples)
            for rule, cost in costs.by_rule.items()
        )
        first = kind.iloc[0]
        if rows:
            by_kind.append(CostTable(NetKind(str(first["activation"]), int(first["depth"])).label, rows))
    return by_kind


def answers(frame: pd.DataFrame, traits: RuleTraits) -> list[Answer]:
    """Which rules may be best at each place, by what comes first."""
    name = next((name for name in primary() if name in set(frame["metric"])), None)
    if name is None:
        return []
    metric = recorded_metric(name)
    by_noise = []
    chosen = frame[(frame["metric"] == name) & ~frame["rule"].map(traits.is_reference)]
    for _, part in chosen.groupby(["activation", "depth", "network", "sigma"], sort=True):
        first = part.iloc[0]
        replicates = Replicates.of(metric, part, traits)
        plain = [rule for rule in replicates.rules if rule not in replicates.sampling]
        both = [_best(replicates, metric, rules) for rules in (list(replicates.rules), plain)]
        if both[0]:
            by_noise.append(Answer(f"σ\u00a0=\u00a0{first['sigma']:g}", metric.title, both[0], both[1]))
    return by_noise


def _best(replicates: Replicates, metric: Metric, rules: list[str]) -> tuple[Contest, float] | None:
    contest = replicates.contest(rules)
    if contest is None:
        return None
    mean = replicates.mean(contest.leader)
    return contest, float(metric.shown(np.array(mean)))


def drawings(every: Sequence[Table], frame: pd.DataFrame, traits: RuleTraits) -> list[Figure]:
    """Accuracy over noise, and against cost, by the first 1 - TV that was measured."""
    chosen = headline(every)
    name = "headline"
    if not chosen:
        chosen, name = (
            [table for table in every if table.metric.name == ClassTotalVariation.name],
            "of the decision",
        )
    costs = frame.groupby(["activation", "depth", "rule"])["seconds"].median()
    drawn = [each for each in figures(chosen, traits, costs) if each.anchor != "figure-depth"]
    return [replace(each, caption=each.caption.replace("(headline)", f"({name})")) for each in drawn]


def _measured(frame: pd.DataFrame) -> str:
    """What was measured, in few words."""
    if frame.empty:
        return ""
    nets, kinds = frame["net"].nunique(), len(frame.drop_duplicates(["activation", "depth", "network"]))
    pairs = len(frame.drop_duplicates(["net", "input"]))
    sigmas = len(frame.drop_duplicates(["sigma"]))
    return (
        f"{labels.plural(nets, 'net')} of {labels.plural(kinds, 'kind')}, "
        f"{labels.plural(pairs, 'pair')} of net and input, {labels.plural(sigmas, 'noise level')}"
    )


def _few(frame: pd.DataFrame) -> bool:
    """Whether some kind of net has so few nets and inputs that no spread is known."""
    kinds = frame.groupby(["activation", "depth", "network", "metric"])
    return bool(len(frame)) and bool(((kinds["net"].nunique() < 3) & (kinds["input"].nunique() < 3)).any())
