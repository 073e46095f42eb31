"""Second-order propagation: the net as its quadratic Taylor polynomial at the mean."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import jacrev, vmap

import sdp_ref as sr


@dataclass(frozen=True)
class SecondOrder(sr.Rule):
    """Mean f(x) + 1/2 tr(H_k S), covariance J S J^T + 1/2 tr(H_k S H_l S); exact for quadratic nets."""

    name: ClassVar[str] = "my_second_order"
    claims: ClassVar[frozenset[str]] = frozenset({"second order"})

    def prepare(self, net: Callable[[Tensor], Tensor]) -> Callable[[sr.Law], sr.Law]:
        """Return the function from input law to output law; derivatives are computed for each input."""

        def propagate(x: sr.Law) -> sr.Law:
            if not isinstance(x, sr.Gaussian | sr.DiagonalGaussian):
                raise sr.UnsupportedError(self.name, f"{type(x).__name__} input")

            def one(row: Tensor) -> Tensor:
                return net(row.reshape(1, *x.event_shape))[0]

            with torch.no_grad():
                rows = x.mean.flatten(1)
                try:
                    jacobian = vmap(jacrev(one))(rows)  # (B, m, n)
                    hessians = vmap(jacrev(jacrev(one)))(rows)
                except RuntimeError as error:  # for example, Hardsigmoid has no second derivative in torch
                    raise sr.UnsupportedError(self.name, str(error).splitlines()[0]) from error
                curved = hessians @ x.covariance.unsqueeze(1)  # (B, m, n, n)
                mean = net(x.mean) + curved.diagonal(dim1=2, dim2=3).sum(2) / 2
                covariance = jacobian @ x.covariance @ jacobian.mT
                covariance = covariance + torch.einsum("bkij,blji->bkl", curved, curved) / 2
            return sr.Gaussian(mean, (covariance + covariance.mT) / 2)

        return propagate
