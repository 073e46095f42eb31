"""The package torch-adf: assumed density filtering, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from sdp_bench.bench.peers.base import Peer
from sdp_ref.errors import NoFormulaError
from sdp_ref.laws import DiagonalGaussian, Gaussian, Law, unchecked
from sdp_ref.laws.gaussian import AnyGaussian
from sdp_ref.rules.base import as_gaussian, as_marginal
from sdp_ref.rules.layerwise import LayerwiseRule

_FLOOR = "1e-7 is added to the variance of a ReLU's input"


@dataclass(frozen=True)
class TorchADF(Peer, LayerwiseRule):
    """Moment matching of variances by torch-adf in mode "diag".

    Mean and variance of a ReLU under a Gaussian input, without correlations. The package adds 1e-7 to the
    input variance to avoid a division by zero. Supports chains of Linear, Conv1d to Conv3d with zero padding,
    ReLU and Flatten, and inputs with a variance.

    Gast and Roth (2018), "Lightweight Probabilistic Deep Networks".
    """

    name: ClassVar[str] = "torch_adf"
    package: ClassVar[str] = "torch-adf"
    module: ClassVar[str] = "torchadf.nn"
    tested: ClassVar[str] = "22.1.0"
    method: ClassVar[str] = "moment matching"
    mode: ClassVar[str] = "diag"
    marginal: ClassVar[bool] = True
    claims: ClassVar[frozenset[str]] = frozenset({"marginal moments"})
    known_faults: ClassVar[Mapping[str, str]] = {
        "marginal-moments": _FLOOR,
        "scale": _FLOOR,
        "zero-variance": _FLOOR,
    }

    def start(self, x: Law) -> Law:
        law = as_marginal(self.name, x)
        with self.at():
            if not isinstance(law, DiagonalGaussian):
                raise NoFormulaError(f"{type(x).__name__} input")
        return law

    def through(self, layer: nn.Module, law: AnyGaussian) -> Law:
        """Return the law of the output of one of the package's layers."""
        mean, variance = layer(law.mean, law.variance)
        return unchecked(DiagonalGaussian, mean, variance)


@dataclass(frozen=True)
class TorchADFFull(TorchADF):
    """Full covariances by torch-adf in mode "full".

    The mean of a ReLU is exact. Its covariance is that of the input times the probabilities that either unit
    is positive. Layers and inputs are those of `TorchADF`.
    """

    name: ClassVar[str] = "torch_adf_full"
    method: ClassVar[str] = "full covariance"
    mode: ClassVar[str] = "full"
    marginal: ClassVar[bool] = False
    claims: ClassVar[frozenset[str]] = frozenset()
    known_faults: ClassVar[Mapping[str, str]] = {
        "diagonal": "the variance of a ReLU is the input's times the squared probability of being positive",
        "scale": _FLOOR,
        "zero-variance": _FLOOR,
    }

    def start(self, x: Law) -> Law:
        return as_gaussian(self.name, x)

    def through(self, layer: nn.Module, law: AnyGaussian) -> Law:
        """Propagate through a layer; the package's covariances have the event's dimensions twice."""
        event = law.mean.shape[1:]
        mean, covariance = layer(law.mean, law.covariance.reshape(-1, *event, *event))
        n = mean[0].numel()
        return unchecked(Gaussian, mean, covariance.reshape(-1, n, n))


_CONVOLUTION = (
    *("in_channels", "out_channels", "kernel_size"),
    *("stride", "padding", "dilation", "groups", "padding_mode"),
)
_ARGUMENTS: dict[type[nn.Module], tuple[str, ...]] = {
    nn.ReLU: (),
    nn.Linear: ("in_features", "out_features"),
    nn.Conv1d: _CONVOLUTION,
    nn.Conv2d: _CONVOLUTION,
    nn.Conv3d: _CONVOLUTION,
}
"""Constructor arguments of the package's layers, by the attribute of torch's layer."""


@TorchADF.prepares(*_ARGUMENTS)
def _layer(rule: TorchADF, module: nn.Module) -> Callable[[AnyGaussian], Law]:
    kind = type(module)
    if kind not in _ARGUMENTS:
        raise NoFormulaError(f"{kind.__name__}, whose weights are computed")
    if getattr(module, "padding_mode", "zeros") != "zeros":
        raise NoFormulaError(f"{kind.__name__} with padding_mode={module.padding_mode}")
    given: dict[str, Any] = {name: getattr(module, name) for name in _ARGUMENTS[kind]}
    with torch.device("meta"):  # skips allocating and drawing initial weights
        layer: nn.Module = getattr(rule.code(), kind.__name__)(**given, mode=rule.mode)
    for name, weight in module.named_parameters(recurse=False):
        setattr(layer, name, weight)
    if getattr(module, "bias", None) is None:
        layer.bias = None  # type: ignore[assignment]  # a parameter that is not there
    return lambda law: rule.through(layer, law)
