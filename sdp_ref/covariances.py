"""Covariances of a net's outputs with its inputs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sdp_ref.graph.trace import Net
from sdp_ref.laws import Law, law_of
from sdp_ref.rules.base import Propagator, propagate


def input_covariance(net: Net, x: Law, rule: str | Propagator = "sdp") -> Tensor:
    """Return the covariances of inputs and outputs under a rule with a full covariance, shape (B, n, m).

    `x` is the law of the inputs, with n components, and `net` has m outputs. The rule propagates through the
    net that returns its inputs and its outputs together. For `sdp` the result is the covariance of the inputs
    times the transposed Jacobian.
    """
    x = law_of(x)
    count = x.event_shape.numel()
    covariance: Tensor = propagate(_WithInputs(net), x, rule).covariance
    return covariance[:, :count, count:]


class _WithInputs(nn.Module):
    def __init__(self, net: Net) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x.flatten(1), self.net(x)], 1)
