"""Attacks on classifiers in a ball of the maximum norm: by projected gradients, and by queries alone.

They work on a batch, on its device, and look only at images that still stand.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Assess = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Of images (B, C, H, W) and labels (B,): scores (B, m) and the losses (B,) that an attack makes large."""
Scores = Callable[[Tensor], Tensor]
"""Of images: scores (B, m), the largest of which is the class."""

RESTARTS = 2
"""Of the attack by gradients: from the image itself, then from points drawn in the ball."""
_STRIDE = (
    2.5  # of all steps together, in radii: enough to reach any corner from any point (Madry et al. 2018)
)
_FIRST_SHARE = 0.8  # of an image that a square covers at first, as in the authors' code
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
)  # of 10 000 queries, after which the share halves


@dataclass(frozen=True, eq=False)
class Attacked:
    """What an attack made of some images.

    Attributes
    ----------
    pixels : Tensor, shape (B, C, H, W)
        The first found that is misclassified; where there is none, the last tried, or of an attack by queries
        the best.
    fooled : Tensor of bool, shape (B,)
        Whether it is.
    vanished : Tensor of bool, shape (B,)
        Whether the gradient was zero at some step, at every pixel.
    vanished_pixel : Tensor of bool, shape (B,)
        The same at one pixel or more.
    """

    pixels: Tensor
    fooled: Tensor
    vanished: Tensor
    vanished_pixel: Tensor

    @classmethod
    def none_yet(cls, pixels: Tensor) -> Attacked:
        """Before the first try."""
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
    """Projected gradient descent (Madry et al. 2018): steps along the gradient's sign, back into the ball.

    Parameters
    ----------
    assess : callable
        Differentiable in the images.
    pixels : Tensor, shape (B, C, H, W)
        In [0, 1].
    labels : Tensor, shape (B,)
    radius : float
    steps : int
        From each start, each 2.5 / steps of the radius long.
    generator : torch.Generator
        Of the CPU, for starting points.
    restarts : int
        Starts: the first is the image itself, the others are drawn uniformly in the ball.
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
    """Square attack (Andriushchenko et al. 2020, algorithms 1 and 2): random search that needs no gradient.

    It begins with vertical stripes, each channel of a column at one end of the ball. Every query moves a
    square, at a place of its own for each image, to one end of the ball or the other, and it stays so where
    the margin of the true class shrinks. Squares get smaller by the authors' schedule. A square that would
    change nothing takes the other ends; theirs draws again.

    Parameters
    ----------
    scores : callable
    pixels : Tensor, shape (B, C, H, W)
        In [0, 1].
    labels : Tensor, shape (B,)
    radius : float
    queries : int
        For each image, the stripes included.
    generator : torch.Generator
        Of the CPU.

    Returns
    -------
    Attacked
        Without gradients none vanishes.
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
    """Lower and upper ends of each pixel."""
    return (pixels - radius).clamp(min=0), (pixels + radius).clamp(max=1)


def _look(assess: Assess, pixels: Tensor, labels: Tensor, *, wants_gradient: bool) -> tuple[Tensor, Tensor]:
    """Whether images are misclassified, and the gradients of their losses, which may not be wanted."""
    if not wants_gradient:
        with torch.no_grad():
            return assess(pixels, labels)[0].argmax(1) != labels, torch.zeros_like(pixels)
    with torch.enable_grad():
        asked = pixels.detach().requires_grad_()
        scores, losses = assess(asked, labels)
        (gradient,) = torch.autograd.grad(losses.sum(), asked)
    return scores.detach().argmax(1) != labels, gradient.nan_to_num(nan=0.0)  # which leads nowhere either


def _margin(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """By how much the true class leads, and whether another is chosen."""
    column = labels.unsqueeze(1)
    own = scores.gather(1, column).squeeze(1)
    return own - scores.scatter(1, column, -math.inf).amax(1), scores.argmax(1) != labels


def _share(query: int, queries: int) -> float:
    """Of an image that the square of a query covers."""
    halvings = sum(10_000 * query > limit * queries for limit in _HALVINGS)
    return math.ldexp(_FIRST_SHARE, -halvings)


def _square(count: int, height: int, width: int, share: float, generator: torch.Generator) -> Tensor:
    """Pixels inside a square at a random place of each image, shape (count, 1, height, width)."""
    side = min(max(round(math.sqrt(share * height * width)), 1), max(min(height, width) - 1, 1))
    top = torch.randint(height - side + 1, (count, 1, 1, 1), generator=generator)
    left = torch.randint(width - side + 1, (count, 1, 1, 1), generator=generator)
    down, right = torch.arange(height)[:, None], torch.arange(width)
    return (down >= top) & (down < top + side) & (right >= left) & (right < left + side)
