"""An oracle and a prediction at work: what metrics need of them, made once and shared."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from bench.keys import OracleKey
from bench.settings import Settings
from sdp_ref.distributions import Cauchy, DiagonalGaussian, Gaussian, Law, SymmetricStable

if TYPE_CHECKING:
    from oracles.estimate import Estimate, Floor
    from oracles.moments import Moments
    from oracles.partition import Partition
    from oracles.quantiles import Quantiles


T = TypeVar("T")

ORACLE_MOMENTS = "oracle_moments"
ORACLE_AGAIN = "oracle_again"
REFERENCES = (ORACLE_MOMENTS, ORACLE_AGAIN)
"""In the place of a rule: the Gaussian with the oracle's own mean and covariance, which rules that
match moments aim at; and a second, independent oracle, which shows the noise that an exact rule has."""


class Truth:
    """The law of a net's output, by samples. All draws are seeded by the oracle's key.

    Parameters
    ----------
    net : nn.Module
    law : Law
        Of the input, batch 1, in the net's dtype.
    key : OracleKey
    settings : Settings
    """

    def __init__(self, net: nn.Module, law: Law, key: OracleKey, settings: Settings) -> None:
        self.net, self.law, self.key, self.settings = net, law, key, settings
        self._made: dict[tuple[Any, ...], Any] = {}

    @functools.cached_property
    def samples(self) -> Tensor:
        """Of the output, shape (samples, m), on the CPU."""
        return self._draw(self.key.samples, self.key.seed("oracle"), self.key.sampler)

    def _once(self, key: tuple[Any, ...], make: Callable[[], T]) -> T:
        # Not functools.cache: on a method it would keep every truth, and its samples, for ever.
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def pilot(self, samples: int) -> Tensor:
        """An independent draw, which fixes bins and cells before any rule is looked at.

        The same for every sampler and number of samples of the oracle; no larger than that is set.
        """
        key = replace(self.key, sampler="mc", samples=min(samples, self.settings.samples))
        return self._once(("pilot", samples), lambda: self._draw(key.samples, key.seed("pilot"), "mc"))

    def _draw(self, samples: int, seed: int, sampler: str) -> Tensor:
        from oracles.sampling import sample_outputs

        return sample_outputs(
            self.net,
            self.law,
            samples,
            seed=seed,
            device=self.settings.device,
            sampler=sampler,  # type: ignore[arg-type]
        ).cpu()

    def draw(self, net: Callable[[Tensor], Tensor], law: Law) -> Tensor:
        """Samples of net(x), x of `law` (on the CPU): as many as the oracle's, for a prediction; float64.

        All rules' samples are made from the same noise, but not the oracle's.
        """
        from oracles.sampling import sample_outputs

        sampler: Any = self.key.sampler
        return sample_outputs(
            net, law, self.key.samples, seed=self.key.seed("rule"), sampler=sampler
        ).double()

    @functools.cached_property
    def normals(self) -> Tensor:
        """Standard normals, shape (samples, m), float64: all rules' samples are made from these."""
        from oracles.sampling import standard_normals

        return standard_normals(
            self.key.samples,
            self.samples.shape[1],
            seed=self.key.seed("rule"),
            sampler=self.key.sampler,  # type: ignore[arg-type]
        ).double()

    @functools.cached_property
    def moments(self) -> Moments:
        """Mean and covariance of the samples, with what their standard errors need.

        Raises
        ------
        ValueError
            If the noise has none.
        """
        from oracles.moments import Moments
        from oracles.tails import require_moments

        require_moments(self.law)
        return Moments.from_samples(self.samples, self._blocks)

    @functools.cached_property
    def centred_moments(self) -> Moments:
        """Moments of the samples less the mean of their outputs; see :mod:`oracles.logits`."""
        from oracles.logits import without_shift
        from oracles.moments import Moments
        from oracles.tails import require_moments

        require_moments(self.law)
        return Moments.from_samples(without_shift(self.samples), self._blocks)

    @property
    def _blocks(self) -> int:
        """Blocks of samples that replicate each other."""
        from oracles.noise import SCRAMBLES

        # Sobol points come scramble by scramble; these, and no smaller blocks, are independent.
        return SCRAMBLES if self.key.sampler == "sobol" else 64

    @functools.cached_property
    def quantiles(self) -> Quantiles:
        """Quantiles of the samples of each output."""
        from oracles.quantiles import Quantiles

        return Quantiles.from_samples(self.samples)

    @functools.cached_property
    def extremes(self) -> tuple[np.ndarray, np.ndarray]:
        """Smallest and largest of each output among the samples."""
        values = self.samples.double().numpy()
        return values.min(0), values.max(0)

    def partition(self, name: str, pilot_samples: int = 0, **options: Any) -> Partition:
        """Partition of the output space, frozen from a pilot; `options` as the metric's spec has them."""
        key = ("partition", name, pilot_samples, *sorted(options.items()))
        return self._once(key, lambda: self._partition(name, pilot_samples, options))

    def _partition(self, name: str, pilot_samples: int, options: dict[str, Any]) -> Partition:
        from oracles.logits import Margin
        from oracles.partition import AxisBins, Classes, EqualMassTree, ScoreDifferences
        from oracles.robust_partition import OutputBins, central_axes

        match name:
            case "headline":
                return EqualMassTree.from_samples(self.pilot(pilot_samples), **options)
            case "central":
                return EqualMassTree.from_samples(self.pilot(pilot_samples), axes=central_axes, **options)
            case "output":
                return OutputBins.from_samples(self.pilot(pilot_samples), **options)
            case "paper":
                return AxisBins.from_samples(self.pilot(pilot_samples), **options)
            case "margin":
                return Margin.from_samples(self.pilot(pilot_samples), **options)
            case "class":
                return Classes(self.samples.shape[1])
            case "difference":
                return ScoreDifferences.from_samples(self.pilot(pilot_samples), **options)
        raise ValueError(f"unknown partition '{name}'")

    def counts(self, partition: Partition) -> np.ndarray:
        """The oracle's samples in the cells of a partition; a row each where it has several."""
        return self._once(("counts", partition), lambda: np.atleast_2d(partition.counts(self.samples)))

    def floors(self, partition: Partition) -> list[Floor]:
        """Floor of the total variation in a partition, for each row of :meth:`counts`."""
        return self._once(("floors", partition), lambda: self._floors(partition))

    def _floors(self, partition: Partition) -> list[Floor]:
        from oracles.partition import total_variation_floor

        name = type(partition).__name__
        return [
            total_variation_floor(row, self.key.samples, seed=self.key.seed(f"floor {name} {i}"))
            for i, row in enumerate(self.counts(partition))
        ]

    def total_variation(self, cells: Partition, samples: Tensor) -> Estimate:
        """Total variation between the oracle's samples and others, on the cells of one partition."""
        from oracles.partition import total_variation_of_counts

        return total_variation_of_counts(self.counts(cells)[0], cells.counts(samples), self.floors(cells)[0])

    def w1_floor(self, points: int, pairs: int, *, certified: bool = False) -> Floor:
        """Floor of W1 between this many points a side."""
        floor: Callable[..., Floor]
        if certified:
            from oracles.large_transport import certified_floor as floor
        else:
            from oracles.transport import wasserstein_floor as floor
        key = ("w1_floor", points, pairs, certified)
        return self._once(key, lambda: floor(self.samples, points, pairs=pairs))

    def reference(self, name: str) -> Prediction:
        """What stands in the place of a rule under one of :data:`REFERENCES`."""
        if name == ORACLE_MOMENTS:
            return Prediction(_gaussian(self.moments), self)
        from oracles.moments import Moments
        from oracles.tails import GAUSSIAN, stability

        again = self._draw(self.key.samples, self.key.seed("again"), self.key.sampler)
        law = _gaussian(Moments.from_samples(again)) if stability(self.law) == GAUSSIAN else None
        return Prediction(law, self, again.double)


def _gaussian(moments: Moments) -> Gaussian:
    return Gaussian(torch.from_numpy(moments.mean)[None], torch.from_numpy(moments.covariance)[None])


class Prediction:
    """The law that a rule predicts for one input, and samples of it, of all rules from the same noise.

    Parameters
    ----------
    law : Gaussian, DiagonalGaussian, Cauchy, SymmetricStable or None
        Of the output, batch 1; none where it is known by samples alone.
    truth : Truth
    draw : callable, optional
        Samples of the joint law of the outputs, shape (samples, m), float64, where `law` does not give it.

    Raises
    ------
    ValueError
        If the law is of another family, has non-finite parameters or a negative variance or scale.
    """

    def __init__(self, law: Law | None, truth: Truth, draw: Callable[[], Tensor] | None = None) -> None:
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
        self.law, self._truth, self._draw = law, truth, draw

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
        from oracles.quantiles import Quantiles

        return Quantiles.from_samples(self.outputs)

    def _of_law(self) -> Tensor:
        match self.law:
            case Gaussian() | DiagonalGaussian() as law:
                return torch.addmm(law.mean.double(), self._truth.normals, law.factor()[0].mT)
            case Cauchy() | SymmetricStable() as law:
                return self._truth.draw(nn.Flatten(), law)
        raise ValueError("the prediction is known by samples alone")


def _check_finite(**parameters: Tensor) -> None:
    for name, value in parameters.items():
        if not bool(torch.isfinite(value).all()):
            raise ValueError(f"the predicted {name} is not finite")


def _check_positive(**parameters: Tensor) -> None:
    for name, value in parameters.items():
        if bool((value < 0).any()):
            raise ValueError(f"a predicted {name} is negative")
