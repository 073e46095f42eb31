"""Ops that read several components of a vector, for the checks beyond layers of units."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from sdp_ref.activations import ACTIVATIONS, activation
from sdp_ref.conformance import reference
from sdp_ref.conformance.subject import Subject
from sdp_ref.laws import DiagonalGaussian, Gaussian
from sdp_ref.laws.gaussian import AnyGaussian


def _attention(x: Tensor) -> Tensor:
    """One query of width 1, two keys, two values."""
    q, k, v = x[:, :1, None], x[:, 1:3, None], x[:, 3:, None]
    return F.scaled_dot_product_attention(q, k, v).flatten(1)


_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "product": lambda x: x[:, :2] * x[:, 2:],
    "square": lambda x: x * x,
    # the first two components, as a row, times the other four, as a matrix
    "matrix product": lambda x: (x[:, :2].reshape(-1, 1, 2) @ x[:, 2:].reshape(-1, 2, 2)).flatten(1),
    "maximum": lambda x: x[:, :2].maximum(x[:, 2:]),
    "minimum": lambda x: x[:, :2].minimum(x[:, 2:]),
    "largest": lambda x: x.amax(1, keepdim=True),
    "quotient": lambda x: x[:, :2] / x[:, 2:],
    "length": lambda x: torch.linalg.vector_norm(x, dim=1, keepdim=True),
    "attention": _attention,
}


class Op(nn.Module):
    """One of the functions above, by name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        return _FUNCTIONS[self.name](x)

    def extra_repr(self) -> str:
        return repr(self.name)


OPS: dict[str, nn.Module] = {
    **{name: Op(name) for name in _FUNCTIONS},
    "softmax": nn.Softmax(1),
    "log softmax": nn.LogSoftmax(1),
    "layer norm": nn.LayerNorm(3, elementwise_affine=False),
    "RMS norm": nn.RMSNorm(3, eps=1e-5, elementwise_affine=False),
}


WIDTHS = ((1, 1, 1), (2, 2, 2), (3, 3, 2), (4, 4, 3, 2))
"""Inputs, hidden units, outputs. No layer is wider than the previous one, so that no covariance is singular;
separate checks test singular covariances.
"""


def tensor(values: object) -> Tensor:
    """Float64 tensor of nested numbers or of an array, of the same shape."""
    return torch.as_tensor(np.asarray(values, dtype=np.float64))


def linear(weight: object, bias: object = None) -> nn.Linear:
    """Float64 linear layer with these weights and without gradients; the default bias is 0."""
    w = tensor(weight)
    layer = nn.Linear(w.shape[1], w.shape[0], dtype=torch.float64).requires_grad_(False)
    layer.weight.copy_(w)
    layer.bias.copy_(torch.zeros(len(w)) if bias is None else tensor(bias))
    return layer


def chain(*modules: nn.Module) -> nn.Sequential:
    """Net of these modules, in float64 and evaluation mode, without gradients."""
    return nn.Sequential(*modules).double().requires_grad_(False).eval()


class Residual(nn.Module):
    """x + branch(x)."""

    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x)


IMAGE = (1, 3, 3)
"""Event shape of an image case: one channel."""


def structured(name: str | None, seed: int) -> dict[str, tuple[nn.Sequential, tuple[int, ...]]]:
    """Nets other than plain chains of Linear and activation, with the event shape of their input."""
    between = [] if name is None else [activation(name).build()]
    first, last, more = dense((2, 2, 2, 2), None, seed)
    conv = _filled(nn.Conv2d(1, 2, 2), seed)
    nets = {
        "flattened": (chain(nn.Flatten(), *dense((9, 2), None, seed), *between), IMAGE),
        "convolution": (chain(conv, *between, nn.Flatten(), *dense((8, 2), None, seed)), IMAGE),
        "nested": (chain(first, nn.Sequential(*between, last, more)), (2,)),
        "residual": (chain(Residual(nn.Sequential(first, *between)), last), (2,)),
        "normalised": (chain(first, _filled(nn.BatchNorm1d(2), seed), *between, last), (2,)),
        "many": (dense((12, 6, 5), name, seed), (12,)),
    }
    if name is None or ACTIVATIONS[name].kinks:
        wide = _nearly_diagonal(_WIDE, 0.1, 3.0, seed)
        nets["wide"] = chain(wide, *between, *dense((_WIDE, 2), None, seed)), (_WIDE,)
        deep: list[nn.Module] = []
        for n in range(_DEEP):
            deep += [_nearly_diagonal(2, 0.6, 1.0, seed + n), *between]
        nets["deep"] = chain(*deep, last), (2,)
    return nets


CONVOLUTIONS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "stride": (lambda: nn.Conv2d(1, 1, 2, stride=2), (1, 4, 4)),
    "groups": (lambda: nn.Conv2d(2, 2, 2, groups=2), (2, 2, 3)),
    "dilation": (lambda: nn.Conv2d(1, 1, 2, dilation=2), (1, 3, 4)),
    "transposed": (lambda: nn.ConvTranspose2d(1, 1, 2), (1, 2, 2)),
    "row": (lambda: nn.Conv1d(1, 2, 2), (1, 4)),
    "volume": (lambda: nn.Conv3d(1, 1, 2), (1, 2, 2, 3)),
    "averaged": (lambda: nn.AvgPool2d(2, 1), (1, 3, 3)),
    "shuffled": (lambda: nn.PixelShuffle(2), (4, 1, 2)),
    "interpolated": (lambda: nn.Upsample((2, 2), mode="bilinear"), (1, 3, 3)),
}
"""Convolutions and other linear ops on images, with the event shape of their input."""


def convolved(kind: str, name: str | None, seed: int) -> tuple[nn.Sequential, tuple[int, ...]]:
    """One of :data:`CONVOLUTIONS` and an activation, if any, with the event shape of its input."""
    convolution, shape = CONVOLUTIONS[kind]
    between = [] if name is None else [activation(name).build()]
    return chain(_filled(convolution(), seed), *between, nn.Flatten()), shape


def _filled(layer: nn.Module, seed: int) -> nn.Module:
    """Float64 layer with random two-digit weights and statistics, without gradients."""
    rng = np.random.default_rng([seed, 9])
    layer = layer.double().requires_grad_(False)
    for name, value in layer.state_dict().items():
        if value.is_floating_point():
            size = 0.5 if name == "bias" else 0.9
            low = 0.2 if name == "running_var" else -size
            value.copy_(tensor(np.round(rng.uniform(low, size, tuple(value.shape)), 2)))
    return layer


_WIDE, _DEEP = 128, 8


def _nearly_diagonal(width: int, diagonal_weight: float, bias: float, seed: int) -> nn.Linear:
    """Square layer whose units have noise of their own, and are positive if inputs are above -1."""
    rng = np.random.default_rng([seed, width])
    weight = np.round(rng.uniform(0, 0.3, (width, width)) / width**0.5, 3) + diagonal_weight * np.eye(width)
    return linear(weight, np.full(width, bias))


def units(name: str, n: int, *, last: bool = False) -> nn.Sequential:
    """Activation of each of n inputs; with `last` followed by a layer of sums and differences."""
    modules = [linear(np.eye(n)), activation(name).build()]
    if last:
        modules.append(linear([[1.0] * n, [(-1.0) ** i for i in range(n)]]))
    return chain(*modules)


def dense(widths: Sequence[int], name: str | None, seed: int, *, bias: bool = True) -> nn.Sequential:
    """Net with random two-digit weights; affine without an activation."""
    rng = np.random.default_rng([seed, *widths])
    modules: list[nn.Module] = []
    for fan_in, out in itertools.pairwise(widths):
        sign = np.where(rng.random((out, fan_in)) < 0.5, -1.0, 1.0)
        # no small weights, so that every unit depends on every input
        weight = sign * np.round(rng.uniform(0.4, 1.4, (out, fan_in)) / fan_in**0.5, 2)
        shift = np.round(rng.uniform(-0.5, 0.5, out), 2) if bias else np.zeros(out)
        modules += [linear(weight, shift)]
        if name is not None:
            modules += [activation(name).build()]
    if name is not None:
        del modules[-1]  # no activation after the last layer
    return chain(*modules)


def diagonal(n: int, seed: int, batch: int = 1) -> DiagonalGaussian:
    """Independent inputs with means of order 1 and variances from 0.5 to 1.5."""
    rng = np.random.default_rng([seed, n, batch])
    mean = np.round(rng.uniform(-1, 1, (batch, n)), 2)
    return DiagonalGaussian(tensor(mean), tensor(np.round(rng.uniform(0.5, 1.5, (batch, n)), 2)))


def singular(n: int, seed: int) -> Iterator[AnyGaussian]:
    """Two laws of n inputs with a singular covariance: one input without noise, and rank 2."""
    x, rng = diagonal(n, seed), np.random.default_rng([seed, n, 2])
    yield DiagonalGaussian(x.mean, torch.cat([0 * x.variance[:, :1], x.variance[:, 1:]], 1))
    root = np.round(rng.uniform(0.2, 0.9, (1, n, 2)), 1)
    yield Gaussian(x.mean, tensor(root @ root.transpose(0, 2, 1)))


def full(n: int, seed: int, batch: int = 1) -> Gaussian:
    """Correlated inputs, with a well-conditioned covariance (eigenvalues of at least 0.2)."""
    rng = np.random.default_rng([seed, n, batch, 1])
    mean = np.round(rng.uniform(-1, 1, (batch, n)), 2)
    root = rng.uniform(-0.7, 0.7, (batch, n, n))
    covariance = np.round(root @ root.transpose(0, 2, 1) + 0.2 * np.eye(n), 3) + 0.01 * np.eye(n)
    return Gaussian(tensor(mean), tensor(covariance))


def layers(
    sizes: Iterable[tuple[int, ...]], name: str | None, seed: int, *, bias: bool = True
) -> Iterator[tuple[nn.Sequential, AnyGaussian]]:
    """Nets :func:`dense` of these widths, each with independent and with correlated inputs."""
    for widths in sizes:
        net = dense(widths, name, seed, bias=bias)
        yield net, diagonal(widths[0], seed)
        yield net, full(widths[0], seed)


def generic(subject: Subject, seed: int) -> Iterator[tuple[nn.Sequential, AnyGaussian]]:
    """Nets of increasing size with one kinked and one smooth activation that the rule supports."""
    for name in representative(subject):
        yield from layers(WIDTHS, name, seed)


def representative(subject: Subject) -> list[str]:
    """The first supported activation with a kink, and tanh (curvature of both signs) or a smooth one."""
    names = reference.known(subject.activations) or subject.activations
    kinked = [name for name in names if ACTIVATIONS[name].kinks]
    smooth = sorted((name for name in names if not ACTIVATIONS[name].kinks), key=lambda name: name != "tanh")
    return kinked[:1] + smooth[:1]


def indices(x: AnyGaussian, whole: AnyGaussian) -> list[int]:
    """Positions of the laws of `x` in `whole`, whose laws are distinct."""
    same = (x.mean.unsqueeze(1) == whole.mean).all(-1)
    same &= (x.covariance.unsqueeze(1) == whole.covariance).all((-2, -1))
    return [int(i) for i in same.int().argmax(1)]


def moved(x: AnyGaussian, mean: Tensor, factor: float = 1.0) -> AnyGaussian:
    """The law with another mean, perhaps in another shape, and its covariance times a factor."""
    if isinstance(x, Gaussian):
        return Gaussian(mean, factor * x.covariance)
    return DiagonalGaussian(mean, factor * x.variance.reshape(mean.shape))
