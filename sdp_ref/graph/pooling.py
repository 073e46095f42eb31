"""Max-pooling as a selection of components."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from sdp_ref.errors import NoFormulaError, NoLinearPartError

_POOLS: dict[type[nn.Module], Any] = {
    nn.MaxPool1d: (3, F.max_pool1d),
    nn.MaxPool2d: (4, F.max_pool2d),
    nn.MaxPool3d: (5, F.max_pool3d),
}
_ADAPTIVE: dict[type[nn.Module], Any] = {
    nn.AdaptiveMaxPool1d: (3, F.adaptive_max_pool1d),
    nn.AdaptiveMaxPool2d: (4, F.adaptive_max_pool2d),
    nn.AdaptiveMaxPool3d: (5, F.adaptive_max_pool3d),
}
MAX_POOLS = (*_POOLS, *_ADAPTIVE)


def max_pool(module: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Maxima over windows, and their indices within a channel.

    The paper's section on MaxPool maps (mu, sigma) to (max mu, sigma at the arg max): the linearisation at
    the location.
    """
    kind = type(module).__name__
    dimensions, pool = next(form for each, form in (_POOLS | _ADAPTIVE).items() if isinstance(module, each))
    if x.ndim != dimensions:
        raise NoFormulaError(f"{kind} on an event of shape {tuple(x.shape[1:])}")
    if module.return_indices:
        raise NoLinearPartError(f"{kind} with return_indices")
    m: Any = module
    if isinstance(module, tuple(_ADAPTIVE)):
        maxima, index = pool(x, m.output_size, return_indices=True)
    else:
        options = (m.kernel_size, m.stride, m.padding, m.dilation, m.ceil_mode)
        maxima, index = pool(x, *options, return_indices=True)
    return maxima, index
