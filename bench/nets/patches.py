"""Images as tokens."""

from __future__ import annotations

from torch import Tensor, nn

GRID = 4
"""Patches along a side of an image."""


class Patches(nn.Module):
    """A grid of 4 x 4 patches without overlap, each mapped to a token (Dosovitskiy et al. 2021).

    Parameters
    ----------
    channels, size, width : int
        Of the images, which are square, and of a token.
    """

    def __init__(self, channels: int, size: int, width: int) -> None:
        super().__init__()
        self.projection = nn.Conv2d(channels, width, size // GRID, stride=size // GRID)

    def forward(self, x: Tensor) -> Tensor:
        """Images of shape (B, channels, size, size) to tokens of shape (B, 16, width)."""
        tokens: Tensor = self.projection(x)[:, :, :GRID, :GRID].flatten(2).mT
        return tokens


def mlp(inputs: int, hidden: int) -> nn.Sequential:
    """Two linear maps with GELU between them, back to as many units."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, inputs))
