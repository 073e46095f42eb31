"""The package distprop, by the authors of stable distribution propagation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sdp_ref.graph.trace import Net
from sdp_ref.laws import DiagonalGaussian, Gaussian, Law, unchecked
from sdp_ref.rules.base import as_any_gaussian, check_outputs

from .base import Peer


@dataclass(frozen=True)
class Distprop(Peer):
    """SDP by distprop: f(x), J J^T s^2, with the Jacobian J by autograd, one output at a time.

    The package takes one standard deviation s for all inputs. The adapter therefore puts the affine map
    z -> x + F z in front of the net, F F^T the covariance of the input, and passes z = 0 and s = 1, which
    gives J F F^T J^T. It supports every net with outputs (B, m) that autograd can differentiate, and inputs
    with a covariance.

    Petersen et al. (2024), "Uncertainty Quantification via Stable Distribution Propagation", eqs. 1-2.
    """

    name: ClassVar[str] = "distprop"
    package: ClassVar[str] = "distprop"
    module: ClassVar[str] = "distprop"
    tested: ClassVar[str] = "0.1.0"
    method: ClassVar[str] = "SDP"
    differentiable: ClassVar[bool] = False

    def prepare(self, net: Net) -> Callable[[Law], Law]:
        package, outputs = self.code(), list[int]()

        def propagate(x: Law) -> Law:
            law = as_any_gaussian(self.name, x)
            spread = _spread(law)
            if not outputs:  # the package needs the number of outputs
                with torch.no_grad():
                    outputs.append(check_outputs(law.location, net(law.location)).shape[1])
            module = package.SDP(
                lambda z: net(law.location + spread(z)), 1.0, num_outputs=outputs[0], create_graph=False
            )
            with torch.enable_grad():
                mean, covariance = module(torch.zeros_like(law.location))
            return unchecked(Gaussian, mean.detach(), covariance.detach())

        return propagate


def _spread(law: Gaussian | DiagonalGaussian) -> Callable[[Tensor], Tensor]:
    """Return the linear map from standard normals to the covariance of a law."""
    if isinstance(law, DiagonalGaussian):
        deviation = law.variance.sqrt()
        return lambda z: deviation * z
    factor = law.factor().to(law.location.dtype)
    return lambda z: (factor @ z.flatten(1).unsqueeze(-1)).reshape(z.shape)
