"""The state of a net on which a trace depends, and whether it has changed since."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

Table = dict[Any, Any]
Item = tuple[Table, Any, Any]

_TABLES = ("_modules", "_parameters", "_buffers", "_forward_hooks", "_forward_pre_hooks")
_OF_TORCH = vars(nn.Module()).keys() - {"training"}


def attributes_of(modules: Iterable[nn.Module]) -> list[Item]:
    """Submodules, parameters, buffers, hooks and other attributes, as (table, key, object)."""
    items: list[Item] = []
    for module in modules:
        attributes = vars(module)
        items += [(attributes, key, value) for key, value in attributes.items() if key not in _OF_TORCH]
        for table in _tables(module):
            items += [(table, key, value) for key, value in table.items()]
    return items


def _tables(module: nn.Module) -> list[Table]:
    tables = [vars(module).get(name) for name in _TABLES]
    return [table for table in tables if isinstance(table, dict)]


def watched(
    modules: Sequence[nn.Module],
    before: Iterable[Item],
    shared: Iterable[Tensor],
    sources: Sequence[Tensor],
) -> Callable[[], bool]:
    """Return a function that reports whether modules and tensors are as they are now.

    It compares the identity of the attributes `before` that a run of the net did not replace, the memory of
    tensors `shared`, and the values of `sources`. With gradients enabled, sources that require them count as
    changed, because each result needs a graph for itself.
    """
    items = [(table, key, value) for table, key, value in before if table.get(key) is value]
    tables = [table for module in modules for table in (vars(module), *_tables(module))]
    sizes = [(table, len(table)) for table in tables]
    pointers = [(tensor, tensor.data_ptr()) for tensor in shared]
    values = [(tensor, tensor.detach().clone()) for tensor in sources]
    learned = any(tensor.requires_grad for tensor in sources)

    def unchanged() -> bool:
        if torch.compiler.is_compiling():  # its guards do the same
            return not values
        if learned and torch.is_grad_enabled():
            return False
        for table, size in sizes:
            if len(table) != size:
                return False
        for table, key, value in items:
            if table.get(key) is not value:
                return False
        for tensor, pointer in pointers:
            if tensor.data_ptr() != pointer:
                return False
        return all(_equal(tensor, value) for tensor, value in values)

    return unchanged


def _equal(tensor: Tensor, value: Tensor) -> bool:
    if tensor.dtype != value.dtype or tensor.device != value.device:
        return False
    try:
        return torch.equal(tensor, value)
    except (NotImplementedError, RuntimeError):  # sparse tensors
        return False
