"""The section "which rule when": the most accurate rule for a given time."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd

from ....bench.metrics import Metric, primary
from ...numbers import Number, NumberGroup, Page, slug
from ...results import Results
from ...section import Context, Section
from ...site import CHOICE
from ...statistics.costs import Cost, Costs, plain_samples
from ...statistics.ranking import MIN_LEVELS, UNIT, Overall, Ranking, Replicates, labels_of
from ...style import labels
from ...style.figure import SMALL, Figure, look, panels
from ...style.names import (
    NetKind,
    RuleTraits,
    activation_label,
    activation_rank,
    noise_symbol,
    noise_words,
)
from ...style.theme import GREY, INK, LIGHT, Style, is_plain, marked, styles
from ...tables.frame import by_kind
from ...tables.tables import displayed

if TYPE_CHECKING:
    from matplotlib.axes import Axes


BUDGETS = (10.0, 100.0, 1000.0, math.inf)
"""Time budgets, as the number of Monte Carlo samples that take equally long."""

ON, OFF, UNDECIDED = "on", "off", "undecided"

T = TypeVar("T")


@dataclass(frozen=True)
class Standing:
    """One rule in one condition.

    `value` is the mean on the metric's scale, and `half_width` half of its 95 % interval (NaN if unknown).
    `worth` is the number of Monte Carlo samples with the same accuracy (:func:`as_accurate`). If it is off
    the `front`, `beaten_by` is the most accurate of the rules that beat it and take no longer. `rows` are the
    labels of the measurements.
    """

    rule: str
    value: float
    half_width: float
    worth: tuple[str, float] | None
    front: str
    beaten_by: str = ""
    rows: bytes = b""

    def interval(self, decimals: int | None = None) -> str:
        """Ends of the 95 % interval of the value; empty if unknown."""
        if math.isnan(self.half_width):
            return ""
        ends = (self.value - self.half_width, self.value + self.half_width)
        return " to ".join(labels.number(end, decimals) for end in ends)


@dataclass(frozen=True)
class BudgetRanking:
    """Rankings of all rules and of deterministic ones within a budget; `sampling`: the best rule samples."""

    budget: float
    best: Ranking | None
    deterministic: Ranking | None
    sampling: bool


@dataclass(frozen=True, eq=False)
class Condition:
    """Nets judged together at one sigma; `floor` is the value of an exact rule, NaN if unknown."""

    sigma: float
    standings: tuple[Standing, ...]
    rankings: tuple[BudgetRanking, ...]
    floor: float
    design: str
    fixed: bool

    def standing(self, rule: str) -> Standing | None:
        return next((standing for standing in self.standings if standing.rule == rule), None)


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
            standing.rule for condition in self.conditions for standing in condition.standings
        )

    @property
    def budgets(self) -> tuple[float, ...]:
        """Budgets; without times of sampling only "any"."""
        return tuple(ranking.budget for ranking in self.conditions[0].rankings)


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
        return [
            (activation_label(name), [band for band in self.bands if band.activation == name])
            for name in names
        ]

    @property
    def sigmas(self) -> list[float]:
        return sorted({condition.sigma for band in self.bands for condition in band.conditions})


def choice(frame: pd.DataFrame, traits: RuleTraits) -> list[Block]:
    """Judge rules by the measurements in tables; empty if no kind of net has two rules to choose from."""
    bands = (_judged(nets, traits) for nets in _bands(_by_one_metric(frame, traits)))
    blocks: dict[tuple[str, str, tuple[float, ...]], list[Band]] = {}
    for band in bands:
        if band and len(band.rules) > 1:
            blocks.setdefault((band.metric.name, band.scale, band.budgets), []).append(band)
    return [
        Block(bands_of_block[0].metric, scale, budgets, tuple(bands_of_block))
        for (_, scale, budgets), bands_of_block in blocks.items()
    ]


def bands_of(blocks: Iterable[Block]) -> list[Band]:
    return [band for block in blocks for band in block.bands]


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
    variants = by_kind(chosen["noise"], noise_words).astype(str)
    for name in ("recipe", "network"):
        # The name of the network is part of the band's title.
        known = chosen[[name, "activation"]].astype(str).drop_duplicates().itertuples(index=False)
        text = chosen[name].astype(str).replace({own: own.removeprefix(f"{net} ") for own, net in known})
        several = text.groupby([chosen[key] for key in kind]).transform("nunique") > 1
        variants = variants.where(~several, (variants + ", " + text).str.removeprefix(", "))
    chosen = chosen.assign(variant=variants, activation_rank=by_kind(chosen["activation"], activation_rank))
    # Image classifiers come last; their "depths" are not an ordered series.
    for _, series in chosen.groupby(["rank", "noise", "activation_rank", "activation", "variant"], sort=True):
        nets = series.groupby("depth")["net"].nunique()
        # Depths with many nets have a number of their own, and those between them share one.
        many = nets >= MIN_LEVELS
        numbers = (many | many.shift(fill_value=False)).cumsum()
        for _, band in series.groupby(series["depth"].map(numbers), sort=True):
            yield band.sort_values("depth", kind="stable")


def _judged(nets: pd.DataFrame, traits: RuleTraits) -> Band | None:
    first = nets.iloc[0]
    metric = displayed(str(first["metric"]), NetKind(str(first["activation"]), int(first["depth"])))
    costs = Costs.from_measurements(nets, traits)
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
        scale=noise_symbol(str(first["noise"])),
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
    rows = part.groupby("rule", observed=True).indices
    standings = tuple(
        Standing(
            rule,
            float(metric.shown(np.array(means[rule]))),
            replicates.half_width(rule),
            None if plain_samples(rule) else as_accurate(means[rule], curve),
            *front(rule, replicates, costs),
            labels_of(part.index[rows[rule]]),
        )
        for rule in replicates.rules
    )
    rankings = []
    for budget in budgets:
        affordable = [rule for rule in replicates.rules if costs.within(rule, budget)]
        deterministic = [rule for rule in affordable if rule not in replicates.sampling]
        best = replicates.contest(affordable)
        sampling = best is not None and best.leader in replicates.sampling
        rankings.append(BudgetRanking(budget, best, replicates.contest(deterministic), sampling))
    floors = part["floor"].dropna().to_numpy()
    floor = float(metric.shown(floors).mean()) if len(floors) else math.nan
    return Condition(sigma, standings, tuple(rankings), floor, replicates.design, replicates.fixed)


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

    Its rivals are the rules that take no longer. It is off the front if a rival is significantly more
    accurate (at 5 % over their number), and on it if it is significantly more accurate than each of them.
    """
    if rule not in costs.by_rule:
        return UNDECIDED, ""
    rivals = [rival for rival in replicates.rules if rival != rule and costs.no_dearer(rival, rule)]
    better = [rival for rival in rivals if replicates.beats(rival, rule, len(rivals))]
    if better:
        return OFF, min(better, key=replicates.mean)
    beats_all = all(replicates.beats(rule, rival) for rival in rivals)
    return ON if beats_all else UNDECIDED, ""


SHOWN = 3
"""Kinds of nets, and values of sigma, in the first figure."""
MOST = 12
"""Largest number of panels in the second figure."""
MOST_TICKS = 4
"""Largest number of powers of ten under a panel; more labels would overlap."""

PLAIN = Style("Monte Carlo, with its number of samples", GREY, "o", (1.0, 1.4))


def choice_figures(blocks: Sequence[Block]) -> tuple[Figure | None, Figure | None]:
    """Return the main figure, and one with further kinds of nets; None without panels.

    The first has up to three kinds of the first non-linearity (fewest layers, most, and one between), each at
    the smallest, a middle and the largest common sigma. The second has all others at their middle sigma.
    """
    bands = blocks[0].bands
    first = _ends_and_middle([band for band in bands if band.activation == bands[0].activation])
    common = set.intersection(*[{condition.sigma for condition in band.conditions} for band in first])
    main = [
        (band, condition)
        for band in first
        for condition in _ends_and_middle([c for c in band.conditions if c.sigma in common or not common])
    ]
    others = [band for band in bands_of(blocks) if band not in first and len(band.rules) > 2]
    rest = [(band, band.conditions[(len(band.conditions) - 1) // 2]) for band in others][:MOST]
    return (
        _figure("figure-front", "Accuracy against cost, and the front", main),
        _figure("figure-front-rest", "The other nets", rest),
    )


def _ends_and_middle(every: list[T]) -> list[T]:
    return every if len(every) <= SHOWN else [every[0], every[(len(every) - 1) // 2], every[-1]]


@look()
def _figure(anchor: str, title: str, pairs: Sequence[tuple[Band, Condition]]) -> Figure | None:
    pairs = [
        (band, condition)
        for band, condition in pairs
        if any(s.rule in band.costs.by_rule for s in condition.standings)
    ]
    if not pairs:
        return None
    styled = styles((s.rule for _, condition in pairs for s in condition.standings), pairs[0][0].traits)
    names = [f"{band.title}, {band.scale}\u00a0=\u00a0{condition.sigma:g}" for band, condition in pairs]
    legend = [style for rule, style in styled.items() if not is_plain(rule)]
    legend += [PLAIN] if len(legend) < len(styled) else []  # one entry for any sample count
    drawing, every = panels(names, legend)
    for axes, (band, condition) in zip(every, pairs, strict=True):
        draw(axes, condition.standings, band.costs, band.metric, styled, condition.floor)
    lower = {band.metric.title for band, _ in pairs if band.metric.better == "lower"}
    up = f" The axis of {' and '.join(sorted(lower))}, a distance, is inverted." if lower else ""
    caption = (
        f"Mean {pairs[0][0].metric.title} over nets and inputs against the rule’s own time for one input "
        f"(logarithmic; the thin line reaches from the fastest run to the median). Up and to the left is "
        f"better.{up} Bars are 95 % intervals; rules are compared in pairs, so rules with overlapping bars "
        "may still differ significantly. The step line is the front: the most accurate rule, on average, "
        "for the time. Ringed: on the front; hollow: off the front, because another rule is significantly "
        "more accurate and no slower; otherwise undecided. The dashed line is the value of a rule with the "
        "exact law."
    )
    return Figure(anchor, title, caption, drawing)


def draw(
    axes: Axes,
    standings: Iterable[Standing],
    costs: Costs,
    metric: Metric,
    styled: dict[str, Style],
    floor: float = math.nan,
) -> list[tuple[float, float, str, str]]:
    """Draw accuracy against cost in one condition; return points with labels, empty for Monte Carlo."""
    known = [standing for standing in standings if standing.rule in costs.by_rule]
    low = min(costs.by_rule[standing.rule].seconds for standing in known) / 1.6
    high = max(costs.by_rule[standing.rule].typical for standing in known) * 1.7
    axes.set_xscale("log")
    _set_accuracy_axis(axes, metric)
    _draw_front(axes, [(costs.by_rule[s.rule].seconds, s.value) for s in known], metric, high)
    if math.isfinite(floor):
        axes.axhline(floor, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    plain = []
    for standing in known:
        samples = plain_samples(standing.rule)
        if samples:
            plain.append((costs.by_rule[standing.rule].seconds, standing.value, samples))
    _draw_plain(axes, sorted(plain), high / low)
    points = []
    for standing in known:
        cost = costs.by_rule[standing.rule]
        style = PLAIN if is_plain(standing.rule) else styled[standing.rule]
        label = f"{styled[standing.rule].label} at {labels.duration(cost.seconds)}"
        _draw_standing(axes, standing, cost, metric, style, label)
        name = "" if is_plain(standing.rule) else style.label
        points.append((cost.seconds, standing.value, name, style.colour))
    exponents = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
    step = math.ceil(len(exponents) / MOST_TICKS) or 1
    powers = [10.0**exponent for exponent in exponents[::step]]
    axes.set_xticks(powers, [labels.duration(power) for power in powers])
    axes.set_xticks([], minor=True)
    axes.set(xlim=(low, high), xlabel="time for one input")
    return points


def _set_accuracy_axis(axes: Axes, metric: Metric) -> None:
    """Label and orient the vertical axis, on which better is up."""
    if metric.complement:
        axes.set_ylim(0, 1.03)
        axes.set_ylabel(metric.label)
    else:
        axes.set_ylabel("distance")
        if metric.better != "higher":
            axes.invert_yaxis()


def _draw_front(axes: Axes, points: Iterable[tuple[float, float]], metric: Metric, end: float) -> None:
    """Draw the best value that is reached within each time, up to `end`, from times and values."""
    seconds, values = np.array(sorted(points)).T
    better = np.maximum if metric.better == "higher" else np.minimum
    best = better.accumulate(values)
    axes.step([*seconds, end], [*best, best[-1]], where="post", color=INK, linewidth=0.9, alpha=0.75)


def _draw_standing(
    axes: Axes, standing: Standing, cost: Cost, metric: Metric, style: Style, label: str
) -> None:
    """Draw a rule as a marker, with its 95 % interval and a line from the fastest run to the median."""
    low, high = standing.value - standing.half_width, standing.value + standing.half_width
    low, high = np.clip([low, high], 0, 1 if metric.complement else None)
    line: dict[str, Any] = {"color": style.colour, "linewidth": 1, "alpha": 0.6, "gid": style.series}
    axes.vlines(cost.seconds, low, high, **line)
    axes.hlines(standing.value, cost.seconds, cost.typical, **line)
    interval = standing.interval(3)
    tip = f": {labels.number(standing.value, 3)} in {labels.duration(cost.seconds)}"
    if interval:
        tip += f", 95 % interval {interval}"
    marker: dict[str, Any] = {"marker": style.marker or ".", "label": label}
    marker |= {"gid": marked(style.label, [tip])}
    if standing.front == OFF:
        marker |= {"markerfacecolor": LIGHT, "markeredgewidth": 1.1}
    elif standing.front == ON:
        marker |= {"markeredgecolor": INK, "markeredgewidth": 1.2, "markersize": 5}
    axes.plot([cost.seconds], [standing.value], **style.line | marker)


def _draw_plain(axes: Axes, points: Sequence[tuple[float, float, int]], width: float) -> None:
    """Line through plain Monte Carlo, and its sample counts as far as they have room."""
    axes.plot(
        [x for x, _, _ in points], [y for _, y, _ in points], **PLAIN.line | {"marker": "", "label": None}
    )
    below: dict[str, Any] = {"xytext": (0, -9), "textcoords": "offset points", "ha": "center"}
    last = math.inf
    for seconds, value, k in reversed(points):
        if seconds * width**0.09 <= last:
            last = seconds
            axes.annotate(f"{k}", (seconds, value), **below, fontsize=SMALL - 0.5)


def names(rules: Iterable[str], traits: RuleTraits) -> str:
    """Labels of rules on one line, with plain Monte Carlo estimates together."""
    ordered = traits.in_order(rules)
    counts = [k for rule in ordered if (k := plain_samples(rule)) is not None]
    others = [rule for rule in ordered if plain_samples(rule) is None]
    parts = [traits.label(rule) for rule in others]
    return labels.listed([*parts, f"MC {', '.join(map(str, counts))}"] if counts else parts)


def how_often_best(bands: Sequence[Band]) -> pd.DataFrame:
    """Count the settings in which each deterministic rule is best or statistically tied with the best.

    Settings without a known spread do not count. The result has a row for each rule that is best or tied
    somewhere, most often first. Its columns are families of nets, with texts ``3 of 5`` for a rule that was
    measured in five settings, then `best` for the number of best means, and `time` for one input as text, in
    Monte Carlo samples that take as long. `attrs` holds the number of settings by family.
    """
    rows, of = [], dict[str, int]()
    for band in bands:
        family = NetKind(band.activation, band.depths[-1]).family or "fully connected"
        for condition in band.conditions:
            ranking = condition.rankings[-1].deterministic
            if ranking and not condition.fixed:
                of[family] = of.get(family, 0) + 1
                rows += [(rule, family, True, rule == ranking.leader) for rule in ranking.best]
                rows += [(rule, family, False, False) for rule in ranking.worse]
    frame = pd.DataFrame(rows, columns=["rule", "family", "tied", "best"])
    sums = frame.groupby("rule")[["tied", "best"]].sum()
    sums = sums[sums["tied"] > 0].sort_values(["tied", "best"], ascending=False)
    cells = frame.groupby(["rule", "family"])["tied"].agg(lambda tied: f"{tied.sum()} of {len(tied)}")
    counts = cells.unstack(fill_value="–").reindex(index=sums.index, columns=list(of))
    counts["best"] = sums["best"]
    timed = [(rule, cost.samples) for band in bands for rule, cost in band.costs.by_rule.items()]
    ends = pd.DataFrame(timed, columns=["rule", "samples"]).groupby("rule")["samples"].agg(["min", "max"])
    ends = ends.reindex(counts.index)
    counts["time"] = [" to ".join(dict.fromkeys(map(_rounded, own))) for own in ends.to_numpy(float)]
    counts.attrs.update(of)
    return counts


def _rounded(samples: float) -> str:
    if math.isnan(samples):
        return "–"
    return "< 5" if samples < 5 else f"{float(f'{samples:.2g}'):,.0f}"


def against_sampling(bands: Sequence[Band]) -> pd.DataFrame:
    """Count the settings in which deterministic rules or sampling are significantly better in the same time.

    The index holds the time, as the number of Monte Carlo samples that take as long. Settings without a rule
    of either kind that fits the time do not count.
    """
    rows = []
    for band in bands:
        within_budgets = [
            ranking
            for condition in band.conditions
            if not condition.fixed
            for ranking in condition.rankings[:-1]  # the last one has no limit of time
        ]
        for ranking in within_budgets:
            best, deterministic = ranking.best, ranking.deterministic
            if best is None or deterministic is None:
                continue
            if any(map(band.traits.is_sampling, (*best.best, *best.worse))):
                sampling = set(map(band.traits.is_sampling, best.best))
                kinds = (sampling == {False}, sampling == {True}, len(sampling) > 1)
                rows.append((int(ranking.budget), *kinds))
    columns = ["budget", "deterministic", "sampling", "undecided"]
    return pd.DataFrame(rows, columns=columns).groupby("budget").sum()


@functools.lru_cache(maxsize=1)
def choices(results: Results) -> list[Block]:
    """Judge rules by accuracy and time, once for all sections; empty without two rules to compare."""
    return choice(results.tabled, results.traits)


class WhichRule(Section):
    name = "choice"
    title = "Which rule when"
    page = CHOICE
    order = 20

    def build(self, results: Results) -> Context | None:
        blocks = choices(results)
        if not blocks:
            return None
        front, other_fronts = choice_figures(blocks)
        return {
            "choice": blocks,
            "often": how_often_best(bands_of(blocks)),
            "sampling": against_sampling(bands_of(blocks)),
            "front": front,
            "other_fronts": other_fronts,
            "styles": results.styles,
            "names": functools.partial(names, traits=results.traits),
        }

    def numbers(self, results: Results, context: Context) -> Iterator[Number]:
        tabled = {cell.rows for table in results.tables for row in table.rows for cell in row.cells if cell}
        for band in bands_of(context["choice"]):
            page = Page(f"{slug('choice', band.title)}.html", band.title, "which rule when", self.name)
            group = NumberGroup(page, slug(band.metric.name, band.scale), band.metric.title, band.metric)
            varies = ("depth",) if len(band.depths) > 1 else ()
            for condition in band.conditions:
                for standing in condition.standings:
                    if standing.rows not in tabled:
                        anchor = slug(group.anchor, f"{condition.sigma:g}", standing.rule)
                        title = f"{results.traits.label(standing.rule)}, {band.scale} = {condition.sigma:g}"
                        yield Number(group, anchor, title, standing.value, standing.rows, varies)
