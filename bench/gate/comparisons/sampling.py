"""Sampling rules whose draws have changed: their errors under fresh seeds against the baseline's.

Under the baseline's own seeds a sampling rule is compared like any other. If it draws otherwise now, single
predictions tell nothing; their law over seeds does. In each cell, and over all of them, two things are
compared by Welch's t: the logarithm of the distance to the oracle's moments, and that of the predicted
variance relative to the oracle's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sdp_bench.bench.gate.baseline import Errors
from sdp_bench.bench.gate.cells import Cell
from sdp_bench.bench.gate.comparisons.evidence import Evidence, p_value
from sdp_bench.bench.gate.predictions import draws
from sdp_bench.bench.gate.verdict import Status
from sdp_bench.bench.identity.keys import OracleKey
from sdp_bench.oracles.moments.draws import moment_errors, relative_spread
from sdp_bench.oracles.moments.moments import Moments
from sdp_ref.rules import Propagator

DRAWS = 128
"""Seeds in each cell. Over the 27 cells the mean error of 100 samples is then known to 1 %."""

PRACTICAL_ERROR = 0.05
"""Of the logarithm of a squared distance: errors 2.5 % larger, less than 5 % fewer samples make."""

PRACTICAL_SPREAD = 0.01
"""Of the logarithm of the predicted variance: 1 %, as from dividing by k and not by k - 1 at 100 samples."""

ERROR, SPREAD = "log error", "log spread"


def fresh_seeds(rule: Propagator, key: OracleKey, draw: int, number: int = DRAWS) -> list[int]:
    """Seeds for one cell from the root of a run."""
    spec = getattr(rule, "spec", rule.name)
    return [key.seed(f"gate {draw} {spec} {index}") for index in range(number)]


def errors(
    rule: Propagator, cell: Cell, oracle: Moments, seeds: Sequence[int], metric: str = ""
) -> tuple[Errors, float]:
    """How a sampling rule does in a cell over some seeds, and the standard error from the oracle alone.

    Parameters
    ----------
    rule : Propagator
    cell : Cell
    oracle : Moments
        Of its oracle.
    seeds : sequence of int
    metric : str
        "kl" or "bures"; if empty, KL where it is finite for all draws.

    Returns
    -------
    Errors
    float
    """
    laws = [moments.law for moments in draws(rule, cell, seeds)]
    values, noise = moment_errors(oracle, laws, metric or "kl")
    if not metric and not np.isfinite(values).all():
        return errors(rule, cell, oracle, seeds, "bures")
    spreads = np.array([relative_spread(oracle, law) for law in laws])
    found = Errors(
        metric or "kl",
        len(seeds),
        float(values.mean()),
        float(values.std(ddof=1)) if np.isfinite(values).all() else math.inf,
        float(spreads.mean()),
        float(spreads.std(ddof=1)),
    )
    return found, noise


def compare(
    rule: Propagator, cell: Cell, oracle: Moments, old: Errors, seeds: Sequence[int]
) -> list[Evidence]:
    """Evidence in one cell on a larger error and on another spread."""
    new, noise = errors(rule, cell, oracle, seeds, old.metric)
    # The oracles differ, too: the baseline's and today's add their noise.
    error = math.sqrt(old.error_sd**2 / old.draws + new.error_sd**2 / new.draws + 2 * noise**2)
    spread = math.sqrt(old.spread_sd**2 / old.draws + new.spread_sd**2 / new.draws)
    freedom = min(old.draws, new.draws) - 1
    return _evidence(new.error - old.error, error, new.spread - old.spread, spread, freedom)


def pooled(each: Sequence[Sequence[Evidence]]) -> list[Evidence]:
    """Evidence over all cells: their mean, for changes too small to be seen in any one."""
    number = len(each)
    mean = [sum(one.difference for one in column) / number for column in zip(*each, strict=True)]
    stderr = [math.hypot(*(one.stderr for one in column)) / number for column in zip(*each, strict=True)]
    return _evidence(mean[0], stderr[0], mean[1], stderr[1], number * (DRAWS - 1))


def _evidence(
    error: float, error_stderr: float, spread: float, spread_stderr: float, freedom: float
) -> list[Evidence]:
    of_error, of_spread = p_value(error, error_stderr, freedom), p_value(spread, spread_stderr, freedom)
    return [
        Evidence(ERROR, error, error_stderr, PRACTICAL_ERROR, of_error),
        Evidence(SPREAD, spread, spread_stderr, PRACTICAL_SPREAD, of_spread, neutral=True),
    ]


def status(evidence: Sequence[Evidence]) -> Status:
    """Status by the table of :mod:`sdp_bench.bench.gate`."""
    if any(each.worse for each in evidence):
        return Status.WORSE
    if any(each.lower for each in evidence):
        return Status.BETTER
    if any(each.neutral and each.matters for each in evidence):
        return Status.CHANGED
    return Status.REDRAWN
