"""Numbers printed in the paper, and the cells of our tables that they can be compared with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pandas as pd

from ...bench.nets.architectures import NETWORKS

FOLDER = Path(__file__).parent
MISPRINTED = ("tv_main", "w1_main")


@dataclass(frozen=True)
class Printed:
    """One cell of a table of the paper, as printed text and as numbers."""

    value: str
    sd: str
    label: str

    @property
    def mean(self) -> float:
        return float(self.value)

    @property
    def spread(self) -> float:
        """Printed standard deviation; NaN if the paper prints none."""
        return float(self.sd) if self.sd else math.nan


def _read(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, dtype=str, keep_default_na=False)


@cache
def simulation_tables() -> pd.DataFrame:
    """Return every simulation table of the paper, in long format: ``reports/paper/*.csv`` as text.

    The column `table` has the name of the file. `sd` is empty if the paper prints none.
    The frame is cached; copy it before a change.
    """
    tables = [_read(path).assign(table=path.stem) for path in sorted(FOLDER.glob("*.csv"))]
    return pd.concat(tables, ignore_index=True).astype({"depth": int, "sigma": float})


def experiment(name: str) -> pd.DataFrame:
    """Return one table of the paper's other experiments, in long format.

    `name` is the name of a file in ``reports/paper/experiments/`` without its suffix, such as
    ``interval_uci_main``. The columns are `label`, the axes of the table, `method`, `metric`, `value`, `sd`
    and, if the number has one, `unit`. All are text as printed (`sd` is empty if the paper prints none),
    except `sigma`, a float, and `batch_size`, an int.
    """
    frame = _read(FOLDER / "experiments" / f"{name}.csv")
    numbers = {"sigma": float, "batch_size": int}
    return frame.astype({column: kind for column, kind in numbers.items() if column in frame})


def comparison() -> pd.DataFrame:
    """Return the simulation rows to compare results with: all but two misprinted tables of the main text.

    Table 2 of the main text shows the W1 of the 6-ReLU net for "4 ReLU", and the "k=100" column of Table 1 is
    the k=5 column. The supplement has both right (see ``reports/paper/README.md``).
    """
    frame = simulation_tables()
    return frame[~frame["table"].isin(MISPRINTED)]


RESNETS = ("resnet18_max_pool", "resnet18")
"""Networks compared with the paper's "ResNet-18", closest first: its net has a max-pool."""


@cache
def _index() -> dict[tuple[str, str, int, str, str, str], Printed]:
    """Printed cells by metric, activation, depth, sigma, method and component."""
    images = experiment("tv_class_resnet18").assign(component="")
    tables = [comparison()]
    tables += [images.assign(activation=name, depth=NETWORKS[name].depth) for name in RESNETS]
    index = {}
    for row in pd.concat(tables).to_dict("records"):
        key = (
            row["metric"],
            row["activation"],
            row["depth"],
            f"{row['sigma']:g}",
            row["method"],
            row["component"],
        )
        index[key] = Printed(row["value"], row["sd"], row["label"])
    return index


def printed(
    metric: str, activation: str, depth: int, sigma: float, method: str, component: str = ""
) -> Printed | None:
    """Return what the paper prints for one cell, or None if it prints nothing.

    `metric` is ``1-tv``, ``w1``, ``std_ratio`` or ``tv_class``. `activation` is the name of a non-linearity
    or one of :data:`RESNETS`; ``leaky_relu`` has a negative slope of 0.1 in the paper and in our nets.
    `depth` is the number of hidden layers, `sigma` the standard deviation of the input noise, and `method`
    the spec of a rule. `component` is the output (``"0"``, ...) for ``std_ratio`` and empty otherwise.
    """
    return _index().get((metric, activation, int(depth), f"{sigma:g}", method, component))
