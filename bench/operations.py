"""Counts of floating-point operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

_CUBES = {"linalg_cholesky_ex": 1 / 3, "_linalg_eigh": 9.0, "_linalg_svd": 21.0, "linalg_qr": 4 / 3}
"""Operations of a factorisation of n x n matrices, in units of n^3 (Golub and Van Loan)."""
_FREE = {
    "_to_copy",
    "clone",
    "copy_",
    "detach",
    "empty",
    "zeros",
    "_unsafe_view",
    "_reshape_alias",
    "full",
    "ones",
}


def operations(work: Callable[[], object]) -> float:
    """Return the number of floating-point operations of a call, with those of autograd.

    A multiplication and an addition of a matrix product or convolution are two operations, as in torch's
    ``FlopCounterMode``. A factorisation takes the leading term of the textbook. Any other op takes one for
    each element of its largest tensor, whatever the function. Views, clones and conversions are free, as are
    `zeros`, `ones` and work outside torch; concatenation counts.
    """
    with _Counter() as counter:  # type: ignore[no-untyped-call]
        work()
    return counter.total


class _Counter(TorchDispatchMode):
    total = 0.0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if formula := flop_registry.get(func.overloadpacket):
            self.total += formula(*args, **(kwargs or {}), out_val=out)
        elif name in _CUBES:
            self.total += _CUBES[name] * args[0].numel() * args[0].shape[-1]
        elif name not in _FREE and not func.is_view:
            tensors = [each for each in tree_leaves((args, out)) if isinstance(each, Tensor)]
            self.total += max((each.numel() for each in tensors), default=0)
        return out
