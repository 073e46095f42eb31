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

    `compared` of the `measured` ones are among the committed ones. `different` has those that disagree by
    more than rounding, largest first, with the columns `committed` and `gap`, in standard errors of the
    committed value (infinite if it has none).
    """

    experiment: str
    measured: int
    compared: int
    different: pd.DataFrame

    @property
    def equal(self) -> int:
        return self.compared - len(self.different)

    @property
    def sentence(self) -> str:
        count = labels.plural(self.measured, "measurement")
        if not self.compared:
            return (
                f"None of the {count} made here is among the committed ones ({_OTHER}), so there is "
                "nothing to compare."
            )
        others = self.measured - self.compared
        remark = ""
        if others:
            remark = f" {others} {'has' if others == 1 else 'have'} no counterpart ({_OTHER})."
        if len(self.different):
            return (
                f"{len(self.different)} of the {self.compared} measurements that were made here and are "
                f"among the committed ones differ by more than rounding; {self.equal} agree.{remark}"
            )
        return (
            f"All {self.compared} measurements that were made here and are among the committed ones agree "
            f"with them, rounding apart: this installation computes what it should.{remark}"
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
        environment = results.meta.get("environment", {})
        machine = [environment.get("cpu")]
        if "torch" in environment:
            machine.append(f"torch {environment['torch']}")
        return {
            "whole": whole,
            "experiments": by_experiment,
            "machine": ", ".join(filter(None, machine)),
            "rows": whole.different.head(MOST_ROWS).to_dict("records"),
        }

    def notes(self, context: Context) -> Iterable[str]:
        return [context["whole"].sentence]


def agreement(here: pd.DataFrame, committed: pd.DataFrame) -> tuple[Agreement, list[Agreement]]:
    """Compare measurements with the committed ones, all together and by experiment.

    Both frames are those of `Results`, with the keys of their units. Experiments are in order of appearance.
    """
    identities = pd.MultiIndex.from_frame(here[MEASUREMENT])
    committed = committed[~committed.duplicated(MEASUREMENT)]
    rows = pd.MultiIndex.from_frame(committed[MEASUREMENT]).get_indexer(identities)
    is_committed = rows >= 0
    value = here["value"].to_numpy()
    committed_value = committed["value"].to_numpy(float)[rows]
    error = committed["stderr"].to_numpy(float)[rows]
    differs = is_committed & (value != committed_value)
    for row in np.flatnonzero(differs):
        differs[row] = not same_number(value[row], committed_value[row], error[row])
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = np.where(error > 0, np.abs(value - committed_value) / error, math.inf)
    frame = here.assign(is_committed=is_committed, differs=differs, committed=committed_value, gap=gap)
    by_experiment = frame.groupby("experiment", sort=False, observed=True)
    whole = _agreement_of("", frame[~identities.duplicated()])
    return whole, [_agreement_of(str(name), part) for name, part in by_experiment]


def _agreement_of(experiment: str, frame: pd.DataFrame) -> Agreement:
    different = frame[frame["differs"]].sort_values("gap", ascending=False, kind="stable")
    return Agreement(experiment, len(frame), int(frame["is_committed"].sum()), different)
