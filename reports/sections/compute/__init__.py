"""The section on equal compute: when a rule that looks inside a net beats samples of the same cost."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ....bench.advice import outcomes as advice
from ....bench.studies.compute import BATCH, BRIER, EXPERIMENT, RULES, SAMPLERS, SIZES, TRAININGS, USES
from ...results import Results
from ...section import Context, Section
from ...style.figure import SIDE, SMALL, Figure, log_scale, look, panels
from ...style.labels import listed, span
from ...style.theme import LIGHT, ORDERED, Style, marked, shade

LIMITS = {
    "mean": 0.05,
    "standard_deviation": advice.LIMITS[advice.DEVIATIONS],
    "whole_distribution": 0.05,
    "class": advice.LIMITS["class"],
    "tail": 0.25,
}
"""Errors that are small for a use; a rule with a larger one is not accurate enough."""
TIED = 2.0
"""Factors of cost between this and its inverse are a tie."""
ARCHITECTURE = ["activation", "depth", "width"]
NET = [*ARCHITECTURE, "training", "seed"]
SETTING = [*NET, "noise", "use"]
OPERATIONS, ONE, MANY = "operations", "1", str(BATCH)
COSTS = {
    ONE: "processor time, one input",
    MANY: f"processor time, batch of {BATCH}",
    OPERATIONS: "operations",
}
"""Costs that are compared, with titles: times have the number of inputs as their name."""
NAMED = ("moment_matching", "dvia", "sdp", "unscented")
"""Rules that could be chosen before the measurement; the first leads."""
BEST = "best rule that looks inside, in hindsight"
NETS = {"trained": "trained", "random": "untrained"}
NOISES = ("below one kink distance", "at one", "above")
KINK_DISTANCE = (
    "The kink distance is the median over hidden units of the distance from the input to the nearest point "
    "at which the unit, linearised, switches on or off. Noise is compared by its standard deviation."
)
CLASS_RULES = (*NAMED, "third_cumulants", "edgeworth")
"""Rules that are compared with plain samples by the Brier score of the class."""
STRONGEST = "whitened_sobol"
"""The sampler that the page compares with the others."""
POINTS = ("unscented",)
"""Rules that run the net at points and do not look inside it."""
_RESOLVED = 1.5
"""Least error, in errors of the oracle, at which the part left after subtraction in quadrature is known.

At 1.5, it is sqrt(1.5² - 1) = 1.1 times the oracle's error.
"""

Array = NDArray[np.float64]
_SAMPLES = [f"{sampler}:samples={size}" for sampler, size in itertools.product(SAMPLERS, SIZES)]
TITLES = {
    "mean": "mean",
    "standard_deviation": "standard deviations",
    "whole_distribution": "whole distribution",
    "class": "class",
    "tail": "tails",
}
KINDS = {
    (training, activation): f"{training}, {name}"
    for training in TRAININGS
    for activation, name in (("relu", "ReLU"), ("gelu", "GELU"))
}


def factors(records: pd.DataFrame, cost: str = OPERATIONS) -> pd.DataFrame:
    """Compare each rule with the samplers at the same error, by one of the costs.

    `records` has the columns `objective` (``relu 8x256 trained``; ``relu 8x256`` for times), `seed`, `rule`,
    `metric`, `component` (the noise level, or the number of timed inputs) and `value`. The result has a row
    for each rule and each setting with all samplers but the newest: `error` and cost `used` of the rule,
    whether it is `accurate`, the `sampler` that reaches its error at the least cost `needed`, the cost
    `needed_by_others` without the strongest sampler, and the `factor` needed / used. Operations are in
    regular passes, times in seconds per input. The oracle's own error is subtracted in quadrature. With
    `bound`, the error of the rule, or of the sampler's smallest size, is below what the oracle resolves, and
    the factor is a lower bound. Of repeated measurements, with oracles of several sizes, the last one counts.
    """
    rows = _with_nets(records)
    raw = _errors(rows)
    costs = _costs(rows, cost)
    keys = [name for name in NET if name in costs.index.names]
    counts = costs.reindex(pd.MultiIndex.from_frame(raw.reset_index()[keys]), columns=[*RULES, *_SAMPLES])
    errors, resolved = _corrected(raw)
    limits = errors.index.get_level_values("use").map(LIMITS).to_numpy(float)
    smallest = resolved[[_sampler(sampler, SIZES[0]) for sampler in SAMPLERS]].to_numpy()
    tables = []
    for rule in RULES:
        error, used = errors[rule].to_numpy(), counts[rule].to_numpy()
        accurate = error <= limits
        needed = pd.DataFrame(index=errors.index)
        for sampler in SAMPLERS:
            needed[sampler] = _needed_cost(sampler, error, errors, resolved, counts)
        best, least = needed.fillna(np.inf).idxmin(axis=1), needed.min(axis=1)
        smallest_is_resolved = smallest[range(len(best)), best.map(SAMPLERS.index)]
        columns = {
            "cost": cost,
            "rule": rule,
            "error": error,
            "accurate": accurate,
            "bound": ~resolved[rule] | (accurate & ~smallest_is_resolved),
            "used": used,
            "sampler": best,
            "needed": least,
            "needed_by_others": needed.drop(columns=STRONGEST).min(axis=1),
            "factor": least / used,
        }
        is_known = ~np.isnan(error) & ~np.isnan(used)
        tables.append(needed.assign(**columns)[list(columns)][is_known].reset_index())
    return pd.concat(tables, ignore_index=True)


def _with_nets(records: pd.DataFrame) -> pd.DataFrame:
    """Return the last measurement of each number, with columns that describe the net."""
    rows = records.astype(dict.fromkeys(("rule", "objective", "metric"), str))
    rows = rows.drop_duplicates(["objective", "seed", "rule", "metric", "component"], keep="last")
    objectives = rows["objective"].drop_duplicates()
    nets = objectives.str.extract(r"(?P<activation>\w+) (?P<depth>\d+)x(?P<width>\d+) ?(?P<training>\w*)")
    return rows.merge(nets.assign(objective=objectives), on="objective").astype({"depth": int, "width": int})


def _errors(rows: pd.DataFrame) -> pd.DataFrame:
    """Return errors by setting (rows) and method (columns).

    Only settings with all samplers are included; the newest one was measured on some nets only.
    """
    errors = rows[rows["metric"].isin(USES)].rename(columns={"metric": "use", "component": "noise"})
    errors = errors.assign(noise=errors["noise"].astype(str).astype(float))
    errors = errors.pivot(index=SETTING, columns="rule", values="value")
    errors = errors.reindex(columns=["oracle", *RULES, *_SAMPLES]).dropna(
        subset=[name for name in _SAMPLES if not name.startswith(STRONGEST)]
    )
    return errors[errors["oracle"] > 0]  # otherwise the class is certain, and every method is right


def _costs(rows: pd.DataFrame, cost: str) -> pd.DataFrame:
    """Return costs by net, or times by architecture (rows), and by method (columns)."""
    if cost == OPERATIONS:
        return rows[rows["metric"] == OPERATIONS].pivot(index=NET, columns="rule", values="value")
    times = rows[rows["metric"] == "seconds"]
    one, several = (
        times[times["component"] == count].pivot(index=ARCHITECTURE, columns="rule", values="value")
        for count in (ONE, cost)
    )
    return several.combine_first(one)  # methods that take long for one input have no times for a batch


def _corrected(raw: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return errors without that of the oracle, and whether they are resolved.

    The errors of method and oracle are independent, so that their squares add up: sqrt(raw² - oracle²). An
    error that is not resolved is replaced by the largest one that would not be resolved.
    """
    oracle = raw["oracle"].to_numpy()[:, None]
    measured = raw.to_numpy()
    resolved = pd.DataFrame(measured > _RESOLVED * oracle, raw.index, raw.columns)
    floor = np.where(np.isnan(measured), measured, math.sqrt(_RESOLVED**2 - 1) * oracle)
    corrected = np.where(resolved, np.sqrt(np.maximum(measured**2 - oracle**2, 0)), floor)
    return pd.DataFrame(corrected, raw.index, raw.columns), resolved


def _sampler(name: str, size: int) -> str:
    return f"{name}:samples={size}"


def _needed_cost(
    sampler: str, error: Array, errors: pd.DataFrame, resolved: pd.DataFrame, counts: pd.DataFrame
) -> Array:
    """Return the cost at which a sampler has an error, by setting.

    One sample if the error of the sampler's smallest size is below what the oracle resolves.
    """
    names = [_sampler(sampler, size) for size in SIZES]
    samples = _samples(error, errors[names].to_numpy())
    samples[~resolved[names[0]] & errors[names[0]].notna()] = 1.0
    # Costs are linear in the number of samples; the control variate also takes a Jacobian.
    first, last = counts[names[0]].to_numpy(), counts[names[-1]].to_numpy()
    return np.asarray(first + (samples - SIZES[0]) * (last - first) / (SIZES[-1] - SIZES[0]))


def _samples(error: Array, errors: Array) -> Array:
    """Return the number of samples with which a sampler has an error, from its errors (n, sizes) by size.

    Interpolated linearly in the logarithms. Beyond the measured sizes the error is proportional to
    samples**-0.5, as that of any mean of independent draws, so that log samples = log size + 2 log(error at
    the size / error). At least one sample.
    """
    # The exact error falls with the size; a measured one that rises is noise, and its inverse is ambiguous.
    errors = np.minimum.accumulate(errors, axis=1)
    log_errors, log_sizes = np.log(errors), np.log(np.array(SIZES, float))
    # The sizes on either side of the error, or the first or last two.
    right = np.clip((errors > error[:, None]).sum(1), 1, errors.shape[1] - 1)
    left = right - 1
    rows = np.arange(len(errors))
    left_error, right_error = log_errors[rows, left], log_errors[rows, right]
    step = log_sizes[right] - log_sizes[left]
    with np.errstate(divide="ignore", invalid="ignore"):
        log_error = np.log(error)
        interpolated = log_sizes[left] + step * (log_error - left_error) / (right_error - left_error)
        fewer = log_sizes[0] + 2 * (log_errors[:, 0] - log_error)
        more = log_sizes[-1] + 2 * (log_errors[:, -1] - log_error)
    # Errors that are not resolved are equal: the smallest size with that error counts.
    log_samples = np.where(error < errors[:, -1], more, interpolated)
    log_samples = np.where(error >= errors[:, 0], fewer, log_samples)
    return np.asarray(np.exp(np.maximum(log_samples, 0)))


def best_inside(compared: pd.DataFrame) -> pd.DataFrame:
    """Return one rule of each setting among those that look inside the net, for each cost.

    It is the one with the largest factor of those that are accurate enough; if none is, the most accurate.
    """
    inside = compared[~compared["rule"].isin(POINTS)]
    order = inside["factor"].where(inside["accurate"].astype(bool), -inside["error"])
    groups = [inside[name] for name in ["cost", *SETTING]]
    return inside.loc[order.groupby(groups).idxmax()].reset_index(drop=True)


def verdicts(compared: pd.DataFrame) -> pd.Series[Any]:
    """Return "inside", "sampling", "tied" or "unresolved" for each row.

    Sampling wins where the rule is not accurate enough. A factor that is only a lower bound does not show
    that sampling wins, nor does an oracle with larger errors than those that are accurate enough.
    """
    factor, bound, accurate = compared["factor"], compared["bound"], compared["accurate"]
    kinds = [accurate & (factor > TIED), bound, ~accurate | (factor < 1 / TIED)]
    names = np.select(kinds, ["inside", "unresolved", "sampling"], default="tied")
    return pd.Series(names, index=compared.index)


def crossovers(best: pd.DataFrame) -> pd.DataFrame:
    """Return the largest noise level at which the best rule wins, by net and use; 0 if it wins at none."""
    ahead = best["noise"].where(verdicts(best) == "inside", 0.0)
    return ahead.groupby([best[name] for name in [*NET, "use"]]).max().rename("crossing").reset_index()


def shares(compared: pd.DataFrame, by: list[str], draws: int = 2000) -> pd.DataFrame:
    """Return the shares of settings in which looking inside and sampling win, by some columns.

    Columns `inside`, `sampling`, `tied` and `unresolved`, the ends `low` and `high` of the 95 % interval of
    `inside`, from resamples of architectures, `accurate`, and the median `factor` where the rule is accurate
    enough.
    """
    kinds = ("inside", "sampling", "tied", "unresolved")
    judged = compared.assign(verdict=verdicts(compared))
    judged = judged.assign(wins=judged["verdict"] == "inside")
    generator = np.random.default_rng(0)
    rows = []
    for key, part in judged.groupby(by, observed=True, sort=False):
        counts = part["verdict"].value_counts(normalize=True)
        wins = part.groupby(ARCHITECTURE)["wins"].agg(["sum", "size"]).to_numpy()
        drawn = wins[generator.integers(len(wins), size=(draws, len(wins)))].sum(1)
        ends = np.quantile(drawn[:, 0] / drawn[:, 1], [0.025, 0.975])
        factor = float(part.loc[part["accurate"], "factor"].median())
        shares_of_kinds = [float(counts.get(kind, 0.0)) for kind in kinds]
        accurate = float(part["accurate"].mean())
        nets = len(part.drop_duplicates(NET))
        rows.append((*key, len(part), nets, *shares_of_kinds, *ends, accurate, factor))
    names = ["settings", "nets", *kinds, "low", "high", "accurate", "factor"]
    return pd.DataFrame(rows, columns=[*by, *names])


class EqualCompute(Section):
    name = "compute"
    title = "Inside the net or sampling"
    order = 118
    experiments = (EXPERIMENT.name,)

    def build(self, results: Results) -> Context | None:
        compared = comparison(results)
        if compared is None:
            return None
        complete, wins = _complete(compared), wins_of(results)
        by_operations = compared[compared["cost"] == OPERATIONS]
        best = best_inside(by_operations)
        trained = by_operations[by_operations["training"] == TRAININGS[0]]
        by_rule = shares(trained, ["rule", "use"]).set_index(["rule", "use"])
        passes = by_operations.groupby("rule", observed=True)["used"].agg(["min", "max"])
        return {
            "answer": answer(compared, wins),
            "kink_distance": KINK_DISTANCE,
            "tables": share_tables(wins),
            "costs": [COSTS[cost] for cost in sorted(complete["cost"].unique())],
            "labels": {BEST: BEST, **{rule: results.traits.label(rule) for rule in CLASS_RULES}},
            "compared_nets": complete.drop_duplicates(NET)["training"].map(NETS).value_counts().to_dict(),
            "compared_widths": _numbers(complete["width"]),
            "compared_depths": _numbers(complete["depth"]),
            "figures": [_wins(best), _crossings(crossovers(best))],
            "nets": len(best.drop_duplicates(NET)),
            "depths": span(best["depth"], 0),
            "widths": span(best["width"], 0),
            "uses": TITLES,
            "classes": class_shares(brier_factors(_records(results))),
            "class_rules": CLASS_RULES,
            "leading": NAMED[0],
            "gains": sampler_gains(compared),
            "rows": [
                (
                    results.traits.label(rule),
                    tuple(passes.loc[rule]),
                    [by_rule.loc[(rule, use)] if (rule, use) in by_rule.index else None for use in USES],
                )
                for rule in RULES
                if rule in passes.index
            ],
        }


@functools.lru_cache(maxsize=1)
def comparison(results: Results) -> pd.DataFrame | None:
    """Return the factors of all settings for each measured cost, None if nothing was measured."""
    if results.frame.empty:
        return None
    records = _records(results)
    if not records["metric"].isin(USES).any():
        return None
    is_timed = (records["metric"] == "seconds").any()
    compared = pd.concat([factors(records, cost) for cost in (COSTS if is_timed else [OPERATIONS])])
    return None if compared.empty else compared.reset_index(drop=True)


def _records(results: Results) -> pd.DataFrame:
    rows = results.frame[results.frame["experiment"] == EXPERIMENT.name]
    return rows[["objective", "seed", "rule", "metric", "component", "value"]]


def brier_factors(records: pd.DataFrame) -> pd.DataFrame:
    """Compare rules with plain samples of the same number of operations, by the Brier score of the class.

    `records` as for :func:`factors`. n samples have the mean (1 - |p|^2) / n, with the true probabilities p;
    the oracle's score is this for its own number of samples. The result has a row for each setting and rule:
    `factor` is the number of samples with the score of the rule, relative to its operations in regular
    passes. Scores below that of the oracle count as equal to it, so that the factor is a lower bound.
    """
    rows = _with_nets(records)
    setting = [*NET, "noise"]
    scores = rows[rows["metric"] == BRIER]
    scores = scores.assign(noise=scores["component"].astype(str).astype(float))
    scores = scores.pivot(index=setting, columns="rule", values="value")
    if "oracle" not in scores:
        return pd.DataFrame(columns=[*setting, "rule", "factor"])
    scores = scores[scores["oracle"] > 0]  # otherwise the class is certain
    passes = _costs(rows, OPERATIONS).reindex(pd.MultiIndex.from_frame(scores.reset_index()[NET]))
    of_one_sample = scores["oracle"] * passes["oracle"].to_numpy()
    tables = []
    for rule in [rule for rule in RULES if rule in scores]:
        samples = of_one_sample / scores[rule].clip(lower=scores["oracle"])
        table = pd.DataFrame({"rule": rule, "factor": samples / passes[rule].to_numpy()})
        tables.append(table.dropna().reset_index())
    return pd.concat(tables, ignore_index=True)


def class_shares(compared: pd.DataFrame) -> dict[str, dict[str, str]]:
    """Return shares of settings (%), by noise, in which a rule beats plain samples: ``12, 3, 0``.

    By nets (trained or not) and rule; `compared` is that of :func:`brier_factors`. A rule beats samples if
    they take more than twice as many operations.
    """
    tables: dict[str, dict[str, str]] = {}
    if compared.empty:
        return tables
    noise = pd.cut(compared["noise"], [0, 0.99, 1.01, math.inf], labels=NOISES)
    wins = compared.assign(wins=compared["factor"] > TIED, noise=noise)
    shares = 100 * wins.groupby(["training", "rule", "noise"], observed=True)["wins"].mean()
    for training, rule in itertools.product(TRAININGS, CLASS_RULES):
        if (training, rule) in shares.index:
            of_noises = shares[training, rule].reindex(NOISES)
            texts = ["–" if math.isnan(share) else f"{share:.0f}" for share in of_noises]
            tables.setdefault(NETS[training], {})[rule] = ", ".join(texts)
    return tables


def sampler_gains(compared: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Return for each use the share of settings in which whitened Sobol pairs are best, and their gain.

    The share is that of settings in which they reach the error of the first named rule with the fewest
    samples; the gain is the number that the best other sampler takes, relative to theirs (median).
    """
    rows = compared[(compared["cost"] == OPERATIONS) & (compared["rule"] == NAMED[0])]
    gains = []
    for use in USES:
        of_use = rows[rows["use"] == use]
        best = of_use[of_use["sampler"] == STRONGEST]
        gain = (best["needed_by_others"] / best["needed"]).median()
        gains.append((TITLES[use], f"{100 * len(best) / max(1, len(of_use)):.0f}", f"{gain:.1f}"))
    return gains


def _complete(compared: pd.DataFrame) -> pd.DataFrame:
    """Leave out nets without times, and widths without some depths: rules win more often on shallow nets."""
    costs = compared.groupby(NET)["cost"].transform("nunique")
    compared = compared[costs == costs.max()]
    depths = compared.groupby("width")["depth"].transform("nunique")
    return compared[depths == depths.max()]


@functools.lru_cache(maxsize=1)
def wins_of(results: Results) -> pd.DataFrame:
    """Return the result of :func:`win_shares`, once for all sections."""
    compared = comparison(results)
    if compared is None:
        raise ValueError("these results do not compare rules at equal cost")
    return win_shares(compared)


def win_shares(compared: pd.DataFrame) -> pd.DataFrame:
    """Return the shares of settings that rules win (`share`: ``72 % (68 to 76 %)``) and of `unresolved` ones.

    `inside`, `low` and `high` are the numbers of `share`. By training, cost, noise and rule: rules named in
    advance, and the best of each setting. All costs are compared on the same nets.
    """
    complete = _complete(compared)
    hindsight = best_inside(complete).assign(rule=BEST)
    settings = pd.concat([complete[complete["rule"].isin(NAMED)], hindsight])
    by_noise = pd.cut(settings["noise"], [0, 0.99, 1.01, math.inf], labels=NOISES).astype(str)
    by = ["training", "cost", "noise", "rule"]
    table = shares(settings.assign(noise=by_noise), by).set_index(by).sort_index()
    percent = (100 * table[["inside", "low", "high", "unresolved"]]).round().astype(int)
    text = percent.astype(str)
    share = text["inside"] + " % (" + text["low"] + " to " + text["high"] + " %)"
    return percent.assign(share=share, unresolved=text["unresolved"] + " %")


def share_tables(wins: pd.DataFrame) -> dict[str, list[tuple[str, list[list[str]]]]]:
    """Return rows of rule and shares by cost and noise, as texts, for trained and untrained nets.

    `wins` is from :func:`win_shares`.
    """
    table = wins["share"]
    tables: dict[str, list[tuple[str, list[list[str]]]]] = {}
    for training, rule in itertools.product(TRAININGS, (*NAMED, BEST)):
        cells = [
            [str(table.get((training, cost, noise, rule), "–")) for noise in NOISES]
            for cost in table.index.unique("cost")
        ]
        if any(share != "–" for shares_by_noise in cells for share in shares_by_noise):
            tables.setdefault(NETS[training], []).append((rule, cells))
    return tables


def answer(compared: pd.DataFrame, table: pd.DataFrame) -> str:
    """Say where a rule named in advance wins, on trained nets if there are any.

    `table` is the result of :func:`win_shares`.
    """
    rule, training = _rule_and_training(table)
    noises = [noise for noise in NOISES if noise in table.index.unique("noise")]

    def by_cost(column: str) -> str:
        texts = []
        for cost in table.index.unique("cost"):
            by_noise = [str(table[column].get((training, cost, noise, rule), "–")) for noise in noises]
            texts.append(f"{listed(by_noise)} ({COSTS[cost]})")
        return "; ".join(texts)

    return (
        f"On {NETS[training]} nets of {_numbers(_complete(compared)['width'])} units a layer, "
        f"{rule.replace('_', ' ')}, named in advance, is accurate enough and takes less than half the cost "
        f"of the best sampler in these shares of settings at noise {listed(noises)}: {by_cost('share')}. "
        "Intervals are over architectures. In other settings, both are more accurate than the oracle "
        f"resolves: {by_cost('unresolved')}. {KINK_DISTANCE}"
    )


def _rule_and_training(table: pd.DataFrame) -> tuple[str, str]:
    """First rule named in advance, and trained nets if there are any, of the result of :func:`win_shares`."""
    rule = next((rule for rule in NAMED if rule in table.index.unique("rule")), BEST)
    return rule, next(training for training in TRAININGS if training in table.index.unique("training"))


_SHORT_COSTS = {ONE: "time", OPERATIONS: "operations"}


def short_answer(table: pd.DataFrame) -> str:
    """Say how often a rule named in advance wins, in at most 40 words; `table` is from :func:`win_shares`."""
    rule, training = _rule_and_training(table)
    shares_of_rule = table["inside"].xs((training, rule), level=("training", "rule"))
    shares_by_cost = {
        cost: shares_of_rule.xs(cost, level="cost")
        for cost in _SHORT_COSTS
        if cost in shares_of_rule.index.unique("cost")
    }
    (first, first_shares), *others = shares_by_cost.items()
    rows = table.xs((training, first, rule), level=("training", "cost", "rule"))
    unresolved = rows["unresolved"].str.removesuffix(" %").astype(int)
    not_sampling = (rows["inside"] + unresolved).max()  # at the noise where sampling wins least
    often = "Nearly always" if not_sampling <= 5 else "Mostly" if not_sampling <= 50 else "Not always"
    text = (
        f"{often}, if measured by {_SHORT_COSTS[first]}: on {NETS[training]} nets, {rule.replace('_', ' ')} "
        f"takes less than half the {_SHORT_COSTS[first]} of equally accurate samples in "
        f"{span(first_shares, 0)} % of settings"
    )
    for cost, shares_of_cost in others:
        text += f" (by {_SHORT_COSTS[cost]}: {span(shares_of_cost, 0)} %)"
    return f"{text}, depending on the noise."


@look()
def shares_by_noise(table: pd.DataFrame) -> Figure:
    """Shares of settings that the rule of the answer wins, by noise and cost."""
    rule, training = _rule_and_training(table)
    costs = [cost for cost in _SHORT_COSTS if cost in table.index.unique("cost")]
    noises = [noise for noise in NOISES if noise in table.index.unique("noise")]
    colours = dict(zip(_SHORT_COSTS, ORDERED[1::6], strict=False))
    styled = {cost: Style(_SHORT_COSTS[cost], shade(colours[cost], LIGHT), "o") for cost in costs}
    drawing, (ax,) = panels(
        [""], styled.values(), width=3.1, height=1.15, left=0.5, right=0.1, above=0.06, below=0.42
    )
    unresolved = 0
    for offset, cost in enumerate(costs):
        style = styled[cost]
        rows = table.xs((training, cost, rule), level=("training", "cost", "rule"))
        places = [noises.index(noise) + 0.12 * (offset - 0.5) for noise in rows.index]
        unresolved = max(unresolved, int(rows["unresolved"].str.removesuffix(" %").astype(int).max()))
        tips = [f", noise {noise}: {share}" for noise, share in rows["share"].items()]
        points = style.line | {"gid": marked(style.label, tips), "linestyle": "none"}
        ax.plot(places, rows["inside"], **points)
        ax.vlines(places, rows["low"], rows["high"], color=style.colour, linewidth=1.2, gid=style.series)
    ax.set_xticks(range(len(noises)), noises, fontsize=SMALL)
    ax.set(xlim=(-0.5, len(noises) - 0.5), ylim=(0, 100), ylabel="settings won (%)")
    ax.set_xlabel("noise")
    caption = (
        f"Share of settings on {NETS[training]} nets in which {rule.replace('_', ' ')} is accurate enough "
        "and takes less than half the cost of the best sampler, with 95 % intervals. In up to "
        f"{unresolved} %, both are too accurate to compare."
    )
    if ONE in costs:
        caption += " Time is for one input."
    return Figure("figure-shares", "When a rule takes less than sampling", caption, drawing)


def _numbers(values: pd.Series[Any]) -> str:
    return listed([str(value) for value in sorted(set(values))])


@look()
def _wins(best: pd.DataFrame) -> Figure:
    import seaborn as sns

    judged = best.assign(wins=(verdicts(best) == "inside").astype(float))
    styled = {}
    for (training, activation), label in KINDS.items():
        colour = ORDERED[0 if activation == "relu" else 4]
        dashes = (2.0, 1.2) if training == "random" else ()
        styled[training, activation] = Style(label, colour, "o", dashes)
    drawing, axes = panels([TITLES[use] for use in USES], styled.values(), columns=3)
    for use, ax in zip(USES, axes, strict=False):
        rows_of_use = judged[judged["use"] == use]
        for (training, activation), style in styled.items():
            kind = (rows_of_use["training"] == training) & (rows_of_use["activation"] == activation)
            if kind.any():
                sns.lineplot(
                    rows_of_use[kind], x="noise", y="wins", errorbar=("ci", 95), n_boot=400, seed=0, ax=ax,
                    err_style="bars", legend=False, **style.line,
                )  # fmt: skip
        log_scale(ax.xaxis)
        ax.set(xlabel="noise, kink distances", ylabel="", ylim=(-0.03, 1.03))
    axes[0].set_ylabel("share of nets")
    return Figure(
        "figure-compute",
        "Where looking inside the net takes less compute than sampling",
        "Share of nets on which a rule that looks inside is accurate enough (errors of at most 0.05 standard "
        "deviations in the mean and in W1, 5 % in standard deviations, 1 point in the class, 25 % in tails) "
        "and takes less than half the operations of the best sampler with its error; mean and 95 % interval "
        f"over nets. {KINK_DISTANCE} "
        "At 0.01, many settings are unresolved, since both are more accurate than the oracle shows.",
        drawing,
    )


@look()
def _crossings(crossings: pd.DataFrame) -> Figure:
    import seaborn as sns

    sized = crossings.assign(size=np.log10(crossings["crossing"].clip(1e-3, None)))
    present = set(zip(sized["training"], sized["activation"], strict=True))
    kinds = [kind for kind in KINDS if kind in present]
    titles = [TITLES[use] for _ in kinds for use in USES]
    drawing, axes = panels(
        titles,
        columns=len(USES),
        width=1.12,
        height=1.1,
        left=0.1,
        right=0.06,
        above=0.2,
        below=0.18,
        margin=0.8,
        title_size=SMALL,
    )
    for ax, (kind, use) in zip(axes, itertools.product(kinds, USES), strict=True):
        training, activation = kind
        of_kind = sized[(sized["training"] == training) & (sized["activation"] == activation)]
        part = of_kind[of_kind["use"] == use]
        ax.grid(visible=False)
        if part.empty:
            ax.axis("off")
            continue
        cells = part.groupby(["depth", "width"])
        text = cells["crossing"].agg(_ends)
        sns.heatmap(
            cells["size"].mean().unstack(), annot=text.unstack().fillna("").to_numpy(), fmt="", ax=ax,
            vmin=-3, vmax=2, cbar=False, cmap="cividis", annot_kws={"fontsize": 4.4}, linewidths=0.3,
            linecolor=LIGHT,
        )  # fmt: skip
        ax.tick_params(labelsize=SMALL - 1.2, length=0, labelrotation=0, pad=2)
        ax.set(xlabel="", ylabel="")
        if use == USES[0]:
            ax.set_ylabel(f"{KINDS[kind]}\ndepth", fontsize=SMALL)
            for label in (ax.yaxis.label, *ax.get_yticklabels()):
                label.set_gid(SIDE)
        else:
            ax.set_yticks([])
    return Figure(
        "figure-crossover",
        "Largest noise at which looking inside the net wins",
        "By operations, not by time, for the best rule of each setting. In kink distances, by depth (rows) "
        "and width (columns); least and largest over nets. 0: at none of the five levels from 0.01 to 100.",
        drawing,
        cells=True,
    )


def _ends(levels: pd.Series[float]) -> str:
    texts = [f"{end:g}".removeprefix("0") or "0" for end in (levels.min(), levels.max())]
    return "–".join(dict.fromkeys(texts))
