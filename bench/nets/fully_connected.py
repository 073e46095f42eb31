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
        committed_path = storage.COMMITTED / path.name
        net = TrainedNet.load(committed_path, "committed", architecture, recipe, seed)
        if net is None:
            net = TrainedNet.load(path, "cache", architecture, recipe, seed, put_aside=True)
        if net is not None:
            nets_by_seed[seed] = net
    if untrained := [seed for seed in seeds if seed not in nets_by_seed]:
        storage.check_writable(paths[untrained[0]])
        for net in train(architecture, recipe, untrained):
            storage.write(paths[net.seed], net.to_bytes())
            nets_by_seed[net.seed] = net
    return [nets_by_seed[seed] for seed in seeds]


def missing(architecture: Architecture, recipe: Recipe, seeds: Sequence[int]) -> list[int]:
    """Return the seeds whose nets would have to be trained (a damaged one may count as present)."""
    missing_seeds = []
    for seed in dict.fromkeys(seeds):
        name = file_name(architecture, recipe, seed)
        if not ((storage.cache_folder() / name).exists() or (storage.COMMITTED / name).exists()):
            missing_seeds.append(seed)
    return missing_seeds


def committed(architecture: Architecture, recipe: Recipe, seeds: int) -> list[TrainedNet]:
    """Return those nets of seeds 0, 1, ... that come with the package."""
    nets = []
    for seed in range(seeds):
        path = storage.COMMITTED / file_name(architecture, recipe, seed)
        if net := TrainedNet.load(path, "committed", architecture, recipe, seed):
            nets.append(net)
    return nets


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
    nets = []
    for index, seed in enumerate(seeds):
        state = {}
        for layer, (weight, bias) in enumerate(layers):
            # Names in a Sequential of linear layers with a non-linearity after each.
            state[f"{2 * layer}.weight"] = weight[index].detach().clone()
            state[f"{2 * layer}.bias"] = bias[index].detach().clone()
        nets.append(
            TrainedNet(
                architecture=architecture,
                recipe=recipe,
                seed=seed,
                accuracy=float(accuracy[index]),
                state=state,
            )
        )
    return nets


def _forward(layers: list[list[Tensor]], x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Return outputs (S, B, m) at inputs (S, B, n) of a stack of S nets."""
    *hidden, last = layers
    for weight, bias in hidden:
        x = function(torch.baddbmm(bias.unsqueeze(1), x, weight.mT))
    weight, bias = last
    return torch.baddbmm(bias.unsqueeze(1), x, weight.mT)


def _initial_layers(architecture: Architecture, seeds: Sequence[int]) -> list[list[Tensor]]:
    """Return weights and biases of each layer, stacked over the seeds."""
    generators = [np.random.default_rng(np.random.SeedSequence([seed, 0x1815])) for seed in seeds]
    layers = []
    for inputs, outputs in itertools.pairwise(architecture.widths):
        bound = inputs**-0.5
        weights, biases = [], []
        for generator in generators:
            weights.append(generator.uniform(-bound, bound, (outputs, inputs)))
            biases.append(generator.uniform(-bound, bound, outputs))
        weight = torch.from_numpy(np.stack(weights)).float().requires_grad_()
        bias = torch.from_numpy(np.stack(biases)).float().requires_grad_()
        layers.append([weight, bias])
    return layers
