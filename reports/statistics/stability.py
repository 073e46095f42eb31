"""How far the order of rules depends on the choice of settings: orders in random halves compared."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_SPLITS = 1000
"""Number of random splits; if there are at most as many splits in all, each of them is used."""

_ROUNDING = 1e-9  # differences of scores up to this share of the largest score are rounding errors


@dataclass(frozen=True)
class SplitHalves:
    """Orders of rules in two halves of the settings, over many splits.

    `tau` is Kendall's tau between the orders in both halves (median over splits), and `low` and `high` are
    its 2.5 and 97.5 % quantiles. `same_order` and `same_best` are the shares of splits in which both halves
    have the same order and the same best rule, and `same_rank` is the share of halves in which a rule has its
    rank of all settings. `splits` is the number of splits.
    """

    tau: float
    low: float
    high: float
    same_order: float
    same_best: float
    same_rank: dict[str, float]
    splits: int


def split_halves(
    rules: Sequence[str], scores: NDArray[np.float64], nets: NDArray[np.int64], seed: int = 0
) -> SplitHalves | None:
    """Compare the order of two or more rules in halves of the settings; None with fewer than two settings.

    `scores`, lower is better, has the shape (settings, rules), and `nets` numbers the net of each setting.
    All nets of a half have the same weight, whatever their number of settings.
    """
    count = len(scores)
    if count < 2 or len(rules) < 2:
        return None
    chosen = _chosen(count, seed)
    rounding = _ROUNDING * np.abs(scores).max()
    left, right = _means(chosen, scores, nets), _means(~chosen, scores, nets)
    every_setting = _means(np.ones((1, count), dtype=bool), scores, nets)
    first, second = np.triu_indices(len(rules), 1)

    def signs(means: NDArray[np.float64]) -> NDArray[np.float64]:
        differences = means[:, first] - means[:, second]
        return np.where(np.abs(differences) <= rounding, 0.0, np.sign(differences))

    def ranks(means: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.asarray((means[:, None, :] < means[:, :, None] - rounding).sum(-1))

    of_left, of_right = signs(left), signs(right)
    comparable = ((of_left != 0) | (of_right != 0)).sum(1)  # without rules that never differ
    taus = (of_left * of_right).sum(1) / np.maximum(comparable, 1)
    rank_in_halves = np.concatenate([ranks(left), ranks(right)])
    same_rank = (rank_in_halves == ranks(every_setting)).mean(0)
    low, median, high = np.quantile(taus, (0.025, 0.5, 0.975)).tolist()
    return SplitHalves(
        tau=median,
        low=low,
        high=high,
        same_order=float((of_left == of_right).all(1).mean()),
        same_best=float(((ranks(left) == 0) & (ranks(right) == 0)).any(1).mean()),
        same_rank=dict(zip(rules, same_rank.tolist(), strict=True)),
        splits=len(chosen),
    )


def _chosen(count: int, seed: int) -> NDArray[np.bool_]:
    """Return halves of `count` settings, shape (splits, settings)."""
    half = count // 2
    if math.comb(count, half) <= MOST_SPLITS:
        halves = list(itertools.combinations(range(count), half))
    else:
        rng = np.random.default_rng(seed)
        halves = [tuple(rng.permutation(count)[:half].tolist()) for _ in range(MOST_SPLITS)]
    chosen = np.zeros((len(halves), count), dtype=bool)
    for row, settings in enumerate(halves):
        chosen[row, list(settings)] = True
    return chosen


def _means(
    chosen: NDArray[np.bool_], scores: NDArray[np.float64], nets: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Mean scores over the chosen settings, first of each net and then over nets; shape (splits, rules)."""
    is_of_net = nets[:, None] == np.unique(nets)  # settings by nets
    settings_of_net = chosen.astype(float) @ is_of_net
    weights = chosen / np.maximum(settings_of_net @ is_of_net.T, 1)
    weights /= (settings_of_net > 0).sum(1, keepdims=True)
    return np.asarray(weights @ scores)
