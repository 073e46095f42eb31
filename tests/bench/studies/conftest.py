"""Images made up for the studies that train classifiers, and a cache of each test."""

import pytest
import torch

from sdp_bench.bench.datasets.base import ImageClassification, LabelledExamples


def images(count, classes=10, *, first=0, seed=0, split="train", title="MNIST", channels=1):
    """A bright spot where its label says, on noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    pixels = torch.randint(0, 40, (count, channels, 8, 8), generator=generator, dtype=torch.uint8)
    for label in range(classes):
        row, column = divmod(label % 12, 4)
        pixels[labels == label, :, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2] += 200
    return LabelledExamples(title, split, pixels, labels + first, ("made up",), count)


TRAIN, TEST = images(64), images(40, seed=1, split="test")
LETTERS = images(60, 19, first=1, seed=2, split="test", title="EMNIST letters")
MADE = {("mnist", "train"): TRAIN, ("mnist", "test"): TEST, ("emnist-letters", "test"): LETTERS}


@pytest.fixture
def made_up(monkeypatch):
    monkeypatch.setattr(ImageClassification, "load", lambda self, split: MADE[self.name, split])


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Folder of trained nets."""
    monkeypatch.setenv("SDP_BENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "nets"
