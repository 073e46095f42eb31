"""Explanation of changed predictions, from all cells and probes together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sdp_bench.bench.gate.answers.draws import Draws, Units, parts
from sdp_bench.bench.gate.answers.moments import Array, PredictedMoments
from sdp_bench.bench.gate.causes.fits import (
    Fit,
    Points,
    best,
    constant,
    deviations,
    factor,
    largest,
    unchanged,
)
from sdp_bench.bench.gate.causes.traits import shared
from sdp_bench.bench.gate.cells import Cell
from sdp_bench.bench.gate.probes import Probe
from sdp_bench.bench.gate.verdict import Cause, Finding, Status, What

_STOPS = (Status.WORSE, Status.CHANGED)
_NAMED = 3  # cells
_CORRELATED = 0.02  # the loss of a smaller correlation is not reported


@dataclass(frozen=True, eq=False)
class Seen:
    """Predictions of a rule in one cell or probe, in the baseline and now."""

    place: Cell | Probe
    status: Status
    # None if there is no law; for a sampling rule, means over many seeds
    old: PredictedMoments | None
    new: PredictedMoments | None
    # standard errors of the means and of the covariances (m, m), in standard deviations; None for a
    # deterministic prediction
    noise: tuple[Array, Array] | None = None
    comparable: bool = True  # whether family and number of outputs are equal

    @classmethod
    def of_draws(cls, place: Cell | Probe, status: Status, units: Units, old: Draws, new: Draws) -> Seen:
        """Return the comparison of a sampling rule's draws."""
        stderr = np.sqrt(np.square(old.sd) / old.number + np.square(new.sd) / new.number)
        mean, variance, correlation, _ = parts(stderr, len(units.deviation))
        noise = mean, units.symmetric(variance, correlation)
        return cls(place, status, units.moments(old.mean), units.moments(new.mean), noise)

    @property
    def is_told(self) -> bool:
        return self.comparable and self.old is not None and self.new is not None

    @property
    def means(self) -> Points:
        """Means, in the baseline's standard deviations."""
        old, new, deviation = self._moments
        noise = self.noise[0] if self.noise else np.zeros(len(deviation))
        return Points(old.mean / deviation, new.mean / deviation, noise, deviation)

    @property
    def covariances(self) -> Points:
        """Covariances, in products of the baseline's standard deviations, row by row."""
        old, new, deviation = self._moments
        scale = np.outer(deviation, deviation)
        noise = self.noise[1] if self.noise else np.zeros(scale.shape)
        matrices = (old.covariance / scale, new.covariance / scale, noise, scale)
        return Points(*(each.ravel() for each in matrices))

    def may_be(self, mean: Fit | None, covariance: Fit | None) -> bool:
        """Return whether noise may hide these changes here."""
        pairs = ((mean, self.means), (covariance, self.covariances))
        return self.noise is not None and all(fit is None or fit.holds(points) for fit, points in pairs)

    @property
    def _moments(self) -> tuple[PredictedMoments, PredictedMoments, Array]:
        if self.old is None or self.new is None:
            raise ValueError(f"no moments to compare in {self.place.name}")
        return self.old, self.new, Units(self.old).deviation


@dataclass(frozen=True)
class _Change:
    """One aspect of the change."""

    what: What
    text: str
    numbers: dict[str, float] = field(default_factory=dict)
    fit: Fit | None = None


def explain(rule: str, seen: Sequence[Seen], together: Finding | None = None) -> Cause | None:
    """Return why a rule does not pass, or None; `together` is the finding on all cells of a sampling rule."""
    stopping = [each for each in seen if each.status in _STOPS]
    if not stopping and (together is None or not together.stops):
        return None
    told = [each for each in stopping or seen if each.is_told]
    others = [each for each in stopping if not each.is_told]
    changes = []
    if told:
        changes.append(_of_moments(told, seen, together))
    if others:
        changes.append(_Change(What.LAW, f"{_of_laws(others)} {_where(others, seen)}"))
    numbers = {name: x for change in changes for name, x in change.numbers.items()}
    return Cause(rule, changes[0].what, "; ".join(change.text for change in changes), numbers)


def _where(
    concerned: Sequence[Seen], seen: Sequence[Seen], mean: Fit | None = None, covariance: Fit | None = None
) -> str:
    """Describe the number of cells, and what they have in common that cells without the change lack."""
    words = f"in {len(concerned)} of {len(seen)} cell{'' if len(seen) == 1 else 's'}"
    passing = [each for each in seen if each.is_told and each.status not in _STOPS]
    if mean or covariance:
        # Cells where noise may hide the change are no counterexamples.
        passing = [each for each in passing if not each.may_be(mean, covariance)]
    common = shared([each.place for each in concerned], [each.place for each in passing])
    if common:
        return f"{words}, those with {common}"
    if len(concerned) <= _NAMED < len(seen):
        return f"{words} ({'; '.join(each.place.name for each in concerned)})"
    return words


def _of_laws(others: Sequence[Seen]) -> str:
    """Describe the change of laws that cannot be compared."""
    if all(each.new is None for each in others):
        return "refuses now"
    if all(each.old is None for each in others):
        return "no longer refuses"
    return "law of another family or size"


def _of_moments(told: Sequence[Seen], seen: Sequence[Seen], together: Finding | None) -> _Change:
    """Describe the change of means and covariances in some cells."""
    mean = _of_means([each.means for each in told])
    covariance = _of_covariances([each.covariances for each in told])
    where = "in all cells together, though not shown in any one"
    if any(each.status in _STOPS for each in told):
        fits = (change.fit if change else None for change in (mean, covariance))
        where = _where(told, seen, *fits)
    if mean and covariance:
        what = What.EVERYTHING if What.EVERYTHING in (mean.what, covariance.what) else covariance.what
        text, numbers = f"{mean.text}, {covariance.text} {where}", {**mean.numbers, **covariance.numbers}
        return _Change(what, text, numbers)
    if mean:
        return _Change(mean.what, f"{mean.text} {where}, covariance unchanged", mean.numbers)
    if covariance:
        return _Change(covariance.what, f"{covariance.text} {where}, mean unchanged", covariance.numbers)
    evidence = f" ({together.text})" if together else ""
    statuses = {each.status for each in told} | ({together.status} if together else set())
    if Status.WORSE in statuses:
        return _Change(What.ERRORS, f"larger errors {where}, mean and covariance unchanged{evidence}")
    return _Change(What.EVERYTHING, f"another law {where}, too little to say which{evidence}")


def _of_means(places: Sequence[Points]) -> _Change | None:
    fit = best(places, factor, deviations, constant)
    if fit is None:
        if unchanged(places):
            return None
        size = largest(places)
        words = f"mean changed by up to {size:.2g} standard deviations, by no common factor or constant"
        return _Change(What.EVERYTHING, words, {"largest change of the mean": size})
    k = fit.multiple
    if fit.form is factor:
        return _Change(What.MEAN, f"mean x {1 + k:.4g}", {"mean factor": 1 + k}, fit)
    if fit.form is deviations:
        words = f"mean {k:+.3g} standard deviations"
        return _Change(What.MEAN, words, {"mean shift in deviations": k}, fit)
    return _Change(What.MEAN, f"mean {k:+.4g}", {"mean shift": k}, fit)


def _of_covariances(places: Sequence[Points]) -> _Change | None:
    fit = best(places, factor)
    if fit is not None:
        k = 1 + fit.multiple
        return _Change(What.COVARIANCE, f"covariance x {k:.4g}", {"covariance factor": k}, fit)
    if unchanged(places):
        return None
    if lost := _of_diagonals(places):
        return lost
    size = largest(places)
    words = f"covariance changed by up to {size:.2g} of the variances, by no common factor"
    return _Change(What.EVERYTHING, words, {"largest change of the covariance": size})


def _of_diagonals(places: Sequence[Points]) -> _Change | None:
    """Describe covariances that became diagonal, with variances unchanged or scaled."""
    diagonals, rest = [], []
    for each in places:
        outputs = round(len(each.old) ** 0.5)
        on = np.eye(outputs, dtype=bool).ravel()
        diagonals.append(each.at(on))
        rest.append(each.at(~on))
    were = any((abs(each.old) > _CORRELATED).any() for each in rest)
    are = any((abs(each.new) > each.slack).any() for each in rest)
    scaled = best(diagonals, factor)
    if not were or are or not (scaled or unchanged(diagonals)):
        return None
    text = "off-diagonals of the covariance lost"
    if scaled is None:
        return _Change(What.DIAGONAL, text)
    k = 1 + scaled.multiple
    return _Change(What.DIAGONAL, f"{text}, variances x {k:.4g}", {"variance factor": k})
