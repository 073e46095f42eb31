"""Functions without moments under a normal law, whose support includes their singularities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from sdp_ref.activations.base import Activation, module_of
from sdp_ref.errors import NoFormulaError

Sqrt = module_of(__name__, "Sqrt", torch.sqrt)
Rsqrt = module_of(__name__, "Rsqrt", torch.rsqrt)
Reciprocal = module_of(__name__, "Reciprocal", torch.reciprocal)
Log = module_of(__name__, "Log", torch.log)


@dataclass(frozen=True)
class _Momentless(Activation):
    """A function that is undefined or not integrable under every normal law except point masses."""

    moments: ClassVar[bool] = False

    def _mean_variance(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        point = variance == 0
        if not bool(point.all()):
            raise NoFormulaError(f"moments of {self.label}: a normal law has none through it")
        return self.function(mean), torch.zeros_like(variance)

    def _mean_derivative(self, mean: Tensor, variance: Tensor) -> Tensor:
        self._mean_variance(mean, variance)
        return self.derivative(mean)

    def _covariance(self, mean: Tensor, variance: Tensor, covariance: Tensor, _tolerance: float) -> Tensor:
        self._mean_variance(mean, variance)
        return torch.zeros_like(covariance)


@dataclass(frozen=True)
class SquareRoot(_Momentless):
    """sqrt(x), elementwise; NaN for negative x."""

    name: ClassVar[str] = "sqrt"
    label: ClassVar[str] = "sqrt"
    module: ClassVar[type[nn.Module]] = Sqrt

    def derivative(self, x: Tensor) -> Tensor:
        return 0.5 * x.rsqrt()


@dataclass(frozen=True)
class InverseSquareRoot(_Momentless):
    """1 / sqrt(x), elementwise."""

    name: ClassVar[str] = "rsqrt"
    label: ClassVar[str] = "rsqrt"
    module: ClassVar[type[nn.Module]] = Rsqrt

    def derivative(self, x: Tensor) -> Tensor:
        return -0.5 * x.rsqrt() / x


@dataclass(frozen=True)
class Inverse(_Momentless):
    """1 / x, elementwise."""

    name: ClassVar[str] = "reciprocal"
    label: ClassVar[str] = "reciprocal"
    module: ClassVar[type[nn.Module]] = Reciprocal

    def derivative(self, x: Tensor) -> Tensor:
        return -x.reciprocal().square()


@dataclass(frozen=True)
class Logarithm(_Momentless):
    """log(x), elementwise."""

    name: ClassVar[str] = "log"
    label: ClassVar[str] = "log"
    module: ClassVar[type[nn.Module]] = Log

    def derivative(self, x: Tensor) -> Tensor:
        return x.reciprocal()
