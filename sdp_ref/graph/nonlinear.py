"""Ops that read several components: attention, norms, max-pooling, softmax, and roots of sums of squares."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from sdp_ref.activations.base import Activation
from sdp_ref.activations.direction import Direction
from sdp_ref.activations.logistic import Sigmoid
from sdp_ref.errors import NoFormulaError, NoLinearPartError
from sdp_ref.graph.affine import cast


class Attention(nn.Module):
    """softmax(q k^T scale + mask) v, as ``F.scaled_dot_product_attention`` without dropout.

    The mask is boolean or added to the scores, without a batch dimension or with a first dimension of 1.
    """

    def __init__(
        self, is_causal: bool = False, scale: float | None = None, mask: Tensor | None = None
    ) -> None:
        super().__init__()
        self.is_causal, self.scale, self.mask = is_causal, scale, mask

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self._check(q, k, v)
        return self.weights(q, k) @ v

    def factor(self, q: Tensor) -> float:
        return 1 / math.sqrt(q.shape[-1]) if self.scale is None else self.scale

    def weights(self, q: Tensor, k: Tensor) -> Tensor:
        """Weight of each key for each query, (N, *heads, queries, keys); 0 for queries that see no key."""
        scores = q @ k.mT * self.factor(q)
        mask = self._mask(scores)
        if mask is None:
            return scores.softmax(-1)
        scores = scores + mask
        blind = torch.isneginf(mask).all(-1, keepdim=True)
        return scores.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0)

    def _mask(self, scores: Tensor) -> Tensor | None:
        """Additive mask of the scores."""
        mask = self.mask
        if self.is_causal:
            if mask is not None:
                raise NoLinearPartError("attention that is causal and has a mask")
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        if mask is None:
            return None
        mask = mask.to(scores.device)
        if mask.dtype == torch.bool:
            return torch.zeros(mask.shape).to(scores).masked_fill(~mask, -math.inf)
        return mask.to(scores)

    @staticmethod
    def _check(q: Tensor, k: Tensor, v: Tensor) -> None:
        if not (q.ndim == k.ndim == v.ndim >= 3) or not (q.shape[1:-2] == k.shape[1:-2] == v.shape[1:-2]):
            shapes = " and ".join(str(tuple(value.shape[1:])) for value in (q, k, v))
            raise NoLinearPartError(f"attention over values of shapes {shapes}")


_SERIES = 300.0  # shape above which log gamma cancels and the series is accurate to all digits


def root_moments(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of the square root of a gamma variable with this mean and variance.

    A sum of squares of Gaussian variables is approximated by a gamma variable (Satterthwaite 1946), which is
    exact if they are independent and centred with equal variances. With the shape k = mean^2 / variance, the
    root has the mean sqrt(mean / k) Gamma(k + 1/2) / Gamma(k), and the mean of its square is exact.
    """
    wide, spread = mean.double(), variance.double()
    point = (spread <= 0) | (wide <= 0)
    m, v = torch.where(point, 1.0, wide), torch.where(point, 1.0, spread)
    k = m * (m / v)
    small = k.clamp(max=_SERIES)
    ratio = torch.exp(torch.lgamma(small + 0.5) - torch.lgamma(small)) / small.sqrt()
    t = 1 / k.clamp(min=_SERIES)
    # Tricomi and Erdelyi (1951): Gamma(k + 1/2) / (Gamma(k) sqrt(k)), and one minus its square
    series = 1 - t / 8 + t**2 / 128 + 5 * t**3 / 1024
    rest = t / 4 - t**2 / 32 - t**3 / 128
    far = k > _SERIES
    share = torch.where(far, rest, 1 - ratio.square())
    root = wide.clamp(min=0)
    root = torch.where(point, root.clamp(min=torch.finfo(torch.float64).tiny), root).sqrt()
    root_mean = torch.where(point, root, m.sqrt() * torch.where(far, series, ratio))
    return root_mean.to(mean.dtype), torch.where(point, 0.0, m * share).to(mean.dtype)


_INSTANCE = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
NORMS = (nn.LayerNorm, nn.GroupNorm, *_INSTANCE, nn.RMSNorm)


@dataclass(frozen=True)
class Norm:
    """Groups of components, each divided by the root of its mean square: (x - mean) / sqrt(square + eps).

    `groups` is the number of consecutive groups per row; if `centred`, the mean of each is subtracted first.
    `gain` and `shift` are applied to the result, broadcast over an event.
    """

    groups: int
    centred: bool
    eps: float
    gain: Tensor | None = None
    shift: Tensor | None = None

    @classmethod
    def of(cls, module: nn.Module, x: Tensor) -> Norm:
        """Form of a module for inputs like `x`, (N, *event)."""
        m: Any = module
        kind = type(module).__name__
        gain, shift = cast(m.weight, x), cast(getattr(m, "bias", None), x)
        if isinstance(module, nn.LayerNorm | nn.RMSNorm):
            dims = len(m.normalized_shape)
            eps = torch.finfo(x.dtype).eps if m.eps is None else m.eps
            groups = x[0].numel() // max(1, x[0].flatten(-dims).shape[-1])
            return cls(groups, isinstance(module, nn.LayerNorm), eps, gain, shift)
        channels = m.num_channels if isinstance(module, nn.GroupNorm) else m.num_features
        if x.ndim < 2 or (isinstance(module, _INSTANCE) and x.ndim != int(kind[-2]) + 2):
            raise NoLinearPartError(f"{kind} on an event of shape {tuple(x.shape[1:])}")
        if isinstance(module, nn.GroupNorm):
            groups = m.num_groups
        elif m.track_running_stats:
            # running it in training mode would change its statistics
            refused = NoLinearPartError if m.training else NoFormulaError
            raise refused(f"{kind} with running statistics (a BatchNorm does the same)")
        else:
            groups = x.shape[1]
        shape = channels, *[1] * (x.ndim - 2)
        parts = (None if each is None else each.reshape(shape) for each in (gain, shift))
        return cls(groups, True, m.eps, *parts)

    def grouped(self, x: Tensor) -> Tensor:
        """Components by group, (..., groups, n); of `x` (N, *event) or (N, R, n)."""
        return x.reshape(*x.shape[:1], self.groups, -1)

    def scores(self, x: Tensor, extra: Tensor | float = 0.0) -> tuple[Tensor, Tensor]:
        """Normalised components before gain and shift, and the reciprocal of the divisor."""
        rows = self.grouped(x)
        if self.centred:
            rows = rows - rows.mean(-1, keepdim=True)
        inverse = (rows.square().mean(-1, keepdim=True) + self.eps + extra).rsqrt()
        return rows * inverse, inverse

    def finished(self, scores: Tensor, like: Tensor) -> Tensor:
        """Apply gain and shift to scores, in the shape of `like`."""
        y = scores.reshape(like.shape)
        y = y if self.gain is None else y * self.gain
        return y if self.shift is None else y + self.shift


@dataclass(frozen=True)
class ScalarGroups:
    """An op on groups of components, each of which depends on the components by one number only.

    Component i of a group becomes shift_i + gain_i f(t), where f is an `activation` and t is the sum of the
    components, weighted by `weights` (n,). `places` (groups, n) are indices of flattened components; `gain`
    and `shift` (groups, n) are tensors.
    """

    activation: Activation
    places: Tensor
    weights: Tensor
    gain: Tensor
    shift: Tensor

    @classmethod
    def of(cls, module: nn.Module, x: Tensor) -> ScalarGroups | None:
        """Form of a norm or softmax for inputs like `x`, (N, *event), if it has one.

        A centred norm over two components depends on half of their difference, a norm over one component
        that is not centred on this component, and a softmax of two classes on the difference of the scores.
        """
        places = torch.arange(x[0].numel(), device=x.device).reshape(x.shape[1:])
        if isinstance(module, nn.Softmax):
            dim = softmax_dim(module, x) % x.ndim
            if x.shape[dim] != 2:
                return None
            places = places.movedim(dim - 1, -1).reshape(-1, 2)
            sign = torch.tensor([1.0, -1.0], dtype=x.dtype, device=x.device)
            # softmax(a, b) = (s, 1 - s), s the sigmoid of a - b
            first = torch.tensor([0.0, 1.0], dtype=x.dtype, device=x.device)
            return cls(Sigmoid(), places, sign, sign.expand(places.shape), first.expand(places.shape))
        form = Norm.of(module, x)
        places = places.reshape(form.groups, -1)
        n = places.shape[1]
        if n != (2 if form.centred else 1):
            return None
        sign = torch.tensor([1.0, -1.0] if form.centred else [1.0], dtype=x.dtype, device=x.device)
        ones = torch.ones_like(x[:1])
        scale = ones if form.gain is None else ones * form.gain
        shift = 0 * ones if form.shift is None else 0 * ones + form.shift
        gain = scale.reshape(places.shape) * sign
        return cls(Direction(form.eps), places, sign / n, gain, shift.reshape(places.shape))

    def numbers(self, x: Tensor) -> Tensor:
        """Weighted sums (..., groups) of flattened components (..., n)."""
        return (x[..., self.places] * self.weights).sum(-1)

    def spread(self, t: Tensor, gain: Tensor) -> Tensor:
        """Flattened components (..., n) that are `gain` times the number (..., groups) of their group."""
        flat = (t.unsqueeze(-1) * gain).flatten(-2)
        return flat[..., self.places.flatten().argsort()]

    def finished(self, t: Tensor) -> Tensor:
        """Flattened results (..., n) for values of f, (..., groups)."""
        return self.spread(t, self.gain) + self.spread(torch.ones_like(t), self.shift)


MAX_POOLS = (
    nn.MaxPool1d,
    nn.MaxPool2d,
    nn.MaxPool3d,
    nn.AdaptiveMaxPool1d,
    nn.AdaptiveMaxPool2d,
    nn.AdaptiveMaxPool3d,
)


def max_pool(module: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Maxima over windows, and their indices within a channel.

    The paper's section on MaxPool maps (mu, sigma) to (max mu, sigma at the arg max): the linearisation at
    the location.
    """
    kind = type_before_parametrizations(module).__name__
    if x.ndim != int(kind[-2]) + 2:
        raise NoFormulaError(f"{kind} on an event of shape {tuple(x.shape[1:])}")
    pool: Any = copy.copy(module)
    pool.return_indices = True
    maxima, index = pool(x)
    return maxima, index


# E logistic(d) under noise of variance V is approximately logistic(d / sqrt(1 + pi V / 8))
_LAMBDA = math.pi / 8
_LOWEST = -1e30  # replaces scores of -inf, whose differences would be NaN


def softmax_dim(module: nn.Softmax | nn.LogSoftmax, x: Tensor) -> int:
    dim = module.dim
    if dim is None or dim % x.ndim == 0:
        text = "without a dimension" if dim is None else "over the batch dimension"
        raise NoLinearPartError(f"a {type(module).__name__} {text}")
    return dim


def mean_field(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Approximate mean of a softmax of Gaussian scores, and its derivative by the means of the scores.

    p_i is proportional to 1 / sum_j exp((m_j - m_i) / sqrt(1 + pi V_ij / 8)), V_ij the variance of X_i - X_j
    (Lu, Ie and Sha 2020, "Mean-field approximation to Gaussian-softmax integral", with all pairs). By Stein's
    lemma the derivative of the mean is the mean of the Jacobian.

    `mean` has shape (..., n), and `variance`, that of the differences, (..., n, n); its diagonal has no
    effect. Returns p, shape (..., n), and dp_i / dm_j, shape (..., n, n).
    """
    slope = (1 + _LAMBDA * variance).rsqrt()
    mean = mean.clamp(min=_LOWEST)
    shares = (slope * (mean.unsqueeze(-2) - mean.unsqueeze(-1))).softmax(-1)
    share = shares.diagonal(dim1=-2, dim2=-1)
    total = share.sum(-1, keepdim=True)
    p = share / total
    pulls = share.unsqueeze(-1) * shares * slope
    jacobian = torch.diag_embed(pulls.sum(-1)) - pulls  # derivative of `share`
    return p, (jacobian - p.unsqueeze(-1) * jacobian.sum(-2, keepdim=True)) / total.unsqueeze(-1)
