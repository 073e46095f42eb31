"""NeuralFoil: lift, drag and moment of an airfoil (Sharpe 2024), in the package neuralfoil."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from .base import PublishedNet


class NeuralFoil(nn.Module):
    """Map operating points, shape (B, 20), to lift, logarithm of drag, and moment, shape (B, 3).

    The inputs are eight weights of the upper and eight of the lower surface (Kulfan's parameters), weight of
    the leading edge, thickness of the trailing edge in % of the chord, angle of attack in degrees, and the
    logarithm of the Reynolds number. Transition is free, at N_crit = 9. As in the package, the mean of the
    net at the airfoil and at its mirror image is returned.
    """

    def __init__(self, state: dict[str, Tensor]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for key, weight in state.items():
            if key.endswith(".weight"):
                layer = nn.Linear(weight.shape[1], weight.shape[0])
                layer.load_state_dict({"weight": weight, "bias": state[key.replace("weight", "bias")]})
                layers += [layer, nn.SiLU()]
        self.net = nn.Sequential(*layers[:-1])

    def forward(self, x: Tensor) -> Tensor:
        upper, lower = x[:, :8], x[:, 8:16]
        edge, thickness, degrees, reynolds = x[:, 16:17], x[:, 17:18], x[:, 18:19], x[:, 19:20]
        angle = torch.deg2rad(degrees)
        flow = [torch.cos(angle), torch.sin(angle) ** 2, (reynolds - 12.5) / 3.5]
        rest = [*flow, torch.zeros_like(edge), torch.ones_like(edge), torch.ones_like(edge)]
        sine = torch.sin(2 * angle)
        upright = self.net(torch.cat([upper, lower, edge, 0.5 * thickness, sine, *rest], 1))
        mirrored = self.net(torch.cat([-lower, -upper, -edge, 0.5 * thickness, -sine, *rest], 1))
        lift = (upright[:, 1] - mirrored[:, 1]) / 4
        log_drag = upright[:, 2] + mirrored[:, 2] - 4
        moment = (upright[:, 3] - mirrored[:, 3]) / 40
        return torch.stack([lift, log_drag, moment], 1)


def build(weights: Path) -> nn.Module:
    with np.load(weights) as arrays:
        state = {key: torch.from_numpy(arrays[key]) for key in arrays.files}
    return NeuralFoil(state).eval()


def inputs() -> np.ndarray:
    """Return two airfoils, about NACA 0012 and NACA 2412, at five angles of attack from -2 to 14 degrees."""
    symmetric = [0.17, 0.15, 0.17, 0.13, 0.16, 0.13, 0.15, 0.14]
    upper = [0.20, 0.22, 0.23, 0.20, 0.22, 0.20, 0.20, 0.20]
    lower = [-0.14, -0.08, -0.10, -0.06, -0.09, -0.06, -0.08, -0.08]
    shapes = ([*symmetric, *(-value for value in symmetric), 0.0, 0.25], [*upper, *lower, 0.0, 0.25])
    angles = (-2.0, 2.0, 6.0, 10.0, 14.0)
    points = [[*shape, degrees, np.log(1e6)] for shape in shapes for degrees in angles]
    return np.array(points, dtype=np.float32)


_SHAPE_ERROR = "0.002"  # of a measured weight
_ERRORS = "/".join([*[_SHAPE_ERROR] * 17, "0.02", "0.1", "0.02"])

NET = PublishedNet(
    name="airfoil",
    title="lift, drag and moment of an airfoil (NeuralFoil)",
    package="neuralfoil",
    version="0.3.3",
    weights="neuralfoil/nn_weights_and_biases/nn-large.npz",
    sha256="5887776003b3964db4615867565b33a68db3304e2cb4350f60372c2068a91c52",
    build=build,
    inputs=inputs,
    noise=f"scales:{_ERRORS}",
    sigmas=(1.0, 3.0, 10.0),
    samples=20_000,
    levels="1, 3 and 10 times the errors of a wind tunnel: 0.1 degrees, 2 % of the Reynolds number, shape",
    has_class=False,
)
