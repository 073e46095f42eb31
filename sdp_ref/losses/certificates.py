"""Orthonormal certificates (Tagasovska & Lopez-Paz 2019): directions in which training data do not vary."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sdp_ref.losses._checks import check_float


@dataclass(frozen=True, eq=False)
class OrthonormalCertificates:
    """Linear certificates that are trained to be 0 on training features; large values indicate other inputs.

    The authors minimise mean_i ||C^T (phi_i - b)||^2 / k + lambda ||C^T C - I||^2 / k^2 over C (d, k) and b
    by SGD. The minimum is known in closed form and computed directly: b is the mean of the features, and the
    left singular vectors of C are the eigenvectors of their covariance with the k smallest eigenvalues e_j,
    with squared singular values max(0, 1 - k e_j / (2 lambda)). (The second term depends on the singular
    values only, and for given ones these eigenvectors minimise the first.) The default, lambda = infinity,
    makes C orthonormal. C is unique up to a rotation of its columns, which does not change the score.

    Parameters
    ----------
    certificates : Tensor, shape (d, k)
        C.
    center : Tensor, shape (d,)
        b, in units of the features.
    """

    certificates: Tensor
    center: Tensor

    @classmethod
    def fit(
        cls, features: Tensor, count: int, penalty: float = math.inf, centered: bool = True
    ) -> OrthonormalCertificates:
        """Compute the certificates of training features.

        The result is deterministic and has the dtype of the features and no gradient. If more than `count`
        directions share the smallest eigenvalue (the features span a small subspace), rounding decides which
        of them are used, as the seed does under SGD; use more certificates then.

        Parameters
        ----------
        features : Tensor, shape (N, d)
            phi of the training data: the inputs of the last linear layer of the net.
        count : int
            k, in 1..d.
        penalty : float
            lambda > 0; infinity for exactly orthonormal certificates.
        centered : bool
            Whether b is fitted, as in the authors' code, or 0, as in their formula.
        """
        check_float("features", features)
        if features.ndim != 2 or not len(features):
            raise ValueError(f"features must have shape (N, d), N > 0, got {tuple(features.shape)}")
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= features.shape[1]:
            raise ValueError(f"count must be an integer in 1..{features.shape[1]}, got {count!r}")
        if not penalty > 0:
            raise ValueError(f"penalty must be positive, got {penalty!r}")
        phi = features.detach().double()
        center = phi.mean(0) if centered else torch.zeros_like(phi[0])
        phi = phi - center
        found = torch.linalg.eigh(phi.mT @ phi / len(phi))
        values, vectors = found.eigenvalues[:count].clamp(min=0), found.eigenvectors[:, :count]
        signs = vectors.gather(0, vectors.abs().argmax(0, keepdim=True)).sign()
        lengths = (1 - count * values / (2 * penalty)).clamp(min=0).sqrt()
        return cls((vectors * signs * lengths).to(features.dtype), center.to(features.dtype))

    def score(self, features: Tensor) -> Tensor:
        """Return the uncertainty ||C^T (phi - b)||^2, shape (B,), in squared units of the features.

        `features` have shape (B, d) and the dtype of the certificates. The score is 0 in the directions in
        which the training data vary, and differentiable.
        """
        check_float("features", features)
        if features.ndim != 2 or features.shape[1] != len(self.center):
            raise ValueError(f"features must have shape (B, {len(self.center)}), got {tuple(features.shape)}")
        if features.dtype != self.center.dtype:
            raise ValueError(f"features are {features.dtype}, the certificates {self.center.dtype}")
        return ((features - self.center) @ self.certificates).square().sum(1)
