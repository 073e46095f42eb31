"""At what fidelity each suite was run, beside the paper's design."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from bench.suites import SUITES
from reports import labels

SAMPLES = 10**6
W1_POINTS = 30_000


@dataclass(frozen=True)
class Fidelity:
    """One suite on one kind of net: nets, inputs of each, samples and points of W1 a side (0: none).

    `full` says whether these are the suite's own design or more: for the paper's tables that is the
    paper's, 10 nets by 10 inputs with 10^6 samples and, for W1, 30 000 points.
    """

    suite: str
    layers: str
    nets: int
    inputs: str
    samples: int
    points: int
    poor: int
    full: bool


def fidelity(frame: pd.DataFrame, poor: float) -> list[Fidelity]:
    """What was run, by suite and kind of net.

    Parameters
    ----------
    frame
        Measurements as :func:`reports.tables.checked` gives them, with `samples` and `metric_spec`.
    poor
        Training accuracy below which a net counts as one that did not learn.
    """
    if frame.empty or not {"samples", "metric_spec"} <= set(frame.columns):
        return []
    found = []
    for (suite, activation, depth), part in frame.groupby(["suite", "activation", "depth"], sort=True):
        counts = part.drop_duplicates(["net", "input"]).groupby("net")["input"].size()
        nets = part.drop_duplicates("net")
        specs = part["metric_spec"].unique()
        points = max((_points(str(spec)) for spec in specs), default=0)
        samples = int(part["samples"].min())
        low, high = int(counts.min()), int(counts.max())
        found.append(
            Fidelity(
                suite=str(suite),
                layers=labels.layers_label(str(activation), int(depth)),  # type: ignore[call-overload]
                nets=len(nets),
                inputs=f"{low}" if low == high else f"{low}-{high}",
                samples=samples,
                points=points,
                poor=int((nets["accuracy"] < poor).sum()),
                full=_full(str(suite), len(nets), low, samples, points),
            )
        )
    return found


def _full(suite: str, nets: int, inputs: int, samples: int, points: int) -> bool:
    design = SUITES[suite].size if suite in SUITES else (10, 10)
    enough = points >= W1_POINTS if suite in ("iris-w1", "iris-w1-certified") else True
    return nets >= design[0] and inputs >= design[1] and samples >= SAMPLES and enough


def _points(spec: str) -> int:
    _, _, rest = spec.partition(":")
    options = dict(item.split("=") for item in rest.split(",") if "=" in item)
    return int(options.get("w1_points", options.get("certified_points", 0)))
