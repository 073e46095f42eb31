r"""The error of a rule by layer, after each layer and as seen at the output.

T_l are the true moments after layer l, R_l those of the rule's law there (the rule applied to the net that
ends there), and F_l the exact map from the moments of a Gaussian input of layer l to those of its output.
T_0 = R_0 is the law of the input. After layer l

- the **rule error** is d(R_l, F_l(R_{l-1})): the rule's error on its own law;
- the **closure error** is d(T_l, F_l(P T_{l-1})): the error of replacing the true law by a Gaussian one, with
  independent components if the rule keeps no covariances (P drops them);
- the **total** is d(R_l, T_l), at most rule error + closure error + d(F_l(R_{l-1}), F_l(P T_{l-1})), where
  the last term is the effect of layer l on the errors before it.

These distances after different layers do not add up. As seen at the output they do. Propagate every T_k and
R_k by the exact maps, T_{k \to L} = F_L(... F_{k+1}(T_k)). Then

    T_L - R_L = \sum_k (T_{k \to L} - T_{k-1 \to L})  -  \sum_k (R_{k \to L} - R_{k-1 \to L})

exactly, for every mean and covariance, since both sums start at the law of the input. The k-th terms are the
closure error and the rule error of layer k. For a rule with independent components the second one is split
at D_k, which is F_k(R_{k-1}) without its covariances, to separate dropped covariances from errors of the
formula. As distances, the terms sum to at least the total.

The distance d is that of Gelbrich (1990), W2 between Gaussians with these means and covariances, so that the
triangle inequality holds. It is divided by the root of the true total variance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy.linalg import hadamard
from torch import Tensor

from ...oracles.estimate.redraws import upper95_of_few
from ...oracles.moments.moments import Moments, no_spread
from ...oracles.sampling.forward import in_threads
from ...oracles.sampling.noise import Seed
from .layers import (
    BLOCKS,
    REFERENCE_SAMPLES,
    ROUNDING,
    Gaussians,
    Laws,
    Layer,
    LayerMoments,
    distance,
    moments_after,
    squared_distance,
)

_FLOAT64 = 1e-12  # relative difference that rounding in float64 may cause


@torch.no_grad()
def error_by_layer(
    layers: Sequence[Layer],
    layer_moments: LayerMoments,
    laws: Sequence[Laws],
    *,
    independent: bool,
    whitened: bool = False,
    seed: Seed = 0,
) -> pd.DataFrame:
    """Return the errors of a rule, one row for each layer.

    `layers` are those of the net in float64, with the true moments of `sample_layers`. `laws` contains the
    law of the input and the rule's laws after each layer. `independent` says whether the rule's family has no
    covariances. `seed` is that of reference samples for layers without a formula.

    The first columns are the `layer`, numbered by kind (``ReLU 2``), its number of `units`, and whether its
    reference moments come from a formula (`exact`). Errors after the layer, relative to the root of its true
    total variance, are

    - `rule_error` (see the module; `rule_floor95` is 0 if `exact`), and `dropped`, the covariances that a
      rule with independent components drops;
    - `closure_error` with its standard error `closure_stderr`;
    - `total` with `stderr`, and `mean_error`, the part in the mean. `floor` and `floor95` are the mean and
      the 95 % point of the total for an exact rule, and upper bounds for the closure error, since
      T_l - F_l(T_{l-1}) has less noise than T_l;
    - `spread_ratio`, the root of the rule's total variance over the true one.

    `constant` marks layers with a true spread within rounding of the net's precision. Their distances are in
    the layer's own units and describe rounding.

    `formula_at_output`, `dropped_at_output` and `closure_at_output` are contributions to the error of the
    output, `at_output` is their sum, and `share` the part of the sum over all layers. They are relative to
    the root of the true total variance of the outputs or, if `whitened`, distances in the true outputs'
    principal coordinates of unit variance, over the root of their number. Every direction then has the same
    weight, as in cells of equal mass; directions without variance are left out.

    ``attrs`` holds the error of the output on this scale: `total`, at most the sum of `at_output`, with
    `floor`, `floor95` and `stderr`; `rounding`, the approximate effect of rounding the outputs in the
    oracle's precision; and `samples`, the number of samples of the true moments.
    """
    images, pairs, errors_after_layer = _images_at_output(layers, layer_moments, laws, independent, seed)
    outputs = layer_moments.moments[-1]
    scale = _whitening(outputs) if whitened else _over_spread(outputs)
    gaussians = Gaussians.of(images, scale)
    halves_of_outputs = _scaled_halves(outputs, scale)
    floor, floor95 = _floors(halves_of_outputs)
    # Root mean square of independent errors of one unit in the last place of each output.
    squares = np.square(outputs.mean) + outputs.covariance.diagonal()
    rounding = np.sqrt(outputs.null_variance * (np.square(scale.numpy()) @ squares).sum()) / ROUNDING

    frame = pd.DataFrame(list(in_threads(iter(errors_after_layer))))
    kinds = frame["layer"]
    frame["layer"] = kinds + " " + (kinds.groupby(kinds).cumcount() + 1).astype(str)
    starts = [pair[0] for of_layer in pairs for pair in of_layer]
    ends = [pair[1] for of_layer in pairs for pair in of_layer]
    contributions = distance(gaussians[starts], gaussians[ends]).reshape(-1, 3).numpy()
    frame[["formula_at_output", "dropped_at_output", "closure_at_output"]] = contributions
    frame["at_output"] = contributions.sum(1)
    frame["share"] = frame["at_output"] / frame["at_output"].sum()
    predicted = gaussians[[pairs[-1].formula[1]]]
    true = gaussians[[pairs[-1].closure[1]]]
    frame.attrs = {
        "total": float(distance(predicted, true)),
        "floor": floor,
        "floor95": floor95,
        "stderr": _stderr(predicted, halves_of_outputs),
        "rounding": float(rounding),
        "samples": layer_moments.moments[0].samples,
    }
    return frame


class _Pairs(NamedTuple):
    """Positions of two laws, by kind of error; their distance at the output is a layer's contribution."""

    formula: tuple[int, int]  # D_k and R_k
    dropped: tuple[int, int]  # F_k(R_{k-1}) and D_k
    closure: tuple[int, int]  # F_k(T_{k-1}) and T_k


def _images_at_output(
    layers: Sequence[Layer],
    layer_moments: LayerMoments,
    laws: Sequence[Laws],
    independent: bool,
    seed: Seed,
) -> tuple[Laws, list[_Pairs], list[Callable[[], dict[str, Any]]]]:
    """Propagate the laws after each layer to the output by the exact maps.

    Return the images of the distinct laws, pairs of their positions for each layer, and functions that return
    the errors after each layer. A law that equals its neighbour up to rounding is not propagated separately,
    because the layer contributes no error.
    """
    images = laws[0]  # of distinct laws, at the current layer
    predicted, true = 0, 0  # positions of the rule's and of the true law in `images`
    true_input = laws[0]
    pairs: list[_Pairs] = []
    errors_after_layer: list[Callable[[], dict[str, Any]]] = []
    for index, layer in enumerate(layers):
        moments, rule_law = layer_moments.moments[index + 1], laws[index + 1]
        inputs = images + true_input.independent if independent else images
        after = moments_after(layer, inputs, layer_moments.shapes[index], seed=seed)
        images = after[: len(images.mean)]
        exact_law = images[[predicted]]  # F_l(R_{l-1})
        closed_law = after[[-1]] if independent else images[[true]]  # F_l(P T_{l-1})
        kept_law, after_drop = exact_law, predicted  # D_l
        if independent:
            kept_law = exact_law.independent
            images, after_drop = _position(images, kept_law, predicted)
        images, after_rule = _position(images, rule_law, after_drop)
        true_input = Laws.true(moments)
        images, after_truth = _position(images, true_input, true)
        pairs.append(
            _Pairs(
                formula=(after_drop, after_rule), dropped=(predicted, after_drop), closure=(true, after_truth)
            )
        )
        predicted, true = after_rule, after_truth
        errors_after_layer.append(
            partial(_after_layer, layer, moments, rule_law, exact_law, kept_law, closed_law)
        )
    return images, pairs, errors_after_layer


def halves(moments: Moments) -> tuple[Laws, Laws]:
    """Return moments of 15 balanced halves of the samples, and of the other halves (McCarthy 1969).

    Half of the distance between two halves is distributed like the distance of all samples' moments from the
    true ones. Unlike replicates by multipliers, halves have covariances that are positive semi-definite.

    Source: McCarthy, "Pseudo-replication: half samples", Rev. Int. Stat. Inst. 1969.
    """
    signs = hadamard(BLOCKS)[1:] > 0

    def laws_of(half: np.ndarray) -> Laws:
        weights = half * moments.block_weights
        weights = weights / weights.sum(1, keepdims=True)
        mean = weights @ moments.block_means
        shift = mean - moments.mean
        second = np.einsum("hb,bij->hij", weights, moments.block_covariances)
        covariance = second - shift[:, :, None] * shift[:, None, :]
        return Laws(torch.from_numpy(mean), torch.from_numpy(covariance))

    return laws_of(signs), laws_of(~signs)


def _scaled_halves(moments: Moments, scale: Tensor) -> tuple[Gaussians, Gaussians]:
    half, other_half = halves(moments)
    return Gaussians.of(half, scale), Gaussians.of(other_half, scale)


def _floors(halves: tuple[Gaussians, Gaussians]) -> tuple[float, float]:
    """Return mean and 95 % point of the distance of all samples' moments from the true ones."""
    distances = (distance(*halves) / 2).numpy()
    return float(distances.mean()), upper95_of_few(distances)


def _stderr(law: Gaussians, halves: tuple[Gaussians, Gaussians]) -> float:
    """Return the standard error of the distance of a law from the true one."""
    difference = distance(law, halves[0]) - distance(law, halves[1])
    return float((difference.square() / 4).mean().sqrt())


def _after_layer(
    layer: Layer, moments: Moments, rule_law: Laws, exact_law: Laws, kept_law: Laws, closed_law: Laws
) -> dict[str, Any]:
    """Return the errors after one layer."""
    scale = _over_spread(moments)
    halves_of_layer = _scaled_halves(moments, scale)
    floor, floor95 = _floors(halves_of_layer)
    rule = Gaussians.of(rule_law, scale)
    exact = Gaussians.of(exact_law, scale)
    kept = Gaussians.of(kept_law, scale)
    closed = Gaussians.of(closed_law, scale)
    true = Gaussians.of(Laws.true(moments), scale)
    mean_part, covariance_part = squared_distance(rule, true)[:, 0].tolist()
    # A reference from samples has noise too.
    reference_noise = 0.0 if layer.exact else float(np.sqrt(moments.samples / REFERENCE_SAMPLES))
    variance, predicted_variance = float(true.trace[0]), float(rule.trace[0])
    return {
        "layer": layer.label,
        "units": len(moments.mean),
        "exact": layer.exact,
        "constant": _is_constant(moments),
        "rule_error": float(distance(rule, exact)),
        "rule_floor95": reference_noise * floor95,
        "dropped": float(distance(kept, exact)),
        "closure_error": float(distance(closed, true)),
        "closure_stderr": _stderr(closed, halves_of_layer),
        "total": (mean_part + covariance_part) ** 0.5,
        "floor": floor,
        "floor95": floor95,
        "stderr": _stderr(rule, halves_of_layer),
        "mean_error": mean_part**0.5,
        "spread_ratio": (predicted_variance / variance) ** 0.5 if variance > 0 else np.nan,
    }


def _position(images: Laws, law: Laws, neighbour: int) -> tuple[Laws, int]:
    """Return the images with a law added, unless it equals its neighbour, and the position of the law."""
    if _same(images[[neighbour]], law):
        return images, neighbour
    return images + law, len(images.mean)


def _same(a: Laws, b: Laws) -> bool:
    """Return whether two laws are equal up to rounding in float64."""
    spread = float(a.covariance.diagonal(dim1=-2, dim2=-1).sum())
    size = float(a.mean.square().sum()) ** 0.5 + spread**0.5
    return (
        float((a.mean - b.mean).abs().max()) <= _FLOAT64 * size
        and float((a.covariance - b.covariance).abs().max()) <= _FLOAT64 * spread
    )


def _is_constant(moments: Moments) -> bool:
    null = moments.null_variance * float(np.square(moments.mean).sum())
    return float(np.trace(moments.covariance)) <= null


def _over_spread(moments: Moments) -> Tensor:
    """Return the matrix that divides by the root of the total variance; the identity if it is zero."""
    factor = 1.0 if _is_constant(moments) else float(np.trace(moments.covariance)) ** -0.5
    return factor * torch.eye(len(moments.mean), dtype=torch.float64)


def _whitening(moments: Moments) -> Tensor:
    """Return the matrix to principal coordinates of unit variance, over the root of their number."""
    values, vectors = np.linalg.eigh(moments.covariance)
    kept = values > no_spread(values, moments.null_variance, np.square(moments.mean).sum())
    if not kept.any():
        return _over_spread(moments)
    matrix = (vectors[:, kept] / np.sqrt(values[kept])).T / np.sqrt(kept.sum())
    return torch.from_numpy(matrix)
