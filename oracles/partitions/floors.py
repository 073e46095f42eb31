"""Floors: the total variation of counts in cells that an exact rule would have.

The oracle is a sample, too, so its law is only known up to the uncertainty of its counts. If all cells have
large counts, the relative counts are used as the law. Otherwise unseen events matter as much as seen ones,
and the floor is computed over all laws that are compatible with the counts.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from ..estimate.estimate import Floor
from ..estimate.redraws import check_redraws, upper95
from .counting import check_count

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

DENSE = 10  # counts from which on the relative count of a cell is used as its probability
_SPARSE_SHARE = 0.05  # largest share of sparse cells in the noise for which relative counts are used
_BLOCK_VALUES = 2**18  # values in memory at once: 2 MB

_JEFFREYS = 0.5
_GAP = 5  # ratio to the next lower count from which on a cell carries no information about the others
_CONCENTRATIONS = np.geomspace(0.02, 1e6, 41)[:, None]  # from all mass in few cells to equal cells
_FEWEST_SCRAMBLES = 4
_LIVE = 48  # number of candidates for the number of cells with mass, in addition to all cells


def total_variation_floor(
    oracle_counts: ArrayLike, rule_total: int, *, pairs: int = 200, seed: int = 0
) -> Floor:
    """Return the floor of a total variation for `rule_total` samples of a rule, by simulation.

    If cells with fewer than ten counts contribute less than a twentieth of the noise (the sum of the cells'
    standard deviations), the oracle's relative counts are used as the true law. Mean and 95 % point are
    computed over `pairs` pairs of multinomial samples, at least 19, one of the oracle's size and one of the
    rule's. Counts are less uniform than the law, especially small ones, so such pairs are too similar. This
    bias is estimated by resampling the samples, and added (bootstrap correction of the bias).

    Otherwise, or if all counts are in one cell, the floor is the predictive law of the distance between these
    counts and a new sample: two to five times `pairs` laws are drawn that are compatible with the counts, and
    a sample of the rule's size from each. The 95 % point is then a possible value of the distance, the
    smallest that covers 95 %; if there are few such values it covers more.
    """
    oracle = cell_counts("oracle_counts", oracle_counts)
    rule_total, pairs = check_count("rule_total", rule_total, 1), check_redraws("pairs", pairs)
    generator = np.random.default_rng(seed)
    if _is_sparse(oracle):
        return _predictive(oracle, rule_total, pairs, generator)
    once, twice = redrawn_distances(oracle, rule_total, pairs, generator)
    bias = once.mean() - twice.mean()
    return Floor(float(once.mean() + bias), float(upper95(once, "linear") + bias))


def redrawn_distances(
    oracle: Counts, rule_total: int, pairs: int, generator: np.random.Generator
) -> tuple[Array, Array]:
    """Total variation between pairs of multinomial samples from relative counts, and after resampling."""
    total = int(oracle.sum())
    laws: Array = oracle[oracle > 0] / total  # empty cells would change the random numbers
    rounds = []
    for _ in range(2):
        oracle_side = generator.multinomial(total, laws, size=pairs) / total
        rule_side = generator.multinomial(rule_total, laws, size=pairs) / rule_total
        rounds.append(np.abs(oracle_side - rule_side).sum(1) / 2)
        laws = oracle_side
    return rounds[0], rounds[1]


def _is_sparse(counts: Counts) -> bool:
    """Whether cells with few counts contribute to the noise."""
    sparse = counts < DENSE
    deviations = np.sqrt(counts * (1 - counts / counts.sum()))
    return bool(sparse.any() and deviations[sparse].sum() >= _SPARSE_SHARE * deviations.sum())


def scrambled_floor(scrambles: ArrayLike, floor: Floor, *, splits: int = 200, seed: int = 0) -> Floor:
    """Floor for Sobol points, from that of plain samples and the spread of independent scrambles.

    Two halves of the scrambles are two independent samples. The distances between random halves, compared
    with those between random halves of the individual samples, show how much smaller the noise of Sobol
    points is than that of plain samples; the floor is reduced accordingly. The 95 % point is increased to
    account for the small number of scrambles, as Student's is. The rule's points are assumed to have the same
    noise as the oracle's.
    """
    counts, splits = np.asarray(scrambles, dtype=np.int64), check_count("splits", splits, 1)
    if counts.ndim != 2 or len(counts) < _FEWEST_SCRAMBLES:
        raise ValueError(f"scrambles must be {_FEWEST_SCRAMBLES} or more rows of counts, got {counts.shape}")
    generator = np.random.default_rng(seed)
    total = counts.sum(0)
    cells = total[total > 0]
    plain = steady = 0.0
    for _ in range(splits):
        half = counts[generator.permutation(len(counts))[: len(counts) // 2]].sum(0)
        steady += _apart(half, total - half)
        half = generator.multivariate_hypergeometric(cells, int(half.sum()), method="marginals")
        plain += _apart(half, cells - half)
    ratio = steady / plain if plain else 1.0
    spread = floor.upper95 - floor.mean
    # relative to the mean, the spread is large for one cell and its complement, and small for many cells
    if floor.mean:
        spread *= 1 + (0.5 + spread / floor.mean) / len(counts)
    return Floor(ratio * floor.mean, ratio * (floor.mean + spread))


def _apart(a: Counts, b: Counts) -> float:
    return float(np.abs(a / a.sum() - b / b.sum()).sum() / 2)


def cell_counts(name: str, counts: ArrayLike) -> Counts:
    array = np.asarray(counts)
    if array.ndim != 1 or array.dtype.kind not in "iu" or (array < 0).any() or not array.any():
        raise ValueError(f"{name} must be a vector of counts, some of them positive")
    return array.astype(np.int64)


def _predictive(oracle: Counts, rule_total: int, pairs: int, generator: np.random.Generator) -> Floor:
    counts = np.append(
        np.sort(oracle[oracle > 0]), 0
    )  # for a new sample, the share of all empty cells is one number
    draws = int(np.clip(_BLOCK_VALUES // len(counts), 2 * pairs, 5 * pairs))  # more if they are cheap
    distances = []
    for laws in _laws_left_open(counts[:-1], int((oracle == 0).sum()), draws, generator):
        rule = generator.multinomial(rule_total, laws) / rule_total
        distances.append(np.abs(counts / counts.sum() - rule).sum(1) / 2)
    simulated = np.concatenate(distances)
    return Floor(float(simulated.mean()), float(upper95(simulated, "higher")))


def _laws_left_open(
    counts: Counts, empty: int, draws: int, generator: np.random.Generator
) -> Iterator[Array]:
    """Draw laws given the counts; rows contain the masses of the seen cells, and last that of all empty ones.

    Cells above a wide gap, and all others together, have Jeffreys' gamma rates. Of the others an unknown
    number has mass, and shares the rate by a symmetric Dirichlet law with unknown concentration.
    """
    gaps = np.flatnonzero(counts > np.maximum(_GAP * np.append(0, counts[:-1]), DENSE))
    alike = int(gaps[0]) if len(gaps) else len(counts)
    common, apart = counts[:alike], counts[alike:]
    concentrations, live, odds = _populations(common, empty)
    block = max(1, _BLOCK_VALUES // len(counts))
    for rows in (min(block, draws - start) for start in range(0, draws, block)):
        chosen = generator.choice(odds.size, size=rows, p=odds)
        alpha, unseen = concentrations[chosen, None], live[chosen, None] - alike
        shares = generator.gamma(np.hstack([common + alpha, alpha * unseen]))
        shares *= generator.gamma(common.sum() + _JEFFREYS, size=(rows, 1)) / shares.sum(1, keepdims=True)
        others = generator.gamma(apart + _JEFFREYS, size=(rows, len(apart)))
        rates = np.hstack([shares[:, :-1], others, shares[:, -1:]])
        yield rates / rates.sum(1, keepdims=True)


def _populations(counts: Counts, empty: int) -> tuple[Array, Array, Array]:
    """Concentrations and numbers of cells with mass, with their posterior odds.

    The prior is uniform in the logarithm of the concentration. With even odds all cells have mass, or the
    logarithm of their number is uniform.
    """
    seen = len(counts)
    live = np.unique(np.geomspace(max(seen, 1), seen + empty, _LIVE).round())
    prior = np.where(live == live[-1], max(len(live) - 1, 1), 1)
    values, cells = np.unique(counts, return_counts=True)
    alpha, total = _CONCENTRATIONS, _CONCENTRATIONS * live
    log_odds = ((gammaln(values + alpha) - gammaln(alpha)) * cells).sum(1, keepdims=True)
    log_odds = log_odds + gammaln(total) - gammaln(total + counts.sum())
    # the seen cells have mass, and any of the others may
    log_odds = log_odds + _log_choices(empty, live - seen) - _log_choices(seen + empty, live) + np.log(prior)
    odds = np.exp(log_odds - log_odds.max())
    alpha, live = np.broadcast_arrays(alpha, live)
    return alpha.ravel(), live.ravel(), odds.ravel() / odds.sum()


def _log_choices(n: int, k: Array) -> Array:
    choices: Array = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return choices
