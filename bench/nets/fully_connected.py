"""Training of fully connected nets: seeded, all seeds of an architecture at once, cached."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from sdp_bench.bench import identity
from sdp_bench.bench.datasets import dataset
from sdp_bench.bench.datasets.base import TabularClassification
from sdp_bench.bench.nets import storage
from sdp_bench.bench.nets.architectures import Architecture
from sdp_bench.bench.nets.recipes import Recipe

_OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}


@dataclass(frozen=True, eq=False)
class TrainedNet:
    """A trained net, with its origin and accuracy.

    `accuracy`: accuracy on the training set. `state`: weights, float32, on the CPU. `source`: "trained"
    (now), "cache" or "committed" (with the package).
    """

    architecture: Architecture
    recipe: Recipe
    seed: int
    accuracy: float
    state: dict[str, Tensor]
    source: str = "trained"

    @functools.cached_property
    def digest(self) -> str:
        """Hash of architecture and weights, 16 hexadecimal digits."""
        return identity.digest(asdict(self.architecture), self.state)[:16]

    def build(self) -> nn.Sequential:
        """Return the net in evaluation mode, float32."""
        net = self.architecture.build()
        net.load_state_dict(self.state)
        return net

    def to_bytes(self) -> bytes:
        """Return a safetensors file, with everything but the weights in its metadata."""
        about = {
            "architecture": asdict(self.architecture),
            "recipe": asdict(self.recipe),
            "seed": self.seed,
            "accuracy": self.accuracy,
        }
        return storage.to_file(self.state, about, "net")

    @classmethod
    def from_bytes(cls, content: bytes, source: str) -> TrainedNet:
        """Inverse of `to_bytes`; a ValueError for any other content."""
        try:
            state, about = storage.from_file(content, "net")
            return cls(
                Architecture(**about["architecture"]),
                Recipe(**about["recipe"]),
                about["seed"],
                about["accuracy"],
                state,
                source,
            )
        except Exception as error:
            raise ValueError(f"not a net of this suite ({error})") from error


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
    """Return the nets of `seeds` in this order: committed ones, cached ones, or newly trained and cached."""
    found = {seed: net for seed in seeds if (net := _kept(architecture, recipe, seed))}
    if absent := [seed for seed in seeds if seed not in found]:
        folder = storage.cache_folder()
        paths = {seed: folder / file_name(architecture, recipe, seed) for seed in absent}
        storage.check_writable(paths[absent[0]])
        for net in train(architecture, recipe, absent):
            storage.write(paths[net.seed], net.to_bytes())
            found[net.seed] = net
    return [found[seed] for seed in seeds]


def missing(architecture: Architecture, recipe: Recipe, seeds: Sequence[int]) -> list[int]:
    """Return the seeds whose nets would have to be trained (a damaged one may count as present)."""
    folders = storage.cache_folder(), storage.COMMITTED
    names = {seed: file_name(architecture, recipe, seed) for seed in seeds}
    return [seed for seed, name in names.items() if not any((each / name).exists() for each in folders)]


def committed(architecture: Architecture, recipe: Recipe, seeds: int) -> list[TrainedNet]:
    """Return those nets of seeds 0, 1, ... that come with the package."""
    return [net for seed in range(seeds) if (net := _committed(architecture, recipe, seed))]


def _kept(architecture: Architecture, recipe: Recipe, seed: int) -> TrainedNet | None:
    """Return a committed net, whose weights are equal on every machine, or else a cached one."""
    if net := _committed(architecture, recipe, seed):
        return net
    path = storage.cache_folder() / file_name(architecture, recipe, seed)
    return storage.read(path, partial(_taken, architecture, recipe, seed, "cache"), put_aside=True)


def _committed(architecture: Architecture, recipe: Recipe, seed: int) -> TrainedNet | None:
    path = storage.COMMITTED / file_name(architecture, recipe, seed)
    return storage.read(path, partial(_taken, architecture, recipe, seed, "committed"))


def _taken(architecture: Architecture, recipe: Recipe, seed: int, source: str, content: bytes) -> TrainedNet:
    """Return the net in a file; a ValueError if it is another net or its weights do not fit."""
    net = TrainedNet.from_bytes(content, source)
    if (net.architecture, net.recipe, net.seed) != (architecture, recipe, seed):
        raise ValueError("it is of another recipe")
    storage.check_weights(net.build())
    return net


def train(architecture: Architecture, recipe: Recipe, seeds: Sequence[int]) -> list[TrainedNet]:
    """Train one net per seed, all together: stacked weights, one batched matrix product per layer.

    Initial weights are torch's default for linear layers and depend on the seed only.
    """
    data = dataset(recipe.dataset, TabularClassification).load(recipe.features)
    function = architecture.nonlinearity()
    layers = _initial_layers(architecture, seeds)
    optimizer = _OPTIMIZERS[recipe.optimizer](
        [tensor for layer in layers for tensor in layer],
        lr=recipe.learning_rate,  # type: ignore[call-arg]
    )
    x = data.features.expand(len(seeds), -1, -1)
    labels = data.labels.repeat(len(seeds))
    threads = torch.get_num_threads()
    # One thread: the products are small, and synchronising threads after each of them is much slower on
    # shared cores. Gradients underflow late in training, and denormal numbers make a CPU several times
    # slower.
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    try:
        for _ in range(recipe.epochs):
            optimizer.zero_grad()
            scores = _forward(layers, x, function)
            # The sum of the nets' mean losses, so that gradients do not mix.
            loss = F.cross_entropy(scores.flatten(0, 1), labels) * len(seeds)
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            predicted = _forward(layers, x, function).argmax(-1)
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(threads)
    accuracy = (predicted == data.labels).double().mean(1)
    return [
        TrainedNet(architecture, recipe, seed, float(accuracy[i]), _state(layers, i))
        for i, seed in enumerate(seeds)
    ]


def _forward(layers: list[tuple[Tensor, Tensor]], x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    for k, (weight, bias) in enumerate(layers):
        x = torch.baddbmm(bias.unsqueeze(1), x, weight.mT)
        if k < len(layers) - 1:
            x = function(x)
    return x


def _initial_layers(architecture: Architecture, seeds: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
    sizes = list(zip(architecture.widths[:-1], architecture.widths[1:], strict=True))
    drawn: list[list[tuple[np.ndarray, np.ndarray]]] = []
    for seed in seeds:
        rng = np.random.default_rng(np.random.SeedSequence([seed, 0x1815]))
        drawn.append([(_uniform(rng, n, (m, n)), _uniform(rng, n, (m,))) for n, m in sizes])
    return [
        tuple(  # type: ignore[misc]
            torch.from_numpy(np.stack([net[k][part] for net in drawn])).float().requires_grad_()
            for part in (0, 1)
        )
        for k in range(len(sizes))
    ]


def _uniform(rng: np.random.Generator, fan_in: int, shape: tuple[int, ...]) -> np.ndarray:
    bound = fan_in**-0.5
    return rng.uniform(-bound, bound, shape)


def _state(layers: list[tuple[Tensor, Tensor]], index: int) -> dict[str, Tensor]:
    state = {}
    for k, (weight, bias) in enumerate(layers):
        state[f"{2 * k}.weight"] = weight[index].detach().clone()
        state[f"{2 * k}.bias"] = bias[index].detach().clone()
    return state
