"""Compute the picture of the section `overview`: ``python -m tests.reports.record_distributions``."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch

import sdp_ref
from sdp_bench import oracles
from sdp_bench.bench.nets.architectures import Architecture
from sdp_bench.bench.nets.fully_connected import committed
from sdp_bench.bench.nets.net import inputs_of
from sdp_bench.bench.nets.recipes import recipe_for
from sdp_bench.reports.sections.overview.distributions import BINS, DATA, RULES, SIGMAS

ROW, OUTPUT = 108, 1
"""Example of Iris, and the class of the shown score."""
SAMPLES = 10**6
_OUTSIDE = 0.003  # share of the samples on either side of a panel


def compute(samples: int = SAMPLES, seed: int = 0) -> list[dict[str, Any]]:
    """Histogram of the true output, and mean and standard deviation of each prediction, by noise level."""
    architecture = Architecture(4, "relu")
    (trained,) = committed(architecture, recipe_for(architecture), 1)
    net, x = trained.build(), inputs_of(trained).batch([ROW]).float()
    computed = []
    for sigma in SIGMAS:
        noisy = sdp_ref.DiagonalGaussian(x, torch.full_like(x, sigma**2))
        outputs = oracles.sample_outputs(net, noisy, samples=samples, seed=seed)[:, OUTPUT].double().numpy()
        low, high = np.quantile(outputs, [_OUTSIDE, 1 - _OUTSIDE])
        counts, _ = np.histogram(outputs, BINS, (low, high))
        rules = {}
        for rule in RULES:
            law = sdp_ref.propagate(net, noisy, rule)
            rules[rule] = _rounded(law.mean[0, OUTPUT].item(), law.variance[0, OUTPUT].item() ** 0.5)
        density = _rounded(*(counts / samples / ((high - low) / BINS)))
        computed.append({"sigma": sigma, "range": _rounded(low, high), "density": density, "rules": rules})
    return computed


def _rounded(*numbers: float) -> list[float]:
    return [float(f"{number:.5g}") for number in numbers]


if __name__ == "__main__":
    DATA.write_text(json.dumps(compute()).replace("}, {", "},\n {") + "\n", encoding="utf-8")
