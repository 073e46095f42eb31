"""Attacks, accuracy under them, and groups of work."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from sdp_ref.rules import SDP, MarginalMomentMatching, MarginalSDP

from ...errors import UserError
from ...experiments.replicates import Number, ReplicateExperiment, ReplicateGroup
from ...identity import SeedRoot
from ...nets.training import accuracy_of, numerics
from ...noise import CAUCHY
from ...settings import Settings
from ..classifiers import (
    BATCH,
    Images,
    Model,
    Objective,
    batches,
    crossed,
    measured,
    step_seconds,
)
from . import METRICS, NOISE, QUERIES, RADII

Assess = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Maps images (B, C, H, W) and labels (B,) to scores (B, m) and the losses (B,) that an attack maximises."""
Scores = Callable[[Tensor], Tensor]
"""Maps images to scores (B, m); the largest score determines the class."""

RESTARTS = 2
"""Starts of the gradient attack: the image itself, then random points in the ball."""
# Length of all steps together, in radii: enough to reach any corner from any point (Madry et al. 2018).
_STRIDE = 2.5
_FIRST_SHARE = 0.8  # initial share of an image covered by a square, as in the authors' code
# Queries of 10 000; the share halves after each.
_HALVINGS = np.array([10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000])


class Attacked:
    """The result of an attack on images, shape (B, C, H, W).

    `pixels`: the first misclassified image found; otherwise the last one tried, or the best one of a query
    attack. `fooled`, shape (B,): whether the image is misclassified. `vanished`, `vanished_pixel`: whether in
    some step the gradient was zero at every pixel, and at one pixel or more.
    """

    def __init__(self, pixels: Tensor) -> None:
        self.pixels = pixels.clone()
        self.fooled, self.vanished, self.vanished_pixel = (
            torch.zeros(len(pixels), dtype=torch.bool, device=pixels.device) for _ in range(3)
        )


def pgd(
    assess: Assess,
    pixels: Tensor,
    labels: Tensor,
    radius: float,
    *,
    steps: int,
    generator: torch.Generator,
    restarts: int = RESTARTS,
) -> Attacked:
    """Projected gradient descent (Madry et al. 2018): steps along the gradient's sign, within the ball.

    `assess` must be differentiable in the images. `pixels`, shape (B, C, H, W), are in [0, 1], and `labels`
    has shape (B,). Each start takes `steps` steps of 2.5 / steps radii. The first of `restarts` starts is the
    image itself, the others are uniform in the ball, drawn by `generator` on the CPU.
    """
    low, high = _ball(pixels, radius)
    found = Attacked(pixels)
    for start in range(restarts):
        rows = (~found.fooled).nonzero().squeeze(1)
        tried = pixels[rows]
        if start:
            share = torch.rand(pixels.shape, generator=generator).to(pixels)
            tried = low[rows] + share[rows] * (high - low)[rows]
        for step in range(steps + 1):
            if not len(rows):
                break
            tried = tried.detach().requires_grad_(step < steps)
            with torch.set_grad_enabled(step < steps):
                scores, losses = assess(tried, labels[rows])
            wrong = scores.detach().argmax(1) != labels[rows]
            found.pixels[rows], found.fooled[rows] = tried.detach(), wrong
            if step == steps:
                break
            (gradient,) = torch.autograd.grad(losses.sum(), tried)
            gradient = gradient.nan_to_num(nan=0.0)[~wrong]  # NaN gives no direction either
            rows, tried = rows[~wrong], tried.detach()[~wrong]
            zero = gradient.flatten(1) == 0
            found.vanished[rows] |= zero.all(1)
            found.vanished_pixel[rows] |= zero.any(1)
            moved = tried + _STRIDE * radius / steps * gradient.sign()
            tried = moved.clamp(low[rows], high[rows])
    return found


@torch.no_grad()
def square(
    scores: Scores,
    pixels: Tensor,
    labels: Tensor,
    radius: float,
    *,
    queries: int,
    generator: torch.Generator,
) -> Attacked:
    """Square attack (Andriushchenko et al. 2020, algorithms 1 and 2): random search without gradients.

    It starts with vertical stripes, each channel of a column at one end of the ball. Every query moves a
    square, at a different position for each image, to one end of the ball or the other, and the change is
    kept if the margin of the true class shrinks. The size of squares follows the authors' schedule. A square
    that would change nothing is moved to the opposite ends; the authors' code draws again.

    `pixels`, shape (B, C, H, W), are in [0, 1], and `labels` has shape (B,). `queries` counts queries per
    image including the stripes, and `generator` is on the CPU. The result has no vanished gradients.
    """
    low, high = _ball(pixels, radius)
    count, channels, height, width = pixels.shape

    def ends(*shape: int) -> Tensor:
        return (torch.rand(count, *shape, generator=generator) < 0.5).to(pixels.device)

    found = Attacked(pixels)
    found.pixels.copy_(torch.where(ends(channels, 1, width), low, high))
    margin, fooled = _margin(scores(found.pixels), labels)
    found.fooled.copy_(fooled)
    for query in range(1, queries):
        if bool(found.fooled.all()):
            break
        share = math.ldexp(_FIRST_SHARE, -int((10_000 * query > _HALVINGS * queries).sum()))
        side = min(max(round(math.sqrt(share * height * width)), 1), max(min(height, width) - 1, 1))
        top, left = (
            torch.randint(size - side + 1, (count, 1, 1, 1), generator=generator) for size in (height, width)
        )
        down, right = torch.arange(height)[:, None], torch.arange(width)
        inside = (down >= top) & (down < top + side) & (right >= left) & (right < left + side)
        inside = inside.to(pixels.device)
        up = ends(channels, 1, 1)
        moved = torch.where(inside, torch.where(up, high, low), found.pixels)
        same = (moved == found.pixels).flatten(1).all(1)
        other = torch.where(inside, torch.where(up, low, high), found.pixels)
        moved = torch.where(same[:, None, None, None], other, moved)
        rows = (~found.fooled).nonzero().squeeze(1)
        reached, fooled = _margin(scores(moved[rows]), labels[rows])
        better = reached < margin[rows]
        chosen = rows[better]
        margin[chosen], found.pixels[chosen] = reached[better], moved[chosen]
        found.fooled[chosen] = fooled[better]
    return found


def _ball(pixels: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """Return the lower and upper end of each pixel."""
    return (pixels - radius).clamp(min=0), (pixels + radius).clamp(max=1)


def _margin(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the margin of the true class, and whether another class is chosen."""
    column = labels.unsqueeze(1)
    own = scores.gather(1, column).squeeze(1)
    return own - scores.scatter(1, column, -math.inf).amax(1), scores.argmax(1) != labels


_ROWS = 250
_LEVELS = 255


@numerics()
def evaluate(
    model: Model,
    objective: Objective,
    images: Images,
    methods: Sequence[str],
    seeds: SeedRoot,
    *,
    radii: Sequence[int],
    steps: int,
) -> list[Number]:
    """Return accuracies for each method and strength: "0.5" for noise, "8/255" for attacks.

    `methods` are from `sdp_bench.bench.studies.robustness.METHODS`. `radii` of attacks are in units of 1/255
    and increasing: an image misclassified in one ball is so in each larger one. `steps` are those of gradient
    attacks, and `seeds` determine noise, starting points and squares.
    """
    net = model.net.requires_grad_(requires_grad=False)
    device = next(net.parameters()).device
    scores = partial(objective.location, net)

    def own(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return objective.assess(net, images, labels, (model.offset, model.slope))

    def cross_entropy(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        location = scores(images)
        return location, F.cross_entropy(location, labels, reduction="none")

    attacks: dict[str, Callable[..., Attacked]] = {
        "pgd_own": partial(pgd, own, steps=steps),
        "pgd_ce": partial(pgd, cross_entropy, steps=steps),
        "square": partial(square, scores, queries=QUERIES * steps),
    }
    pixels, truth = images.pixels.float().to(device) / _LEVELS, images.labels.to(device)
    accuracy = METRICS[0]
    numbers: list[Number] = []
    for method in methods:
        if method == "clean":
            numbers.append((method, accuracy, accuracy_of(scores, pixels, truth), None))
            continue
        if method == "noise":
            for sigma in NOISE:
                drawn = torch.randn(pixels.shape, generator=_generator(seeds, f"noise {sigma}"))
                noisy = (pixels + sigma * drawn.to(device)).clamp(0, 1)
                numbers.append((method, accuracy, accuracy_of(scores, noisy, truth), f"{sigma:g}"))
            continue
        standing = torch.ones(len(pixels), dtype=torch.bool, device=device)
        for radius in radii:
            generator = _generator(seeds, f"{method} {radius}")
            vanished, vanished_pixel = torch.zeros_like(standing), torch.zeros_like(standing)
            left = standing.nonzero().squeeze(1)
            for rows in left.split(_ROWS) if len(left) else ():
                found = attacks[method](pixels[rows], truth[rows], radius / _LEVELS, generator=generator)
                standing[rows] = ~found.fooled
                vanished[rows], vanished_pixel[rows] = found.vanished, found.vanished_pixel
            kept = (standing, standing & ~vanished, standing & ~vanished_pixel)
            for metric, right in zip(METRICS, kept, strict=True):
                if metric == accuracy or method != "square":
                    share = float(right.double().mean())
                    numbers.append((method, metric, share, f"{radius}/{_LEVELS}"))
    return numbers


def _generator(seeds: SeedRoot, purpose: str) -> torch.Generator:
    """Return a generator on the CPU, which gives equal numbers for every device."""
    return torch.Generator().manual_seed(seeds.seed(purpose) % 2**63)


_objective = partial(Objective, learning_rate=1e-4)

OBJECTIVES = (
    _objective("softmax"),
    # The net computes in float32, whose rounding errors exceed those of the short formulas.
    _objective("dirichlet", MarginalMomentMatching(precision=1e-5)),
    _objective("pairwise_gaussian", SDP()),
    _objective("pairwise_marginal", MarginalSDP()),
    _objective("pairwise_cauchy", MarginalSDP(), noise=CAUCHY),
)
"""Softmax cross-entropy, the Dirichlet likelihood of Gast & Roth, and the pairwise loss of a Gaussian with
and without covariances and of a Cauchy law, whose scales go from layer to layer as in the paper's theorem."""


_SCORES = 0.015  # s, for the scores of 128 MNIST images by the net itself, one thread
_GRADIENT = 0.6  # time of a gradient of the own loss, in training steps
_OF_LAW = 0.3  # time of the scores of a law that moves them, in training steps
_STANDING = 0.5  # average share of attacked images that are not yet misclassified, over steps


def seconds_of(objective: Objective, images: Images, balls: int, steps: int, epochs: int) -> float:
    """Estimate the time (s) of a group; `balls` is the number of radii."""
    step = step_seconds(objective)
    scores = _OF_LAW * step if isinstance(objective.rule, MarginalMomentMatching) else _SCORES
    attacked = _STANDING * balls * steps * len(images.labels) / BATCH
    by_gradients = RESTARTS * (_GRADIENT * step + 2 * scores)
    return batches(images, epochs) * step + attacked * (by_gradients + QUERIES * scores)


def groups(experiment: ReplicateExperiment, settings: Settings) -> Iterator[ReplicateGroup]:
    size, design = experiment.size(settings), (NOISE, RADII, QUERIES, RESTARTS)
    epochs, steps = size.epochs or 1, size.steps or 0
    if unknown := [name for name in size.datasets or () if name not in RADII]:
        raise UserError(f"{experiment.name} attacks images of {', '.join(RADII)}, not of '{unknown[0]}'")
    for objective, images, load, fields in crossed(experiment, settings, OBJECTIVES, design):
        radii = RADII[fields["dataset"]]
        # Cross-entropy is the model's own loss without a rule, so it is attacked once.
        methods = tuple(name for name in experiment.rules if objective.rule or name != "pgd_own")
        measure = partial(evaluate, radii=radii, steps=steps)
        yield from experiment.by_seed(
            settings,
            partial(measured, load, objective, epochs, measure),
            methods=methods,
            cost=seconds_of(objective, images, len(radii), steps, epochs),
            **fields,
        )
