"""Attacks on classifiers in a ball of the maximum norm: by projected gradients, and by queries.

They work on a batch, on its device, and skip images that are already misclassified.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Assess = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Maps images (B, C, H, W) and labels (B,) to scores (B, m) and the losses (B,) that an attack maximises."""
Scores = Callable[[Tensor], Tensor]
"""Maps images to scores (B, m); the largest score determines the class."""

RESTARTS = 2
"""Starts of the gradient attack: the image itself, then random points in the ball."""
_STRIDE = (
    # length of all steps together, in radii: enough to reach any corner from any point (Madry et al. 2018)
    2.5
)
_FIRST_SHARE = 0.8  # initial share of an image covered by a square, as in the authors' code
_HALVINGS = (
    10,
    50,
    200,
    500,
    1000,
    2000,
    4000,
    6000,
    8000,
)  # of 10 000 queries; the share halves after each


@dataclass(frozen=True, eq=False)
class Attacked:
    """The result of an attack."""

    # shape (B, C, H, W); the first misclassified image found; otherwise the last one tried, or the best one
    # of a query attack
    pixels: Tensor
    fooled: Tensor  # shape (B,); whether the image is misclassified
    vanished: Tensor  # shape (B,); whether the gradient was zero at every pixel in some step
    vanished_pixel: Tensor  # shape (B,); whether it was zero at one pixel or more

    @classmethod
    def none_yet(cls, pixels: Tensor) -> Attacked:
        no = torch.zeros(len(pixels), dtype=torch.bool, device=pixels.device)
        return cls(pixels.clone(), no, no.clone(), no.clone())


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
    found = Attacked.none_yet(pixels)
    for start in range(restarts):
        rows = (~found.fooled).nonzero().squeeze(1)
        tried = pixels[rows]
        if start:
            share = torch.rand(pixels.shape, generator=generator).to(pixels)
            tried = low[rows] + share[rows] * (high - low)[rows]
        for step in range(steps + 1):
            if not len(rows):
                break
            last = step == steps
            wrong, gradient = _look(assess, tried, labels[rows], wants_gradient=not last)
            found.pixels[rows], found.fooled[rows] = tried, wrong
            rows, tried, gradient = rows[~wrong], tried[~wrong], gradient[~wrong]
            if last:
                break
            zero = gradient.flatten(1) == 0
            found.vanished[rows] |= zero.all(1)
            found.vanished_pixel[rows] |= zero.any(1)
            moved = tried + _STRIDE * radius / steps * gradient.sign()
            tried = moved.clamp(low[rows], high[rows])
    return found


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

    found = Attacked.none_yet(pixels)
    found.pixels.copy_(torch.where(ends(channels, 1, width), low, high))
    margin, fooled = _margin(scores(found.pixels), labels)
    found.fooled.copy_(fooled)
    for query in range(1, queries):
        if bool(found.fooled.all()):
            break
        inside = _square(count, height, width, _share(query, queries), generator).to(pixels.device)
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


def _look(assess: Assess, pixels: Tensor, labels: Tensor, *, wants_gradient: bool) -> tuple[Tensor, Tensor]:
    """Return whether images are misclassified, and the gradients of their losses if needed."""
    if not wants_gradient:
        with torch.no_grad():
            return assess(pixels, labels)[0].argmax(1) != labels, torch.zeros_like(pixels)
    with torch.enable_grad():
        asked = pixels.detach().requires_grad_()
        scores, losses = assess(asked, labels)
        (gradient,) = torch.autograd.grad(losses.sum(), asked)
    return scores.detach().argmax(1) != labels, gradient.nan_to_num(nan=0.0)  # NaN gives no direction either


def _margin(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the margin of the true class, and whether another class is chosen."""
    column = labels.unsqueeze(1)
    own = scores.gather(1, column).squeeze(1)
    return own - scores.scatter(1, column, -math.inf).amax(1), scores.argmax(1) != labels


def _share(query: int, queries: int) -> float:
    """Return the share of an image covered by the square of a query."""
    halvings = sum(10_000 * query > limit * queries for limit in _HALVINGS)
    return math.ldexp(_FIRST_SHARE, -halvings)


def _square(count: int, height: int, width: int, share: float, generator: torch.Generator) -> Tensor:
    """Return masks of squares at random positions, shape (count, 1, height, width)."""
    side = min(max(round(math.sqrt(share * height * width)), 1), max(min(height, width) - 1, 1))
    top = torch.randint(height - side + 1, (count, 1, 1, 1), generator=generator)
    left = torch.randint(width - side + 1, (count, 1, 1, 1), generator=generator)
    down, right = torch.arange(height)[:, None], torch.arange(width)
    return (down >= top) & (down < top + side) & (right >= left) & (right < left + side)
