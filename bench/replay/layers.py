"""The moments of every layer of a net under input noise: true ones from samples, exact ones for one layer.

A layer is the part of a net between two points where all later values depend on a single tensor: each op of a
chain, or a whole block of a residual net.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from sdp_bench.bench.experiments.costs import samples_by_layer
from sdp_bench.oracles.moments.moments import Moments
from sdp_bench.oracles.sampling.forward import in_threads
from sdp_bench.oracles.sampling.noise import SCRAMBLES, Seed
from sdp_bench.oracles.sampling.outputs import Sampler, stream_outputs
from sdp_ref.activations import ELEMENTWISE, activation_of
from sdp_ref.graph.affine import AFFINE
from sdp_ref.graph.ops import Unknown
from sdp_ref.graph.trace import Net, Step, UntraceableError, trace
from sdp_ref.laws import Gaussian, Law, joined, unchecked
from sdp_ref.rules import MomentMatching
from sdp_ref.rules.layerwise import IDENTITIES

Pair = tuple[Tensor, Tensor]
"""Means (B, n) and covariances (B, n, n), float64."""


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Gaussians with the roots of their covariances, which each distance needs.

    `mean` has shape (B, n), `root` (symmetric) shape (B, n, n), and `trace` of the covariances shape (B,).
    """

    mean: Tensor
    root: Tensor
    trace: Tensor

    @classmethod
    def of(cls, pair: Pair, scale: Tensor | None = None) -> Gaussians:
        """Return Gaussians with these means and covariances, of shapes (B, n) and (B, n, n).

        Negative eigenvalues of a covariance count as zero. Coordinates are first multiplied by `scale`,
        shape (m, n), float64.
        """
        mean, covariance = pair
        if scale is not None:
            mean, covariance = mean @ scale.mT, scale @ covariance @ scale.mT
            covariance = (covariance + covariance.mT) / 2
        values, vectors = torch.linalg.eigh(covariance)
        values = values.clamp(min=0)
        return cls(mean, (vectors * values.sqrt().unsqueeze(-2)) @ vectors.mT, values.sum(-1))

    def __getitem__(self, places: Sequence[int]) -> Gaussians:
        index = torch.tensor(places)
        return Gaussians(self.mean[index], self.root[index], self.trace[index])


def squared_distance(a: Gaussians, b: Gaussians) -> Tensor:
    """Return the squared W2 between Gaussians, shape (2, B), float64: the parts of means and of covariances.

    `a` and `b` have the same number of Gaussians, or one of them has a single one.

    Source: Gelbrich, "On a formula for the L2 Wasserstein metric between measures on Euclidean and Hilbert
    spaces", Math. Nachr. 1990.
    """
    # Singular values, and not roots of eigenvalues: rounding stays far below the distance.
    cross = torch.linalg.svdvals(a.root @ b.root).sum(-1)
    apart = (a.trace + b.trace - 2 * cross).clamp(min=0)
    spread = torch.where((a.root == b.root).flatten(1).all(1), 0.0, apart)
    return torch.stack([(a.mean - b.mean).square().sum(-1), spread])


def distance(a: Gaussians, b: Gaussians) -> Tensor:
    """Return the W2 between Gaussians, shape (B,)."""
    return squared_distance(a, b).sum(0).sqrt()


Array = NDArray[np.float64]
BLOCKS = SCRAMBLES
"""Blocks of samples, independent of each other under either sampler."""

MAX_BYTES = 2 * 2**30
"""What the covariance matrices of all layers, in blocks, may take."""

REFERENCE_SAMPLES = 2**17
"""Samples of a layer's output where its moments have no formula."""

_BATCH = 8  # laws that a thread takes through a layer at once
_ROWS = 1024  # a chunk whose activations stay in cache, in float64 too

ROUNDING = 2.7
"""Units in the last place below which a spread counts as none, as in `oracles.moments.moments`."""


class Layer(nn.Module):
    """Part of a net between two points where all later values depend on one value.

    Value 0 of its steps is the layer's input, the last one its output.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(step.module for step in steps)
        self.inputs = [step.inputs for step in steps]
        self.paths = [step.path for step in steps]

    @property
    def label(self) -> str:
        """Short description: ``Linear`` or ``6 ops up to Add``."""
        kinds = [type_before_parametrizations(part).__name__ for part in self.parts]
        return kinds[0] if len(kinds) == 1 else f"{len(kinds)} ops up to {kinds[-1]}"

    @property
    def exact(self) -> bool:
        """Whether the moments of its output have a formula for a Gaussian input."""
        if len(self.parts) > 1:
            return False
        part = self.parts[0]
        kind = type_before_parametrizations(part)
        return kind in (*AFFINE, *IDENTITIES) or (kind in ELEMENTWISE and activation_of(part).moments)

    @property
    def affine(self) -> bool:
        """Whether it is a single op that is affine or the identity."""
        kind = type_before_parametrizations(self.parts[0])
        return len(self.parts) == 1 and kind in (*AFFINE, *IDENTITIES)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the layer for an input (B, *event)."""
        values = [x]
        for part, inputs in zip(self.parts, self.inputs, strict=True):
            values.append(part(*(values[i] for i in inputs)))
        return values[-1]


def layers_of(net: Net, like: Tensor) -> list[Layer]:
    """Cut a net into layers, in order; each reads one value, and later layers read only its output.

    The layers share the net's parameters. `like`, shape (B, *event), is an example of its inputs. A
    ValueError says which op prevents this: the net cannot be traced, has no op, or has one that is not
    understood.
    """
    try:
        steps = trace(net, like.cpu())
    except UntraceableError as error:
        raise ValueError(f"cannot look inside {error}") from error
    unknown = next((step for step in steps if isinstance(step.module, Unknown)), None)
    if unknown is not None:
        raise ValueError(f"cannot look inside a net with {unknown.module.text} (at '{unknown.path}')")
    if not steps:
        raise ValueError("a net that returns its input has no layers")
    cuts = [k for k in range(len(steps) + 1) if all(min(step.inputs) >= k for step in steps[k:])]
    found = []
    for start, stop in itertools.pairwise(cuts):
        part = [replace(s, inputs=tuple(i - start for i in s.inputs)) for s in steps[start:stop]]
        found.append(Layer(part))
    return found


def merged(layers: Sequence[Layer]) -> Layer:
    """Return consecutive layers as one."""
    steps: list[Step] = []
    for layer in layers:
        start = len(steps)
        for part, inputs, path in zip(layer.parts, layer.inputs, layer.paths, strict=True):
            steps.append(Step(part, tuple(i + start for i in inputs), path))
    return Layer(steps)


@dataclass(frozen=True, eq=False)
class LayerMoments:
    """True moments of the input of a net and of the output of each layer, flattened.

    `shapes` are the shapes of one event.
    """

    moments: tuple[Moments, ...]
    shapes: tuple[torch.Size, ...]


@torch.no_grad()
def sample_layers(
    layers: Sequence[Layer],
    x: Law,
    samples: int = 10**6,
    *,
    seed: Seed,
    sampler: Sampler = "mc",
    max_bytes: int = MAX_BYTES,
) -> LayerMoments:
    """Return true moments of the input and of every layer's output, from the draws of `sample_outputs`.

    The moments after an affine layer, except the last layer, are the affine images of those before it, which
    agree with the moments of the same samples up to rounding.

    `layers` are those of a whole net, in its precision, on the CPU, and `x` is the law of its input, on the
    CPU. At least 64 `samples` are needed. Fewer than `samples` are drawn if the net has so many units that
    this would take long; see `sdp_bench.bench.experiments.costs.samples_by_layer`. Memory does not grow with
    their number. With the same `seed` and `sampler`, the inputs are those of
    `sdp_bench.oracles.sampling.outputs.sample_outputs`.

    A ValueError is raised if the covariance matrices would take more than `max_bytes`, or the net gives NaN
    or infinity.
    """
    if samples < 4 * BLOCKS:
        raise ValueError(f"moments of layers need at least {4 * BLOCKS} samples, got {samples}")
    value = x.location[:1].clone()
    values = [value]
    for layer in layers:
        value = layer(value.clone())
        values.append(value)
    _require_room([v[0].numel() for v in values], max_bytes)
    mapped = [False, *(layer.affine for layer in layers[:-1]), False]
    sums = [None if skipped else _Sums(v) for v, skipped in zip(values, mapped, strict=True)]
    samples = samples_by_layer(samples, [len(each.centre) for each in sums if each is not None])
    bounds = np.cumsum([0, *(samples // BLOCKS + (b < samples % BLOCKS) for b in range(BLOCKS))])
    stream = stream_outputs(nn.Flatten(), x, samples, seed=seed, sampler=sampler)
    through = partial(_through, layers, sums, x.event_shape)
    done = 0
    for piece in in_threads(partial(through, rows) for rows in _within(stream, bounds.tolist())):
        block = int(np.searchsorted(bounds, done, side="right")) - 1
        for total, part in zip(sums, piece.parts, strict=True):
            if total is not None and part is not None:
                total.add(block, piece.rows, *part)
        done += piece.rows
    (moments,) = in_threads(iter([partial(_completed, layers, sums, values)]))
    return LayerMoments(moments, tuple(v.shape[1:] for v in values))


def _within(stream: Iterator[Tensor], bounds: Sequence[int]) -> Iterator[Tensor]:
    """Yield consecutive rows of a stream in pieces that do not extend over a bound."""
    done = 0
    for rows in stream:
        inside = [bound - done for bound in bounds if done < bound < done + len(rows)]
        yield from rows.tensor_split(inside)
        done += len(rows)


@dataclass(frozen=True)
class _Piece:
    """Sums and products of some samples at every point of a net; None where they are not needed."""

    rows: int
    parts: list[tuple[Tensor, Tensor] | None]


@torch.no_grad()
def _through(
    layers: Sequence[Layer], sums: Sequence[_Sums | None], shape: torch.Size, inputs: Tensor
) -> _Piece:
    parts = [None if total is None else total.zeros() for total in sums]
    for chunk in inputs.split(_ROWS):
        hidden = chunk.reshape(-1, *shape)
        for place, (total, part) in enumerate(zip(sums, parts, strict=True)):
            if place:
                hidden = layers[place - 1](hidden)
            if total is not None and part is not None:
                moved = hidden.flatten(1).double().sub_(total.centre)
                part[0].add_(moved.sum(0))
                part[1].addmm_(moved.mT, moved)
    return _Piece(len(inputs), parts)


@torch.no_grad()
def _completed(
    layers: Sequence[Layer], sums: Sequence[_Sums | None], values: Sequence[Tensor]
) -> tuple[Moments, ...]:
    """Return the moments at every point: those of samples, and affine images of them."""
    found: list[Moments] = []
    for place, total in enumerate(sums):
        if total is not None:
            found.append(total.moments())
        else:
            found.append(_image(layers[place - 1], found[-1], values[place - 1].shape[1:]))
    return tuple(found)


def _image(layer: Layer, moments: Moments, shape: torch.Size) -> Moments:
    """Return the moments of an affine layer's output, block by block, from those of its input."""
    means = np.concatenate([moments.mean[None], moments.block_means])
    covariances = np.concatenate([moments.covariance[None], moments.block_covariances])
    double = copy.deepcopy(layer).double()
    pair = moments_after(double, torch.from_numpy(means), torch.from_numpy(covariances), shape, seed=0)
    mean, covariance = (part.numpy() for part in pair)
    return replace(
        moments,
        mean=mean[0],
        covariance=covariance[0],
        block_means=mean[1:],
        block_covariances=covariance[1:],
    )


def _require_room(units: Sequence[int], max_bytes: int) -> None:
    """Raise a ValueError if covariance matrices for these numbers of units take more than `max_bytes`."""
    need = 8 * (BLOCKS + 2) * sum(count * count for count in units)
    if need > max_bytes:
        raise ValueError(
            f"the covariances of its layers would take {need / 1e9:.3g} GB (the widest has {max(units):,} "
            f"units), more than {max_bytes / 1e9:.3g} GB"
        )


class _Sums:
    """Counts, sums and products of one value's samples, relative to its value at the input's centre."""

    def __init__(self, centre: Tensor) -> None:
        self.eps = torch.finfo(centre.dtype).eps
        self.centre = centre.detach().double().reshape(-1)
        n = len(self.centre)
        self.counts = torch.zeros(BLOCKS, dtype=torch.float64)
        self.sums = torch.zeros(BLOCKS, n, dtype=torch.float64)
        self.products = torch.zeros(BLOCKS, n, n, dtype=torch.float64)

    def zeros(self) -> tuple[Tensor, Tensor]:
        """Return zeros to add a part of the sums and products to."""
        return torch.zeros_like(self.sums[0]), torch.zeros_like(self.products[0])

    def add(self, block: int, count: int, part: Tensor, products: Tensor) -> None:
        self.counts[block] += count
        self.sums[block] += part
        self.products[block] += products

    def moments(self) -> Moments:
        counts = self.counts.numpy()
        means = (self.sums / self.counts[:, None]).numpy()
        if not np.isfinite(means).all():
            raise ValueError("a layer gives non-finite values (NaN or infinity)")
        weights = counts / counts.sum()
        mean = weights @ means
        second = (self.products / self.counts[:, None, None]).numpy()
        # about the overall mean, not the centre
        cross = means[:, :, None] * mean
        covariances = second - cross - cross.transpose(0, 2, 1) + mean[:, None] * mean
        covariance = np.einsum("b,bij->ij", weights, covariances)
        centre = self.centre.numpy()
        null = (ROUNDING * self.eps) ** 2
        return Moments(
            mean + centre, covariance, int(counts.sum()), weights, means + centre, covariances, null
        )


@torch.no_grad()
def moments_after(
    layer: Layer, mean: Tensor, covariance: Tensor, shape: torch.Size, *, seed: Seed
) -> tuple[Tensor, Tensor]:
    """Return mean (B, m) and covariance (B, m, m), float64, of a layer's output for Gaussian inputs.

    They are exact for affine ops and the non-linearities of `sdp_ref.activations`, with the formulas of
    `MomentMatching`, so that this rule has no error against them by construction. For other layers they are
    those of `REFERENCE_SAMPLES` samples, with the same `seed` for every law, which makes their differences
    less noisy.

    `layer` is in float64. `mean` and `covariance`, shapes (B, n) and (B, n, n), are those of the inputs, and
    `shape` is that of one event of the input.
    """
    if layer.exact:
        law = unchecked(Gaussian, mean.reshape(-1, *shape), covariance)
        propagate = MomentMatching().prepare(
            layer
        )  # here and not in the threads: a net is traced in one only
        parts = (partial(propagate, law[k : k + _BATCH]) for k in range(0, law.batch, _BATCH))
        after = joined(list(in_threads(parts)))
        return after.location.flatten(1), after.covariance
    pairs = list(_sampled(layer, mean, covariance, shape, seed))
    return torch.stack([m for m, _ in pairs]), torch.stack([c for _, c in pairs])


def _sampled(
    layer: Layer, mean: Tensor, covariance: Tensor, shape: torch.Size, seed: Seed
) -> Iterator[tuple[Tensor, Tensor]]:
    for m, c in zip(mean, covariance, strict=True):
        law = unchecked(Gaussian, m.reshape(1, *shape), c[None])

        def flat(rows: Tensor) -> Tensor:
            outputs: Tensor = layer(rows)
            return outputs.flatten(1)

        found = Moments.from_stream(_twice(stream_outputs(flat, law, REFERENCE_SAMPLES, seed=seed)))
        yield torch.from_numpy(found.mean), torch.from_numpy(found.covariance)


def _twice(blocks: Iterator[Tensor]) -> Iterator[Tensor]:
    """Yield each block in two parts, since moments need at least two blocks."""
    for block in blocks:
        yield from block.tensor_split(2)
