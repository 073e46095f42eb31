"""The section on equal compute: when a rule that looks inside a net beats samples of the same cost."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ....bench.advice import thresholds as advice
from ....bench.studies.compute import EXPERIMENT, RULES, SAMPLERS, SIZES, TRAININGS, USES
from ...results import Results
from ...section import Context, Section
from ...style.figure import SMALL, Figure, log_scale, look, panels
from ...style.labels import listed, span
from ...style.theme import LIGHT, ORDERED, Style

LIMITS = {
    "mean": 0.05,
    "standard_deviation": advice.LIMITS[advice.DEVIATIONS],
    "whole_distribution": 0.05,
    "class": advice.LIMITS["class"],
    "tail": 0.25,
}
"""Errors that are small for a use; a rule with a larger one is not accurate enough."""
TIED = 2.0
"""Factors of compute between this and its inverse are a tie."""
NET = ["activation", "depth", "width", "training", "seed"]
SETTING = [*NET, "noise", "use"]
POINTS = ("unscented",)
"""Rules that run the net at points and do not look inside it."""
_RESOLVED = 1.5
"""Least error, in errors of the oracle, at which the part left after subtraction in quadrature is known.

At 1.5, it is sqrt(1.5² - 1) = 1.1 times the oracle's error.
"""

Array = NDArray[np.float64]
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
SHALLOW = 2
"""Hidden layers of nets on which moments are exact, or nearly, by moment matching."""
_MOMENTS, _OTHERS = "mean and standard deviations, one or two hidden layers", "all others"
"""Parts of the settings with large noise."""


def factors(records: pd.DataFrame) -> pd.DataFrame:
    """Compare each rule with the samplers at the same error.

    `records` has the columns `objective` (``relu 8x256 trained``), `seed`, `rule`, `metric`, `component` (the
    noise level) and `value`. The result has a row for each setting and rule: `error` and `passes` of the
    rule, whether it is `accurate`, the `sampler` that reaches its error with fewest `needed` passes, and the
    `factor` needed / passes. The oracle's own error is subtracted in quadrature. With `bound`, the error of
    the rule, or of the sampler's smallest size, is below what the oracle resolves, and the factor is a lower
    bound. Of repeated measurements, with oracles of several sizes, the last one counts.
    """
    passes, raw = _passes_and_errors(records)
    errors, resolved = _corrected(raw)
    counts = passes.reindex(pd.MultiIndex.from_frame(errors.reset_index()[NET]))
    limits = errors.index.get_level_values("use").map(LIMITS).to_numpy(float)
    smallest = resolved[[_sampler(sampler, SIZES[0]) for sampler in SAMPLERS]].to_numpy()
    tables = []
    for rule in RULES:
        if rule not in errors:
            continue
        error = errors[rule].to_numpy()
        accurate = error <= limits
        needed = pd.DataFrame(index=errors.index)
        for sampler in SAMPLERS:
            needed[sampler] = _needed_passes(sampler, error, errors, resolved, counts)
        best, least = needed.fillna(np.inf).idxmin(axis=1), needed.min(axis=1)
        smallest_is_resolved = smallest[range(len(best)), best.map(SAMPLERS.index)]
        passes_of_rule = counts[rule].to_numpy()
        columns = {
            "rule": rule,
            "error": error,
            "accurate": accurate,
            "bound": ~resolved[rule] | (accurate & ~smallest_is_resolved),
            "passes": passes_of_rule,
            "sampler": best,
            "needed": least,
            "factor": least / passes_of_rule,
        }
        tables.append(needed.assign(**columns)[list(columns)][~np.isnan(error)].reset_index())
    return pd.concat(tables, ignore_index=True)


def _passes_and_errors(records: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return passes by net (rows) and rule (columns), and errors by setting and rule."""
    rows = records.astype(dict.fromkeys(("rule", "objective", "metric"), str))
    rows = rows.drop_duplicates(["objective", "seed", "rule", "metric", "component"], keep="last")
    objectives = rows["objective"].drop_duplicates()
    nets = objectives.str.extract(r"(?P<activation>\w+) (?P<depth>\d+)x(?P<width>\d+) (?P<training>\w+)")
    rows = rows.merge(nets.assign(objective=objectives), on="objective").astype({"depth": int, "width": int})
    passes = rows[rows["metric"] == "operations"].pivot(index=NET, columns="rule", values="value")
    errors = rows[rows["metric"].isin(USES)].rename(columns={"metric": "use", "component": "noise"})
    errors = errors.assign(noise=errors["noise"].astype(str).astype(float))
    errors = errors.pivot(index=SETTING, columns="rule", values="value")
    return passes, errors[errors["oracle"] > 0]  # otherwise the class is certain, and every method is right


def _corrected(raw: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return errors without that of the oracle, and whether they are resolved.

    The errors of method and oracle are independent, so that their squares add up: sqrt(raw² - oracle²). An
    error that is not resolved is replaced by the oracle's, a bound from above.
    """
    oracle = raw["oracle"].to_numpy()[:, None]
    measured = raw.to_numpy()
    resolved = pd.DataFrame(measured > _RESOLVED * oracle, raw.index, raw.columns)
    floor = np.where(np.isnan(measured), measured, oracle)
    corrected = np.where(resolved, np.sqrt(np.maximum(measured**2 - oracle**2, 0)), floor)
    return pd.DataFrame(corrected, raw.index, raw.columns), resolved


def _sampler(name: str, size: int) -> str:
    return f"{name}:samples={size}"


def _needed_passes(
    sampler: str, error: Array, errors: pd.DataFrame, resolved: pd.DataFrame, counts: pd.DataFrame
) -> Array:
    """Return the passes with which a sampler has an error, by setting.

    One sample if the error of the sampler's smallest size is below what the oracle resolves.
    """
    names = [_sampler(sampler, size) for size in SIZES]
    samples = _samples(error, errors[names].to_numpy())
    samples[~resolved[names[0]] & errors[names[0]].notna()] = 1.0
    # Passes are linear in the number of samples; the control variate also takes a Jacobian.
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
    log_samples = np.where(error <= errors[:, -1], more, interpolated)
    log_samples = np.where(error >= errors[:, 0], fewer, log_samples)
    return np.asarray(np.exp(np.maximum(log_samples, 0)))


def best_inside(compared: pd.DataFrame) -> pd.DataFrame:
    """Return one rule of each setting among those that look inside the net.

    It is the one with the largest factor of those that are accurate enough; if none is, the most accurate.
    """
    inside = compared[~compared["rule"].isin(POINTS)]
    order = inside["factor"].where(inside["accurate"].astype(bool), -inside["error"])
    return inside.loc[order.groupby([inside[name] for name in SETTING]).idxmax()].reset_index(drop=True)


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
    `inside`, from resamples of nets, `accurate`, and the median `factor` where the rule is accurate enough.
    """
    kinds = ("inside", "sampling", "tied", "unresolved")
    judged = compared.assign(verdict=verdicts(compared))
    judged = judged.assign(wins=judged["verdict"] == "inside")
    generator = np.random.default_rng(0)
    rows = []
    for key, part in judged.groupby(by, observed=True, sort=False):
        counts = part["verdict"].value_counts(normalize=True)
        wins = part.groupby(NET)["wins"].agg(["sum", "size"]).to_numpy()  # by net
        drawn = wins[generator.integers(len(wins), size=(draws, len(wins)))].sum(1)
        ends = np.quantile(drawn[:, 0] / drawn[:, 1], [0.025, 0.975])
        factor = float(part.loc[part["accurate"], "factor"].median())
        shares_of_kinds = [float(counts.get(kind, 0.0)) for kind in kinds]
        accurate = float(part["accurate"].mean())
        rows.append((*key, len(part), len(wins), *shares_of_kinds, *ends, accurate, factor))
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
        best = best_inside(compared)
        by_rule = shares(compared, ["rule", "use"]).set_index(["rule", "use"])
        passes = compared.groupby("rule", observed=True)["passes"].agg(["min", "max"])
        return {
            "answer": answer(best),
            "noise_shares": noise_shares(best),
            "compared_nets": len(_complete(best).drop_duplicates(NET)),
            "compared_widths": _widths(best),
            "without_limits": _by_noise(best_inside(compared.assign(accurate=True))),
            "figures": [_wins(best), _crossings(crossovers(best))],
            "nets": len(best.drop_duplicates(NET)),
            "depths": span(best["depth"], 0),
            "widths": span(best["width"], 0),
            "uses": TITLES,
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


def comparison(results: Results) -> pd.DataFrame | None:
    """Return the factors of compute of all settings, None if they were not measured."""
    frame = results.frame
    if frame.empty:
        return None
    rows = frame[frame["experiment"] == EXPERIMENT.name]
    if not rows["metric"].isin(USES).any():
        return None
    return factors(rows[["objective", "seed", "rule", "metric", "component", "value"]])


def answer(best: pd.DataFrame) -> str:
    """Say in which settings looking inside wins, from one rule of each setting."""
    by_part = {part: share for _, part, share in noise_shares(best)}
    sentence = (
        f"On nets of {_widths(best)} units a layer, a rule that looks inside the net is accurate enough and "
        f"takes less than half the operations of the best sampler in {_by_noise(best)}."
    )
    if not {_MOMENTS, _OTHERS} <= by_part.keys():
        return sentence
    return (
        f"{sentence} At larger noise, the share is {by_part[_MOMENTS]} for means and standard deviations of "
        f"nets with one or two hidden layers, and {by_part[_OTHERS]} otherwise."
    )


def noise_shares(best: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Return the share of settings in which looking inside wins, by noise and by uses and depths."""
    best = _complete(best)
    large = best["noise"] > 1
    shallow = (best["depth"] <= SHALLOW) & best["use"].isin(("mean", "standard_deviation"))
    above = "above one kink distance"
    rows = (
        ("below one kink distance", "all", best["noise"] < 1),
        ("one kink distance", "all", best["noise"] == 1),
        (above, "all", large),
        (above, _MOMENTS, large & shallow),
        (above, _OTHERS, large & ~shallow),
    )
    return [(noise, part, _share(best[chosen])) for noise, part, chosen in rows if chosen.any()]


def _complete(best: pd.DataFrame) -> pd.DataFrame:
    """Leave out widths that lack some depths: looking inside wins more often on shallow nets."""
    depths = best.groupby("width")["depth"].nunique()
    return best[best["width"].isin(depths.index[depths == depths.max()])]


def _widths(best: pd.DataFrame) -> str:
    return listed([str(width) for width in sorted(set(_complete(best)["width"]))])


def _by_noise(best: pd.DataFrame) -> str:
    words = {
        "below one kink distance": " of settings at noise below one kink distance",
        "one kink distance": " at one",
        "above one kink distance": " above",
    }
    return listed([share + words[noise] for noise, part, share in noise_shares(best) if part == "all"])


def _share(best: pd.DataFrame) -> str:
    share, low, high = (shares(best.assign(all=0), ["all"])[["inside", "low", "high"]].to_numpy() * 100)[0]
    return f"{share:.0f} % ({low:.0f} to {high:.0f} %)"


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
        "over nets. One kink distance is the noise at which, for half of the hidden units with a gradient, "
        "the kink is at most one standard deviation away. "
        "At 0.01, many settings are unresolved, since both are more accurate than the oracle shows.",
        drawing,
    )


@look()
def _crossings(crossings: pd.DataFrame) -> Figure:
    import seaborn as sns

    sized = crossings.assign(size=np.log10(crossings["crossing"].clip(1e-3, None)))
    present = set(zip(sized["training"], sized["activation"], strict=True))
    kinds = [kind for kind in KINDS if kind in present]
    titles = [TITLES[use] if kind == kinds[0] else "" for kind in kinds for use in USES]
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
    )
    for ax, (kind, use) in zip(axes, itertools.product(kinds, USES), strict=True):
        training, activation = kind
        of_kind = sized[(sized["training"] == training) & (sized["activation"] == activation)]
        part = of_kind[of_kind["use"] == use]
        ax.set_title(ax.get_title(loc="left"), fontsize=SMALL)
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
        else:
            ax.set_yticks([])
    return Figure(
        "figure-crossover",
        "Largest noise at which looking inside the net wins",
        "In kink distances, by depth (rows) and width (columns); least and largest over nets. 0: at none of "
        "the five levels from 0.01 to 100.",
        drawing,
        cells=True,
    )


def _ends(levels: pd.Series[float]) -> str:
    texts = [f"{end:g}".removeprefix("0") or "0" for end in (levels.min(), levels.max())]
    return "–".join(dict.fromkeys(texts))
