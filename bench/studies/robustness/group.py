"""Attacks, accuracy under them, and groups of work."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
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
# Number of queries, out of 10 000, after which the share halves (Andriushchenko et al. 2020, Section 4).
_SCHEDULE = 10_000
_HALVINGS = np.array([10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000])


class Attacked:
    """The result of an attack on images, shape (B, C, H, W).

    `pixels`: the first misclassified image found; otherwise the last one tried, or the best one of a query
    attack. `fooled`, shape (B,): whether the image is misclassified. `vanished`, `vanished_pixel`: whether in
    some step the gradient was zero at every pixel, and at one pixel or more.
    """

    def __init__(self, pixels: Tensor) -> None:
        self.pixels = pixels.clone()
        self.fooled = torch.zeros(len(pixels), dtype=torch.bool, device=pixels.device)
        self.vanished = torch.zeros_like(self.fooled)
        self.vanished_pixel = torch.zeros_like(self.fooled)


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
    attacked = Attacked(pixels)
    for start in range(restarts):
        rows = (~attacked.fooled).nonzero().squeeze(1)  # images that are still attacked
        images = pixels[rows]
        if start:
            share = torch.rand(pixels.shape, generator=generator).to(pixels)
            images = low[rows] + share[rows] * (high - low)[rows]
        # The last pass only classifies the images after the last step.
        for step in range(steps + 1):
            if not len(rows):
                break
            is_last = step == steps
            images = images.detach().requires_grad_(not is_last)
            with torch.set_grad_enabled(not is_last):
                scores, losses = assess(images, labels[rows])
            is_wrong = scores.detach().argmax(1) != labels[rows]
            attacked.pixels[rows] = images.detach()
            attacked.fooled[rows] = is_wrong
            if is_last:
                break
            (gradient,) = torch.autograd.grad(losses.sum(), images)
            rows, images, gradient = rows[~is_wrong], images.detach()[~is_wrong], gradient[~is_wrong]
            gradient = gradient.nan_to_num(nan=0.0)  # NaN gives no direction either
            is_zero = gradient.flatten(1) == 0
            attacked.vanished[rows] |= is_zero.all(1)
            attacked.vanished_pixel[rows] |= is_zero.any(1)
            moved = images + _STRIDE * radius / steps * gradient.sign()
            images = moved.clamp(low[rows], high[rows])
    return attacked


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

    def random_signs(*shape: int) -> Tensor:
        """Draw for each image, with equal probability, the upper end of the ball (True) or the lower one."""
        return (torch.rand(count, *shape, generator=generator) < 0.5).to(pixels.device)

    attacked = Attacked(pixels)
    attacked.pixels = torch.where(random_signs(channels, 1, width), low, high)
    margin, attacked.fooled = _margin(scores(attacked.pixels), labels)
    for query in range(1, queries):
        if bool(attacked.fooled.all()):
            break
        side = _side_of_square(query, queries, height, width)
        is_inside = _random_squares(side, count, height, width, generator).to(pixels.device)
        is_up = random_signs(channels, 1, 1)
        moved = torch.where(is_inside, torch.where(is_up, high, low), attacked.pixels)
        opposite = torch.where(is_inside, torch.where(is_up, low, high), attacked.pixels)
        is_unchanged = (moved == attacked.pixels).flatten(1).all(1)
        moved = torch.where(is_unchanged[:, None, None, None], opposite, moved)

        rows = (~attacked.fooled).nonzero().squeeze(1)
        new_margin, is_wrong = _margin(scores(moved[rows]), labels[rows])
        is_better = new_margin < margin[rows]
        improved = rows[is_better]
        margin[improved] = new_margin[is_better]
        attacked.pixels[improved] = moved[improved]
        attacked.fooled[improved] = is_wrong[is_better]
    return attacked


def _side_of_square(query: int, queries: int, height: int, width: int) -> int:
    """Return the side of a query's square in pixels: the root of its area, less than the image's side."""
    halvings = int((_SCHEDULE * query > _HALVINGS * queries).sum())
    share = math.ldexp(_FIRST_SHARE, -halvings)
    side = max(round(math.sqrt(share * height * width)), 1)
    return min(side, max(min(height, width) - 1, 1))


def _random_squares(side: int, count: int, height: int, width: int, generator: torch.Generator) -> Tensor:
    """Return whether a pixel is in a random square of each image, shape (count, 1, height, width)."""
    top = torch.randint(height - side + 1, (count, 1, 1, 1), generator=generator)
    left = torch.randint(width - side + 1, (count, 1, 1, 1), generator=generator)
    row, column = torch.arange(height)[:, None], torch.arange(width)
    return (row >= top) & (row < top + side) & (column >= left) & (column < left + side)


def _ball(pixels: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """Return the lower and upper end of each pixel."""
    return (pixels - radius).clamp(min=0), (pixels + radius).clamp(max=1)


def _margin(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the margin of the true class over the best other one, and whether another class is chosen."""
    column = labels.unsqueeze(1)
    true_score = scores.gather(1, column).squeeze(1)
    best_other = scores.scatter(1, column, -math.inf).amax(1)
    return true_score - best_other, scores.argmax(1) != labels


_ROWS = 250  # images that are attacked at once
_LEVELS = 255  # largest value of a pixel as stored


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

    def training_loss(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return objective.assess(net, images, labels, (model.offset, model.slope))

    def cross_entropy(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        location = scores(images)
        return location, F.cross_entropy(location, labels, reduction="none")

    attacks: dict[str, Attack] = {
        "pgd_own": partial(pgd, training_loss, steps=steps),
        "pgd_ce": partial(pgd, cross_entropy, steps=steps),
        "square": partial(square, scores, queries=QUERIES * steps),
    }
    pixels, labels = images.pixels.float().to(device) / _LEVELS, images.labels.to(device)
    accuracy = METRICS[0]
    numbers: list[Number] = []
    for method in methods:
        if method == "clean":
            numbers.append((method, accuracy, accuracy_of(scores, pixels, labels), None))
        elif method == "noise":
            for sigma in NOISE:
                noise = torch.randn(pixels.shape, generator=_generator(seeds, f"noise {sigma}"))
                noisy = (pixels + sigma * noise.to(device)).clamp(0, 1)
                numbers.append((method, accuracy, accuracy_of(scores, noisy, labels), f"{sigma:g}"))
        else:
            generators = {radius: _generator(seeds, f"{method} {radius}") for radius in radii}
            numbers += _accuracy_under_attack(method, attacks[method], pixels, labels, generators)
    return numbers


Attack = Callable[..., Attacked]
"""`pgd` or `square` with its options: of images, labels, a radius and a `generator`."""


def _accuracy_under_attack(
    method: str, attack: Attack, pixels: Tensor, labels: Tensor, generators: Mapping[int, torch.Generator]
) -> Iterator[Number]:
    """Yield accuracies, given generators by radius; radii are in units of 1/255 and increase."""
    accuracy, no_vanished, no_vanished_pixel = METRICS
    is_correct = torch.ones(len(pixels), dtype=torch.bool, device=pixels.device)
    for radius, generator in generators.items():
        vanished, vanished_pixel = torch.zeros_like(is_correct), torch.zeros_like(is_correct)
        # Images that are misclassified in a smaller ball are so in this one.
        remaining = is_correct.nonzero().squeeze(1)
        for rows in remaining.split(_ROWS) if len(remaining) else ():
            attacked = attack(pixels[rows], labels[rows], radius / _LEVELS, generator=generator)
            is_correct[rows] = ~attacked.fooled
            vanished[rows], vanished_pixel[rows] = attacked.vanished, attacked.vanished_pixel
        strength = f"{radius}/{_LEVELS}"
        yield method, accuracy, _share(is_correct), strength
        if method != "square":  # it has no gradients
            yield method, no_vanished, _share(is_correct & ~vanished), strength
            yield method, no_vanished_pixel, _share(is_correct & ~vanished_pixel), strength


def _share(condition: Tensor) -> float:
    return float(condition.double().mean())


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
    """Yield the groups of the study: data sets, objectives and noise scales, times seeds.

    A UserError is raised for a data set without radii of attacks.
    """
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
