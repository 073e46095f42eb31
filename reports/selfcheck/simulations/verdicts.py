"""Error rates and power of verdicts under effects as they were measured.

Each part of each claim has a population: its effects in the committed results, slightly smoothed. Samples of
nets are drawn from it (the same nets for all parts of a depth and recipe) and tested against the mean of the
population. There, on the boundary, every verdict is false. Student's t alone is shown for comparison with the
tests of verdicts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import stdtr

from sdp_bench.oracles.estimate.multiplicity import holm
from sdp_bench.reports.replication.claims import CLAIMS, CONVENTIONS, SUITES, Measured
from sdp_bench.reports.results import committed_results
from sdp_bench.reports.selfcheck.rate import NOTHING, Part, Rate
from sdp_bench.reports.statistics.verdicts import LEVEL, mean_tests, p_of_every_part, p_of_some_part

NETS = (30, 10)
"""Sample sizes: that of the committed results, and that of a run with ten nets."""
DOMINATED = 0.5
"""Share of the squared deviations above which a single net dominates a part."""

_AT_ONCE = 200  # samples, to limit memory
_P = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Population:
    """Effects of one part, shape (nets,), under one convention."""

    recipe: str
    column: str
    claim: str
    depth: int
    threshold: float
    effects: NDArray[np.float64]

    @cached_property
    def dominated(self) -> bool:
        """Whether a single net contributes most of the spread."""
        squares = (self.effects - self.effects.mean()) ** 2
        return bool(squares.max() > DOMINATED * squares.sum())


def populations(frame: pd.DataFrame) -> tuple[Population, ...]:
    """Populations of all parts of all claims under all conventions, if finite."""
    return tuple(_populations(frame))


def rates(trials: int, seed: int = 0) -> Iterator[Rate]:
    """Yield error rates on the boundary and power at the measured effects of the committed results."""
    yield from rates_of(populations(committed_results().frame), trials, seed)


def rates_of(known: Sequence[Population], trials: int, seed: int = 0) -> Iterator[Rate]:
    """Like `rates`, for some populations."""
    rng = np.random.default_rng(seed)
    for nets in NETS:
        p = _simulated(known, nets, trials, rng)
        for test, condition in ((1, f"{nets} nets"), (0, f"{nets} nets, Student’s t alone")):
            for part, what, promised, hits, count in _figures(known, p[:, test]):
                yield Rate(part, what, condition, promised if test else NOTHING, hits, count)


def _populations(frame: pd.DataFrame) -> Iterator[Population]:
    for recipe in dict.fromkeys(SUITES.values()):
        measured = Measured(frame, recipe)
        for claim in CLAIMS:
            for column in claim.columns:
                effects = [part.effects(measured.table(part, column)) for part in claim.parts]
                for part, own in zip(claim.parts, effects if all(map(len, effects)) else (), strict=False):
                    if np.isfinite(own).all():
                        yield Population(recipe, column, claim.key, part.depth, part.threshold, own)


def _simulated(
    known: Sequence[Population], nets: int, times: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """p-values, shape (2, 2, 2, populations, times).

    The axes are: against the boundary and the part's threshold; Student's t and the tests of verdicts;
    "above" and "below".
    """
    against = (
        np.array([[each.effects.mean()] for each in known]),
        np.array([[each.threshold] for each in known]),
    )
    p = []
    for start in range(0, times, _AT_ONCE):
        effects = _samples(known, nets, min(_AT_ONCE, times - start), rng)
        own = [mean_tests(effects, thresholds) for thresholds in against]
        p.append(
            [
                [_student(effects, thresholds), (tests.above, tests.below)]
                for thresholds, tests in zip(against, own, strict=True)
            ]
        )
    return np.concatenate([np.array(each) for each in p], -1)


def _samples(
    known: Sequence[Population], nets: int, times: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Samples, shape (populations, times, nets); parts measured on the same nets share these."""
    drawn = np.empty((len(known), times, nets))
    groups: dict[tuple[str, int, int], list[int]] = {}
    for index, each in enumerate(known):
        groups.setdefault((each.recipe, each.depth, len(each.effects)), []).append(index)
    for (_, _, count), members in groups.items():
        effects = np.stack([known[index].effects for index in members])
        # A Gaussian kernel with the correlations of the parts, and Silverman's width for their inner spread.
        # Means and the reach of tails stay the same, and what is tied in most nets stays tied.
        middle = np.median(effects, 1, keepdims=True)
        spread = 1.4826 * np.median(np.abs(effects - middle), 1, keepdims=True)
        inner = np.clip(effects - middle, -2 * spread, 2 * spread)
        inner -= inner.mean(1, keepdims=True)
        normals = rng.standard_normal((times, nets, count))
        noise = np.tensordot(inner, normals, (1, 2)) * 0.9 * count**-0.2 / np.sqrt(count)
        drawn[members] = effects[:, rng.integers(0, count, (times, nets))] + noise
    return drawn


def _student(effects: NDArray[np.float64], thresholds: NDArray[np.float64]) -> tuple[_P, _P]:
    nets = effects.shape[-1]
    sd = effects.std(-1, ddof=1)
    t = np.sqrt(nets) * (effects.mean(-1) - thresholds) / np.where(sd > 0, sd, np.inf)
    return stdtr(nets - 1, -t), stdtr(nets - 1, t)


def _figures(known: Sequence[Population], p: _P) -> Iterator[tuple[Part, str, tuple[float, float], int, int]]:
    """Figures of one kind of test: part, words, promised range, hits and trials."""
    times = p.shape[-1]
    (above, below), (measured_above, measured_below) = p
    even = np.array([not each.dominated for each in known])
    for side, each in (("above", above), ("below", below)):
        # Holm's correction uses less than a tenth of the level for single parts.
        false = (each <= LEVEL).sum(1)
        yield "verdicts", f"worst single part: false “{side}”", NOTHING, int(false[even].max()), times
        words = f"worst single part, also where one net dominates: false “{side}”"
        yield "verdicts", words, NOTHING, int(false.max()), times
    for note, promised, allowed in (
        ("", (0.0, LEVEL), even),
        (", also where one net dominates", NOTHING, np.ones_like(even)),
    ):
        families = list(_families(known, allowed))
        worst = max(_false_holds(claims, above) for claims in families)
        yield "verdicts", f"any claim of a convention{note}: false “holds”", promised, worst, times
        worst = max(int((_fails(claims, below) <= LEVEL).any(1).sum()) for claims in families)
        yield "verdicts", f"any claim of a convention{note}: false “fails”", promised, worst, times
    families = list(_families(known, np.ones_like(even)))
    for verdict, found in (
        ("holds", [_holds(claims, measured_above) for claims in families]),
        ("fails", [_fails(claims, measured_below) for claims in families]),
    ):
        share = np.concatenate([corrected.ravel() <= LEVEL for corrected in found]).mean()
        # Claims share the nets of a sample: there are no more trials than samples.
        hits = round(share * times)
        yield "power", f"a claim, at the effects that were measured, {verdict}", NOTHING, hits, times


def _families(
    known: Sequence[Population], allowed: NDArray[np.bool_]
) -> Iterator[tuple[NDArray[np.intp], ...]]:
    """Claims that are judged together, each as the indices of its allowed populations."""
    for recipe in sorted({each.recipe for each in known}):
        for column in CONVENTIONS:
            claims: dict[str, list[int]] = {}
            for index, each in enumerate(known):
                if allowed[index] and each.recipe == recipe and each.column in (column, ""):
                    claims.setdefault(each.claim, []).append(index)
            if claims:
                yield tuple(np.array(parts) for parts in claims.values())


def _false_holds(claims: Sequence[NDArray[np.intp]], above: _P) -> int:
    """Samples in which any claim holds although its most error-prone part lies on the boundary."""
    # The least favourable case: a claim holds if all parts do, and the others are far above.
    p = [above[own] for own in claims]
    chosen = [each[(each <= LEVEL / len(p)).mean(1).argmax()] for each in p]
    return int((holm(np.stack(chosen, -1)) <= LEVEL).any(1).sum())


def _holds(claims: Iterable[NDArray[np.intp]], above: _P) -> _P:
    """p-values of "holds", shape (times, claims)."""
    return holm(np.stack([p_of_every_part(above[parts].T) for parts in claims], -1))


def _fails(claims: Iterable[NDArray[np.intp]], below: _P) -> _P:
    """p-values of "fails", shape (times, claims)."""
    return holm(np.stack([p_of_some_part(below[parts].T) for parts in claims], -1))
