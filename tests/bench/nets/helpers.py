"""Small image classifiers and made-up images to train them on."""

import torch

from sdp_bench.bench.datasets.base import LabelledExamples
from sdp_bench.bench.nets.architectures import ImageArchitecture
from sdp_bench.bench.nets.classifiers import ImageRecipe, TrainedClassifier

RESNET = ImageArchitecture("resnet18", 1, 8, classes=3, width=4)
RECIPE = ImageRecipe("mnist", ("made up",), learning_rate=0.05, epochs=3, batch_size=16, warmup=0.5)


def images(count, seed=0):
    """A bright square in one of three places, on noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    pixels = torch.randint(0, 60, (count, 1, 8, 8), generator=generator, dtype=torch.uint8)
    for index in range(3):
        pixels[labels == index, :, 2 : 5 + index, index : index + 3] += 150
    return LabelledExamples("Squares", "train", pixels, labels, ("made up",), 100)


DATA, TEST = images(40), images(30, seed=1)


def classifier(accuracy, seed=0):
    state = RESNET.build(seed).state_dict()
    return TrainedClassifier(
        architecture=RESNET,
        recipe=RECIPE,
        accuracy=accuracy,
        state=state,
        trained_on="squares",
        tested_on="squares",
        seconds=1.0,
    )
