"""Which recipe trains which net: chosen by a stated rule from committed evidence.

The paper fixes 5000 epochs of cross-entropy and leaves optimiser, rate and feature scaling open. The
candidates are tried in the order of :data:`CANDIDATES`, and the first that trains is taken: all of
ten seeds at a training accuracy of 0.9 or more. Where none does, it is the one with the most such
seeds. ``sdp-bench recipes`` tries them again. The order itself is by agreement on the one table of
the paper that needs no bins, Table 28 (standard deviations of SDP and marginal SDP, four ReLU
layers); the suite `iris-sensitivity` measures that.
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
"""The paper's."""


@dataclass(frozen=True)
class Recipe:
    """How a net is trained: what the paper leaves open, beside its 5000 epochs of cross-entropy.

    Full-batch steps without momentum, decay or schedule. `features` is the scaling of the inputs, `dataset`
    names a tabular classification set.

    Raises
    ------
    ValueError
        If an option is unknown or not positive.
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
        """In few words: ``sgd 0.01, raw features``, and the epochs where they are not the paper's."""
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
    """How one recipe did on one architecture: seeds tried, and those that reached :data:`TRAINED`."""

    activation: str
    depth: int
    recipe: Recipe
    seeds: int
    trained: int
    lowest: float
    mean: float

    @classmethod
    def of(cls, architecture: Architecture, recipe: Recipe, accuracies: Iterable[float]) -> Trial:
        """Summary of the training accuracies of some seeds."""
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
    """First candidate that trained every seed; failing that, the first with the most."""
    tried = {trial.recipe: trial for trial in trials}
    inorder = [tried[recipe] for recipe in CANDIDATES if recipe in tried]
    if not inorder:
        return CANDIDATES[0]
    return max(inorder, key=lambda trial: trial.trained / trial.seeds).recipe


def attempt(architecture: Architecture, accuracies: Callable[[Recipe], Iterable[float]]) -> list[Trial]:
    """Try candidates until one trains every seed.

    Parameters
    ----------
    architecture : Architecture
    accuracies : callable
        Trains the nets of a recipe and returns their training accuracies.

    Returns
    -------
    list of Trial
        Of the candidates that were tried, in their order; the last one trained all seeds, if any did.
    """
    trials: list[Trial] = []
    for recipe in CANDIDATES:
        trials.append(Trial.of(architecture, recipe, accuracies(recipe)))
        if trials[-1].trained == trials[-1].seeds:
            break
    return trials


def to_frame(trials: Iterable[Trial]) -> pd.DataFrame:
    """Trials as a table, a row each."""
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
    """The committed trials."""
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
    """Recipe of an architecture; one that was not tried takes the first candidate."""
    kind = (architecture.activation, architecture.depth)
    return choose(t for t in evidence() if (t.activation, t.depth) == kind)
