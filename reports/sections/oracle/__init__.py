"""The section on the oracle's own error: a second oracle, ten times the samples, and precision."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from ....bench.metrics import recorded_metric
from ....bench.metrics.references import ORACLE_AGAIN
from ....bench.results.columns import filled
from ...numbers import Number, NumberGroup, Page, slug
from ...results import Results
from ...section import Context, Section
from ...site import MEASURED
from ...statistics.ranking import labels_of
from ...style.names import NetKind, activation_rank

ONCE, TENFOLD = "iris-oracle", "iris-oracle-10x"

_LAW = ["activation", "depth", "noise", "sigma", "net", "input", "samples"]
_ABOUT = (
    "A second oracle is measured instead of a rule, and rules are measured with ten times the samples. The "
    "largest changes, in standard errors, come first. The floor of a ratio is for a rule without sampling "
    "noise, so the error of a second oracle can be √2 times as large."
)


class OracleError(Section):
    name = "oracle"
    title = "The oracle’s error"
    page = MEASURED
    order = 90
    experiments = (ONCE, TENFOLD)

    def build(self, results: Results) -> Context | None:
        drawn = precision(results.once_a_unit((*_LAW, "precision"), ["precision"]))
        if not drawn["oracles"]:
            return None
        return {"oracle_errors": oracle_errors(results.frame), "oracle_precision": drawn}

    def numbers(self, results: Results, context: Context) -> Iterator[Number]:  # noqa: ARG002
        page = Page("oracle.html", "The oracle’s own error", ONCE, self.name, _ABOUT)
        of_oracle = ("sigma", "component", "samples")
        for error in context["oracle_errors"]:
            metric = error["metric"]
            group = NumberGroup(page, metric.name, metric.title, metric)
            if rows := error["again_rows"]:
                title = "A second oracle instead of a rule"
                yield Number(group, slug(metric.name, "again"), title, math.nan, rows, of_oracle)
            if rows := error["moved_rows"]:
                title = "The same with ten times the samples"
                varies = ("rule", *of_oracle)
                yield Number(group, slug(metric.name, "moved"), title, math.nan, rows, varies, ordered=True)


def oracle_errors(frame: pd.DataFrame) -> list[Context]:
    """Errors by metric; empty if the experiments were not run.

    `below` of `again` measurements of a second oracle are below the floor's 95 % point. `largest` and `rms`
    are of the `moves` of rules with both sample counts, in standard errors. `moved_rows` has the pairs.
    """
    measurements = frame[frame["experiment"].isin((ONCE, TENFOLD))]
    errors: list[Context] = []
    for name, part in measurements.groupby("metric", sort=False):
        metric = recorded_metric(str(name))
        again = part[part["rule"] == ORACLE_AGAIN.name]
        value, floor, floor95 = again[["value", "floor", "floor95"]].to_numpy(float).T
        if metric.better == "one":
            # The floor of a ratio is that of a rule without noise; a second oracle adds the same noise again.
            floor95 = floor + math.sqrt(2) * (floor95 - floor)
        moves = _moves(part[part["rule"] != ORACLE_AGAIN.name])
        errors.append(
            {
                "metric": metric,
                "again": len(again),
                "below": int(metric.indistinguishable(value, floor, floor95).sum()),
                "moves": len(moves),
                "largest": float(moves["z"].abs().max()) if len(moves) else math.nan,
                "rms": float(np.sqrt((moves["z"] ** 2).mean())) if len(moves) else math.nan,
                "shift": float(moves["shift"].abs().max()) if len(moves) else math.nan,
                "again_rows": labels_of(again.index),
                "moved_rows": moves[["row_1", "row_10"]].to_numpy(np.int32).tobytes(),
            }
        )
    return errors


def precision(frame: pd.DataFrame) -> Context:
    """Precision in which oracles were drawn.

    `unchecked` of the `oracles` have no recorded precision: they were drawn in that of the net, sufficient or
    not. `double` lists the cases that needed float64: kind of net, noise scale, and the number of oracles.
    """
    precisions = filled(frame["precision"])
    drawn = frame.assign(
        noise=filled(frame["noise"]),
        samples=filled(frame["samples"]),
        double=precisions == "float64",
        known=precisions != "",
    )
    oracles = drawn.groupby(_LAW)[["double", "known"]].any().reset_index()
    counts = oracles.groupby(_LAW[:4])["double"].agg(["sum", "size"]).reset_index()
    counts = counts[counts["sum"] > 0]
    counts = counts.assign(rank=[activation_rank(activation) for activation in counts["activation"]])
    double = []
    for row in counts.sort_values(["rank", "depth", "noise", "sigma"], kind="stable").to_dict("records"):
        scale = f"{row['sigma']:g}"
        if row["noise"] not in ("", "gaussian"):
            scale += f" ({row['noise']})"
        label = NetKind(row["activation"], int(row["depth"])).label
        double.append((label, scale, f"{row['sum']} of {row['size']}"))
    return {"oracles": len(oracles), "unchecked": int((~oracles["known"]).sum()), "double": double}


def _moves(part: pd.DataFrame) -> pd.DataFrame:
    """Changes of values with ten times the samples, the largest in standard errors first."""
    rows = part.assign(row=part.index).set_index(["net", "input", "sigma", "rule", "component"])
    columns = ["value", "stderr", "row"]
    once = rows.loc[rows["experiment"] == ONCE, columns]
    tenfold = rows.loc[rows["experiment"] == TENFOLD, columns]
    both = once.join(tenfold, lsuffix="_1", rsuffix="_10", how="inner")
    shift = both["value_10"] - both["value_1"]
    error = np.hypot(both["stderr_1"], both["stderr_10"])
    moved = both[["row_1", "row_10"]].assign(shift=shift, z=shift / error)[error > 0]
    return moved.iloc[np.argsort(-moved["z"].abs().to_numpy(), kind="stable")]
