"""Classifiers of images and sequences: the recipe of one, and one that has been trained by it."""

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
    """How a classifier is trained, by cross-entropy on images in [0, 1], or on sequences.

    Parameters
    ----------
    dataset : str
        Name of a set of images or sequences with classes.
    parts : tuple of str
        Files of the training split that are used, as `LabelledExamples.parts` names them.
    optimizer : {"sgd", "adam"}
    learning_rate : float
        At its highest.
    momentum : float
        Of SGD; Adam has its own.
    weight_decay : float
    schedule : {"constant", "cosine"}
        "cosine" goes to 0 at the last step.
    warmup : float
        Epochs in which the rate rises linearly to its height.
    epochs, batch_size : int
    augmentation : {"none", "crop_flip"}
        "crop_flip": random crops of the image padded by 4, mirrored in half of the cases.
    precision : {"float32", "bfloat16"}
        Of the products in training ("bfloat16": mixed); the weights, and all that is measured on
        them, are float32.
    seed : int
        Of initial weights, order and augmentation.

    Raises
    ------
    ValueError
        If an option is unknown or out of range.
    """

    dataset: str
    parts: tuple[str, ...]
    optimizer: str = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    schedule: str = "cosine"
    warmup: float = 1.0
    epochs: int = 100
    batch_size: int = 128
    augmentation: str = "crop_flip"
    precision: str = "float32"
    seed: int = 0

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
        """In few words: ``cifar10 (data_batch_1), sgd 0.1 cosine, 100 epochs of batch 128, crop_flip``."""
        mixed = "" if self.precision == "float32" else f", {self.precision}"
        augmented = "" if self.augmentation == "none" else f", {self.augmentation}"
        return (
            f"{self.dataset} ({', '.join(self.parts)}), {self.optimizer} {self.learning_rate:g} "
            f"{self.schedule}, {self.epochs} epochs of batch {self.batch_size}{augmented}{mixed}"
        )


def default_recipe(network: str, images: str, parts: tuple[str, ...], *, short: bool = False) -> ImageRecipe:
    """The project's own recipe for a network on a set.

    SGD with momentum .9, cosine from .1, weight decay 5e-4, batch 128, what the set says of augmentation and
    100 epochs, as for ``resnet18``, of which the paper says nothing; but for what the network says of its own
    (:data:`sdp_bench.bench.nets.architectures.NETWORKS`): ``cnn3`` has the paper's recipe, Adam 1e-3.
    `short` is for a CPU and minutes.

    Returns
    -------
    ImageRecipe
        With seed 0.
    """
    own = NETWORKS[network]
    of_set = dataset(images, SplitClassification).training
    return ImageRecipe(
        images, parts, **{"augmentation": "none", **of_set, **own.training, **(own.short if short else {})}
    )


@dataclass(frozen=True)
class Epoch:
    """One epoch of training: mean loss and accuracy over its (augmented) images as they were met."""

    loss: float
    accuracy: float


@dataclass(frozen=True, eq=False)
class TrainedClassifier:
    """A trained classifier, where it came from and how well it learned.

    Attributes
    ----------
    architecture : ClassifierArchitecture
    recipe : ImageRecipe
    accuracy : float
        On `tested_on`.
    state : dict of str to Tensor
        Weights, on the CPU.
    trained_on, tested_on : str
        Descriptions of the images.
    history : tuple of Epoch
    seconds : float
        Spent in training, over all calls that it took.
    source : str
        "trained" (now), "cache" or "committed" (with the package).
    """

    architecture: ClassifierArchitecture
    recipe: ImageRecipe
    accuracy: float
    state: dict[str, Tensor]
    trained_on: str
    tested_on: str
    history: tuple[Epoch, ...]
    seconds: float
    source: str = "trained"

    @property
    def seed(self) -> int:
        """Seed of the recipe."""
        return self.recipe.seed

    @functools.cached_property
    def digest(self) -> str:
        """Hash of architecture and weights, 16 hexadecimal digits."""
        return keys.digest(asdict(self.architecture), self.state)[:16]

    def build(self) -> nn.Module:
        """The net itself, in evaluation mode, float32."""
        net = self.architecture.build()
        net.load_state_dict(self.state)
        return net

    def to_bytes(self) -> bytes:
        """As a safetensors file with all that is not weights in its metadata."""
        # Fields alone: what is worked out once and kept, such as the digest, is no part of the file.
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
        """Inverse of :meth:`to_bytes`.

        Raises
        ------
        ValueError
            If `content` is not such a file.
        """
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
    """Classifier in a file.

    Parameters
    ----------
    content : bytes
    kind : (ClassifierArchitecture, ImageRecipe), optional
        Which it must be.
    source : {"cache", "committed"}
        Where the file is.

    Raises
    ------
    ValueError
        If it is another, or its weights are not those of a classifier.
    """
    found = TrainedClassifier.from_bytes(content, source)
    if kind is not None and kind != (found.architecture, found.recipe):
        raise ValueError("it is of another recipe")
    storage.check_weights(found.build())
    return found


def file_name(architecture: ClassifierArchitecture, recipe: ImageRecipe) -> str:
    """Name under which a classifier is cached: readable, and unique by a hash of the recipe."""
    key = keys.digest(asdict(architecture), asdict(recipe))[:8]
    return f"{recipe.dataset}-{architecture.name}-{key}-seed{recipe.seed}.safetensors"
