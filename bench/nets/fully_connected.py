"""Training of fully connected nets: seeded, all seeds of an architecture at once, cached."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from .. import identity
from ..datasets import dataset
from ..datasets.base import TabularClassification
from ..environment import threads
from . import storage
from .architectures import Architecture
from .recipes import Recipe
from .training import OPTIMIZERS, numerics


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedNet(storage.SavedNet):
    """A trained net; `accuracy` is that on the training set."""

    architecture: Architecture
    recipe: Recipe
    seed: int
    key: ClassVar[str] = "net"

    @classmethod
    def parsed(cls, about: dict[str, Any]) -> dict[str, Any]:
        return about | {
            "architecture": Architecture(**about["architecture"]),
            "recipe": Recipe(**about["recipe"]),
        }


def file_name(architecture: Architecture, recipe: Recipe, seed: int) -> str:
    """Return the file name of a net in the cache: readable, and unique by a hash of the recipe."""
    # The name contains the data set, which is left out of the hash so that nets of Iris keep their names.
    # Other data sets may change during development, and nets of an old version must not be used for the new
    # one.
    options = {name: value for name, value in asdict(recipe).items() if name != "dataset"}
    parts: list[Any] = [asdict(architecture), options]
    if recipe.dataset != "iris":
        data = dataset(recipe.dataset, TabularClassification).load(recipe.features)
        parts += [data.features, data.labels]
    key = identity.digest(*parts)[:8]
    shape = f"{architecture.depth}x{architecture.width}"
    return f"{recipe.dataset}-{architecture.activation}-{shape}-{key}-seed{seed}.safetensors"


def get_nets(architecture: Architecture, recipe: Recipe, seeds: Sequence[int]) -> list[TrainedNet]:
    """Return the nets of `seeds` in this order: committed ones, cached ones, or newly trained and cached.

    Committed nets take precedence, because their weights are equal on every machine.
    """
    paths = {seed: storage.cache_folder() / file_name(architecture, recipe, seed) for seed in seeds}
    nets_by_seed = {}
    for seed, path in paths.items():
        kind = architecture, recipe, seed
        net = TrainedNet.load(storage.COMMITTED / path.name, "committed", *kind)
        if net := net or TrainedNet.load(path, "cache", *kind, put_aside=True):
            nets_by_seed[seed] = net
    if absent := [seed for seed in seeds if seed not in nets_by_seed]:
        storage.check_writable(paths[absent[0]])
        for net in train(architecture, recipe, absent):
            storage.write(paths[net.seed], net.to_bytes())
            nets_by_seed[net.seed] = net
    return [nets_by_seed[seed] for seed in seeds]


def missing(architecture: Architecture, recipe: Recipe, seeds: Sequence[int]) -> list[int]:
    """Return the seeds whose nets would have to be trained (a damaged one may count as present)."""
    folders = storage.cache_folder(), storage.COMMITTED
    names = {seed: file_name(architecture, recipe, seed) for seed in seeds}
    return [seed for seed, name in names.items() if not any((folder / name).exists() for folder in folders)]


def committed(architecture: Architecture, recipe: Recipe, seeds: int) -> list[TrainedNet]:
    """Return those nets of seeds 0, 1, ... that come with the package."""
    paths = [storage.COMMITTED / file_name(architecture, recipe, seed) for seed in range(seeds)]
    nets = (TrainedNet.load(path, "committed", architecture, recipe, k) for k, path in enumerate(paths))
    return [net for net in nets if net]


def train(architecture: Architecture, recipe: Recipe, seeds: Sequence[int]) -> list[TrainedNet]:
    """Train one net per seed, all together: stacked weights, one batched matrix product per layer.

    Initial weights are torch's default for linear layers and depend on the seed only.
    """
    data = dataset(recipe.dataset, TabularClassification).load(recipe.features)
    function = architecture.nonlinearity()
    layers = _initial_layers(architecture, seeds)
    tensors = list(itertools.chain(*layers))
    optimizer = OPTIMIZERS[recipe.optimizer](tensors, lr=recipe.learning_rate)
    x = data.features.expand(len(seeds), -1, -1)
    labels = data.labels.repeat(len(seeds))
    # One thread: the products are small, and synchronising threads after each of them is much slower on
    # shared cores.
    with threads(1), numerics():
        for _ in range(recipe.epochs):
            optimizer.zero_grad()
            scores = _forward(layers, x, function)
            # The sum of the nets' mean losses, so that gradients do not mix.
            loss = F.cross_entropy(scores.flatten(0, 1), labels) * len(seeds)
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            predicted = _forward(layers, x, function).argmax(-1)
    accuracy = (predicted == data.labels).double().mean(1)
    names = [f"{2 * k}.{part}" for k in range(len(layers)) for part in ("weight", "bias")]
    stacked = dict(zip(names, tensors, strict=True))
    return [
        TrainedNet(
            architecture=architecture,
            recipe=recipe,
            seed=seed,
            accuracy=float(accuracy[i]),
            state={name: tensor[i].detach().clone() for name, tensor in stacked.items()},
        )
        for i, seed in enumerate(seeds)
    ]


def _forward(layers: list[list[Tensor]], x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    for k, (weight, bias) in enumerate(layers):
        x = torch.baddbmm(bias.unsqueeze(1), x, weight.mT)
        if k < len(layers) - 1:
            x = function(x)
    return x


def _initial_layers(architecture: Architecture, seeds: Sequence[int]) -> list[list[Tensor]]:
    """Return weights and biases of each layer, stacked over the seeds."""
    generators = [np.random.default_rng(np.random.SeedSequence([seed, 0x1815])) for seed in seeds]
    layers = []
    for n, m in itertools.pairwise(architecture.widths):
        bound = n**-0.5
        drawn = [(rng.uniform(-bound, bound, (m, n)), rng.uniform(-bound, bound, m)) for rng in generators]
        layers.append(
            [torch.from_numpy(np.stack(part)).float().requires_grad_() for part in zip(*drawn, strict=True)]
        )
    return layers
