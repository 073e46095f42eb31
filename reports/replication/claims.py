"""The paper's claims on its simulation tables as data, and the measurements that test them.

A claim has parts, each a one-sided statement about a mean effect over trained nets. The experiments
behind it give each net its own inputs, so that the net is the replicate; scores are averaged over its inputs
(and outputs) first. See `reports.statistics.verdicts` for the statistics.

The floor of W1 distances is subtracted in quadrature. The result may be 0, where neither a logarithm nor a
quotient exists. Distances are therefore compared, net by net, by the symmetric relative difference (b - a) /
((a + b) / 2). It is bounded, 0 if both are 0, and independent of the net's scale. It agrees with the log
ratio to third order (2 tanh(log ratio / 2)), so that its intervals suffer neither from skewed distances nor
from zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...bench.metrics import Metric, recorded_metric
from ...bench.noise import GAUSSIAN
from ..numbers import FOLDER, Number, NumberGroup, Page, slug
from ..statement import PUBLISHED, REGULAR, Answer, Convention, Effect, Evidence, Rule
from ..statistics.ranking import labels_of
from ..style import labels
from ..style.names import NetKind, RuleTraits
from ..tables.frame import by_kind, positions_by

SUITES = {
    "iris-claims": "SGD 0.01",
    "iris-claims-w1": "SGD 0.01",
    "iris-claims-recipe": "Adam 0.001",
    "iris-claims-features": "standardised features",
}
"""Experiments behind the claims, and how their nets were trained."""

_READINGS = ("tv_paper:bin_range=joint", "tv_single", "tv_paper", "tv_headline", "tv_class")
CONVENTIONS: Mapping[str, Metric] = {
    reading.convention: reading for reading in map(recorded_metric, _READINGS)
}
"""Readings of total variation by name; a claim on it is judged under each."""

MAIN_CONVENTION = ("joint extremes", "SGD 0.01")
"""The convention that comes nearest to the paper's numbers, with that of single outputs."""
HEADLINE_CONVENTION = ("headline", "SGD 0.01")
"""The convention of the headline partition, which compares rules in the same cells."""

TV_MARGIN = 0.01
W1_MARGIN = 1.05
SD_MARGIN = 0.05
"""Largest deficit that counts as "as good": in 1 - TV, as a factor of W1, in abs(log ratio of sds)."""

LARGE_FACTOR = 2.0
SIMILAR_FACTOR = 1.25

ACTIVATION = "relu"
_MC = "monte_carlo:samples=100"
TV_SIGMAS = (0.1, 1.0, 10.0, 100.0, 1000.0)
_W1_SIGMAS = (0.01, 0.1, 1.0)
_OVERFLOW = 700.0  # exp of more overflows
_SMALL, _LARGE = (0.1, 1.0), (10.0, 100.0, 1000.0)


def _shared_mass(value: NDArray[np.float64], _floor: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 - value


def _distance(value: NDArray[np.float64], floor: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore"):
        return np.sqrt(np.clip(value**2 - floor**2, 0, None))


def _log(value: NDArray[np.float64], _floor: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.log(value, out=np.full_like(value, -np.inf), where=value > 0)


def _abs_log(value: NDArray[np.float64], floor: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.abs(_log(value, floor))


def _factor(effect: float) -> float:
    return math.inf if effect > _OVERFLOW else math.exp(effect)


def _reciprocal(effect: float) -> float:
    return _factor(-effect)


def _quotient(effect: float) -> float:
    """Quotient a / b whose symmetric relative difference (b - a) / ((a + b) / 2) is `effect`."""
    return math.inf if effect <= -2 else max(0.0, (2 - effect) / (2 + effect))


class Scale(NamedTuple):
    """How values become effects, and effects words.

    `metric` is empty for total variation, which is judged under each of `CONVENTIONS`. `score` converts
    values and floors before these are averaged within a net. The effect is a sum of scores, divided by their
    mean size on a `relative` scale. `natural` is a monotone function that converts an effect to the number
    shown to readers, `quantity` is the name of that number, and `words` is a sentence about it. In both,
    ``{0}`` stands for the first term's rule and ``{1}`` for the second's; ``{sigma}`` and ``{other}`` are
    their noise levels.
    """

    metric: str
    score: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]
    natural: Callable[[float], float]
    quantity: str
    words: str
    relative: bool = False


_OPPOSITE = (
    "sd ratios: SDP × DVIA",
    "ratio of SDP times ratio of DVIA is {value} at σ = {sigma} (1: exact opposites)",
)
_TRUE = ("sd: {0} / true", "sds of {0} are {value} times the true ones at σ = {sigma}")
SHARE = Scale(
    "",
    _shared_mass,
    float,
    "1 − TV: {0} − {1}",
    "1 − TV of {0} is {size} {side} that of {1} at σ = {sigma}",
)
DISTANCE = Scale(
    "w1",
    _distance,
    _quotient,
    "W1: {1} / {0}",
    "W1 of {1} is {value} times that of {0} at σ = {sigma}",
    relative=True,
)
LARGE = Scale("std_ratio", _log, _factor, *_TRUE)
SMALL = Scale("std_ratio", _log, _reciprocal, *_TRUE)
NEAR = Scale(
    "std_ratio",
    _abs_log,
    _reciprocal,
    "sd: factor by which {0} is off",
    "sds of {0} are off by a factor of {value} at σ = {sigma}",
)
GROWTH = Scale(
    "std_ratio",
    _abs_log,
    _factor,
    "factor at the larger σ / at the smaller, {0}",
    "the factor by which sds of {0} are off is {value} times as large at σ = {sigma} as at σ = {other}",
)


class Part(NamedTuple):
    """One statement: on nets of `depth`, the mean over nets of a sum of scores is above `threshold`.

    `terms` are (coefficient, rule, sigma).
    """

    scale: Scale
    depth: int
    terms: tuple[tuple[float, str, float], ...]
    threshold: float = 0.0

    def cells(self, dvia: str) -> list[tuple[str, float]]:
        """Rules and sigmas that must be measured, for a version of DVIA."""
        return [(dvia if rule == PUBLISHED else rule, sigma) for _, rule, sigma in self.terms]

    def effects(self, table: pd.DataFrame, dvia: str) -> NDArray[np.float64]:
        """Effects by net, from a table of :meth:`Measured.table`; empty if a term was not measured.

        An effect is not finite if a score is not.
        """
        cells = self.cells(dvia)
        if any(("value", *cell) not in table for cell in cells):
            return np.empty(0)
        scores = np.empty((len(table), len(cells)))
        for place, cell in enumerate(cells):
            value, floor = (table[(name, *cell)].to_numpy() for name in ("value", "floor"))
            scores[:, place] = np.where(np.isnan(value), math.nan, self.scale.score(value, floor))
        known = np.flatnonzero(~np.isnan(scores).any(1))
        with np.errstate(invalid="ignore"):  # of opposite infinities
            means = (
                pd.DataFrame(scores[known])
                .groupby(table.index.get_level_values("net")[known])
                .mean()
                .to_numpy(float)
            )
            effects: NDArray[np.float64] = means @ np.array([coefficient for coefficient, _, _ in self.terms])
            if self.scale.relative:
                size = means.mean(1)
                effects = np.divide(effects, size, out=np.zeros_like(effects), where=size != 0)
        return effects


def _better(better: str, worse: str, sigmas: Iterable[float], margin: float = 0.0) -> tuple[Part, ...]:
    """1 - TV of one rule is above that of another, or at most `margin` below it."""
    return tuple(Part(SHARE, 4, ((1.0, better, s), (-1.0, worse, s)), 0.0 - margin) for s in sigmas)


def _closer(depth: int, better: str, worse: str, factor: float = 1.0) -> tuple[Part, ...]:
    """W1 of one rule is below `factor` times that of another."""
    threshold = 2 * (1 - factor) / (1 + factor)
    return tuple(Part(DISTANCE, depth, ((1.0, worse, s), (-1.0, better, s)), threshold) for s in _W1_SIGMAS)


_TOO_LARGE = tuple(Part(LARGE, 4, ((1.0, "sdp", sigma),)) for sigma in _LARGE)


def _too_small(rule: str, sigmas: Iterable[float] = _LARGE, factor: float = 1.0) -> tuple[Part, ...]:
    """The predicted sd is below 1 / `factor` of the true one."""
    return tuple(Part(SMALL, 4, ((-1.0, rule, sigma),), math.log(factor)) for sigma in sigmas)


PARTS: Mapping[str, tuple[Part, ...]] = {
    "tv-dvia": _better("sdp", "dvia", TV_SIGMAS, TV_MARGIN),
    "tv-dvia-better": _better("sdp", "dvia", TV_SIGMAS),
    "improves": _better("sdp", "dvia", TV_SIGMAS) + _closer(4, "sdp", "dvia", W1_MARGIN),
    "tv-mc": _better("sdp", _MC, TV_SIGMAS),
    "tv-marginal-small": _better("marginal_moment_matching", "marginal_sdp", (0.1,)),
    "tv-marginal-large": _better("marginal_sdp", "marginal_moment_matching", TV_SIGMAS[1:]),
    "tv-covariance": _better("sdp", "marginal_moment_matching", TV_SIGMAS),
    **{f"w1-dvia-{depth}": _closer(depth, "sdp", "dvia", W1_MARGIN) for depth in (4, 6)},
    **{
        f"w1-marginal-{depth}": _closer(depth, "sdp", "marginal_moment_matching")
        + _closer(depth, "dvia", "marginal_moment_matching")
        for depth in (4, 6)
    },
    "sd-marginal": _too_small("marginal_sdp", TV_SIGMAS, LARGE_FACTOR)
    + _too_small("marginal_moment_matching", TV_SIGMAS, LARGE_FACTOR),
    "sd-good": tuple(Part(NEAR, 4, ((-1.0, rule, 0.1),), -SD_MARGIN) for rule in ("sdp", "dvia")),
    "sd-small": tuple(
        Part(GROWTH, 4, ((1.0, rule, large), (-1.0, rule, small)))
        for rule, small, large in product(("sdp", "dvia"), _SMALL, _LARGE)
    ),
    "sd-sdp": _TOO_LARGE,
    "sd-dvia": _too_small("dvia"),
    "sd-opposite": _TOO_LARGE
    + _too_small("dvia")
    + tuple(
        Part(
            Scale("std_ratio", _log, _factor if sign > 0 else _reciprocal, *_OPPOSITE),
            4,
            ((sign, "sdp", sigma), (sign, "dvia", sigma)),
            -math.log(SIMILAR_FACTOR),
        )
        for sigma in _LARGE
        for sign in (1.0, -1.0)
    ),
}
"""Parts of the statements on the simulation tables, by key; their words are in ``statements.toml``."""


def quantity(spec: str) -> str:
    """Quantity for which a recorded metric is judged: its convention of total variation, or its bare name."""
    recorded = recorded_metric(spec)
    return recorded.convention or recorded.name


class Measured:
    """Measurements of nets of one recipe in the experiments behind the claims."""

    def __init__(self, frame: pd.DataFrame, recipe: str) -> None:
        names = [name for name, own in SUITES.items() if own == recipe]
        frame = frame[frame["experiment"].isin(names) & (frame["activation"] == ACTIVATION)]
        frame = frame[(frame["noise"] == GAUSSIAN.family) & frame["value"].notna()]
        self.frame = frame.assign(quantity=by_kind(frame["metric_spec"], quantity))
        self._tables: dict[tuple[str, int], pd.DataFrame] = {}

    def table(self, part: Part, column: str) -> pd.DataFrame:
        """Values and floors, a row for each net, input and component and a column for each rule and sigma."""
        key = (part.scale.metric or column, part.depth)
        if key not in self._tables:
            own = self.frame[(self.frame["quantity"] == key[0]) & (self.frame["depth"] == part.depth)]
            unit, cell = ["net", "input", "component"], ["rule", "sigma"]
            if own.duplicated(unit + cell).any():
                suite, metric = own.iloc[0][["experiment", "metric"]]
                raise ValueError(f"{suite} has {metric} of one prediction twice")
            own = own.astype({"rule": str, "net": str, "component": str})
            self._tables[key] = own.pivot(index=unit, columns=cell, values=["value", "floor"])
        return self._tables[key]


def _answer(parts: Sequence[Part], evidence: Evidence) -> Answer | None:
    traits = evidence.results.traits
    columns = tuple(CONVENTIONS) if any(part.scale is SHARE for part in parts) else ("",)
    trials: dict[Convention, list[Effect]] = {}
    lacking: dict[Convention, str] = {}
    for recipe in dict.fromkeys(SUITES.values()):
        measured = evidence.once(("claims", recipe), partial(Measured, evidence.results.frame, recipe))
        for column in columns if len(measured.frame) else ():
            convention = (column, recipe) if column else (recipe,)
            effects, lacks = [], dict[str, set[float]]()
            for part in parts:
                table = measured.table(part, column)
                values = part.effects(table, evidence.dvia)
                effects.append(_effect(part, values, column, recipe, evidence.dvia, traits))
                cells = [] if len(values) else part.cells(evidence.dvia)
                absent = [cell for cell in cells if ("value", *cell) not in table]
                # If both were measured, but never on the same input, both are named.
                for rule, sigma in absent or cells:
                    lacks.setdefault(rule, set()).add(sigma)
            if lacks:
                lacking[convention] = "lacks " + "; ".join(
                    f"{traits.label(rule)} at σ = {', '.join(f'{sigma:g}' for sigma in sorted(lacks[rule]))}"
                    for rule in traits.in_order(lacks)
                )
            else:
                trials[convention] = effects
    nets = max((min(len(effect.values) for effect in own) for own in trials.values()), default=0)
    design = f"{labels.plural(nets, 'net')}, each with its own inputs; the paper: 10 × 10" if nets else ""
    return Answer.of(trials, "net", design, lacking=lacking)


def _effect(
    part: Part, values: NDArray[np.float64], column: str, recipe: str, dvia: str, traits: RuleTraits
) -> Effect:
    cells = part.cells(dvia)
    names, sigmas = [traits.label(rule) for rule, _ in cells], [f"{sigma:g}" for _, sigma in cells]
    words = {name: f"{{{name}}}" for name in ("value", "size", "side")}
    page, measured = f"{FOLDER}/{_file(recipe, part.depth)}", part.scale.metric or column
    several = len(set(sigmas)) > 1
    sources = {
        f"{name} at σ = {sigma:g}" if several else name: f"{page}#{_anchor(measured, sigma, rule)}"
        for name, (rule, sigma) in zip(names, cells, strict=True)
    }
    return Effect(
        part.scale.quantity.format(*names),
        values,
        part.threshold,
        part.scale.natural,
        sentence=part.scale.words.format(*names, **words, sigma=sigmas[0], other=sigmas[-1]),
        ours=part.threshold != 0,
        sigma=", ".join(dict.fromkeys(sigmas)),
        sources=tuple(sources.items()),
    )


RULES: Mapping[str, Rule] = {key: partial(_answer, parts) for key, parts in PARTS.items()}


_ABOUT = (
    "Scores are averaged over the inputs (and outputs) of a net first and over nets then; the number at each "
    "list is the plain mean of its measurements."
)


def numbers_of_claims(frame: pd.DataFrame, traits: RuleTraits) -> Iterator[Number]:
    cells = {
        (measured, part.depth, sigma, actual)
        for parts in PARTS.values()
        for part in parts
        for dvia in (PUBLISHED, REGULAR)
        for actual, sigma in part.cells(dvia)
        for measured in ((part.scale.metric,) if part.scale.metric else CONVENTIONS)
    }
    for recipe in dict.fromkeys(SUITES.values()):
        own = Measured(frame, recipe).frame
        value = own["value"].to_numpy(float)
        for (spec, depth, sigma, rule), rows in positions_by(own, ("metric_spec", "depth", "sigma", "rule")):
            measured, depth = quantity(spec), int(depth)
            if (measured, depth, sigma, rule) not in cells:
                continue
            kind = recorded_metric(spec)
            heading = f"{kind.label}: {kind.variant}" if kind.convention else kind.title
            title = f"{NetKind(ACTIVATION, depth).label}, {recipe}"
            page = Page(_file(recipe, depth), title, "the paper’s claims", "rulings", _ABOUT)
            mean = float(kind.shown(value[rows]).mean()) if np.isfinite(value[rows]).all() else math.inf
            yield Number(
                NumberGroup(page, slug(measured), heading, kind),
                _anchor(measured, sigma, rule),
                f"{traits.label(rule)}, σ = {sigma:g}",
                mean,
                labels_of(own.index[rows]),
                ("component",) if kind.component else (),
            )


def _file(recipe: str, depth: int) -> str:
    return f"{slug('claims', str(depth), '' if recipe == 'SGD 0.01' else recipe)}.html"


def _anchor(measured: str, sigma: float, rule: str) -> str:
    return slug(measured, f"{sigma:g}", rule)
