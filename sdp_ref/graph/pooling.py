"""Max-pooling as a choice of components."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from sdp_ref.errors import NoFormulaError

MAX_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d)


def max_pool(module: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Maxima over windows and where they stand, counted within a channel.

    The paper's section on MaxPool maps (mu, sigma) to (max mu, sigma at the arg max): the
    linearisation at the location.

    Parameters
    ----------
    module : nn.MaxPool1d, nn.MaxPool2d, nn.AdaptiveMaxPool1d or nn.AdaptiveMaxPool2d
    x : Tensor, shape (B, channels, *space)

    Returns
    -------
    maxima, index : Tensor, shape (B, channels, *smaller)

    Raises
    ------
    NoFormulaError
        If the event's shape is not that of channels and space, or the module returns indices too.
    """
    one = isinstance(module, nn.MaxPool1d | nn.AdaptiveMaxPool1d)
    kind = type(module).__name__
    if x.ndim != (3 if one else 4):
        raise NoFormulaError(f"{kind} on an event of shape {tuple(x.shape[1:])}")
    if module.return_indices:
        raise NoFormulaError(f"{kind} with return_indices")
    m: Any = module
    if isinstance(module, nn.AdaptiveMaxPool1d | nn.AdaptiveMaxPool2d):
        adaptive: Any = F.adaptive_max_pool1d if one else F.adaptive_max_pool2d
        maxima, index = adaptive(x, m.output_size, return_indices=True)
    else:
        pool: Any = F.max_pool1d if one else F.max_pool2d
        options = (m.kernel_size, m.stride, m.padding, m.dilation, m.ceil_mode)
        maxima, index = pool(x, *options, return_indices=True)
    return maxima, index
