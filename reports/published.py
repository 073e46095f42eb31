"""The numbers the paper prints, and which of them a result may be set beside."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import pandas as pd

MISPRINTED = ("tv_main", "w1_main")


@dataclass(frozen=True)
class Printed:
    """One cell of one of the paper's tables: its text as printed, and the same as numbers."""

    value: str
    sd: str
    label: str

    @property
    def mean(self) -> float:
        """Printed value."""
        return float(self.value)

    @property
    def spread(self) -> float:
        """Printed standard deviation; NaN where the paper prints none."""
        return float(self.sd) if self.sd else math.nan


@cache
def _tables() -> pd.DataFrame:
    paths = [path for path in (files("reports") / "paper").iterdir() if path.name.endswith(".csv")]
    parts = []
    for path in sorted(paths, key=lambda path: path.name):
        with path.open("r", encoding="utf-8") as lines:
            part = pd.read_csv(lines, dtype=str, keep_default_na=False)
        parts.append(part.assign(table=path.name.removesuffix(".csv")))
    return pd.concat(parts, ignore_index=True).astype({"depth": int, "sigma": float})


def tables() -> pd.DataFrame:
    """Every simulation table of the paper, in long format.

    Returns
    -------
    DataFrame
        The columns of ``reports/paper/*.csv`` (`value` and `sd` are text, as printed; `sd` is empty where
        the paper prints none) and `table`, the file's name.
    """
    return _tables().copy()


def comparison() -> pd.DataFrame:
    """Rows that results may be set beside: all but the main text's two misprinted tables.

    The main text's Table 2 shows the 6-ReLU net's W1 for "4 ReLU", and the "k=100" column of Table 1 is the
    k=5 column; the supplement has both right (see ``reports/paper/README.md``).
    """
    frame = _tables()
    return frame[~frame["table"].isin(MISPRINTED)].reset_index(drop=True)


@cache
def _index() -> dict[tuple[str, str, int, str, str, str], Printed]:
    index = {}
    for row in comparison().to_dict("records"):
        key = (*(row[name] for name in ("metric", "activation", "depth")), f"{row['sigma']:g}")
        index[(*key, row["method"], row["component"])] = Printed(row["value"], row["sd"], row["label"])
    return index


def printed(
    metric: str, activation: str, depth: int, sigma: float, method: str, component: str = ""
) -> Printed | None:
    """What the paper prints for one cell, or None where it prints nothing.

    Parameters
    ----------
    metric
        ``1-tv``, ``w1`` or ``std_ratio``.
    activation
        Name of the non-linearity; ``leaky_relu`` has negative slope 0.1, in the paper and in our nets.
    depth
        Number of hidden layers.
    sigma
        Standard deviation of the input noise.
    method
        Rule, as a spec string.
    component
        Output (``"0"``, ...) for ``std_ratio``, else empty.
    """
    return _index().get((metric, activation, int(depth), f"{sigma:g}", method, component))
