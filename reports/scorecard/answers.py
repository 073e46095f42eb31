"""Rules for a user's net: the best at each noise level, their costs, and their distance from exact."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sdp_bench.bench.metrics import Metric, primary, recorded_metric
from sdp_bench.bench.metrics.references import ORACLE_MOMENTS
from sdp_bench.reports.scorecard.judging import CostTable, Line, Verdict, times_sdp
from sdp_bench.reports.sections.choice import names
from sdp_bench.reports.statistics.costs import SAME
from sdp_bench.reports.statistics.ranking import Ranking
from sdp_bench.reports.statistics.replicates import Replicates
from sdp_bench.reports.style import labels
from sdp_bench.reports.style.names import RuleTraits, noise_symbol, noise_words
from sdp_bench.reports.tables.frame import by_kind

_NAMED = 3  # rules; the page lists all


@dataclass(frozen=True)
class Best:
    """The rule with the best mean at one noise level, and the rules tied with it.

    `value` is its mean and `half_width` half of its 95 % interval; `exact` of its `count` measurements are
    statistically indistinguishable from the exact distribution.
    """

    contest: Ranking
    value: float
    half_width: float
    exact: int
    count: int


@dataclass(frozen=True)
class Answer:
    """The rules that may be best at one noise level, among all rules and among deterministic ones.

    `family` is the stored noise family. `floor` is the mean of an exact rule, and `gaussian` that of the
    Gaussian with the true moments, a bound for rules with Gaussian predictions (NaN if not measured). `means`
    are the mean scores of the judged rules, lower is better. `fixed` says that there are too few inputs to
    estimate a spread, so that sampling rules are not judged; `single_draw` is then the sampling rule with the
    best mean of all, if there is one. `near` are the rules with a measurement that is indistinguishable from
    the exact distribution.
    """

    family: str
    sigma: float
    metric: Metric
    best: Best
    deterministic: Best | None
    floor: float
    gaussian: float
    means: Mapping[str, float]
    fixed: bool
    near: tuple[str, ...]
    single_draw: str = ""

    @property
    def noise(self) -> str:
        return ", ".join(filter(None, (noise_words(self.family), self.level)))

    @property
    def level(self) -> str:
        return f"{noise_symbol(self.family)}\u00a0=\u00a0{self.sigma:g}"


def answers(frame: pd.DataFrame, traits: RuleTraits) -> list[Answer]:
    """The rules that may be best at each noise level of each net, by the primary metric."""
    name = next((name for name in primary() if name in set(frame["metric"])), None)
    if name is None:
        return []
    metric = recorded_metric(name)
    chosen = frame[(frame["metric"] == name) & (frame["component"] == "")]
    parts = chosen.groupby(["activation", "depth", "network", "noise", "sigma"], sort=True)
    return [found for _, part in parts if (found := _answer(metric, part, traits))]


def _answer(metric: Metric, part: pd.DataFrame, traits: RuleTraits) -> Answer | None:
    ranked = part[~by_kind(part["rule"], traits.is_reference)]
    if ranked.empty:
        return None
    replicates = Replicates.of(metric, ranked, traits)
    columns = (ranked[name].to_numpy() for name in ("value", "floor", "floor95"))
    within = pd.Series(metric.indistinguishable(*columns), index=ranked.index)
    exact = {str(rule): (int(own.sum()), len(own)) for rule, own in within.groupby(ranked["rule"])}
    plain = [rule for rule in replicates.rules if rule not in replicates.sampling]
    best = _best(replicates, metric, replicates.rules, exact)
    if best is None:
        return None
    first = min(replicates.rules, key=replicates.mean)
    return Answer(
        family=str(part["noise"].iloc[0]),
        sigma=float(part["sigma"].iloc[0]),
        metric=metric,
        best=best,
        deterministic=_best(replicates, metric, plain, exact),
        floor=_shown(metric, part["floor"]),
        gaussian=_shown(metric, part.loc[part["rule"] == ORACLE_MOMENTS.name, "value"]),
        means={rule: replicates.mean(rule) for rule in (plain if replicates.fixed else replicates.rules)},
        fixed=replicates.fixed,
        near=tuple(rule for rule in replicates.rules if exact[rule][0]),
        single_draw=first if replicates.fixed and first in replicates.sampling else "",
    )


def _best(
    replicates: Replicates, metric: Metric, rules: Sequence[str], exact: Mapping[str, tuple[int, int]]
) -> Best | None:
    contest = replicates.contest(rules)
    if contest is None:
        return None
    value = float(metric.shown(np.array(replicates.mean(contest.leader))))
    return Best(contest, value, replicates.half_width(contest.leader), *exact[contest.leader])


def _shown(metric: Metric, values: pd.Series) -> float:
    known = values.dropna().to_numpy()
    return float(metric.shown(known).mean()) if len(known) else math.nan


def verdict(found: Sequence[Answer], timed: Sequence[CostTable], net: str, traits: RuleTraits) -> Verdict:
    """Recommend a rule for a net, in words, from at least one answer."""
    inputs = labels.plural(found[0].best.count, "input")
    how = f"mean ± half of its 95 % interval over {inputs}"
    if found[0].fixed:
        how = (
            f"mean over {inputs} ± half of the 95 % interval by the measurements' own errors, for these very "
            "inputs; sampling rules, drawn once for each, are not judged"
        )
    lines = [Line("judged by", f"{found[0].metric.title}, {how}")]
    for _, group in itertools.groupby(found, key=_alike):
        run = list(group)
        lines.append(Line(_range(run), _on_best(run, timed, traits)))
    return Verdict(f"which rule for {net}", tuple(lines), f"for {net} {_recommended(found, timed, traits)}")


def _alike(answer: Answer) -> tuple[str, str, str, bool]:
    plain = answer.deterministic
    return answer.family, answer.best.contest.leader, plain.contest.leader if plain else "", bool(answer.near)


def _range(run: Sequence[Answer]) -> str:
    return run[0].noise + (f" to {run[-1].sigma:g}" if len(run) > 1 else "")


def _on_best(run: Sequence[Answer], timed: Sequence[CostTable], traits: RuleTraits) -> str:
    """The best rule at some noise levels, compared with the exact distribution and other rules."""
    leader = run[0].best.contest.leader
    said = [f"{traits.label(leader)} {_values(run, [each.best for each in run])}"]
    level = {rule for each in run for rule in each.best.contest.tied}
    if level:
        few = names(level, traits) if len(level) <= _NAMED else f"{len(level)} other rules"
        said.append(f"not told from {few}")
    elif any(each.single_draw for each in run):
        drawn = {each.single_draw for each in run if each.single_draw}
        said.append(f"not judged against {names(drawn, traits)}, drawn once and nearer")
    else:
        said.append("shown to be best")
    said.append(_nearness(run, traits))
    plain = run[0].deterministic
    if plain and plain.contest.leader != leader:
        others = [each.deterministic for each in run if each.deterministic]
        said.append(f"without sampling {traits.label(plain.contest.leader)} {_values(run, others)}")
    if cost := _cost(leader, timed):
        said.append(cost)
    return "; ".join(said)


def _values(run: Sequence[Answer], found: Sequence[Best]) -> str:
    """Values at the first and last level, with errors, and those of the exact distribution."""
    decimals = run[0].metric.decimals
    ends = [found[0], found[-1]] if len(found) > 1 else [found[0]]
    values = [
        labels.number(each.value, decimals)
        + (f" ± {labels.number(each.half_width, decimals)}" if math.isfinite(each.half_width) else "")
        for each in ends
    ]
    exact = labels.span([each.floor for each in run], decimals)
    return f"{' to '.join(values)} (exact law {exact})"


def _nearness(run: Sequence[Answer], traits: RuleTraits) -> str:
    """Whether the best rule, or any rule, reaches the exact distribution."""
    exact, count = (sum(getattr(each.best, name) for each in run) for name in ("exact", "count"))
    if exact:
        return f"not told from the exact law in {exact} of {labels.plural(count, 'measurement')}"
    if any(each.near for each in run):
        near = {rule for each in run for rule in each.near}
        return f"off the exact law, which {names(near, traits)} reaches in places"
    text = "no rule is near the exact law"
    gaussians = [each.gaussian for each in run if math.isfinite(each.gaussian)]
    if gaussians:
        decimals = run[0].metric.decimals
        text += f", and a Gaussian with the true moments shows {labels.span(gaussians, decimals)}"
    return text


def _cost(rule: str, timed: Sequence[CostTable]) -> str:
    rows = [row for table in timed if (row := table.of(rule))]
    if not rows:
        return ""
    text = f"{labels.duration(rows[-1].seconds)} an input"
    return text + (f", {times} times SDP" if (times := times_sdp(rule, timed)) else "")


def _recommended(found: Sequence[Answer], timed: Sequence[CostTable], traits: RuleTraits) -> str:
    """Recommended rules over all noise levels: the best, the best deterministic, and the best cheaper one."""
    over = traits.in_order(set.intersection(*(set(each.means) for each in found)))
    if not over:
        return "no rule can be named, since none was measured at every noise level"
    level = {rule: sum(each.means[rule] for each in found) / len(found) for rule in over}
    best = min(over, key=level.__getitem__)
    named = {best: "take"}
    if plain := [rule for rule in over if not traits.is_sampling(rule)]:
        named.setdefault(min(plain, key=level.__getitem__), "without sampling")
    contests = [each.best.contest for each in found]
    rivals = [rule for rule in over if all(rule in (each.leader, *each.tied) for each in contests)]
    seconds = {rule: row.seconds for rule in over for table in timed if (row := table.of(rule))}
    cheap = min(rivals, key=lambda rule: seconds.get(rule, math.inf), default=best)
    if SAME * seconds.get(cheap, math.inf) < seconds.get(best, math.inf):
        named.setdefault(cheap, "the cheapest that is nowhere told from the best is")
    said = []
    for rule, role in named.items():
        first = sum(each.leader == rule for each in contests)
        mean = found[0].metric.shown(np.array(level[rule]))
        shown = labels.number(float(mean), found[0].metric.decimals)
        text = f"{role} {traits.label(rule)}, {shown} in the mean, best at {first} of "
        text += labels.plural(len(found), "noise level")
        cost = _cost(rule, timed)
        said.append(f"{text}, {cost}" if cost else text)
    far = [each for each in found if not each.near]
    families = itertools.groupby(far, key=lambda each: each.family)
    where = "; ".join(
        f"{first.noise}{''.join(f', {each.sigma:g}' for each in rest)}" for _, (first, *rest) in families
    )
    said.append(
        f"no rule is near the exact law at {where}" if far else "some rule is near the exact law at each"
    )
    return "; ".join(said)
