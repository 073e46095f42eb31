"""The speaker encoder of Resemblyzer (GE2E, Wan et al. 2018; recurrent), in the package resemblyzer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from .base import PublishedNet

_FRAMES = 40  # of 10 ms
_BANDS = 40
_SPEAKERS = 8


class Similarity(nn.Module):
    """Map mel spectra, shape (B, 40, 40), to cosine similarities with eight reference voices, (B, 8)."""

    references: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(_BANDS, 256, 3, batch_first=True)
        self.linear = nn.Linear(256, 256)
        self.register_buffer("references", torch.zeros(_SPEAKERS, 256))

    def embedding(self, mels: Tensor) -> Tensor:
        _, (hidden, _) = self.lstm(mels)
        raw = torch.relu(self.linear(hidden[-1]))
        return raw / torch.linalg.vector_norm(raw, dim=1, keepdim=True)

    def forward(self, mels: Tensor) -> Tensor:
        return self.embedding(mels) @ self.references.T


def build(weights: Path) -> nn.Module:
    state = torch.load(weights, map_location="cpu", weights_only=True)["model_state"]
    net = Similarity()
    wanted = {key: value for key, value in state.items() if key.startswith(("lstm.", "linear."))}
    net.load_state_dict(wanted, strict=False)
    with torch.no_grad():
        net.references = net.embedding(torch.from_numpy(_voices(range(_SPEAKERS), seed=1)))
    return net.eval()


def inputs() -> np.ndarray:
    """Return the voices of eight reference speakers and of two others, in other utterances."""
    return _voices(range(_SPEAKERS + 2), seed=2)


def _voices(speakers: range, seed: int) -> np.ndarray:
    """Return mel spectra with formants of each speaker that move at random, shape (speakers, 40, 40)."""
    bands = np.arange(_BANDS)
    voices = []
    for speaker in speakers:
        own = np.random.default_rng(speaker)
        formants = own.uniform([4, 12, 20], [10, 20, 32])
        widths = own.uniform(1.5, 4.0, 3)
        utterance = np.random.default_rng([seed, speaker])
        movement = np.cumsum(utterance.normal(0, 0.5, (_FRAMES, 3)), 0)
        loudness = 0.5 + 0.5 * np.sin(np.linspace(0, 6, _FRAMES) + utterance.uniform(0, 6)) ** 2
        spectrum = np.zeros((_FRAMES, _BANDS))
        for index in range(3):
            centre = formants[index] + movement[:, index]
            spectrum += np.exp(-(((bands - centre[:, None]) / widths[index]) ** 2))
        voices.append(0.02 * loudness[:, None] * spectrum + 1e-4)
    return np.stack(voices).astype(np.float32)


NET = PublishedNet(
    name="speaker",
    title="similarity of voices in audio (speaker encoder of Resemblyzer, recurrent)",
    package="resemblyzer",
    version="0.1.4",
    weights="resemblyzer/pretrained.pt",
    sha256="39373b86598fa3da9fcddee6142382efe09777e8d37dc9c0561f41f0070f134e",
    build=build,
    inputs=inputs,
    sigmas=(0.00001, 0.0001, 0.001),
    samples=1_000,
    levels="noise of 0.1, 1 and 10 % of a loud band",
    has_class=True,
    is_slow=True,
)
