"""Nets on two moons: training, uncertainty, and groups of work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import sdp_ref as sr
from sdp_ref import losses

from ...errors import UserError
from ...experiments.replicates import Number, ReplicateExperiment, ReplicateGroup
from ...experiments.versions import of_method
from ...identity import digest
from ...settings import Settings
from .recipes import RECIPES, MoonsRecipe

SCALE = 0.3
"""Scale of the noise, in the units of the points."""
POINTS = 300
SPREAD = 0.1
"""Standard deviation of the points about their moons."""
LEARNING_RATE = 0.01
"""Adam's learning rate; each step uses all points, and gradients are clipped at norm 1."""
FAR = 1.0
"""Distance from every training point beyond which a point is far."""
TESTED = 1000
"""Offset of the seed of test points."""
_LOW, _HIGH, _SIDE = (-2.5, -2.5), (3.5, 3.0), 40


class Moons(NamedTuple):
    """Points of two classes: training, test, and far points."""

    points: Tensor
    labels: Tensor
    tested: Tensor
    truth: Tensor
    far: Tensor

    def to(self, device: str) -> Moons:
        return Moons._make(tensor.to(device) for tensor in self)


def moons(seed: int) -> Moons:
    """Return scikit-learn's two interleaved half circles.

    `seed` must be below 1000, since test points have a seed larger by 1000.
    """
    from sklearn.datasets import make_moons

    points, labels = make_moons(POINTS, noise=SPREAD, random_state=seed)
    tested, truth = make_moons(POINTS, noise=SPREAD, random_state=seed + TESTED)
    training_points = torch.tensor(points, dtype=torch.float32)
    axes = [torch.linspace(low, high, _SIDE) for low, high in zip(_LOW, _HIGH, strict=True)]
    grid = torch.cartesian_prod(*axes)
    distance = torch.cdist(grid, training_points).amin(1)
    return Moons(
        training_points,
        torch.tensor(labels),
        torch.tensor(tested, dtype=torch.float32),
        torch.tensor(truth),
        grid[distance > FAR],
    )


def train(recipe: MoonsRecipe, data: Moons, steps: int, seed: int) -> nn.Sequential:
    """Train a net, which maps points (B, 2) to scores (B, 2), with `steps` full-batch steps."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = recipe.architecture.build().to(data.points.device)
    optimiser = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE)
    noisy, rule = recipe.noise.law(data.points, SCALE), sr.rule("sdp", create_graph=True)
    for _ in range(steps):
        if recipe.propagated:
            law: Any = sr.propagate(net, noisy, rule)  # of the family of the noise
            loss = losses.pairwise_loss(law, data.labels)
        else:
            loss = nn.functional.cross_entropy(net(data.points), data.labels)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
    return net


@torch.no_grad()
def uncertainty(recipe: MoonsRecipe, net: nn.Module, points: Tensor) -> Tensor:
    """Return the entropy (bits), shape (B,), of the class with the larger score under noise, by ``sdp``."""
    law: Any = sr.propagate(net, recipe.noise.law(points, SCALE), "sdp")
    return losses.entropy(losses.pairwise_scores(law)) / torch.tensor(2.0).log()


@torch.no_grad()
def numbers(recipe: MoonsRecipe, net: nn.Module, data: Moons) -> Mapping[str, float]:
    """Return the uncertainties and the accuracy of a net.

    ``far_over_seen`` is the probability that a far point is more uncertain than a test point (ties count
    half); ``accuracy`` is that on the test set, and ``entropy_seen`` and ``entropy_far`` are means in bits.
    """
    seen = uncertainty(recipe, net, data.tested).double()
    far = uncertainty(recipe, net, data.far).double()
    more = (far[:, None] > seen).double() + 0.5 * (far[:, None] == seen).double()
    right = net(data.tested).argmax(1) == data.truth
    return {
        "far_over_seen": float(more.mean()),
        "accuracy": float(right.double().mean()),
        "entropy_seen": float(seen.mean()),
        "entropy_far": float(far.mean()),
    }


_STEP, _PROPAGATED = 0.002, 0.012  # s, one thread
_FIXED = 0.2  # s, for the uncertainties


def score(steps: int, group: ReplicateGroup, seed: int, methods: Sequence[str]) -> Iterator[Number]:
    """Train a net on the points of a seed and yield the numbers of `numbers` for each method."""
    recipe = RECIPES[group.objective]
    data = moons(seed).to(group.device)
    net = train(recipe, data, steps, seed)
    values = numbers(recipe, net, data)
    for method in methods:
        for metric, value in values.items():
            yield method, metric, value, None


def groups(experiment: ReplicateExperiment, settings: Settings) -> Iterator[ReplicateGroup]:
    """Yield the groups, recipes times seeds; a UserError if there are more seeds than sets of points."""
    size = experiment.size(settings)
    seeds, steps = size.nets or 1, size.epochs or 1
    if seeds > TESTED:
        raise UserError(f"{experiment.name} has points for {TESTED} seeds, got {seeds}")
    for name, recipe in RECIPES.items():
        network = recipe.architecture.label
        yield from experiment.by_seed(
            settings,
            partial(score, steps),
            label=f"two moons {network}",
            design=f"{POINTS} points; {network}, {recipe.label}; noise of scale {SCALE}; "
            f"adam {LEARNING_RATE:g}, {steps} steps of all points",
            identity=digest(name, steps)[:16],
            versions=of_method(experiment.version, rule=sr.rule("sdp")),  # which gives the uncertainties
            dataset="two moons",
            objective=name,
            sigma=SCALE,
            cost=_FIXED + steps * (_PROPAGATED if recipe.propagated else _STEP),
        )
