"""Stable distribution propagation: the net linearised at the location.

Petersen et al. (2024), "Uncertainty Quantification via Stable Distribution Propagation",
eqs. 1-2 and the section on computing the scale parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from sdp_ref.errors import UnsupportedError
from sdp_ref.graph.trace import Net
from sdp_ref.jacobian.jacobian import MAX_BYTES, jacobian_of
from sdp_ref.laws import Cauchy, DiagonalGaussian, Gaussian, Law, SymmetricStable, joined, unchecked
from sdp_ref.laws.gaussian import AnyGaussian
from sdp_ref.laws.stable import stable_scale
from sdp_ref.rules.base import Rule, as_any_gaussian, check_outputs


@dataclass(frozen=True)
class SDP(Rule):
    """Stable distribution propagation: location f(x), scale by the Jacobian J of the whole net.

    A Gaussian input, or any other with a covariance Sigma, gives a :class:`Gaussian` with covariance
    J Sigma J^T. Cauchy and symmetric
    alpha-stable inputs give the marginal laws of J x, with scale (abs(J)^alpha gamma^alpha)^(1/alpha);
    correlations on the way are kept, only those between the outputs are not part of the result.

    Parameters
    ----------
    create_graph : bool
        Keep the graph of the Jacobian, so that the result is differentiable in the input law and
        in the net's weights. Without it the result carries no gradient at all.
    max_bytes : int
        Bound on the memory for derivatives, kept as far as one row and one output at a time allow:
        outputs and, without a graph, rows are taken in parts. What autograd keeps of one forward
        pass comes on top.
    """

    name: ClassVar[str] = "sdp"
    title: ClassVar[str] = "SDP"
    colour: ClassVar[str] = "#0072b2"
    rank: ClassVar[int] = 10
    create_graph: bool = False
    max_bytes: int = MAX_BYTES

    @property
    def parameters(self) -> dict[str, Any]:
        """None: neither graph nor memory bound changes the numbers."""
        return {}

    def prepare(self, net: Net) -> Callable[[Law], Law]:
        """See :class:`Rule`; the Jacobian depends on the input, so nothing is kept."""
        for path, module in net.named_modules() if isinstance(net, nn.Module) else ():
            coupled = isinstance(module, nn.modules.batchnorm._BatchNorm)
            if coupled and (module.training or module.running_mean is None):
                raise UnsupportedError(self.name, f"{type(module).__name__} with batch statistics", path)
            if module.training and _draws(module):
                raise UnsupportedError(self.name, f"{type(module).__name__} in training mode", path)

        def propagate(x: Law) -> Law:
            if not isinstance(x, Cauchy | SymmetricStable):
                x = as_any_gaussian(self.name, x)
            if self.create_graph:
                with self.at():
                    return _linearised(net, x, create_graph=True, max_bytes=self.max_bytes)
            with torch.no_grad(), self.at():
                rows = _rows_at_a_time(net, x.location, self.max_bytes)
                parts = [x[i : i + rows] for i in range(0, x.batch, rows)]
                laws = [
                    _linearised(net, part, create_graph=False, max_bytes=self.max_bytes) for part in parts
                ]
                return laws[0] if len(laws) == 1 else joined(laws)

        return propagate

    def linear_image(self, net: Net, location: Tensor) -> Callable[[Tensor], Tensor]:
        """The net linearised at one input: v -> f(x) + J (v - x).

        Parameters
        ----------
        net : nn.Module or function
        location : Tensor, shape (1, *event)
            x.

        Returns
        -------
        callable
            Of inputs (k, *event); gives (k, m).
        """
        outputs, jacobian = jacobian_of(net, location)
        centre, value, rows = location.flatten(1), outputs.flatten(1), jacobian[0].flatten(1).mT
        return lambda inputs: torch.addmm(value, inputs.flatten(1) - centre, rows)


def _draws(module: nn.Module) -> bool:
    """Whether a module's output is random in training mode."""
    if isinstance(module, nn.MultiheadAttention | nn.RNNBase):
        return float(module.dropout) > 0
    return isinstance(module, nn.modules.dropout._DropoutNd | nn.RReLU)


_MANY = 1000
"""Outputs that a net may have unasked: a batch that would fit with so many is not split."""


def _rows_at_a_time(net: Net, location: Tensor, max_bytes: int) -> int:
    """How many rows' Jacobians fit, twice, in the memory bound; at least one."""
    # Twice: the Jacobian, and its product with the noise.
    of_one_output = 2 * location[0].numel() * location.element_size()
    if len(location) == 1 or len(location) * _MANY * of_one_output <= max_bytes:
        return len(location)
    outputs = check_outputs(location[:1], net(location[:1].clone()))[0].numel()
    return max(1, min(len(location), max_bytes // max(1, outputs * of_one_output)))


def _linearised(
    net: Net, x: AnyGaussian | Cauchy | SymmetricStable, *, create_graph: bool, max_bytes: int
) -> Law:
    location, jacobian = jacobian_of(
        lambda v: check_outputs(x.location, net(v)),
        x.location,
        create_graph=create_graph,
        max_bytes=max_bytes,
    )
    jacobian, dtype = jacobian.flatten(2), location.dtype
    match x:
        case Gaussian():
            covariance = _in_double(_quadratic, jacobian, x.covariance, create_graph)
        case DiagonalGaussian():
            covariance = _in_double(_weighted, jacobian, x.variance.flatten(1), create_graph)
        case Cauchy():
            scale = _in_double(_absolute, jacobian, x.scale.flatten(1), create_graph)
            return unchecked(Cauchy, location, scale.reshape(location.shape).to(dtype))
        case _:
            stable = partial(stable_scale, alpha=x.alpha)
            scale = _in_double(stable, jacobian, x.scale.flatten(1), create_graph)
            return unchecked(SymmetricStable, location, scale.reshape(location.shape).to(dtype), x.alpha)
    covariance = (covariance + covariance.mT) / 2  # a product of three matrices is symmetric up to rounding
    return unchecked(Gaussian, location, covariance.to(dtype))


def _quadratic(jacobian: Tensor, covariance: Tensor) -> Tensor:
    return jacobian @ covariance @ jacobian.mT


def _weighted(jacobian: Tensor, variance: Tensor) -> Tensor:
    return (jacobian * variance.unsqueeze(1)) @ jacobian.mT


def _absolute(jacobian: Tensor, scale: Tensor) -> Tensor:
    return jacobian.abs() @ scale.unsqueeze(-1)


_PART = 2**22  # bytes of a Jacobian in float64 that stay in a CPU's cache


def _in_double(
    function: Callable[[Tensor, Tensor], Tensor], jacobian: Tensor, noise: Tensor, create_graph: bool
) -> Tensor:
    """Apply `function` in float64 to parts of the batch that are not long in memory.

    Thin directions of the output have variances that float32 sums of products would lose.

    Parameters
    ----------
    function : callable
        Of a Jacobian (b, m, n) and the noise of its rows.
    jacobian : Tensor, shape (B, m, n)
    noise : Tensor, shape (B, ...)
        Covariances, variances or scales of the input.
    create_graph : bool
        Whether the result keeps its graph: it is then made in one part.

    Returns
    -------
    Tensor, shape (B, ...), float64
    """
    rows = max(1, _PART // max(1, 8 * jacobian[0].numel()))
    if create_graph or rows >= len(jacobian):
        return function(jacobian.double(), noise.double())
    parts = zip(jacobian.split(rows), noise.split(rows), strict=True)
    return torch.cat([function(j.double(), v.double()) for j, v in parts])
