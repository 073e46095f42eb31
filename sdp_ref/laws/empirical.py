"""Laws given by samples, or by quantiles of each component."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sdp_ref.errors import UndefinedError
from sdp_ref.laws.base import (
    UNIFORM,
    Law,
    LawT,
    Push,
    Standard,
    check_shape,
    check_tensor,
    check_weights,
    chosen_by,
    unchecked,
)
from sdp_ref.lazy import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Empirical(Law):
    """Discrete laws on N points each: samples of an unknown law.

    Parameters
    ----------
    samples : Tensor, shape (B, N, *event)
    weights : Tensor, shape (B, N), optional
        Probabilities of the points; every row sums to one. Equal by default.
    """

    samples: Tensor
    weights: Tensor | None = None

    def __post_init__(self) -> None:
        shape = check_tensor("samples", self.samples).shape
        if len(shape) < 3 or not shape[0] or not shape[1]:
            raise ValueError(
                f"samples must have shape (B, N, *event) with B and N of at least 1, got {tuple(shape)}"
            )
        if self.weights is None:
            return
        weights = check_tensor("weights", self.weights, self.samples)
        check_shape("weights", weights, shape[:2])
        check_weights(weights)

    @property
    def described(self) -> str:
        return f"an empirical law of {self.samples.shape[1]} draws"

    @property
    def batch(self) -> int:
        return self.samples.shape[0]

    @property
    def event_shape(self) -> torch.Size:
        return self.samples.shape[2:]

    @property
    def draws(self) -> float:
        """Number of samples; for unequal weights the effective number (Kish) for the variance of the mean."""
        if self.weights is None:
            return float(self.samples.shape[1])
        return float((self.weights.sum(1).square() / self.weights.square().sum(1)).min())

    @property
    def mean(self) -> Tensor:
        if self.weights is None:
            return self.samples.mean(1)
        return (self._spread(self.weights) * self.samples).sum(1)

    @property
    def variance(self) -> Tensor:
        """Population variance of the points, shape (B, *event), without Bessel's correction."""
        squares = self._centred().square()
        variance = squares.mean(1) if self.weights is None else (self._spread(self.weights) * squares).sum(1)
        return variance.to(self.samples.dtype)

    @property
    def covariance(self) -> Tensor:
        centred = self._centred().flatten(2)
        if self.weights is None:
            return (centred.mT @ centred / centred.shape[1]).to(self.samples.dtype)
        return ((centred * self.weights.double().unsqueeze(2)).mT @ centred).to(self.samples.dtype)

    def _centred(self) -> Tensor:
        """Samples minus their mean, float64: far from 0, a float32 mean is off by more than they differ."""
        samples = self.samples.double()
        if self.weights is None:
            return samples - samples.mean(1, keepdim=True)
        return samples - (self._spread(self.weights.double()) * samples).sum(1, keepdim=True)

    @property
    def standard(self) -> Standard:
        return UNIFORM

    @property
    def variates(self) -> int:
        """One: it selects the point."""
        return 1

    def push(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Push:
        points = self.samples[0].detach().flatten(1).to(device, dtype)
        if self.weights is None:
            return lambda uniform: points[(uniform[:, 0].to(points.device) * len(points)).long()]
        choose = chosen_by(self.weights[0])
        return lambda uniform: points[choose(uniform[:, 0]).to(points.device)]

    def survival(self, value: Tensor) -> Tensor:
        points = self.samples.detach().double()
        weights = (
            self.weights if self.weights is not None else points.new_ones(points.shape[:2]) / points.shape[1]
        )
        flat = self.at_rows(value.double())
        spread_weights = self._spread(weights.double())
        survival = []
        for threshold in flat.reshape(-1, self.batch, *self.event_shape):
            exceeds = points > threshold.unsqueeze(1)
            survival.append((spread_weights * exceeds).sum(1))
        return torch.stack(survival).reshape(flat.shape)

    def class_probabilities(self) -> tuple[Tensor, Tensor]:
        """Frequencies of the classes among the points, without an error."""
        points = self.samples.detach().flatten(2)
        weights = self.weights
        if weights is None:
            weights = points.new_full(points.shape[:2], 1 / points.shape[1])
        classes = torch.nn.functional.one_hot(points.argmax(2), points.shape[2]).double()
        frequencies = (weights.detach().double().unsqueeze(2) * classes).sum(1).cpu()
        return frequencies, frequencies.new_zeros(self.batch)

    @classmethod
    def join(cls: type[LawT], laws: Sequence[LawT]) -> LawT:
        """Concatenate laws; those with fewer points repeat their last one with weight 0."""
        empirical = [law for law in laws if isinstance(law, Empirical)]
        most = max(law.samples.shape[1] for law in empirical)
        if all(law.weights is None and law.samples.shape[1] == most for law in empirical):
            return unchecked(cls, torch.cat([law.samples for law in empirical]), None)
        samples, weights = [], []
        for law in empirical:
            points = law.samples
            count = points.shape[1]
            given = points.new_full(points.shape[:2], 1 / count) if law.weights is None else law.weights
            last = points[:, -1:].expand(-1, most - count, *law.event_shape)
            samples.append(torch.cat([points, last], 1))
            weights.append(torch.nn.functional.pad(given, (0, most - count)))
        return unchecked(cls, torch.cat(samples), torch.cat(weights))

    def _spread(self, weights: Tensor) -> Tensor:
        return weights.reshape(weights.shape + (1,) * (self.samples.ndim - 2))


@dataclass(frozen=True, eq=False)
class Quantiles(Law):
    """Laws of each component by some of its quantiles, with linear interpolation between them.

    The law is cut off at the lowest and the highest level, with an atom at each end. It has no dependence
    between components, so metrics of joint laws reject it.

    Parameters
    ----------
    levels : Tensor, shape (L,)
        At least 2 increasing levels inside (0, 1).
    values : Tensor, shape (B, L, *event)
        Quantiles at these levels, not decreasing.
    """

    joint: ClassVar[bool] = False

    levels: Tensor
    values: Tensor

    def __post_init__(self) -> None:
        shape = check_tensor("values", self.values).shape
        levels = check_tensor("levels", self.levels, self.values)
        if levels.ndim != 1 or len(levels) < 2:
            raise ValueError(f"levels must have shape (L,) with L of at least 2, got {tuple(levels.shape)}")
        if bool((levels.diff() <= 0).any()) or not 0 < float(levels[0]) < float(levels[-1]) < 1:
            raise ValueError("levels must increase, inside (0, 1)")
        if len(shape) < 3 or shape[1] != len(levels) or not shape[0]:
            raise ValueError(f"values must have shape (B, {len(levels)}, *event), got {tuple(shape)}")
        if bool((self.values.diff(dim=1) < 0).any()):
            raise ValueError("values must not decrease with their level")

    @property
    def described(self) -> str:
        return "a law of quantiles of single outputs"

    @property
    def batch(self) -> int:
        return self.values.shape[0]

    @property
    def event_shape(self) -> torch.Size:
        return self.values.shape[2:]

    @property
    def mean(self) -> Tensor:
        return self._integral(self.values, self.values, 1)

    @property
    def variance(self) -> Tensor:
        centred = self.values - self.mean.unsqueeze(1)
        return self._integral(centred.square(), centred, 2)

    @property
    def standard(self) -> Standard:
        return UNIFORM

    def push(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Push:
        """Return the quantile functions, which map each component separately."""
        target = self.values.device if device is None else device
        kind = self.values.dtype if dtype is None else dtype
        levels = self.levels.detach().double().cpu()
        values = self.values[0].detach().flatten(1).double().cpu()

        def draws(uniform: Tensor) -> Tensor:
            at = uniform.double().cpu().clamp(levels[0], levels[-1])
            right = torch.searchsorted(levels, at).clamp(1, len(levels) - 1)
            share = (at - levels[right - 1]) / (levels[right] - levels[right - 1])
            low, high = values.gather(0, right - 1), values.gather(0, right)
            return (low + share * (high - low)).to(target, kind)

        return draws

    def survival(self, value: Tensor) -> Tensor:
        flat = self.at_rows(value.double())
        thresholds = flat.reshape(-1, self.batch * self.dimension).mT.contiguous()
        values = (
            self.values.detach().double().flatten(2).transpose(1, 2).reshape(len(thresholds), -1).contiguous()
        )
        levels = self.levels.double()
        right = torch.searchsorted(values, thresholds, right=True).clamp(1, len(levels) - 1)
        low, high = values.gather(1, right - 1), values.gather(1, right)
        share = ((thresholds - low) / torch.where(high > low, high - low, 1.0)).clamp(0, 1)
        below = levels[right - 1] + share * (levels[right] - levels[right - 1])
        below = torch.where(thresholds >= values[:, -1:], 1.0, below)
        below = torch.where(thresholds < values[:, :1], 0.0, below)
        return (1 - below).mT.reshape(flat.shape)

    def rows(self, index: slice) -> Quantiles:
        return unchecked(Quantiles, self.levels, self.values[index])

    @classmethod
    def join(cls: type[LawT], laws: Sequence[LawT]) -> LawT:
        """Concatenate laws with the same levels."""
        quantiles = [law for law in laws if isinstance(law, Quantiles)]
        levels = quantiles[0].levels
        if any(not torch.equal(law.levels, levels) for law in quantiles):
            raise UndefinedError("laws of quantiles at different levels do not make one batch")
        return unchecked(cls, levels, torch.cat([law.values for law in quantiles]))

    def _integral(self, ends: Tensor, values: Tensor, power: int) -> Tensor:
        """Integrate a power of the quantile function, with values `ends` at the levels."""
        shape = (-1,) + (1,) * (self.values.ndim - 2)
        inner = self.levels.diff().reshape(shape)
        low, high = values[:, :-1], values[:, 1:]
        middle = (low + high) / 2 if power == 1 else (low.square() + low * high + high.square()) / 3
        tails: Tensor = torch.as_tensor(self.levels[0] * ends[:, 0] + (1 - self.levels[-1]) * ends[:, -1])
        return tails + (inner * middle).sum(1)
