"""Share of images that a classifier still gets right under noise and under attack."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from sdp_bench.bench.identity.keys import SeedRoot
from sdp_bench.bench.methods.classifiers.training import Model, Objective, exact_products
from sdp_bench.bench.methods.robustness import METRICS, NOISE, QUERIES
from sdp_bench.bench.methods.robustness.attacks import Attacked, pgd, square

_ROWS = 250
_LEVELS = 255

Measured = tuple[str, str, float, str | None]
"""Method, metric, value and strength: "0.5" of noise, "8/255" of attacks, None of neither."""


@dataclass(frozen=True, eq=False)
class Victim:
    """A trained classifier, as attacks see it.

    Parameters
    ----------
    model : Model
        Its weights get no gradients any more.
    objective : Objective
        By which it was trained.
    """

    model: Model
    objective: Objective

    def __post_init__(self) -> None:
        self.model.net.requires_grad_(requires_grad=False)

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return next(self.model.net.parameters()).device

    def scores(self, pixels: Tensor) -> Tensor:
        """Locations of the scores, as its law has them: the largest is the class."""
        return self.objective.location(self.model.net, pixels)

    def own(self, pixels: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Scores, and the losses that it was trained by."""
        constants = self.model.offset, self.model.slope
        return self.objective.assess(self.model.net, pixels, labels, constants)

    def cross_entropy(self, pixels: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Scores, and their cross-entropies."""
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
    """Accuracies under each method and strength.

    Parameters
    ----------
    victim : Victim
    methods : sequence of str
        Of :data:`sdp_bench.bench.methods.robustness.METHODS`.
    pixels : Tensor, shape (N, C, H, W), uint8
    labels : Tensor, shape (N,)
    radii : sequence of int
        Of attacks, in 255ths, smallest first: what is misclassified in a ball is so in each larger one.
    steps : int
        Of attacks by gradients.
    seeds : SeedRoot
        Of noise, starting points and squares.
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
    """Attack by its name, of images, labels, a radius and random numbers."""
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
    """Accuracies in balls of some radii; what was misclassified in one is not attacked in the next."""
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
    """Random numbers of the CPU, the same on every device."""
    return torch.Generator().manual_seed(seeds.seed(purpose) % 2**63)
