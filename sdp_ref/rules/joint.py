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
"""Relative difference of two diagonals that count as equal: far above the rounding of a matrix product."""

_ROWS = 128
"""Number of components whose covariances beyond the first order are computed, as a sample of all."""


class Live(ABC):
    """Live values as an op reads them in order to be linearised; `means` are (B, *event), by value.

    Values are numbered: 0 is the input of the net, and i the result of step i.
    """

    means: dict[int, Tensor]

    def size(self, value: int) -> int:
        """Number of components of a value."""
        return self.means[value][0].numel()

    @abstractmethod
    def within(self, value: int, components: Tensor) -> Tensor:
        """Covariances (B, groups, n, n) within groups of `components`, given by index (groups, n)."""

    @abstractmethod
    def group_sums(self, value: int, groups: int) -> tuple[Tensor, Tensor]:
        """Sums of variances and of all covariances within groups of adjacent components, (B, groups, 1)."""

    @abstractmethod
    def side_by_side(self, first: int, second: int, shape: torch.Size) -> Tensor:
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

    def within(self, value: int, components: Tensor) -> Tensor:
        factor = self.factors[value].flatten(2)[:, :, components]
        covariance = torch.einsum("brgi,brgj->bgij", factor, factor)
        return covariance + torch.diag_embed(self.remainders[value].flatten(1)[:, components])

    def group_sums(self, value: int, groups: int) -> tuple[Tensor, Tensor]:
        factor = self.factors[value]  # it may have no columns
        variance = self.variance(value).reshape(len(factor), groups, -1)
        from_factor = factor.reshape(*factor.shape[:2], *variance.shape[1:]).sum(-1).square().sum(1)
        from_remainder = self.remainders[value].reshape(variance.shape).sum(-1)
        return variance.sum(-1, keepdim=True), (from_factor + from_remainder).unsqueeze(-1)

    def side_by_side(self, first: int, second: int, shape: torch.Size) -> Tensor:
        covariance = (self.factors[first] * self.factors[second]).sum(1)
        if first == second:
            covariance = covariance + self.remainders[first]
        return covariance.expand(-1, *shape)


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
    it. `limit` raises :class:`~sdp_ref.CovarianceSizeError` if an op needs too many bytes; `path` is that of
    the current op.
    """

    def __init__(
        self,
        limit: Callable[..., None],
        mean: Tensor,
        *,
        covariance: Tensor | None = None,
        variance: Tensor | None = None,
    ) -> None:
        self.limit = limit
        self.path = ""
        self.means = {0: mean}
        self._variances = {} if variance is None else {0: variance.flatten(1)}
        # Only pairs i <= j; the others are their transposes.
        self._blocks = {} if covariance is None else {(0, 0): covariance}

    @property
    def live(self) -> Numbers:
        """Numbers of the live values."""
        return tuple(self.means)

    @property
    def entries(self) -> int:
        """Number of entries of all blocks."""
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
        """Law of one value, with mean (B, *event) and covariance (B, n, n)."""
        return unchecked(Gaussian, self.means[value], self.block(value, value))

    def law_of_all(self, values: Sequence[int]) -> Gaussian:
        """Joint law of several values, flattened and concatenated: mean (B, n), covariance (B, n, n)."""
        mean = torch.cat([self.means[v].flatten(1) for v in values], 1)

        def row_of_blocks(i: int) -> Tensor:
            return torch.cat([self.block(i, j) for j in values], 2)

        return unchecked(Gaussian, mean, torch.cat([row_of_blocks(i) for i in values], 1))

    def within(self, value: int, components: Tensor) -> Tensor:
        variance = self.independent(value)
        if variance is not None:
            return torch.diag_embed(variance[:, components])
        return self.block(value, value)[:, components.unsqueeze(2), components.unsqueeze(1)]

    def side_by_side(self, first: int, second: int, shape: torch.Size) -> Tensor:
        rows = self._broadcast_indices(first, shape)
        variance = self.independent(first) if first == second else None
        if variance is not None:
            return variance[:, rows].reshape(-1, *shape)
        columns = self._broadcast_indices(second, shape)
        return self.block(first, second)[:, rows, columns].reshape(-1, *shape)

    def _broadcast_indices(self, value: int, shape: torch.Size) -> Tensor:
        """Index of the component of a value that each component of a broadcast event reads, flattened."""
        event = self.means[value].shape[1:]
        return torch.arange(self.size(value)).reshape(event).expand(shape).flatten()

    def group_sums(self, value: int, groups: int) -> tuple[Tensor, Tensor]:
        variance = self.independent(value)
        if variance is not None:
            trace = variance.reshape(len(variance), groups, -1).sum(-1, keepdim=True)
            return trace, trace
        covariance = self.within(value, torch.arange(self.size(value)).reshape(groups, -1))
        trace = covariance.diagonal(dim1=2, dim2=3).sum(-1, keepdim=True)
        return trace, covariance.sum((2, 3)).unsqueeze(-1)

    def replace(self, new: int, mean: Tensor, variance: Tensor) -> None:
        """Replace the only value by one with independent components; mean and variance are (B, *event)."""
        self.means = {new: mean}
        self._variances = {new: variance.flatten(1)}
        self._blocks = {}

    def add(self, value: int, mean: Tensor, covariance: Tensor, cross: dict[int, Tensor]) -> None:
        """Add a value with mean (B, *event) and covariance (B, n, n).

        `cross` has its covariance (B, n_v, n) with every live value v.
        """
        self.means[value] = mean
        self._blocks[value, value] = covariance
        for other, block in cross.items():
            self._blocks[other, value] = block

    def drop(self, values: Iterable[int]) -> None:
        """Delete values that no later op reads."""
        deleted = set(values)
        self.means = {v: mean for v, mean in self.means.items() if v not in deleted}
        self._blocks = {pair: block for pair, block in self._blocks.items() if deleted.isdisjoint(pair)}

    def rename(self, old: int, new: int, mean: Tensor) -> None:
        """Renumber value `old`, whose components keep their order in the new shape."""

        def renumbered(v: int) -> int:
            return new if v == old else v

        blocks = {}
        for (i, j), block in self._blocks.items():
            i_new, j_new = renumbered(i), renumbered(j)
            if i_new <= j_new:
                blocks[i_new, j_new] = block
            else:
                blocks[j_new, i_new] = block.mT
        self._blocks = blocks
        self._variances = {renumbered(v): variance for v, variance in self._variances.items()}
        self.means = {renumbered(v): m for v, m in self.means.items()}
        self.means[new] = mean

    def as_rows(self, block: Tensor, value: int) -> Tensor:
        """Covariances (B, R, n) with the components of a value as rows (B, R, *event)."""
        return block.reshape(*block.shape[:2], *self.means[value].shape[1:])


_NUMBER = 8  # bytes per number
_HINT = "rule 'low_rank' carries covariances as factors of low rank, which fit"


class JointStep:
    """An op on the joint law of its inputs and of the values that are read later.

    Rules with covariance matrices call :meth:`add_result`, those with factors :meth:`image`.
    """

    def add_result(self, joint: Joint, number: int, inputs: Numbers, others: Numbers) -> None:
        """Add value `number`, computed from `inputs`, and its covariance with `others` to the joint law.

        Raises :class:`~sdp_ref.CovarianceSizeError` if the matrices do not fit in memory.
        """
        raise NotImplementedError

    def image(self, factors: Factored, inputs: Numbers) -> Image:
        """Compute the result of the op from factored values."""
        raise NotImplementedError


class LinearStep(JointStep, ABC):
    """An op that is linear up to a constant, plus the moments of a non-linear part if it has one.

    If `single`, each component of the output reads at most one component of each value. A subclass defines
    the mean and the linear part by :meth:`linearisation`. If it has a non-linear part, it adds the moments of
    that to covariance matrices by :meth:`corrected_moments`, in a memory of :meth:`temporary_entries`. Rules
    with factors use :meth:`moment_corrections` instead; :meth:`omission` measures the covariances that these
    omit. :meth:`remainder_variances` may be overridden by a shortcut.
    """

    single = False

    def add_result(self, joint: Joint, number: int, inputs: Numbers, others: Numbers) -> None:
        """Add the value y = sum_i A_i x_i + constant.

        Cov(v, y) = sum_i Cov(v, x_i) A_i^T for every other value v, and likewise for v = y.
        """
        mean, rows = self.linearisation(joint, inputs)
        _check_event(mean)
        partners = tuple(dict.fromkeys((*others, *inputs)))
        self._fit(joint, inputs, partners, mean)
        cross = {}
        for partner in partners:
            with_inputs = [joint.as_rows(joint.block(partner, i), i) for i in inputs]
            cross[partner] = rows(*with_inputs).flatten(2)
        with_output = [joint.as_rows(cross[i].mT, i) for i in inputs]
        covariance = rows(*with_output).flatten(2)
        mean, covariance = self.corrected_moments(joint, inputs, mean, covariance)
        joint.add(number, mean, covariance, {v: cross[v] for v in others})

    def _fit(self, joint: Joint, inputs: Numbers, partners: Numbers, mean: Tensor) -> None:
        """Check the memory for the blocks with `partners`, and for their matrices that are not built yet."""
        m = mean[0].numel()
        entries = self.temporary_entries(joint, inputs, mean)
        for partner in partners:
            n = joint.size(partner)
            entries += n * m
            if joint.independent(partner) is not None:
                entries += n * n
        joint.fit(m, entries=entries)

    @abstractmethod
    def linearisation(self, joint: Live, inputs: Numbers) -> tuple[Tensor, Rows]:
        """Return the mean (B, *out) of the linearised output, and its linear part."""

    def temporary_entries(self, joint: Joint, inputs: Numbers, mean: Tensor) -> int:  # noqa: ARG002
        """Number of entries that :meth:`corrected_moments` allocates, per input of the batch."""
        return 0

    def corrected_moments(self, joint: Joint, inputs: Numbers, mean: Tensor, covariance: Tensor) -> Moments:  # noqa: ARG002
        """Add the moments of the non-linear part to mean (B, *out) and covariance (B, m, m)."""
        return mean, covariance

    def image(self, factors: Factored, inputs: Numbers) -> Image:
        mean, rows = self.linearisation(factors, inputs)
        _check_event(mean)
        linear = self.remainder_variances(factors, inputs, rows, mean)
        if factors.latent:
            image = rows(*[factors.factors[v] for v in inputs])
            linear = linear + image.square().sum(1)
        shift, more = self.moment_corrections(factors, inputs, linear)
        variance = linear + more
        return Image(
            mean=mean + shift,
            rows=rows,
            linear=linear,
            variance=variance,
            parallel=self.single and _parallel(factors, inputs, rows, mean.shape[1:]),
            beyond=self.omission(factors, inputs, rows, variance),
        )

    def remainder_variances(self, factors: Factored, inputs: Numbers, rows: Rows, mean: Tensor) -> Tensor:
        """Variances (B, *out) of the output from the remainders."""
        values = list(dict.fromkeys(inputs))
        spreads = [factors.remainders[v] for v in values]
        if not self.single:

            def rows_by_value(*rows_of_values: Tensor) -> Tensor:
                return rows(*[rows_of_values[values.index(v)] for v in inputs])

            return spread_by_rows(rows_by_value, spreads, 2, mean)
        variances = []
        for value, spread in zip(values, spreads, strict=True):
            image = _image_of_value(factors, inputs, value, rows, spread.sqrt().unsqueeze(1))
            variances.append(image.square().sum(1))
        return torch.stack(variances).sum(0)

    def moment_corrections(self, factors: Factored, inputs: Numbers, linear: Tensor) -> Moments:  # noqa: ARG002
        """Means and variances (B, *out) of the non-linear part; `linear` are the variances of the other."""
        return torch.zeros_like(linear), torch.zeros_like(linear)

    def omission(self, factors: Factored, inputs: Numbers, rows: Rows, variance: Tensor) -> Tensor | float:  # noqa: ARG002
        """Share of the covariances that the linear part omits, as in :class:`Image`."""
        return 0.0


class MeanStep(LinearStep):
    """An op that is linear given the means of its inputs.

    `bind` maps the means to the mean of the output and the linear part.
    """

    def __init__(self, bind: Callable[..., tuple[Tensor, Rows]], single: bool = False) -> None:
        self.bind, self.single = bind, single

    def linearisation(self, joint: Live, inputs: Numbers) -> tuple[Tensor, Rows]:
        return self.bind(*[joint.means[v] for v in inputs])


class AffineStep(LinearStep):
    """An affine op of one value, with shortcuts for common cases."""

    def __init__(self, op: Affine) -> None:
        self.op, self.single = op, op.diagonal

    def linearisation(self, joint: Live, inputs: Numbers) -> tuple[Tensor, Rows]:
        def rows(x: Tensor) -> Tensor:
            y = self.op.rows(x.flatten(0, 1))
            return y.reshape(*x.shape[:2], *y.shape[1:])

        return self.op.value(joint.means[inputs[0]]), rows

    def add_result(self, joint: Joint, number: int, inputs: Numbers, others: Numbers) -> None:
        (value,) = inputs
        mean = joint.means[value]
        self.op.check(mean)
        variance = joint.independent(value)
        result = self.op.value(mean)
        same_shape = result.shape == mean.shape
        if isinstance(self.op, Rearrangement):
            keeps_covariance = self.op.keeps_order
        else:
            keeps_covariance = isinstance(self.op.module, Shift) and same_shape
        by_component = isinstance(self.op, Normalisation | Elementwise) and same_shape
        if keeps_covariance:
            add_copy(joint, number, value, others, result)
        elif isinstance(self.op, LinearMap) and mean.ndim == 2:
            self._add_matrix_product(joint, number, value, others, result)
        elif by_component and variance is not None and not others:
            joint.replace(number, result, self.op.spread(variance.reshape(mean.shape), 2))
        else:
            super().add_result(joint, number, inputs, others)

    def _add_matrix_product(
        self, joint: Joint, number: int, value: int, others: Numbers, result: Tensor
    ) -> None:
        """Add W x + b for a vector x of covariance C: its covariance W C W^T, and with other values.

        The matrix C is not built if the components of x are independent.
        """
        weight = self.op.module.weight.double()
        m, n = weight.shape
        joint.fit(m, entries=m * n + sum(joint.size(v) * m for v in others))
        variance = joint.independent(value)
        left = weight @ joint.block(value, value) if variance is None else weight * variance.unsqueeze(1)
        cross = {}
        for other in others:
            cross[other] = left.mT if other == value else joint.block(other, value) @ weight.mT
        joint.add(number, result, left @ weight.mT, cross)

    def image(self, factors: Factored, inputs: Numbers) -> Image:
        self.op.check(factors.means[inputs[0]])
        return super().image(factors, inputs)

    def remainder_variances(self, factors: Factored, inputs: Numbers, rows: Rows, mean: Tensor) -> Tensor:
        if self.op.copies:  # the weights of the copies of a component add up before they are squared
            return super().remainder_variances(factors, inputs, rows, mean)
        return self.op.spread(factors.remainders[inputs[0]], 2)


class CopyStep(JointStep):
    """An op that returns its input, such as dropout in evaluation mode."""

    def add_result(self, joint: Joint, number: int, inputs: Numbers, others: Numbers) -> None:
        add_copy(joint, number, inputs[0], others, joint.means[inputs[0]])

    def image(self, factors: Factored, inputs: Numbers) -> Image:
        variance = factors.variance(inputs[0])
        return Image(factors.means[inputs[0]], lambda x: x, variance, variance, parallel=True)


def add_copy(joint: Joint, number: int, value: int, others: Numbers, mean: Tensor) -> None:
    """Add value `number` with mean (B, *event) and the covariance of `value`, which is not copied."""
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
    """Mean (B, n) and covariance (B, n, n) at the input of an elementwise function.

    A unit with a negative variance, from rounding or from the indefinite covariance of DVIA, is treated as a
    point mass.
    """
    covariance = law.covariance
    negative = covariance.diagonal(dim1=-2, dim2=-1) < 0
    if covariance.device.type != "cpu" or bool(negative.any()):  # avoid waiting for another device
        covariance = covariance.masked_fill(negative.unsqueeze(-1) | negative.unsqueeze(-2), 0.0)
    return law.mean.flatten(1), covariance


def adjoint(rows: Rows, events: list[torch.Size], cotangents: Tensor) -> tuple[Tensor, ...]:
    """Transpose of a linear map of several values: from rows (B, q, *out) to rows (B, q, *event)."""
    batch, count = cotangents.shape[:2]
    with torch.enable_grad():
        inputs = [cotangents.new_zeros(batch, count, *event, requires_grad=True) for event in events]
        image = rows(*inputs)
    if not image.requires_grad:  # it does not depend on the inputs
        return tuple(torch.zeros_like(x, requires_grad=False) for x in inputs)
    gradients = torch.autograd.grad(image, inputs, cotangents, allow_unused=True, materialize_grads=True)
    return tuple(gradient.detach() for gradient in gradients)


def omitted_share(
    covariances: Callable[[Tensor], tuple[Tensor, Tensor]], variance: Tensor, at_a_time: int
) -> Tensor:
    """Frobenius norm of omitted covariances, relative to that of all, shape (B,).

    `covariances` returns the kept and the omitted covariances (B, k, n) of k components, given by index, with
    all n. The variances (B, n) are kept. `at_a_time` limits k. For more than `_ROWS` components, the norms
    are those of a random sample of rows.
    """
    n = variance.shape[1]
    largest = variance.amax(1)
    # squares of values far from 1 may over- or underflow
    unit = torch.where(largest > 0, largest, 1.0)[:, None, None]
    generator = torch.Generator().manual_seed(0)
    sample = torch.arange(n) if n <= _ROWS else torch.randperm(n, generator=generator)[:_ROWS]
    omitted_square, kept_square = variance.new_zeros(2, len(variance))
    for components in sample.split(at_a_time):
        kept, omitted = covariances(components)
        rows = torch.arange(len(components))
        kept[:, rows, components] = variance[:, components]
        omitted[:, rows, components] = 0.0
        omitted_square = omitted_square + (omitted / unit).square().sum((1, 2))
        kept_square = kept_square + (kept / unit).square().sum((1, 2))
    total = omitted_square + kept_square
    return torch.where(total > 0, omitted_square / torch.where(total > 0, total, 1.0), 0.0).sqrt()


def _image_of_value(factors: Factored, inputs: Numbers, value: int, rows: Rows, x: Tensor) -> Tensor:
    """Image of rows `x` (B, R, *event) of one value, with those of the others zero."""
    batch, count = x.shape[:2]
    rows_of_inputs = []
    for v in inputs:
        zeros = x.new_zeros(batch, count, *factors.means[v].shape[1:])
        rows_of_inputs.append(x if v == value else zeros)
    return rows(*rows_of_inputs)


@torch.no_grad()
def _parallel(factors: Factored, inputs: Numbers, rows: Rows, out: torch.Size) -> bool:
    """Whether no component of an input is read twice, so that A A^T is diagonal.

    If it is, A A^T v / v is the diagonal for every v. This is tested on two random vectors.
    """
    generator = torch.Generator().manual_seed(0)
    for value in dict.fromkeys(inputs):
        mean = factors.means[value]
        vectors = torch.rand(1, 2, *out, generator=generator, dtype=mean.dtype) + 0.5
        vectors = vectors.to(mean.device).expand(len(mean), *vectors.shape[1:])

        def image_of_value(x: Tensor, value: int = value) -> Tensor:
            return _image_of_value(factors, inputs, value, rows, x)

        (transposed,) = adjoint(image_of_value, [mean.shape[1:]], vectors)
        first, second = (image_of_value(transposed) / vectors).unbind(1)
        if not torch.allclose(first, second, rtol=_SAME, atol=_SAME * float(first.abs().max())):
            return False
    return True
