"""An oracle and a prediction at work: what metrics need of them, made once and shared."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor, nn

from bench.keys import OracleKey
from bench.settings import Settings
from sdp_ref.distributions import DiagonalGaussian, Gaussian, Law

if TYPE_CHECKING:
    from oracles.estimate import Floor
    from oracles.moments import Moments
    from oracles.partition import Partition


class Truth:
    """The law of a net's output, by samples. All draws are seeded by the oracle's key.

    Parameters
    ----------
    net : nn.Module
    law : DiagonalGaussian
        Of the input, batch 1, in the net's dtype.
    key : OracleKey
    settings : Settings
    """

    def __init__(self, net: nn.Module, law: DiagonalGaussian, key: OracleKey, settings: Settings) -> None:
        self.net, self.law, self.key, self.settings = net, law, key, settings

    @functools.cached_property
    def samples(self) -> Tensor:
        """Of the output, shape (samples, m), on the CPU."""
        return self._draw(self.settings.samples, "oracle", self.settings.sampler)

    @functools.cached_property
    def pilot(self) -> Tensor:
        """An independent draw, which fixes bins and cells before any rule is looked at."""
        return self._draw(min(self.settings.pilot_samples, self.settings.samples), "pilot", "mc")

    def _draw(self, samples: int, purpose: str, sampler: Literal["mc", "sobol"]) -> Tensor:
        from oracles.sampling import sample_outputs

        return sample_outputs(
            self.net,
            self.law,
            samples,
            seed=self.key.seed(purpose),
            device=self.settings.device,
            sampler=sampler,
        ).cpu()

    @functools.cached_property
    def normals(self) -> Tensor:
        """Standard normals, shape (samples, m), float64: all rules' samples are made from these."""
        from oracles.sampling import standard_normals

        return standard_normals(
            self.settings.samples,
            self.samples.shape[1],
            seed=self.key.seed("rule"),
            sampler=self.settings.sampler,
        ).double()

    @functools.cached_property
    def moments(self) -> Moments:
        """Mean and covariance of the samples, with what their standard errors need."""
        from oracles.moments import Moments
        from oracles.noise import SCRAMBLES

        # Sobol points come scramble by scramble; these, and no smaller blocks, are independent.
        blocks = SCRAMBLES if self.key.sampler == "sobol" else 64
        return Moments.from_samples(self.samples, blocks)

    @functools.cache  # noqa: B019  (lives and dies with the one group that holds it)
    def partition(self, name: str) -> Partition:
        """Partition of the output space, frozen from the pilot."""
        from oracles.partition import AxisBins, Classes, EqualMassTree, ScoreDifferences

        match name:
            case "headline":
                return EqualMassTree.from_samples(self.pilot, cells=self.settings.cells)
            case "paper":
                return AxisBins.from_samples(
                    self.pilot, bins=self.settings.bins, bin_range=self.settings.bin_range
                )
            case "class":
                return Classes(self.pilot.shape[1])
            case "difference":
                return ScoreDifferences.from_samples(self.pilot, bins=self.settings.difference_bins)
        raise ValueError(f"unknown partition '{name}'")

    @functools.cache  # noqa: B019
    def counts(self, name: str) -> np.ndarray:
        """The oracle's samples in the cells of a partition; a row each where it has several."""
        return np.atleast_2d(self.partition(name).counts(self.samples))

    @functools.cache  # noqa: B019
    def floors(self, name: str) -> list[Floor]:
        """Floor of the total variation in a partition, for each row of :meth:`counts`."""
        from oracles.partition import total_variation_floor

        return [
            total_variation_floor(row, self.settings.samples, seed=self.key.seed(f"floor {name} {i}"))
            for i, row in enumerate(self.counts(name))
        ]

    @functools.cached_property
    def w1_floor(self) -> Floor:
        """Floor of W1 between this many points a side."""
        from oracles.transport import wasserstein_floor

        return wasserstein_floor(self.samples, self.settings.w1_points, pairs=self.settings.w1_pairs)


class Prediction:
    """The law that a rule predicts for one input, and samples of it on the truth's normals.

    Parameters
    ----------
    law : Gaussian or DiagonalGaussian
        Of the output, batch 1.
    truth : Truth

    Raises
    ------
    ValueError
        If the law is of another family, or has non-finite moments or a negative variance.
    """

    def __init__(self, law: Law, truth: Truth) -> None:
        if not isinstance(law, Gaussian | DiagonalGaussian):
            raise ValueError(f"the prediction is a {type(law).__name__}, not a Gaussian")
        for name, value in (("mean", law.mean), ("covariance", law.covariance)):
            if not bool(torch.isfinite(value).all()):
                raise ValueError(f"the predicted {name} is not finite")
        if bool((law.variance < 0).any()):
            raise ValueError("a predicted variance is negative")
        self.law, self._truth = law, truth

    @functools.cached_property
    def samples(self) -> Tensor:
        """Of the predicted law, shape (samples, m), float64; an indefinite covariance is clipped."""
        return self.law.mean.double() + self._truth.normals @ self.law.factor()[0].mT
