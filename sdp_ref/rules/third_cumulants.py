"""Propagation of means, covariances and third cumulants through fully connected nets."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from sdp_ref.activations import ELEMENTWISE, Activation, activation_of
from sdp_ref.activations.numerics.normal import gauss_legendre
from sdp_ref.graph.affine import AFFINE, Affine
from sdp_ref.graph.trace import Step
from sdp_ref.laws import Gaussian, Law, joined, unchecked
from sdp_ref.rules.base import as_gaussian, smooth_orders, stored
from sdp_ref.rules.joint import elementwise_input
from sdp_ref.rules.layerwise import SizedRule


@dataclass(frozen=True, eq=False)
class Skewed(Gaussian):
    """Mean, covariance and third cumulants (1, n, n, n) of a value, flattened; float64."""

    third: Tensor


@dataclass(frozen=True)
class ThirdCumulants(SizedRule):
    """Mean and covariance of the output, with third cumulants carried from layer to layer.

    `moment_matching` replaces each layer's input by a Gaussian. This rule also carries its third cumulants
    T, which affine layers map exactly. At a non-linearity the law is the Gaussian times 1 + T_abc He_abc / 6
    (the Edgeworth series of first order), under which E[g(X)] = E_N[g] + T_abc E_N[d_abc g] / 6. Means and
    covariances are those of `moment_matching` plus the terms of first order in T. Third cumulants of three
    different units are series in their correlations r: T_ijk and the products r_ij r_ik and r_ij r_jk r_ik,
    with the mean derivatives of the non-linearity. With two or three equal units, powers of the function are
    expanded in the same way.

    The series are accurate for small correlations and weak skewness, as in wide layers. In narrow layers,
    errors can be larger than those of `moment_matching`. Third cumulants of standardised units are limited to
    3, and correlations to 1. Variances that the correction would make negative keep their Gaussian value;
    those that an affine layer makes negative become 0. For one hidden layer and Gaussian input the rule
    is exact, as is `moment_matching`. It supports affine ops and elementwise functions in a chain.

    One input takes 6 n^4 operations for each layer of n units, and 40 n^3 bytes.

    References
    ----------
    McCullagh, "Tensor methods in statistics", 1987, chapters 3 and 5 (cumulants of functions, Edgeworth
    series). Cumulant propagation in wide random nets: arXiv 2605.05179.
    """

    name: ClassVar[str] = "third_cumulants"
    version: ClassVar[int] = 2
    title: ClassVar[str] = "third cumulants"
    rank: ClassVar[int] = 35
    claims: ClassVar[frozenset[str]] = frozenset({"moments"})
    orders: ClassVar[Mapping[str, float]] = smooth_orders(5, 5)

    def start(self, x: Law) -> Law:
        law = as_gaussian(self.name, x).to(dtype=torch.float64)
        n = law.dimension
        self.fit_units(n)
        return unchecked(Skewed, law.mean, law.covariance, law.mean.new_zeros(1, n, n, n))

    def finish(self, law: Law, x: Law) -> Law:
        covariance = elementwise_input(as_gaussian(self.name, law))[1]  # negative variances become 0
        return stored(law.mean, covariance, x.location.dtype)

    def prepare_steps(self, steps: Sequence[Step]) -> Callable[[Law], Law]:
        """Propagate one law at a time, since third cumulants are large."""
        propagate_one = super().prepare_steps(steps)
        return lambda x: joined([propagate_one(x[row]) for row in range(x.batch)])

    def fit_units(self, n: int) -> None:
        """Raise :class:`~sdp_ref.CovarianceSizeError` if a layer of n units exceeds `max_bytes`."""
        hint = "rule 'moment_matching' carries covariances only"
        self.fit(40 * n**3, f"third cumulants of {n} units", hint=hint)


@ThirdCumulants.prepares(*AFFINE)
def _affine(rule: ThirdCumulants, module: nn.Module) -> Callable[[Skewed], Law]:
    op: Affine = AFFINE[type_before_parametrizations(module)](module)

    def propagate(law: Skewed) -> Law:
        op.check(law.mean)
        event = law.mean.shape[1:]

        def along_last(x: Tensor) -> Tensor:
            """Apply A to the last dimension of a tensor."""
            return op.rows(x.reshape(-1, *event)).reshape(*x.shape[:-1], -1)

        mean = op.value(law.mean)
        rule.fit_units(mean[0].numel())
        covariance, third = law.covariance, law.third
        for _ in range(2):
            covariance = along_last(covariance).mT
        for _ in range(3):
            third = along_last(third).movedim(-1, 1)
        return unchecked(Skewed, mean, covariance, third)

    return propagate


@ThirdCumulants.prepares(*ELEMENTWISE)
def _elementwise(_rule: ThirdCumulants, module: nn.Module) -> Callable[[Skewed], Law]:
    activation = activation_of(module)

    def propagate(law: Skewed) -> Law:
        flat = activation.flattened(law.mean.shape[1:])
        mean, covariance, third = _transformed(flat, *elementwise_input(law), law.third)
        return unchecked(Skewed, mean.reshape(law.mean.shape), covariance, third)

    return propagate


def _transformed(
    activation: Activation, mean: Tensor, covariance: Tensor, third: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean (1, n), covariance (1, n, n) and third cumulants (1, n, n, n) of f(X), given those of X.

    X_i = m_i + s_i Z_i with correlations r and third cumulants t of the Z_i. In terms of g = f - f(m), which
    has the same second and third cumulants, with Hermite coefficients c_k = E[g He_k(Z)] and Edgeworth's
    series E[h(Z)] = E_N[h] + t_abc E_N[d_abc h] / 6.
    """
    variance = covariance[0].diagonal()
    point = variance == 0
    s = torch.where(point, 1.0, variance).sqrt()
    covariance = covariance.clamp(-s[:, None] * s, s[:, None] * s)  # the series can make it indefinite
    same = torch.eye(len(s), dtype=torch.bool, device=s.device)
    r = torch.where(same, 0.0, covariance[0] / (s[:, None] * s))
    t = _standardised(third[0], s, point)
    skew = t.diagonal().diagonal()
    c, c_square, c_cube = _coefficients(activation, mean[0], s).movedim(1, 0)

    gaussian_mean, gaussian_covariance = activation.mean_covariance(mean, covariance)
    shift = torch.where(point, 0.0, skew * c[3] / 6)  # Edgeworth's term of E[g]
    output_covariance = gaussian_covariance[0] + _edgeworth_covariance(r, t, c, c)
    output_variance = _edgeworth_variance(gaussian_covariance[0].diagonal(), skew, c, c_square)
    output_covariance = torch.where(same, output_variance.unsqueeze(1), output_covariance)

    of_pairs = _of_pairs(r, t, c, c_square, shift)
    of_pairs = torch.where(same, _of_one_unit(skew, c, c_square, c_cube).unsqueeze(1), of_pairs)
    output_third = _with_pairs(_of_three_units(r, t, c), of_pairs)
    return gaussian_mean + shift, output_covariance[None], torch.where(point, 0.0, output_third)[None]


def _with_pairs(third: Tensor, of_pairs: Tensor) -> Tensor:
    """Set the entries (i, i, k), (i, k, i) and (k, i, i) of third cumulants (n, n, n) to entry (i, k)."""
    unit = torch.arange(len(of_pairs), device=third.device)
    i, k = unit[:, None], unit[None]
    for index in ((i, i, k), (i, k, i), (k, i, i)):
        third = third.index_put(index, of_pairs)
    return third


def _edgeworth_variance(gaussian: Tensor, skew: Tensor, c: Tensor, c_square: Tensor) -> Tensor:
    """Variances of g(Z_i), (n,), from those for Gaussian Z.

    E[g^2] and E[g]^2 have the terms t_iii E_N[He_3 g^2] / 6 and 2 E_N[g] t_iii E_N[He_3 g] / 6 of first
    order. Where skewness is too strong for the series, the variance would become negative; it keeps its
    Gaussian value there.
    """
    corrected = gaussian + skew * (c_square[3] - 2 * c[0] * c[3]) / 6
    return torch.where(corrected > 0, corrected, gaussian)


def _standardised(third: Tensor, s: Tensor, point: Tensor) -> Tensor:
    """Third cumulants of the standardised units, limited in size; those with a point mass are 0."""
    t = third / s[:, None, None] / s[:, None] / s  # one by one, since products of small numbers underflow
    noisy = ~point
    all_noisy = noisy[:, None, None] & noisy[:, None] & noisy
    return torch.where(all_noisy, t.clamp(-_STRONG, _STRONG), 0.0)


def _edgeworth_covariance(r: Tensor, t: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The terms of first order in t of Cov(g(Z_i), h(Z_k)), i != k, (n, n).

    `a` and `b` (5, n) are the Hermite coefficients of g and h. The series has t_abc E_N[d_abc (g h)] / 6 over
    a, b, c in {i, k}, with one term for each choice: t_iii, three of t_iik, three of t_ikk, and t_kkk. By
    Mehler's formula, E_N[g^(p) h^(q)] is the sum over l of r^l a_(p + l) b_(q + l) / l!. It is taken to the
    first order in r, without the product of means that a covariance subtracts.
    """
    t_iii = t.diagonal().diagonal()
    t_iik = t.diagonal().T
    of_one = (t_iii * a[4])[:, None] * b[1] + a[1][:, None] * (t_iii * b[4])
    of_iik = t_iik * (a[2][:, None] * b[1] + r * a[3][:, None] * b[2])
    of_ikk = t_iik.T * (a[1][:, None] * b[2] + r * a[2][:, None] * b[3])
    return r * of_one / 6 + (of_iik + of_ikk) / 2


def _of_three_units(r: Tensor, t: Tensor, c: Tensor) -> Tensor:
    """Third cumulants of g(Z_i), g(Z_j), g(Z_k) for three different units, (n, n, n).

    They are the terms of lowest order in the series of g = c_1 He_1 + c_2 He_2 / 2 + ...: the linear one
    t_ijk c_1 c_1 c_1; the trees, c_2 of one unit and c_1 of the others, r_ij r_ik c_2(i) c_1(j) c_1(k) and
    its two permutations; and the loop r_ij r_jk r_ik c_2(i) c_2(j) c_2(k).
    """
    slope, bend = c[1], c[2]
    linear = t * (slope[:, None, None] * slope[:, None] * slope)
    loop = r[:, :, None] * r[:, None, :] * r * (bend[:, None, None] * bend[:, None] * bend)
    branch = r * slope  # r_ij c_1(j)
    tree = bend[:, None, None] * branch[:, :, None] * branch[:, None, :]
    return linear + loop + tree + tree.movedim(0, 1) + tree.movedim(0, 2)


def _of_pairs(r: Tensor, t: Tensor, c: Tensor, c_square: Tensor, shift: Tensor) -> Tensor:
    """Third cumulants of g(Z_i), g(Z_i), g(Z_k) for two different units, (n, n).

    They are Cov(g_i^2, g_k) - 2 E[g_i] Cov(g_i, g_k), the covariance of h_i = g_i^2 - 2 E[g_i] g_i with g_k.
    E[g_i] is c_0 + `shift`; `c_square` are the coefficients of g^2.
    """
    h = c_square - 2 * (c[0] + shift) * c
    gaussian = torch.zeros_like(r)
    for k in (1, 2, 3):  # Mehler's formula up to the third order in r
        gaussian = gaussian + r**k * h[k][:, None] * c[k] / math.factorial(k)
    return gaussian + _edgeworth_covariance(r, t, h, c)


def _of_one_unit(skew: Tensor, c: Tensor, c_square: Tensor, c_cube: Tensor) -> Tensor:
    """Third cumulants of g(Z_i), (n,): E[g^3] - 3 E[g] E[g^2] + 2 E[g]^3, to the first order in `skew`."""
    gaussian = c_cube[0] - 3 * c[0] * c_square[0] + 2 * c[0] ** 3
    derivative = c_cube[3] - 3 * c[0] * c_square[3] - 3 * c_square[0] * c[3] + 6 * c[0] ** 2 * c[3]
    return gaussian + skew * derivative / 6


_STRONG = 3.0
"""Largest third cumulant of standardised units: rare events exceed it, where the series diverges."""
_REACH = 10.0  # standard deviations, beyond which the normal density times a polynomial is below 1e-18
_EDGES = (-16.0, -4.0, -1.0, 0.0, 1.0, 4.0, 16.0)
"""Ends of panels in addition to kinks: smooth functions bend near 0, in a small part of a wide law."""


def _coefficients(activation: Activation, mean: Tensor, s: Tensor) -> Tensor:
    """Hermite coefficients E[g(m + s Z)^p He_k(Z)], p = 1, 2, 3 and k = 0, ..., 4, shape (5, 3, n).

    They equal the means of the k-th derivatives of g^p, times s^k. g is f - f(m): without the difference,
    rounding errors of f(m) would exceed the third cumulants of small noise.
    """
    nodes, weights = gauss_legendre(64, mean.device)
    reach = torch.full_like(mean, _REACH)
    inner = [((edge - mean) / s).clamp(-_REACH, _REACH) for edge in sorted({*_EDGES, *activation.kinks})]
    total = mean.new_zeros(5, 3, len(mean))
    for left, right in itertools.pairwise([-reach, *inner, reach]):
        z = left + (right - left) * nodes[:, None]
        weight = weights[:, None] * (right - left) * torch.exp(-z * z / 2) / math.sqrt(2 * math.pi)
        g = activation.function(mean + s * z) - activation.function(mean)
        hermite = torch.stack([torch.ones_like(z), z, z**2 - 1, z**3 - 3 * z, z**4 - 6 * z**2 + 3])
        total = total + torch.einsum("kjn,pjn->kpn", hermite * weight, torch.stack([g, g**2, g**3]))
    return total
