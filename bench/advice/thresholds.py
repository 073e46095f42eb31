"""Thresholds of the advice, and how often it is wrong, from the measured calibration."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pandas as pd

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
    and the ends of its 95 % interval, from 2000 resamples of nets. `by` is another column to group by.
    """
    held = calibration()
    held = held[held["held_out"]]
    low, high = (held["use"].map({use: ends[end] for use, ends in thresholds().items()}) for end in (0, 1))
    yes, no = held["index"] <= low, held["index"] > high
    held = held.assign(given=yes | no, wrong=(yes & ~held["small"]) | (no & held["small"]))
    generator = np.random.default_rng(0)
    rows = []
    for key, own in held.groupby([*([by] if by else []), "use"], sort=False):
        nets = own.groupby("net")[["wrong", "given"]].sum().to_numpy()
        drawn = nets[generator.integers(len(nets), size=(_DRAWS, len(nets)))].sum(1)
        shares = drawn[:, 0] / np.maximum(drawn[:, 1], 1)
        given, ends = own["given"], np.quantile(shares, [0.025, 0.975])
        wrong = own["wrong"].sum() / max(given.sum(), 1)
        rows.append((*key, len(nets), len(own), own["small"].mean(), 1 - given.mean(), wrong, *ends))
    names = ["nets", "settings", "small", "abstained", "wrong", "wrong_low", "wrong_high"]
    return pd.DataFrame(rows, columns=[*([by] if by else []), "use", *names])
