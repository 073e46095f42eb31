"""Images as tokens."""

from __future__ import annotations

from torch import Tensor, nn

GRID = 4


class Patches(nn.Module):
    """A grid of 4 x 4 patches without overlap, each mapped to a token (Dosovitskiy et al. 2021)."""

    def __init__(self, channels: int, size: int, width: int) -> None:
        super().__init__()
        self.projection = nn.Conv2d(channels, width, size // GRID, stride=size // GRID)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, channels, size, size) to tokens (B, 16, width)."""
        tokens: Tensor = self.projection(x)[:, :, :GRID, :GRID].flatten(2).mT
        return tokens


def mlp(inputs: int, hidden: int) -> nn.Sequential:
    """Return two linear maps with GELU between them and equal input and output size."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, inputs))
