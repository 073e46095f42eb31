"""Simultaneous quantile regression (SQR) of Tagasovska & Lopez-Paz (2019)."""

from __future__ import annotations

import torch
from torch import Tensor

from sdp_ref.losses._checks import Reduction, check_float, check_like, check_reduction


def pinball(prediction: Tensor, target: Tensor, tau: float | Tensor, reduction: Reduction = "mean") -> Tensor:
    """Pinball loss max(tau u, (tau - 1) u) with u = target - prediction; its minimiser is the tau-quantile.

    `prediction` and `target` have the same shape, (B,) or (B, k). `tau` in (0, 1) is a number or a tensor of
    that shape. At u = 0 the gradient with respect to the prediction is that of u > 0, -tau. The reduction is
    over all entries.
    """
    check_reduction(reduction)
    check_float("prediction", prediction)
    check_like("target", target, prediction, "the prediction")
    _check_levels(tau)
    if isinstance(tau, Tensor):
        check_like("tau", tau, prediction, "the prediction")
    above = target - prediction
    losses = torch.where(above >= 0, tau * above, (tau - 1) * above)
    if reduction == "mean":
        return losses.mean()
    return losses.sum() if reduction == "sum" else losses


def sqr_input(x: Tensor, tau: float | Tensor) -> Tensor:
    """Return the input of an SQR net: the features of shape (B, d) and, as an additional one, 12 (tau - 1/2).

    This maps a uniform level to a feature of mean 0 and standard deviation sqrt(12), as in the authors'
    code. `tau` in (0, 1) is a number or has shape (B,) or (B, 1).
    """
    check_float("x", x)
    if x.ndim != 2:
        raise ValueError(f"x must have shape (B, d), got {tuple(x.shape)}")
    _check_levels(tau)
    if not isinstance(tau, Tensor):
        level = x.new_full((len(x), 1), tau)
    elif tuple(tau.shape) in ((len(x),), (len(x), 1)):
        level = tau.reshape(-1, 1).to(x)
    else:
        raise ValueError(f"tau must have shape {(len(x),)} or {(len(x), 1)}, got {tuple(tau.shape)}")
    return torch.cat([x, 12 * (level - 0.5)], 1)


def _check_levels(tau: float | Tensor) -> None:
    if isinstance(tau, Tensor):
        inside = bool(((tau.detach() > 0) & (tau.detach() < 1)).all())
    else:
        inside = isinstance(tau, int | float) and 0 < tau < 1
    if not inside:
        raise ValueError("tau must lie in (0, 1)" + ("" if isinstance(tau, Tensor) else f", got {tau!r}"))
