"""Classifiers of two moons, trained as usual or by a propagated law, and what they are uncertain about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

import torch
from torch import Tensor, nn

import sdp_ref as sr
from sdp_bench.bench.nets.architectures import Architecture
from sdp_bench.bench.noise import CAUCHY, GAUSSIAN, Noise
from sdp_ref import losses

Scored = sr.Gaussian | sr.Cauchy
"""Laws of the scores."""

SCALE = 0.3
"""Of the noise, in the units of the points."""
POINTS = 300
SPREAD = 0.1
"""Standard deviation of the points about their moons."""
LEARNING_RATE = 0.01
"""Of Adam; each step takes all points, and gradients are clipped at norm 1."""
WIDTH, HIDDEN = 64, 3
FAR = 1.0
"""A point is far that is farther than this from every point of the training set."""
TESTED = 1000
"""Added to a seed for the points that a net is tested on."""
_LOW, _HIGH, _SIDE = (-2.5, -2.5), (3.5, 3.0), 40


@dataclass(frozen=True)
class Recipe:
    """A net, the noise that its uncertainty is about, and whether it is trained on the law of its scores.

    Attributes
    ----------
    how : str
        Net and noise, for people.
    propagated : bool
        Trained by the pairwise loss of the law that ``sdp`` predicts, and not by cross-entropy.
    activation : str
    noise : Noise
    """

    how: str
    propagated: bool
    activation: str = "gelu"
    noise: Noise = CAUCHY

    @property
    def label(self) -> str:
        """All of it, for people."""
        return f"{self.how}, trained {'with propagation' if self.propagated else 'as usual'}"

    @property
    def architecture(self) -> Architecture:
        """Of its net."""
        return Architecture(HIDDEN, self.activation, width=WIDTH, inputs=2, outputs=2)


def _recipes() -> Iterator[tuple[str, Recipe]]:
    for name, activation, noise, how in (
        ("", "gelu", CAUCHY, "GELU, Cauchy noise"),
        ("_relu", "relu", CAUCHY, "ReLU, Cauchy noise"),
        ("_gaussian", "gelu", GAUSSIAN, "GELU, Gaussian noise"),
    ):
        yield f"softmax{name}", Recipe(how, False, activation, noise)
        yield f"pairwise{name}", Recipe(how, True, activation, noise)


RECIPES: Mapping[str, Recipe] = MappingProxyType(dict(_recipes()))
"""By the name that records have as their objective; first those of the paper's figure as far as it says."""


@dataclass(frozen=True)
class Moons:
    """Points of two classes: to train on, to test on, and far ones."""

    points: Tensor
    labels: Tensor
    tested: Tensor
    truth: Tensor
    far: Tensor


def moons(seed: int) -> Moons:
    """Two interleaved half circles, of scikit-learn.

    Parameters
    ----------
    seed : int
        Below 1000; that of the points to test on is 1000 larger.

    Returns
    -------
    Moons
    """
    from sklearn.datasets import make_moons

    (points, labels), (tested, truth) = (
        make_moons(POINTS, noise=SPREAD, random_state=each) for each in (seed, seed + TESTED)
    )
    axes = [torch.linspace(low, high, _SIDE) for low, high in zip(_LOW, _HIGH, strict=True)]
    grid = torch.cartesian_prod(*axes)
    seen = torch.tensor(points, dtype=torch.float32)
    return Moons(
        seen,
        torch.tensor(labels),
        torch.tensor(tested, dtype=torch.float32),
        torch.tensor(truth),
        grid[torch.cdist(grid, seen).amin(1) > FAR],
    )


def train(recipe: Recipe, data: Moons, steps: int, seed: int) -> nn.Sequential:
    """Train a net by a recipe.

    Parameters
    ----------
    recipe : Recipe
    data : Moons
    steps : int
        Each of all points.
    seed : int
        Of the initial weights.

    Returns
    -------
    nn.Sequential
        From points (B, 2) to scores (B, 2).
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = recipe.architecture.build().to(data.points.device)
    optimiser = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE)
    noisy, rule = recipe.noise.law(data.points, SCALE), sr.rule("sdp", create_graph=True)
    for _ in range(steps):
        if recipe.propagated:
            law = cast(Scored, sr.propagate(net, noisy, rule))
            loss = losses.pairwise_loss(law, data.labels)
        else:
            loss = nn.functional.cross_entropy(net(data.points), data.labels)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
    return net


@torch.no_grad()
def uncertainty(recipe: Recipe, net: nn.Module, points: Tensor) -> Tensor:
    """Entropy of which class has the larger score when the points are noisy, by ``sdp``.

    Returns
    -------
    Tensor, shape (B,)
        In bits.
    """
    law = cast(Scored, sr.propagate(net, recipe.noise.law(points, SCALE), "sdp"))
    return losses.entropy(losses.pairwise_scores(law)) / torch.tensor(2.0).log()


@torch.no_grad()
def numbers(recipe: Recipe, net: nn.Module, data: Moons) -> Mapping[str, float]:
    """What a net is uncertain about.

    Parameters
    ----------
    recipe : Recipe
    net : nn.Module
    data : Moons

    Returns
    -------
    mapping of str to float
        ``far_over_seen``, the chance that a far point is more uncertain than one of the test set, of which
        equals count half; ``accuracy`` on the test set; ``entropy_seen`` and ``entropy_far``, means in bits.
    """
    seen, far = (uncertainty(recipe, net, points).double() for points in (data.tested, data.far))
    more = (far[:, None] > seen).double() + 0.5 * (far[:, None] == seen).double()
    right = net(data.tested).argmax(1) == data.truth
    return {
        "far_over_seen": float(more.mean()),
        "accuracy": float(right.double().mean()),
        "entropy_seen": float(seen.mean()),
        "entropy_far": float(far.mean()),
    }
