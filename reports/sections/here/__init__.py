"""The section that compares measurements of this machine with the committed results."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ....bench.results.columns import same_number
from ...results import MEASUREMENT, Results
from ...section import Context, Section
from ...site import OVERVIEW
from ...style import labels

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

    def build(self, results: Results) -> Context | None:
        if results.committed is None or results.frame.empty:
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

    def notes(self, context: Context) -> Iterable[str]:
        return [context["whole"].sentence]


def agreement(here: pd.DataFrame, committed: pd.DataFrame) -> tuple[Agreement, list[Agreement]]:
    """Compare measurements with the committed ones, all together and by experiment.

    Both frames are those of `Results`, with the keys of their units. Experiments are in order of appearance.
    """
    identities, known = (pd.MultiIndex.from_frame(frame[MEASUREMENT]) for frame in (here, committed))
    first = ~known.duplicated()
    place = known[first].get_indexer(identities)
    found, value = place >= 0, here["value"].to_numpy()
    theirs, error = committed[["value", "stderr"]][first].to_numpy(float)[place].T
    differs = found & (value != theirs)
    pairs = zip(value[differs], theirs[differs], error[differs], strict=True)
    differs[differs] = [not same_number(*pair) for pair in pairs]
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = np.where(error > 0, np.abs(value - theirs) / error, math.inf)
    frame = here.assign(found=found, differs=differs, committed=theirs, gap=gap)
    by_experiment = frame.groupby("experiment", sort=False, observed=True)
    return _of("", frame[~identities.duplicated()]), [_of(str(name), own) for name, own in by_experiment]


def _of(experiment: str, own: pd.DataFrame) -> Agreement:
    apart = own[own["differs"]].sort_values("gap", ascending=False, kind="stable")
    return Agreement(experiment, len(own), int(own["found"].sum()), apart)
