"""The nets of the study of two moons, as descriptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...nets.architectures import Architecture
from ...noise import CAUCHY, GAUSSIAN, Noise

WIDTH, HIDDEN = 64, 3


@dataclass(frozen=True)
class MoonsRecipe:
    """A net, the noise of its uncertainty, and whether training uses the law of its scores."""

    how: str  # description of net and noise
    # trained with the pairwise loss of the law predicted by ``sdp`` rather than with cross-entropy
    propagated: bool
    activation: str
    noise: Noise

    @property
    def label(self) -> str:
        return f"{self.how}, trained {'with propagation' if self.propagated else 'as usual'}"

    @property
    def architecture(self) -> Architecture:
        return Architecture(HIDDEN, self.activation, width=WIDTH, inputs=2, outputs=2)


RECIPES: Mapping[str, MoonsRecipe] = {
    "softmax": MoonsRecipe("GELU, Cauchy noise", propagated=False, activation="gelu", noise=CAUCHY),
    "pairwise": MoonsRecipe("GELU, Cauchy noise", propagated=True, activation="gelu", noise=CAUCHY),
    "softmax_relu": MoonsRecipe("ReLU, Cauchy noise", propagated=False, activation="relu", noise=CAUCHY),
    "pairwise_relu": MoonsRecipe("ReLU, Cauchy noise", propagated=True, activation="relu", noise=CAUCHY),
    "softmax_gaussian": MoonsRecipe(
        "GELU, Gaussian noise", propagated=False, activation="gelu", noise=GAUSSIAN
    ),
    "pairwise_gaussian": MoonsRecipe(
        "GELU, Gaussian noise", propagated=True, activation="gelu", noise=GAUSSIAN
    ),
}
"""Recipes by the objective's name in records; first those of the paper's figure, as far as it states them."""
