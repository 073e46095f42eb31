"""Standard coordinates of an input law: directions in which it can be split, and the laws of the pieces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sdp_ref.errors import NoFormulaError
from sdp_ref.graph.trace import Net
from sdp_ref.jacobian.jacobian import MAX_BYTES, jacobian_of
from sdp_ref.laws import Cauchy, DiagonalGaussian, Gaussian, Law, SymmetricStable, unchecked
from sdp_ref.rules.base import check_outputs
from sdp_ref.rules.splitting.tree import Array, Pieces

MOST = 16
"""Maximum number of directions. Inputs with more components are split along the leading singular vectors of
the Jacobian, so that no matrix of inputs by inputs is needed.
"""

Splittable = Gaussian | DiagonalGaussian | Cauchy | SymmetricStable


@dataclass(frozen=True)
class Frame:
    """Directions of a batch of laws, which may be rotated if `turning`.

    The columns of `steps` (B, n, r), float64, are one step along each direction, in units of the inputs.
    """

    law: Splittable
    steps: Tensor
    turning: bool

    @classmethod
    def of(cls, net: Net, law: Splittable, *, axes: bool) -> Frame:
        """Directions along which `net` varies most."""
        axes = axes or not isinstance(law, Gaussian | DiagonalGaussian)
        n, scales = law.dimension, None if isinstance(law, Gaussian) else _scales(law)
        if n <= MOST:
            steps = law.factor() if scales is None else torch.diag_embed(scales)
            return cls(law, steps, not axes)
        jacobian = jacobian_of(net, law.location.detach(), spread=law.spread)[1].flatten(2).double()
        # Rows of J L, for L a factor of the covariance.
        rows = jacobian @ law.factor().detach() if scales is None else jacobian * scales.detach().unsqueeze(1)
        if axes:
            leading = rows.square().sum(1).argsort(dim=1, descending=True, stable=True)[:, :MOST]
            chosen = torch.nn.functional.one_hot(leading, n).mT.to(rows)
        else:
            _, sizes, vectors = torch.linalg.svd(rows, full_matrices=False)
            # Directions that do not affect the outputs are arbitrary: random ones will do.
            reached = sizes > _LEAST * sizes[:, :1]
            chosen = (vectors * reached.unsqueeze(-1))[:, :MOST].mT
        steps = law.factor() @ chosen if scales is None else scales.unsqueeze(-1) * chosen
        return cls(law, steps, not axes)

    def evaluate(self, net: Net) -> Callable[[Array], Array]:
        """The net at points (B, p, r) in standard coordinates, in the dtype of the law."""
        location, event = self.law.location.detach(), self.law.event_shape
        centre, steps = location.flatten(1).double().unsqueeze(1), self.steps.detach().mT

        def values(points: Array) -> Array:
            inputs = centre + torch.from_numpy(points).to(steps.device) @ steps
            inputs = inputs.to(location.dtype).reshape(-1, *event)
            with torch.no_grad():
                outputs = check_outputs(inputs, net(inputs))
            found = outputs.detach().double().cpu().numpy().reshape(*points.shape[:2], -1)
            return np.asarray(found, dtype=np.float64)

        return values

    def pieces(self, pieces: Pieces) -> Law:
        """Laws of the pieces: batch B K, row b K + j is piece j of law b."""
        law, event, count = self.law, self.law.event_shape, pieces.weights.shape[1]
        dtype, device = law.location.dtype, law.location.device
        centres, axes = (torch.from_numpy(v).to(device) for v in (pieces.centres, pieces.axes))
        moved = law.location.flatten(1).double().unsqueeze(1) + centres @ self.steps.mT
        location = moved.flatten(0, 1).unflatten(1, event).to(dtype)
        if not self.turning:
            # Each piece has its own directions: what remains of a component's scale.
            narrowed = 1 - axes.diagonal(dim1=-2, dim2=-1)
            share = 1 - narrowed @ (self.steps.detach() != 0).double().mT
            scale = (_scales(law).unsqueeze(1) * share).flatten(0, 1).unflatten(1, event).to(dtype)
            match law:
                case Cauchy():
                    return unchecked(Cauchy, location, scale)
                case SymmetricStable():
                    return unchecked(SymmetricStable, location, scale, law.alpha)
            return unchecked(DiagonalGaussian, location, scale.square())
        _check_size(law.batch * count, law.dimension)
        own = self.steps.unsqueeze(1) @ axes
        covariance = own @ own.mT
        if self.steps.shape[2] < law.dimension:
            covariance = covariance + (law.covariance.double() - self.steps @ self.steps.mT).unsqueeze(1)
        return unchecked(Gaussian, location, covariance.flatten(0, 1).to(dtype))


_LEAST = 1e-6


def _scales(law: Splittable) -> Tensor:
    scale = law.scale.double() if isinstance(law, Cauchy | SymmetricStable) else law.standard_deviation
    return scale.flatten(1)


def _check_size(count: int, n: int) -> None:
    """Covariances of pieces are dense: raise an error before allocating too many."""
    size = 8 * count * n * n
    if size > 4 * MAX_BYTES:
        raise NoFormulaError(
            f"{count} covariances of {n} inputs, {size / 2**30:.1f} GB; take fewer pieces, or a marginal base"
        )
