"""Estimate, from few samples and without an oracle, in which layers the Gaussian closure errs.

Moment matching replaces the input of every layer by a Gaussian with the same moments. For the error that this
causes at one layer, samples are pushed through the layer, and their moments are compared with the exact ones
of a Gaussian that has the moments of the samples before the layer. Both share the noise of the samples, so
that few suffice.
"""

from __future__ import annotations

import copy

import pandas as pd
import torch
from torch import Tensor, nn

from sdp_ref.graph.trace import Net
from sdp_ref.laws import DiagonalGaussian, Gaussian, Law

from .layers import Gaussians, Laws, distance, layers_of, moments_after


@torch.no_grad()
def closure_by_layer(net: Net, x: Law, *, samples: int = 4096, seed: int = 0) -> pd.DataFrame:
    """Return an estimate of the closure error of moment matching by layer, one row for each layer.

    `net` maps (B, *event) to (B, *out), and `x` is the law of its input, of batch 1. The columns are the
    `layer`, numbered by kind (``ReLU 2``), its number of `units`, and, as distances between Gaussians (W2)
    relative to the root of the total variance,

    - `closure_error`, the estimate after the layer, and `floor`, the same for Gaussian samples before the
      layer, which have no closure error: differences below it are noise;
    - `closure_at_output` and `floor_at_output`, the effect of both on the output, if the exact moments of
      Gaussian inputs follow;
    - `share`, the part of this effect in the sum over all layers, both without the floor.

    Samples go through one layer at a time, so that the memory does not grow with the depth. The time for the
    effect on the output is quadratic in the depth. Raises ValueError if the net cannot be divided into
    layers, and UnsupportedError if moment matching does not support a layer.
    """
    layers = layers_of(copy.deepcopy(net).cpu().double() if isinstance(net, nn.Module) else net, x.location)
    start = x[:1].to(device="cpu", dtype=torch.float64)
    values = [start.location]
    for layer in layers:
        values.append(layer(values[-1]))
    shapes = [value.shape[1:] for value in values]
    generator = torch.Generator().manual_seed(seed)
    is_gaussian = isinstance(start, Gaussian | DiagonalGaussian)  # whether the layer's input is
    if is_gaussian:
        carried = _draw(Laws(start.mean.flatten(1), start.covariance), samples, generator)
        carried = carried.unflatten(1, shapes[0])
    else:
        carried = start.sample(samples, generator).squeeze(1)
    rows = []
    for index, layer in enumerate(layers):
        before, carried = carried, layer(carried)
        row = {"layer": layer.label, "units": shapes[index + 1].numel()}
        row |= dict.fromkeys(("closure_error", "floor", "closure_at_output", "floor_at_output"), 0.0)
        if not (is_gaussian or layer.affine):
            # the same comparison for samples without a closure error
            inputs = _moments(before)
            gaussian = _draw(inputs, samples, generator).unflatten(1, shapes[index])
            after = moments_after(layer, inputs + _moments(gaussian), shapes[index], seed=seed)
            after = after + _moments(carried) + _moments(layer(gaussian))
            row["closure_error"], row["floor"] = _distances(after)
            for later in range(index + 1, len(layers)):
                after = moments_after(layers[later], after, shapes[later], seed=seed)
            row["closure_at_output"], row["floor_at_output"] = _distances(after)
        is_gaussian = is_gaussian and layer.affine
        rows.append(row)
    frame = pd.DataFrame(rows)
    kinds = frame["layer"]
    frame["layer"] = kinds + " " + (kinds.groupby(kinds).cumcount() + 1).astype(str)
    excess = (frame["closure_at_output"] ** 2 - frame["floor_at_output"] ** 2).clip(lower=0) ** 0.5
    frame["share"] = excess / excess.sum() if excess.sum() > 0 else 0.0
    return frame


def _draw(law: Laws, samples: int, generator: torch.Generator) -> Tensor:
    """Samples (samples, n) of a Gaussian law, in pairs that are symmetric about its mean."""
    root = Gaussians.of(law).root[0]
    half = torch.randn(samples // 2, len(root), generator=generator, dtype=torch.float64) @ root
    return law.mean + torch.cat([half, -half])


def _moments(outputs: Tensor) -> Laws:
    rows = outputs.flatten(1)
    return Laws(rows.mean(0, keepdim=True), rows.mT.cov(correction=0).reshape(1, rows.shape[1], -1))


def _distances(laws: Laws) -> tuple[float, float]:
    """Distances of the first of four laws from the third, and of the second from the fourth.

    They are relative to the root of the total variance of the third law.
    """
    spread = float(laws.covariance[2].trace()) ** 0.5
    gaussians = Gaussians.of(laws)
    error, floor = distance(gaussians[[0, 1]], gaussians[[2, 3]]).tolist()
    return (error / spread, floor / spread) if spread > 0 else (error, floor)
