"""Classifiers of images and sequences: recipes, and training that is seeded, checkpointed and cached.

The random numbers of a step (images, crops and flips) depend on the seed and the step only, so an interrupted
run continues from its checkpoint as if it had never stopped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from .. import identity
from ..datasets import dataset, names
from ..datasets.base import LabelledExamples, SplitClassification
from ..errors import RunFailedError
from . import storage
from .architectures import (
    NETWORKS,
    ClassifierArchitecture,
    ImageArchitecture,
    SequenceArchitecture,
)
from .training import (
    OPTIMIZERS,
    Minibatches,
    accuracy_of,
    generator,
    numerics,
    resumed,
)


@dataclass(frozen=True)
class ImageRecipe:
    """Training of a classifier by cross-entropy on images in [0, 1], or on sequences."""

    dataset: str  # name of a set of images or sequences with classes
    parts: tuple[str, ...]  # files of the training split to use, as named by `LabelledExamples.parts`
    optimizer: str = "sgd"
    learning_rate: float = 0.1  # peak learning rate
    momentum: float = 0.9  # momentum of SGD; Adam has its own
    weight_decay: float = 5e-4
    schedule: str = "cosine"  # "cosine" decays to 0 at the last step
    warmup: float = 1.0  # epochs of linear increase to the peak rate
    epochs: int = 100
    batch_size: int = 128
    # "crop_flip": random crops of the image padded by 4, half of them mirrored
    augmentation: str = "crop_flip"
    # precision of products in training ("bfloat16": mixed). Weights and measurements are float32.
    precision: str = "float32"
    seed: int = 0  # seed of initial weights, order and augmentation

    def __post_init__(self) -> None:
        for name, choices in (
            ("dataset", names(SplitClassification)),
            ("optimizer", tuple(OPTIMIZERS)),
            ("schedule", ("constant", "cosine")),
            ("augmentation", ("none", "crop_flip")),
            ("precision", ("float32", "bfloat16")),
        ):
            if getattr(self, name) not in choices:
                raise ValueError(f"unknown {name} '{getattr(self, name)}'; choose from {', '.join(choices)}")
        if not 0 < self.learning_rate < math.inf or self.epochs < 1 or self.batch_size < 1:
            raise ValueError("learning rate, epochs and batch size must be positive and finite")
        if not (0 <= self.momentum < 1 and 0 <= self.weight_decay < math.inf and 0 <= self.warmup < math.inf):
            raise ValueError("momentum must be in [0, 1); weight decay and warm-up must not be negative")
        if not self.parts:
            raise ValueError("a recipe names the parts of the training set, got none")

    @property
    def label(self) -> str:
        """Description: ``cifar10 (data_batch_1), sgd 0.1 cosine, 100 epochs of batch 128, crop_flip``."""
        mixed = "" if self.precision == "float32" else f", {self.precision}"
        augmented = "" if self.augmentation == "none" else f", {self.augmentation}"
        return (
            f"{self.dataset} ({', '.join(self.parts)}), {self.optimizer} {self.learning_rate:g} "
            f"{self.schedule}, {self.epochs} epochs of batch {self.batch_size}{augmented}{mixed}"
        )


def default_recipe(network: str, images: str, parts: tuple[str, ...], *, short: bool = False) -> ImageRecipe:
    """Return the project's recipe for a network on a data set, with seed 0.

    SGD with momentum .9, cosine decay from .1, weight decay 5e-4, batch 128, the data set's augmentation and
    100 epochs, as for ``resnet18``, for which the paper states no recipe. Networks may override these
    (`sdp_bench.bench.nets.architectures.NETWORKS`): ``cnn3`` has the paper's recipe, Adam with rate 1e-3.
    `short` gives a recipe for a few minutes on a CPU.
    """
    entry = NETWORKS[network]
    options: dict[str, Any] = {"augmentation": "none"}
    options |= dataset(images, SplitClassification).training
    options |= entry.training
    if short:
        options |= entry.short
    return ImageRecipe(images, parts, **options)


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedClassifier(storage.SavedNet):
    """A trained classifier; `accuracy` is that on `tested_on`."""

    architecture: ClassifierArchitecture
    recipe: ImageRecipe
    # descriptions of the images
    trained_on: str
    tested_on: str
    seconds: float  # training time, over all calls

    @property
    def seed(self) -> int:
        return self.recipe.seed

    @classmethod
    def parsed(cls, about: dict[str, Any]) -> dict[str, Any]:
        recipe, architecture = about["recipe"], about["architecture"]
        about.pop("history", None)  # which older files have
        kind = SequenceArchitecture if "length" in architecture else ImageArchitecture
        return about | {
            "architecture": kind(**architecture),
            "recipe": ImageRecipe(**recipe | {"parts": tuple(recipe["parts"])}),
        }


def file_name(architecture: ClassifierArchitecture, recipe: ImageRecipe) -> str:
    """Return the file name of a classifier in the cache: readable, and unique by a hash of the recipe."""
    key = identity.digest(asdict(architecture), asdict(recipe))[:8]
    return f"{recipe.dataset}-{architecture.name}-{key}-seed{recipe.seed}.safetensors"


PADDING = 4
"""Width (pixels) of the black border from which random crops are taken."""
TEST_BATCH = 500
_STREAM = 0xC1FA  # distinguishes its random numbers from those of other trainings

Report = Callable[[int, int, str], None]
"""Callback (steps done, steps in total, text); steps count from this call, to estimate the remaining time."""


class UnfinishedError(RunFailedError):
    """Training stopped because its time was up; its checkpoint is kept."""


def checkpoint_path(architecture: ClassifierArchitecture, recipe: ImageRecipe) -> Path:
    """Return the file in the cache that an interrupted training of this classifier resumes from."""
    return (storage.cache_folder() / file_name(architecture, recipe)).with_suffix(storage.CHECKPOINT)


def get_classifier(
    architecture: ClassifierArchitecture,
    recipe: ImageRecipe,
    *,
    device: str = "cpu",
    budget: float = math.inf,
    report: Report = lambda *_: None,
) -> TrainedClassifier:
    """Return the classifier of a recipe, from the cache, or trained on the recipe's parts and cached.

    Training resumes from the checkpoint if there is one; a damaged one is renamed. It stops after `budget`
    seconds with an UnfinishedError, and the next call resumes it. `report` is called with the progress. Too
    many classes for the architecture raise a ValueError, missing images a DataMissingError, and divergence a
    RunFailedError.

    The checkpoint is written after every epoch, every two minutes, and when the time is up. On one machine
    with a fixed number of threads, an interrupted run gives bitwise equal weights (on a GPU only if its
    kernels are deterministic).
    """
    path = storage.cache_folder() / file_name(architecture, recipe)
    kind = architecture, recipe, recipe.seed
    if cached := TrainedClassifier.load(path, "cache", *kind, put_aside=True):
        return cached
    images = dataset(recipe.dataset, SplitClassification)
    data, test = images.load("train", recipe.parts), images.load("test")
    if int(max(data.labels.max(), test.labels.max())) >= architecture.classes:
        raise ValueError(f"{architecture.label} has too few classes for {data.title}")

    checkpoint = checkpoint_path(architecture, recipe)
    with numerics(tf32=True):
        run = resumed(
            checkpoint,
            lambda: _Run(architecture, recipe, data, device),
            lambda run: run.go(budget, report, checkpoint),
        )
        model = run.net.eval()
        accuracy = accuracy_of(
            lambda kept: model(test.scaled(kept).to(device)).cpu(), test.kept, test.labels, TEST_BATCH
        )
    net = TrainedClassifier(
        architecture=architecture,
        recipe=recipe,
        accuracy=accuracy,
        state={name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()},
        trained_on=data.description,
        tested_on=test.description,
        seconds=run.seconds,
    )
    storage.write(path, net.to_bytes())
    checkpoint.unlink()
    return net


def augment(pixels: Tensor, generator: torch.Generator) -> Tensor:
    """Return random crops of padded images, shape (B, C, H, W), half of them mirrored.

    The generator is on the CPU, so that images are equal on every device.
    """
    count, _, height, width = pixels.shape
    shift = torch.randint(0, 2 * PADDING + 1, (2, count, 1), generator=generator)
    mirrored = torch.rand(count, 1, generator=generator) < 0.5
    columns = torch.arange(width).expand(count, -1)
    rows = (torch.arange(height) + shift[0]).to(pixels.device)
    columns = (torch.where(mirrored, width - 1 - columns, columns) + shift[1]).to(pixels.device)
    padded = F.pad(pixels, (PADDING,) * 4)
    images = torch.arange(count, device=pixels.device)[:, None, None]
    drawn = padded[images, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
    # Contiguous even for single channels, which `contiguous` would leave unchanged. With channels last,
    # oneDNN's weight gradient of a strided 1x1 convolution with few channels writes out of bounds on
    # processors with AVX2 only (torch 2.13.0): the process crashes, or worse.
    return drawn.clone(memory_format=torch.contiguous_format)


def learning_rate(recipe: ImageRecipe, step: int, steps_an_epoch: int) -> float:
    """Return the learning rate of a step, counted from 0."""
    rate = recipe.learning_rate
    if (warm := recipe.warmup * steps_an_epoch) > 0:
        rate *= min(1.0, (step + 1) / warm)
    if recipe.schedule == "cosine":
        rate *= 0.5 * (1 + math.cos(math.pi * step / (recipe.epochs * steps_an_epoch)))
    return rate


class _Run(Minibatches):
    """The state of a training, as stored in a checkpoint."""

    def __init__(
        self, architecture: ClassifierArchitecture, recipe: ImageRecipe, data: LabelledExamples, device: str
    ) -> None:
        entropy = recipe.seed, _STREAM, 1
        super().__init__(len(data), recipe.batch_size, recipe.epochs, entropy, device)
        self.recipe, self.scaled = recipe, data.scaled
        self.kind = identity.digest(asdict(architecture), asdict(recipe))
        self.net = architecture.build(recipe.seed).to(device)
        if device.startswith("cuda"):
            self.net = self.net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        options = {"lr": recipe.learning_rate, "weight_decay": recipe.weight_decay}
        if recipe.optimizer == "sgd":
            options["momentum"] = recipe.momentum
        self.optimizer = OPTIMIZERS[recipe.optimizer](self.net.parameters(), **options)
        self.kept, self.labels = data.kept.to(device), data.labels.to(device)
        # Sum of losses, correct predictions and images of this epoch; float64 counts exactly.
        self.sums = torch.zeros(3, dtype=torch.float64, device=device)
        self.extra = {"sums": self.sums}

    def go(self, budget: float, report: Report, checkpoint: Path) -> Iterator[bool]:
        """Train to the last step, or for `budget` seconds; yields whether to save a checkpoint."""
        self.net.train()
        begun, before, first = time.monotonic(), self.seconds, self.step
        reported = begun
        while self.step < self.steps:
            if time.monotonic() - begun >= budget:
                yield True
                raise UnfinishedError(
                    f"the time is up after {self.step} of {self.steps} steps; train again to go on from "
                    f"{checkpoint}"
                )
            self.advance()
            now = time.monotonic()
            self.seconds = before + now - begun
            ended = self.step % self.steps_an_epoch == 0
            if ended or now - reported >= 1:
                reported = now
                loss, correct, count = self.sums.tolist()
                if not math.isfinite(loss):
                    raise RunFailedError(f"training diverged at step {self.step}; lower the learning rate")
                epoch = f"epoch {math.ceil(self.step / self.steps_an_epoch)}/{self.recipe.epochs}"
                text = f"{epoch}: loss {loss / count:.3f}, accuracy {correct / count:.3f}"
                report(self.step - first, self.steps - first, text)
            if ended:
                self.sums.zero_()
            yield ended

    def loss(self, rows: Tensor) -> Tensor:
        inputs, labels = self.kept[rows], self.labels[rows]
        if self.recipe.augmentation == "crop_flip":
            inputs = augment(inputs, generator(self.recipe.seed, _STREAM, 2, self.step))
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.recipe, self.step, self.steps_an_epoch)
        mixed = self.recipe.precision == "bfloat16"
        with torch.autocast(torch.device(self.device).type, torch.bfloat16, enabled=mixed):
            scores = self.net(self.scaled(inputs))
        loss = F.cross_entropy(scores.float(), labels)
        right = (scores.detach().argmax(1) == labels).sum()
        count = torch.full_like(right, len(labels))
        self.sums += torch.stack([loss.detach().double() * len(labels), right, count])
        return loss
