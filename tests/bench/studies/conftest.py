"""Images made up for the studies that train classifiers, and a cache of each test."""

import pytest
import torch
from torch import nn

from sdp_bench.bench.datasets.base import ImageClassification, LabelledExamples
from sdp_bench.bench.studies.uci import stacked


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


def copy_of(nets, index):
    """Net `index` of a stack as torch has it, and the logarithm of its input variance."""
    net = nn.Sequential(
        nn.Linear(nets.weight.shape[2], stacked.HIDDEN),
        nn.ReLU(),
        nn.Linear(stacked.HIDDEN, nets.second.shape[1]),
    ).double()
    with torch.no_grad():
        net[0].weight.copy_(nets.weight[index])
        net[0].bias.copy_(nets.bias[index, :, 0])
        net[2].weight.copy_(nets.second[index])
        net[2].bias.copy_(nets.offset[index, :, 0])
    return net, nn.Parameter(nets.log_variance[index].flatten().clone())
