"""Choice of the recipe for each net, by a stated criterion and committed evidence.

The paper fixes 5000 epochs of cross-entropy and does not state optimiser, rate and feature scaling.
Candidates are tried in the order of `CANDIDATES`, and the first that trains all of ten seeds to a training
accuracy of 0.9 or more is chosen. If none does, the one with the most such seeds is chosen. ``sdp-bench
recipes`` repeats the trials. The order of the candidates is by agreement with the one table of the paper that
needs no bins, Table 28 (standard deviations of SDP and marginal SDP, four ReLU layers), as measured by
`iris-sensitivity`.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..datasets.base import FEATURE_SCALINGS
from .architectures import Architecture

OPTIMIZERS = ("sgd", "adam")
EPOCHS = 5000


@dataclass(frozen=True)
class Recipe:
    """Training options that the paper does not state, in addition to its 5000 epochs of cross-entropy.

    Training takes full-batch steps without momentum, decay or schedule. `features` is the scaling of the
    inputs, and `dataset` names a tabular classification set. An unknown option, or one that is not positive,
    raises a ValueError.
    """

    optimizer: str = "sgd"
    learning_rate: float = 1e-2
    epochs: int = EPOCHS
    features: str = "raw"
    dataset: str = "iris"

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"unknown optimizer '{self.optimizer}'; choose from {', '.join(OPTIMIZERS)}")
        if self.features not in FEATURE_SCALINGS:
            choices = ", ".join(FEATURE_SCALINGS)
            raise ValueError(f"unknown feature scaling '{self.features}'; choose from {choices}")
        if not 0 < self.learning_rate < math.inf or self.epochs < 1:
            raise ValueError("learning rate and epochs must be positive and finite")

    @property
    def label(self) -> str:
        """Short description: ``sgd 0.01, raw features``, and the epochs unless they are the paper's."""
        epochs = "" if self.epochs == EPOCHS else f", {self.epochs} epochs"
        rows = "" if self.dataset == "iris" else f"{self.dataset}: "
        return f"{rows}{self.optimizer} {self.learning_rate:g}, {self.features} features{epochs}"


CANDIDATES = (
    Recipe("sgd", 1e-2),
    Recipe("adam", 1e-4),
    Recipe("adam", 1e-3),
)
TRAINED = 0.9
SEEDS = 10
EVIDENCE = Path(__file__).with_name("recipes.csv")


@dataclass(frozen=True)
class RecipeTrial:
    """Result of one recipe on one architecture: number of seeds, and of those that reached `TRAINED`."""

    activation: str
    depth: int
    optimizer: str
    learning_rate: float
    seeds: int
    trained: int
    lowest: float
    mean: float

    @property
    def recipe(self) -> Recipe:
        return Recipe(self.optimizer, self.learning_rate)


def choose(trials: Iterable[RecipeTrial]) -> Recipe:
    """Return the first candidate that trained every seed, or else the first with the most seeds."""
    tried = {trial.recipe: trial.trained / trial.seeds for trial in trials}
    return max(CANDIDATES, key=lambda recipe: tried.get(recipe, -1.0))


def attempt(architecture: Architecture, accuracies: Callable[[Recipe], Sequence[float]]) -> list[RecipeTrial]:
    """Try candidates in order until one trains every seed; `accuracies` trains the nets of a recipe."""
    trials = []
    for recipe in CANDIDATES:
        reached = accuracies(recipe)
        trained = sum(accuracy >= TRAINED for accuracy in reached)
        kind = architecture.activation, architecture.depth, recipe.optimizer, recipe.learning_rate
        mean = round(statistics.fmean(reached), 4)
        trials.append(RecipeTrial(*kind, len(reached), trained, round(min(reached), 4), mean))
        if trained == len(reached):
            break
    return trials


@functools.cache
def evidence() -> tuple[RecipeTrial, ...]:
    """Return the committed trials from which recipes were chosen."""
    import pandas as pd

    return tuple(RecipeTrial(*row) for row in pd.read_csv(EVIDENCE).itertuples(index=False))


@functools.cache
def recipe_for(architecture: Architecture) -> Recipe:
    """Return the recipe of an architecture; the first candidate if it was not tried."""
    kind = (architecture.activation, architecture.depth)
    return choose(t for t in evidence() if (t.activation, t.depth) == kind)
