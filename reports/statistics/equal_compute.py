"""Compute that a sampler needs for the accuracy of a rule, from the measurements of the study `compute`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sdp_bench.bench.advice import thresholds as advice
from sdp_bench.bench.studies.compute import RULES, SAMPLERS, SIZES, USES

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
_RESOLVED = 1.5  # an error, relative to that of the oracle

Array = NDArray[np.float64]


def factors(records: pd.DataFrame) -> pd.DataFrame:
    """Compare each rule with the samplers at the same error.

    `records` has the columns `objective` (``relu 8x256 trained``), `seed`, `rule`, `metric`, `component` (the
    noise level) and `value`. The result has a row for each setting and rule: `error` and `passes` of the
    rule, whether it is `accurate`, the `sampler` that reaches its error with fewest `needed` passes, and the
    `factor` needed / passes. The oracle's own error is subtracted in quadrature. With `bound`, the error of
    the rule, or of the sampler's smallest size, is below what the oracle resolves, and the factor is a lower
    bound. Of repeated measurements, with oracles of several sizes, the last one counts.
    """
    own = records.astype(dict.fromkeys(("rule", "objective", "metric"), str))
    own = own.drop_duplicates(["objective", "seed", "rule", "metric", "component"], keep="last")
    parts = own["objective"].drop_duplicates()
    nets = parts.str.extract(r"(?P<activation>\w+) (?P<depth>\d+)x(?P<width>\d+) (?P<training>\w+)")
    own = own.merge(nets.assign(objective=parts), on="objective").astype({"depth": int, "width": int})
    passes = own[own["metric"] == "operations"].pivot(index=NET, columns="rule", values="value")
    errors = own[own["metric"].isin(USES)].rename(columns={"metric": "use", "component": "noise"})
    errors = errors.assign(noise=errors["noise"].astype(str).astype(float))
    errors = errors.pivot(index=SETTING, columns="rule", values="value")
    errors = errors[errors["oracle"] > 0]  # else the class is certain, and every method is right
    oracle = errors["oracle"].to_numpy()[:, None]
    raw = errors.to_numpy()
    resolved = pd.DataFrame(raw > _RESOLVED * oracle, errors.index, errors.columns)
    floor = np.where(np.isnan(raw), raw, oracle)
    corrected = np.where(resolved, np.sqrt(np.maximum(raw**2 - oracle**2, 0)), floor)
    errors = pd.DataFrame(corrected, errors.index, errors.columns)
    counts = passes.reindex(pd.MultiIndex.from_frame(errors.reset_index()[NET]))
    found = []
    for rule in (rule for rule in RULES if rule in errors):
        error, cost = errors[rule].to_numpy(), counts[rule].to_numpy()
        accurate = error <= errors.index.get_level_values("use").map(LIMITS).to_numpy(float)
        needed = pd.DataFrame(index=errors.index)
        for sampler in SAMPLERS:
            names = [f"{sampler}:samples={size}" for size in SIZES]
            samples = _samples(error, errors[names].to_numpy())
            samples[~resolved[names[0]] & errors[names[0]].notna()] = 1.0
            first, last = counts[names[0]].to_numpy(), counts[names[-1]].to_numpy()
            # passes are linear in the number of samples: the control variate also takes a Jacobian
            needed[sampler] = first + (samples - SIZES[0]) * (last - first) / (SIZES[-1] - SIZES[0])
        best, least = needed.fillna(np.inf).idxmin(axis=1), needed.min(axis=1)
        smallest = resolved[[f"{sampler}:samples={SIZES[0]}" for sampler in SAMPLERS]].to_numpy()
        columns = {
            "rule": rule,
            "error": error,
            "accurate": accurate,
            "bound": ~resolved[rule] | (accurate & ~smallest[range(len(best)), best.map(SAMPLERS.index)]),
            "passes": cost,
            "sampler": best,
            "needed": least,
            "factor": least / cost,
        }
        found.append(needed.assign(**columns)[list(columns)][~np.isnan(error)].reset_index())
    return pd.concat(found, ignore_index=True)


def _samples(error: Array, errors: Array) -> Array:
    """Return the number of samples with which a sampler has an error, from its errors (n, sizes) by size.

    Interpolated linearly in the logarithms, and beyond the measured sizes as the inverse square of the error;
    at least one sample.
    """
    errors = np.minimum.accumulate(errors, axis=1)
    after = np.clip((errors > error[:, None]).sum(1), 1, errors.shape[1] - 1)
    x, y = np.log(errors), np.log(np.array(SIZES, float))
    x0, x1 = (np.take_along_axis(x, place[:, None], 1)[:, 0] for place in (after - 1, after))
    y0, y1 = y[after - 1], y[after]
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = y0 + (y1 - y0) * (np.log(error) - x0) / (x1 - x0)
        low, high = (y[end] + 2 * (x[:, end] - np.log(error)) for end in (0, -1))
    found = np.where(error >= errors[:, 0], low, np.where(error <= errors[:, -1], high, inside))
    return np.asarray(np.exp(np.maximum(found, 0)))


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
    found = np.select(kinds, ["inside", "unresolved", "sampling"], default="tied")
    return pd.Series(found, index=compared.index)


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
    own = compared.assign(verdict=verdicts(compared))
    generator = np.random.default_rng(0)
    rows = []
    for key, part in own.groupby(by, observed=True, sort=False):
        counts = part["verdict"].value_counts(normalize=True)
        wins = (
            part.assign(wins=part["verdict"] == "inside").groupby(NET)["wins"].agg(["sum", "size"]).to_numpy()
        )
        drawn = wins[generator.integers(len(wins), size=(draws, len(wins)))].sum(1)
        ends = np.quantile(drawn[:, 0] / drawn[:, 1], [0.025, 0.975])
        factor = float(part.loc[part["accurate"], "factor"].median())
        said = [float(counts.get(kind, 0.0)) for kind in kinds]
        rows.append((*key, len(part), len(wins), *said, *ends, float(part["accurate"].mean()), factor))
    names = ["settings", "nets", *kinds, "low", "high", "accurate", "factor"]
    return pd.DataFrame(rows, columns=[*by, *names])
