"""The nets of the suites: fully connected ones of equal hidden width."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "sigmoid": nn.Sigmoid,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
    "tanh": nn.Tanh,
}
LEAKY_SLOPE = 0.1
"""Negative slope of the paper's Leaky-ReLU nets."""


@dataclass(frozen=True)
class Architecture:
    """A fully connected net.

    Parameters
    ----------
    depth : int
        Number of hidden layers, each followed by the activation.
    activation : str
        One of :data:`ACTIVATIONS`.
    width, inputs, outputs : int

    Raises
    ------
    ValueError
        If the activation is unknown or a size is not positive.
    """

    depth: int
    activation: str = "relu"
    width: int = 100
    inputs: int = 4
    outputs: int = 3

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"unknown activation '{self.activation}'; choose from {', '.join(ACTIVATIONS)}")
        if min(self.depth, self.width, self.inputs, self.outputs) < 1:
            raise ValueError(f"depth and widths must be positive, got {self}")

    @property
    def widths(self) -> tuple[int, ...]:
        """Layer widths from input to output."""
        return (self.inputs, *[self.width] * self.depth, self.outputs)

    @property
    def label(self) -> str:
        """Widths as the paper writes them, ``4-100-100-3``."""
        return "-".join(map(str, self.widths))

    def build(self) -> nn.Sequential:
        """A net of this architecture, with torch's own initial weights."""
        layers: list[nn.Module] = []
        for n, m in zip(self.widths[:-1], self.widths[1:], strict=True):
            layers += [nn.Linear(n, m), self._activation()]
        return nn.Sequential(*layers[:-1]).eval()

    def _activation(self) -> nn.Module:
        kind = ACTIVATIONS[self.activation]
        return nn.LeakyReLU(LEAKY_SLOPE) if kind is nn.LeakyReLU else kind()
