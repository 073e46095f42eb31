"""Small nets and laws on which the gate compares predictions alone, without an oracle.

The committed nets are chains of ReLU under independent Gaussian noise. These are what else the rules
handle: the other activations, correlated input, images, residual sums, laws without moments. Weights are
binary fractions from a fixed generator, so that they are the same numbers everywhere and nothing is stored.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from sdp_bench.bench.identity.keys import SeedRoot, digest
from sdp_ref.laws import Cauchy, DiagonalGaussian, Gaussian, Law, SymmetricStable

_INPUTS, _WIDTH, _OUTPUTS = 3, 8, 2
_ALPHA = 1.5


@dataclass(frozen=True, eq=False)
class Probe:
    """A net and a law at its input.

    Attributes
    ----------
    name : str
        For people, unique.
    build : callable
        Makes the net, float64, in evaluation mode.
    law : Law
        Batch 1, float64.
    """

    name: str
    build: Callable[[], nn.Module]
    law: Law

    @cached_property
    def key(self) -> str:
        """Hash of net and law, 16 hexadecimal digits."""
        values = {f.name: getattr(self.law, f.name) for f in fields(self.law)}
        return digest(self.name, dict(self.build().state_dict()), type(self.law).__name__, values)[:16]

    @property
    def root(self) -> SeedRoot:
        """Of the seeds of a sampling rule."""
        return SeedRoot(self.key)


class Residual(nn.Module):
    """x -> last(h + second(relu(h))) with h = first(x)."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(_INPUTS, _WIDTH)
        self.second = nn.Linear(_WIDTH, _WIDTH)
        self.last = nn.Linear(_WIDTH, _OUTPUTS)
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Outputs, shape (B, 2)."""
        h = self.first(x)
        out: Tensor = self.last(h + self.second(self.act(h)))
        return out


def _chain(activation: type[nn.Module]) -> nn.Module:
    return nn.Sequential(
        nn.Linear(_INPUTS, _WIDTH),
        activation(),
        nn.Linear(_WIDTH, _WIDTH),
        activation(),
        nn.Linear(_WIDTH, _OUTPUTS),
    )


def _image_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(2, 3, 2, padding=1),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.AvgPool2d(3),
        nn.Flatten(),
        nn.Linear(3, _OUTPUTS),
    )


def _weighted(make: Callable[[], nn.Module], seed: int) -> Callable[[], nn.Module]:
    """The net of `make` with weights, biases and statistics from a generator of numpy."""

    def build() -> nn.Module:
        with torch.random.fork_rng(devices=[]):  # layers draw weights, which are not kept
            net = make().double().eval().requires_grad_(False)
        rng = np.random.default_rng(seed)
        for name, value in net.state_dict().items():
            if value.is_floating_point():
                lowest = 16 if name.endswith("running_var") else -64
                value.copy_(_binary(rng, tuple(value.shape), lowest))
        return net

    return build


def _binary(rng: np.random.Generator, shape: tuple[int, ...], lowest: int = -64) -> Tensor:
    """Multiples of 1/64 up to 1: integers of a generator are the same on every machine."""
    return torch.from_numpy(rng.integers(lowest, 65, shape) / 64.0)


def _diagonal(seed: int, *shape: int) -> DiagonalGaussian:
    rng = np.random.default_rng([seed, *shape])
    return DiagonalGaussian(_binary(rng, (1, *shape)), _binary(rng, (1, *shape), 16))


def _correlated(seed: int) -> Gaussian:
    rng = np.random.default_rng([seed, _INPUTS, _INPUTS])
    root = _binary(rng, (1, _INPUTS, _INPUTS))
    return Gaussian(_binary(rng, (1, _INPUTS)), root @ root.mT + torch.eye(_INPUTS, dtype=torch.float64) / 4)


def probes() -> tuple[Probe, ...]:
    """All probes: activations, correlated input, an image, a residual net, Cauchy and stable noise."""
    activations: dict[str, type[nn.Module]] = {
        "leaky_relu": nn.LeakyReLU,
        "gelu": nn.GELU,
        "sigmoid": nn.Sigmoid,
        "silu": nn.SiLU,
        "tanh": nn.Tanh,
    }
    x = _diagonal(1, _INPUTS)
    found = [
        Probe(f"{name} chain", _weighted(functools.partial(_chain, kind), number), x)
        for number, (name, kind) in enumerate(activations.items())
    ]
    relu = _weighted(functools.partial(_chain, nn.ReLU), 10)
    tanh = _weighted(functools.partial(_chain, nn.Tanh), 11)
    return (
        *found,
        Probe("relu chain, correlated input", relu, _correlated(2)),
        Probe("tanh chain, correlated input", tanh, _correlated(3)),
        Probe("convolutions and pools, image", _weighted(_image_net, 12), _diagonal(4, 1, 4, 4)),
        Probe("residual net", _weighted(Residual, 13), x),
        Probe("relu chain, Cauchy input", relu, Cauchy(x.mean, x.variance)),
        Probe("relu chain, stable input", relu, SymmetricStable(x.mean, x.variance, _ALPHA)),
    )
