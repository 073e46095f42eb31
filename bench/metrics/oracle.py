"""The two sides of every metric: the true law with its samples, and a rule's prediction."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sdp_ref.errors import UndefinedError
from sdp_ref.laws import DiagonalGaussian, Empirical, Gaussian, Law, unchecked
from sdp_ref.rules.base import cause_of_non_finite

from ...oracles.estimate.estimate import Estimate, Floor
from ...oracles.estimate.tails import heavy_tailed, require_moments
from ...oracles.moments.moments import Moments
from ...oracles.partitions.floors import scrambled_floor, total_variation_floor
from ...oracles.partitions.logits import without_shift
from ...oracles.partitions.partition import Partition, total_variation_of_counts
from ...oracles.partitions.precision import Rounding, precise, rounding_by
from ...oracles.partitions.principal import floor_of_largest, largest_total_variation
from ...oracles.partitions.quantiles import Quantiles
from ...oracles.sampling.noise import SCRAMBLES
from ...oracles.sampling.outputs import Sampler, sample_outputs, standard_normals
from ..identity import OracleKey, Sampling

T = TypeVar("T")

ORACLE_VERSION = 1
"""Raise it with every change that changes the samples of oracles: all measurements are then out of date."""


def independent_blocks(sampler: Sampler) -> int:
    """Return the number of equal blocks of samples that are independent replicates."""
    # Sobol points come scramble by scramble; scrambles are independent, smaller blocks are not.
    return SCRAMBLES if sampler == "sobol" else 64


class Oracle:
    """The law of a net's output, represented by samples. All draws are seeded by the oracle's key.

    Samples are drawn in the net's precision, or in float64 if that precision moves too many samples; see
    `rounding`.

    `law` is the law of the input (batch 1, in the net's dtype). The number and kind of samples come from
    `key`; `sampling` only bounds the pilot and names the device.
    """

    def __init__(self, net: nn.Module, law: Law, key: OracleKey, sampling: Sampling) -> None:
        self.net, self.law, self.key, self.sampling = net, law, key, sampling
        self._made: dict[Hashable, Any] = {}

    @functools.cached_property
    def resident(self) -> Tensor:
        """Samples of the output, shape (samples, m), on the device that drew them."""
        return self._draw(self.key.samples, self.key.seed("oracle"), self.sampler)

    @functools.cached_property
    def samples(self) -> Tensor:
        """The samples on the CPU, copied once when they are first needed."""
        return self.resident.cpu()

    def redrawn(self, purpose: str, sampler: Sampler | None = None, samples: int | None = None) -> Tensor:
        """Draw samples with another seed; number and sampler default to the oracle's. Not cached."""
        rows = samples or self.key.samples
        return self._draw(rows, self.key.seed(purpose), sampler or self.sampler).cpu()

    def pilot(self, samples: int) -> Tensor:
        """Return an independent draw, used to fix bins and cells before any rule is evaluated.

        Shape (rows, m), on the CPU, in the oracle's precision; `rows` is the smaller of `samples` and
        ``sampling.samples``. It does not depend on the oracle's sampler or number of samples.
        """
        key = replace(self.key, sampler="mc", samples=min(samples, self.sampling.samples))
        return self._once(("pilot", samples), lambda: self._draw(key.samples, key.seed("pilot"), "mc").cpu())

    def of_pilot(self, function: Callable[..., T], pilot_samples: int, **options: Hashable) -> T:
        """Return a function of a pilot, computed once: a partition, frozen before any rule is evaluated."""
        key = (function, pilot_samples, *sorted(options.items()))
        return self._once(key, lambda: function(self.pilot(pilot_samples), **options))

    def of_samples(self, function: Callable[..., T], *arguments: Hashable, **options: Hashable) -> T:
        """Return a function of the samples, computed once: a floor, for example."""
        key = (function, *arguments, *sorted(options.items()))
        return self._once(key, lambda: function(self.samples, *arguments, **options))

    def _once(self, key: Hashable, make: Callable[[], T]) -> T:
        # Not functools.cache: on a method it would keep every oracle and its samples alive.
        if key not in self._made:
            self._made[key] = make()
        made: T = self._made[key]
        return made

    @property
    def sampler(self) -> Sampler:
        return cast("Sampler", self.key.sampler)

    @functools.cached_property
    def rounding(self) -> Rounding:
        """Effect of the net's precision on the law, measured on a small separate sample."""
        seed, device = self.key.seed("precision"), self.sampling.device
        return rounding_by(self.net, self.law, self.key.samples, seed=seed, device=device)

    @property
    def precision(self) -> str:
        """Precision of all samples: ``float32`` or ``float64``."""
        return str(self.resident.dtype).removeprefix("torch.")

    @functools.cached_property
    def drawn(self) -> tuple[nn.Module, Law]:
        """The net and the law of its input, in the precision of the samples."""
        return precise(self.net, self.law) if self.rounding.matters else (self.net, self.law)

    def _draw(self, samples: int, seed: int, sampler: Sampler) -> Tensor:
        device = self.sampling.device
        return sample_outputs(*self.drawn, samples, seed=seed, device=device, sampler=sampler)

    def draw(self, net: Callable[[Tensor], Tensor], law: Law) -> Tensor:
        """Sample net(x), x of `law` (on the CPU), as often as the oracle; shape (samples, m), float64.

        The samples of all rules use the same noise, which is independent of the oracle's.
        """
        seed = self.key.seed("rule")
        return sample_outputs(net, law, self.key.samples, seed=seed, sampler=self.sampler).double()

    @functools.cached_property
    def normals(self) -> Tensor:
        """Standard normals, shape (samples, m), float64, from which the samples of all rules are made."""
        outputs, seed = self.resident.shape[1], self.key.seed("rule")
        return standard_normals(self.key.samples, outputs, seed=seed, sampler=self.sampler).double()

    @functools.cached_property
    def moments(self) -> Moments:
        """Mean and covariance of the samples, with standard errors; a ValueError if the noise has none."""
        require_moments(self.law)
        return Moments.from_samples(self.resident, independent_blocks(self.sampler))

    @functools.cached_property
    def centred_moments(self) -> Moments:
        """Moments of the samples minus the mean over outputs; a ValueError if the noise has none."""
        require_moments(self.law)
        return Moments.from_samples(without_shift(self.samples), independent_blocks(self.sampler))

    @functools.cached_property
    def quantiles(self) -> Quantiles:
        """The sorted samples of each output."""
        return Quantiles.from_samples(self.resident)

    @functools.cached_property
    def extremes(self) -> tuple[np.ndarray, np.ndarray]:
        """Smallest and largest values of the outputs, two arrays of shape (m,)."""
        low, high = self.resident.aminmax(dim=0)
        return low.double().cpu().numpy(), high.double().cpu().numpy()

    def counts(self, partition: Partition) -> np.ndarray:
        """Count the oracle's samples in the cells of a partition; one row per histogram."""
        return self._once(("counts", partition), lambda: self._scrambles(partition).sum(0))

    def _scrambles(self, partition: Partition) -> np.ndarray:
        """Counts, shape (parts, rows, cells), in the independent blocks of the samples."""

        def count() -> np.ndarray:
            parts = self.resident.tensor_split(SCRAMBLES if self.sampler == "sobol" else 1)
            return np.stack([np.atleast_2d(partition.counts(part)) for part in parts])

        return self._once(("scrambles", partition), count)

    def floors(self, partition: Partition) -> list[Floor]:
        """Return the floor of the total variation in a partition, for each row of `counts`."""
        return self._once(("floors", partition), lambda: self._simulated_floors(partition))

    def _simulated_floors(self, partition: Partition) -> list[Floor]:
        name = type(partition).__name__  # part of the seed: renaming the class would change the floor
        floors = []
        for row, counts_of_blocks in enumerate(self._scrambles(partition).swapaxes(0, 1)):
            seed = self.key.seed(f"floor {name} {row}")
            floor = total_variation_floor(counts_of_blocks.sum(0), self.key.samples, seed=seed)
            if self.sampler == "sobol":
                floor = scrambled_floor(counts_of_blocks, floor, seed=seed)
            floors.append(floor)
        return floors

    def total_variations(self, cells: Partition, samples: Tensor) -> list[Estimate]:
        """Return the total variation between the oracle's samples and `samples`, for each row of `counts`."""
        predicted_counts = np.atleast_2d(cells.counts(samples))
        estimates = []
        for true, predicted, floor in zip(
            self.counts(cells), predicted_counts, self.floors(cells), strict=True
        ):
            estimates.append(total_variation_of_counts(true, predicted, floor))
        return estimates

    def total_variation(self, cells: Partition, samples: Tensor) -> Estimate:
        """Return the total variation on a partition with a single histogram."""
        (estimate,) = self.total_variations(cells, samples)
        return estimate

    def largest_total_variation(self, cells: Partition, samples: Tensor) -> Estimate:
        """Return the largest total variation over rows, with the floor of the largest."""
        counts = self.counts(cells)
        if len(counts) == 1:
            return self.total_variation(cells, samples)
        seed = self.key.seed(f"floor of the largest {type(cells).__name__}")
        floor = self._once(
            ("floor of the largest", cells), lambda: floor_of_largest(counts, self.key.samples, seed=seed)
        )
        return largest_total_variation(counts, np.atleast_2d(cells.counts(samples)), floor)


Array = NDArray[np.float64]

_EXACT = 8
"""Number of exact rules behind a floor; its 95 % point is then accurate to a quarter of the spread."""


class Prediction:
    """The law that a rule predicts for one input, and samples of it. All rules use the same noise.

    `law` is the law of the output (batch 1), or None if only samples are available. `draw` gives samples of
    the joint law of the outputs, shape (samples, m), float64, if `law` does not. `passes` counts the
    operations of the rule for one input, in regular passes. A ValueError is raised if law and samples are
    missing, or if the law has non-finite parameters, a negative variance or a negative scale.
    """

    def __init__(
        self,
        law: Law | None,
        oracle: Oracle,
        draw: Callable[[], Tensor] | None = None,
        passes: Callable[[], float] = lambda: math.nan,
    ) -> None:
        if law is None and draw is None:
            raise ValueError("the prediction is neither a law nor samples of one")
        if law is not None and (reason := law.unsound()):
            raise ValueError(f"the predicted {reason}{cause_of_non_finite(oracle.net, oracle.law, law)}")
        self.law, self._oracle, self._draw, self.passes = law, oracle, draw, passes

    @functools.cached_property
    def samples(self) -> Tensor:
        """Samples of the predicted law, shape (samples, m), float64; an indefinite covariance is clipped.

        An UndefinedError is raised if the law has marginals only.
        """
        law = self.law
        if law is not None and self._draw is None and not law.joint:
            raise UndefinedError(f"the prediction is {law.described}, which says nothing of several together")
        return self._draw() if self._draw else self._of_law()

    @functools.cached_property
    def outputs(self) -> Tensor:
        """Samples for metrics that use single columns; marginal laws have these too."""
        law = self.law
        is_of_law = law is not None and (not law.joint or (self._draw is not None and heavy_tailed(law)))
        return self._of_law() if is_of_law else self.samples

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
            raise UndefinedError("the prediction is a law known by samples alone, which has no moments")
        return self.law

    @functools.cached_property
    def quantiles(self) -> Quantiles:
        """The sorted samples of each predicted output."""
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
        counts = []  # for each output: samples up to each value
        for samples, thresholds in zip(ordered, values.T, strict=True):
            counts.append(np.searchsorted(samples, thresholds, side="right"))
        return 1 - np.array(counts).T / ordered.shape[1], ordered.shape[1]

    @functools.cached_property
    def class_probabilities(self) -> tuple[Array, int | None]:
        """Predicted probabilities of the classes, shape (m,), and the number of draws they were counted in.

        The number is None if the law has them.
        """
        if self.law is not None and self._draw is None:
            with contextlib.suppress(UndefinedError):
                return self.law.class_probabilities()[0][0].numpy(), None
        counts = torch.bincount(self.samples.argmax(1), minlength=self.samples.shape[1])
        return (counts.double() / len(self.samples)).numpy(), len(self.samples)

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
