"""The accuracy-cost front, and the recommended rules by budget, nets and sigma."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from sdp_bench.bench.metrics import Metric, primary
from sdp_bench.reports.statistics.costs import Costs, plain_samples
from sdp_bench.reports.statistics.overall import Overall
from sdp_bench.reports.statistics.ranking import UNIT, Ranking
from sdp_bench.reports.statistics.replicates import MIN_LEVELS, Replicates
from sdp_bench.reports.statistics.rows import Labels
from sdp_bench.reports.style import noise
from sdp_bench.reports.style.nets import NetKind, activation_label, activation_rank
from sdp_bench.reports.style.rules import RuleTraits
from sdp_bench.reports.tables.display import displayed
from sdp_bench.reports.tables.frame import by_kind, places

BUDGETS = (10.0, 100.0, 1000.0, math.inf)
"""Time budgets, as the number of Monte Carlo samples that take equally long."""

ON, OFF, UNDECIDED = "on", "off", "undecided"


@dataclass(frozen=True)
class Standing:
    """One rule in one condition.

    `value` is the mean on the metric's scale, and `half_width` half of its 95 % interval (NaN if unknown).
    `worth` is the number of Monte Carlo samples with the same accuracy: ``("", 40)``, ``("<", 5)`` or ``(">",
    1000)``. `front` is ``"on"``, ``"off"`` or ``"undecided"``. If it is off, `beaten_by` is the most accurate
    of the rules that beat it and take no longer. `rows` are the labels of the measurements.
    """

    rule: str
    value: float
    half_width: float
    worth: tuple[str, float] | None
    front: str
    beaten_by: str = ""
    rows: Labels = field(default_factory=Labels)


@dataclass(frozen=True)
class Answer:
    """Recommended rules at one budget, among all rules and among deterministic ones.

    `sampling` says whether the rule with the best mean samples. `single_draw` is a sampling rule with a
    better mean than `best` if nets and inputs are fixed: it was drawn only once, and is named but not ranked.
    """

    budget: float
    best: Ranking | None
    deterministic: Ranking | None
    sampling: bool
    single_draw: str = ""


@dataclass(frozen=True, eq=False)
class Condition:
    """Nets judged together at one sigma; `floor` is the value of an exact rule, NaN if unknown."""

    sigma: float
    standings: tuple[Standing, ...]
    answers: tuple[Answer, ...]
    floor: float
    design: str
    fixed: bool

    def standing(self, rule: str) -> Standing | None:
        return next((each for each in self.standings if each.rule == rule), None)


@dataclass(frozen=True, eq=False)
class Band:
    """Nets that are judged together: of one depth, or of adjacent depths with few nets each."""

    activation: str
    depths: tuple[int, ...]
    variant: str
    metric: Metric
    scale: str
    conditions: tuple[Condition, ...]
    costs: Costs
    traits: RuleTraits

    @property
    def title(self) -> str:
        text = NetKind(self.activation, self.depths[-1]).label
        if len(self.depths) > 1:
            link = "and" if len(self.depths) == 2 else "to"
            text = f"{self.depths[0]} {link} {text}"
        return f"{text} ({self.variant})" if self.variant else text

    def at(self, sigma: float) -> Condition | None:
        return next((condition for condition in self.conditions if condition.sigma == sigma), None)

    @property
    def rules(self) -> list[str]:
        return self.traits.in_order(
            each.rule for condition in self.conditions for each in condition.standings
        )

    @property
    def budgets(self) -> list[float]:
        """Budgets; without times of sampling only "any"."""
        return [answer.budget for answer in self.conditions[0].answers]


@dataclass(frozen=True)
class Block:
    """Bands with the same metric of accuracy and kind of noise, which share a table."""

    metric: Metric
    scale: str
    budgets: tuple[float, ...]
    bands: tuple[Band, ...]

    @property
    def parts(self) -> list[tuple[str, list[Band]]]:
        names = dict.fromkeys(band.activation for band in self.bands)
        return [(activation_label(n), [b for b in self.bands if b.activation == n]) for n in names]

    @property
    def sigmas(self) -> list[float]:
        return sorted({condition.sigma for band in self.bands for condition in band.conditions})


@dataclass(frozen=True)
class Choice:
    blocks: tuple[Block, ...]

    @property
    def bands(self) -> list[Band]:
        return [band for block in self.blocks for band in block.bands]


def choice(frame: pd.DataFrame, traits: RuleTraits) -> Choice | None:
    """Judge rules by accuracy and time; None if no kind of net has two rules to choose from.

    `frame` is the result of `checked` for the experiments shown in tables.
    """
    bands = [band for nets in _bands(_by_one_metric(frame, traits)) if (band := _judged(nets, traits))]
    bands = [band for band in bands if len([r for r in band.rules if not traits.is_reference(r)]) > 1]
    if not bands:
        return None
    blocks: dict[tuple[str, str, bool], list[Band]] = {}
    for band in bands:
        blocks.setdefault((band.metric.name, band.scale, len(band.budgets) > 1), []).append(band)
    tables = tuple(
        Block(own[0].metric, own[0].scale, tuple(own[0].budgets), tuple(own)) for own in blocks.values()
    )
    return Choice(tables)


def _by_one_metric(frame: pd.DataFrame, traits: RuleTraits) -> pd.DataFrame:
    """Distinct measurements of the first primary metric of each kind of net and noise; no references."""
    order = {name: index for index, name in enumerate(primary())}
    ranked = ~by_kind(frame["rule"], traits.is_reference).astype(bool)
    chosen = frame[frame["metric"].isin(order) & (frame["component"] == "") & ranked]
    if chosen.empty:
        return chosen
    chosen = chosen.assign(rank=by_kind(chosen["metric"], order.__getitem__))
    first = chosen.groupby(["network", "noise"])["rank"].transform("min")
    chosen = chosen[chosen["rank"] == first]
    return chosen.drop_duplicates([*UNIT, "noise", "sigma", "rule"])


def _bands(chosen: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield measurements of nets that are judged together, with a column `variant`.

    A depth with at least `MIN_LEVELS` nets is a band. Other depths between two such depths are pooled, so
    that their nets are replicates of each other. The variant distinguishes nets of the same depth.
    """
    if chosen.empty:
        return
    kind = ["activation", "depth", "noise"]
    variants = by_kind(chosen["noise"], noise.words).astype(str)
    for name in ("recipe", "network"):
        if name in chosen:
            text = _told_apart(chosen, name)
            several = text.groupby([chosen[key] for key in kind]).transform("nunique") > 1
            variants = variants.where(~several, (variants + ", " + text).str.removeprefix(", "))
    chosen = chosen.assign(variant=variants, activation_rank=by_kind(chosen["activation"], activation_rank))
    # Image classifiers come last; their "depths" are not an ordered series.
    for _, series in chosen.groupby(["rank", "noise", "activation_rank", "activation", "variant"], sort=True):
        waiting: list[pd.DataFrame] = []
        for _, nets in series.groupby("depth", sort=True):
            if nets["net"].nunique() < MIN_LEVELS:
                waiting.append(nets)
                continue
            if waiting:
                yield pd.concat(waiting)
            waiting = []
            yield nets
        if waiting:
            yield pd.concat(waiting)


def _told_apart(chosen: pd.DataFrame, column: str) -> pd.Series:
    """Text of a column without the name of the network, which is part of the band's title."""
    text = chosen[column].astype(str)
    known = chosen[[column, "activation"]].astype(str).drop_duplicates().itertuples(index=False)
    return text.replace({name: name.removeprefix(f"{activation} ") for name, activation in known})


def _judged(nets: pd.DataFrame, traits: RuleTraits) -> Band | None:
    first = nets.iloc[0]
    metric = displayed(str(first["metric"]), NetKind(str(first["activation"]), int(first["depth"])))
    costs = Costs.measured(nets, traits)
    budgets = [budget for budget in BUDGETS if math.isinf(budget) or costs.sampling]
    conditions = []
    for sigma in sorted(nets["sigma"].unique()):
        part = nets[nets["sigma"] == sigma]
        replicates = Replicates.of(metric, part, traits)
        if replicates.rules:
            conditions.append(_condition(float(sigma), part, metric, replicates, costs, budgets))
    if not conditions:
        return None
    return Band(
        activation=str(first["activation"]),
        depths=tuple(sorted({int(depth) for depth in nets["depth"]})),
        variant=str(first["variant"]),
        metric=metric,
        scale=noise.symbol(str(first["noise"])),
        conditions=tuple(conditions),
        costs=costs,
        traits=traits,
    )


def _condition(
    sigma: float,
    part: pd.DataFrame,
    metric: Metric,
    replicates: Replicates,
    costs: Costs,
    budgets: Sequence[float],
) -> Condition:
    means = {rule: replicates.mean(rule) for rule in replicates.rules}
    curve = {k: means[rule] for rule in means if (k := plain_samples(rule)) is not None}
    rows = {rule: own for (rule,), own in places(part, ("rule",))}
    standings = tuple(
        Standing(
            rule,
            float(metric.shown(np.array(means[rule]))),
            replicates.half_width(rule),
            None if plain_samples(rule) else as_accurate(means[rule], curve),
            *front(rule, replicates, costs),
            Labels(part.index[rows[rule]]),
        )
        for rule in replicates.rules
    )
    answers = []
    for budget in budgets:
        affordable = [rule for rule in replicates.rules if costs.within(rule, budget)]
        deterministic = [rule for rule in affordable if rule not in replicates.sampling]
        best = replicates.contest(affordable)
        single_draw = ""
        if replicates.fixed and affordable:
            first = min(affordable, key=replicates.mean)
            single_draw = first if first in replicates.sampling else ""
        sampling = best is not None and best.leader in replicates.sampling
        answers.append(Answer(budget, best, replicates.contest(deterministic), sampling, single_draw))
    floors = part["floor"].dropna().to_numpy()
    floor = float(metric.shown(floors).mean()) if len(floors) else math.nan
    return Condition(sigma, standings, tuple(answers), floor, replicates.design, replicates.fixed)


def as_accurate(score: float, curve: dict[int, float]) -> tuple[str, float] | None:
    """Number of Monte Carlo samples that are as accurate as a score; None with fewer than two sample counts.

    The smallest number that reaches the score, interpolated linearly in log k between the measured counts.
    The text before it is ``"<"`` or ``">"`` if the score is outside the measured range, and otherwise empty.
    `curve` holds mean scores by number of samples; lower is better.
    """
    counts = sorted(curve)
    if len(counts) < 2:
        return None
    if score > curve[counts[0]]:
        return "<", float(counts[0])
    if score == curve[counts[0]]:
        return "", float(counts[0])
    for low, high in itertools.pairwise(counts):
        if curve[high] <= score:
            share = (curve[low] - score) / (curve[low] - curve[high])
            return "", float(low * (high / low) ** share)
    return ">", float(counts[-1])


def front(rule: str, replicates: Replicates | Overall, costs: Costs) -> tuple[str, str]:
    """Return whether a rule is on the front (`ON`, `OFF` or `UNDECIDED`), and the best rule beating it.

    Its rivals are the rules that take no longer. The rule is off the front if a rival is significantly more
    accurate (at 5 % over their number), on it if the rule is significantly more accurate than each of them,
    and otherwise undecided, as are rules without a time.
    """
    if rule not in costs.by_rule:
        return UNDECIDED, ""
    rivals = [each for each in replicates.rules if each != rule and costs.no_dearer(each, rule)]
    better = [each for each in rivals if replicates.beats(each, rule, len(rivals))]
    if better:
        return OFF, min(better, key=replicates.mean)
    return (ON if all(replicates.beats(rule, each) for each in rivals) else UNDECIDED), ""
