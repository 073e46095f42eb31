"""Second-order propagation: the net as its quadratic Taylor polynomial at the mean."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from sdp_ref.graph.trace import Net
from sdp_ref.jacobian.jacobian import hessian_of
from sdp_ref.laws import DiagonalGaussian, Law
from sdp_ref.rules.base import Rule, as_any_gaussian, smooth_orders, stored, with_checked_outputs
from sdp_ref.rules.rows import evaluates
from sdp_ref.rules.sampling import as_integer, checked_seeds, seeds_of_rows


@dataclass(frozen=True)
class SecondOrder(Rule):
    """Mean and covariance of the net's quadratic Taylor polynomial at the mean of a Gaussian input.

    With Jacobian J and Hessians H_i of the outputs, and input covariance S, the mean is f_i + tr(H_i S) / 2
    and the covariance (J S J^T)_ij + tr(H_i S H_j S) / 2. Both are exact where the net is a quadratic
    function. For a smooth net the mean is correct to second order in the noise. The covariance is not, since
    it omits the terms of that order with third derivatives.

    Nets with ReLU, max-pooling or another function with a kink are rejected, because second derivatives omit
    the curvature of kinks. With ReLU they omit all of it, so that the rule would equal ``sdp``. Kinks of
    ``torch.where`` and ``clamp`` are not detected and treated as straight.

    No Hessian is built. The traces are sums of Hessian-vector products, each of which takes m backward passes
    for m outputs. Exact traces take n vectors for n inputs. With `probes`, at most k vectors are used: for
    more inputs, k random sign vectors estimate the traces without bias (Hutchinson). The standard error of
    mean i is then at most sqrt(tr(H_i S H_i S) / (2 k)), that of k samples of the quadratic term alone, and
    that of the second term of a variance at most sqrt(2 / k) times the term. J S J^T remains exact. The
    result carries no gradient.

    Parameters
    ----------
    probes : int, optional
        k, at least 1: the maximum number of vectors; by default the number of inputs.
    seed : int or sequence of int
        Seed of the signs, or one for each law of the batch, as in :class:`MonteCarlo`.

    References
    ----------
    Athans, Wishner and Bertolini, "Suboptimal state estimation for continuous-time nonlinear systems from
    discrete noisy measurements", IEEE Trans. Automat. Control 1968. Hutchinson, "A stochastic estimator of
    the trace of the influence matrix for Laplacian smoothing splines", Comm. Statist. Simulation Comput.
    1989.
    """

    name: ClassVar[str] = "second_order"
    title: ClassVar[str] = "second order"
    rank: ClassVar[int] = 15
    orders: ClassVar[Mapping[str, float]] = smooth_orders(4, 4)
    probes: int | None = None
    seed: int | Sequence[int] = 0

    def __post_init__(self) -> None:
        probes = None if self.probes is None else as_integer(self.probes)
        if self.probes is not None and (probes is None or probes < 1):
            raise ValueError(f"{self.name} needs probes of at least 1, got {self.probes!r}")
        object.__setattr__(self, "probes", probes)
        object.__setattr__(self, "seed", checked_seeds(self.name, self.seed))

    @property
    def claims(self) -> Collection[str]:  # type: ignore[override]  # of the exact rule only
        """Empty for estimated traces."""
        return frozenset({"second order"} if self.probes is None else ())

    @property
    def known_faults(self) -> Mapping[str, str]:  # type: ignore[override]  # of the estimate only
        drawn = "the random signs depend on the index of the law in the batch and of the input in the law"
        return {} if self.probes is None else {"permutation": drawn, "batch": drawn}

    @property
    def parameters(self) -> dict[str, Any]:
        """The number of probes, if it is limited; the seed is a property of a run."""
        return {} if self.probes is None else {"probes": self.probes}

    @property
    def sampling(self) -> int | None:
        """None for exact traces, although the rule has a seed."""
        return self.probes

    def with_seeds(self, seeds: Sequence[int]) -> SecondOrder:
        """Return the same rule with one seed for each law of a batch."""
        return replace(self, seed=tuple(seeds))

    def prepare(self, net: Net) -> Callable[[Law], Law]:
        """Nothing is prepared, since derivatives depend on the input."""
        checked = False

        @evaluates(self.name, net)
        @torch.no_grad()
        def propagate(x: Law) -> Law:
            nonlocal checked
            x = as_any_gaussian(self.name, x)
            spread, checked = None if checked else x.spread, True
            with self.at():
                value, jacobian, product = hessian_of(with_checked_outputs(net), x.mean, spread)
            event, dtype = value.shape[1:], value.dtype
            # S = F F^T; for independent inputs F is diagonal and stored as its diagonal
            root = x.standard_deviation.flatten(1) if isinstance(x, DiagonalGaussian) else x.factor()
            linear = _times(jacobian.double(), root)
            mean, covariance = value.flatten(1).double(), linear @ linear.mT
            for z in self._vectors(x):
                along = _times(z.unsqueeze(1), root if root.ndim == 2 else root.mT).squeeze(1)
                curved = _times(product(along.to(dtype)).double(), root)  # F^T H_i F z
                mean = mean + (curved @ z.unsqueeze(2)).squeeze(2) / 2
                covariance = covariance + curved @ curved.mT / 2
            return stored(mean.unflatten(1, event), covariance, dtype)

        return propagate

    def _vectors(self, x: Law) -> Iterator[Tensor]:
        """Vectors z, shape (B, n), float64: the sum of all z z^T is the identity, exactly or on average."""
        blank = torch.zeros(x.batch, x.dimension, dtype=torch.float64, device=x.location.device)
        if self.probes is None or self.probes >= x.dimension:
            for component in range(x.dimension):
                yield blank.index_fill(1, torch.tensor(component, device=blank.device), 1.0)
            return
        generators = [np.random.default_rng(s) for s in seeds_of_rows(self.name, self.seed, x.batch)]
        for _ in range(self.probes):
            signs = np.stack([2.0 * generator.integers(0, 2, x.dimension) - 1 for generator in generators])
            yield torch.from_numpy(signs / math.sqrt(self.probes)).to(blank.device)


def _times(rows: Tensor, factor: Tensor) -> Tensor:
    """Rows (B, k, n) times a matrix (B, n, n), or a diagonal one given by its diagonal (B, n)."""
    return rows * factor.unsqueeze(1) if factor.ndim == 2 else rows @ factor
