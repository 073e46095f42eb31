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
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sdp_bench.bench.datasets.base import FEATURE_SCALINGS
from sdp_bench.bench.nets.architectures import Architecture

if TYPE_CHECKING:
    import pandas as pd

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
class Trial:
    """Result of one recipe on one architecture: number of seeds, and of those that reached `TRAINED`."""

    activation: str
    depth: int
    recipe: Recipe
    seeds: int
    trained: int
    lowest: float
    mean: float

    @classmethod
    def of(cls, architecture: Architecture, recipe: Recipe, accuracies: Iterable[float]) -> Trial:
        """Return the summary of the training accuracies of some seeds."""
        import pandas as pd

        reached = pd.Series(list(accuracies))
        return cls(
            architecture.activation,
            architecture.depth,
            recipe,
            len(reached),
            int((reached >= TRAINED).sum()),
            float(reached.min()),
            float(reached.mean()),
        )


def choose(trials: Iterable[Trial]) -> Recipe:
    """Return the first candidate that trained every seed, or else the first with the most seeds."""
    tried = {trial.recipe: trial for trial in trials}
    inorder = [tried[recipe] for recipe in CANDIDATES if recipe in tried]
    if not inorder:
        return CANDIDATES[0]
    return max(inorder, key=lambda trial: trial.trained / trial.seeds).recipe


def attempt(architecture: Architecture, accuracies: Callable[[Recipe], Iterable[float]]) -> list[Trial]:
    """Try candidates in order until one trains every seed; `accuracies` trains the nets of a recipe."""
    trials: list[Trial] = []
    for recipe in CANDIDATES:
        trials.append(Trial.of(architecture, recipe, accuracies(recipe)))
        if trials[-1].trained == trials[-1].seeds:
            break
    return trials


def to_frame(trials: Iterable[Trial]) -> pd.DataFrame:
    """Return trials as a table, one row each."""
    import pandas as pd

    rows = [
        {
            "activation": t.activation,
            "depth": t.depth,
            "optimizer": t.recipe.optimizer,
            "learning_rate": t.recipe.learning_rate,
            "seeds": t.seeds,
            "trained": t.trained,
            "lowest": round(t.lowest, 4),
            "mean": round(t.mean, 4),
        }
        for t in trials
    ]
    return pd.DataFrame(rows)


@functools.cache
def evidence() -> tuple[Trial, ...]:
    import pandas as pd

    rows = pd.read_csv(EVIDENCE).to_dict("records")
    return tuple(
        Trial(
            str(row["activation"]),
            int(row["depth"]),
            Recipe(str(row["optimizer"]), float(row["learning_rate"])),
            int(row["seeds"]),
            int(row["trained"]),
            float(row["lowest"]),
            float(row["mean"]),
        )
        for row in rows
    )


@functools.cache
def recipe_for(architecture: Architecture) -> Recipe:
    """Return the recipe of an architecture; the first candidate if it was not tried."""
    kind = (architecture.activation, architecture.depth)
    return choose(t for t in evidence() if (t.activation, t.depth) == kind)
