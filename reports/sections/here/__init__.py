"""The section that compares measurements of this machine with the committed results."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sdp_bench.bench.results.record import same_number
from sdp_bench.reports.results import MEASUREMENT, Results
from sdp_bench.reports.section import Context, Section
from sdp_bench.reports.site import OVERVIEW
from sdp_bench.reports.style import labels

MOST_ROWS = 20
"""Number of listed measurements that disagree."""

_OTHER = "other nets, inputs, settings, rules or metrics"


@dataclass(frozen=True)
class Agreement:
    """Measurements of one experiment, or of all (no name), compared with the committed ones.

    `compared` of the `measured` ones are among the committed ones. `apart` has those that disagree by more
    than rounding, largest first, with the columns `committed` and `gap`, in standard errors of the committed
    value (infinite if it has none).
    """

    experiment: str
    measured: int
    compared: int
    apart: pd.DataFrame

    @property
    def equal(self) -> int:
        return self.compared - len(self.apart)

    @property
    def sentence(self) -> str:
        counted = labels.plural(self.measured, "measurement")
        if not self.compared:
            return (
                f"None of the {counted} made here is among the committed ones ({_OTHER}), so there is "
                "nothing to compare."
            )
        alone = self.measured - self.compared
        rest = f" {alone} {'has' if alone == 1 else 'have'} no counterpart ({_OTHER})." if alone else ""
        if len(self.apart):
            return (
                f"{len(self.apart)} of the {self.compared} measurements that were made here and are among "
                f"the committed ones differ by more than rounding; {self.equal} agree.{rest}"
            )
        return (
            f"All {self.compared} measurements that were made here and are among the committed ones agree "
            f"with them, rounding apart: this installation computes what it should.{rest}"
        )


class MeasuredHere(Section):
    name = "here"
    title = "Measured here"
    page = OVERVIEW
    order = 15
    beside = True

    def build(self, results: Results) -> Context | None:
        if results.committed is None or results.frame.empty or "unit" not in results.frame:
            return None
        whole, by_experiment = agreement(results.frame, results.committed.frame)
        described = results.meta.get("environment", {})
        machine = [described.get("cpu"), f"torch {described['torch']}" if "torch" in described else None]
        return {
            "whole": whole,
            "experiments": by_experiment,
            "machine": ", ".join(filter(None, machine)),
            "rows": whole.apart.head(MOST_ROWS).to_dict("records"),
        }

    def said(self, context: Context) -> Iterable[str]:
        return [context["whole"].sentence]


def agreement(here: pd.DataFrame, committed: pd.DataFrame) -> tuple[Agreement, list[Agreement]]:
    """Compare measurements with the committed ones, all together and by experiment.

    Both frames are those of `Results`, with the keys of their units. Experiments are in order of appearance.
    """
    identities, known = (pd.MultiIndex.from_frame(frame[MEASUREMENT]) for frame in (here, committed))
    first = ~known.duplicated()
    place = known[first].get_indexer(identities)
    found = place >= 0
    counterpart = committed[first].iloc[place[found]]
    value, theirs = here["value"].to_numpy()[found], counterpart["value"].to_numpy()
    error = counterpart["stderr"].to_numpy()
    differs = value != theirs
    differs[differs] = [
        not same_number(*each) for each in zip(value[differs], theirs[differs], error[differs], strict=True)
    ]
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = np.where(error > 0, np.abs(value - theirs) / error, math.inf)
    rows = np.flatnonzero(found)[differs]
    gap = pd.Series(gap[differs]).fillna(math.inf).to_numpy()
    apart = here.iloc[rows].assign(committed=theirs[differs], gap=gap)
    once = ~identities.duplicated()
    whole = _of("", once, found, apart[once[rows]])
    return whole, [
        _of(str(name), own, found, apart[own[rows]])
        for name in here["experiment"].unique()
        for own in [(here["experiment"] == name).to_numpy()]
    ]


def _of(experiment: str, own: NDArray[np.bool_], found: NDArray[np.bool_], apart: pd.DataFrame) -> Agreement:
    farthest = apart.sort_values("gap", ascending=False, kind="stable")
    return Agreement(experiment, int(own.sum()), int((own & found).sum()), farthest)
