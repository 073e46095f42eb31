"""A trainable module that returns laws."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sdp_ref.laws import DiagonalGaussian, Law
from sdp_ref.rules import Propagator, rule_of
from sdp_ref.rules import rule as rule_named
from sdp_ref.rules.base import predicted


class Propagated(nn.Module):
    """A net whose forward pass returns the law of its output under input noise.

    It is the wrapper of Petersen et al. 2024 (supplement, "Implementations of SDP") for any rule. Its
    parameters are those of the net, and gradients reach them through the law.

    Parameters
    ----------
    net : nn.Module
        Maps a batch (B, *event) to (B, m), row by row.
    rule : str or Rule
        A name of :func:`sdp_ref.rules`, or a rule object. A rule given by name keeps the graph for gradients;
        a rule object is used as it is (for training with `sdp`, pass ``create_graph=True``).
    std : float or Tensor, broadcastable to the event
        Standard deviation of the independent Gaussian noise on inputs that are tensors, in units of the
        input.

    Examples
    --------
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> law = Propagated(net, "sdp", std=0.1)(torch.zeros(2, 4))
    >>> law.mean.shape, law.covariance.shape
    (torch.Size([2, 3]), torch.Size([2, 3, 3]))
    """

    std: Tensor

    def __init__(self, net: nn.Module, rule: str | Propagator = "sdp", std: float | Tensor = 1.0) -> None:
        super().__init__()
        if not isinstance(net, nn.Module):
            raise ValueError(f"net must be a torch module, got {type(net).__name__}")
        self.net = net
        self.rule = rule_of(rule)
        if isinstance(rule, str) and hasattr(self.rule, "create_graph"):
            self.rule = rule_named(rule, create_graph=True)
        try:
            scale = torch.as_tensor(std, dtype=torch.float64)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"std must be a number or a tensor of numbers, got {std!r}") from error
        if not bool((torch.isfinite(scale) & (scale >= 0)).all()):
            raise ValueError(f"std must be finite and >= 0, got {std!r}")
        self.register_buffer("std", scale, persistent=False)

    def forward(self, x: Tensor | Law) -> Law:
        """Predict the law of the output, of batch B.

        `x` is a tensor of shape (B, *event), to which the noise is added, or the law of the input. Raises the
        same errors as :func:`sdp_ref.propagate`.
        """
        if isinstance(x, Tensor):
            try:
                variance = self.std.square().to(x).expand(x.shape)
            except RuntimeError:
                raise ValueError(
                    f"std of shape {tuple(self.std.shape)} does not fit inputs of shape {tuple(x.shape)}"
                ) from None
            x = DiagonalGaussian(x, variance)
        return predicted(self.rule, self.net, x)

    def extra_repr(self) -> str:
        return f"rule={self.rule.name!r}"
