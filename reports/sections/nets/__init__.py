"""The section on nets, their accuracies, and the choice of their recipes."""

from __future__ import annotations

from typing import Any

import pandas as pd

from sdp_bench.bench.nets import recipes
from sdp_bench.reports.results import POOR_ACCURACY, Results
from sdp_bench.reports.section import Context, Section
from sdp_bench.reports.site import NETS
from sdp_bench.reports.style.names import NetKind

_KEYS = ("network", "activation", "depth", "seed", "digest", "accuracy", "recipe", "source")


class Nets(Section):
    name = "nets"
    title = "Nets"
    page = NETS
    order = 150

    def build(self, results: Results) -> Context | None:
        nets = _nets(results)
        trials = [(NetKind(trial.activation, trial.depth), trial) for trial in recipes.evidence()]
        return {"nets": nets, "poor": POOR_ACCURACY, "trials": trials} if nets else None


def _nets(results: Results) -> list[dict[str, Any]]:
    """Nets recorded by the run, otherwise those of the measurements."""
    known = list(results.meta.get("nets", ()))
    if not known:
        columns = ["network", "activation", "depth", "seed", "net", "accuracy"]
        rows = (
            results.columns_with_oracle(columns)
            .drop_duplicates("net")[columns]
            .rename(columns={"net": "digest"})
        )
        known = rows.astype({"depth": int, "seed": "Int64"}).to_dict("records")
    nets = [{key: net.get(key, "") for key in _KEYS} for net in known]
    accuracies = pd.to_numeric(pd.Series([net["accuracy"] for net in nets], dtype=object), errors="coerce")
    kinds = [NetKind(net["activation"], net["depth"]) for net in nets]
    return [
        net
        | {
            "kind": kind,
            "accuracy": float(accuracy),
            "poor": bool(accuracy < POOR_ACCURACY) and not kind.is_classifier,
        }
        for net, kind, accuracy in zip(nets, kinds, accuracies, strict=True)
    ]
