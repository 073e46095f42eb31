"""The section on nets, their accuracies, and the choice of their recipes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ....bench.nets import recipes
from ...results import POOR_ACCURACY, Results
from ...section import Context, Section
from ...site import NETS
from ...style.names import NetKind


class NetsOfRuns(Section):
    name = "nets"
    title = "Nets"
    page = NETS
    order = 150

    def build(self, results: Results) -> Context | None:
        nets = [_net(net) for net in results.meta.get("nets", ())]
        trials = [(NetKind(trial.activation, trial.depth), trial) for trial in recipes.evidence()]
        return {"nets": nets, "poor": POOR_ACCURACY, "trials": trials} if nets else None


def _net(recorded: Mapping[str, Any]) -> dict[str, Any]:
    kind = NetKind(recorded["activation"], recorded["depth"])
    accuracy = math.nan if recorded["accuracy"] is None else float(recorded["accuracy"])
    poor = accuracy < POOR_ACCURACY and not kind.is_classifier
    return {**recorded, "kind": kind, "accuracy": accuracy, "poor": poor}
