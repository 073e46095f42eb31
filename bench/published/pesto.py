"""PESTO: pitch by self-supervised learning (Riou et al. 2023), in the package pesto-pitch."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from .base import PublishedNet

_BINS = 264  # of the constant-Q transform, a third of a semitone apart
_LOWEST = 27.5 * 2 ** (16 / 36)  # Hz; 16 bins are cropped on either side


class Pesto(nn.Module):
    """Map a frame of a constant-Q transform in dB, shape (B, 264), to probabilities of 384 pitches."""

    def __init__(self) -> None:
        super().__init__()
        self.layernorm = nn.LayerNorm([1, _BINS])
        self.conv1 = nn.Sequential(nn.Conv1d(1, 40, 15, padding=7), nn.LeakyReLU(0.3))
        self.prefilt_layers = nn.ModuleList([nn.Conv1d(40, 40, 15, padding=7)])
        channels = (40, 30, 30, 10, 3)
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(channels):
            layers += [nn.Conv1d(before, after, 1), nn.LeakyReLU(0.3), nn.Identity()]
        self.conv_layers = nn.Sequential(*layers)
        self.fc = nn.Conv1d(1, 1, 3 * _BINS + 384 - 1, padding=384 - 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(self.layernorm(x.unsqueeze(1)))
        x = functional.leaky_relu(self.prefilt_layers[0](x), 0.3) + x
        x = self.conv_layers(x).flatten(1)
        return functional.softmax(self.fc(x.unsqueeze(1)).squeeze(1), -1)


def build(weights: Path) -> nn.Module:
    state = torch.load(weights, map_location="cpu", weights_only=True)["state_dict"]
    prefix = "encoder."
    encoder = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
    net = Pesto()
    net.load_state_dict(encoder)
    return net.eval()


def inputs() -> np.ndarray:
    """Return spectra (dB) of ten tones with overtones that fall by 6 dB per octave, down to -60 dB."""
    frequencies = _LOWEST * 2 ** (np.arange(_BINS) / 36)
    frames = []
    for pitch in (65.4, 82.4, 110.0, 146.8, 196.0, 261.6, 330.0, 440.0, 587.3, 880.0):
        power = np.full(_BINS, 1e-6)
        for order in range(1, 9):
            bins = 36 * np.log2(frequencies / (order * pitch))
            power += np.exp(-((bins / 1.2) ** 2)) / order**2
        frames.append(10 * np.log10(power))
    return np.stack(frames).astype(np.float32)


NET = PublishedNet(
    name="pesto",
    title="pitch of an audio spectrum (PESTO)",
    package="pesto-pitch",
    version="2.0.1",
    weights="pesto/weights/mir-1k.ckpt",
    sha256="f48c355153fc2fce13393a216ff1629cdfe776b527ce11c8e879df9165e1fb3d",
    build=build,
    inputs=inputs,
    sigmas=(0.3, 1.0, 3.0),
    samples=1_000,
    levels="level errors of 0.3, 1 and 3 dB in each band",
    has_class=True,
    is_slow=True,
)
