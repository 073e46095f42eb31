"""Classifiers of images, trained by propagated laws or without: with checkpoints, and cached."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import sdp_ref as sr
from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.bench.identity import keys
from sdp_bench.bench.nets import storage
from sdp_bench.bench.nets.architectures import Architecture, ImageArchitecture
from sdp_bench.bench.noise import GAUSSIAN, Noise
from sdp_ref import losses
from sdp_ref.rules import SDP, MarginalSDP, Rule
from sdp_ref.rules.base import predicted

BATCH = 128
START = -7.0
"""Of the raw parameters behind the two constants of a Dirichlet output (Gast & Roth 2018)."""

Constants = tuple[Tensor | float, Tensor | float]
"""Offset and slope of a Dirichlet output."""
Reduction = Literal["mean", "sum", "none"]
"""Of losses, over a batch."""
Report = Callable[[int, int], None]
"""Told how many steps are done, and of how many."""


@dataclass(frozen=True)
class Objective:
    """What a classifier is trained by.

    Attributes
    ----------
    name : str
        "softmax" and "dirichlet" name their likelihoods; any other has the pairwise loss.
    rule : Rule, optional
        By which a law is propagated in training.
    sigma : float
        Scale of the noise then; of the input's, in units of pixels in [0, 1].
    noise : Noise
        Its family.
    skipped : int
        Modules of the net that come before the noise.
    learning_rate : float
        Of Adam.
    """

    name: str
    rule: Rule | None = None
    sigma: float = 0.0
    noise: Noise = GAUSSIAN
    skipped: int = 0
    learning_rate: float = 1e-3

    def at(self, scales: Iterable[float]) -> Iterator[Objective]:
        """The objective at some scales of noise; itself where it has none."""
        yield from (replace(self, sigma=scale) for scale in scales) if self.rule else [self]

    @property
    def label(self) -> str:
        """In few words: ``pairwise_gaussian, sdp at gaussian:sigma=0.1``."""
        if not self.rule:
            return self.name
        place = f" after {self.skipped} modules" if self.skipped else ""
        return f"{self.name}, {self.rule.spec} at {self.noise.label(self.sigma)}{place}"

    def law(self, net: nn.Module, pixels: Tensor) -> sr.Law:
        """Law of the scores of noisy `pixels`, (B, C, H, W), differentiable in both and the net's weights."""
        if self.rule is None:
            raise ValueError(f"the objective '{self.name}' propagates no law")
        rule = replace(self.rule, create_graph=True) if isinstance(self.rule, SDP) else self.rule
        if self.skipped:
            layers = cast(nn.Sequential, net)
            net, pixels = layers[self.skipped :], layers[: self.skipped](pixels)
        return predicted(rule, net, self.noise.law(pixels, self.sigma))

    def location(self, net: nn.Module, pixels: Tensor) -> Tensor:
        """Location of the law of the scores, (B, m): the net's own value, unless its rule moves that."""
        if self.rule is None or isinstance(self.rule, SDP | MarginalSDP):
            return cast(Tensor, net(pixels))
        return self.law(net, pixels).location

    def assess(
        self,
        net: nn.Module,
        pixels: Tensor,
        labels: Tensor,
        constants: Constants,
        reduction: Reduction = "none",
    ) -> tuple[Tensor, Tensor]:
        """Locations of the scores, (B, m), and losses, (B,), or the mean or sum of these."""
        if not self.rule:
            scores = net(pixels)
            return scores, F.cross_entropy(scores, labels, reduction=reduction)
        law = self.law(net, pixels)
        if self.name == "dirichlet":
            gaussian = cast(sr.Gaussian | sr.DiagonalGaussian, law)  # as the noise is
            return law.location, losses.dirichlet_nll(gaussian, labels, *constants, reduction=reduction)
        stable = cast(sr.Gaussian | sr.DiagonalGaussian | sr.Cauchy, law)
        return law.location, losses.pairwise_loss(stable, labels, reduction)


@dataclass(frozen=True, eq=False)
class TrainingImages:
    """Images to train on.

    Attributes
    ----------
    pixels : Tensor, shape (N, C, H, H), uint8
    labels : Tensor, shape (N,), int64
    classes : int

    Raises
    ------
    UserError
        If there are fewer than two classes among the labels, or one out of range.
    """

    pixels: Tensor
    labels: Tensor
    classes: int = 10

    def __post_init__(self) -> None:
        if len(self.labels) != len(self.pixels) or not len(self.labels):
            raise UserError(f"need one label for each image, got {len(self.labels)} and {len(self.pixels)}")
        low, high = int(self.labels.min()), int(self.labels.max())
        if low < 0 or high >= self.classes:
            raise UserError(f"labels must lie in 0..{self.classes - 1}, got {low if low < 0 else high}")
        if low == high:
            raise UserError("the images are all of one class; a classifier needs two")

    @property
    def architecture(self) -> Architecture | ImageArchitecture:
        """The paper's 3-layer CNN for these images."""
        channels, size, _ = self.pixels.shape[1:]
        return ImageArchitecture("cnn3", channels, size, self.classes)

    def build(self, seed: int) -> nn.Sequential:
        """A net for these images, with initial weights drawn by `seed`."""
        return cast(nn.Sequential, cast(ImageArchitecture, self.architecture).build(seed))  # as cnn3 is


@dataclass(frozen=True, eq=False)
class Model:
    """A trained classifier, in evaluation mode, with the constants of its Dirichlet output.

    A model that was not trained by the Dirichlet likelihood has the constants of the start.
    """

    net: nn.Sequential
    offset: float
    slope: float


class Trainer:
    """A training under way: all that a checkpoint holds, and how it goes on.

    Initial weights and the order of the images depend on the seed alone, so the objectives of one seed
    start from one net and see the same batches.
    """

    def __init__(
        self, images: TrainingImages, objective: Objective, seed: int, epochs: int, device: str = "cpu"
    ) -> None:
        self.objective, self.seed, self.step = objective, seed, 0
        self.pixels, self.labels = images.pixels.to(device), images.labels.to(device)
        self.net = images.build(seed).to(device)
        self.raw = nn.Parameter(torch.full((2,), START, device=device))
        self.optimizer = torch.optim.Adam([*self.net.parameters(), self.raw], lr=objective.learning_rate)
        self.steps_an_epoch = math.ceil(len(self.labels) / BATCH)
        self.steps = epochs * self.steps_an_epoch

    def run(self) -> Iterator[int]:
        """Train to the last step; gives the number of steps done after each.

        Yields
        ------
        int
            Steps done so far.

        Raises
        ------
        RunFailedError
            If training diverged.
        """
        first = self.step
        while self.step < self.steps:
            epoch, place = divmod(self.step, self.steps_an_epoch)
            if place == 0 or self.step == first:
                order = self._order(epoch)
            with exact_products():
                self._take(order[place * BATCH : (place + 1) * BATCH])
            self.step += 1
            yield self.step

    def _order(self, epoch: int) -> Tensor:
        entropy = np.random.SeedSequence([self.seed, 0x5E1E, epoch]).generate_state(1, np.uint64)[0]
        generator = torch.Generator().manual_seed(int(entropy))
        return torch.randperm(len(self.labels), generator=generator).to(self.labels.device)

    def _take(self, rows: Tensor) -> None:
        try:
            loss = self.loss(self.pixels[rows].float() / 255, self.labels[rows])
        except ValueError as error:  # a law that is not finite
            raise RunFailedError(f"training diverged at step {self.step} ({error})") from error
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def loss(self, pixels: Tensor, labels: Tensor) -> Tensor:
        """Mean loss of images in [0, 1]."""
        offset, slope = F.softplus(self.raw)
        return self.objective.assess(self.net, pixels, labels, (offset, slope), "mean")[1]

    @property
    def model(self) -> Model:
        """The net as it is now."""
        offset, slope = F.softplus(self.raw.detach().double()).tolist()
        return Model(self.net.eval(), offset, slope)

    def to_bytes(self) -> bytes:
        """See :class:`sdp_bench.bench.nets.storage.Training`."""
        tensors = storage.packed(self.net, self.optimizer) | {"raw": self.raw}
        return storage.to_file(tensors, {"step": self.step})

    def restore(self, content: bytes) -> None:
        """See :class:`sdp_bench.bench.nets.storage.Training`."""
        tensors, about = storage.from_file(content)
        storage.unpack(tensors, self.net, self.optimizer)
        with torch.no_grad():
            self.raw.copy_(tensors["raw"])
        self.step = int(about["step"])


VERSION = 1
"""Raise it with every change that changes what is trained: models are trained again, and scored again."""


def get_model(
    images: TrainingImages,
    objective: Objective,
    seed: int,
    epochs: int,
    device: str = "cpu",
    report: Report | None = None,
) -> Model:
    """A classifier, from the cache or else trained and put there.

    A training that was interrupted goes on from its last checkpoint, to the same weights (on a GPU as far
    as its kernels are deterministic).

    Parameters
    ----------
    images : TrainingImages
    objective : Objective
    seed, epochs : int
    device : str
    report : callable, optional

    Returns
    -------
    Model

    Raises
    ------
    RunFailedError
        If training diverged, or the cache cannot be written.
    """

    def steps(trainer: Trainer) -> Iterator[int]:
        for done in trainer.run():
            if report is not None:
                report(done, trainer.steps)
            yield done
        if not all(bool(tensor.isfinite().all()) for tensor in trainer.net.state_dict().values()):
            raise RunFailedError(f"training on images diverged ({objective.name}, seed {seed})")

    path = _path(images, objective, seed, epochs)
    return storage.trained(path, lambda: Trainer(images, objective, seed, epochs, device), steps).model


def _path(images: TrainingImages, objective: Objective, seed: int, epochs: int) -> Path:
    data = images.pixels, images.labels, images.classes, images.architecture.label
    versions = VERSION, objective.rule and objective.rule.version
    identity = keys.digest(*data, objective.label, objective.learning_rate, seed, epochs, *versions)
    return storage.cache_folder() / f"classifier-{objective.name}-{identity[:12]}-seed{seed}.safetensors"


@contextmanager
def exact_products() -> Iterator[None]:
    """Deterministic, exact products on a GPU; on a CPU no denormal numbers, which slow it down."""
    torch.set_flush_denormal(True)
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
            yield
    finally:
        torch.set_flush_denormal(False)
