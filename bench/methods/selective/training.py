"""Digit classifiers for selective prediction: three objectives, trained with checkpoints, and cached."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import sdp_ref as sr
from sdp_bench.bench.errors import RunFailedError, UserError
from sdp_bench.bench.identity import keys
from sdp_bench.bench.nets import storage
from sdp_bench.bench.nets.architectures import ImageArchitecture
from sdp_ref import losses
from sdp_ref.rules import SDP, MarginalMomentMatching, Rule
from sdp_ref.rules.base import predicted

BATCH = 128
LEARNING_RATE = 1e-3
"""Of Adam."""
START = -7.0
"""Of the raw parameters behind the two constants of a Dirichlet output (Gast & Roth 2018)."""

Report = Callable[[int, int], None]
"""Told how many steps are done, and of how many."""


@dataclass(frozen=True)
class Objective:
    """What a classifier is trained by.

    Attributes
    ----------
    name : str
    rule : Rule, optional
        By which a law is propagated in training.
    sigma : float
        Standard deviation of the input noise then, in units of pixels in [0, 1].
    """

    name: str
    rule: Rule | None = None
    sigma: float = 0.0

    def law(self, net: nn.Module, pixels: Tensor) -> sr.Law:
        """Law of the scores of noisy `pixels`, (B, C, H, W), differentiable in the net's weights."""
        if self.rule is None:
            raise ValueError(f"the objective '{self.name}' propagates no law")
        rule = replace(self.rule, create_graph=True) if isinstance(self.rule, SDP) else self.rule
        variance = torch.full_like(pixels, self.sigma**2)
        return predicted(rule, net, sr.DiagonalGaussian(pixels, variance))


OBJECTIVES = {
    objective.name: objective
    for objective in (
        Objective("softmax"),
        Objective("dirichlet", MarginalMomentMatching(), 0.01),
        Objective("pairwise_gaussian", SDP(), 0.1),
    )
}
"""Softmax cross-entropy, the Dirichlet likelihood of Gast & Roth, and the pairwise (PD) loss."""


@dataclass(frozen=True, eq=False)
class Digits:
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
    def architecture(self) -> ImageArchitecture:
        """The paper's 3-layer CNN for these images."""
        channels, size, _ = self.pixels.shape[1:]
        return ImageArchitecture("cnn3", channels, size, self.classes)


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
        self, digits: Digits, objective: Objective, seed: int, epochs: int, device: str = "cpu"
    ) -> None:
        self.objective, self.seed, self.step = objective, seed, 0
        self.pixels, self.labels = digits.pixels.to(device), digits.labels.to(device)
        net = digits.architecture.build(seed).to(device)
        self.net = cast(nn.Sequential, net)  # as cnn3 is
        self.raw = nn.Parameter(torch.full((2,), START, device=device))
        self.optimizer = torch.optim.Adam([*net.parameters(), self.raw], lr=LEARNING_RATE)
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
        if not self.objective.rule:
            return F.cross_entropy(self.net(pixels), labels)
        law = self.objective.law(self.net, pixels)
        if self.objective.name == "dirichlet":
            gaussian = cast(sr.Gaussian | sr.DiagonalGaussian, law)  # as the noise is
            return losses.dirichlet_nll(gaussian, labels, *F.softplus(self.raw))
        return losses.pairwise_loss(cast(sr.Gaussian | sr.DiagonalGaussian | sr.Cauchy, law), labels)

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


TRAINING = (Digits, Digits.architecture, Trainer, Trainer.run, Trainer.model, OBJECTIVES)
"""Code that decides what is trained."""


def get_model(
    digits: Digits,
    objective: Objective,
    seed: int,
    epochs: int,
    code: str,
    device: str = "cpu",
    report: Report | None = None,
) -> Model:
    """A classifier, from the cache or else trained and put there.

    A training that was interrupted goes on from its last checkpoint, to the same weights (on a GPU as far
    as its kernels are deterministic).

    Parameters
    ----------
    digits : Digits
    objective : Objective
    seed, epochs : int
    code : str
        Hash of :data:`TRAINING`, made once, where a run is planned: a worker would parse all of it again.
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
            raise RunFailedError(f"training on digits diverged ({objective.name}, seed {seed})")

    path = _path(digits, objective, seed, epochs, code)
    return storage.trained(path, lambda: Trainer(digits, objective, seed, epochs, device), steps).model


def _path(digits: Digits, objective: Objective, seed: int, epochs: int, code: str) -> Path:
    known = digits.pixels, digits.labels, digits.classes, objective.name, seed, epochs, code
    identity = keys.digest(*known)
    return storage.cache_folder() / f"selective-{objective.name}-{identity[:12]}-seed{seed}.safetensors"


@contextmanager
def exact_products() -> Iterator[None]:
    """Deterministic, exact products on a GPU; on a CPU no denormal numbers, which slow it down."""
    torch.set_flush_denormal(True)
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
            yield
    finally:
        torch.set_flush_denormal(False)
