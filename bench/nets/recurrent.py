"""Recurrent nets."""

from __future__ import annotations

from torch import Tensor, nn


class GRUClassifier(nn.Module):
    """One layer of gated recurrent units (Cho et al. 2014); the last state gives the scores."""

    def __init__(self, features: int = 2, classes: int = 10, width: int = 32) -> None:
        super().__init__()
        self.gru = nn.GRU(features, width, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map sequences (B, length, features) to scores (B, classes)."""
        states, _ = self.gru(x)
        scores: Tensor = self.head(states[:, -1])
        return scores
