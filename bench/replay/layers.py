"""The moments of every layer of a net under input noise: true ones from samples, exact ones for one layer.

A layer is the part of a net between two points where all later values depend on a single tensor: each op of a
chain, or a whole block of a residual net.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from sdp_ref.activations import ELEMENTWISE, activation_of
from sdp_ref.graph.affine import AFFINE
from sdp_ref.graph.ops import Unknown
from sdp_ref.graph.trace import Net, Step, UntraceableError, trace
from sdp_ref.laws import Gaussian, Law, joined, unchecked
from sdp_ref.rules import MomentMatching
from sdp_ref.rules.layerwise import IDENTITIES

from ...oracles.moments.moments import Moments
from ...oracles.sampling.forward import in_threads
from ...oracles.sampling.noise import SCRAMBLES, Seed
from ...oracles.sampling.outputs import Sampler, sample_outputs

BLOCKS = SCRAMBLES
"""Blocks of samples, independent of each other under either sampler."""

MAX_BYTES = 2 * 2**30
"""What the covariance matrices of all layers, in blocks, may take."""

REFERENCE_SAMPLES = 2**17
"""Samples of a layer's output where its moments have no formula."""

_MOST_PRODUCTS = 1.3e11  # products of samples at most, for all layers
_BATCH = 8  # laws that a thread takes through a layer at once
_ROWS = 1024  # a chunk whose activations stay in cache, in float64 too

ROUNDING = 2.7
"""Units in the last place below which a spread counts as none, as in `oracles.moments.moments`."""


@dataclass(frozen=True, eq=False)
class Laws:
    """Means (B, n) and covariances (B, n, n) of some laws, float64."""

    mean: Tensor
    covariance: Tensor

    @classmethod
    def true(cls, moments: Moments) -> Laws:
        return cls(torch.from_numpy(moments.mean)[None], torch.from_numpy(moments.covariance)[None])

    def __getitem__(self, index: slice | Sequence[int]) -> Laws:
        return Laws(self.mean[index], self.covariance[index])

    def __add__(self, other: Laws) -> Laws:
        return Laws(torch.cat([self.mean, other.mean]), torch.cat([self.covariance, other.covariance]))

    @property
    def independent(self) -> Laws:
        """The same laws without covariances."""
        return Laws(self.mean, torch.diag_embed(self.covariance.diagonal(dim1=-2, dim2=-1)))


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Gaussians with the roots of their covariances, which each distance needs.

    `mean` has shape (B, n), `root` (symmetric) shape (B, n, n), and `trace` of the covariances shape (B,).
    """

    mean: Tensor
    root: Tensor
    trace: Tensor

    @classmethod
    def of(cls, laws: Laws, scale: Tensor | None = None) -> Gaussians:
        """Return Gaussians with the moments of some laws; negative eigenvalues of a covariance count as zero.

        Coordinates are first multiplied by `scale`, shape (m, n), float64.
        """
        mean, covariance = laws.mean, laws.covariance
        if scale is not None:
            mean, covariance = mean @ scale.mT, scale @ covariance @ scale.mT
            covariance = (covariance + covariance.mT) / 2
        values, vectors = torch.linalg.eigh(covariance)
        values = values.clamp(min=0)
        return cls(mean, (vectors * values.sqrt().unsqueeze(-2)) @ vectors.mT, values.sum(-1))

    def __getitem__(self, positions: Sequence[int]) -> Gaussians:
        index = torch.tensor(positions)
        return Gaussians(self.mean[index], self.root[index], self.trace[index])


def squared_distance(a: Gaussians, b: Gaussians) -> Tensor:
    """Return the squared W2 between Gaussians, shape (2, B), float64: the parts of means and of covariances.

    `a` and `b` have the same number of Gaussians, or one of them has a single one.

    Source: Gelbrich, "On a formula for the L2 Wasserstein metric between measures on Euclidean and Hilbert
    spaces", Math. Nachr. 1990.
    """
    # Singular values, and not roots of eigenvalues: rounding stays far below the distance.
    cross = torch.linalg.svdvals(a.root @ b.root).sum(-1)
    covariance_part = (a.trace + b.trace - 2 * cross).clamp(min=0)
    are_equal = (a.root == b.root).flatten(1).all(1)
    covariance_part = torch.where(are_equal, 0.0, covariance_part)  # without rounding
    mean_part = (a.mean - b.mean).square().sum(-1)
    return torch.stack([mean_part, covariance_part])


def distance(a: Gaussians, b: Gaussians) -> Tensor:
    """Return the W2 between Gaussians, shape (B,)."""
    return squared_distance(a, b).sum(0).sqrt()


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
        part, *others = self.parts
        is_elementwise = not others and type_before_parametrizations(part) in ELEMENTWISE
        return self.affine or (is_elementwise and activation_of(part).moments)

    @property
    def affine(self) -> bool:
        """Whether it is a single op that is affine or the identity."""
        kind = type_before_parametrizations(self.parts[0])
        return len(self.parts) == 1 and kind in (*AFFINE, *IDENTITIES)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the layer for an input (B, *event)."""
        values = [x]
        for part, inputs in zip(self.parts, self.inputs, strict=True):
            arguments = [values[number] for number in inputs]
            values.append(part(*arguments))
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
    # A net can be cut before step k if no later step reads a value before value k, the input of step k.
    cuts = [k for k in range(len(steps) + 1) if all(min(step.inputs) >= k for step in steps[k:])]
    layers = []
    for start, stop in itertools.pairwise(cuts):
        steps_of_layer = []
        for step in steps[start:stop]:
            inputs = tuple(value - start for value in step.inputs)
            steps_of_layer.append(replace(step, inputs=inputs))
        layers.append(Layer(steps_of_layer))
    return layers


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
) -> LayerMoments:
    """Return true moments of the input and of every layer's output, from the draws of `sample_outputs`.

    The moments after an affine layer, except the last layer, are the affine images of those before it, which
    agree with the moments of the same samples up to rounding.

    `layers` are those of a whole net, in its precision, on the CPU, and `x` is the law of its input, on the
    CPU. Fewer than `samples` are drawn if the net has so many units that this would take long. With the same
    `seed` and `sampler`, the inputs are those of `sdp_bench.oracles.sampling.outputs.sample_outputs`.

    A ValueError is raised if the covariance matrices would take more than 2 GiB, or the net gives NaN or
    infinity.
    """
    values = [x.location[:1]]  # at the location of the law: of the input, and after each layer
    for layer in layers:
        values.append(layer(values[-1].clone()))
    _check_memory([value.numel() for value in values])
    # Products are summed about the value at the location, which loses fewer digits. None if the moments are
    # an affine image of those before.
    centres: list[Tensor | None] = []
    for index, value in enumerate(values):
        is_image = 0 < index < len(layers) and layers[index - 1].affine
        centres.append(None if is_image else value.double().flatten())
    samples = _affordable(samples, [len(centre) for centre in centres if centre is not None])
    inputs = sample_outputs(nn.Flatten(), x, samples, seed=seed, sampler=sampler)
    blocks = [rows.reshape(-1, *x.event_shape) for rows in inputs.tensor_split(BLOCKS)]
    sums_of_blocks = list(in_threads(partial(_sums, layers, centres, block) for block in blocks))
    weights = np.array([len(block) for block in blocks]) / samples
    moments: list[Moments] = []
    for index, (centre, value) in enumerate(zip(centres, values, strict=True)):
        if centre is None:
            moments.append(_image(layers[index - 1], moments[-1], values[index - 1].shape[1:]))
        else:
            means = np.stack([sums[index][0].numpy() for sums in sums_of_blocks])
            products = np.stack([sums[index][1].numpy() for sums in sums_of_blocks])
            null_variance = (ROUNDING * torch.finfo(value.dtype).eps) ** 2
            moments.append(_of_blocks(centre.numpy(), means, products, weights, samples, null_variance))
    return LayerMoments(tuple(moments), tuple(value.shape[1:] for value in values))


def _check_memory(units: Sequence[int]) -> None:
    need = 8 * (BLOCKS + 2) * sum(count * count for count in units)
    if need > MAX_BYTES:
        raise ValueError(
            f"the covariances of its layers would take {need / 1e9:.3g} GB (the widest has {max(units):,} "
            f"units), more than {MAX_BYTES / 1e9:.3g} GB"
        )


def _affordable(samples: int, units: Sequence[int]) -> int:
    """Return the number of samples, or a smaller power of two for which the products take a few seconds.

    A million samples are affordable for up to 12 hidden layers of 100 units, and half a million for 24.
    """
    most = max(2**14, int(_MOST_PRODUCTS / sum(count * count for count in units)))
    return samples if samples <= most else 1 << (most.bit_length() - 1)


def _of_blocks(
    centre: np.ndarray,
    means: np.ndarray,
    products: np.ndarray,
    weights: np.ndarray,
    samples: int,
    null_variance: float,
) -> Moments:
    """Return moments from means and mean products of blocks of samples, relative to a centre."""
    if not np.isfinite(means).all():
        raise ValueError("a layer gives non-finite values (NaN or infinity)")
    mean = weights @ means
    # Covariances of all blocks are about the overall mean m: E[(y - m)(y - m)'] = E[yy'] - ym' - my' + mm'.
    cross = means[:, :, None] * mean
    covariances = products - cross - cross.transpose(0, 2, 1) + mean[:, None] * mean
    covariance = np.einsum("b,bij->ij", weights, covariances)
    return Moments(mean + centre, covariance, samples, weights, means + centre, covariances, null_variance)


@torch.no_grad()
def _sums(
    layers: Sequence[Layer], centres: Sequence[Tensor | None], block: Tensor
) -> list[tuple[Tensor, Tensor]]:
    """Return means and mean products of a block's values, relative to a centre, at every point of a net.

    `block` has shape (b, *event). The points are the input and the outputs of all layers; a centre (n,) gives
    a mean (n,) and products (n, n), in float64, and None gives empty ones.
    """
    sums = []
    for centre in centres:
        units = 0 if centre is None else len(centre)
        total = torch.zeros(units, dtype=torch.float64)
        sums.append((total, torch.zeros(units, units, dtype=torch.float64)))
    for rows in block.split(_ROWS):
        values = rows
        for layer, centre, (total, products) in zip([None, *layers], centres, sums, strict=True):
            if layer is not None:
                values = layer(values)
            if centre is not None:
                moved = values.flatten(1).double() - centre
                total.add_(moved.sum(0))
                products.addmm_(moved.mT, moved)
    return [(total / len(block), products / len(block)) for total, products in sums]


def _image(layer: Layer, moments: Moments, shape: torch.Size) -> Moments:
    """Return the moments of an affine layer's output, block by block, from those of its input."""
    before = Laws(torch.from_numpy(moments.block_means), torch.from_numpy(moments.block_covariances))
    after = moments_after(copy.deepcopy(layer).double(), Laws.true(moments) + before, shape, seed=0)
    mean, covariance = after.mean.numpy(), after.covariance.numpy()
    return replace(
        moments,
        mean=mean[0],
        covariance=covariance[0],
        block_means=mean[1:],
        block_covariances=covariance[1:],
    )


@torch.no_grad()
def moments_after(layer: Layer, laws: Laws, shape: torch.Size, *, seed: Seed) -> Laws:
    """Return the moments of a layer's output for Gaussian inputs.

    They are exact for affine ops and the non-linearities of `sdp_ref.activations`, with the formulas of
    `MomentMatching`, so that this rule has no error against them by construction. For other layers they are
    those of `REFERENCE_SAMPLES` samples, with the same `seed` for every law, which makes their differences
    less noisy.

    `layer` is in float64, `laws` are those of the inputs, and `shape` is that of one event of the input.
    """
    inputs = unchecked(Gaussian, laws.mean.reshape(-1, *shape), laws.covariance)
    if layer.exact:
        propagate = MomentMatching().prepare(layer)  # not in the threads: a net is traced in one only
        parts = (partial(propagate, inputs[k : k + _BATCH]) for k in range(0, inputs.batch, _BATCH))
        after = joined(list(in_threads(parts)))
        return Laws(after.location.flatten(1), after.covariance)

    def flat(rows: Tensor) -> Tensor:
        outputs: Tensor = layer(rows)
        return outputs.flatten(1)

    sampled = []
    for index in range(inputs.batch):
        outputs = sample_outputs(flat, inputs[index], REFERENCE_SAMPLES, seed=seed)
        sampled.append(Laws.true(Moments.from_samples(outputs)))
    return Laws(torch.cat([law.mean for law in sampled]), torch.cat([law.covariance for law in sampled]))
