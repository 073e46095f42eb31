"""CosmoPower: spectrum of the cosmic microwave background (Spurio Mancini et al. 2022), in cosmopower-jax."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .base import PublishedNet

_MULTIPOLES = (2, 10, 30, 100, 220, 540, 1000, 2000)


class CosmoPower(nn.Module):
    """Map six cosmological parameters to log10 of the temperature spectrum at eight multipoles.

    The activation of each unit is (b + (1 - b) · logistic(a x)) x with trained a and b.
    """

    mean: Tensor
    scale: Tensor
    output_mean: Tensor
    output_scale: Tensor

    def __init__(self, stored: list[Any]) -> None:
        super().__init__()
        weights, activations, mean, scale, output_mean, output_scale = stored[:6]
        rows = [multipole - 2 for multipole in _MULTIPOLES]  # the spectrum starts at 2
        last_weight, last_bias = weights[-1]
        weights = [*weights[:-1], (last_weight[rows], last_bias[rows])]
        self.layers = nn.ModuleList()
        for weight, bias in weights:
            layer = nn.Linear(weight.shape[1], weight.shape[0])
            layer.load_state_dict({"weight": torch.as_tensor(weight), "bias": torch.as_tensor(bias)})
            self.layers.append(layer)
        self.slopes = nn.ParameterList([torch.as_tensor(a) for a, _ in activations])
        self.floors = nn.ParameterList([torch.as_tensor(b) for _, b in activations])
        self.register_buffer("mean", torch.as_tensor(mean))
        self.register_buffer("scale", torch.as_tensor(scale))
        self.register_buffer("output_mean", torch.as_tensor(output_mean[rows]))
        self.register_buffer("output_scale", torch.as_tensor(output_scale[rows]))

    def forward(self, x: Tensor) -> Tensor:
        x = (x - self.mean) / self.scale
        for layer, slope, floor in zip(self.layers[:-1], self.slopes, self.floors, strict=True):
            x = layer(x)
            x = (floor + torch.sigmoid(slope * x) * (1 - floor)) * x
        return self.layers[-1](x) * self.output_scale + self.output_mean


def build(weights: Path) -> nn.Module:
    with weights.open("rb") as file:
        stored = pickle.load(file)  # noqa: S301  the hash of the file was compared
    return CosmoPower(stored).float().eval()


def inputs() -> np.ndarray:
    """Return ten cosmologies near Planck's best fit.

    The columns are densities of baryons and of cold dark matter, Hubble constant / 100, optical depth,
    spectral index and log amplitude.
    """
    best = np.array([0.0224, 0.120, 0.674, 0.054, 0.965, 3.045])
    spread = np.array([0.001, 0.005, 0.02, 0.01, 0.02, 0.05])
    shifts = np.random.default_rng(0).uniform(-1, 1, (9, 6))
    return np.concatenate([best[None], best + spread * shifts]).astype(np.float32)


NET = PublishedNet(
    name="cosmology",
    title="spectrum of the cosmic microwave background (CosmoPower)",
    package="cosmopower-jax",
    version="0.5.8",
    weights="cosmopower_jax/trained_models/cmb_tt.pkl",
    sha256="8e601d316a76b1aba4683bf6485db4425d933b8a5d7d11f1d70ebe3f0da47b92",
    build=build,
    inputs=inputs,
    noise="scales:0.00015/0.0012/0.0054/0.0073/0.0042/0.014",
    sigmas=(1.0, 3.0, 10.0),
    samples=20_000,
    levels="1, 3 and 10 times the posterior standard deviations of Planck 2018",
    has_class=False,
)
