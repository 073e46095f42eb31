"""Small nets and laws on which the gate compares predictions without an oracle.

The committed nets are chains of ReLU under independent Gaussian noise. Probes cover the other features: other
activations and layers, deep and wide nets, correlated and singular input, images, residual sums, little and
much noise, laws without moments, float32, and other ways to call a rule (`Way`). Weights are binary fractions
from a fixed generator, which are equal on all machines and need not be stored.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from sdp_bench.bench.environment import threads
from sdp_bench.bench.identity import SeedRoot, digest
from sdp_ref.laws import Cauchy, DiagonalGaussian, Gaussian, Law, SymmetricStable, joined

_INPUTS, _WIDTH, _OUTPUTS = 3, 8, 2
_DEEP, _WIDE, _MANY = (_INPUTS, *[_WIDTH] * 11, _OUTPUTS), (_INPUTS, 200, _OUTPUTS), (12, _WIDTH, 5)
_ALPHA = 1.5
_COMPANY, _CALLS, _THREADS = 20, 120, 2

Activation = Callable[[], nn.Module]
Rule = Callable[[Law], Law]
"""A propagation rule for a given net, as a function of a batch of laws."""


class Way(Enum):
    """How a rule is called."""

    PREPARED = "by prepare"
    """By `prepare` if available; a single law, on one thread. All others except DIRECT start like this."""
    DIRECT = "by propagate"
    COMPANY = "in a batch of 21"
    LATE = "after 120 calls"
    THREADS = "on 2 threads"

    @property
    def laws(self) -> int:
        return _COMPANY + 1 if self is Way.COMPANY else 1

    def ask(self, rule: Rule, x: Law) -> Law:
        match self:
            case Way.COMPANY:
                # other laws first, whose results are discarded
                others = [type(x)(*(getattr(x, f.name) + n / 16 for f in fields(x))) for n in range(_COMPANY)]
                return rule(joined([*others, x]))[_COMPANY]
            case Way.LATE:
                for _ in range(_CALLS):
                    rule(x)
            case Way.THREADS:
                with threads(_THREADS):
                    return rule(x)
        return rule(x)


@dataclass(frozen=True, eq=False)
class Probe:
    """A net and a law of its input."""

    name: str  # unique display name
    build: Callable[[], nn.Module]  # picklable function that returns the net in evaluation mode
    law: Law  # batch 1, with the dtype of the net
    way: Way = Way.PREPARED  # how the rule is called for its prediction; fresh draws always use PREPARED

    @cached_property
    def key(self) -> str:
        """Hash of net and law, 16 hexadecimal digits."""
        values = {f.name: getattr(self.law, f.name) for f in fields(self.law)}
        return digest(self.name, dict(self.build().state_dict()), type(self.law).__name__, values)[:16]

    @property
    def root(self) -> SeedRoot:
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
        h = self.first(x)
        out: Tensor = self.last(h + self.second(self.act(h)))
        return out


def _chain(activation: Activation, widths: Sequence[int] = (_INPUTS, _WIDTH, _WIDTH, _OUTPUTS)) -> nn.Module:
    layers = [nn.Linear(*pair) for pair in itertools.pairwise(widths)]
    hidden = [module for layer in layers[:-1] for module in (layer, activation())]
    return nn.Sequential(*hidden, layers[-1])


def _normalised() -> nn.Module:
    first, *rest = _chain(nn.ReLU).children()
    return nn.Sequential(first, nn.BatchNorm1d(_WIDTH), *rest)


def _convolved(convolution: Callable[[], nn.Module], features: int) -> nn.Module:
    return nn.Sequential(convolution(), nn.ReLU(), nn.Flatten(), nn.Linear(features, _OUTPUTS))


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


def _weighted(
    make: Callable[[], nn.Module], seed: int, dtype: torch.dtype = torch.float64
) -> Callable[[], nn.Module]:
    """Return a function that makes the net with weights, biases and statistics from a numpy generator."""
    return functools.partial(_built, make, seed, dtype)


def _built(make: Callable[[], nn.Module], seed: int, dtype: torch.dtype) -> nn.Module:
    with torch.random.fork_rng(devices=[]):  # layers draw weights, which are replaced
        net = make().to(dtype).eval().requires_grad_(False)
    rng = np.random.default_rng(seed)
    for name, value in net.state_dict().items():
        if value.is_floating_point():
            lowest = 16 if name.endswith("running_var") else -64
            value.copy_(_binary(rng, tuple(value.shape), lowest))
    return net


def _binary(rng: np.random.Generator, shape: tuple[int, ...], lowest: int = -64) -> Tensor:
    """Return multiples of 1/64 up to 1; a generator's integers are equal on all machines."""
    return torch.from_numpy(rng.integers(lowest, 65, shape) / 64.0)


def _diagonal(seed: int, *shape: int) -> DiagonalGaussian:
    rng = np.random.default_rng([seed, *shape])
    return DiagonalGaussian(_binary(rng, (1, *shape)), _binary(rng, (1, *shape), 16))


def _correlated(seed: int) -> Gaussian:
    rng = np.random.default_rng([seed, _INPUTS, _INPUTS])
    root = _binary(rng, (1, _INPUTS, _INPUTS))
    return Gaussian(_binary(rng, (1, _INPUTS)), root @ root.mT + torch.eye(_INPUTS, dtype=torch.float64) / 4)


def probes() -> tuple[Probe, ...]:
    """Return all probes: of nets, of laws, and of ways to call a rule."""
    return (*_of_nets(), *_of_laws(), *_of_ways())


def _of_nets() -> Iterator[Probe]:
    """Yield other activations and layers, depths and widths."""
    x = _diagonal(1, _INPUTS)
    activations: dict[str, Activation] = {
        "leaky_relu": nn.LeakyReLU,
        "gelu": nn.GELU,
        "sigmoid": nn.Sigmoid,
        "silu": nn.SiLU,
        "tanh": nn.Tanh,
        "leaky_relu 0.1": functools.partial(nn.LeakyReLU, 0.1),
    }
    for number, (name, kind) in enumerate(activations.items()):
        yield Probe(f"{name} chain", _weighted(functools.partial(_chain, kind), number), x)
    yield Probe("convolutions and pools, image", _weighted(_image_net, 12), _diagonal(4, 1, 4, 4))
    yield Probe("residual net", _weighted(Residual, 13), x)
    yield Probe("batch normalisation of a vector", _weighted(_normalised, 14), x)
    relu = functools.partial(_chain, nn.ReLU)
    yield Probe("relu chain, 12 layers", _weighted(functools.partial(relu, _DEEP), 15), x)
    yield Probe("relu chain, 200 units", _weighted(functools.partial(relu, _WIDE), 16), x)
    many = _weighted(functools.partial(relu, _MANY), 17)
    yield Probe("relu chain, 12 inputs, 5 outputs", many, _diagonal(5, _MANY[0]))
    image, row = _diagonal(6, 2, 4, 4), _diagonal(7, 2, 6)
    convolutions: dict[str, tuple[Callable[[], nn.Module], int, DiagonalGaussian]] = {
        "with stride": (functools.partial(nn.Conv2d, 2, 3, 2, stride=2), 12, image),
        "in groups": (functools.partial(nn.Conv2d, 2, 4, 3, groups=2), 16, image),
        "with dilation": (functools.partial(nn.Conv2d, 2, 3, 2, dilation=2), 12, image),
        "transposed": (functools.partial(nn.ConvTranspose2d, 2, 1, 2), 25, image),
        "of a row": (functools.partial(nn.Conv1d, 2, 3, 3), 12, row),
    }
    for number, (name, (make, features, law)) in enumerate(convolutions.items(), 18):
        yield Probe(
            f"convolution {name}", _weighted(functools.partial(_convolved, make, features), number), law
        )


def _of_laws() -> Iterator[Probe]:
    """Yield correlated, singular and heavy-tailed input, little and much noise, and float32."""
    x, correlated = _diagonal(1, _INPUTS), _correlated(2)
    relu = _weighted(functools.partial(_chain, nn.ReLU), 10)
    tanh = _weighted(functools.partial(_chain, nn.Tanh), 11)
    yield Probe("relu chain, correlated input", relu, correlated)
    yield Probe("tanh chain, correlated input", tanh, _correlated(3))
    yield Probe("relu chain, Cauchy input", relu, Cauchy(x.mean, x.variance))
    yield Probe("relu chain, stable input", relu, SymmetricStable(x.mean, x.variance, _ALPHA))
    root = correlated.covariance[:, :, :2]
    yield Probe("relu chain, singular input", relu, Gaussian(x.mean, root @ root.mT))
    some = x.variance.clone()
    some[:, 0] = 0
    yield Probe("relu chain, one input without noise", relu, DiagonalGaussian(x.mean, some))
    other = _weighted(functools.partial(_chain, nn.ReLU), 24)
    for sigma in (0.01, 1000.0):
        yield Probe(f"relu chain, sigma {sigma:g}", other, DiagonalGaussian(x.mean, sigma**2 * x.variance))
    single = _weighted(functools.partial(_chain, nn.ReLU), 10, torch.float32)
    yield Probe("relu chain, float32", single, correlated.to(dtype=torch.float32))


def _of_ways() -> Iterator[Probe]:
    """Yield all ways except the default."""
    relu = _weighted(functools.partial(_chain, nn.ReLU), 10)
    for way in list(Way)[1:]:
        yield Probe(f"relu chain, {way.value}", relu, _correlated(2), way)
