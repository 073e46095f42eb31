"""Check that a net is one function: the same outputs with and without gradients, alone and in a batch."""

from __future__ import annotations

import torch
from torch import Tensor

from sdp_bench.oracles.sampling.forward import Network
from sdp_ref.graph.recording import by_ordinary_attention

_ALIKE = 1e-3  # relative to the change over the noise: rounding is smaller, another function differs by more
_ROUNDINGS = 1000.0  # times the machine precision of the largest output: for constants and large offsets
_AMPLIFIED = 10.0  # times the change of the outputs with the last digits of the inputs: for chaotic nets

_GRADIENTS = (
    "the network gives other outputs without gradients than with them (largest difference {} at the location "
    "of the input). If it has attention layers with a mask, call "
    "torch.backends.mha.set_fastpath_enabled(False)"
)
_ROWS = (
    "the output of a row depends on the other rows of its batch (largest difference {}); the network must "
    "map each row by itself (call net.eval())"
)
_SAMPLED = "the sampler computes other outputs than the network (largest difference {})"


def require_one_function(net: Network, sampled: Network, location: Tensor, spread: Tensor) -> None:
    """Raise a ValueError unless a net and the function that is sampled agree at the location of its input.

    `location` and `spread` have the shape (1, *event), and `sampled` maps blocks of shape (rows, n). The net
    runs on single rows and on a batch, with and without gradients. Nets with random outputs (dropout in
    training mode) are not checked.
    """
    point = location.detach()
    # not symmetric about the first row: a mean over the batch must not equal it
    batch = torch.cat([point, point + 0.5 * spread.to(point), point - 0.2 * spread.to(point)])
    with torch.no_grad(), by_ordinary_attention():
        rows, again, *single = (_outputs(net, each) for each in (batch, batch, *batch.split(1)))
        if rows is None or again is None or not torch.equal(rows.nan_to_num(), again.nan_to_num()):
            return  # the sampler reports outputs that are not (rows, m)
        alone, finite = rows[:1], rows.nan_to_num(0, 0, 0)
        largest = finite.abs().amax() if finite.numel() else 0.0
        allowed = (
            _ALIKE * (finite.amax(0) - finite.amin(0)) + _ROUNDINGS * torch.finfo(rows.dtype).eps * largest
        )
        digits = torch.finfo(point.dtype).eps * torch.maximum(batch.abs(), spread.to(point))
        nudged = _outputs(net, batch + 4 * digits)
        if nudged is not None:
            allowed = allowed + _AMPLIFIED * (nudged - rows).nan_to_num(0, 0, 0).abs().amax(0)
        for number, output in enumerate(single):
            _require(output, rows[number : number + 1], allowed, _ROWS)
        _require(sampled(batch.flatten(1).clone()), rows, allowed, _SAMPLED)
    with torch.no_grad():
        _require(_outputs(net, point), alone, allowed, _GRADIENTS)
    with torch.enable_grad(), by_ordinary_attention():
        try:
            tracked = _outputs(net, point.clone().requires_grad_())
        except RuntimeError:  # without a derivative, only rules that need none support the net
            return
    _require(tracked, alone, allowed, _GRADIENTS)


def _outputs(net: Network, points: Tensor) -> Tensor | None:
    """Outputs (rows, m), or None if they are something else."""
    outputs = net(points.clone())
    valid = isinstance(outputs, Tensor) and outputs.ndim == 2 and len(outputs) == len(points)
    return outputs.detach() if valid and outputs.is_floating_point() else None


def _require(outputs: Tensor | None, right: Tensor, allowed: Tensor, text: str) -> None:
    if outputs is None or outputs.shape != right.shape:
        raise ValueError(text.format("in shape or type"))
    alike = (outputs == right) | (outputs.isnan() & right.isnan())
    off = torch.where(alike, 0.0, (outputs - right).abs())
    if not bool((off <= allowed).all()):
        raise ValueError(text.format(f"{off.nan_to_num(torch.inf).max().item():.2g}"))
