"""The verdict on a rule under test: conformance, accuracy compared with other rules, and cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

import sdp_ref
from sdp_bench.bench.metrics import primary
from sdp_bench.bench.text import public
from sdp_bench.reports.results import Results
from sdp_bench.reports.scorecard.comparisons import Comparison, Comparisons, Condition, comparisons
from sdp_bench.reports.statistics.costs import ARCHITECTURE, Cost, Costs
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.names import NetKind, RuleTraits
from sdp_ref.conformance import ConformanceReport


@dataclass(frozen=True)
class Candidate:
    """A rule under test.

    `name` is that in records. `address` and `source` are the location and the code of a plug-in rule, and
    `mark` is a hash of its code and dependencies; all are empty for a built-in rule. `report` is that of the
    conformance kit, and `trouble` the reason if the kit was requested but gave none. `unmeasured` says that
    measurements were requested but none exists.
    """

    name: str
    address: str = ""
    source: str = ""
    mark: str = ""
    report: ConformanceReport | None = None
    trouble: str = ""
    unmeasured: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "trouble", public(self.trouble))

    @property
    def is_wrong(self) -> bool:
        """Whether the kit found an undeclared failure, or no check applied."""
        return self.report is not None and (bool(self.report.unexpected) or not self.report.ran)


_PLAIN = str.maketrans({"\u00a0": " ", "\u2212": "-", "\u2019": "'"})


@dataclass(frozen=True)
class Line:
    """One finding and its topic."""

    topic: str
    text: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.text}" if self.topic else self.text


@dataclass(frozen=True)
class Verdict:
    """All findings on a rule or net; `conclusion` is a sentence that names it."""

    subject: str
    lines: tuple[Line, ...]
    conclusion: str

    @property
    def details(self) -> str:
        """Subject and lines as plain text, not wrapped."""
        return "\n".join([self.subject, *(f"  {line}" for line in self.lines)]).translate(_PLAIN)

    @property
    def last(self) -> str:
        return f"verdict: {self.conclusion}".translate(_PLAIN)


@dataclass(frozen=True)
class CostRow:
    """A rule's time for one input on one kind of net: the median, the fastest repeat, and as samples.

    `times_sdp` is the range of its ratio to the time of SDP, by fastest and median repeats; None if the range
    is wider than a factor of two.
    """

    rule: str
    seconds: float
    fastest: float
    times_sdp: tuple[float, float] | None
    samples: float


@dataclass(frozen=True)
class CostTable:
    title: str
    rows: tuple[CostRow, ...]

    def of(self, rule: str) -> CostRow | None:
        return next((row for row in self.rows if row.rule == rule), None)


def is_built_in(rule: str) -> bool:
    return rule.partition(":")[0] in sdp_ref.rules()


def cost_tables(frame: pd.DataFrame, traits: RuleTraits) -> list[CostTable]:
    """Times of all rules on each kind of net, relative to SDP and to plain sampling."""
    by_kind = []
    for _, kind in frame.groupby(ARCHITECTURE, sort=True):
        costs = Costs.measured(kind, traits)
        sdp = costs.by_rule.get("sdp")
        rows = tuple(
            CostRow(rule, cost.typical, cost.seconds, _ratio(cost, sdp) if sdp else None, cost.samples)
            for rule, cost in costs.by_rule.items()
        )
        first = kind.iloc[0]
        if rows:
            by_kind.append(CostTable(NetKind(str(first["activation"]), int(first["depth"])).label, rows))
    return by_kind


def _ratio(cost: Cost, other: Cost) -> tuple[float, float] | None:
    low, high = cost.seconds / other.typical, cost.typical / other.seconds
    return (low, high) if high <= 2 * low else None


def on_cost(rule: str, timed: Sequence[CostTable]) -> str:
    rows = [(table, row) for table in timed if (row := table.of(rule))]
    if not rows:
        return ""
    table, last = rows[-1]
    text = f"{labels.duration(last.seconds)} for one input on {table.title}"
    if times := times_sdp(rule, timed):
        text += f"; {times} times the time of SDP"
    if math.isfinite(last.samples):
        text += f"; the time of {_samples(last.samples)} Monte Carlo samples"
    return text


def times_sdp(rule: str, timed: Sequence[CostTable]) -> str:
    """Range over kinds of nets of a rule's time as a multiple of SDP's; empty for SDP or without it."""
    rows = [row for table in timed if (row := table.of(rule)) and row.rule != "sdp"]
    ratios = [ratio for row in rows for ratio in row.times_sdp or ()]
    return labels.span(float(f"{ratio:.2g}") for ratio in ratios) if ratios else ""


def _samples(samples: float) -> str:
    return f"about {float(f'{samples:.2g}'):,.0f}" if samples >= 1 else "fewer than one"


_NAMED = 3  # settings that are named; the page lists all


@dataclass(frozen=True)
class Judged:
    """A rule under test, its label, and all findings."""

    candidate: Candidate
    label: str
    blocks: tuple[Comparisons, ...]
    verdict: Verdict
    failures: tuple[Mapping[str, Any], ...]

    @property
    def first(self) -> Comparisons | None:
        return _first(self.blocks)


def judge(results: Results, candidate: Candidate, timed: Sequence[CostTable]) -> Judged:
    measured = candidate.name in set(results.frame["rule"])
    blocks = tuple(comparisons(results.frame, candidate.name, results.traits)) if measured else ()
    broken = tuple(failure for failure in results.failed if failure["rule"] in (candidate.name, ""))
    label = results.traits.label(candidate.name)
    lines = [*_on_checks(candidate, measured=bool(blocks))]
    if candidate.unmeasured:
        lines.append(Line("accuracy", "nothing was measured"))
    if broken:
        where = dict.fromkeys(f"{each['group']}: {each['error']}" for each in broken)
        more = f", and {len(where) - 1} more" if len(where) > 1 else ""
        lines.append(
            Line(
                "failures", f"it failed in {labels.plural(len(broken), 'setting')}; {next(iter(where))}{more}"
            )
        )
    own = (reason for reason in results.undefined if reason.rule == candidate.name)
    lines += [Line("not defined", reason.line) for reason in own]
    leading = [block for block in blocks if block.leads and block.measured]
    if leading:
        lines.append(Line("accuracy", _how(leading)))
    for block in leading:
        lines += _on_accuracy(block, results.traits)
    if cost := on_cost(candidate.name, timed):
        lines.append(Line("cost", f"{cost} (median of repeated calls, one thread)"))
    conclusion = _conclusion(candidate, _first(blocks), broken, timed, results.traits)
    return Judged(candidate, label, blocks, Verdict(label, tuple(lines), f"{label} {conclusion}"), broken)


def _on_checks(candidate: Candidate, *, measured: bool) -> Iterator[Line]:
    """Verdict of the conformance kit on a rule with or without measurements."""
    if candidate.trouble:
        rest = "; the results below are from earlier measurements" if measured else ""
        yield Line(
            "checks",
            f"the conformance kit did not finish: {candidate.trouble}; it was not measured in this run{rest}",
        )
    elif candidate.report is None:
        yield Line("checks", "the conformance kit was not run")
    else:
        yield Line("checks", candidate.report.summary)
        for cause in candidate.report.causes:
            yield Line("checks", cause)


def _how(blocks: Sequence[Comparisons]) -> str:
    text = (
        "a setting is a kind of net at one noise level; ± is half of the 95 % interval of a paired difference"
    )
    if any(condition.fixed for block in blocks for condition in block.measured):
        text += (
            "; with fewer than three nets and inputs it uses the standard errors of the measurements alone "
            "and holds for these nets and inputs"
        )
    return text


def _on_accuracy(block: Comparisons, traits: RuleTraits) -> Iterator[Line]:
    topic = ", ".join(block.leads)
    settings = labels.plural(len(block.measured), "setting")
    level = sum(condition.indistinguishable for condition in block.measured)
    rank = (
        f"rank {block.rank} of {len(block.ranking)} rules" if block.rank else "not ranked (too few settings)"
    )
    yield Line(
        topic,
        f"{block.metric.title}, in {settings}: {rank}, sampling included, by the mean score; first in "
        f"{sum(condition.rank == 1 for condition in block.measured)}; indistinguishable from the exact "
        f"distribution in {level}",
    )
    rivals = _rivals(block, traits)
    for other, role in rivals.items():
        yield Line(topic, f"compared with {traits.label(other)}, {role}: {_against(block, other)}")
    if kind := _of_kind(block, traits):
        tallies = [f"{traits.label(other)} {_tally(block, other)}" for other in kind]
        yield Line(topic, f"compared with rules of its kind: {'; '.join(tallies)}")
    if any(found.outcome != "unjudged" for _, found in block.against("sdp")):
        yield Line(topic, f"worse than {traits.label('sdp')} {_where_worse(block, 'sdp')}")
    finite = [each for each in block.measured if math.isfinite(each.shortfall)]
    if finite:
        worst = max(finite, key=lambda each: each.shortfall)
        yield Line(
            topic,
            f"largest error at {worst.label}: {_number(block, worst.value)} (exact distribution "
            f"{_number(block, worst.floor)}, detection limit {_number(block, worst.floor95)})",
        )


def _rivals(block: Comparisons, traits: RuleTraits) -> dict[str, str]:
    """The best built-in rule, and if that one samples, also the best deterministic one; with descriptions."""
    built_in = [rule for rule in block.ranking if rule in block.others and is_built_in(rule)]
    best = next(iter(built_in), "")
    plain = next((rule for rule in built_in if not traits.is_sampling(rule)), "")
    if best == plain:
        return {best: "the best built-in rule"} if best else {}
    found = {best: "the best built-in rule", plain: "the best deterministic rule"}
    return {rule: role for rule, role in found.items() if rule}


def _of_kind(block: Comparisons, traits: RuleTraits) -> list[str]:
    """Other rules of the same kind: that sample, or that drop correlations."""
    own = block.conditions[0].rule

    def kind(rule: str) -> tuple[bool, bool]:
        return traits.is_sampling(rule), traits[rule].marginal

    return [each for each in block.others if kind(each) == kind(own) and not traits.is_reference(each)]


def _tally(block: Comparisons, other: str) -> str:
    tally = block.tally(other)
    parts = [f"better in {tally['better']}", f"worse in {tally['worse']}"]
    parts += [f"tied in {tally['level']}"] if tally["level"] else []
    parts += [f"not judged in {tally['unjudged']}"] if tally["unjudged"] else []
    return ", ".join(parts)


def _against(block: Comparisons, other: str) -> str:
    """Frequency and size of differences to another rule, and where the rule is worst."""
    pairs = block.against(other)
    parts = []
    for outcome, sign in (("better", 1), ("worse", -1)):
        gains = [sign * found.gain for _, found in pairs if found.outcome == outcome]
        known = [gain for gain in gains if math.isfinite(gain)]
        by = f" (by {labels.span(known, block.metric.decimals)}{_unit(block)})" if known else ""
        parts.append(f"{outcome} in {len(gains)}{by}")
    tally = block.tally(other)
    parts += [f"{name} in {tally[key]}" for key, name in _REST.items() if tally[key]]
    behind = [pair for pair in pairs if pair[1].gain < 0]
    text = ", ".join(parts)
    if behind:
        worst = min(behind, key=lambda pair: pair[1].gain)
        text += f"; worst at {_place(block, *worst)}"
    return text


_REST = {"level": "tied", "unjudged": "not judged"}


def _where_worse(block: Comparisons, other: str) -> str:
    worse = [pair for pair in block.against(other) if pair[1].outcome == "worse"]
    if not worse:
        return "in no setting"
    worse.sort(key=lambda pair: pair[1].gain if math.isfinite(pair[1].gain) else -math.inf)
    named = "; ".join(_place(block, *pair) for pair in worse[:_NAMED])
    more = f"; and {len(worse) - _NAMED} more" if len(worse) > _NAMED else ""
    return f"in {len(worse)} of {labels.plural(len(block.measured), 'setting')}: {named}{more}"


def _place(block: Comparisons, condition: Condition, found: Comparison) -> str:
    """A setting, both values there, and their difference with half of its 95 % interval."""
    text = f"{condition.label} ({_number(block, condition.value)} against {_number(block, found.value)}"
    if math.isfinite(found.gain):
        text += f", {_number(block, found.gain)}"
        if math.isfinite(found.half_width):
            text += f" ± {_number(block, found.half_width)}"
        text += _unit(block)
    return f"{text})"


def _unit(block: Comparisons) -> str:
    return " in |log|" if block.metric.better == "one" else ""


def _number(block: Comparisons, value: float) -> str:
    return labels.number(value, block.metric.decimals)


def _conclusion(
    candidate: Candidate,
    first: Comparisons | None,
    broken: Sequence[Mapping[str, Any]],
    timed: Sequence[CostTable],
    traits: RuleTraits,
) -> str:
    """Conclusion: whether the rule is correct and more accurate than existing ones, and at what cost."""
    said = []
    if candidate.trouble:
        said.append("is not verified: the conformance kit did not finish")
    elif candidate.report is None:
        said.append("was not checked")
    else:
        said.append(candidate.report.verdict)
    if candidate.is_wrong and candidate.report and candidate.report.unexpected:
        said.append(f"run sdp-bench check-rule {candidate.address or candidate.name} for the reason")
    if candidate.unmeasured:
        said.append("it was not measured")
    if broken:
        said.append(f"it failed in {labels.plural(len(broken), 'setting')}")
    if first and first.measured:
        said += _beside_the_best(first, traits)
    if times := times_sdp(candidate.name, timed):
        said.append(f"it takes {times} times as long as SDP")
    return "; ".join(said)


def _beside_the_best(block: Comparisons, traits: RuleTraits) -> Iterator[str]:
    for other, role in _rivals(block, traits).items():
        tally = block.tally(other)
        better, worse = tally["better"], tally["worse"]
        settings = labels.plural(sum(tally.values()), "setting")
        if better and worse:
            found = f"more accurate than {{}} in {better} of {settings} and less accurate in {worse}"
        elif better:
            found = f"more accurate than {{}} in {better} of {settings}, less accurate in none"
        elif worse:
            found = f"less accurate than {{}} in {worse} of {settings}, more accurate in none"
        elif tally["unjudged"]:
            continue
        else:
            found = f"statistically tied with {{}} in {settings}"
        yield found.format(f"{traits.label(other)} ({role})")


def _first(blocks: Sequence[Comparisons]) -> Comparisons | None:
    """Comparisons by the first primary metric, else by the first metric."""
    known = {block.metric.name: block for block in blocks}
    return next((known[name] for name in primary() if name in known), next(iter(blocks), None))
