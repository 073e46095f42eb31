"""A mixture of SDP predictions at several points of the input law."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

import sdp_ref as sr


@dataclass(frozen=True)
class Split(sr.Rule):
    """Split the input law along its widest direction and propagate each piece by SDP; `pieces` is odd."""

    name: ClassVar[str] = "my_split"
    pieces: int = 5

    def prepare(self, net: Callable[[Tensor], Tensor]) -> Callable[[sr.Law], sr.Law]:
        """Return the function from input law to output law."""
        sdp = sr.rule("sdp").prepare(net)

        def propagate(x: sr.Law) -> sr.Law:
            if not isinstance(x, sr.Gaussian | sr.DiagonalGaussian):
                raise sr.UnsupportedError(self.name, f"{type(x).__name__} input")
            values, vectors = torch.linalg.eigh(x.covariance)
            axis = (vectors[..., -1] * values[:, -1:].clamp(min=0).sqrt()).reshape(x.mean.shape)
            places = torch.special.ndtri((torch.arange(self.pieces).to(x.mean) + 0.5) / self.pieces)
            left = 1 - places.square().mean()  # of the variance along the axis, inside each piece
            within = x.covariance - (1 - left) * axis.flatten(1)[:, :, None] * axis.flatten(1)[:, None]
            laws = [sdp(sr.Gaussian(x.mean + place * axis, within)) for place in places]
            return sr.Mixture.of(torch.full((x.batch, self.pieces), 1 / self.pieces).to(x.mean), laws)

        return propagate
