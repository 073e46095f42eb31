"""The cases in which the gate compares rules: cells with an oracle, and probes without one.

The committed nets of the cells are chains of ReLU under independent Gaussian noise. Probes are small nets and
laws with the other features: other activations and layers, deep and wide nets, correlated and singular input,
images, residual sums, little and much noise, laws without moments, float32, and other ways to call a rule
(`Way`). Weights are binary fractions from a fixed generator, which are equal on all machines and need not be
stored.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sdp_ref.laws import Cauchy, DiagonalGaussian, Gaussian, Law, SymmetricStable, joined

from ...oracles.moments.moments import Moments
from ..environment import threads
from ..experiments import ci
from ..experiments.law_group import LawGroup
from ..identity import SeedRoot, digest
from ..metrics.oracle import Oracle, independent_blocks
from ..metrics.references import ORACLE_MOMENTS

_INPUTS, _WIDTH, _OUTPUTS = 3, 8, 2
_WIDTHS = (_INPUTS, _WIDTH, _WIDTH, _OUTPUTS)
_COMPANY, _CALLS, _THREADS = 20, 120, 2

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
                others = [_shifted(x, n / 16) for n in range(_COMPANY)]
                return rule(joined([*others, x]))[_COMPANY]
            case Way.LATE:
                for _ in range(_CALLS):
                    rule(x)
            case Way.THREADS:
                with threads(_THREADS):
                    return rule(x)
        return rule(x)


def _shifted(law: Law, shift: float) -> Law:
    """Return a law of the same family with a number added to all of its parameters."""
    parameters = {field.name: getattr(law, field.name) + shift for field in fields(law)}
    return type(law)(**parameters)


@dataclass(frozen=True, eq=False)
class Probe:
    """A net and a law of its input."""

    name: str  # unique display name
    build: Callable[[], nn.Module]  # picklable function that returns the net in evaluation mode
    law: Law  # batch 1, with the dtype of the net
    way: Way = Way.PREPARED  # how the rule is called

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


def _chain(activation: Callable[[], nn.Module] = nn.ReLU, widths: Sequence[int] = _WIDTHS) -> nn.Module:
    layers = [nn.Linear(*pair) for pair in itertools.pairwise(widths)]
    hidden = [module for layer in layers[:-1] for module in (layer, activation())]
    return nn.Sequential(*hidden, layers[-1])


def _normalised() -> nn.Module:
    first, *rest = _chain().children()
    return nn.Sequential(first, nn.BatchNorm1d(_WIDTH), *rest)


def _convolved(kind: type[nn.Module], sizes: tuple[int, ...], features: int, **options: int) -> nn.Module:
    return nn.Sequential(kind(*sizes, **options), nn.ReLU(), nn.Flatten(), nn.Linear(features, _OUTPUTS))


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


def _built(make: Callable[[], nn.Module], seed: int, dtype: torch.dtype) -> nn.Module:
    """Return the net with weights, biases and statistics from a numpy generator."""
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
    """Return all probes: of nets, of laws, and of ways to call a rule.

    The seed of a probe's weights is the number after its net.
    """
    return (*_probes_of_nets(), *_probes_of_laws(), *_probes_of_ways())


def _probe(name: str, make: Callable[[], nn.Module], seed: int, law: Any, way: Way = Way.PREPARED) -> Probe:
    return Probe(name, partial(_built, make, seed, law.location.dtype), law, way)


def _probes_of_nets() -> list[Probe]:
    """Other activations and layers, depths and widths than those of the cells."""
    x, image, row = _diagonal(1, _INPUTS), _diagonal(6, 2, 4, 4), _diagonal(7, 2, 6)
    deep = (_INPUTS, *[_WIDTH] * 11, _OUTPUTS)
    wide = (_INPUTS, 200, _OUTPUTS)
    many = (12, _WIDTH, 5)  # inputs and outputs
    nets: list[tuple[str, Callable[[], nn.Module], int, Law]] = [
        ("leaky_relu chain", partial(_chain, nn.LeakyReLU), 0, x),
        ("gelu chain", partial(_chain, nn.GELU), 1, x),
        ("sigmoid chain", partial(_chain, nn.Sigmoid), 2, x),
        ("silu chain", partial(_chain, nn.SiLU), 3, x),
        ("tanh chain", partial(_chain, nn.Tanh), 4, x),
        ("leaky_relu 0.1 chain", partial(_chain, partial(nn.LeakyReLU, 0.1)), 5, x),
        ("convolutions and pools, image", _image_net, 12, _diagonal(4, 1, 4, 4)),
        ("residual net", Residual, 13, x),
        ("batch normalisation of a vector", _normalised, 14, x),
        ("relu chain, 12 layers", partial(_chain, widths=deep), 15, x),
        ("relu chain, 200 units", partial(_chain, widths=wide), 16, x),
        ("relu chain, 12 inputs, 5 outputs", partial(_chain, widths=many), 17, _diagonal(5, 12)),
        ("convolution with stride", partial(_convolved, nn.Conv2d, (2, 3, 2), 12, stride=2), 18, image),
        ("convolution in groups", partial(_convolved, nn.Conv2d, (2, 4, 3), 16, groups=2), 19, image),
        ("convolution with dilation", partial(_convolved, nn.Conv2d, (2, 3, 2), 12, dilation=2), 20, image),
        ("convolution transposed", partial(_convolved, nn.ConvTranspose2d, (2, 1, 2), 25), 21, image),
        ("convolution of a row", partial(_convolved, nn.Conv1d, (2, 3, 3), 12), 22, row),
    ]
    return [_probe(*net) for net in nets]


def _probes_of_laws() -> list[Probe]:
    """Correlated, singular and heavy-tailed input, little and much noise, float32."""
    x, correlated = _diagonal(1, _INPUTS), _correlated(2)
    root = correlated.covariance[:, :, :2]  # root root^T has rank two
    partly_certain = x.variance.clone()
    partly_certain[:, 0] = 0
    laws: list[tuple[str, Callable[[], nn.Module], int, Law]] = [
        ("relu chain, correlated input", _chain, 10, correlated),
        ("tanh chain, correlated input", partial(_chain, nn.Tanh), 11, _correlated(3)),
        ("relu chain, Cauchy input", _chain, 10, Cauchy(x.mean, x.variance)),
        ("relu chain, stable input", _chain, 10, SymmetricStable(x.mean, x.variance, 1.5)),
        ("relu chain, singular input", _chain, 10, Gaussian(x.mean, root @ root.mT)),
        ("relu chain, one input without noise", _chain, 10, DiagonalGaussian(x.mean, partly_certain)),
        ("relu chain, sigma 0.01", _chain, 24, DiagonalGaussian(x.mean, 0.01**2 * x.variance)),
        ("relu chain, sigma 1000", _chain, 24, DiagonalGaussian(x.mean, 1000.0**2 * x.variance)),
        ("relu chain, float32", _chain, 10, correlated.to(dtype=torch.float32)),
    ]
    return [_probe(*law) for law in laws]


def _probes_of_ways() -> list[Probe]:
    correlated = _correlated(2)
    return [
        _probe(f"relu chain, {way.value}", _chain, 10, correlated, way)
        for way in Way
        if way is not Way.PREPARED  # the way of all other probes
    ]


@dataclass(frozen=True, eq=False)
class GateCell:
    """One input of a net under one noise."""

    group: LawGroup
    index: int  # of the input in the group

    @property
    def key(self) -> str:
        return self.group.keys[self.index].hex

    @property
    def name(self) -> str:
        """Display name: ``4-100-3 seed 0 sigma 0.1, row 42``."""
        return f"{self.group.title}, row {self.group.inputs[self.index].row}"

    def fresh_moments(self, draw: int) -> Moments:
        """Return the moments of fresh samples of its oracle, seeded by `draw`."""
        group = self.group
        key = group.keys[self.index]
        oracle = Oracle(group.net.build(), group.law[self.index], key, group.settings.sampling)
        return Moments.from_samples(oracle.redrawn(f"gate {draw}"), independent_blocks(oracle.sampler))


Case = GateCell | Probe


@dataclass(frozen=True, eq=False)
class GateScope:
    """The rules that are checked by default, and the cells and probes in which they are compared."""

    rules: tuple[str, ...]
    groups: tuple[LawGroup, ...]
    probes: tuple[Probe, ...]

    @classmethod
    def of_ci(cls) -> GateScope:
        """Return the cells of continuous integration, and all probes."""
        # The cells do not depend on the rules, and a broken rule must not prevent their construction.
        return cls(ci.RULES, tuple(ci.groups([ORACLE_MOMENTS.name])), probes())

    @cached_property
    def cells(self) -> dict[str, GateCell]:
        cells = [GateCell(group, index) for group in self.groups for index in range(len(group.inputs))]
        return {cell.key: cell for cell in cells}

    @cached_property
    def cases(self) -> dict[str, Case]:
        return {**self.cells, **{probe.key: probe for probe in self.probes}}

    @cached_property
    def nets(self) -> dict[str, LawGroup]:
        """The first group of each net, on which rules are timed, by display name: ``4-100-3 seed 0``."""
        first: dict[str, LawGroup] = {}
        for group in self.groups:
            first.setdefault(f"{group.net.architecture.label} seed {group.net.seed}", group)
        return first
