"""Check that a net is one function: the same outputs with and without gradients, alone and in a batch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sdp_ref.graph.recording import by_ordinary_attention

Network = Callable[[Tensor], Tensor]

_ALIKE = 1e-3  # relative to the change over the noise: rounding is smaller, another function differs by more
_ROUNDINGS = 1000.0  # times the machine precision of the largest output: for constants and large offsets
_AMPLIFIED = 10.0  # times the change of the outputs with the last digits of the inputs: for chaotic nets

_GRADIENTS = "gives other outputs without gradients than with them (largest difference {} at the location)"
_ROWS = "makes the output of a row depend on the other rows of its batch (largest difference {})"
_POSITION = "makes the output of a row depend on its position in the batch (largest difference {})"
_SIZE = "makes the output of a row depend on the size of the batch (largest difference {})"
_HINT = "it must map each row by itself (call net.eval() if it normalises by batch statistics)"
_SAMPLED = "gives other outputs than its sampler computes (largest difference {})"


@by_ordinary_attention()
def inconsistency(
    net: Network, location: Tensor, spread: Tensor, sampled: Network | None = None
) -> tuple[str, str] | None:
    """Describe how a net fails to be one function of each row, with a hint; None if it does not.

    `location` and `spread` have the shape (B, *event), and the net is run near them, on single rows and on a
    small batch, with and without gradients. `sampled`, which maps blocks of shape (rows, n), must agree with
    it. Nets with random outputs (dropout in training mode) are not checked.
    """
    point = location[:1].detach()
    width = spread[:1].detach().to(point)
    # not symmetric about the first row: a mean over the batch must not equal it
    batch = torch.cat([point, point + 0.5 * width, point - 0.2 * width, location[1:2].detach()])
    with torch.no_grad():
        rows, again = _outputs(net, batch), _outputs(net, batch)
        if rows is None or again is None or not torch.equal(rows.nan_to_num(), again.nan_to_num()):
            return None  # rules and the sampler report outputs that are not rows
        rounding = _rounding(net, batch, width, rows)
        finite = rows.nan_to_num(0, 0, 0)
        allowed = rounding + _ALIKE * (finite.amax(0) - finite.amin(0))
        coupling = _coupling_of_rows(net, batch, rows, rounding, allowed)
        if coupling:
            return coupling, _HINT
        if sampled is not None:
            difference = _difference(sampled(batch.flatten(1).clone()), rows, allowed)
            if difference:
                return _SAMPLED.format(difference), ""
    with torch.enable_grad():
        try:
            tracked = _outputs(net, point.clone().requires_grad_())
        except RuntimeError:  # without a derivative, only rules that need none support the net
            return None
    difference = _difference(tracked, rows[:1], allowed)
    return (_GRADIENTS.format(difference), "") if difference else None


def _rounding(net: Network, batch: Tensor, width: Tensor, rows: Tensor) -> Tensor | float:
    """Bound of the rounding error of each output: of its size, and of changes in the inputs' last digits."""
    finite = rows.nan_to_num(0, 0, 0)
    largest = finite.abs().amax() if finite.numel() else 0.0
    rounding = _ROUNDINGS * torch.finfo(rows.dtype).eps * largest
    digits = torch.finfo(batch.dtype).eps * torch.maximum(batch.abs(), width)
    nudged = _outputs(net, batch + 4 * digits)
    if nudged is None:
        return rounding
    return rounding + _AMPLIFIED * (nudged - rows).nan_to_num(0, 0, 0).abs().amax(0)


def _coupling_of_rows(
    net: Network, batch: Tensor, rows: Tensor, rounding: Tensor | float, allowed: Tensor
) -> str:
    """Describe how the output of a row depends on its batch; empty if it does not."""
    for number in range(len(batch)):
        difference = _difference(_alone(net, batch, number), rows[number : number + 1], allowed)
        if difference:
            return _coupling(net, batch, rows, rounding).format(difference)
    # an even and an odd number of rows
    difference = _difference(_outputs(net, batch[:-1]), rows[:-1], allowed)
    return _SIZE.format(difference) if difference else ""


def _coupling(net: Network, batch: Tensor, rows: Tensor, allowed: Tensor | float) -> str:
    """Describe why a row alone has other outputs than in a batch."""
    count = len(batch)
    for number in range(count):
        others = batch[number : number + 1].expand_as(batch)
        outputs = _outputs(net, others)
        if outputs is None or _difference(outputs[number], rows[number], allowed):
            return _ROWS
    turned = _outputs(net, batch.roll(1, 0))
    return _POSITION if turned is None or _difference(turned.roll(-1, 0), rows, allowed) else _SIZE


def _alone(net: Network, batch: Tensor, number: int) -> Tensor | None:
    """Outputs of a row alone, or next to copies of it if the net cannot be run on one row."""
    row = batch[number : number + 1]
    try:
        return _outputs(net, row)
    except Exception:  # noqa: BLE001  of the net, such as batch normalisation's
        outputs = _outputs(net, row.expand_as(batch))
        return None if outputs is None else outputs[number : number + 1]


def _outputs(net: Network, points: Tensor) -> Tensor | None:
    """Outputs (rows, *event), or None if they are something else."""
    outputs = net(points.clone())
    valid = isinstance(outputs, Tensor) and outputs.ndim >= 2 and len(outputs) == len(points)
    return outputs.detach() if valid and outputs.is_floating_point() else None


def _difference(outputs: Tensor | None, right: Tensor, allowed: Tensor | float) -> str:
    """The largest difference as text; empty if it is allowed."""
    if outputs is None or outputs.shape != right.shape:
        return "in shape or type"
    alike = (outputs == right) | (outputs.isnan() & right.isnan())
    off = torch.where(alike, 0.0, (outputs - right).abs())
    if bool((off <= allowed).all()):
        return ""
    return f"{off.nan_to_num(torch.inf).max().item():.2g}"
