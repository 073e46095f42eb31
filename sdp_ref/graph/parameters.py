"""Calls of modules in a dtype other than that of their parameters."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call


def in_dtype(module: nn.Module, *values: Tensor) -> Tensor:
    """Output of a module in the dtype of its values."""
    dtype = values[0].dtype

    def cast(tensors: Any) -> dict[str, Tensor]:
        return {name: each.to(dtype) for name, each in tensors if _foreign(each, dtype)}

    if plain := cast(vars(module).items()):
        module = copy.copy(module)  # shallow: parameters are shared
        vars(module).update(plain)
    own = {**cast(module.named_parameters()), **cast(module.named_buffers())}
    y: Tensor = functional_call(module, own, values) if own else module(*values)
    return y


def _foreign(value: Any, dtype: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.dtype != dtype
