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
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from scipy.linalg import hadamard
from torch import Tensor

from ...oracles.estimate.estimate import Estimate
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

_FLOAT64 = 1e-12  # of a law's size: what rounding in float64 may leave of nothing


@dataclass(frozen=True)
class LayerErrors:
    """Errors after one layer, relative to the root of its true total variance.

    `exact`: whether its reference moments come from a formula rather than from samples. `rule`, `closure`,
    `total`: see the module; the floor of `closure` is an upper bound, the noise of T_l, since T_l -
    F_l(T_{l-1}) has less. `dropped`: the covariances of F_l(R_{l-1}) that a rule with independent components
    drops; else 0. `mean`: the part of `total` due to the mean. `spread_ratio`: root of the rule's total
    variance over the true one. `constant`: whether the true spread is within rounding in the net's precision;
    distances are then in the layer's own units and describe rounding.
    """

    label: str
    units: int
    exact: bool
    rule: Estimate
    closure: Estimate
    total: Estimate
    dropped: float
    mean: float
    spread_ratio: float
    constant: bool


@dataclass(frozen=True)
class OutputErrors:
    """The contributions of the layers as seen at the output on one scale, in the order of the layers.

    `formula`: error of the rule's formula. `dropped`: covariances that it drops. `closure`: error of
    replacing the true law by a Gaussian one. `total`: at most their sum, by the triangle inequality.
    `rounding`: approximate effect of rounding the outputs in the oracle's precision; an error of that size
    is due to the oracle.
    """

    formula: tuple[float, ...]
    dropped: tuple[float, ...]
    closure: tuple[float, ...]
    total: Estimate
    rounding: float = 0.0

    @property
    def sum_of_parts(self) -> float:
        """Sum over all layers, at least `total`."""
        return sum(self.formula) + sum(self.dropped) + sum(self.closure)


@dataclass(frozen=True)
class ErrorByLayer:
    """The errors of a rule by layer.

    `spread`: distances over the root of the true total variance of the outputs. `whitened`: distances in the
    true outputs' principal coordinates of unit variance, over the root of their number, so that every
    direction has the same weight, as in cells of equal mass; directions without variance are left out.
    `samples`: number of samples of the layers' true moments.
    """

    layers: tuple[LayerErrors, ...]
    spread: OutputErrors
    whitened: OutputErrors
    samples: int


@torch.no_grad()
def error_by_layer(
    layers: Sequence[Layer],
    layer_moments: LayerMoments,
    laws: Sequence[Laws],
    *,
    independent: bool,
    seed: Seed = 0,
) -> ErrorByLayer:
    """Return the errors of a rule by layer.

    `layers` are those of the net in float64, with the true moments of `sample_layers`. `laws` contains the
    law of the input and the rule's laws after each layer. `independent` says whether the rule's family has no
    covariances. `seed` is that of reference samples for layers without a formula.
    """
    # Laws so far, each propagated once to the current layer, and the rule's and the true one among them. A
    # law that equals its neighbour up to rounding is not propagated separately: the layer contributes no
    # error.
    images, ruled, true = laws[0], 0, 0
    steps: list[tuple[int, int]] = []  # pairs of neighbours by layer: formula, dropped, closure
    tasks = []

    def index_of(law: Laws, neighbour: int) -> int:
        nonlocal images
        if _same(images[[neighbour]], law):
            return neighbour
        images = images + law
        return len(images.mean) - 1

    before = laws[0]
    for place, layer in enumerate(layers):
        moments, rule = layer_moments.moments[place + 1], laws[place + 1]
        start = images + before.independent if independent else images
        after = moments_after(layer, start, layer_moments.shapes[place], seed=seed)
        images = after[: len(images.mean)]
        exact, closure = images[[ruled]], after[[-1]] if independent else images[[true]]
        # A rule that drops nothing has no cut.
        kept = exact.independent if independent else exact
        cut = index_of(kept, ruled) if independent else ruled
        before = Laws.true(moments)
        after_rule, after_truth = index_of(rule, cut), index_of(before, true)
        steps += [(cut, after_rule), (ruled, cut), (true, after_truth)]
        ruled, true = after_rule, after_truth
        tasks.append(partial(_at_layer, layer, moments, rule, exact, kept, closure))

    outputs, ends = layer_moments.moments[-1], (ruled, true)

    def at_output(scale: Tensor) -> OutputErrors:
        gaussians = Gaussians.of(images, scale)
        first, second = zip(*steps, ends, strict=True)
        *lengths, total = distance(gaussians[first], gaussians[second]).tolist()
        noise, stderr = _noise(outputs, scale)
        # Root mean square of independent errors of one unit in the last place of each output.
        squares = np.square(outputs.mean) + outputs.covariance.diagonal()
        rounding = np.sqrt(outputs.null_variance * (np.square(scale.numpy()) @ squares).sum()) / ROUNDING
        return OutputErrors(
            tuple(lengths[::3]),
            tuple(lengths[1::3]),
            tuple(lengths[2::3]),
            Estimate(total, *noise, stderr(gaussians[[ruled]])),
            float(rounding),
        )

    return ErrorByLayer(
        tuple(in_threads(iter(tasks))),
        at_output(_over_spread(outputs)),
        at_output(_whitening(outputs)),
        layer_moments.moments[0].samples,
    )


def halves(moments: Moments) -> tuple[Laws, Laws]:
    """Return moments of 15 balanced halves of the samples, and of the other halves (McCarthy 1969).

    Half of the distance between two halves is distributed like the distance of all samples' moments from the
    true ones. Unlike replicates by multipliers, halves have covariances that are positive semi-definite.

    Source: McCarthy, "Pseudo-replication: half samples", Rev. Int. Stat. Inst. 1969.
    """
    signs = hadamard(BLOCKS)[1:] > 0

    def laws_of(chosen: np.ndarray) -> Laws:
        weights = chosen * moments.block_weights
        weights = weights / weights.sum(1, keepdims=True)
        mean = weights @ moments.block_means
        shift = mean - moments.mean
        second = np.einsum("hb,bij->hij", weights, moments.block_covariances)
        covariance = second - shift[:, :, None] * shift[:, None, :]
        return Laws(torch.from_numpy(mean), torch.from_numpy(covariance))

    return laws_of(signs), laws_of(~signs)


def _noise(moments: Moments, scale: Tensor) -> tuple[tuple[float, float], Callable[[Gaussians], float]]:
    """Return mean and 95 % point of the distance of all samples' moments from the true ones.

    The function returns the standard error of the distance of a law from the true one.
    """
    one, other = (Gaussians.of(half, scale) for half in halves(moments))
    distances = distance(one, other) / 2

    def stderr(law: Gaussians) -> float:
        difference = distance(law, one) - distance(law, other)
        return float((difference.square() / 4).mean().sqrt())

    return (float(distances.mean()), upper95_of_few(distances.numpy())), stderr


def _at_layer(
    layer: Layer, moments: Moments, rule: Laws, exact: Laws, kept: Laws, closure: Laws
) -> LayerErrors:
    scale = _over_spread(moments)
    noise, stderr = _noise(moments, scale)
    rules, exacts, kepts, closures, trues = (
        Gaussians.of(laws, scale) for laws in (rule, exact, kept, closure, Laws.true(moments))
    )
    # A reference by samples has a noise of its own.
    factor = 0.0 if layer.exact else float(np.sqrt(moments.samples / REFERENCE_SAMPLES))
    parts = squared_distance(rules, trues)[:, 0]
    true, predicted = float(trues.trace[0]), float(rules.trace[0])
    return LayerErrors(
        label=layer.label,
        units=len(moments.mean),
        exact=layer.exact,
        rule=Estimate(float(distance(rules, exacts)), factor * noise[0], factor * noise[1], 0.0),
        closure=Estimate(float(distance(closures, trues)), *noise, stderr(closures)),
        total=Estimate(float(parts.sum().sqrt()), *noise, stderr(rules)),
        dropped=float(distance(kepts, exacts)),
        mean=float(parts[0].sqrt()),
        spread_ratio=float(np.sqrt(predicted / true)) if true > 0 else float("nan"),
        constant=_is_constant(moments),
    )


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
