"""Outcomes of the advice, its words, and how often it is wrong, from the measured calibration."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy import stats

SAMPLES = 10_000
"""Evaluations of the net for one input and noise level, unless an interval contains the limit."""
MAX_SAMPLES = 40_000
"""Most evaluations for one input and noise level."""

CLASS, DEVIATIONS, DISTRIBUTION = "class", "standard deviations and intervals", "whole distribution"
LIMITS = {CLASS: 0.01, DEVIATIONS: math.log(1.05), DISTRIBUTION: 0.05}
"""Errors that are small for a use: a total variation, the logarithm of a factor, and a total variation."""
Outcome = Literal["accurate", "inaccurate", "undecided"]
OUTCOMES: tuple[Outcome, ...] = ("accurate", "inaccurate", "undecided")

TABLE = Path(__file__).with_name("calibration.csv")
"""A row for each net, input, noise level and use: the index with its interval, and the error of
linearisation. `held_out` marks nets on which the method was not developed."""
NEAR, WIDER = 2, 10
"""Factors between error and limit for which error rates are reported."""
_DRAWS = 2000


@functools.cache
def calibration() -> pd.DataFrame:
    """The table, with the column `small`: whether the error is at most the limit of the use."""
    table = pd.read_csv(TABLE)
    return table.assign(small=table["error"] <= table["use"].map(LIMITS))


def near(table: pd.DataFrame, factor: float) -> pd.DataFrame:
    """Rows of a calibration with an error within a factor of the limit."""
    ratio = table["error"] / table["use"].map(LIMITS)
    return table[(ratio >= 1 / factor) & (ratio <= factor)]


def rates(by: str | None = None, within: float = math.inf) -> pd.DataFrame:
    """How often the advice was wrong on nets on which the method was not developed, by use.

    Columns: `nets`, `settings` (an input at a noise level), `small` (the share of settings in which
    linearisation is accurate), `abstained` (share of settings), `wrong` (share of the advice that was given)
    with the ends of its 95 % interval (the wider of the exact binomial one and one from 2000 resamples of
    families of nets), and the shares of wrong advice among settings called accurate and inaccurate. `by` is
    another column to group by, and `within` a factor between error and limit.
    """
    held = near(calibration().query("held_out"), within)
    outcomes = [outcome_of(*ends) for ends in held[["use", "low", "high"]].itertuples(index=False)]
    accurate = np.array(outcomes) == "accurate"
    inaccurate = np.array(outcomes) == "inaccurate"
    held = held.assign(
        accurate=accurate,
        inaccurate=inaccurate,
        given=accurate | inaccurate,
        wrong=(accurate & ~held["small"]) | (inaccurate & held["small"]),
    )
    generator = np.random.default_rng(0)
    rows = []
    for key, group in held.groupby([*([by] if by else []), "use"], sort=False):
        counts = group.groupby("family")[["wrong", "given"]].sum().to_numpy()
        wrong, given = counts.sum(0).tolist()
        exact = stats.binomtest(wrong, max(given, 1)).proportion_ci()
        drawn = counts[generator.integers(len(counts), size=(_DRAWS, len(counts)))].sum(1)
        low, high = np.quantile(drawn[:, 0] / np.maximum(drawn[:, 1], 1), [0.025, 0.975])
        low, high = min(low, exact.low), max(high, exact.high)
        shares = [group.loc[group[name], "wrong"].mean() for name in ("given", "accurate", "inaccurate")]
        sizes = group["net"].nunique(), len(group), group["small"].mean(), 1 - group["given"].mean()
        rows.append((*key, *sizes, shares[0], low, high, *shares[1:]))
    names = ["nets", "settings", "small", "abstained", "wrong", "wrong_low", "wrong_high"]
    names += ["wrong_accurate", "wrong_inaccurate"]
    return pd.DataFrame(rows, columns=[*([by] if by else []), "use", *names])


def outcome_of(use: str, low: float, high: float) -> Outcome:
    """Compare the interval of an index with the limit of its use; infinite ones are undecided."""
    limit = LIMITS[use]
    return "accurate" if high <= limit else "inaccurate" if limit < low < math.inf else "undecided"


def outcomes(rows: Sequence[Mapping[Any, Any]]) -> pd.DataFrame:
    """Return the advice by use and noise level: the mean index over inputs, its outcome, and most samples.

    The ends of the interval of the mean are the means of the ends. They hold even if all indices are biased
    alike, and undecided inputs alone give no decision. `accurate`, `inaccurate` and `undecided` are numbers
    of inputs by their own outcome.
    """
    advice = []
    for (use, sigma), group in pd.DataFrame(rows).groupby(["use", "sigma"], sort=False):
        index, low, high = group[["index", "low", "high"]].mean(skipna=False)
        counts = Counter(outcome_of(str(use), *ends) for ends in group[["low", "high"]].to_numpy())
        most = int(group["samples"].max())
        by_outcome = [counts[outcome] for outcome in OUTCOMES]
        advice.append((str(use), sigma, index, most, outcome_of(str(use), low, high), *by_outcome))
    return pd.DataFrame(advice, columns=["use", "sigma", "index", "samples", "outcome", *OUTCOMES])


def sentences(rows: Sequence[Mapping[Any, Any]], name: str) -> list[str]:
    """Advice in words, from rows with `sigma`: a line for each use and noise level, and the verdict last."""
    inputs, uses = len({row["input"] for row in rows}), {row["use"] for row in rows}
    over = "1 input" if inputs == 1 else f"{inputs} inputs"
    passes = f"{SAMPLES:,} passes each (up to {MAX_SAMPLES:,} near a limit)"
    lines = [f"advice for {name}, mean over {over}, {passes}"]
    where: dict[Outcome, list[str]] = {outcome: [] for outcome in OUTCOMES}
    for row in outcomes(rows).to_dict("records"):
        use, outcome, samples = row["use"], row["outcome"], row["samples"]
        setting = f"{use}, σ = {row['sigma']:g}"
        where[outcome].append(f"{use} at σ = {row['sigma']:g}")
        text = f"linearisation is {outcome}" if outcome != "undecided" else "undecided"
        counts = [f"{row[other]} {other}" for other in OUTCOMES if row[other]]
        if len(counts) > 1:
            text += f" on average (of {inputs} inputs, {', '.join(counts)})"
        text += f", {_SIZES[use](row['index'])}" if math.isfinite(row["index"]) else _NOT_FINITE
        if outcome == "inaccurate" and use == DEVIATIONS and samples > SAMPLES:
            text += f"; draw more than {SAMPLES:,} samples: few outputs determine the standard deviations, "
            text += "which are infinite for some heavy tails"
        elif outcome == "inaccurate":
            text += f"; draw at least {samples:,} samples"
        lines.append(f"  {setting}: {text}")
    wrong = "; ".join(
        f"{row['use']} {100 * row['wrong']:.1f} % "
        f"({100 * row['wrong_low']:.1f} to {100 * row['wrong_high']:.1f} %)"
        for row in rates().to_dict("records")
        if row["use"] in uses
    )
    lines.append(f"  how often such advice was wrong on other nets (95 % interval): {wrong}")
    if CLASS in uses:
        lines.append(
            "  class: the largest output; --no-class omits it if the outputs are not scores of classes"
        )
    lines.append(f"  events rarer than about 1 in {SAMPLES // 3:,} can be missed")
    advice: dict[Outcome, str] = {
        "accurate": "rely on linearisation (sdp) for",
        "inaccurate": "draw samples for",
        "undecided": "run `sdp-bench validate --net` for",
    }
    parts = [f"{advice[outcome]} {', '.join(settings)}" for outcome, settings in where.items() if settings]
    return [*lines, f"verdict: for {name}, {'; '.join(parts)}"]


_NOT_FINITE = ": outputs or derivatives are not finite"
_LARGE_FACTOR = 1000


def _factor(size: float) -> str:
    if size > math.log(_LARGE_FACTOR):
        return f"a factor above {_LARGE_FACTOR:,}"
    return f"{100 * math.expm1(size):.2g} %" if size < 1 else f"a factor of {math.exp(size):.2g}"


_SIZES = {
    CLASS: lambda size: f"class probabilities off by about {100 * size:.2g} points (limit 1)",
    DEVIATIONS: lambda size: f"standard deviations off by about {_factor(size)} (limit 5 %)",
    DISTRIBUTION: lambda size: f"total variation about {size:.2g} (limit 0.05)",
}
