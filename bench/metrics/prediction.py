"""The law that a rule predicts for one input, with the quantities that metrics need."""

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
"""Number of exact rules behind a floor; its 95 % point is then accurate to a quarter of the spread."""


class Prediction:
    """The law that a rule predicts for one input, and samples of it. All rules use the same noise.

    `law` is the law of the output (batch 1), or None if only samples are available. `draw` gives samples of
    the joint law of the outputs, shape (samples, m), float64, if `law` does not. A ValueError is raised if
    both are missing, or if the law has non-finite parameters, a negative variance or a negative scale.
    """

    def __init__(self, law: Law | None, oracle: Oracle, draw: Callable[[], Tensor] | None = None) -> None:
        if law is None and draw is None:
            raise ValueError("the prediction is neither a law nor samples of one")
        if law is not None and (reason := law.unsound()):
            raise ValueError(f"the predicted {reason}")
        self.law, self._oracle, self._draw = law, oracle, draw

    @functools.cached_property
    def samples(self) -> Tensor:
        """Samples of the predicted law, shape (samples, m), float64; an indefinite covariance is clipped.

        An UndefinedError is raised if the law has marginals only.
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
        """Samples for metrics that use single columns; marginal laws have these too."""
        law = self.law
        own = law is not None and (not law.joint or (self._draw is not None and heavy_tailed(law)))
        return self._of_law() if own else self.samples

    @functools.cached_property
    def gaussian(self) -> Gaussian | DiagonalGaussian:
        """The Gaussian with the predicted mean and covariance; an UndefinedError if the law has none."""
        if isinstance(self.law, Gaussian | DiagonalGaussian):
            return self.law
        law = self._moments()
        return unchecked(Gaussian, law.mean.double(), law.covariance.double())

    @functools.cached_property
    def marginals(self) -> Gaussian | DiagonalGaussian:
        """The same for metrics that compare the moments of single outputs."""
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
        return Quantiles.from_samples(self.outputs)

    def log_prob(self, values: Tensor) -> Tensor:
        """Log of the predicted joint density at `values`, shape (rows, m); returns shape (rows,), float64.

        An UndefinedError is raised if the density does not exist or is not known.
        """
        law = self.law
        if law is None or self._draw is not None:
            raise UndefinedError("a law known by samples alone has no known density")
        return law.log_prob(values.double().reshape(len(values), 1, *law.event_shape))[:, 0]

    def survival(self, values: Array) -> tuple[Array, int | None]:
        """Return P(y > value) for each output, shape (rows, m), and the number of draws it was counted in.

        The number is None if the law gives the probability exactly.
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
        """Yield predictions of exact rules with the same number of draws, if this one has draws."""
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
