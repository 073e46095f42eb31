"""Whether this machine measures what the committed results say."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sdp_bench.bench.results.record import same_number
from sdp_bench.reports.results import Results
from sdp_bench.reports.section import Context, Section
from sdp_bench.reports.style import labels

MOST_ROWS = 20
"""Measurements that are listed of those that do not agree."""

_IDENTITY = ["key", "component"]
_OTHER = "other nets, inputs, settings, rules or metrics"


@dataclass(frozen=True)
class Agreement:
    """Measurements of one experiment, or of all, beside the committed ones.

    The same measurement is one of the same net, input, noise, samples and seed, by the same rule and metric.

    Attributes
    ----------
    experiment : str
        Empty where it is all of them.
    measured : int
        Here.
    compared : int
        Those that are among the committed ones.
    apart : DataFrame
        Those of these that do not agree, rounding apart, the farthest first: columns `experiment`, `network`,
        `activation`, `seed`, `input`, `sigma`, `rule`, `metric_spec`, `component`, `value`, `committed` and
        `gap`, in standard errors of the committed value (infinite where it has none).
    """

    experiment: str
    measured: int
    compared: int
    apart: pd.DataFrame

    @property
    def equal(self) -> int:
        """Those that agree."""
        return self.compared - len(self.apart)

    @property
    def sentence(self) -> str:
        """What it comes to, in words."""
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
    """Measurements of the run beside the committed ones: a check of the installation."""

    name = "here"
    title = "Measured here"
    order = 15
    beside = True

    def build(self, results: Results) -> Context | None:
        """Agreement by experiment; None without measurements or committed results to compare with."""
        if results.committed is None or results.frame.empty or "key" not in results.frame:
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


def agreement(here: pd.DataFrame, committed: pd.DataFrame) -> tuple[Agreement, list[Agreement]]:
    """Measurements made here beside the committed ones: numbers that the same code gives for the same law.

    Parameters
    ----------
    here, committed : DataFrame
        With a `key`, as `Results` has them.

    Returns
    -------
    whole : Agreement
        Of all measurements, each once.
    by_experiment : list of Agreement
        In the order of their first measurements.
    """
    known = committed[[*_IDENTITY, "value", "stderr"]].drop_duplicates(_IDENTITY)
    known = known.rename(columns={"value": "committed", "stderr": "error"})
    both = here.merge(known, on=_IDENTITY, how="left", validate="many_to_one")
    found = both["committed"].notna()
    same = [
        same_number(a, b, error)
        for a, b, error in zip(both["value"], both["committed"], both["error"], strict=True)
    ]
    gap = (both["value"] - both["committed"]).abs() / both["error"].where(both["error"] > 0)
    both = both.assign(found=found, apart=found & ~np.array(same, dtype=bool), gap=gap.fillna(math.inf))
    once = both.drop_duplicates(_IDENTITY)
    by_experiment = [_of(str(name), own) for name, own in both.groupby("experiment", sort=False)]
    return _of("", once), by_experiment


def _of(experiment: str, part: pd.DataFrame) -> Agreement:
    apart = part[part["apart"]].sort_values("gap", ascending=False, kind="stable")
    return Agreement(experiment, len(part), int(part["found"].sum()), apart)
