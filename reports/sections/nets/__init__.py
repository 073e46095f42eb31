"""The section on nets, their accuracies, and the choice of their recipes."""

from __future__ import annotations

import math
from typing import Any

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
        rows = results.columns_with_oracle(columns).drop_duplicates("net")[columns]
        rows = rows.astype({"depth": int, "seed": "Int64"}).rename(columns={"net": "digest"})
        known = rows.to_dict("records")
    nets = [{key: net.get(key, "") for key in _KEYS} for net in known]
    for net in nets:
        kind = NetKind(net["activation"], net["depth"])
        accuracy = math.nan if net["accuracy"] in ("", None) else float(net["accuracy"])
        poor = accuracy < POOR_ACCURACY and not kind.is_classifier
        net |= {"kind": kind, "accuracy": accuracy, "poor": poor}
    return nets
