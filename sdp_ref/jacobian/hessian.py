"""Value, Jacobian and Hessian-vector products of a net."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from sdp_ref.errors import NoFormulaError
from sdp_ref.graph.trace import Net
from sdp_ref.jacobian.jacobian import MAX_BYTES, jacobian_of, reverse_jacobian


def hessian_of(
    net: Net, x: Tensor, spread: Tensor | None = None
) -> tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]:
    """Value and Jacobian of a net that works row by row, and a function for products with its Hessians."""

    def smooth(v: Tensor) -> Tensor:
        # of torch's attention kernels, only the one made of plain ops has a second derivative
        with _NoKinks(), sdpa_kernel(SDPBackend.MATH):
            return net(v)

    with torch.enable_grad():
        start = x.detach().requires_grad_().clone()
        value, jacobian = jacobian_of(smooth, start, create_graph=True, spread=spread)
        rows = jacobian.flatten(2)

    def product(vectors: Tensor) -> Tensor:
        # Reverse over reverse: some torch functions, or their gradients, have no forward derivative.
        with torch.enable_grad():
            slopes = (rows @ vectors.unsqueeze(2)).squeeze(2)
        with torch.no_grad():
            return reverse_jacobian(slopes, start.grad_fn, x, MAX_BYTES).flatten(2)

    return value.detach(), rows.detach(), product


class _NoKinks(TorchFunctionMode):
    """Rejects functions with kinks, because second derivatives do not include the curvature of a kink."""

    _KINKED = frozenset(
        [
            *("relu", "relu6", "leaky_relu", "prelu", "rrelu", "selu", "threshold"),
            *("hardtanh", "hardsigmoid", "hardswish", "hardshrink", "softshrink"),
            *(f"{kind}max_pool{d}d" for kind in ("", "adaptive_", "fractional_") for d in (1, 2, 3)),
        ]
    )

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "").strip("_").removesuffix("_with_indices")
        if name in self._KINKED:
            hint = "unscented, cubature and moment_matching look further than the mean"
            raise NoFormulaError(f"{name}, whose slope jumps, which no second derivative sees; {hint}")
        return func(*args, **(kwargs or {}))
