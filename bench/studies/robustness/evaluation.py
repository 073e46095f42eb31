"""Accuracy of a classifier under noise and under attack."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from sdp_bench.bench.identity.keys import SeedRoot
from sdp_bench.bench.studies.classifiers import Model, Objective, exact_products
from sdp_bench.bench.studies.robustness import METRICS, NOISE, QUERIES
from sdp_bench.bench.studies.robustness.attacks import Attacked, pgd, square

_ROWS = 250
_LEVELS = 255

Measured = tuple[str, str, float, str | None]
"""Method, metric, value and strength: "0.5" for noise, "8/255" for attacks, None for neither."""


@dataclass(frozen=True, eq=False)
class Victim:
    """A trained classifier as seen by attacks, without gradients of its weights."""

    model: Model
    objective: Objective

    def __post_init__(self) -> None:
        self.model.net.requires_grad_(requires_grad=False)

    @property
    def device(self) -> torch.device:
        return next(self.model.net.parameters()).device

    def scores(self, pixels: Tensor) -> Tensor:
        """Return the locations of the scores under the model's law; the largest determines the class."""
        return self.objective.location(self.model.net, pixels)

    def own(self, pixels: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores, and losses of the training objective."""
        constants = self.model.offset, self.model.slope
        return self.objective.assess(self.model.net, pixels, labels, constants)

    def cross_entropy(self, pixels: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.scores(pixels)
        return scores, F.cross_entropy(scores, labels, reduction="none")


@exact_products()
def evaluate(
    victim: Victim,
    methods: Sequence[str],
    pixels: Tensor,
    labels: Tensor,
    radii: Sequence[int],
    steps: int,
    seeds: SeedRoot,
) -> list[Measured]:
    """Return accuracies for each method and strength.

    `methods` are from `sdp_bench.bench.studies.robustness.METHODS`, `pixels` have shape (N, C, H, W), uint8,
    and `labels` shape (N,). `radii` of attacks are in units of 1/255 and increasing: an image misclassified
    in one ball is so in each larger one. `steps` are those of gradient attacks, and `seeds` determine noise,
    starting points and squares.
    """
    images, truth = pixels.float().to(victim.device) / _LEVELS, labels.to(victim.device)
    return [
        number
        for method in methods
        for number in _measured(victim, method, images, truth, radii, steps, seeds)
    ]


def _measured(
    victim: Victim,
    method: str,
    images: Tensor,
    truth: Tensor,
    radii: Sequence[int],
    steps: int,
    seeds: SeedRoot,
) -> Iterator[Measured]:
    match method:
        case "clean":
            yield method, METRICS[0], _accuracy(victim, images, truth), None
        case "noise":
            for sigma in NOISE:
                drawn = torch.randn(images.shape, generator=_generator(seeds, f"noise {sigma}"))
                noisy = (images + sigma * drawn.to(victim.device)).clamp(0, 1)
                yield method, METRICS[0], _accuracy(victim, noisy, truth), f"{sigma:g}"
        case _:
            yield from _attacked(_attack(victim, method, steps), method, images, truth, radii, seeds)


_Attack = Callable[[Tensor, Tensor, float, torch.Generator], Attacked]


def _attack(victim: Victim, method: str, steps: int) -> _Attack:
    """Return an attack by name, a function of images, labels, radius and generator."""
    if method == "square":

        def by_queries(pixels: Tensor, labels: Tensor, radius: float, generator: torch.Generator) -> Attacked:
            with torch.no_grad():
                queries = QUERIES * steps
                return square(victim.scores, pixels, labels, radius, queries=queries, generator=generator)

        return by_queries
    assess = victim.own if method == "pgd_own" else victim.cross_entropy

    def by_gradients(pixels: Tensor, labels: Tensor, radius: float, generator: torch.Generator) -> Attacked:
        return pgd(assess, pixels, labels, radius, steps=steps, generator=generator)

    return by_gradients


def _attacked(
    attack: _Attack, method: str, images: Tensor, labels: Tensor, radii: Sequence[int], seeds: SeedRoot
) -> Iterator[Measured]:
    """Yield accuracies for increasing radii; images misclassified at one are not attacked at the next."""
    standing = torch.ones(len(images), dtype=torch.bool, device=images.device)
    for radius in radii:
        generator = _generator(seeds, f"{method} {radius}")
        vanished, vanished_pixel = torch.zeros_like(standing), torch.zeros_like(standing)
        left = standing.nonzero().squeeze(1)
        for rows in left.split(_ROWS) if len(left) else ():
            found = attack(images[rows], labels[rows], radius / _LEVELS, generator)
            standing[rows] = ~found.fooled
            vanished[rows], vanished_pixel[rows] = found.vanished, found.vanished_pixel
        strength = f"{radius}/{_LEVELS}"
        kept = (standing, standing & ~vanished, standing & ~vanished_pixel)
        for metric, right in zip(METRICS, kept, strict=True):
            if metric == METRICS[0] or method != "square":
                yield method, metric, float(right.double().mean()), strength


@torch.no_grad()
def _accuracy(victim: Victim, images: Tensor, labels: Tensor) -> float:
    parts = zip(images.split(_ROWS), labels.split(_ROWS), strict=True)
    right = [victim.scores(some).argmax(1) == true for some, true in parts]
    return float(torch.cat(right).double().mean())


def _generator(seeds: SeedRoot, purpose: str) -> torch.Generator:
    """Return a generator on the CPU, which gives equal numbers for every device."""
    return torch.Generator().manual_seed(seeds.seed(purpose) % 2**63)
