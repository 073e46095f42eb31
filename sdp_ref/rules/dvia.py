"""DVIA: the deterministic approximation to full moment matching of ReLU nets (Wu et al. 2019)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from sdp_ref.activations.numerics.normal import cdf
from sdp_ref.activations.relu import ReLU
from sdp_ref.laws import Gaussian, Law, joined, unchecked
from sdp_ref.rules.base import as_gaussian
from sdp_ref.rules.full import FullCovarianceRule
from sdp_ref.rules.joint import elementwise_input


@dataclass(frozen=True)
class DVIA(FullCovarianceRule):
    """Deterministic variational inference approximation, for ReLU only.

    Its covariance is an approximation with known faults, which are kept: the variance is 12 % too
    small at mean/std = -2 and 82 % at -4, and the matrix can be slightly indefinite. It is returned
    as it is; :meth:`Gaussian.factor` clips it for sampling. A hidden unit whose variance it makes
    negative is treated as a point mass. With residual branches, the covariance with values that are
    read later follows from Stein's lemma. Max-pooling takes the component of the largest mean.

    Parameters
    ----------
    means : str
        Means m at which a ReLU evaluates its covariance formula, which depends on m_i / std_i, m_j / std_j
        and the correlation:

        - "propagated": the means of the law at the ReLU, as published by Wu et al. (2019);
        - "regular": the pre-activations of the regular pass, that is, of the net at the location of the
          input. For affine ops, ReLU and max-pooling the location is f(x), as in SDP; other
          ops (norms, softmax, products) move it as in the published rule;
        - "regular_covariance": the same covariances; the location is the propagated mean. It takes twice
          the memory, since each input is walked with both means.

        The last two reproduce the DVIA column of Petersen et al. (2024), Table 28, which "propagated"
        does not.
    max_bytes : int
        See :class:`~sdp_ref.rules.layerwise.SizedRule`.
    """

    name: ClassVar[str] = "dvia"
    title: ClassVar[str] = "DVIA"
    colour: ClassVar[str] = "#d55e00"
    rank: ClassVar[int] = 20
    temporaries: ClassVar[int] = 33
    means: str = "propagated"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_one_of("means", ("propagated", "regular", "regular_covariance"))

    @property
    def known_faults(self) -> Mapping[str, str]:  # type: ignore[override]  # they depend on `means`
        approximated = (
            "the variance is approximated (Wu et al. 2019) and exact for centred units only: "
            "12 % too small at mean/std = -2 and 82 % at -4"
        )
        at_regular = "the variance approximates that of relu(X), but the mean is relu(E[X])"
        return {
            "diagonal": at_regular if self.means == "regular" else approximated,
            "positive-semidefinite": "covariances are approximated pair by pair (Wu et al. 2019): "
            "the matrix can be slightly indefinite",
        }

    def start(self, x: Law) -> Law:
        """With two locations, propagate every input twice in one batch."""
        law = super().start(x)
        return joined([law, law]) if self.means == "regular_covariance" else law

    def finish(self, law: Law, x: Law) -> Law:
        if self.means == "regular_covariance":
            full = as_gaussian(self.name, law)
            law = unchecked(Gaussian, full.mean[x.batch :], full.covariance[: x.batch])
        return super().finish(law, x)


@DVIA.handles(nn.ReLU)
def _relu(rule: DVIA, _module: nn.Module, law: Gaussian) -> Law:
    mean, covariance = elementwise_input(law)
    if rule.means == "propagated":
        mean, covariance = dvia_relu(mean, covariance)
    elif rule.means == "regular":
        _, covariance = dvia_relu(mean, covariance)
        mean = mean.relu()
    # means of the regular pass in the first half of the batch, propagated ones in the second
    else:
        regular, propagated = mean.chunk(2)
        shared = covariance[: len(regular)]
        variance = shared.diagonal(dim1=-2, dim2=-1)
        mean = torch.cat([regular.relu(), ReLU().mean_variance(propagated, variance)[0]])
        _, shared = dvia_relu(regular, shared)
        covariance = torch.cat([shared, shared])
    return unchecked(Gaussian, mean.reshape(law.mean.shape), covariance)


# Above this threshold, arcsin p - p loses up to three digits; below, it would lose more, and nine terms are
# exact.
_SERIES_BELOW = 0.1
# (arcsin p - p) / p^3 = sum_n coefficient_n p^(2n)
_SERIES = [math.comb(2 * n, n) / (4**n * (2 * n + 1)) for n in range(1, 10)]


class _Arc(torch.autograd.Function):
    """a(p) = arcsin p - p / (1 + r), r = sqrt(1 - p^2); a' = 1 / (1 + r), where autograd has inf - inf."""

    @staticmethod
    def forward(ctx: Any, p: Tensor, r: Tensor) -> Tensor:
        ctx.save_for_backward(r)
        return torch.asin(p) - p / (1 + r)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (r,) = ctx.saved_tensors
        return gradients[0] / (1 + r), None


def dvia_relu(mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and approximate covariance of ReLU(X), X ~ N(mean, covariance).

    With h, k the means in standard deviations, rho the correlation, r = sqrt(1 - rho^2) and a = arcsin rho -
    rho / (1 + r), a covariance c becomes

        c [Phi(h) Phi(k) + a / (2 pi) exp(q)],
        q = -(h^2 + k^2) rho / (2 a (1 + r)) + h k (arcsin rho - rho) / (a rho).

    It is written without absolute epsilons, so that scaling the input scales the output, and uses the limits
    at rho = 0 and abs(rho) = 1. The result may be slightly indefinite. The gradient omits the divergent part
    of the derivative by rho (abs(rho) = 1 between units with different means).
    """
    m, c = mean.double(), covariance.double()
    c = 0.5 * (c + c.mT)
    variance = c.diagonal(dim1=-2, dim2=-1)
    out_mean, _ = ReLU().mean_variance(m, variance)

    point = variance == 0
    s = torch.where(point, 1.0, variance).sqrt()
    h = m / s
    rho = c / s[:, :, None] / s[:, None, :]
    eye = torch.eye(m.shape[-1], dtype=torch.bool, device=m.device)
    rho = torch.where(eye, 1.0, rho.clamp(-1, 1))
    factor = _factor(*torch.broadcast_tensors(h[:, :, None], h[:, None, :], rho))
    # A point mass keeps a row of 0; away from the kink, the formula would pass its variance with slope
    # f'(m)^2.
    bare = torch.where(eye & point[:, :, None], (m > 0).double()[:, :, None], factor)
    blank = (point[:, :, None] | point[:, None, :]) & ~eye
    out = c * torch.where(blank, 0.0, bare)
    return out_mean.to(mean.dtype), out.to(mean.dtype)


def _factor(h: Tensor, k: Tensor, rho: Tensor) -> Tensor:
    sign = torch.where(rho < 0, -1.0, 1.0)
    p, k_signed = rho * sign, k * sign
    inside = p < 1
    r = torch.where(inside, (1 - torch.where(inside, p, 0.0)) * (1 + p), 0.0)
    r = torch.where(inside, torch.where(inside, r, 1.0).sqrt(), 0.0)

    small = p < _SERIES_BELOW
    q = torch.where(small, p, 0.0) ** 2
    excess = torch.zeros_like(q)  # (arcsin p - p) / p^3
    for coefficient in reversed(_SERIES):
        excess = excess * q + coefficient
    p_large = torch.where(small, 0.5, p)
    r_large = torch.where(small, math.sqrt(0.75), r)
    arc_large = _Arc.apply(p_large, r_large) / p_large
    # a / p = 1 + (arcsin p - p) / p - 1 / (1 + r)
    arc = torch.where(small, excess * q + r / (1 + r), arc_large)
    # coefficient of h k after splitting h^2 + k^2 into (h - k)^2 + 2 h k, so that 1 / r' cancels at p = 1
    both = torch.where(
        small,
        (p * excess - 1 / (1 + r)) / arc,
        1 / p_large - (p_large + r_large) / ((1 + r_large) * arc_large * p_large),
    )
    exponent = -((h - k_signed) ** 2) / (2 * arc * (1 + r)) + h * k_signed * both
    return cdf(h) * cdf(k) + rho * arc / (2 * math.pi) * torch.exp(exponent)
