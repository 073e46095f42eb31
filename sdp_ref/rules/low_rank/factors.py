"""Joint Gaussian law of the live values of a walk: low-rank factors plus independent remainders.

Value v is m_v + L_v z + sqrt(d_v) e_v, with one standard normal z for all values and an e_v for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sdp_ref.rules.joint import Rows
from sdp_ref.rules.low_rank.compression import Expansion, Values

_SEED = 0
_ROUNDING = 2.0**-44
"""Remainders below this share of the variance are rounding error."""


@dataclass(frozen=True)
class Image:
    """Result of an op.

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


class Factors:
    """Means, factors and remainders of the live values during the walk through a net.

    Value 0, the input of the net, has a factor (B, R, *event), where R may be 0, and a remainder (B, *event),
    the variances of its independent part. `columns` limits the number of columns of a factor; `dropped` and
    `beyond` are those of :class:`~sdp_ref.laws.CompressedGaussian`.
    """

    def __init__(self, mean: Tensor, factor: Tensor, remainder: Tensor, columns: int) -> None:
        self.columns = columns
        self.means, self.factors, self.remainders = {0: mean}, {0: factor}, {0: remainder}
        self.dropped, self.beyond = mean.new_zeros(2, len(mean))
        self._generator = torch.Generator().manual_seed(
            _SEED
        )  # a separate generator: the result does not depend on the global one
        if factor.shape[1] > columns:
            self._compress(Expansion({0: factor}, {}, (0,)), None, self.means, {0: self.variance(0)})

    @property
    def latent(self) -> int:
        return next(iter(self.factors.values())).shape[1]

    @property
    def entries(self) -> int:
        return sum(factor.numel() for factor in self.factors.values())

    def size(self, value: int) -> int:
        return self.means[value][0].numel()

    def variance(self, value: int) -> Tensor:
        return self.factors[value].square().sum(1) + self.remainders[value]

    def within(self, value: int, places: Tensor) -> Tensor:
        factor = self.factors[value].flatten(2)[:, :, places]
        own = torch.einsum("brgi,brgj->bgij", factor, factor)
        return own + torch.diag_embed(self.remainders[value].flatten(1)[:, places])

    def group_sums(self, value: int, groups: int) -> tuple[Tensor, Tensor]:
        variance = self.variance(value).reshape(len(self.dropped), groups, -1)
        factor = self.factors[value]  # it may have no columns
        common = factor.reshape(*factor.shape[:2], *variance.shape[1:]).sum(-1).square().sum(1)
        own = self.remainders[value].reshape(variance.shape).sum(-1)
        return variance.sum(-1, keepdim=True), (common + own).unsqueeze(-1)

    def side_by_side(self, one: int, other: int, shape: torch.Size) -> Tensor:
        common = (self.factors[one] * self.factors[other]).sum(1)
        own = common + self.remainders[one] if one == other else common
        return own.expand(-1, *shape)

    def push(self, number: int, inputs: Sequence[int], image: Image, others: Sequence[int]) -> None:
        """Add the result of an op, and delete the values that are not among `others`."""
        self.beyond = self.beyond + image.beyond
        taken = dict.fromkeys(inputs)
        mixed = not image.parallel or any(v in others for v in taken)
        shared = [v for v in taken if mixed and bool((self.remainders[v] > 0).any())]
        means = {v: self.means[v] for v in others} | {number: image.mean}
        variances = {v: self.variance(v) for v in others} | {number: image.variance}
        sources = {v: self.factors[v] for v in dict.fromkeys((*others, *taken))}
        roots = {v: _root(self.remainders[v]) for v in shared}
        expansion = Expansion(sources, roots, tuple(others), number, tuple(inputs), image.rows)
        if shared:
            self._compress(expansion, image.linear, means, variances)
        else:
            self.means, self.factors = means, expansion.image(sources)
            self._set_remainders(variances)

    def _compress(
        self, expansion: Expansion, linear: Tensor | None, means: Values, variances: Values
    ) -> None:
        basis = expansion.basis(self.columns, self._generator)
        self.means, self.factors = means, expansion.apply(basis)
        self.dropped = self.dropped + expansion.dropped(basis, linear, self.factors, self._generator)
        self._set_remainders(variances)

    def _set_remainders(self, variances: Values) -> None:
        """Set each remainder to the difference between the variance and that of the factor."""
        self.remainders = {v: _remainder(variances[v], factor) for v, factor in self.factors.items()}


def _remainder(variance: Tensor, factor: Tensor) -> Tensor:
    rest = variance - factor.square().sum(1)
    return torch.where(rest > _ROUNDING * variance, rest, 0.0)


def _root(variance: Tensor) -> Tensor:
    """Square root with gradient 0 instead of infinity at 0."""
    positive = variance > 0
    return torch.where(positive, torch.where(positive, variance, 1.0).sqrt(), 0.0)
