"""NeuralMOVES: CO2 emission of a vehicle (Ramirez Sanchez et al. 2025), in the package neuralmoves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from .base import PublishedNet


def build(weights: Path) -> nn.Module:
    """Return the net from temperature, humidity, speed, acceleration and grade to CO2 in g/s."""
    state = torch.load(weights, map_location="cpu", weights_only=True)
    layers = [nn.Linear(5, 64), nn.Linear(64, 64), nn.Linear(64, 1)]
    for number, layer in enumerate(layers, 1):
        layer.load_state_dict({name: state[f"layer{number}.{name}"] for name in ("weight", "bias")})
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2]).eval()


def inputs() -> np.ndarray:
    """Return ten moments of a drive at 20 °C and 50 %: speed (m/s), acceleration (m/s²) and grade (%)."""
    moments = (
        (3.0, 1.5, 0.0),
        (8.0, 1.0, 0.0),
        (13.9, 0.5, 0.0),
        (13.9, 0.0, 0.0),
        (13.9, 0.0, 4.0),
        (13.9, -1.0, 0.0),
        (22.0, 0.5, 2.0),
        (27.8, 0.0, 0.0),
        (33.0, 0.2, -2.0),
        (5.0, -1.5, 0.0),
    )
    return np.array([(20.0, 50.0, *moment) for moment in moments], dtype=np.float32)


NET = PublishedNet(
    name="vehicle",
    title="CO2 emission of a passenger car (NeuralMOVES)",
    package="neuralmoves",
    version="0.4.0",
    weights="neuralmoves/NN_3/NN_model_2019_21_1.pt",
    sha256="f703df96089ba25fa3f566a26e280faab23c7feedc01c76fa9d5a986e2d40dad",
    build=build,
    inputs=inputs,
    noise="scales:0.5/3/0.2/0.2/0.5",
    sigmas=(0.3, 1.0, 3.0),
    samples=50_000,
    levels="0.3, 1 and 3 times the errors of sensors: 0.5 °C, 3 %, 0.2 m/s, 0.2 m/s², 0.5 % of grade",
    has_class=False,
)
