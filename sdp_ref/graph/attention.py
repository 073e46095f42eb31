"""Scaled dot-product attention as an op of three values."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from sdp_ref.errors import NoLinearPartError

_LOCK = threading.Lock()
_OPEN: list[bool] = []  # the setting of torch that the outermost caller restores, once for each open context


@contextmanager
def by_ordinary_attention() -> Iterator[None]:
    """Disable torch's fast path of attention layers, so that a net is one function.

    torch takes it without gradients only. Its outputs differ where a mask hides a token or is a bias.
    """
    backend = torch.backends.mha
    with _LOCK:
        _OPEN.append(_OPEN[0] if _OPEN else backend.get_fastpath_enabled())
        backend.set_fastpath_enabled(False)
    try:
        yield
    finally:
        with _LOCK:
            enabled = _OPEN.pop()
            if not _OPEN:
                backend.set_fastpath_enabled(enabled)


class Attention(nn.Module):
    """softmax(q k^T scale + mask) v, as ``F.scaled_dot_product_attention`` without dropout.

    The mask is boolean or added to the scores, without a batch dimension or with a first dimension of 1.
    """

    def __init__(
        self, is_causal: bool = False, scale: float | None = None, mask: Tensor | None = None
    ) -> None:
        super().__init__()
        self.is_causal, self.scale, self.mask = is_causal, scale, mask

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self._check(q, k, v)
        return self.weights(q, k) @ v

    def factor(self, q: Tensor) -> float:
        return 1 / math.sqrt(q.shape[-1]) if self.scale is None else self.scale

    def weights(self, q: Tensor, k: Tensor) -> Tensor:
        """Weight of each key for each query, (N, *heads, queries, keys); 0 for queries that see no key."""
        scores = q @ k.mT * self.factor(q)
        mask = self._mask(scores)
        if mask is None:
            return scores.softmax(-1)
        scores = scores + mask
        blind = torch.isneginf(mask).all(-1, keepdim=True)
        return scores.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0)

    def _mask(self, scores: Tensor) -> Tensor | None:
        """Additive mask of the scores."""
        mask = self.mask
        if self.is_causal:
            if mask is not None:
                raise NoLinearPartError("attention that is causal and has a mask")
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        if mask is None:
            return None
        if mask.ndim > scores.ndim or (mask.ndim == scores.ndim and mask.shape[0] != 1):
            raise NoLinearPartError("attention with a mask that has a batch dimension")
        mask = mask.to(scores.device)
        if mask.dtype == torch.bool:
            return torch.zeros(mask.shape).to(scores).masked_fill(~mask, -math.inf)
        return mask.to(scores)

    @staticmethod
    def _check(q: Tensor, k: Tensor, v: Tensor) -> None:
        if not (q.ndim == k.ndim == v.ndim >= 3) or not (q.shape[1:-2] == k.shape[1:-2] == v.shape[1:-2]):
            shapes = " and ".join(str(tuple(each.shape[1:])) for each in (q, k, v))
            raise NoLinearPartError(f"attention over values of shapes {shapes}")
