r"""Where a rule's error enters a net: layer by layer, and as it is seen at the output.

Write T_l for the true moments after layer l, R_l for those of the rule's law there (the rule applied to
the net that ends there), and F_l for the exact map from the moments of a Gaussian input of layer l to
those of its output. T_0 = R_0 is the input's law. After layer l

- the **rule error** is d(R_l, F_l(R_{l-1})): what the rule does to its own law, against what is exact;
- the **closure error** is d(T_l, F_l(P T_{l-1})): what is lost by taking the true law for a Gaussian one, of
  independent components if the rule keeps no others (P drops the covariances there);
- the **total** is d(R_l, T_l), at most rule error + closure error + d(F_l(R_{l-1}), F_l(P T_{l-1})), the last
  being what layer l makes of the errors before it.

These are distances at different places and do not add up. As seen at the output they do: carry every T_k
and R_k on by the exact maps, T_{k \to L} = F_L(... F_{k+1}(T_k)). Then

    T_L - R_L = \sum_k (T_{k \to L} - T_{k-1 \to L})  -  \sum_k (R_{k \to L} - R_{k-1 \to L})

exactly, in every mean and covariance, since both sums begin at the input's law. The k-th terms are
the closure error and the rule error that enter at layer k. Of a rule of independent components
the second one is cut in two, at D_k: F_k(R_{k-1}) without its covariances, so that what it drops
stands apart from what is wrong in its formula. As distances the terms sum to the total at least.

The distance d is that of Gelbrich (1990), W2 between Gaussians with the two means and covariances,
so that the triangle inequality holds; it is divided by the root of the true total variance.
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
    Advance,
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

    `exact`: whether its reference moments are by a formula, not by samples. `rule`, `closure`, `total`: see
    the module. The floor of `closure` is at most what is given: the noise of T_l, which that of T_l -
    F_l(T_{l-1}) is below. `dropped`: of a rule of independent components, the covariances of F_l(R_{l-1})
    that it drops; else 0. `mean`: the part of `total` that is in the mean. `spread`: root of the true total
    variance, in the layer's units. `spread_ratio`: the rule's over the true one. `constant`: whether the true
    spread is no more than rounding in the net's precision: distances are then in the layer's own units, and
    tell of rounding.
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
    """What enters at each layer, as seen at the output on one scale; in the order of the layers.

    `formula`, `dropped`, `closure`: by the rule's formula, by covariances that it drops, by the true law not
    being Gaussian. `total`: at most the sum of all of them, by the triangle inequality. `rounding`: distance
    that rounding of the outputs, in the oracle's precision, may put between it and what is true, about: an
    error of that size tells of the oracle's arithmetic.
    """

    formula: tuple[float, ...]
    dropped: tuple[float, ...]
    closure: tuple[float, ...]
    total: Estimate
    rounding: float = 0.0

    @property
    def sum_of_parts(self) -> float:
        """Of all layers together, at least `total`."""
        return sum(self.formula) + sum(self.dropped) + sum(self.closure)


@dataclass(frozen=True)
class ErrorByLayer:
    """Where the error of a rule enters a net.

    `spread`: distances over the root of the true total variance of the outputs. `whitened`: distances in the
    true outputs' own principal coordinates of unit variance, over the root of their number: every direction
    counts alike, as in cells of equal mass. Directions without variance are left out. `samples`: that the
    layers' true moments rest on.
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
    advance: Advance = lambda _: None,
) -> ErrorByLayer:
    """Find where the error of a rule enters.

    `layers`: of the net, in float64. `layer_moments`: true moments of the input and after each layer, as
    :func:`sdp_bench.bench.replay.layers.sample_layers` gives them. `laws`, shapes (n,) and (n, n): the
    input's law, and the rule's after each layer. `independent`: whether the rule's family has no covariances.
    `seed`: of reference samples, in layers without a formula. `advance`: told the share of the work that is
    done.
    """
    path, tasks = _Path(_pair(laws[:1])), []
    work = sum(range(1, len(layers) + 1)) + len(layers)
    for place, layer in enumerate(layers):
        moments = layer_moments.moments[place + 1]
        rule, true = _pair([laws[place + 1]]), _true(moments)
        through = partial(moments_after, layer, shape=layer_moments.shapes[place], seed=seed)
        exact, closure = path.step(through, rule, true, independent=independent)
        marginal = _diagonal(exact) if independent else exact
        tasks.append(partial(_at_layer, layer, moments, rule, exact, marginal, closure))
        advance(sum(range(1, place + 2)) / work)
    found = []
    for at_layer in in_threads(iter(tasks)):
        found.append(at_layer)
        advance((work - len(layers) + len(found)) / work)
    outputs = layer_moments.moments[-1]
    return ErrorByLayer(
        tuple(found),
        path.at_output(outputs, _over_spread(outputs)),
        path.at_output(outputs, _whitening(outputs)),
        layer_moments.moments[0].samples,
    )


def halves(moments: Moments) -> tuple[Pair, Pair]:
    """Moments of balanced halves of the samples, and of the other halves, 15 of each (McCarthy 1969).

    Half of a distance between two halves is spread as the distance of all samples' moments from the true
    ones is. Unlike replicates by multipliers, halves have covariances that are positive semi-definite.

    The result has shapes (15, m) and (15, m, m), float64. Means and covariances of the halves. The result has
    shapes (15, m) and (15, m, m), float64. Of what each leaves.

    Raises a ValueError if the moments are not of 16 blocks.

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
    """The laws seen so far, carried on to the layer that has been reached, each once.

    A law that is that of its neighbour there, but for rounding, is not carried on beside it: nothing enters
    between the two.

    `start`: the input's law.
    """

    def __init__(self, start: Pair) -> None:
        self._images, self._true, self._rule, self._truth = start, start, 0, 0
        self._steps: list[tuple[int, int]] = []  # at each layer: formula, dropped, closure

    def step(
        self, through: Callable[[Tensor, Tensor], Pair], rule: Pair, true: Pair, *, independent: bool
    ) -> tuple[Pair, Pair]:
        """Go through a layer, after which the rule's law and the true one are these.

        Returns `exact`, `closure`: what the layer makes of the rule's law before it, and of the Gaussian with
        the true moments there.
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
        """Distances between images of neighbours, and of the rule's law and the true one."""
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
        """Place of a law among the images: its neighbour's if it is the same."""
        if _same(self._law(neighbour), law):
            return neighbour
        self._images = _pair([*_rows(self._images), *_rows(law)])
        return len(self._images[0]) - 1


def _same(a: Pair, b: Pair) -> bool:
    """Whether two laws differ by no more than rounding in float64."""
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
        """Standard error of the distance of a law from the true one."""
        one, other = distance(law, self.one), distance(law, self.other)
        return float(((one - other).square() / 4).mean().sqrt())


def _rounding(moments: Moments, scale: Tensor) -> float:
    """Root mean square of independent errors of one unit in the last place of each output, scaled."""
    squares = np.square(moments.mean) + moments.covariance.diagonal()
    return float(np.sqrt(moments.null_variance * (np.square(scale.numpy()) @ squares).sum()) / ROUNDING)


def _is_constant(moments: Moments) -> bool:
    null = moments.null_variance * float(np.square(moments.mean).sum())
    return float(np.trace(moments.covariance)) <= null


def _over_spread(moments: Moments) -> Tensor:
    """Matrix that divides by the root of the total variance; the identity where there is none."""
    factor = 1.0 if _is_constant(moments) else float(np.trace(moments.covariance)) ** -0.5
    return factor * torch.eye(len(moments.mean), dtype=torch.float64)


def _whitening(moments: Moments) -> Tensor:
    """Matrix to principal coordinates of unit variance, over the root of their number."""
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
