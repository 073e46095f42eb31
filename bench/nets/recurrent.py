"""Recurrent nets as modules of torch."""

from __future__ import annotations

from torch import Tensor, nn


class GRUClassifier(nn.Module):
    """Gated recurrent units (Cho et al. 2014), one layer, read at the last step.

    Parameters
    ----------
    features, classes, width : int
        Numbers a step, classes, and units of the state.
    """

    def __init__(self, features: int = 2, classes: int = 10, width: int = 32) -> None:
        super().__init__()
        self.gru = nn.GRU(features, width, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Sequences of shape (B, length, features) to scores of shape (B, classes)."""
        states, _ = self.gru(x)
        scores: Tensor = self.head(states[:, -1])
        return scores
