"""Selection of the pieces, which are split repeatedly where the net bends most.

Everything is arithmetic on small float64 arrays, once for a batch of laws. Nothing here is differentiated;
predictions are differentiable given the pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from sdp_ref.rules.splitting.narrower import Narrower

Array = NDArray[np.float64]
Evaluate = Callable[[Array], Array]
"""The net at points (B, p, r) in standard coordinates of the laws of a batch; returns (B, p, m)."""


@dataclass(frozen=True)
class Pieces:
    """Pieces of a batch of standard laws in r directions, and how the net bends along the axes of each.

    Rows are padded with pieces of weight 0. The columns of `axes` (B, K, r, r) are the images of the standard
    axes. `value` (B, K, m) is the net at the centres, and `slopes` and `bends` (B, K, r, m) are first and
    second differences over one step along each axis.
    """

    weights: Array
    centres: Array
    axes: Array
    value: Array
    slopes: Array
    bends: Array

    def __getitem__(self, index: NDArray[np.intp]) -> Pieces:
        """Select pieces of each row by index, shape (B, k)."""
        rows = np.arange(len(index))[:, None]
        return Pieces(*(getattr(self, f.name)[rows, index] for f in fields(self)))

    @property
    def scatter(self) -> Array:
        """Covariance of the net's values within each piece, as estimated from the differences."""
        return _scatter(self.slopes) + _scatter(self.bends)


def _joined(parts: Sequence[Pieces]) -> Pieces:
    return Pieces(*(np.concatenate([getattr(each, f.name) for each in parts], 1) for f in fields(Pieces)))


def grown(
    evaluate: Evaluate, shape: tuple[int, int], k: int, split: Narrower, *, turning: bool, rounding: float
) -> Pieces:
    """Split standard laws into at most `k` pieces.

    Every round splits the half of the pieces with the higher scores, each along the axis where the net bends
    most. The number of rounds depends on `k` only, and each law depends on its own pieces only, so its
    pieces do not depend on the rest of the batch.
    """
    batch, r = shape
    turn = _Turn.of(evaluate, shape) if turning else None
    axes = np.broadcast_to(np.eye(r), (batch, 1, r, r)) if turn is None else turn.axes
    pieces = _measured(evaluate, np.ones((batch, 1)), np.zeros((batch, 1, r)), axes, turn)
    while True:
        count = pieces.weights.shape[1]
        room = (k - count) // (split.count - 1)
        splits = min(room, (count + 1) // 2)
        score, axis = _scores(pieces, _NOISE * rounding)
        urgency = np.where(score > split.worth, pieces.weights * score / (1 + score), 0.0).round(_DIGITS + 3)
        if splits < 1 or not urgency.any():
            return pieces
        order = np.argsort(-urgency, axis=1, kind="stable")
        first, rest = order[:, :splits], order[:, splits:]
        rows = np.arange(batch)[:, None]
        parts = _parts(pieces[first], axis[rows, first], urgency[rows, first] > 0, split)
        if splits == room:  # the last pieces are not split, so no differences are needed
            blank = np.zeros((batch, splits * split.count, *pieces.slopes.shape[2:]))
            children = Pieces(*parts, blank[:, :, 0], blank, blank)
        else:
            children = _measured(evaluate, *parts, turn)
        pieces = _joined([pieces[rest], children])


def _parts(
    pieces: Pieces, axis: NDArray[np.intp], worth: NDArray[np.bool_], split: Narrower
) -> tuple[Array, Array, Array]:
    """Weights, centres and axes of the parts of pieces; pieces not worth a split are their own first part."""
    batch, count, r = pieces.centres.shape
    chosen = np.arange(r) == axis[..., None]
    weights = np.where(worth[..., None], split.weights, np.eye(split.count)[0])
    offsets = np.where(worth[..., None], split.offsets, 0.0)
    widths = np.where(worth[..., None] & chosen, split.width, 1.0)
    direction = np.take_along_axis(pieces.axes, axis[..., None, None], 3)[..., 0]
    centres = pieces.centres[:, :, None] + offsets[..., None] * direction[:, :, None]
    axes = np.repeat(pieces.axes * widths[:, :, None], split.count, 1)
    parts = (pieces.weights[..., None] * weights).reshape(batch, -1)
    return parts, centres.reshape(batch, count * split.count, r), axes


_LEVEL = 1e-3
"""Relative to the trace: it separates directions along which the net is flat. It is far above rounding, even
of float32, and far below anything that determines the choice of a direction.
"""


@dataclass(frozen=True)
class _Turn:
    """Axes of pieces, rotated to the directions in which the net varies.

    The eigenvectors of equal eigenvalues in LAPACK depend on rounding and on the order of the inputs. Equal
    eigenvalues are therefore avoided: the inputs are sorted by their effect once, and every axis keeps some
    of its rank. `axes` (B, 1, r, r) are those of the whole laws, sorted by decreasing effect, and `size` (B,
    1) is the squared variation of the net over the whole laws.
    """

    axes: Array
    size: Array

    @classmethod
    def of(cls, evaluate: Evaluate, shape: tuple[int, int]) -> _Turn:
        batch, r = shape
        eye = np.broadcast_to(np.eye(r), (batch, 1, r, r))
        _, slopes, bends = _differences(evaluate, np.zeros((batch, 1, r)), eye)
        effects = np.square(slopes).sum(3) + np.square(bends).sum(3)
        order = np.argsort(-effects, axis=2, kind="stable")
        return cls(np.take_along_axis(eye, order[:, :, None], 3), effects.sum(2))

    def __call__(self, axes: Array, slopes: Array, bends: Array) -> Array:
        # Bends as well as slopes: for a net with few outputs, or one that is flat at the centre, slopes leave
        # most directions undetermined. Products of two bends would depend on the sign of an axis, which is
        # arbitrary.
        r = slopes.shape[2]
        scatter = slopes @ slopes.swapaxes(-1, -2) + np.square(bends).sum(3)[..., None] * np.eye(r)
        level = _LEVEL * (np.trace(scatter, axis1=2, axis2=3) + _LEVEL**2 * self.size)
        ranks = np.diag(np.arange(r, 0.0, -1.0) / r)
        turns = np.linalg.eigh(scatter + level[..., None, None] * ranks)[1][..., ::-1]
        # Choose the sign for which the outputs increase, so that pieces on either side keep their order.
        grows = (turns.swapaxes(-1, -2) @ slopes).sum(3) >= 0
        turned: Array = axes @ (turns * np.where(grows, 1.0, -1.0)[:, :, None])
        return turned


def _measured(evaluate: Evaluate, weights: Array, centres: Array, axes: Array, turn: _Turn | None) -> Pieces:
    """Pieces with the values and differences of the net."""
    value, slopes, bends = _differences(evaluate, centres, axes)
    if turn is not None and axes.shape[-1] > 1:
        axes = turn(axes, slopes, bends)
        value, slopes, bends = _differences(evaluate, centres, axes)
    return Pieces(weights, centres, axes, value, slopes, bends)


def _differences(evaluate: Evaluate, centres: Array, axes: Array) -> tuple[Array, Array, Array]:
    batch, count, r = centres.shape
    steps, centre = axes.swapaxes(-1, -2), centres[:, :, None]
    points = np.concatenate([centre, centre + steps, centre - steps], 2)
    values = evaluate(points.reshape(batch, -1, r)).reshape(batch, count, 2 * r + 1, -1)
    # where the net is not finite there is no criterion
    values = np.where(np.isfinite(values).all((2, 3), keepdims=True), values, 0.0)
    value, above, below = values[:, :, 0], values[:, :, 1 : r + 1], values[:, :, r + 1 :]
    return value, (above - below) / 2, (above + below) / 2 - value[:, :, None]


_WHOLE = 0.1
"""Share of the whole law's covariance that is added to that of a piece. A bend does not matter if the piece
is small compared with the whole; otherwise pieces in flat regions would be split forever.
"""


_DIGITS = 5
_NOISE = 256.0
"""Multiple of the rounding error of a value below which a bend counts as 0: a second difference has four
rounding errors, and a net more.
"""


def _scores(pieces: Pieces, noise: float) -> tuple[Array, NDArray[np.intp]]:
    """Largest bend of each piece relative to its own spread, and its axis."""
    own, weights = pieces.scatter, pieces.weights[..., None]
    mean = pieces.value + pieces.bends.sum(2)
    centred = mean - (weights * mean).sum(1, keepdims=True)
    whole = (weights[..., None] * own).sum(1) + (weights * centred).swapaxes(1, 2) @ centred
    size = np.trace(whole, axis1=1, axis2=2)
    square = 1e-12 * size + np.square(noise * np.abs(pieces.value)).max((1, 2))
    # a piece of small weight may have a larger spread than the whole
    square = np.maximum(square[:, None], 1e-12 * np.trace(own, axis1=2, axis2=3))
    floor = np.where(square > 0, square, 1.0)[..., None, None] * np.eye(whole.shape[-1])
    bends = pieces.bends.swapaxes(-1, -2)
    relative = np.linalg.solve(own + _WHOLE * whole[:, None] + floor, bends)
    squares = np.maximum((bends * relative).sum(2), 0.0)
    # Mirrored pieces bend equally except for rounding: take the first one.
    scores = np.round(np.sqrt(squares), _DIGITS)
    return scores.max(-1), scores.argmax(-1)


def _scatter(rows: Array) -> Array:
    return rows.swapaxes(-1, -2) @ rows
