"""Images made up for the tests of experiments that train classifiers."""

import torch

from sdp_bench.bench.datasets.base import LabelledExamples


def images(count, classes=10, *, first=0, seed=0, split="train", title="MNIST", channels=1):
    """A bright spot whose place is its label's, on noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    pixels = torch.randint(0, 40, (count, channels, 8, 8), generator=generator, dtype=torch.uint8)
    for label in range(classes):
        row, column = divmod(label % 12, 4)
        pixels[labels == label, :, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2] += 200
    return LabelledExamples(title, split, pixels, labels + first, ("made up",), count)
