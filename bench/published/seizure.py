"""Seizure detection in EEG (convolutions and a bidirectional LSTM, in ONNX): brainmaze-eeg-models."""

from __future__ import annotations

import numpy as np
from torch import Tensor, nn

from .base import PublishedNet

_RATE = 256  # Hz
_SECONDS = 10.5  # 20 columns of the spectrogram
_BINS = 100  # of 1 Hz


class Middle(nn.Module):
    """Map spectrograms, shape (B, 100, 20), to four logits in the middle of the window, shape (B, 4).

    The classes are background, artefact, epileptiform discharge and seizure.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        logits, _ = self.model(x)
        return logits[x.shape[2] // 2]


def build(model: nn.Module) -> nn.Module:
    return Middle(model).eval()


def inputs() -> np.ndarray:
    """Return spectrograms of five windows of pink noise with alpha rhythm and of five with discharges."""
    time = np.arange(int(_SECONDS * _RATE)) / _RATE
    generator = np.random.default_rng(0)
    frequencies = np.fft.rfftfreq(len(time), 1 / _RATE)
    frequencies[0] = 1
    signals = []
    for index in range(10):
        phases = np.exp(2j * np.pi * generator.uniform(size=len(frequencies)))
        pink = np.fft.irfft(phases / np.sqrt(frequencies), len(time))
        signal = pink / pink.std() + np.sin(2 * np.pi * 10 * time)
        if index >= 5:  # discharges at 3 to 5 Hz that grow
            cycle = (generator.uniform(3, 5) * time) % 1
            signal += (1 + time) * np.exp(-30 * cycle)
        signals.append(signal)
    return np.stack([_spectrogram(signal) for signal in signals]).astype(np.float32)


def _spectrogram(signal: np.ndarray) -> np.ndarray:
    """Return power in 1 s windows every 0.5 s, standardised over time in each bin, as in the package."""
    from scipy.signal import spectrogram

    standard = (signal - signal.mean()) / signal.std()
    _, _, power = spectrogram(standard, _RATE, nperseg=_RATE, noverlap=_RATE // 2)
    power = power[:_BINS]
    return (power - power.mean(1, keepdims=True)) / power.std(1, keepdims=True)


NET = PublishedNet(
    name="seizure",
    title="seizure in an EEG (brainmaze, recurrent)",
    package="brainmaze-eeg-models",
    version="0.1.0",
    weights="brainmaze_eeg_models/seizure/_models/modelA_paper.onnx",
    sha256="088c815a10b54435432a0bef2629977d59e655a0c60b48a89e744aa52b6d48e3",
    build=build,
    inputs=inputs,
    sigmas=(0.01, 0.1, 0.5),
    samples=1_000,
    levels="noise of 1, 10 and 50 % of a bin's standard deviation over time",
    has_class=True,
    is_slow=True,
)
