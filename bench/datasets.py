"""Data sets of the suites."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

FEATURE_SCALINGS = ("raw", "standardised")


@dataclass(frozen=True, eq=False)
class Dataset:
    """A classification set held in memory.

    Attributes
    ----------
    features : Tensor, shape (N, n), float32
    labels : Tensor, shape (N,), int64
    """

    features: Tensor
    labels: Tensor


def iris(scaling: str = "raw") -> Dataset:
    """Fisher's Iris as scikit-learn ships it: 150 flowers, 4 lengths in cm, 3 classes.

    Parameters
    ----------
    scaling : {"raw", "standardised"}
        "standardised" subtracts each feature's mean and divides by its population sd.

    Raises
    ------
    ValueError
        If `scaling` is neither.
    """
    from sklearn.datasets import load_iris

    if scaling not in FEATURE_SCALINGS:
        raise ValueError(f"unknown feature scaling '{scaling}'; choose from {', '.join(FEATURE_SCALINGS)}")
    features, labels = load_iris(return_X_y=True)
    if scaling == "standardised":
        features = (features - features.mean(0)) / features.std(0)
    return Dataset(torch.from_numpy(features).float(), torch.from_numpy(labels).long())


def stratified_rows(labels: Tensor, count: int, order: int = 0) -> tuple[int, ...]:
    """First `count` rows of an order that takes the classes in turn, each in a fixed shuffle.

    A longer choice begins with a shorter one, so that presets share their inputs. Each `order` (a
    seed) is another one and begins with another class, so that single rows are stratified over
    orders.

    Raises
    ------
    ValueError
        If there are fewer than `count` rows.
    """
    if not 1 <= count <= len(labels):
        raise ValueError(f"inputs must be between 1 and {len(labels)}, got {count}")
    shuffled = np.random.default_rng(order).permutation(len(labels))
    classes = int(labels.max()) + 1
    ranks: dict[int, int] = {}
    places = []
    for row in shuffled:
        label = int(labels[row])
        ranks[label] = ranks.get(label, -1) + 1
        places.append((ranks[label], (label - order) % classes, int(row)))
    return tuple(row for _, _, row in sorted(places)[:count])
