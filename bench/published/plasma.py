"""QLKNN 7-11: turbulent transport in a tokamak (van de Plassche et al. 2020), in fusion-surrogates."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from .base import PublishedNet


class Fluxes(nn.Module):
    """Map plasma parameters, shape (B, 10), to seven fluxes and a growth rate, shape (B, 8)."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat(list(self.model(x)), 1)


def build(model: nn.Module) -> nn.Module:
    return Fluxes(model).eval()


def inputs() -> np.ndarray:
    """Return operating points from core to edge of a tokamak.

    The columns are normalised gradients of ion and electron temperature and of electron and ion density,
    safety factor, magnetic shear, normalised radius, ratio of temperatures, logarithm of collisionality, and
    ratio of densities.
    """
    radius = np.linspace(0.3, 0.85, 10)
    columns = [
        6 + 3 * radius,
        6 + 2.5 * radius,
        1 + 2 * radius,
        1 + 1.8 * radius,
        1 + 2.5 * radius**2,
        2 * radius**1.5,
        radius,
        1.2 - 0.2 * radius,
        -2 + 1.5 * radius,
        0.9 - 0.05 * radius,
    ]
    return np.stack(columns, 1).astype(np.float32)


NET = PublishedNet(
    name="plasma",
    title="turbulent fluxes in a tokamak (QLKNN 7-11)",
    package="fusion-surrogates",
    version="0.4.7",
    weights="fusion_surrogates/qlknn/models/qlknn_7_11.onnx",
    sha256="66a48bd1ec8c43ed7897759577824132dee72253741ebb04c3a34269cb1bd845",
    build=build,
    inputs=inputs,
    noise="scales:0.5/0.5/0.2/0.2/0.1/0.1/0.01/0.05/0.2/0.02",
    sigmas=(0.3, 1.0, 3.0),
    samples=20_000,
    levels="0.3, 1 and 3 times the errors of fitted profiles: 0.5 in gradients of temperature",
    has_class=False,
)
