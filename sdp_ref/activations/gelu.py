"""GELU: x times the normal distribution function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from sdp_ref.activations.base import Activation, Call
from sdp_ref.activations.numerics.covariances import gelu_covariance
from sdp_ref.activations.numerics.normal_integrals import cdf, pdf
from sdp_ref.activations.numerics.quadrature import smooth_mean_variance
from sdp_ref.errors import NoFormulaError


@dataclass(frozen=True)
class GELU(Activation):
    """x Phi(x), the exact (erf) form."""

    name: ClassVar[str] = "gelu"
    label: ClassVar[str] = "GELU"
    rank: ClassVar[int] = 50
    module: ClassVar[type[nn.Module]] = nn.GELU
    calls: ClassVar[tuple[Call, ...]] = (F.gelu,)
    ops: ClassVar[tuple[str, ...]] = ("gelu",)
    value_seconds: ClassVar[float] = 1e-9
    layer_seconds: ClassVar[float] = 0.005

    @classmethod
    def of(cls, module: nn.Module) -> GELU:
        """See :class:`Activation`; the approximation by tanh is another function."""
        if module.approximate != "none":
            raise NoFormulaError(f"GELU(approximate={module.approximate!r})")
        return cls()

    def function(self, x: Tensor) -> Tensor:
        """f(x), elementwise."""
        return x * cdf(x)

    def derivative(self, x: Tensor) -> Tensor:
        """f'(x), elementwise."""
        return cdf(x) + x * pdf(x)

    def _mean_variance(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        tau = (1 + variance).sqrt()
        t = mean / tau
        m = mean * cdf(t) + variance / tau * pdf(t)
        _, v = smooth_mean_variance(
            self.function, self.derivative, lambda x: (2 - x * x) * pdf(x), mean, variance
        )
        return m, v

    def _mean_derivative(self, mean: Tensor, variance: Tensor) -> Tensor:
        square = 1 + variance
        t = mean / square.sqrt()
        return cdf(t) + t * pdf(t) / square

    def _covariance(self, mean: Tensor, variance: Tensor, covariance: Tensor, _tolerance: float) -> Tensor:
        return gelu_covariance(mean, variance, covariance)
