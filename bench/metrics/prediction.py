"""The law that a rule predicts for one input, as metrics ask about it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sdp_bench.oracles.estimate.tails import heavy_tailed
from sdp_bench.oracles.partitions.quantiles import Quantiles
from sdp_ref.errors import UndefinedError
from sdp_ref.laws import DiagonalGaussian, Empirical, Gaussian, Law, unchecked

if TYPE_CHECKING:
    from sdp_bench.bench.metrics.oracle import Oracle

Array = NDArray[np.float64]

_EXACT = 8
"""Exact rules of as many draws behind a floor: its 95 % point is sure to a quarter of the spread."""


class Prediction:
    """The law that a rule predicts for one input, and samples of it, of all rules from the same noise.

    Parameters
    ----------
    law : Law or None
        Of the output, batch 1; none where it is known by samples alone.
    oracle : Oracle
        For the same input.
    draw : callable, optional
        Samples of the joint law of the outputs, shape (samples, m), float64, where `law` does not give it.

    Raises
    ------
    ValueError
        If there is neither, or the law has non-finite parameters or a negative variance or scale.
    """

    def __init__(self, law: Law | None, oracle: Oracle, draw: Callable[[], Tensor] | None = None) -> None:
        if law is None and draw is None:
            raise ValueError("the prediction is neither a law nor samples of one")
        if law is not None and (reason := law.unsound()):
            raise ValueError(f"the predicted {reason}")
        self.law, self._oracle, self._draw = law, oracle, draw

    @functools.cached_property
    def samples(self) -> Tensor:
        """Of the predicted law, shape (samples, m), float64; an indefinite covariance is clipped.

        Raises
        ------
        UndefinedError
            If the law tells the outputs one by one.
        """
        if self._draw is not None:
            return self._draw()
        if self.law is not None and not self.law.joint:
            raise UndefinedError(
                f"the prediction is {self.law.described}, which says nothing of several together"
            )
        return self._of_law()

    @functools.cached_property
    def outputs(self) -> Tensor:
        """Samples like those, of which only single columns count: of a law that has its own, these."""
        law = self.law
        own = law is not None and (not law.joint or (self._draw is not None and heavy_tailed(law)))
        return self._of_law() if own else self.samples

    @functools.cached_property
    def gaussian(self) -> Gaussian | DiagonalGaussian:
        """The Gaussian with the law's own mean and covariance, for metrics that compare moments.

        Raises
        ------
        UndefinedError
            If it has none.
        """
        if isinstance(self.law, Gaussian | DiagonalGaussian):
            return self.law
        law = self._moments()
        return unchecked(Gaussian, law.mean.double(), law.covariance.double())

    @functools.cached_property
    def marginals(self) -> Gaussian | DiagonalGaussian:
        """The same for metrics that compare the moments of single outputs.

        Raises
        ------
        UndefinedError
            If it has none.
        """
        if isinstance(self.law, Gaussian | DiagonalGaussian):
            return self.law
        law = self._moments()
        return unchecked(DiagonalGaussian, law.mean.double(), law.variance.double())

    def _moments(self) -> Law:
        if self.law is None:
            raise UndefinedError(
                "the prediction is a law known by samples alone, which has no moments to compare"
            )
        return self.law

    @functools.cached_property
    def quantiles(self) -> Quantiles:
        """Quantiles of each output."""
        return Quantiles.from_samples(self.outputs)

    def log_prob(self, values: Tensor) -> Tensor:
        """Logarithm of the predicted density of all outputs together.

        Raises
        ------
        UndefinedError
            If it has none, or none that is known.
        """
        law = self.law
        if law is None or self._draw is not None:
            raise UndefinedError("a law known by samples alone has no known density")
        return law.log_prob(values.double().reshape(len(values), 1, *law.event_shape))[:, 0]

    def survival(self, values: Array) -> tuple[Array, int | None]:
        """Predicted probability of each output above some values: exact where the law tells it, else counted.

        Returns
        -------
        ndarray, shape (rows, m)
        int or None
            Of how many draws it was counted; None if it is exact.
        """
        law = self.law
        if law is not None and (self._draw is None or heavy_tailed(law)):
            with contextlib.suppress(UndefinedError):
                rows = torch.from_numpy(values).reshape(len(values), 1, *law.event_shape)
                return law.survival(rows).reshape(values.shape).numpy(), None
        ordered = self.quantiles.ordered
        upto = [np.searchsorted(own, t, side="right") for own, t in zip(ordered, values.T, strict=True)]
        return 1 - np.array(upto).T / ordered.shape[1], ordered.shape[1]

    def exact(self) -> Iterator[Prediction]:
        """What some exact rules predict that give as many draws as this one; nothing if it is not of draws.

        Yields
        ------
        Prediction
            Of draws of the oracle, with the weights of this one's.
        """
        law = self.law
        if law is None or law.draws is None:
            return
        weights = law.weights if isinstance(law, Empirical) else None
        points = law.samples.shape[1] if isinstance(law, Empirical) else max(1, round(law.draws))
        drawn = self._oracle.redrawn("exact draws", "mc", _EXACT * points).double()
        for rows in drawn.unflatten(0, (_EXACT, points)):
            yield Prediction(Empirical(rows.unflatten(1, law.event_shape)[None], weights), self._oracle)

    def _of_law(self) -> Tensor:
        law = self._moments()
        if isinstance(law, Gaussian | DiagonalGaussian):
            return torch.addmm(law.mean.double(), self._oracle.normals, law.factor()[0].mT)
        return self._oracle.draw(nn.Flatten(), law)
