"""Stable distribution propagation: the net, or each of its layers, linearised at the location.

Petersen et al. (2024), "Uncertainty Quantification via Stable Distribution Propagation",
eqs. 1-2 and the section on computing the scale parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.overrides import TorchFunctionMode

from sdp_ref.distributions import Cauchy, DiagonalGaussian, Gaussian, Law, SymmetricStable, unchecked
from sdp_ref.graph import Add, Net, UnsupportedError
from sdp_ref.rules.base import (
    ELEMENTWISE,
    LayerwiseRule,
    Rule,
    activation_of,
    as_marginal,
    check_outputs,
)


@dataclass(frozen=True)
class SDP(Rule):
    """Stable distribution propagation: location f(x), scale by the Jacobian J of the whole net.

    A Gaussian input gives a :class:`Gaussian` with covariance J Sigma J^T. Cauchy and symmetric
    alpha-stable inputs give the marginal laws of J x, with scale (abs(J)^alpha gamma^alpha)^(1/alpha);
    correlations on the way are kept, only those between the outputs are not part of the result.

    Parameters
    ----------
    create_graph : bool
        Keep the graph of the Jacobian, so that the result is differentiable in the input law and
        in the net's weights. Without it the result carries no gradient at all.
    """

    name: ClassVar[str] = "sdp"
    create_graph: bool = False

    @property
    def parameters(self) -> dict[str, Any]:
        """None: the graph does not change the numbers."""
        return {}

    def prepare(self, net: Net) -> Callable[[Law], Law]:
        """See :class:`Rule`; the Jacobian depends on the input, so nothing is kept."""
        coupled, random = nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd
        for path, module in net.named_modules() if isinstance(net, nn.Module) else ():
            if isinstance(module, coupled) and (module.training or module.running_mean is None):
                raise UnsupportedError(self.name, f"{type(module).__name__} with batch statistics", path)
            if isinstance(module, random) and module.training:
                raise UnsupportedError(self.name, f"{type(module).__name__} in training mode", path)

        def propagate(x: Law) -> Law:
            if self.create_graph:
                return _linearised(net, x, create_graph=True)
            with torch.no_grad():
                return _linearised(net, x, create_graph=False)

        return propagate


def _linearised(net: Net, x: Law, *, create_graph: bool) -> Law:
    location, jacobian = jacobian_of(net, x.location, create_graph=create_graph)
    dtype = location.dtype
    # Thin directions of the output have variances that float32 sums of products would lose.
    jacobian = jacobian.flatten(2).double()
    match x:
        case Gaussian():
            covariance = jacobian @ x.covariance.double() @ jacobian.mT
        case DiagonalGaussian():
            covariance = (jacobian * x.variance.flatten(1).double().unsqueeze(1)) @ jacobian.mT
        case Cauchy():
            scale = jacobian.abs() @ x.scale.flatten(1).double().unsqueeze(-1)
            return unchecked(Cauchy, location, scale.reshape(location.shape).to(dtype))
        case SymmetricStable():
            scale = _stable_sum(jacobian, x.scale.flatten(1).double(), x.alpha)
            return unchecked(SymmetricStable, location, scale.reshape(location.shape).to(dtype), x.alpha)
        case _:
            raise UnsupportedError(SDP.name, f"{type(x).__name__} input")
    covariance = (covariance + covariance.mT) / 2
    return unchecked(Gaussian, location, covariance.to(dtype))


def jacobian_of(net: Net, x: Tensor, *, create_graph: bool = False) -> tuple[Tensor, Tensor]:
    """Value and Jacobian of a net whose rows do not see each other.

    Parameters
    ----------
    net : nn.Module or function
    x : Tensor, shape (B, *event)
    create_graph : bool
        Keep the result differentiable in `x` and the net's parameters.

    Returns
    -------
    value : Tensor, shape (B, *out)
    jacobian : Tensor, shape (B, m, *event)
        m is the number of components of one output.

    Notes
    -----
    At a kink the derivative is the one from the right, so that ReLU keeps the scale at location 0
    as the paper's eq. 2 does; torch's own convention there is 0. Costs min(m, n) passes, backward
    or forward ones.
    """
    point = x if create_graph and x.requires_grad else x.detach().requires_grad_()
    with torch.enable_grad(), _RightDerivative():
        # A copy, since an op may write over its input and autograd lets none write over a leaf.
        value = check_outputs(x, net(point.clone()))
        outputs, inputs = value[0].numel(), x[0].numel()
        if not value.requires_grad:
            jacobian = x.new_zeros(x.shape[0], outputs, *x.shape[1:])
        elif inputs < outputs:
            jacobian = _forward_jacobian(net, point, create_graph=create_graph)
        else:
            basis = torch.eye(outputs, dtype=value.dtype, device=value.device)
            basis = basis.reshape(outputs, 1, *value.shape[1:]).expand(outputs, *value.shape)
            (rows,) = torch.autograd.grad(
                value,
                point,
                basis,
                is_grads_batched=True,
                create_graph=create_graph,
                materialize_grads=True,
            )
            jacobian = rows.movedim(0, 1)
    return (value, jacobian) if create_graph else (value.detach(), jacobian.detach())


def _forward_jacobian(net: Net, x: Tensor, *, create_graph: bool) -> Tensor:
    n = x[0].numel()
    basis = torch.eye(n, dtype=x.dtype, device=x.device).reshape(n, 1, *x.shape[1:]).expand(n, *x.shape)

    def column(tangent: Tensor) -> Tensor:
        return torch.func.jvp(lambda v: net(v.clone()), (x,), (tangent,))[1]

    with torch.set_grad_enabled(create_graph):
        columns = torch.func.vmap(column)(basis)
    return columns.flatten(2).permute(1, 2, 0).reshape(x.shape[0], -1, *x.shape[1:])


class _RightDerivative(TorchFunctionMode):
    """Computes ReLU and Leaky-ReLU so that their derivative at 0 is the one from the right, 1."""

    _RELUS = frozenset({F.relu, F.relu_, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_})
    _LEAKY = frozenset({F.leaky_relu, F.leaky_relu_})

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func not in self._RELUS and func not in self._LEAKY:
            return func(*args, **kwargs)
        x, *options = args or (kwargs["input"],)
        if func in self._LEAKY:
            slope = options.pop(0) if options else kwargs.get("negative_slope", 0.01)
            result = torch.where(x < 0, slope * x, x)
        else:
            result = torch.where(x < 0, torch.zeros_like(x), x)
        in_place = func.__name__.endswith("_") or kwargs.get("inplace", False) or True in options
        return x.copy_(result) if in_place else result


@dataclass(frozen=True)
class MarginalSDP(LayerwiseRule):
    """Marginal stable distribution propagation: layer by layer, without correlations.

    Each layer maps location and scale; correlations that affine layers create are dropped. Takes
    Gaussian (by its variances), Cauchy and symmetric alpha-stable inputs and gives the same family.
    """

    name: ClassVar[str] = "marginal_sdp"

    def start(self, x: Law) -> Law:
        """See :class:`LayerwiseRule`."""
        return as_marginal(self.name, x)


@MarginalSDP.handles(nn.Linear)
def _affine(_rule: LayerwiseRule, layer: nn.Linear, law: Law) -> Law:
    location = F.linear(law.location, layer.weight, layer.bias)
    match law:
        case DiagonalGaussian():
            return unchecked(DiagonalGaussian, location, F.linear(law.variance, layer.weight.square()))
        case Cauchy():
            return unchecked(Cauchy, location, F.linear(law.scale, layer.weight.abs()))
        case SymmetricStable():
            scale = _stable_sum(layer.weight, law.scale, law.alpha)
            return unchecked(SymmetricStable, location, scale, law.alpha)
    raise UnsupportedError(MarginalSDP.name, f"{type(law).__name__} input")


@MarginalSDP.handles(*ELEMENTWISE)
def _linearise(_rule: LayerwiseRule, module: nn.Module, law: Law) -> Law:
    activation = activation_of(module)
    slope = activation.derivative(law.location)
    location = activation.function(law.location)
    match law:
        case DiagonalGaussian():
            return unchecked(DiagonalGaussian, location, law.variance * slope.square())
        case Cauchy():
            return unchecked(Cauchy, location, law.scale * slope.abs())
        case SymmetricStable():
            return unchecked(SymmetricStable, location, law.scale * slope.abs(), law.alpha)
    raise UnsupportedError(MarginalSDP.name, f"{type(law).__name__} input")


@MarginalSDP.handles(Add)
def _add(_rule: LayerwiseRule, _module: nn.Module, a: Law, b: Law) -> Law:
    location = a.location + b.location
    match a, b:
        case DiagonalGaussian(), DiagonalGaussian():
            return unchecked(DiagonalGaussian, location, a.variance + b.variance)
        case Cauchy(), Cauchy():
            return unchecked(Cauchy, location, a.scale + b.scale)
    raise UnsupportedError(MarginalSDP.name, f"a sum of {type(a).__name__} and {type(b).__name__}")


def _stable_sum(weight: Tensor, scale: Tensor, alpha: float) -> Tensor:
    """Scales of W x for independent symmetric alpha-stable x: (sum_j abs(w_ij)^alpha s_j^alpha)^(1/alpha).

    `weight` is (..., m, n) and `scale` (..., n). Each sum is taken relative to its largest term, so
    that no power of a term over- or underflows.
    """
    terms = weight.abs() * scale.unsqueeze(-2)
    largest = terms.amax(-1, keepdim=True)
    safe = torch.where(largest > 0, largest, torch.ones_like(largest))
    return largest.squeeze(-1) * (terms / safe).pow(alpha).sum(-1).pow(1 / alpha)
