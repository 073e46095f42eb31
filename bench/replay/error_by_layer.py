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

from sdp_bench.bench.replay.layers import (
    BLOCKS,
    REFERENCE_SAMPLES,
    ROUNDING,
    Gaussians,
    Layer,
    LayerMoments,
    Pair,
    distance,
    moments_after,
    squared_distance,
)
from sdp_bench.oracles.estimate.estimate import Estimate
from sdp_bench.oracles.moments.moments import Moments, no_spread
from sdp_bench.oracles.sampling.forward import in_threads
from sdp_bench.oracles.sampling.noise import Seed

_FLOAT64 = 1e-12  # of a law's size: what rounding in float64 may leave of nothing


@dataclass(frozen=True)
class LayerErrors:
    """Errors after one layer, relative to the root of its true total variance.

    `exact`: whether its reference moments come from a formula rather than from samples. `rule`, `closure`,
    `total`: see the module; the floor of `closure` is an upper bound, the noise of T_l, since T_l -
    F_l(T_{l-1}) has less. `dropped`: the covariances of F_l(R_{l-1}) that a rule with independent components
    drops; else 0. `mean`: the part of `total` due to the mean. `spread`: root of the true total variance, in
    the layer's units. `spread_ratio`: the rule's spread over the true one. `constant`: whether the true
    spread is within rounding in the net's precision; distances are then in the layer's own units and
    describe rounding.
    """

    label: str
    units: int
    exact: bool
    rule: Estimate
    closure: Estimate
    total: Estimate
    dropped: float
    mean: float
    spread: float
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
    laws: Sequence[tuple[Tensor, Tensor]],
    *,
    independent: bool,
    seed: Seed = 0,
) -> ErrorByLayer:
    """Return the errors of a rule by layer.

    `layers` are those of the net in float64. `layer_moments` holds the true moments of the input and after
    each layer, from `sdp_bench.bench.replay.layers.sample_layers`. `laws`, pairs of shapes (n,) and (n, n),
    are the law of the input and the rule's laws after each layer. `independent` says whether the rule's
    family has no covariances. `seed` is that of reference samples for layers without a formula.
    """
    path, tasks = _Path(_pair(laws[:1])), []
    for place, layer in enumerate(layers):
        moments = layer_moments.moments[place + 1]
        rule, true = _pair([laws[place + 1]]), _true(moments)
        through = partial(moments_after, layer, shape=layer_moments.shapes[place], seed=seed)
        exact, closure = path.step(through, rule, true, independent=independent)
        marginal = _diagonal(exact) if independent else exact
        tasks.append(partial(_at_layer, layer, moments, rule, exact, marginal, closure))
    outputs = layer_moments.moments[-1]
    return ErrorByLayer(
        tuple(in_threads(iter(tasks))),
        path.at_output(outputs, _over_spread(outputs)),
        path.at_output(outputs, _whitening(outputs)),
        layer_moments.moments[0].samples,
    )


def halves(moments: Moments) -> tuple[Pair, Pair]:
    """Return moments of 15 balanced halves of the samples, and of the other halves (McCarthy 1969).

    Half of the distance between two halves is distributed like the distance of all samples' moments from the
    true ones. Unlike replicates by multipliers, halves have covariances that are positive semi-definite.
    Each pair has shapes (15, m) and (15, m, m), float64. A ValueError is raised if the moments do not have
    16 blocks.

    Source: McCarthy, "Pseudo-replication: half samples", Rev. Int. Stat. Inst. 1969.
    """
    blocks = len(moments.block_weights)
    if blocks != BLOCKS:
        raise ValueError(f"moments of {BLOCKS} blocks are needed, got {blocks}")

    def mean_of(chosen: np.ndarray) -> tuple[Tensor, Tensor]:
        weights = moments.block_weights[chosen] / moments.block_weights[chosen].sum()
        mean = weights @ moments.block_means[chosen]
        shift = mean - moments.mean
        second = np.einsum("b,bij->ij", weights, moments.block_covariances[chosen])
        return torch.from_numpy(mean), torch.from_numpy(second - np.outer(shift, shift))

    signs = hadamard(blocks)[1:] > 0
    return _pair([mean_of(row) for row in signs]), _pair([mean_of(~row) for row in signs])


def _at_layer(
    layer: Layer, moments: Moments, rule: Pair, exact: Pair, marginal: Pair, closure: Pair
) -> LayerErrors:
    scale = _over_spread(moments)
    split = _Split.of(moments, scale)
    rules, exacts, marginals, closures, trues = (
        Gaussians.of(pair, scale) for pair in (rule, exact, marginal, closure, _true(moments))
    )
    noise = split.noise
    # A reference by samples has a noise of its own.
    factor = 0.0 if layer.exact else float(np.sqrt(moments.samples / REFERENCE_SAMPLES))
    parts = squared_distance(rules, trues)[:, 0]
    true, predicted = float(trues.trace[0]), float(rules.trace[0])
    return LayerErrors(
        label=layer.label,
        units=len(moments.mean),
        exact=layer.exact,
        rule=Estimate(float(distance(rules, exacts)), factor * noise[0], factor * noise[1], 0.0),
        closure=Estimate(float(distance(closures, trues)), *noise, split.stderr(closures)),
        total=Estimate(float(parts.sum().sqrt()), *noise, split.stderr(rules)),
        dropped=float(distance(marginals, exacts)),
        mean=float(parts[0].sqrt()),
        spread=float(np.sqrt(max(0.0, np.trace(moments.covariance)))),
        spread_ratio=float(np.sqrt(predicted / true)) if true > 0 else float("nan"),
        constant=_is_constant(moments),
    )


class _Path:
    """Laws so far, each propagated once to the current layer.

    A law that equals its neighbour up to rounding is not propagated separately: the layer contributes no
    error there. `start` is the law of the input.
    """

    def __init__(self, start: Pair) -> None:
        self._images, self._true, self._rule, self._truth = start, start, 0, 0
        self._steps: list[tuple[int, int]] = []  # at each layer: formula, dropped, closure

    def step(
        self, through: Callable[[Tensor, Tensor], Pair], rule: Pair, true: Pair, *, independent: bool
    ) -> tuple[Pair, Pair]:
        """Propagate through a layer, after which these are the rule's and the true law.

        Return the exact images of the rule's law before the layer, and of the Gaussian with the true moments
        there.
        """
        closed = _rows(_diagonal(self._true)) if independent else []
        images = through(*_pair([*_rows(self._images), *closed]))
        self._images = _at(images, slice(0, len(self._images[0])))
        exact = _at(images, slice(self._rule, self._rule + 1))
        closure = _at(images, slice(-1, None)) if independent else self._law(self._truth)
        # A rule that drops nothing has no cut.
        cut = self._seen(self._rule, _diagonal(exact)) if independent else self._rule
        ruled, closed_in = self._seen(cut, rule), self._seen(self._truth, true)
        self._steps += [(cut, ruled), (self._rule, cut), (self._truth, closed_in)]
        self._rule, self._truth, self._true = ruled, closed_in, true
        return exact, closure

    def at_output(self, moments: Moments, scale: Tensor) -> OutputErrors:
        """Return distances between images of neighbours, and between the rule's law and the true one."""
        laws = Gaussians.of(self._images, scale)
        first, second = zip(*self._steps, (self._rule, self._truth), strict=True)
        lengths = distance(laws[first], laws[second]).tolist()
        split = _Split.of(moments, scale)
        total = Estimate(lengths[-1], *split.noise, split.stderr(laws[[self._rule]]))
        return OutputErrors(
            tuple(lengths[:-1:3]),
            tuple(lengths[1:-1:3]),
            tuple(lengths[2:-1:3]),
            total,
            _rounding(moments, scale),
        )

    def _law(self, place: int) -> Pair:
        return _at(self._images, slice(place, place + 1))

    def _seen(self, neighbour: int, law: Pair) -> int:
        """Return the index of a law among the images, that of its neighbour if they are equal."""
        if _same(self._law(neighbour), law):
            return neighbour
        self._images = _pair([*_rows(self._images), *_rows(law)])
        return len(self._images[0]) - 1


def _same(a: Pair, b: Pair) -> bool:
    """Return whether two laws are equal up to rounding in float64."""
    spread = float(a[1].diagonal(dim1=-2, dim2=-1).sum())
    size = float(a[0].square().sum()) ** 0.5 + spread**0.5
    return (
        float((a[0] - b[0]).abs().max()) <= _FLOAT64 * size
        and float((a[1] - b[1]).abs().max()) <= _FLOAT64 * spread
    )


@dataclass(frozen=True)
class _Split:
    """Halves of the samples, scaled."""

    one: Gaussians
    other: Gaussians

    @classmethod
    def of(cls, moments: Moments, scale: Tensor) -> _Split:
        one, other = halves(moments)
        return cls(Gaussians.of(one, scale), Gaussians.of(other, scale))

    @property
    def noise(self) -> tuple[float, float]:
        """Mean and 95 % point of the distance of all samples' moments from the true ones."""
        distances = distance(self.one, self.other) / 2
        return float(distances.mean()), float(distances.quantile(0.95))

    def stderr(self, law: Gaussians) -> float:
        """Return the standard error of the distance of a law from the true one."""
        one, other = distance(law, self.one), distance(law, self.other)
        return float(((one - other).square() / 4).mean().sqrt())


def _rounding(moments: Moments, scale: Tensor) -> float:
    """Return the root mean square of independent errors of one unit in the last place of each output."""
    squares = np.square(moments.mean) + moments.covariance.diagonal()
    return float(np.sqrt(moments.null_variance * (np.square(scale.numpy()) @ squares).sum()) / ROUNDING)


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


def _pair(rows: Sequence[tuple[Tensor, Tensor]]) -> Pair:
    return torch.stack([m.detach().double() for m, _ in rows]), torch.stack(
        [c.detach().double() for _, c in rows]
    )


def _rows(pair: Pair) -> list[tuple[Tensor, Tensor]]:
    return list(zip(*pair, strict=True))


def _at(pair: Pair, index: slice) -> Pair:
    return pair[0][index], pair[1][index]


def _true(moments: Moments) -> Pair:
    return torch.from_numpy(moments.mean)[None], torch.from_numpy(moments.covariance)[None]


def _diagonal(pair: Pair) -> Pair:
    return pair[0], torch.diag_embed(pair[1].diagonal(dim1=-2, dim2=-1))
