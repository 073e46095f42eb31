"""The numbers the paper prints, and which of them a result may be set beside."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

import pandas as pd

from sdp_bench.bench.nets.architectures import NETWORKS

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


def _files(*folder: str) -> dict[str, Traversable]:
    entries = [
        path for path in files("sdp_bench.reports.paper").joinpath(*folder).iterdir() if path.is_file()
    ]
    named = {path.name.removesuffix(".csv"): path for path in entries if path.name.endswith(".csv")}
    return dict(sorted(named.items()))


def _read(path: Traversable) -> pd.DataFrame:
    with path.open("r", encoding="utf-8") as lines:
        return pd.read_csv(lines, dtype=str, keep_default_na=False)


@cache
def _tables() -> pd.DataFrame:
    parts = [_read(path).assign(table=name) for name, path in _files().items()]
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


def experiments() -> tuple[str, ...]:
    """Names of the paper's other tables, those :func:`experiment` reads."""
    return tuple(_files("experiments"))


def experiment(name: str) -> pd.DataFrame:
    """One table of the paper's experiments other than the simulations, in long format.

    Parameters
    ----------
    name
        File name without ending in ``reports/paper/experiments/``, such as ``interval_uci_main``.

    Returns
    -------
    DataFrame
        The file's columns: `label`, the table's own axes, `method`, `metric`, `value`, `sd` and, where the
        number has one, `unit`. All are text as printed (`sd` is empty where the paper prints none), except
        `sigma`, which is a float, and `batch_size`, which is an int.

    Raises
    ------
    ValueError
        If there is no table of that name.
    """
    known = _files("experiments")
    if name not in known:
        raise ValueError(f"no table {name!r} in reports/paper/experiments; there are {', '.join(known)}")
    frame = _read(known[name])
    numbers = {"sigma": float, "batch_size": int}
    return frame.astype({column: kind for column, kind in numbers.items() if column in frame})


def comparison() -> pd.DataFrame:
    """Simulation rows that results may be set beside: all but the main text's two misprinted tables.

    The main text's Table 2 shows the 6-ReLU net's W1 for "4 ReLU", and the "k=100" column of Table 1 is the
    k=5 column; the supplement has both right (see ``reports/paper/README.md``).

    Returns
    -------
    DataFrame
        Columns as :func:`tables` has them.
    """
    frame = _tables()
    return frame[~frame["table"].isin(MISPRINTED)].reset_index(drop=True)


RESNETS = ("resnet18_max_pool", "resnet18")
"""Networks beside which the paper's numbers of "ResNet-18" stand, nearest first: its net has a max-pool."""


@cache
def _index() -> dict[tuple[str, str, int, str, str, str], Printed]:
    index = {}
    for row in comparison().to_dict("records"):
        key = (*(row[name] for name in ("metric", "activation", "depth")), f"{row['sigma']:g}")
        index[(*key, row["method"], row["component"])] = Printed(row["value"], row["sd"], row["label"])
    for row in experiment("tv_class_resnet18").to_dict("records"):
        for network in RESNETS:
            key = (row["metric"], network, NETWORKS[network].depth, f"{row['sigma']:g}")
            index[(*key, row["method"], "")] = Printed(row["value"], row["sd"], row["label"])
    return index


def printed(
    metric: str, activation: str, depth: int, sigma: float, method: str, component: str = ""
) -> Printed | None:
    """What the paper prints for one cell, or None where it prints nothing.

    Parameters
    ----------
    metric
        ``1-tv``, ``w1``, ``std_ratio`` or ``tv_class``.
    activation
        Name of the non-linearity, or one of :data:`RESNETS`; ``leaky_relu`` has negative slope 0.1, in the
        paper and in our nets.
    depth
        Number of hidden layers.
    sigma
        Standard deviation of the input noise.
    method
        Rule, as a spec string.
    component
        Output (``"0"``, ...) for ``std_ratio``, else empty.

    Returns
    -------
    Printed or None
    """
    return _index().get((metric, activation, int(depth), f"{sigma:g}", method, component))
