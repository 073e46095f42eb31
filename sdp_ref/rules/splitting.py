"""Standard coordinates of an input law: directions in which it can be split, and the laws of the pieces."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdp_ref.errors import NoFormulaError, UnsupportedError
from sdp_ref.graph.trace import Net
from sdp_ref.jacobian.jacobian import MAX_BYTES, jacobian_of
from sdp_ref.laws import Cauchy, DiagonalGaussian, Gaussian, Law, Mixture, SymmetricStable, unchecked
from sdp_ref.rules.base import Propagator, Rule, as_any_gaussian, as_marginal, check_outputs, traits
from sdp_ref.rules.points import DividedDifference
from sdp_ref.rules.rows import evaluates
from sdp_ref.rules.sampling import as_integer

MOST = 16
"""Maximum number of directions. Inputs with more components are split along the leading singular vectors of
the Jacobian, so that no matrix of inputs by inputs is needed.
"""

Splittable = Gaussian | DiagonalGaussian


@dataclass(frozen=True)
class Frame:
    """Directions of a batch of laws, which may be rotated if `turning`.

    The columns of `steps` (B, n, r), float64, are one step along each direction, in units of the inputs.
    """

    law: Splittable
    steps: Tensor
    turning: bool

    @classmethod
    def of(cls, net: Net, law: Splittable, *, axes: bool) -> Frame:
        """Directions along which `net` varies most; components of the input if `axes`.

        With more than `MOST` components, they are the leading right singular vectors of J L, for J the
        Jacobian at the location and L a factor of the covariance, or the components with the largest columns.
        """
        n = law.dimension
        scales = None if isinstance(law, Gaussian) else law.standard_deviation.flatten(1)
        if n <= MOST:
            steps = law.factor() if scales is None else torch.diag_embed(scales)
            return cls(law, steps, not axes)
        jacobian = jacobian_of(net, law.location.detach(), spread=law.spread)[1].flatten(2).double()
        # J L
        rows = jacobian @ law.factor().detach() if scales is None else jacobian * scales.detach().unsqueeze(1)
        if axes:
            leading = rows.square().sum(1).argsort(dim=1, descending=True, stable=True)[:, :MOST]
            directions = torch.nn.functional.one_hot(leading, n).mT.to(rows)
        else:
            _, sizes, vectors = torch.linalg.svd(rows, full_matrices=False)
            # singular vectors of singular values 0 are arbitrary, and moving along them changes nothing
            nonzero = sizes > _LEAST * sizes[:, :1]
            directions = (vectors * nonzero.unsqueeze(-1))[:, :MOST].mT
        steps = law.factor() @ directions if scales is None else scales.unsqueeze(-1) * directions
        return cls(law, steps, not axes)

    def evaluate(self, net: Net) -> Callable[[Array], Array]:
        """The net at points (B, p, r) in standard coordinates, in the dtype of the law."""
        location, event = self.law.location.detach(), self.law.event_shape
        centre, steps = location.flatten(1).double().unsqueeze(1), self.steps.detach().mT

        def values(points: Array) -> Array:
            inputs = centre + torch.from_numpy(points).to(steps.device) @ steps
            inputs = inputs.to(location.dtype).reshape(-1, *event)
            with torch.no_grad():
                outputs = check_outputs(inputs, net(inputs))
            array = outputs.detach().double().cpu().numpy().reshape(*points.shape[:2], -1)
            return np.asarray(array, dtype=np.float64)

        return values

    def pieces(self, pieces: SplitPieces) -> Law:
        """Laws of the pieces: batch B K, row b K + j is piece j of law b."""
        law, event = self.law, self.law.event_shape
        dtype, device = law.location.dtype, law.location.device
        centres = torch.from_numpy(pieces.centres).to(device)
        axes = torch.from_numpy(pieces.axes).to(device)
        moved = law.location.flatten(1).double().unsqueeze(1) + centres @ self.steps.mT
        location = moved.flatten(0, 1).unflatten(1, event).to(dtype)
        if not self.turning:
            scale = self._scales(axes).flatten(0, 1).unflatten(1, event).to(dtype)
            return unchecked(DiagonalGaussian, location, scale.square())
        return unchecked(Gaussian, location, self._covariances(axes).flatten(0, 1).to(dtype))

    def _scales(self, axes: Tensor) -> Tensor:
        """Standard deviations of the components of pieces, (B, K, n), for axes along components."""
        narrowed = 1 - axes.diagonal(dim1=-2, dim2=-1)
        share = 1 - narrowed @ (self.steps.detach() != 0).double().mT
        return self.law.standard_deviation.flatten(1).unsqueeze(1) * share

    def _covariances(self, axes: Tensor) -> Tensor:
        """Covariances of pieces, (B, K, n, n): narrowed along the directions, those of the law elsewhere."""
        law, count = self.law, len(axes) * axes.shape[1]
        needed_bytes = 8 * count * law.dimension**2
        if needed_bytes > 4 * MAX_BYTES:
            text = f"{count} covariances of {law.dimension} inputs, {needed_bytes / 2**30:.1f} GB"
            raise NoFormulaError(f"{text}; take fewer pieces, or a marginal base")
        factor = self.steps.unsqueeze(1) @ axes
        covariance = factor @ factor.mT
        if self.steps.shape[2] < law.dimension:
            covariance = covariance + (law.covariance.double() - self.steps @ self.steps.mT).unsqueeze(1)
        return covariance


_LEAST = 1e-6
"""Singular value, relative to the largest, that counts as 0: the Jacobian may be in float32."""

Array = NDArray[np.float64]


_FEW = 20
"""Number of pieces up to which halves are better than thirds, because they allow more splits."""


@dataclass(frozen=True)
class _Scheme:
    """A mixture sum_p weights_p N(d units_p, width^2) that replaces N(0, 1) and has its variance.

    Below `least_score`, the error of the mixture exceeds its benefit.
    """

    weights: tuple[float, ...]
    units: tuple[float, ...]
    width: float
    least_score: float

    @property
    def distance(self) -> float:
        """The d for which the variance is 1: 2 weights_1 d^2 + width^2 = 1."""
        return math.sqrt((1 - self.width**2) / (2 * self.weights[0]))


_HALVES = _Scheme(weights=(0.5, 0.5), units=(-1.0, 1.0), width=0.7, least_score=0.1)
_THIRDS = _Scheme(weights=(0.2297, 0.5406, 0.2297), units=(-1.0, 0.0, 1.0), width=0.6, least_score=0.02)
"""Weights of thirds minimise the total variation distance to the standard normal at their width (0.027; that
of halves is 0.059), among mixtures with its variance, so that splits preserve moments in affine nets.
"""


Evaluate = Callable[[Array], Array]
"""The net at points (B, p, r) in standard coordinates of the laws of a batch; returns (B, p, m)."""


@dataclass(frozen=True)
class SplitPieces:
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

    def __getitem__(self, index: NDArray[np.intp]) -> SplitPieces:
        """Select pieces of each row by index, shape (B, k)."""
        rows = np.arange(len(index))[:, None]
        selected = {f.name: getattr(self, f.name)[rows, index] for f in fields(self)}
        return SplitPieces(**selected)

    @property
    def scatter(self) -> Array:
        """Covariance of the net's values within each piece, as estimated from the differences."""
        return _scatter(self.slopes) + _scatter(self.bends)


def _joined(parts: Sequence[SplitPieces]) -> SplitPieces:
    joined_fields = {}
    for f in fields(SplitPieces):
        joined_fields[f.name] = np.concatenate([getattr(part, f.name) for part in parts], 1)
    return SplitPieces(**joined_fields)


def grown(
    evaluate: Evaluate, shape: tuple[int, int], k: int, *, turning: bool, rounding: float
) -> SplitPieces:
    """Split standard laws, `shape` (B, r), into at most `k` pieces.

    Every round splits the half of the pieces with the higher scores, each along the axis where the net bends
    most. The number of rounds depends on `k` only, and each law depends on its own pieces only, so its
    pieces do not depend on the rest of the batch. If `turning`, the axes of pieces are rotated; `rounding` is
    the relative precision of the net's outputs.
    """
    batch, r = shape
    scheme = _HALVES if k <= _FEW else _THIRDS
    parts_per_split = len(scheme.weights)
    turn = _Turn.of(evaluate, shape) if turning else None
    axes = np.broadcast_to(np.eye(r), (batch, 1, r, r)) if turn is None else turn.axes
    pieces = _measured(evaluate, np.ones((batch, 1)), np.zeros((batch, 1, r)), axes, turn)
    while True:
        count = pieces.weights.shape[1]
        room = (k - count) // (parts_per_split - 1)
        splits = min(room, (count + 1) // 2)
        urgency, axis = _urgency(pieces, scheme.least_score, _NOISE * rounding)
        if splits < 1 or not urgency.any():
            return pieces
        order = np.argsort(-urgency, axis=1, kind="stable")
        first, rest = order[:, :splits], order[:, splits:]
        rows = np.arange(batch)[:, None]
        divided = urgency[rows, first] > 0
        weights, centres, axes = _parts(pieces[first], axis[rows, first], divided, scheme)
        if splits == room:  # the last pieces are not split, so no differences are needed
            zeros = np.zeros((batch, splits * parts_per_split, *pieces.slopes.shape[2:]))
            parts = SplitPieces(weights, centres, axes, value=zeros[:, :, 0], slopes=zeros, bends=zeros)
        else:
            parts = _measured(evaluate, weights, centres, axes, turn)
        pieces = _joined([pieces[rest], parts])


def _urgency(pieces: SplitPieces, least_score: float, noise: float) -> tuple[Array, NDArray[np.intp]]:
    """How urgent a split of each piece is, 0 if its score is too low, and along which axis, (B, K).

    The error of a piece grows with its score and is bounded, hence score / (1 + score); its effect is at most
    its weight. Three more digits than those of scores, since weights can be small.
    """
    score, axis = _scores(pieces, noise)
    urgency = np.where(score > least_score, pieces.weights * score / (1 + score), 0.0)
    return urgency.round(_DIGITS + 3), axis


def _parts(
    pieces: SplitPieces, axis: NDArray[np.intp], divided: NDArray[np.bool_], scheme: _Scheme
) -> tuple[Array, Array, Array]:
    """Weights, centres and axes of the parts of pieces, each split along its axis.

    Shapes are those of :class:`SplitPieces`. Pieces that are not `divided` are their own first part.
    """
    batch, count, r = pieces.centres.shape
    parts = len(scheme.weights)
    undivided = np.eye(parts)[0]
    weights = pieces.weights[..., None] * np.where(divided[..., None], scheme.weights, undivided)
    offsets = np.where(divided[..., None], scheme.distance * np.array(scheme.units), 0.0)
    direction = np.take_along_axis(pieces.axes, axis[..., None, None], 3)[..., 0]
    centres = pieces.centres[:, :, None] + offsets[..., None] * direction[:, :, None]
    is_axis = np.arange(r) == axis[..., None]
    widths = np.where(divided[..., None] & is_axis, scheme.width, 1.0)
    axes = np.repeat(pieces.axes * widths[:, :, None], parts, 1)
    return weights.reshape(batch, -1), centres.reshape(batch, count * parts, r), axes


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
        return axes @ (turns * np.where(grows, 1.0, -1.0)[:, :, None])


def _measured(
    evaluate: Evaluate, weights: Array, centres: Array, axes: Array, turn: _Turn | None
) -> SplitPieces:
    """Pieces with the values and differences of the net."""
    value, slopes, bends = _differences(evaluate, centres, axes)
    if turn is not None and axes.shape[-1] > 1:
        axes = turn(axes, slopes, bends)
        value, slopes, bends = _differences(evaluate, centres, axes)
    return SplitPieces(weights, centres, axes, value, slopes, bends)


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


_SINGULAR = 1e-12
"""Smallest eigenvalue of a covariance of outputs, relative to its trace: far above rounding in float64."""

_DIGITS = 5
"""Decimal places of scores, so that scores that differ by rounding only are tied."""

_NOISE = 256.0
"""Multiple of the rounding error of a value below which a bend counts as 0: a second difference has four
rounding errors, and a net more.
"""


def _scores(pieces: SplitPieces, noise: float) -> tuple[Array, NDArray[np.intp]]:
    """Largest bend of each piece relative to its own spread, and its axis, (B, K).

    The bend b along an axis, a second difference of the outputs, has the size sqrt(b^T S^-1 b) relative to
    S, the covariance of the outputs within the piece plus a share of that of the whole law. It does not
    depend on the scale of the outputs. `noise` is the relative rounding error of a second difference.
    """
    within = pieces.scatter
    whole = _whole_scatter(pieces, within)
    floor = _scatter_floor(pieces, within, whole, noise)
    scatter = within + _WHOLE * whole[:, None] + floor[..., None, None] * np.eye(whole.shape[-1])
    bends = pieces.bends.swapaxes(-1, -2)
    squares = np.maximum((bends * np.linalg.solve(scatter, bends)).sum(2), 0.0)
    # Mirrored pieces bend equally except for rounding: take the first one.
    scores = np.round(np.sqrt(squares), _DIGITS)
    return scores.max(-1), scores.argmax(-1)


def _whole_scatter(pieces: SplitPieces, within: Array) -> Array:
    """Covariance of the net's values under the whole law: within and between pieces, (B, m, m).

    The mean of a piece is, to second order, the value at its centre plus half the second derivative along
    each axis: E f(c + a Z) = f(c) + a^2 f''(c) / 2, and a bend is a^2 f'' / 2.
    """
    weights = pieces.weights[..., None]
    mean = pieces.value + pieces.bends.sum(2)
    centred = mean - (weights * mean).sum(1, keepdims=True)
    return np.asarray((weights[..., None] * within).sum(1) + (weights * centred).swapaxes(1, 2) @ centred)


def _scatter_floor(pieces: SplitPieces, within: Array, whole: Array, noise: float) -> Array:
    """Variance to add in every direction of the outputs, (B, K).

    It keeps matrices invertible in directions where the net does not vary, and hides bends that are smaller
    than rounding errors of the values. A constant net has the floor 1, relative to bends of 0.
    """
    rounding = np.square(noise * np.abs(pieces.value)).max((1, 2))
    of_whole = _SINGULAR * np.trace(whole, axis1=1, axis2=2) + rounding
    # a piece of small weight may have a larger spread than the whole
    floor = np.maximum(of_whole[:, None], _SINGULAR * np.trace(within, axis1=2, axis2=3))
    return np.where(floor > 0, floor, 1.0)


def _scatter(rows: Array) -> Array:
    return rows.swapaxes(-1, -2) @ rows


@dataclass(frozen=True)
class Split(Rule):
    """The mixture of a base rule's predictions for narrower pieces of the input's law.

    A Gaussian law is nearly a mixture of k narrower ones, for which the approximations of a rule are more
    accurate. Pieces are split where the net is most non-linear: each along the axis with the largest second
    difference, relative to the covariance of the piece at the output. A law over which the net is linear is
    not split, and the prediction is that of the base. The pieces of a Gaussian have its mean and covariance
    in total, so a base that is exact for affine nets remains exact.

    Any other law with a covariance stands for the Gaussian that has it, and a mixture is split component by
    component. Cauchy and symmetric alpha-stable laws are not supported for k > 1: narrower laws of the family
    have lighter tails, and so would their mixture.

    Parameters
    ----------
    base : str or Rule
        Rule for the pieces, as text such as ``"sdp"`` or an object; it must not sample or split itself.
        Inputs that the base does not support are not supported.
    k : int
        Maximum number of pieces, at least 1; with 1 the result is that of the base.

    Notes
    -----
    For inputs of more than 16 components the directions are the leading right singular vectors of J L,
    for J the Jacobian at the location and L L^T the covariance, that is, directions that affect the outputs.
    Gradients ignore the choice of the pieces; predictions for the pieces are differentiable if those of the
    base are.

    References
    ----------
    Havlak and Campbell, "Discrete and continuous, probabilistic anticipation for autonomous robots in urban
    environments", IEEE Trans. Robotics 2014, and Tuggle and Zanetti, "Automated splitting Gaussian mixture
    nonlinear measurement update", J. Guidance 2018: splitting along the direction of most non-linearity.
    """

    name: ClassVar[str] = "split"
    title: ClassVar[str] = "split"
    rank: ClassVar[int] = 70
    base: Propagator = field(default=DividedDifference(1.25), metadata={"rule": True})
    k: int = 9

    def __post_init__(self) -> None:
        k = as_integer(self.k)
        if k is None or k < 1:
            raise ValueError(f"split needs a whole number k of pieces, at least 1, got {self.k!r}")
        object.__setattr__(self, "k", k)
        if isinstance(self.base, str) or not isinstance(self.base, Propagator):
            raise ValueError(
                f"base of split must be a rule, got {self.base!r}; sdp_ref.rule('split:base=...') reads text"
            )
        if self.base.name == self.name:
            raise ValueError("split takes any rule for its base but split")
        if traits(self.base).sampling is not None:  # pieces would share its random numbers
            raise ValueError(f"split takes a base that does not sample, got {self.base.name}")

    @property
    def parameters(self) -> dict[str, Any]:
        """Base and number of pieces, always."""
        return {"base": getattr(self.base, "spec", self.base.name), "k": self.k}

    @property
    def label(self) -> str:
        """``split k=9``, with the base unless it is the default: ``split SDP k=9``."""
        base = "" if self.base == DividedDifference(1.25) else f" {traits(self.base).label}"
        return f"{self.title}{base} k={self.k}"

    @property
    def marginal(self) -> bool:  # type: ignore[override]  # as its base is
        return traits(self.base).marginal

    @property
    def known_faults(self) -> Mapping[str, str]:  # type: ignore[override]  # the base's, and its own
        faults = dict(getattr(self.base, "known_faults", {}))
        if self.k > 1:
            faults |= {
                "gradients": "the choice of the pieces is not differentiated",
                "diagonal": "mean and variance of many pieces come near those of f(X), each by itself",
                "permutation": "pieces are correlated, and points may depend on the order of such inputs",
            }
        return faults

    def prepare(self, net: Net) -> Callable[[Law], Law]:
        """Prepare the base only."""
        base = self.base
        prepare = getattr(base, "prepare", None)
        predict: Callable[[Law], Law] = prepare(net) if prepare else partial(base.propagate, net)

        @evaluates(self.name, net)
        def propagate(x: Law) -> Law:
            if isinstance(x, Mixture):
                return self._of_mixture(net, x)
            if self.k == 1:
                return predict(x)
            if isinstance(x, SymmetricStable) and x.alpha == 2:
                x = unchecked(DiagonalGaussian, x.location, 2 * x.scale.square())
            if isinstance(x, Cauchy | SymmetricStable):
                hint = "narrower laws have lighter tails; take k=1, or monte_carlo"
                raise UnsupportedError(self.name, f"pieces of {x.described}", hint=hint)
            x = as_any_gaussian(self.name, x)
            if self.marginal:
                x = cast(Splittable, as_marginal(self.name, x))
            with self.at():
                frame = Frame.of(net, x, axes=self.marginal)
                shape, rounding = (x.batch, frame.steps.shape[2]), torch.finfo(x.location.dtype).eps
                pieces = grown(frame.evaluate(net), shape, self.k, turning=frame.turning, rounding=rounding)
                used = np.flatnonzero(pieces.weights.max(0))
                if len(used) == 1:
                    return predict(x)
                pieces = pieces[used[None].repeat(x.batch, 0)]
                weights = torch.from_numpy(pieces.weights).to(x.location)
                return unchecked(Mixture, weights, predict(frame.pieces(pieces)))

        return propagate

    def _of_mixture(self, net: Net, x: Mixture) -> Mixture:
        """Split each component into its share of the pieces, at least one."""
        y = replace(self, k=max(1, self.k // x.pieces)).propagate(net, x.components)
        if not isinstance(y, Mixture):
            return unchecked(Mixture, x.weights, y)
        weights = x.weights.unsqueeze(-1) * y.weights.unflatten(0, x.weights.shape)
        return unchecked(Mixture, weights.flatten(1), y.components)
