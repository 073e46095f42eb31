"""The verdict on a rule under test: conformance, accuracy compared with other rules, and cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

import sdp_ref

from ...bench.metrics import primary
from ...bench.validation.result import Candidate
from ..results import Results
from ..statistics.costs import ARCHITECTURE, Cost, Costs
from ..style import labels
from ..style.names import NetKind, RuleTraits
from .comparisons import ComparedSetting, Comparisons, RuleComparison, comparisons

_PLAIN = str.maketrans({"\u00a0": " ", "\u2212": "-", "\u2019": "'"})


@dataclass(frozen=True)
class Verdict:
    """All findings on a rule or net, as lines "topic: text"; `conclusion` is a sentence that names it."""

    subject: str
    lines: tuple[str, ...]
    conclusion: str

    @property
    def details(self) -> str:
        return "\n".join([self.subject, *(f"  {line}" for line in self.lines)]).translate(_PLAIN)

    @property
    def last(self) -> str:
        return f"verdict: {self.conclusion}".translate(_PLAIN)


@dataclass(frozen=True)
class CostTable:
    title: str
    by_rule: Mapping[str, Cost]

    def times_sdp(self, rule: str) -> tuple[float, float] | None:
        """Range of the ratio of a rule's time to SDP's, by fastest and median repeats.

        None for SDP, without a time of either, or if the range is wider than a factor of two.
        """
        cost, sdp = self.by_rule.get(rule), self.by_rule.get("sdp")
        if cost is None or sdp is None or rule == "sdp":
            return None
        low, high = cost.seconds / sdp.typical, cost.typical / sdp.seconds
        return (low, high) if high <= 2 * low else None


def cost_tables(frame: pd.DataFrame, traits: RuleTraits) -> list[CostTable]:
    tables = []
    for _, kind in frame.groupby(ARCHITECTURE, sort=True):
        first, costs = kind.iloc[0], Costs.from_measurements(kind, traits).by_rule
        if costs:
            tables.append(CostTable(NetKind(str(first["activation"]), int(first["depth"])).label, costs))
    return tables


def on_cost(rule: str, timed: Sequence[CostTable]) -> str:
    table = next((table for table in reversed(timed) if rule in table.by_rule), None)
    if table is None:
        return ""
    cost = table.by_rule[rule]
    text = f"{labels.duration(cost.typical)} for one input on {table.title}"
    if times := times_sdp(rule, timed):
        text += f"; {times} times the time of SDP"
    if math.isfinite(cost.samples):
        count = f"about {float(f'{cost.samples:.2g}'):,.0f}" if cost.samples >= 1 else "fewer than one"
        text += f"; the time of {count} Monte Carlo samples"
    return text


def times_sdp(rule: str, timed: Sequence[CostTable]) -> str:
    """Range over kinds of nets of a rule's time as a multiple of SDP's; empty for SDP or without it."""
    ratios = [ratio for table in timed for ratio in table.times_sdp(rule) or ()]
    return labels.span(float(f"{ratio:.2g}") for ratio in ratios) if ratios else ""


_NAMED = 3  # settings that are named; the page lists all


@dataclass(frozen=True)
class Judged:
    """A rule under test, its label, and all findings.

    `first` are those by the first primary metric. `unmeasured` is whether no measurement exists, though the
    kit has not excluded the rule from them.
    """

    candidate: Candidate
    label: str
    unmeasured: bool
    blocks: tuple[Comparisons, ...]
    first: Comparisons | None
    verdict: Verdict


def judge(results: Results, candidate: Candidate, timed: Sequence[CostTable]) -> Judged:
    traits = results.traits
    measured = candidate.name in set(results.frame["rule"])
    blocks = tuple(comparisons(results.frame, candidate.name, traits)) if measured else ()
    broken = [failure for failure in results.failed if failure["rule"] in (candidate.name, "")]
    lines = [*_on_checks(candidate, measured=bool(blocks))]
    unmeasured = not (measured or candidate.trouble)
    if unmeasured:
        lines.append("accuracy: nothing was measured")
    if broken:
        where = dict.fromkeys(f"{each['group']}: {each['error']}" for each in broken)
        more = f", and {len(where) - 1} more" if len(where) > 1 else ""
        count = labels.plural(len(broken), "setting")
        lines.append(f"failures: it failed in {count}; {next(iter(where))}{more}")
    lines += [f"not defined: {reason.line}" for reason in results.undefined if reason.rule == candidate.name]
    leading = [block for block in blocks if block.leads and block.measured]
    if leading:
        lines.append(f"accuracy: {_how(leading)}")
    for block in leading:
        lines += _on_accuracy(block, traits)
    if cost := on_cost(candidate.name, timed):
        lines.append(f"cost: {cost} (median of repeated calls, one thread)")
    known = {block.metric.name: block for block in blocks}
    first = next((known[name] for name in primary() if name in known), next(iter(blocks), None))
    label = traits.label(candidate.name)
    parts = [
        *_on_kit(candidate),
        *(["it was not measured"] if unmeasured else []),
        *_on_measurements(candidate.name, first, len(broken), timed, traits),
    ]
    verdict = Verdict(label, tuple(lines), f"{label} {'; '.join(parts)}")
    return Judged(candidate, label, unmeasured, blocks, first, verdict)


def _on_checks(candidate: Candidate, *, measured: bool) -> Iterator[str]:
    """Verdict of the conformance kit on a rule with or without measurements."""
    if candidate.trouble:
        rest = "; the results below are from earlier measurements" if measured else ""
        yield (
            f"checks: the conformance kit did not finish: {candidate.trouble}; it was not measured in this "
            f"run{rest}"
        )
    elif candidate.report is None:
        yield "checks: the conformance kit was not run"
    else:
        yield from (f"checks: {line}" for line in (candidate.report.summary, *candidate.report.causes))


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


def _on_accuracy(block: Comparisons, traits: RuleTraits) -> Iterator[str]:
    topic = ", ".join(block.leads)
    settings = labels.plural(len(block.measured), "setting")
    level = sum(condition.indistinguishable for condition in block.measured)
    rank = (
        f"rank {block.rank} of {len(block.ranking)} rules" if block.rank else "not ranked (too few settings)"
    )
    yield (
        f"{topic}: {block.metric.title}, in {settings}: {rank}, sampling included, by the mean score; first "
        f"in {sum(condition.rank == 1 for condition in block.measured)}; indistinguishable from the exact "
        f"distribution in {level}"
    )
    for other, role in _rivals(block, traits).items():
        yield f"{topic}: compared with {traits.label(other)}, {role}: {_against(block, other)}"
    if kind := _of_kind(block, traits):
        tallies = [f"{traits.label(other)} {_tally(block, other)}" for other in kind]
        yield f"{topic}: compared with rules of its kind: {'; '.join(tallies)}"
    if any(found.outcome != "unjudged" for _, found in block.against("sdp")):
        yield f"{topic}: worse than {traits.label('sdp')} {_where_worse(block, 'sdp')}"
    finite = [each for each in block.measured if math.isfinite(each.shortfall)]
    if finite:
        worst = max(finite, key=lambda each: each.shortfall)
        yield (
            f"{topic}: largest error at {worst.label}: {_number(block, worst.value)} (exact distribution "
            f"{_number(block, worst.floor)}, detection limit {_number(block, worst.floor95)})"
        )


def _rivals(block: Comparisons, traits: RuleTraits) -> dict[str, str]:
    """The best built-in rule, and if that one samples, also the best deterministic one; with descriptions."""
    own = sdp_ref.rules()
    built_in = [rule for rule in block.ranking if rule in block.others and rule.partition(":")[0] in own]
    plain = [rule for rule in built_in if not traits.is_sampling(rule)]
    roles = dict.fromkeys(plain[:1], "the best deterministic rule")
    return dict.fromkeys(built_in[:1], "the best built-in rule") | {
        rule: role for rule, role in roles.items() if rule != built_in[0]
    }


def _of_kind(block: Comparisons, traits: RuleTraits) -> list[str]:
    """Other rules of the same kind: that sample, or that drop correlations."""

    def kind(rule: str) -> tuple[bool, bool]:
        return traits.is_sampling(rule), traits[rule].marginal

    own = kind(block.rule)
    return [each for each in block.others if kind(each) == own and not traits.is_reference(each)]


def _tally(block: Comparisons, other: str, *, sized: bool = False) -> str:
    """Frequency of each outcome, and with `sized` the size of the differences."""
    parts = []
    for outcome, sign in (("better", 1), ("worse", -1)):
        gains = [sign * found.gain for _, found in block.against(other) if found.outcome == outcome]
        known = [gain for gain in gains if sized and math.isfinite(gain)]
        by = f" (by {labels.span(known, block.metric.decimals)}{_unit(block)})" if known else ""
        parts.append(f"{outcome} in {len(gains)}{by}")
    tally = block.tally(other)
    rest = {"level": "tied", "unjudged": "not judged"}
    return ", ".join([*parts, *(f"{name} in {tally[key]}" for key, name in rest.items() if tally[key])])


def _against(block: Comparisons, other: str) -> str:
    """Frequency and size of differences to another rule, and where the rule is worst."""
    text = _tally(block, other, sized=True)
    behind = [pair for pair in block.against(other) if pair[1].gain < 0]
    if behind:
        text += f"; worst at {_place(block, *min(behind, key=lambda pair: pair[1].gain))}"
    return text


def _where_worse(block: Comparisons, other: str) -> str:
    worse = [pair for pair in block.against(other) if pair[1].outcome == "worse"]
    if not worse:
        return "in no setting"
    worse.sort(key=lambda pair: pair[1].gain if math.isfinite(pair[1].gain) else -math.inf)
    named = "; ".join(_place(block, *pair) for pair in worse[:_NAMED])
    more = f"; and {len(worse) - _NAMED} more" if len(worse) > _NAMED else ""
    return f"in {len(worse)} of {labels.plural(len(block.measured), 'setting')}: {named}{more}"


def _place(block: Comparisons, condition: ComparedSetting, found: RuleComparison) -> str:
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


def _on_kit(candidate: Candidate) -> Iterator[str]:
    """Whether the rule is correct."""
    if candidate.trouble:
        yield "is not verified: the conformance kit did not finish"
    elif candidate.report is None:
        yield "was not checked"
    else:
        yield candidate.report.verdict
        if candidate.report.unexpected:
            yield f"run sdp-bench check-rule {candidate.address or candidate.name} for the reason"


def _on_measurements(
    rule: str, first: Comparisons | None, broken: int, timed: Sequence[CostTable], traits: RuleTraits
) -> Iterator[str]:
    """Whether the rule is more accurate than existing ones, and at what cost."""
    if broken:
        yield f"it failed in {labels.plural(broken, 'setting')}"
    if first and first.measured:
        yield from _beside_the_best(first, traits)
    if times := times_sdp(rule, timed):
        yield f"it takes {times} times as long as SDP"


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
