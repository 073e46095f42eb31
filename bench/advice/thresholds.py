"""Thresholds of the advice, its words, and how often it is wrong, from the measured calibration."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

PAIRS = 32
PASSES = 2 * PAIRS + 1
"""Evaluations of the net for one input and noise level."""

DEVIATIONS = "standard deviations and intervals"
LIMITS = {"class": 0.01, DEVIATIONS: math.log(1.05), "whole distribution": 0.05}
"""Errors that are small for a use: a total variation, the logarithm of a factor, and a total variation in
excess of that of an exact rule."""
Outcome = Literal["accurate", "inaccurate", "undecided"]

TABLE = Path(__file__).with_name("calibration.csv")
"""A row for each net, input, noise level and use: the index, and whether the error of linearisation is small.
`held_out` marks nets that played no part in the choice of thresholds."""
ALLOWED = 0.02
"""Share of wrong advice that the thresholds allow on the fitted nets, on either side."""
_DRAWS = 2000


@functools.cache
def calibration() -> pd.DataFrame:
    return pd.read_csv(TABLE)


@functools.cache
def thresholds() -> dict[str, tuple[float, float]]:
    """Return the thresholds `low` and `high` of the index by use, from the fitted nets.

    `low` is the largest one below which at most a share of :data:`ALLOWED` of the errors are not small, and
    `high` the smallest one above which at most that share are small.
    """
    fitted = calibration()
    fitted = fitted[~fitted["held_out"]].sort_values("index")
    found = {}
    for use, own in fitted.groupby("use", sort=False):
        index, small = own["index"].to_numpy(), own["small"].to_numpy()
        below = np.cumsum(~small) / np.arange(1, len(own) + 1)
        above = np.cumsum(small[::-1]) / np.arange(1, len(own) + 1)
        low = float(index[below <= ALLOWED].max(initial=-np.inf))
        found[str(use)] = low, max(low, float(index[::-1][above <= ALLOWED].min(initial=np.inf)))
    return found


def rates(by: str | None = None) -> pd.DataFrame:
    """How often the advice was wrong on nets that played no part in the thresholds, by use.

    Columns: `nets`, `settings` (an input at a noise level), `small` (the share of settings in which
    linearisation is accurate), `abstained` (share of settings), `wrong` (share of the advice that was given)
    with the ends of its 95 % interval, from 2000 resamples of families of nets, and the shares of wrong
    advice among settings called accurate and inaccurate. `by` is another column to group by.
    """
    held = calibration()
    held = held[held["held_out"]]
    low = held["use"].map({use: ends[0] for use, ends in thresholds().items()})
    high = held["use"].map({use: ends[1] for use, ends in thresholds().items()})
    held = held.assign(accurate=held["index"] <= low, inaccurate=held["index"] > high)
    held = held.assign(
        given=held["accurate"] | held["inaccurate"],
        wrong=(held["accurate"] & ~held["small"]) | (held["inaccurate"] & held["small"]),
    )
    generator = np.random.default_rng(0)
    rows = []
    for key, own in held.groupby([*([by] if by else []), "use"], sort=False):
        counts = own.groupby("family")[["wrong", "given"]].sum().to_numpy()
        drawn = counts[generator.integers(len(counts), size=(_DRAWS, len(counts)))].sum(1)
        ends = np.quantile(drawn[:, 0] / np.maximum(drawn[:, 1], 1), [0.025, 0.975])
        shares = [own.loc[own[name], "wrong"].mean() for name in ("given", "accurate", "inaccurate")]
        sizes = own["net"].nunique(), len(own), own["small"].mean(), 1 - own["given"].mean()
        rows.append((*key, *sizes, shares[0], *ends, *shares[1:]))
    names = ["nets", "settings", "small", "abstained", "wrong", "wrong_low", "wrong_high"]
    names += ["wrong_accurate", "wrong_inaccurate"]
    return pd.DataFrame(rows, columns=[*([by] if by else []), "use", *names])


def outcome_of(use: str, index: float) -> Outcome:
    """Compare an index with both thresholds of its use; infinite ones are undecided."""
    low, high = thresholds()[use]
    return "accurate" if index <= low else "inaccurate" if high < index < math.inf else "undecided"


def outcomes(rows: Sequence[Mapping[Any, Any]]) -> pd.DataFrame:
    """Return the advice by use and noise level: the mean index over inputs, its outcome, and most samples.

    `alike` of the `inputs` have the same outcome by themselves.
    """
    found = []
    for (use, sigma), own in pd.DataFrame(rows).groupby(["use", "sigma"], sort=False):
        index = float(own["index"].mean(skipna=False))
        outcome = outcome_of(str(use), index)
        alike = sum(outcome_of(str(use), one) == outcome for one in own["index"])
        found.append((str(use), sigma, index, int(own["samples"].max()), alike, len(own), outcome))
    return pd.DataFrame(found, columns=["use", "sigma", "index", "samples", "alike", "inputs", "outcome"])


def sentences(rows: Sequence[Mapping[Any, Any]], name: str) -> list[str]:
    """Advice in words, from rows with `sigma`: a line for each use and noise level, and the verdict last."""
    inputs = len({row["input"] for row in rows})
    lines = [f"advice for {name}, mean over {inputs} input{'s' if inputs > 1 else ''}, {PASSES} passes each"]
    where: dict[Outcome, list[str]] = {"accurate": [], "inaccurate": [], "undecided": []}
    for use, sigma, index, samples, alike, count, outcome in outcomes(rows).itertuples(index=False):
        where[outcome].append(f"{use} at σ = {sigma:g}")
        text = f"linearisation is {outcome}" if outcome != "undecided" else "undecided"
        if alike < count:
            text += f" on average (for {alike} of {count} inputs)"
        text += f", {_SIZES[use](index)}"
        if outcome == "inaccurate":
            text += f"; draw at least {samples:,} samples"
        lines.append(f"  {use}, σ = {sigma:g}: {text}")
    wrong = "; ".join(
        f"{row['use']} {100 * row['wrong']:.1f} % "
        f"({100 * row['wrong_low']:.1f} to {100 * row['wrong_high']:.1f} %)"
        for row in rates().to_dict("records")
    )
    lines.append(f"  how often such advice was wrong on other nets (95 % interval): {wrong}")
    lines.append(f"  events rarer than about 1 in {PAIRS} can be missed")
    advice: dict[Outcome, str] = {
        "accurate": "rely on linearisation (sdp) for",
        "inaccurate": "draw samples for",
        "undecided": "run `sdp-bench validate --net` for",
    }
    parts = [f"{advice[outcome]} {', '.join(own)}" for outcome, own in where.items() if own]
    return [*lines, f"verdict: for {name}, {'; '.join(parts)}"]


def _factor(size: float) -> str:
    return f"{100 * math.expm1(size):.2g} %" if size < 1 else f"a factor of {math.exp(size):.2g}"


_SIZES = {
    "class": lambda size: f"class probabilities off by about {100 * size:.2g} points (limit 1)",
    DEVIATIONS: lambda size: f"standard deviations off by about {_factor(size)} (limit 5 %)",
    "whole distribution": lambda size: f"total variation about {size:.2g} above an exact rule (limit 0.05)",
}
