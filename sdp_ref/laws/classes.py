"""Probabilities that a component is the largest, by quasi-random integration."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sdp_ref.lazy import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

POINTS, SCRAMBLES = 512, 8
STUDENT = 3.499
"""99 % of means are within so many standard errors, estimated with SCRAMBLES - 1 degrees of freedom."""
IMPOSSIBLE = 1e-12
"""A class counts as impossible if another one exceeds it with at least 1 - IMPOSSIBLE."""
_SINGULAR = 1e-12  # conditional variance, relative to the variance, that counts as rounding


def class_probabilities(
    mean: Tensor, covariance: Tensor, third: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the probability that each component is the largest, (B, m), and an error bound, (B,).

    The law has the moments `mean` (B, m) and `covariance` (B, m, m). It is Gaussian, or with third cumulants
    `third` (B, m, m, m) the Edgeworth series of first order, phi(z) (1 + t_abc He_abc(z) / 6) in standardised
    coordinates. Class i has the probability of an orthant, P(Y_i - Y_j > 0 for all j), which equals d/dmean_i
    E max_j Y_j. The series can yield numbers below 0.

    The orthant is integrated by separation of variables, with the variables in the order of their conditional
    probabilities, on 8 scrambled Sobol sequences of 512 points. The innermost integral is exact, and so are
    the probabilities of two components. The bound is the half-width of the 99 % interval of the mean over the
    scrambles, for the component with the largest one. Of equal components, the first counts as the largest.

    References
    ----------
    Genz, "Numerical computation of multivariate normal probabilities", J. Comput. Graph. Statist. 1, 1992.
    Gibson, Glasbey and Elston, "Monte Carlo evaluation of multivariate normal integrals", 1994 (the order).
    ARC, "mlp_cumulant_propagation", docs/argmax_endpoint_status.md, 2026 (with the Edgeworth series).
    """
    mean, covariance = mean.detach().double().cpu(), covariance.detach().double().cpu()
    third = None if third is None else third.detach().double().cpu()
    estimates = torch.zeros(*mean.shape, SCRAMBLES, dtype=torch.float64)
    for row in range(len(mean)):
        of_row = None if third is None else third[row]
        rivals = _possible(mean[row], covariance[row])
        for k in rivals:
            others = [j for j in rivals if j != k]
            estimates[row, k] = _of_class(k, others, mean[row], covariance[row], of_row)
    errors = STUDENT * estimates.std(2) / math.sqrt(SCRAMBLES)
    return estimates.mean(2), errors.amax(1)


def _possible(mean: Tensor, covariance: Tensor) -> list[int]:
    variance = covariance.diagonal()
    spread = (variance[:, None] + variance - covariance - covariance.mT).clamp(min=0).sqrt()
    ahead = mean[:, None] - mean
    certain = torch.where(ahead >= 0, torch.inf, -torch.inf)
    chances = torch.special.ndtr(torch.where(spread > 0, ahead / spread, certain))
    possible: list[int] = (chances.amin(1) >= IMPOSSIBLE).nonzero()[:, 0].tolist()
    return possible


def _of_class(
    k: int, others: Sequence[int], mean: Tensor, covariance: Tensor, third: Tensor | None
) -> Tensor:
    """Estimates of the probability of class k by scramble, shape (8,)."""
    if not others:
        return torch.ones(SCRAMBLES, dtype=torch.float64)
    ahead = torch.zeros(len(others), len(mean), dtype=torch.float64)  # Y_k - Y_j by rows j
    ahead[:, k] = 1
    ahead[range(len(others)), list(others)] = -1
    order, factor = _ordered(ahead @ mean, ahead @ covariance @ ahead.mT)
    ahead = ahead[order]
    wins_ties = [k < others[j] for j in order]
    skewness = None
    if third is not None:
        noisy = factor.diagonal() > 0
        inverse = torch.zeros_like(factor)  # of the noisy variables; the others are functions of them
        of_noisy = torch.eye(len(factor), dtype=torch.float64)[noisy]
        inverse[noisy] = torch.linalg.solve_triangular(factor[noisy][:, noisy], of_noisy, upper=False)
        standardised = inverse @ ahead
        skewness = torch.einsum("abc,ia,jb,kc->ijk", third, standardised, standardised, standardised)
    values = _orthant(ahead @ mean, factor, wins_ties, skewness)
    return values.unflatten(0, (SCRAMBLES, POINTS)).mean(1)


def _ordered(mean: Tensor, covariance: Tensor) -> tuple[list[int], Tensor]:
    """An order of the variables, and the Cholesky factor L of the covariance in this order.

    The next variable is the one with the smallest probability to be positive, given that the previous ones
    have their conditional means.
    """
    n = len(mean)
    left, order = list(range(n)), list[int]()
    columns = torch.zeros(n, n, dtype=torch.float64)  # rows in the given order
    centre, variance = mean.clone(), covariance.diagonal().clone()
    for step in range(n):
        noisy = variance > _SINGULAR * covariance.diagonal()
        scores = torch.where(noisy, centre / variance.clamp(min=1e-300).sqrt(), torch.inf)
        chosen = min(left, key=lambda j: float(scores[j]))
        left.remove(chosen)
        order.append(chosen)
        if not noisy[chosen]:
            continue
        root = variance[chosen].sqrt()
        column = (covariance[:, chosen] - columns @ columns[chosen]) / root
        column[order[:-1]] = 0
        column[chosen] = root
        columns[:, step] = column
        variance = variance - column.square()
        bound = -scores[chosen]  # of the standard variable; its mean above the bound is the hazard rate
        density = torch.exp(-bound.square() / 2) / math.sqrt(2 * math.pi)
        expected = density / torch.special.ndtr(-bound).clamp(min=1e-300)
        centre = centre + column * expected
    return order, columns[order]


def _orthant(mean: Tensor, factor: Tensor, wins_ties: Sequence[bool], skewness: Tensor | None) -> Tensor:
    """Integrand of P(mean + L z > 0) at all points, (4096,); a series with `skewness` of the variables z."""
    n = len(mean)
    uniform = _uniform(n - 1)
    z = torch.zeros(n, SCRAMBLES * POINTS, dtype=torch.float64)
    weight = torch.ones(SCRAMBLES * POINTS, dtype=torch.float64)
    for k in range(n):
        centre = mean[k] + factor[k, :k] @ z[:k]
        is_last = k == n - 1
        if factor[k, k] == 0:
            weight = weight * ((centre > 0) | (wins_ties[k] & (centre == 0)))
            bound = torch.full_like(weight, -torch.inf)
            continue
        bound = -centre / factor[k, k]
        above = torch.special.ndtr(-bound)
        weight = weight * above
        if not is_last:
            z[k] = -torch.special.ndtri((uniform[k] * above).clamp(min=1e-300))
    if skewness is None:
        return weight
    return _with_skewness(weight, bound, z[: n - 1], skewness)


def _with_skewness(weight: Tensor, bound: Tensor, z: Tensor, t: Tensor) -> Tensor:
    """Multiply by the mean of 1 + t_abc He_abc / 6 over the last variable above its bound.

    The other variables are `z` (n - 1, points). The integral of He_k phi above b is He_(k - 1)(b) phi(b).
    """
    inner, of_pairs, of_one = t[:-1, :-1, :-1], t[-1, :-1, :-1], t[-1, -1, :-1]
    cubic = torch.einsum("abc,ap,bp,cp->p", inner, z, z, z) - 3 * torch.einsum("aab,bp->p", inner, z)
    quadratic = torch.einsum("ab,ap,bp->p", of_pairs, z, z) - of_pairs.trace()
    finite = bound.clamp(-40, 40)
    density = torch.exp(-finite.square() / 2) / math.sqrt(2 * math.pi)
    above = torch.special.ndtr(-finite)
    hazard = torch.where(above > 0, density / above.clamp(min=1e-300), 0.0)
    last = 3 * quadratic + 3 * (of_one @ z) * finite + t[-1, -1, -1] * (finite.square() - 1)
    return weight * (1 + (cubic + hazard * last) / 6)


def _uniform(dimension: int) -> Tensor:
    """Scrambled Sobol points inside (0, 1), shape (dimension, 4096), by scramble."""
    if dimension == 0:
        return torch.zeros(0, SCRAMBLES * POINTS, dtype=torch.float64)
    engines = [torch.quasirandom.SobolEngine(dimension, scramble=True, seed=k) for k in range(SCRAMBLES)]
    points = torch.cat([engine.draw(POINTS, dtype=torch.float64) for engine in engines])
    return (points + 2.0**-31).mT  # midpoints of the grid of torch's points
