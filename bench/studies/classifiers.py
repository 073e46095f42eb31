"""Training of image classifiers with or without propagated laws: checkpointed and cached."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from sdp_ref import losses
from sdp_ref.rules import SDP, MarginalSDP, Rule
from sdp_ref.rules.base import predicted

from ..datasets import dataset
from ..datasets.base import ImageClassification
from ..errors import RunFailedError, UserError
from ..experiments.replicates import Number, ReplicateExperiment, ReplicateGroup
from ..experiments.versions import of_method
from ..identity import SeedRoot, digest
from ..nets import storage
from ..nets.architectures import Architecture, ImageArchitecture
from ..nets.training import Minibatches, numerics, trained
from ..noise import GAUSSIAN, Noise

if TYPE_CHECKING:
    from ..settings import Settings

BATCH = 128
CLASSES = 10
IN_TURN = ", classes in turn"
START = -7.0
"""Initial raw parameters of the two constants of a Dirichlet output (Gast & Roth 2018)."""


@dataclass(frozen=True)
class Objective:
    """The training objective of a classifier."""

    name: str  # "softmax" and "dirichlet" select these likelihoods; every other name has the pairwise loss
    rule: Rule | None = None  # rule that propagates a law in training
    sigma: float = 0.0  # scale of the noise; on the input, in units of pixels in [0, 1]
    noise: Noise = GAUSSIAN  # family of the noise
    skipped: int = 0  # number of modules before the noise
    learning_rate: float = 1e-3  # Adam's learning rate

    def at(self, scales: Iterable[float]) -> Iterator[Objective]:
        """Yield the objective at some noise scales, or itself if it has no noise."""
        yield from (replace(self, sigma=scale) for scale in scales) if self.rule else [self]

    @property
    def label(self) -> str:
        """Short description: ``pairwise_gaussian, sdp at gaussian:sigma=0.1``."""
        if not self.rule:
            return self.name
        position = f" after {self.skipped} modules" if self.skipped else ""
        return f"{self.name}, {self.rule.spec} at {self.noise.label(self.sigma)}{position}"

    def law(self, net: nn.Sequential, pixels: Tensor) -> Any:
        """Return the law of scores of noisy `pixels`, (B, C, H, W), of the family of the noise.

        It is differentiable in pixels and weights. The objective must have a rule.
        """
        rule: Any = replace(self.rule, create_graph=True) if isinstance(self.rule, SDP) else self.rule
        if self.skipped:
            pixels, net = net[: self.skipped](pixels), cast(nn.Sequential, net[self.skipped :])
        return predicted(rule, net, self.noise.law(pixels, self.sigma))

    def location(self, net: nn.Sequential, pixels: Tensor) -> Tensor:
        """Return the location of the law of the scores, (B, m); most rules give the net's own value."""
        if self.rule is None or isinstance(self.rule, SDP | MarginalSDP):
            return net(pixels)
        return self.law(net, pixels).location

    def assess(
        self,
        net: nn.Sequential,
        pixels: Tensor,
        labels: Tensor,
        constants: tuple[Tensor | float, Tensor | float],
        reduction: Literal["mean", "none"] = "none",
    ) -> tuple[Tensor, Tensor]:
        """Return the locations of the scores, (B, m), and losses, (B,), or their mean.

        `constants` are offset and slope of a Dirichlet output.
        """
        if not self.rule:
            scores = net(pixels)
            return scores, F.cross_entropy(scores, labels, reduction=reduction)
        law = self.law(net, pixels)
        if self.name == "dirichlet":
            return law.location, losses.dirichlet_nll(law, labels, *constants, reduction=reduction)
        return law.location, losses.pairwise_loss(law, labels, reduction)


@dataclass(frozen=True, eq=False)
class TrainingImages:
    """Training images; a UserError if labels are out of range or of fewer than two classes.

    `network` is that of the net to train: "cnn3", the paper's 3-layer CNN, or "mlp", a fully connected net of
    five layers, 784-256-256-256-256-10 for images of 28x28 pixels.
    """

    pixels: Tensor  # shape (N, C, H, H), uint8
    labels: Tensor  # shape (N,), int64
    network: str = "cnn3"

    def __post_init__(self) -> None:
        check_labels(self.labels)
        if bool((self.labels == self.labels[0]).all()):
            raise UserError("the images are all of one class; a classifier needs two")

    @property
    def architecture(self) -> Architecture | ImageArchitecture:
        """Four hidden layers of 256 ReLU units for "mlp", otherwise the named network of 64 channels."""
        channels, size, _ = self.pixels.shape[1:]
        if self.network == "mlp":
            return Architecture(4, width=256, inputs=channels * size**2, outputs=CLASSES)
        return ImageArchitecture(self.network, channels, size, CLASSES)

    def build(self, seed: int) -> nn.Sequential:
        """Return a net for these images; `seed` determines its initial weights."""
        architecture = self.architecture
        if isinstance(architecture, ImageArchitecture):
            return cast(nn.Sequential, architecture.build(seed))  # like cnn3
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return nn.Sequential(nn.Flatten(), *architecture.build()).eval()


def check_labels(labels: Tensor) -> None:
    """Raise a UserError if a label is out of range."""
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= CLASSES:
        raise UserError(f"labels must lie in 0..{CLASSES - 1}, got {low if low < 0 else high}")


@dataclass(frozen=True, eq=False)
class Model:
    """A trained classifier in evaluation mode, with the constants of its Dirichlet output.

    The constants have their initial values unless training used the Dirichlet likelihood.
    """

    net: nn.Sequential
    offset: float
    slope: float


class Trainer(Minibatches):
    """The state of a training, as stored in a checkpoint.

    Initial weights and the order of images depend on the seed only, so that all objectives start from the
    same net and use the same batches.
    """

    net: nn.Sequential

    def __init__(
        self, images: TrainingImages, objective: Objective, seed: int, epochs: int, device: str = "cpu"
    ) -> None:
        super().__init__(len(images.labels), BATCH, epochs, (seed, 0x5E1E), device)
        self.objective, self.seed = objective, seed
        self.pixels, self.labels = images.pixels.to(device), images.labels.to(device)
        self.net = images.build(seed).to(device)
        self.raw = nn.Parameter(torch.full((2,), START, device=device))
        self.extra = {"raw": self.raw}
        self.optimizer = torch.optim.Adam([*self.net.parameters(), self.raw], lr=objective.learning_rate)

    def run(self) -> Iterator[bool]:
        """Train to the last step, and yield after every step; a RunFailedError on divergence."""
        while self.step < self.steps:
            with numerics():
                self.advance()
            yield False
        if not all(bool(tensor.isfinite().all()) for tensor in self.net.state_dict().values()):
            raise RunFailedError(f"training on images diverged ({self.objective.name}, seed {self.seed})")

    def loss(self, rows: Tensor) -> Tensor:
        """Return the mean loss of the images in some rows; a RunFailedError if the law is not finite."""
        offset, slope = F.softplus(self.raw)
        pixels, labels = self.pixels[rows].float() / 255, self.labels[rows]
        try:
            return self.objective.assess(self.net, pixels, labels, (offset, slope), "mean")[1]
        except ValueError as error:  # the law is not finite
            raise RunFailedError(f"training diverged at step {self.step} ({error})") from error

    @property
    def model(self) -> Model:
        """The model with the current weights."""
        offset, slope = F.softplus(self.raw.detach().double()).tolist()
        return Model(self.net.eval(), offset, slope)


VERSION = 1
"""Raise it with every change that changes what is trained: models are trained again, and scored again."""


def get_model(
    images: TrainingImages, objective: Objective, seed: int, epochs: int, device: str = "cpu"
) -> Model:
    """Return a classifier from the cache, or train and cache it.

    An interrupted training resumes from its last checkpoint and gives the same weights (on a GPU only if its
    kernels are deterministic). A RunFailedError is raised if training diverges or the cache cannot be
    written.
    """
    data = images.pixels, images.labels, CLASSES, images.architecture.label
    versions = VERSION, objective.rule and objective.rule.version
    identity = digest(*data, objective.label, objective.learning_rate, seed, epochs, *versions)
    path = storage.cache_folder() / f"classifier-{objective.name}-{identity[:12]}-seed{seed}.safetensors"
    return trained(path, lambda: Trainer(images, objective, seed, epochs, device), Trainer.run).model


_STEP_SECONDS = {"": 0.035, "marginal_moment_matching": 0.22, "sdp": 0.43, "marginal_sdp": 0.1}
"""Time (s) of a training step of cnn3 on MNIST, one thread, by the rule that propagates the law."""


@dataclass(frozen=True, eq=False)
class Images:
    """Images of a data set to train and to test a classifier on."""

    train: TrainingImages
    pixels: Tensor  # test images, uint8
    labels: Tensor  # of the test images; -1 is never predicted
    description: str


def load_images(
    name: str, trained: int | None = None, tested: int | None = None, network: str = "cnn3"
) -> Images:
    """Return at most `trained` and `tested` images of a data set, cycling through its classes.

    `network` is the one to train, as in `TrainingImages`. A DataMissingError is raised if the data set is not
    available, a UserError if a label is out of range or all training images have the same class.
    """
    known = dataset(name, ImageClassification)
    train, test = known.load("train"), known.load("test")
    check_labels(test.labels)
    training_rows, test_rows = train.in_turn(trained), test.in_turn(tested)
    return Images(
        TrainingImages(train.kept[training_rows], train.labels[training_rows], network),
        test.kept[test_rows],
        test.labels[test_rows],
        f"trained on {len(training_rows)} images of {train.description}; tested on {len(test_rows)} of "
        f"{test.description}{IN_TURN}",
    )


Measure = Callable[[Model, Objective, Images, Sequence[str], SeedRoot], Iterable[Number]]
"""Returns the numbers of some methods for a model trained with an objective."""


def step_seconds(objective: Objective) -> float:
    """Return the time (s) of a training step of cnn3 on one thread."""
    return _STEP_SECONDS[objective.rule.name if objective.rule else ""]


def batches(images: Images, epochs: int) -> int:
    """Return the number of training steps."""
    return epochs * math.ceil(len(images.train.labels) / BATCH)


def measured(
    load: Callable[[], Images],
    objective: Objective,
    epochs: int,
    measure: Measure,
    group: ReplicateGroup,
    seed: int,
    methods: Sequence[str],
) -> Iterable[Number]:
    """Return the numbers of one seed's model, which is trained, or taken from the cache, and measured."""
    images = load()
    model = get_model(images.train, objective, seed, epochs, group.device)
    return measure(model, objective, images, methods, SeedRoot(group.key(seed)))


def versions_of(experiment: ReplicateExperiment, objective: Objective) -> str:
    """Return the versions that numbers of models of an objective rest on."""
    return of_method(experiment.version, VERSION, objective.rule)


def crossed(
    experiment: ReplicateExperiment,
    settings: Settings,
    objectives: Iterable[Objective],
    design: object = (),
    network: str = "cnn3",
) -> Iterator[tuple[Objective, Images, Callable[[], Images], dict[str, Any]]]:
    """Yield data sets of images times objectives times noise scales.

    Yields objectives, images, functions that load them, and fields of groups. An objective that propagates no
    law occurs once rather than at every scale. `design` holds everything else that the numbers depend on.
    Errors are those of `load_images`.
    """
    size = experiment.size(settings)
    epochs, steps = size.epochs or 1, size.steps or 0
    for name in size.datasets or ():
        load = partial(load_images, name, size.samples, size.inputs, network)
        images = load()
        data = digest(images.train.pixels, images.train.labels, images.pixels, images.labels)
        at_scales = [scaled for objective in objectives for scaled in objective.at(size.sigmas or ())]
        for objective in at_scales:
            training = (
                f"{objective.label}, adam {objective.learning_rate:g}, {epochs} epochs of batch {BATCH}"
            )
            identity = digest(data, epochs, steps, BATCH, objective.learning_rate, objective.label, design)
            attack = f"; attacks of {steps} steps" if steps else ""
            fields = {
                "label": f"{name} {images.train.architecture.label}",
                "design": f"{images.description}; {training}{attack}",
                "identity": identity[:16],
                "versions": versions_of(experiment, objective),
                "dataset": name,
                "objective": objective.name,
                "sigma": objective.sigma if objective.rule else None,
            }
            yield objective, images, load, fields
