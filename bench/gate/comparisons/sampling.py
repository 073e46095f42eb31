"""Sampling rules whose draws differ under the baseline's seeds: comparison of distributions over fresh seeds.

Single draws are not informative, but their distribution is. In each cell and probe, and over all of them, the
means and covariances predicted over many seeds are compared for each output and, if there is an oracle, the
logarithms of the distances to its moments; all by Welch's t, two-sided.

If a draw under the baseline's seed is nearer to the baseline's than draws under other seeds are, it was made
from the same random numbers. Then the rule's use of them has changed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sdp_bench.bench.gate.answers.draws import FACTOR, LEVEL, SLANT, SPREAD, Draws, Units, parts
from sdp_bench.bench.gate.answers.drift import THRESHOLD
from sdp_bench.bench.gate.answers.moments import Array, PredictedMoments
from sdp_bench.bench.gate.cells import Cell
from sdp_bench.bench.gate.comparisons.evidence import Evidence, adjust, nearness, p_value
from sdp_bench.bench.gate.probes import Probe
from sdp_bench.bench.gate.verdict import Status
from sdp_bench.oracles.moments.draws import moment_errors
from sdp_bench.oracles.moments.moments import Moments

DRAWS = 512
"""Seeds per cell and probe: over all 55, a change of the variance of 10 samples is detected to .4 %."""

PRACTICAL_ERROR = 0.05
"""In the logarithm of a squared distance: errors 2.5 % larger, as with 5 % fewer samples."""

ERROR, MEAN, VARIANCE, COVARIANCE = "log error", "mean", "variance", "covariance"
MEAN_FACTOR = "factor of the mean"
KEPT = ("likeness of the means", "likeness of the covariances")


def fresh_seeds(spec: str, place: Cell | Probe, draw: int, number: int = DRAWS) -> list[int]:
    """Return seeds of a rule for one cell or probe, derived from a run's seed."""
    return [place.root.seed(f"gate {draw} {spec} {index}") for index in range(number)]


@dataclass(frozen=True, eq=False)
class Sample:
    """Draws of a sampling rule in one cell or probe."""

    units: Units
    numbers: Array  # shape (draws, numbers), in `units`
    metric: str = ""  # metric of the errors; empty if there is no oracle
    errors: Array | None = None  # shape (draws,)
    noise: float = 0.0  # standard error of the mean error caused by the oracle

    @property
    def summary(self) -> Draws:
        return Draws.of(self.numbers, self.metric, self.errors)

    def nearer(self, today: PredictedMoments) -> list[tuple[float, int]]:
        """Return the rank of a draw among these by distance from the reference: of means, of covariances.

        Each rank is the share of these and itself that are as near, in (0, 1], with the number of these. The
        list is empty if all are equally near.
        """
        outputs, found = len(self.units.deviation), []
        those, it = (parts(each, outputs) for each in (self.numbers, self.units.numbers([today])))
        at_reference = [np.zeros(outputs), np.diag(self.units.reference.covariance) / self.units.deviation**2]
        scale = np.outer(self.units.deviation, self.units.deviation)
        at_reference.append((self.units.reference.covariance / scale)[self.units.pairs])
        for which in ([0], [1, 2]):
            far, near = (
                sum(np.square(each[k] - at_reference[k]).sum(1) for k in which) for each in (those, it)
            )
            share = (1 + int((far <= near).sum())) / (1 + len(far))
            found.append((share, len(far) if np.ptp(far) > 0 else 0))
        return found


def of_draws(
    drawn: Sequence[PredictedMoments],
    reference: PredictedMoments,
    oracle: Moments | None = None,
    metric: str = "",
) -> Sample:
    """Return the sample of some draws; `oracle` holds the moments for errors in `metric`."""
    units = Units(reference)
    numbers = units.numbers(drawn)
    if oracle is None:
        return Sample(units, numbers)
    laws = [moments.law for moments in drawn]
    errors, noise = moment_errors(oracle, laws, metric or "kl")
    if not metric and not np.isfinite(errors).all():
        return of_draws(drawn, reference, oracle, "bures")
    return Sample(units, numbers, metric or "kl", errors, noise)


def compare(old: Draws, today: Sample) -> list[Evidence]:
    """Return evidence in one cell for a larger error, and for changed means, variances and covariances.

    Of several outputs, the most significant counts, with its p-value corrected for their number.
    """
    new, outputs = today.summary, len(today.units.deviation)
    difference, stderr = _differences(old, new, outputs)
    freedom = min(old.number, new.number) - 1
    found = []
    if old.metric:
        # The oracles of baseline and run differ as well: both add noise.
        error = math.sqrt(old.error_sd**2 / old.number + new.error_sd**2 / new.number + 2 * today.noise**2)
        moved = new.error - old.error
        found.append(Evidence(ERROR, moved, error, PRACTICAL_ERROR, p_value(moved, error, freedom)))
    several = zip(parts(difference, outputs)[:3], parts(stderr, outputs)[:3], strict=True)
    for measure, (differences, stderrs) in zip((MEAN, VARIANCE, COVARIANCE), several, strict=True):
        each = [
            Evidence(measure, d, s, THRESHOLD, min(1.0, len(differences) * p_value(d, s, freedom)), True)
            for d, s in zip(differences.tolist(), stderrs.tolist(), strict=True)
        ]
        found += sorted(each, key=lambda one: one.p)[:1]
    return found


def _differences(old: Draws, new: Draws, outputs: int) -> tuple[Array, Array]:
    """Return differences of the numbers and their standard errors; those of variances are relative."""
    before, now = np.array(old.mean), np.array(new.mean)
    stderr = np.sqrt(np.square(old.sd) / old.number + np.square(new.sd) / new.number)
    relative = np.ones_like(before)
    # relative to the mean of both, so that swapping them gives the opposite difference
    for each in (slice(outputs, 2 * outputs), slice(len(before) - 4 + SPREAD, len(before) - 4 + SPREAD + 1)):
        relative[each] = np.maximum((before[each] + now[each]) / 2, np.finfo(float).tiny)
    return (now - before) / relative, stderr / relative


def pooled(
    old: Mapping[str, Draws],
    new: Mapping[str, Sample],
    today: Mapping[str, PredictedMoments],
) -> list[Evidence]:
    """Return evidence over all cells, for changes too small to detect in a single one.

    It concerns the error, common changes of means and covariances, and the similarity of the predictions
    `today`, under the baseline's seeds, to the baseline's.
    """
    rows, errors = [], []
    for key, each in new.items():
        before, now = old[key], each.summary
        difference, stderr = (x[-4:] for x in _differences(before, now, len(each.units.deviation)))
        rows.append((difference, stderr))
        if before.metric:
            variance = before.error_sd**2 / before.number + now.error_sd**2 / now.number
            errors.append((now.error - before.error, math.sqrt(variance + 2 * each.noise**2)))
    freedom = sum(len(each.numbers) - 1 for each in new.values())
    found = []
    if errors:
        difference, stderr = np.array(errors).T
        mean, error = float(difference.mean()), float(np.linalg.norm(stderr)) / len(errors)
        found.append(Evidence(ERROR, mean, error, PRACTICAL_ERROR, p_value(mean, error, freedom)))
    differences, stderrs = (np.array(column) for column in zip(*rows, strict=True))
    for measure, which in ((MEAN, LEVEL), (MEAN_FACTOR, FACTOR), (VARIANCE, SPREAD), (COVARIANCE, SLANT)):
        # Weighted by precision; the threshold keeps a cell without noise from dominating.
        weights = 1 / (np.square(stderrs[:, which]) + THRESHOLD**2)
        weights /= weights.sum()
        mean = float(weights @ differences[:, which])
        error = float(np.linalg.norm(weights * stderrs[:, which]))
        found.append(Evidence(measure, mean, error, THRESHOLD, p_value(mean, error, freedom), True))
    nearer = zip(*(each.nearer(today[key]) for key, each in new.items()), strict=True)
    return [*found, *(nearness(measure, column) for measure, column in zip(KEPT, nearer, strict=True))]


def evidence(
    old: Mapping[str, Mapping[str, Draws]],
    new: Mapping[tuple[str, str], Sample],
    today: Mapping[str, Mapping[str, PredictedMoments]],
) -> dict[tuple[str, str], list[Evidence]]:
    """Return evidence for all rules of a run, with p-values adjusted over all of it.

    `old` and `today` are by rule and cell, the latter under the baseline's seeds; `new` holds the rules whose
    draws differ. The result is by rule and cell, with an empty key for all cells together.
    """
    single = {(rule, key): compare(old[rule][key], found) for (rule, key), found in new.items()}
    together = {}
    for rule in dict.fromkeys(rule for rule, _ in new):
        mine = {key: found for (name, key), found in new.items() if name == rule}
        together[rule, ""] = pooled(old[rule], mine, today[rule])
    # half of the level for the few tests of all cells together, which detect the smallest changes
    return {**adjust(single, 0.5), **adjust(together, 0.5)}


def keeps_its_draws(evidence: Sequence[Evidence]) -> bool:
    """Return whether a rule significantly reuses the baseline's random numbers, with other results."""
    return any(each.measure in KEPT and each.shown for each in evidence)


def status(evidence: Sequence[Evidence]) -> Status:
    """Return the status by the table in `sdp_bench.bench.gate`."""
    if any(each.worse for each in evidence):
        return Status.WORSE
    if any(each.neutral and each.matters for each in evidence):
        return Status.CHANGED
    if any(each.lower for each in evidence):
        return Status.BETTER
    return Status.REDRAWN
