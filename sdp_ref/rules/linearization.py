"""Stable distribution propagation: the net linearised at the location.

Petersen et al. (2024), "Uncertainty Quantification via Stable Distribution Propagation",
eqs. 1-2 and the section on computing the scale parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
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
from sdp_ref.laws.location_scale import stable_scale
from sdp_ref.rules.base import (
    Rule,
    as_any_gaussian,
    check_outputs,
    smooth_orders,
    stored,
    with_checked_outputs,
)
from sdp_ref.rules.rows import evaluates

Input = AnyGaussian | Cauchy | SymmetricStable


@dataclass(frozen=True)
class SDP(Rule):
    """Stable distribution propagation: location f(x), scale by the Jacobian J of the whole net.

    A Gaussian input, or any other with a covariance Sigma, gives a :class:`Gaussian` with covariance J Sigma
    J^T. Cauchy and symmetric alpha-stable inputs give the marginal laws of J x, with scale (abs(J)^alpha
    gamma^alpha)^(1/alpha); correlations on the way are kept, only those between the outputs are not part of
    the result.

    Parameters
    ----------
    create_graph : bool
        Keep the graph of the Jacobian, so that the result is differentiable with respect to the input law and
        the weights of the net. Otherwise the result has no gradient at all.
    max_bytes : int
        Limit on the memory for derivatives, observed as far as one row and one output at a time allow:
        outputs and, without a graph, rows are processed in parts. The memory of autograd for one forward
        pass is not included.
    """

    name: ClassVar[str] = "sdp"
    title: ClassVar[str] = "SDP"
    colour: ClassVar[str] = "#0072b2"
    rank: ClassVar[int] = 10
    orders: ClassVar[Mapping[str, float]] = smooth_orders(2, 4)
    create_graph: bool = False
    max_bytes: int = MAX_BYTES

    def __post_init__(self) -> None:
        if not isinstance(self.create_graph, bool):
            raise ValueError(f"sdp needs create_graph=True or False, got {self.create_graph!r}")
        self.require_number("max_bytes", 1, math.inf)

    @property
    def parameters(self) -> dict[str, Any]:
        """Empty: neither graph nor memory limit changes the result."""
        return {}

    def prepare(self, net: Net) -> Callable[[Law], Law]:
        """Check modules. The first call of the result compares the Jacobian with differences of the net."""
        evaluation = evaluates(self.name, net)
        for path, module in net.named_modules() if isinstance(net, nn.Module) else ():
            if module.training and _draws(module):
                raise UnsupportedError(self.name, f"{type(module).__name__} in training mode", path)

        checked = False

        @evaluation
        def propagate(x: Law) -> Law:
            nonlocal checked
            if not isinstance(x, Cauchy | SymmetricStable):
                x = as_any_gaussian(self.name, x)
            spread = None if checked else x.spread
            checked = True
            if self.create_graph:
                with self.at():
                    return _linearised(net, x, spread, create_graph=True, max_bytes=self.max_bytes)
            with torch.no_grad(), self.at():
                rows, outputs = _at_a_time(net, x.location, self.max_bytes)
                laws = []
                for first in range(0, x.batch, rows):
                    part = x[first : first + rows]
                    # the Jacobian is compared with differences of the net for the first part only
                    spread_of_part = spread if first == 0 else None
                    laws.append(_in_parts(net, part, spread_of_part, outputs, self.max_bytes))
                return laws[0] if len(laws) == 1 else joined(laws)

        return propagate

    def linear_image(self, net: Net, location: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the net linearised at one input x, shape (1, *event): v -> f(x) + J (v - x).

        The function maps inputs (k, *event) to (k, m).
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
"""Number of outputs assumed before the net is evaluated: a batch that fits with so many is not split."""


def _at_a_time(net: Net, location: Tensor, max_bytes: int) -> tuple[int, int | None]:
    """Numbers of rows and of outputs whose Jacobians fit twice in the memory limit; all outputs if None."""
    # Twice: the Jacobian, and its product with the noise.
    of_one_output = 2 * location[0].numel() * location.element_size()
    if len(location) * _MANY * of_one_output <= max_bytes:
        return len(location), None
    outputs = check_outputs(location[:1], net(location[:1].clone()))[0].numel()
    rows = max(1, min(len(location), max_bytes // max(1, outputs * of_one_output)))
    if outputs * of_one_output <= max_bytes:
        return rows, None
    # Two parts at a time, the second of which is assembled from pieces.
    return 1, max(1, max_bytes // (2 * of_one_output))


def _in_parts(net: Net, x: Input, spread: Tensor | None, outputs: int | None, max_bytes: int) -> Law:
    """Compute the result with the Jacobian of at most `outputs` outputs at a time; all if None.

    With fewer than all, `x` has batch 1.
    """
    if outputs is None:
        return _linearised(net, x, spread, create_graph=False, max_bytes=max_bytes)
    value = check_outputs(x.location, net(x.location.clone()))
    parts = torch.arange(value[0].numel()).split(outputs)

    def jacobian(part: Tensor) -> Tensor:
        """Jacobian (k, n) of consecutive outputs, given by their indices (k,)."""
        first, last = int(part[0]), int(part[-1])

        def outputs_of_part(v: Tensor) -> Tensor:
            return net(v).flatten(1)[:, first : last + 1]

        outputs_of_part.__wrapped__ = net  # type: ignore[attr-defined]
        return jacobian_of(outputs_of_part, x.location, max_bytes=max_bytes, spread=spread)[1].flatten(2)[0]

    if isinstance(x, Cauchy | SymmetricStable):
        return _law(x, value, _scales(x, jacobian, parts))
    return stored(value, _covariance(x, jacobian, parts), value.dtype)


def _scales(
    x: Cauchy | SymmetricStable, jacobian: Callable[[Tensor], Tensor], parts: Sequence[Tensor]
) -> Tensor:
    """Scales (m,) of the outputs, float64; few rows of the Jacobian at a time are converted to float64."""
    function, scale = _map_of_noise(x)
    rows_at_a_time = max(1, _PART // (8 * x.dimension))
    scales = []
    for part in parts:
        chunks = jacobian(part).split(rows_at_a_time)
        scales += [function(rows.double().unsqueeze(0), scale.double()).flatten() for rows in chunks]
    return torch.cat(scales)


def _covariance(x: AnyGaussian, jacobian: Callable[[Tensor], Tensor], parts: Sequence[Tensor]) -> Tensor:
    """Covariance J S J^T (1, m, m) of the outputs, float64, block by block from two parts of the Jacobian.

    The second part is recomputed for each first part, which trades time for memory.
    """
    noise = x.covariance[0] if isinstance(x, Gaussian) else x.variance.flatten()
    m = sum(len(part) for part in parts)
    covariance = torch.empty(1, m, m, dtype=torch.float64, device=noise.device)
    for i, first in enumerate(parts):
        left = jacobian(first)
        for second in parts[i:]:
            right = left if second is first else jacobian(second)
            block = _block(left, right, noise)
            covariance[0, first[:, None], second] = block
            covariance[0, second[:, None], first] = block.mT
    return covariance


def _block(left: Tensor, right: Tensor, noise: Tensor) -> Tensor:
    """Covariance (m, m') of outputs with Jacobians (m, n) and (m', n), float64, in parts of few columns.

    `noise` is the covariance (n, n) of the input or, for independent components, the variances (n,).
    """
    step = max(1, _PART // (8 * max(len(left), len(right))))
    total = torch.zeros(len(left), len(right), dtype=torch.float64, device=left.device)
    for first in range(0, left.shape[1], step):
        columns = slice(first, first + step)
        if noise.ndim == 1:
            left_noise = left[:, columns].double() * noise[columns].double()
        else:
            left_noise = _product_in_parts(left, noise[:, columns], step)
        total += left_noise @ right[:, columns].double().mT
    return total


def _product_in_parts(left: Tensor, right: Tensor, step: int) -> Tensor:
    """Matrix product in float64; `step` columns of the left factor are converted at a time."""
    products = []
    for columns, rows in zip(left.split(step, 1), right.split(step), strict=True):
        products.append(columns.double() @ rows.double())
    return torch.as_tensor(sum(products))


def _linearised(net: Net, x: Input, spread: Tensor | None, *, create_graph: bool, max_bytes: int) -> Law:
    location, jacobian = jacobian_of(
        with_checked_outputs(net),
        x.location,
        create_graph=create_graph,
        max_bytes=max_bytes,
        spread=spread,
    )
    function, noise = _map_of_noise(x)
    return _law(x, location, _in_double(function, jacobian.flatten(2), noise, create_graph))


def _map_of_noise(x: Input) -> tuple[Callable[[Tensor, Tensor], Tensor], Tensor]:
    """Map from a Jacobian (B, m, n) and the noise to the output's covariance or scale, and the noise."""
    match x:
        case Gaussian():
            return lambda j, covariance: j @ covariance @ j.mT, x.covariance
        case DiagonalGaussian():
            return lambda j, variance: (j * variance.unsqueeze(1)) @ j.mT, x.variance.flatten(1)
        case Cauchy():
            return lambda j, scale: j.abs() @ scale.unsqueeze(-1), x.scale.flatten(1)
    return partial(stable_scale, alpha=x.alpha), x.scale.flatten(1)


def _law(x: Input, location: Tensor, spread: Tensor) -> Law:
    """Law of the output for an input of the family of `x`, from its covariance or scale in float64."""
    if isinstance(x, Gaussian | DiagonalGaussian):
        return stored(location, spread, location.dtype)
    scale = spread.reshape(location.shape).to(location.dtype)
    if isinstance(x, SymmetricStable):
        return unchecked(SymmetricStable, location, scale, x.alpha)
    return unchecked(Cauchy, location, scale)


_PART = 2**22  # bytes of a float64 Jacobian that fit in a CPU cache


def _in_double(
    function: Callable[[Tensor, Tensor], Tensor], jacobian: Tensor, noise: Tensor, create_graph: bool
) -> Tensor:
    """Apply `function` in float64, for variances of thin directions, to small parts of the batch."""
    rows = max(1, _PART // max(1, 2 * 8 * jacobian[0].numel()))  # including the product with the noise
    if create_graph or rows >= len(jacobian):
        return function(jacobian.double(), noise.double())
    # Reuse one buffer for all parts: new memory is slower than the copy.
    buffer = jacobian.new_empty(rows, *jacobian.shape[1:], dtype=torch.float64)
    results = []
    for j, v in zip(jacobian.split(rows), noise.split(rows), strict=True):
        results.append(function(buffer[: len(j)].copy_(j), v.double()))
    return torch.cat(results)
