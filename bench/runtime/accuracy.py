"""Accuracy of each rule, tracked by asv: errors of the outputs' marginal laws, lower is better."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

import sdp_ref as sr

from .workloads import Workload

SAMPLES = 2**17
BINS = 20
NOISE = 0.5
"""Standard deviation of the input noise, at which the rules differ."""


class Accuracy:
    """A rule's Gaussian marginals against samples of f(x + eps), on nets with a seed's initial weights.

    The last figures are noise of the sampling, the same in every run of one version of torch: an
    exact rule shows about .002 as error of the standard deviation.
    """

    param_names: ClassVar = ["net", "rule"]
    params: ClassVar = [
        ["mlp-1x100", "mlp-4x100"],
        ["sdp", "marginal_sdp", "dvia", "moment_matching", "marginal_moment_matching"],
    ]
    timeout = 300
    samples: Tensor
    """Of the outputs, sorted: shape (SAMPLES, m)."""
    mean: Tensor
    deviation: Tensor
    """The rule's, shape (m,)."""

    def setup(self, net: str, rule: str) -> None:
        """Sample the true law and predict it; what a rule cannot do is skipped."""
        torch.set_num_threads(1)
        workload = Workload.of(net, 1)
        x = workload.inputs.double()
        noise = torch.full_like(x, NOISE**2)
        generator = torch.Generator().manual_seed(1)
        draws = NOISE * torch.randn(SAMPLES, *x.shape[1:], generator=generator, dtype=x.dtype)
        with torch.no_grad():
            law: Any = sr.propagate(workload.net.double(), sr.DiagonalGaussian(x, noise), rule)
            self.mean, self.deviation = law.location[0], law.variance[0].sqrt()
            self.samples = workload.net(x + draws).sort(0).values

    def track_standard_deviation_error(self, *_params: str) -> float:
        """Mean over outputs of abs(sd / true sd - 1)."""
        return float((self.deviation / self.samples.std(0) - 1).abs().mean())

    def track_total_variation(self, *_params: str) -> float:
        """Mean over outputs of the total variation on bins of equal true mass."""
        inner = self.samples[SAMPLES // BINS :: SAMPLES // BINS][: BINS - 1]
        below = torch.special.ndtr((inner - self.mean) / self.deviation)
        ends = below.new_zeros(1, below.shape[1])
        masses = torch.cat([ends, below, ends + 1]).diff(dim=0)
        return float((masses - 1 / BINS).abs().sum(0).mean() / 2)

    def track_wasserstein(self, *_params: str) -> float:
        """Mean over outputs of the W1 distance, in true standard deviations."""
        levels = (torch.arange(SAMPLES, dtype=self.samples.dtype) + 0.5) / SAMPLES
        quantiles = self.mean + self.deviation * torch.special.ndtri(levels).unsqueeze(1)
        return float(((quantiles - self.samples).abs().mean(0) / self.samples.std(0)).mean())
