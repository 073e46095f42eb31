"""The package pytagi (cuTAGI): the forward pass of tractable approximate Gaussian inference."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from sdp_bench.bench.peers.base import Peer
from sdp_ref.errors import NoFormulaError, UnsupportedError
from sdp_ref.graph.trace import Step
from sdp_ref.laws import DiagonalGaussian, Law, unchecked
from sdp_ref.rules.base import as_marginal
from sdp_ref.rules.layerwise import IDENTITIES, LayerwiseRule

_SINGLE = "it computes in float32"
_FLOOR = f"means and variances of a MixtureReLU are 1e-6 at least, and {_SINGLE}"


@dataclass(frozen=True)
class PyTAGI(Peer, LayerwiseRule):
    """Marginal linearisation by pytagi: its layers Linear, ReLU, Sigmoid, Tanh and Softplus.

    With weights of variance zero, an activation is linearised at the mean of its input and correlations are
    dropped. Computes in float32 on the CPU, whatever the net's precision. Supports chains of these layers on
    one-dimensional inputs with a variance.

    Goulet, Nguyen and Amiri (2021), "Tractable approximate Gaussian inference for Bayesian neural networks".
    """

    name: ClassVar[str] = "pytagi"
    package: ClassVar[str] = "pytagi"
    module: ClassVar[str] = "pytagi.nn"
    tested: ClassVar[str] = "0.2.1"
    method: ClassVar[str] = "linearised"
    marginal: ClassVar[bool] = True
    differentiable: ClassVar[bool] = False
    known_faults: ClassVar[Mapping[str, str]] = {"zero-variance": _SINGLE}
    layers: ClassVar[dict[type[nn.Module], str]] = {
        each: each.__name__ for each in (nn.ReLU, nn.Sigmoid, nn.Tanh, nn.Softplus)
    }
    """The package's activations for torch's."""

    def start(self, x: Law) -> Law:
        law = as_marginal(self.name, x)
        with self.at():
            if not isinstance(law, DiagonalGaussian):
                raise NoFormulaError(f"{type(x).__name__} input")
            if law.mean.ndim != 2:
                raise NoFormulaError(f"inputs of shape {tuple(law.mean.shape[1:])}")
        return law

    def walk(self, steps: Sequence[Step], operations: Sequence[Any]) -> Callable[[Law], Law]:
        self._model(steps, operations)  # raises for layers that the package lacks
        # The package writes past the end of a buffer if a model gets a larger batch than before.
        model_for = functools.lru_cache(maxsize=1)(lambda _batch: self._model(steps, operations))

        def propagate(x: Law) -> Law:
            law = self.start(x)
            model = model_for(law.batch)
            model.set_threads(torch.get_num_threads())
            mean, variance = model(_plain(law.location), _plain(law.variance))
            outputs = (torch.from_numpy(np.array(each)).reshape(law.batch, -1) for each in (mean, variance))
            return unchecked(DiagonalGaussian, *outputs).to(law.location.device, law.location.dtype)

        return propagate

    def _model(self, steps: Sequence[Step], operations: Sequence[Any]) -> Any:
        """Build the net from the package's layers, with its weights."""
        layers, weights = list[Any](), dict[str, Any]()
        for place, (step, layer) in enumerate(zip(steps, operations, strict=True)):
            if step.inputs != (place,):
                raise UnsupportedError(self.name, "a net that is no chain of layers", step.path)
            if layer is None:
                continue
            if isinstance(step.module, nn.Linear):
                weights[f"Linear.{len(layers)}"] = _parameters(step.module)
            layers.append(layer)
        model = self.code().Sequential(*layers)
        model.preinit_layer()
        model.load_state_dict(weights)
        model.eval()
        return model


@dataclass(frozen=True)
class PyTAGIMixture(PyTAGI):
    """Marginal moment matching by pytagi: its layers Linear and MixtureReLU.

    Mean and variance of a ReLU under a Gaussian input, without correlations. MixtureSigmoid and MixtureTanh
    are not used because they approximate other, piecewise linear functions. Otherwise as `PyTAGI`.
    """

    name: ClassVar[str] = "pytagi_mixture"
    method: ClassVar[str] = "moment matching"
    claims: ClassVar[frozenset[str]] = frozenset({"marginal moments"})
    known_faults: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("marginal-moments", "scale", "small-noise", "zero-variance"), _FLOOR
    )
    layers: ClassVar[dict[type[nn.Module], str]] = {nn.ReLU: "MixtureReLU"}


@PyTAGI.prepares(nn.ReLU, nn.Sigmoid, nn.Tanh, nn.Softplus)
def _activation(rule: PyTAGI, module: nn.Module) -> Any:
    kind = type(module)
    if kind not in rule.layers:
        raise NoFormulaError(kind.__name__)
    if isinstance(module, nn.Softplus) and module.beta != 1:
        raise NoFormulaError(f"Softplus with beta={module.beta}")
    return getattr(rule.code(), rule.layers[kind])()


@PyTAGI.prepares(nn.Linear)
def _linear(rule: PyTAGI, module: nn.Linear) -> Any:
    return rule.code().Linear(module.in_features, module.out_features, module.bias is not None)


@PyTAGI.prepares(nn.Flatten, *IDENTITIES)
def _nothing(_rule: PyTAGI, _module: nn.Module) -> None:
    """Return None: Flatten has no effect on one-dimensional rows."""


def _parameters(module: nn.Linear) -> tuple[list[float], ...]:
    """Return weights and biases in the package's order: means and variances, row by row."""
    weight = _plain(module.weight).tolist()
    bias = [] if module.bias is None else _plain(module.bias).tolist()
    return weight, [0.0] * len(weight), bias, [0.0] * len(bias)


def _plain(values: Tensor) -> np.ndarray:
    return values.detach().cpu().float().flatten().contiguous().numpy()  # the package ignores strides
