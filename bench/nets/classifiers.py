"""Recipes of classifiers of images and sequences, and trained classifiers."""

from __future__ import annotations

import functools
import math
from dataclasses import asdict, dataclass, fields

from torch import Tensor, nn

from sdp_bench.bench.datasets import dataset, names
from sdp_bench.bench.datasets.base import SplitClassification
from sdp_bench.bench.identity import keys
from sdp_bench.bench.nets import storage
from sdp_bench.bench.nets.architectures import NETWORKS, ClassifierArchitecture, architecture_from

OPTIMIZERS = ("sgd", "adam")
SCHEDULES = ("constant", "cosine")
AUGMENTATIONS = ("none", "crop_flip")
PRECISIONS = ("float32", "bfloat16")


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
            ("optimizer", OPTIMIZERS),
            ("schedule", SCHEDULES),
            ("augmentation", AUGMENTATIONS),
            ("precision", PRECISIONS),
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
    own = NETWORKS[network]
    of_set = dataset(images, SplitClassification).training
    return ImageRecipe(
        images, parts, **{"augmentation": "none", **of_set, **own.training, **(own.short if short else {})}
    )


@dataclass(frozen=True)
class Epoch:
    """Mean loss and accuracy of one epoch, over its (augmented) images during training."""

    loss: float
    accuracy: float


@dataclass(frozen=True, eq=False)
class TrainedClassifier:
    """A trained classifier, with its origin and accuracy."""

    architecture: ClassifierArchitecture
    recipe: ImageRecipe
    accuracy: float  # on `tested_on`
    state: dict[str, Tensor]  # weights, on the CPU
    # descriptions of the images
    trained_on: str
    tested_on: str
    history: tuple[Epoch, ...]
    seconds: float  # training time, over all calls
    source: str = "trained"  # "trained" (now), "cache" or "committed" (with the package)

    @property
    def seed(self) -> int:
        return self.recipe.seed

    @functools.cached_property
    def digest(self) -> str:
        """Hash of architecture and weights, 16 hexadecimal digits."""
        return keys.digest(asdict(self.architecture), self.state)[:16]

    def build(self) -> nn.Module:
        """Return the net in evaluation mode, float32."""
        net = self.architecture.build()
        net.load_state_dict(self.state)
        return net

    def to_bytes(self) -> bytes:
        """Return a safetensors file, with everything but the weights in its metadata."""
        # Fields only: cached properties such as the digest are not part of the file.
        names = (each.name for each in fields(self) if each.name not in ("state", "source"))
        about = {name: getattr(self, name) for name in names}
        about |= {
            "architecture": asdict(self.architecture),
            "recipe": asdict(self.recipe),
            "history": [asdict(epoch) for epoch in self.history],
        }
        return storage.to_file(self.state, about)

    @classmethod
    def from_bytes(cls, content: bytes, source: str) -> TrainedClassifier:
        """Inverse of `to_bytes`; a ValueError for any other content."""
        try:
            state, about = storage.from_file(content)
            about["recipe"]["parts"] = tuple(about["recipe"]["parts"])
            return cls(
                architecture=architecture_from(about.pop("architecture")),
                recipe=ImageRecipe(**about.pop("recipe")),
                history=tuple(Epoch(**epoch) for epoch in about.pop("history")),
                state=state,
                source=source,
                **about,
            )
        except Exception as error:
            raise ValueError(f"not a classifier of this suite ({error})") from error


def taken(
    content: bytes, kind: tuple[ClassifierArchitecture, ImageRecipe] | None = None, source: str = "cache"
) -> TrainedClassifier:
    """Return the classifier in a file; a ValueError if it is not of this `kind`, if given."""
    found = TrainedClassifier.from_bytes(content, source)
    if kind is not None and kind != (found.architecture, found.recipe):
        raise ValueError("it is of another recipe")
    storage.check_weights(found.build())
    return found


def file_name(architecture: ClassifierArchitecture, recipe: ImageRecipe) -> str:
    """Return the file name of a classifier in the cache: readable, and unique by a hash of the recipe."""
    key = keys.digest(asdict(architecture), asdict(recipe))[:8]
    return f"{recipe.dataset}-{architecture.name}-{key}-seed{recipe.seed}.safetensors"
