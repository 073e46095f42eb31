"""The law that a rule predicts for one input, as metrics ask about it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from sdp_bench.oracles.partitions.quantiles import Quantiles
from sdp_ref.laws import Cauchy, DiagonalGaussian, Gaussian, Law, SymmetricStable

if TYPE_CHECKING:
    from sdp_bench.bench.metrics.oracle import Oracle


class Prediction:
    """The law that a rule predicts for one input, and samples of it, of all rules from the same noise.

    Parameters
    ----------
    law : Gaussian, DiagonalGaussian, Cauchy, SymmetricStable or None
        Of the output, batch 1; none where it is known by samples alone.
    oracle : Oracle
        For the same input.
    draw : callable, optional
        Samples of the joint law of the outputs, shape (samples, m), float64, where `law` does not give it.

    Raises
    ------
    ValueError
        If the law is of another family, has non-finite parameters or a negative variance or scale.
    """

    def __init__(self, law: Law | None, oracle: Oracle, draw: Callable[[], Tensor] | None = None) -> None:
        match law:
            case Gaussian() | DiagonalGaussian():
                _check_finite(mean=law.mean, covariance=law.covariance)
                _check_positive(variance=law.variance)
            case Cauchy() | SymmetricStable():
                _check_finite(location=law.location, scale=law.scale)
                _check_positive(scale=law.scale)
            case None if draw is not None:
                pass
            case _:
                raise ValueError(f"the prediction is a {type(law).__name__}, neither Gaussian nor stable")
        self.law, self._oracle, self._draw = law, oracle, draw

    @functools.cached_property
    def samples(self) -> Tensor:
        """Of the predicted law, shape (samples, m), float64; an indefinite covariance is clipped."""
        return self._of_law() if self._draw is None else self._draw()

    @functools.cached_property
    def outputs(self) -> Tensor:
        """Samples like those, of which only single columns count: of a stable law, its own components."""
        alone = self._draw is not None and isinstance(self.law, Cauchy | SymmetricStable)
        return self._of_law() if alone else self.samples

    @property
    def gaussian(self) -> Gaussian | DiagonalGaussian:
        """The law, for metrics that compare moments.

        Raises
        ------
        ValueError
            If it has none.
        """
        if isinstance(self.law, Gaussian | DiagonalGaussian):
            return self.law
        name = "law known by samples alone" if self.law is None else f"{type(self.law).__name__} law"
        raise ValueError(f"the prediction is a {name}, which has no moments to compare")

    @functools.cached_property
    def quantiles(self) -> Quantiles:
        """Quantiles of each output."""
        return Quantiles.from_samples(self.outputs)

    def _of_law(self) -> Tensor:
        match self.law:
            case Gaussian() | DiagonalGaussian() as law:
                return torch.addmm(law.mean.double(), self._oracle.normals, law.factor()[0].mT)
            case Cauchy() | SymmetricStable() as law:
                return self._oracle.draw(nn.Flatten(), law)
        raise ValueError("the prediction is known by samples alone")


def _check_finite(**parameters: Tensor) -> None:
    for name, value in parameters.items():
        if not bool(torch.isfinite(value).all()):
            raise ValueError(f"the predicted {name} is not finite")


def _check_positive(**parameters: Tensor) -> None:
    for name, value in parameters.items():
        if bool((value < 0).any()):
            raise ValueError(f"a predicted {name} is negative")
