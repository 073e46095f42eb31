"""Joint Gaussian law of the values of a net that are read later, in blocks.

A residual branch reads a value again after others have been computed from it, and the variance of the sum
depends on their covariance. For an affine op this is Cov(A X, Y) = A Cov(X, Y); for an elementwise function f
of jointly Gaussian X and Y it is Cov(f(X), Y) = E[f'(X)] Cov(X, Y) (Stein's lemma).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sdp_ref.errors import NoLinearPartError
from sdp_ref.graph.affine import Affine, Elementwise, LinearMap, Normalisation, Rearrangement
from sdp_ref.graph.ops import Shift
from sdp_ref.jacobian.local import spread_by_rows
from sdp_ref.laws import Gaussian, unchecked

Rows = Callable[..., Tensor]
"""Linear part of an op: maps one matrix of rows (B, R, *event) per input to (B, R, *out)."""

Numbers = tuple[int, ...]
"""Numbers of values."""

Moments = tuple[Tensor, Tensor]
"""Mean and covariance, or variance."""


_SAME = 1e-9
_ROWS = 128
"""Number of components whose covariances beyond the first order are computed, as a sample of all."""


class Live(ABC):
    """Live values as an op reads them in order to be linearised; `means` are (B, *event), by value."""

    means: dict[int, Tensor]

    def size(self, value: int) -> int:
        """Number of components of a value."""
        return self.means[value][0].numel()

    @abstractmethod
    def within(self, value: int, places: Tensor) -> Tensor:
        """Covariances (B, groups, n, n) within groups of components, with indices `places` (groups, n)."""

    @abstractmethod
    def group_sums(self, value: int, groups: int) -> tuple[Tensor, Tensor]:
        """Sums of variances and of all covariances within groups of adjacent components, (B, groups, 1)."""

    @abstractmethod
    def side_by_side(self, one: int, other: int, shape: torch.Size) -> Tensor:
        """Covariances of corresponding components of two values, both broadcast to an event, (B, *shape)."""


class Factored(Live):
    """Live values as m_v + L_v z + sqrt(d_v) e_v, with one standard normal z for all and an e_v for each.

    `factors` has the L_v as rows (B, R, *event) and `remainders` the d_v (B, *event).
    """

    factors: dict[int, Tensor]
    remainders: dict[int, Tensor]

    @property
    def latent(self) -> int:
        """Number of components of z, R."""
        return next(iter(self.factors.values())).shape[1]

    def variance(self, value: int) -> Tensor:
        """Variances (B, *event) of a value."""
        return self.factors[value].square().sum(1) + self.remainders[value]

    def within(self, value: int, places: Tensor) -> Tensor:
        factor = self.factors[value].flatten(2)[:, :, places]
        own = torch.einsum("brgi,brgj->bgij", factor, factor)
        return own + torch.diag_embed(self.remainders[value].flatten(1)[:, places])

    def group_sums(self, value: int, groups: int) -> tuple[Tensor, Tensor]:
        factor = self.factors[value]  # it may have no columns
        variance = self.variance(value).reshape(len(factor), groups, -1)
        common = factor.reshape(*factor.shape[:2], *variance.shape[1:]).sum(-1).square().sum(1)
        own = self.remainders[value].reshape(variance.shape).sum(-1)
        return variance.sum(-1, keepdim=True), (common + own).unsqueeze(-1)

    def side_by_side(self, one: int, other: int, shape: torch.Size) -> Tensor:
        common = (self.factors[one] * self.factors[other]).sum(1)
        own = common + self.remainders[one] if one == other else common
        return own.expand(-1, *shape)


@dataclass(frozen=True)
class Image:
    """Result of an op on factored values.

    `rows` is the linear part, from rows (B, R, *event) of each input to (B, R, *out), and `linear` (B, *out)
    the variances of the linear part. The excess of `variance` over these is independent. If `parallel`,
    independent components remain independent. `beyond` is this op's term in that of
    :class:`~sdp_ref.laws.CompressedGaussian`.
    """

    mean: Tensor
    rows: Rows
    linear: Tensor
    variance: Tensor
    parallel: bool
    beyond: Tensor | float = 0.0


class Joint(Live):
    """Means and covariance blocks of the live values during the walk through a net.

    Value 0 is the input of the net, given by its mean (B, *event), float64, and its covariance (B, n, n), or
    its variance (B, *event) if its components are independent. The matrix is then built only when an op needs
    it. `limit` raises an error if an op needs too many bytes; `path` is that of the current one.
    """

    def __init__(
        self,
        limit: Callable[..., None],
        mean: Tensor,
        *,
        covariance: Tensor | None = None,
        variance: Tensor | None = None,
    ) -> None:
        self.limit, self.path = limit, ""
        self.means = {0: mean}
        self._variances = {} if variance is None else {0: variance.flatten(1)}
        # Only pairs i <= j; the others are their transposes.
        self._blocks = {} if covariance is None else {(0, 0): covariance}

    @property
    def live(self) -> Numbers:
        return tuple(self.means)

    @property
    def entries(self) -> int:
        return sum(block.numel() for block in self._blocks.values())

    def fit(self, n: int, *, built: int = 1, entries: int = 0) -> None:
        """Raise a CovarianceSizeError if an op on n components needs more memory than allowed.

        It builds `built` matrices of n by n components, and `entries` other numbers, for each law.
        """
        batch = len(next(iter(self.means.values())))
        needed = _NUMBER * (self.entries + batch * (built * n * n + entries))
        self.limit(needed, f"covariances of {batch} x {n} x {n} components", self.path, _HINT)

    def independent(self, value: int) -> Tensor | None:
        """Variances (B, n) of a value whose matrix has not been built, otherwise None."""
        return None if (value, value) in self._blocks else self._variances[value]

    def block(self, i: int, j: int) -> Tensor:
        """Covariance (B, n_i, n_j) of values `i` and `j`."""
        if i == j and (i, i) not in self._blocks:
            self._blocks[i, i] = torch.diag_embed(self._variances[i])
        return self._blocks[i, j] if i <= j else self._blocks[j, i].mT

    def law(self, value: int) -> Gaussian:
        return unchecked(Gaussian, self.means[value], self.block(value, value))

    def law_of_all(self, values: Sequence[int]) -> Gaussian:
        """Joint law of several values, flattened and concatenated."""
        mean = torch.cat([self.means[v].flatten(1) for v in values], 1)
        rows = [torch.cat([self.block(i, j) for j in values], 2) for i in values]
        return unchecked(Gaussian, mean, torch.cat(rows, 1))

    def within(self, value: int, places: Tensor) -> Tensor:
        variance = self.independent(value)
        if variance is not None:
            return torch.diag_embed(variance[:, places])
        return self.block(value, value)[:, places.unsqueeze(2), places.unsqueeze(1)]

    def side_by_side(self, one: int, other: int, shape: torch.Size) -> Tensor:
        rows = self._broadcast_indices(one, shape)
        variance = self.independent(one) if one == other else None
        if variance is not None:
            return variance[:, rows].reshape(-1, *shape)
        columns = self._broadcast_indices(other, shape)
        return self.block(one, other)[:, rows, columns].reshape(-1, *shape)

    def _broadcast_indices(self, value: int, shape: torch.Size) -> Tensor:
        """Index of the component of a value that each component of a broadcast event reads, flattened."""
        event = self.means[value].shape[1:]
        return torch.arange(self.size(value)).reshape(event).expand(shape).flatten()

    def group_sums(self, value: int, groups: int) -> tuple[Tensor, Tensor]:
        variance = self.independent(value)
        if variance is not None:
            trace = variance.reshape(len(variance), groups, -1).sum(-1, keepdim=True)
            return trace, trace
        own = self.within(value, torch.arange(self.size(value)).reshape(groups, -1))
        trace = own.diagonal(dim1=2, dim2=3).sum(-1, keepdim=True)
        return trace, own.sum((2, 3)).unsqueeze(-1)

    def replace(self, new: int, mean: Tensor, variance: Tensor) -> None:
        """Replace the only value by one with independent components."""
        self.means, self._variances, self._blocks = {new: mean}, {new: variance.flatten(1)}, {}

    def add(self, value: int, mean: Tensor, covariance: Tensor, cross: dict[int, Tensor]) -> None:
        """Add a value, with its covariance with each live one, (B, n_live, n)."""
        self.means[value] = mean
        self._blocks[value, value] = covariance
        self._blocks.update({(other, value): block for other, block in cross.items()})

    def drop(self, values: Iterable[int]) -> None:
        gone = set(values)
        self.means = {v: mean for v, mean in self.means.items() if v not in gone}
        self._blocks = {k: block for k, block in self._blocks.items() if not gone & set(k)}

    def rename(self, old: int, new: int, mean: Tensor) -> None:
        """Renumber value `old`, whose components keep their order in the new shape."""

        def name(v: int) -> int:
            return new if v == old else v

        blocks = {}
        for (i, j), block in self._blocks.items():
            a, b = name(i), name(j)
            blocks[(a, b) if a <= b else (b, a)] = block if a <= b else block.mT
        self._blocks = blocks
        self._variances = {name(v): variance for v, variance in self._variances.items()}
        self.means = {name(v): m for v, m in self.means.items()} | {new: mean}

    def as_rows(self, block: Tensor, value: int) -> Tensor:
        """Covariances (B, R, n) with the components of a value as rows (B, R, *event)."""
        return block.reshape(*block.shape[:2], *self.means[value].shape[1:])


_NUMBER = 8  # bytes per number
_HINT = "rule 'low_rank' carries covariances as factors of low rank, which fit"


class JointStep:
    """An op on the joint law of its inputs and of the values that are read later.

    Rules with covariance matrices call :meth:`take`, those with factors :meth:`image`.
    """

    def take(self, joint: Joint, number: int, inputs: Numbers, others: Numbers) -> None:
        """Add value `number`, computed from `inputs`, and its covariance with `others` to the joint law.

        Raises :class:`~sdp_ref.CovarianceSizeError` if the matrices do not fit in memory.
        """
        raise NotImplementedError

    def image(self, factors: Factored, inputs: Numbers) -> Image:
        """Compute the result of the op from factored values."""
        raise NotImplementedError


class LinearStep(JointStep, ABC):
    """An op that is linear up to a constant and, optionally, additional moments.

    If `single`, each component of the output reads at most one component of each value. A subclass defines
    the mean and the linear part by :meth:`bound`. It may add moments: to covariance matrices by
    :meth:`completed`, which allocates :meth:`entries` numbers, and to factors by :meth:`beyond`, with the
    share of covariances that these omit in :meth:`omitted`. :meth:`squares` allows shortcuts for
    independent components.
    """

    single = False

    def take(self, joint: Joint, number: int, inputs: Numbers, others: Numbers) -> None:
        """Add the value y = sum_i A_i x_i + constant.

        Cov(v, y) = sum_i Cov(v, x_i) A_i^T for every other value v, and likewise for v = y.
        """
        mean, rows = self.bound(joint, inputs)
        _check_event(mean)
        partners = tuple(dict.fromkeys((*others, *inputs)))
        self._fit(joint, inputs, partners, mean)
        cross = {}
        for partner in partners:
            with_inputs = [joint.as_rows(joint.block(partner, i), i) for i in inputs]
            cross[partner] = rows(*with_inputs).flatten(2)
        with_output = [joint.as_rows(cross[i].mT, i) for i in inputs]
        covariance = rows(*with_output).flatten(2)
        mean, covariance = self.completed(joint, inputs, mean, covariance)
        joint.add(number, mean, covariance, {v: cross[v] for v in others})

    def _fit(self, joint: Joint, inputs: Numbers, partners: Numbers, mean: Tensor) -> None:
        """Check the memory for the blocks with `partners`, and for their matrices that are not built yet."""
        m = mean[0].numel()
        entries = self.entries(joint, inputs, mean)
        for partner in partners:
            n = joint.size(partner)
            entries += n * m
            if joint.independent(partner) is not None:
                entries += n * n
        joint.fit(m, entries=entries)

    @abstractmethod
    def bound(self, joint: Live, inputs: Numbers) -> tuple[Tensor, Rows]:
        """Return the mean of the output and the linear part."""

    def entries(self, joint: Joint, inputs: Numbers, mean: Tensor) -> int:  # noqa: ARG002
        """Number of entries per input of the batch that :meth:`completed` allocates."""
        return 0

    def completed(self, joint: Joint, inputs: Numbers, mean: Tensor, covariance: Tensor) -> Moments:  # noqa: ARG002
        """Add the additional moments to mean and covariance."""
        return mean, covariance

    def image(self, factors: Factored, inputs: Numbers) -> Image:
        mean, rows = self.bound(factors, inputs)
        _check_event(mean)
        linear = self.squares(factors, inputs, rows, mean)
        if factors.latent:
            linear = linear + rows(*(factors.factors[v] for v in inputs)).square().sum(1)
        shift, more = self.beyond(factors, inputs, linear)
        parallel = self.single and _parallel(factors, inputs, rows, mean.shape[1:])
        omitted = self.omitted(factors, inputs, rows, linear + more)
        return Image(mean + shift, rows, linear, linear + more, parallel, omitted)

    def squares(self, factors: Factored, inputs: Numbers, rows: Rows, mean: Tensor) -> Tensor:
        """Variances (B, *out) of the output from the remainders."""
        values = list(dict.fromkeys(inputs))
        spreads = [factors.remainders[v] for v in values]
        if not self.single:
            by_value = lambda *given: rows(*(given[values.index(v)] for v in inputs))  # noqa: E731
            return spread_by_rows(by_value, spreads, 2, mean)
        variances = []
        for value, spread in zip(values, spreads, strict=True):
            image = _alone(factors, inputs, value, rows, spread.sqrt().unsqueeze(1))
            variances.append(image.square().sum(1))
        return torch.stack(variances).sum(0)

    def beyond(self, factors: Factored, inputs: Numbers, linear: Tensor) -> Moments:  # noqa: ARG002
        """Additional means and variances of the output, without covariances."""
        return torch.zeros_like(linear), torch.zeros_like(linear)

    def omitted(self, factors: Factored, inputs: Numbers, rows: Rows, variance: Tensor) -> Tensor | float:  # noqa: ARG002
        """Share of the covariances that the linear part omits, as in :class:`Image`."""
        return 0.0


class MeanStep(LinearStep):
    """An op that is linear given the means of its inputs.

    `bind` maps the means to the mean of the output and the linear part.
    """

    def __init__(self, bind: Callable[..., tuple[Tensor, Rows]], single: bool = False) -> None:
        self.bind, self.single = bind, single

    def bound(self, joint: Live, inputs: Numbers) -> tuple[Tensor, Rows]:
        return self.bind(*(joint.means[i] for i in inputs))


class AffineStep(LinearStep):
    """An affine op of one value, with shortcuts for common cases."""

    def __init__(self, op: Affine) -> None:
        self.op, self.single = op, op.diagonal

    def bound(self, joint: Live, inputs: Numbers) -> tuple[Tensor, Rows]:
        def rows(x: Tensor) -> Tensor:
            y = self.op.rows(x.flatten(0, 1))
            return y.reshape(*x.shape[:2], *y.shape[1:])

        return self.op.value(joint.means[inputs[0]]), rows

    def take(self, joint: Joint, number: int, inputs: Numbers, others: Numbers) -> None:
        (value,) = inputs
        mean = joint.means[value]
        self.op.check(mean)
        variance, moved = joint.independent(value), self.op.value(mean)
        fits = moved.shape == mean.shape
        if isinstance(self.op, Rearrangement):
            leaves = self.op.keeps_order
        else:
            leaves = isinstance(self.op.module, Shift) and fits
        if leaves:
            copied(joint, number, value, others, moved)
        elif isinstance(self.op, LinearMap) and mean.ndim == 2:
            # no covariance matrix of the input is built if its components are independent
            weight = self.op.module.weight.double()
            m, n = weight.shape
            joint.fit(m, entries=m * n + sum(joint.size(v) * m for v in others))
            left = weight @ joint.block(value, value) if variance is None else weight * variance.unsqueeze(1)
            cross = {v: left.mT if v == value else joint.block(v, value) @ weight.mT for v in others}
            joint.add(number, moved, left @ weight.mT, cross)
        elif (
            variance is not None and isinstance(self.op, Normalisation | Elementwise) and fits and not others
        ):
            joint.replace(number, moved, self.op.spread(variance.reshape(mean.shape), 2))
        else:
            super().take(joint, number, inputs, others)

    def image(self, factors: Factored, inputs: Numbers) -> Image:
        self.op.check(factors.means[inputs[0]])
        return super().image(factors, inputs)

    def squares(self, factors: Factored, inputs: Numbers, rows: Rows, mean: Tensor) -> Tensor:
        if self.op.copies:  # the weights of the copies of a component add up before they are squared
            return super().squares(factors, inputs, rows, mean)
        return self.op.spread(factors.remainders[inputs[0]], 2)


class CopyStep(JointStep):
    def take(self, joint: Joint, number: int, inputs: Numbers, others: Numbers) -> None:
        copied(joint, number, inputs[0], others, joint.means[inputs[0]])

    def image(self, factors: Factored, inputs: Numbers) -> Image:
        variance = factors.variance(inputs[0])
        return Image(factors.means[inputs[0]], lambda x: x, variance, variance, parallel=True)


def copied(joint: Joint, number: int, value: int, others: Numbers, mean: Tensor) -> None:
    """Add a value with the covariance of another, without computing or copying it."""
    _check_event(mean)
    if value not in others:
        joint.rename(value, number, mean)
        return
    if joint.independent(value) is not None:
        joint.fit(joint.size(value))
    joint.add(number, mean, joint.block(value, value), {v: joint.block(v, value) for v in others})


def _check_event(mean: Tensor) -> None:
    if mean.ndim < 2:
        raise NoLinearPartError("a value of one number a row (keep a dimension: x[:, :1])")


def elementwise_input(law: Gaussian) -> tuple[Tensor, Tensor]:
    """Mean and covariance at the input of an elementwise function.

    A unit with a negative variance, from rounding or from the indefinite covariance of DVIA, is treated as a
    point mass.
    """
    covariance = law.covariance
    negative = covariance.diagonal(dim1=-2, dim2=-1) < 0
    if covariance.device.type != "cpu" or bool(negative.any()):  # avoid waiting for another device
        covariance = covariance.masked_fill(negative.unsqueeze(-1) | negative.unsqueeze(-2), 0.0)
    return law.mean.flatten(1), covariance


def adjoint(rows: Rows, events: list[torch.Size], cotangents: Tensor) -> tuple[Tensor, ...]:
    """Transpose of a linear map of several values, applied to rows (B, q, *out)."""
    with torch.enable_grad():
        shapes = ((*cotangents.shape[:2], *event) for event in events)
        inputs = [
            torch.zeros(shape, dtype=cotangents.dtype, device=cotangents.device, requires_grad=True)
            for shape in shapes
        ]
        image = rows(*inputs)
    if not image.requires_grad:  # it does not depend on the inputs
        return tuple(torch.zeros_like(each, requires_grad=False) for each in inputs)
    found = torch.autograd.grad(image, inputs, cotangents, allow_unused=True, materialize_grads=True)
    return tuple(each.detach() for each in found)


def omitted_share(
    covariances: Callable[[Tensor], tuple[Tensor, Tensor]], variance: Tensor, at_a_time: int
) -> Tensor:
    """Frobenius norm of omitted covariances, relative to that of all."""
    n, top = variance.shape[1], variance.amax(1)
    # squares of values far from 1 may over- or underflow
    unit = torch.where(top > 0, top, 1.0)[:, None, None]
    generator = torch.Generator().manual_seed(0)
    some = torch.arange(n) if n <= _ROWS else torch.randperm(n, generator=generator)[:_ROWS]
    missing, there = variance.new_zeros(2, len(variance))
    for part in some.split(at_a_time):
        kept, left_out = covariances(part)
        own = torch.arange(len(part)), part
        kept[:, *own], left_out[:, *own] = variance[:, part], 0.0
        missing = missing + (left_out / unit).square().sum((1, 2))
        there = there + (kept / unit).square().sum((1, 2))
    whole = missing + there
    return torch.where(whole > 0, missing / torch.where(whole > 0, whole, 1.0), 0.0).sqrt()


def _alone(factors: Factored, inputs: Numbers, value: int, rows: Rows, given: Tensor) -> Tensor:
    """Image of rows (B, R, *event) of one value, with those of the others zero."""
    batch, count = given.shape[:2]
    return rows(
        *(given if v == value else given.new_zeros(batch, count, *factors.means[v].shape[1:]) for v in inputs)
    )


@torch.no_grad()
def _parallel(factors: Factored, inputs: Numbers, rows: Rows, out: torch.Size) -> bool:
    """Whether no component of an input is read twice: A A^T is diagonal, tested on two random vectors."""
    generator = torch.Generator().manual_seed(0)
    for value in dict.fromkeys(inputs):
        mean = factors.means[value]
        given = torch.rand(1, 2, *out, generator=generator, dtype=mean.dtype) + 0.5
        given = given.to(mean.device).expand(len(mean), *given.shape[1:])

        def alone(x: Tensor, value: int = value) -> Tensor:
            return _alone(factors, inputs, value, rows, x)

        (back,) = adjoint(alone, [mean.shape[1:]], given)
        image = alone(back)
        first, second = (image / given).unbind(1)
        if not torch.allclose(first, second, rtol=_SAME, atol=_SAME * float(first.abs().max())):
            return False
    return True
