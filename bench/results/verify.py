"""Which stored records are measured again, and what may be stamped where these agree.

A fingerprint says by which code a record was made. A refactoring changes fingerprints and should change no
number; that it did not is shown by a random share of the records, measured again. Where all agree, the
records that these speak for get the fingerprints of today's code; where one does not, none does.

What is chosen at random are predictions, a unit and a rule, with all their metrics. Records form strata:
those of one experiment, kind of net, rule, metric and (old) fingerprint. A choice has at least one of each
stratum that can be measured at all, and only strata of which something was measured are stamped. The
experiment and the kind of net (its activation) are part of it because the code of a rule is, in part, that
of one kind of net: a formula for SiLU that came out wrong shows on no ReLU net. The old fingerprint is, since
records of one rule and metric may come from two states of the code.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

import pandas as pd

from sdp_bench.bench.identity import keys
from sdp_bench.bench.results.record import Cell

CELL = ["unit", "rule", "metric"]


class Measurement(NamedTuple):
    """A stored measurement, as one experiment asks for it.

    Attributes
    ----------
    unit, rule, metric : str
        As records have them.
    fingerprint : str
        Of the code that made it.
    run : int
        That made it.
    activation : str
        Of the net; empty without one.
    experiment : str
        Several may ask for the same; empty if none does.
    objective : str
        What was trained for; empty with an oracle.
    """

    unit: str
    rule: str
    metric: str
    fingerprint: str
    run: int
    activation: str
    experiment: str
    objective: str = ""

    @property
    def cell(self) -> Cell:
        """What it is of."""
        return self.unit, self.rule, self.metric

    @property
    def stratum(self) -> tuple[str, ...]:
        """What is stamped together."""
        return self.experiment, self.objective, self.activation, self.rule, self.metric, self.fingerprint


def measurements(records: pd.DataFrame, asked: pd.DataFrame) -> list[Measurement]:
    """Stored measurements with all the experiments that ask for them.

    Parameters
    ----------
    records : DataFrame
        As :meth:`Queries.records` gives it.
    asked : DataFrame
        As :meth:`Queries.asked` gives it.

    Returns
    -------
    list of Measurement
        One for each measurement and experiment, or for a measurement that no experiment asks for.
    """
    once = records[[*CELL, "fingerprint", "run", "activation", "objective"]].drop_duplicates(CELL)
    rows = once.merge(asked, on=CELL, how="left")
    rows = rows.fillna({"activation": "", "experiment": "", "objective": ""})
    rows = rows[list(Measurement._fields)]
    return [Measurement(*row) for row in rows.itertuples(index=False, name=None)]


def choose(candidates: Sequence[Measurement], share: float, seed: int) -> set[Cell]:
    """Choose what is measured again.

    Parameters
    ----------
    candidates : sequence of Measurement
        Those that can be.
    share : float
        Of the predictions, in (0, 1], rounded up; more are taken where a stratum had none.
    seed : int
        Of a given prediction, its place in the order depends on this and on its unit and rule alone.

    Returns
    -------
    set of (unit, rule, metric)
        All metrics of each prediction that is chosen.
    """
    found: dict[tuple[str, str], set[tuple[str, ...]]] = {}
    for each in candidates:
        found.setdefault((each.unit, each.rule), set()).add(each.stratum)
    order = sorted(found, key=lambda prediction: keys.digest(seed, *prediction))
    count = math.ceil(share * len(order))
    chosen = set(order[:count])
    covered = {stratum for prediction in chosen for stratum in found[prediction]}
    units = {unit for unit, _ in chosen}
    # For the strata without any, unit by unit: all rules of a unit share its oracle, or its training.
    by_unit = sorted(
        order[count:], key=lambda prediction: (prediction[0] not in units, keys.digest(seed, prediction[0]))
    )
    for prediction in by_unit:
        if not found[prediction] <= covered:
            chosen.add(prediction)
            covered |= found[prediction]
    return {each.cell for each in candidates if (each.unit, each.rule) in chosen}


def stampable(outdated: Sequence[Measurement], measured: Collection[Cell]) -> set[Cell]:
    """Measurements of strata of which something was measured again, and agreed.

    Parameters
    ----------
    outdated : sequence of Measurement
    measured : collection of (unit, rule, metric)

    Returns
    -------
    set of (unit, rule, metric)
    """
    seen = {each.stratum for each in outdated if each.cell in measured}
    return {each.cell for each in outdated if each.stratum in seen}
