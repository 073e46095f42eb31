"""Silero VAD: the probability of speech in four consecutive chunks of audio, in the package silero-vad."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from .base import PublishedNet

_RATE = 16000  # Hz
_CONTEXT = 64  # samples of the previous chunk
_CHUNK = 512  # samples
_CHUNKS = 4
_FREQUENCIES = 129


class Silero(nn.Module):
    """Map audio, shape (B, 64 + 4 · 512), to the probability of speech in its last chunk, shape (B, 1).

    The state of the recurrent cell starts at zero and runs through the chunks.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stft_conv = nn.Conv1d(1, 2 * _FREQUENCIES, 256, stride=128, bias=False)
        self.conv1 = nn.Conv1d(_FREQUENCIES, 128, 3, padding=1)
        self.conv2 = nn.Conv1d(128, 64, 3, stride=2, padding=1)
        self.conv3 = nn.Conv1d(64, 64, 3, stride=2, padding=1)
        self.conv4 = nn.Conv1d(64, 128, 3, padding=1)
        self.lstm_cell = nn.LSTMCell(128, 128)
        self.final_conv = nn.Conv1d(128, 1, 1)

    def forward(self, audio: Tensor) -> Tensor:
        hidden = cell = audio.new_zeros(len(audio), 128)
        for chunk in range(_CHUNKS):
            start = chunk * _CHUNK
            features = self._features(audio[:, start : start + _CONTEXT + _CHUNK])
            hidden, cell = self.lstm_cell(features, (hidden, cell))
        return torch.sigmoid(self.final_conv(functional.relu(hidden).unsqueeze(-1))).mean(2)

    def _features(self, x: Tensor) -> Tensor:
        spectrum = self.stft_conv(functional.pad(x.unsqueeze(1), (0, 64), "reflect"))
        real, imaginary = spectrum[:, :_FREQUENCIES], spectrum[:, _FREQUENCIES:]
        x = (real**2 + imaginary**2).sqrt()
        for convolution in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = functional.relu(convolution(x))
        return x.squeeze(-1)


def build(weights: Path) -> nn.Module:
    net = Silero()
    net.load_state_dict(load_file(weights))
    return net.eval()


def inputs() -> np.ndarray:
    """Return five vowels with formants, at several pitches, and five other sounds, with RMS 0.1."""
    time = np.arange(_CONTEXT + _CHUNKS * _CHUNK) / _RATE
    formants = ((730, 1090, 2440), (270, 2290, 3010), (300, 870, 2240), (530, 1840, 2480), (570, 840, 2410))
    pitches = (110.0, 130.0, 200.0, 220.0, 160.0)
    sounds = [_vowel(time, pitch, peaks) for pitch, peaks in zip(pitches, formants, strict=True)]
    generator = np.random.default_rng(0)
    hiss = generator.standard_normal(len(time))
    sounds += [
        np.sin(2 * np.pi * 440 * time),  # a tone
        np.sin(2 * np.pi * (200 * time + 9000 * time**2)),  # a chirp
        hiss,
        np.cumsum(hiss) - np.linspace(0, hiss.sum(), len(hiss)),  # a rumble
        np.sin(2 * np.pi * 1000 * time) * np.exp(-60 * time),  # a click
    ]
    values = np.stack(sounds)
    return (0.1 * values / np.sqrt((values**2).mean(1, keepdims=True))).astype(np.float32)


def _vowel(time: np.ndarray, pitch: float, formants: tuple[int, ...]) -> np.ndarray:
    """Return a harmonic sound with resonances (Hz) of 80 Hz width, rising in pitch by 10 % per second."""
    phase = 2 * np.pi * pitch * (time + 0.05 * time**2)
    vowel = np.zeros_like(time)
    for order in range(1, int(4000 / pitch)):
        distance = [(order * pitch - formant) / 80 for formant in formants]
        vowel += sum(1 / (1 + d**2) for d in distance) * np.sin(order * phase) / order**0.5
    return vowel


NET = PublishedNet(
    name="silero",
    title="probability of speech in audio (Silero VAD, recurrent)",
    package="silero-vad",
    version="6.2.3",
    weights="silero_vad/data/silero_vad_16k.safetensors",
    sha256="c59271c284ae9c8335d795d60e0bfdb71aaaceec578d9bd9ffc1b8153c319ea1",
    build=build,
    inputs=inputs,
    sigmas=(0.0001, 0.001, 0.01),
    samples=5_000,
    levels="signal-to-noise ratios of 60, 40 and 20 dB",
    has_class=False,
)
