"""Total variation in several kinds of cells, and distances between laws of many logits."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sdp_ref.laws import Gaussian, unchecked
from sdp_ref.lazy import deferred

from ... import oracles  # which imports what is used
from ..errors import UserError
from .base import Better, Measurements, Metric, by_output, choice, count

if TYPE_CHECKING:
    from ..identity import Sampling
    from .oracle import Oracle, Prediction

logits = deferred("sdp_bench.oracles.partitions.logits")
tree = deferred("sdp_bench.oracles.partitions.tree")


class SharedMass(Metric):
    """A total variation that tables show as the mass shared by both laws, 1 - TV."""

    label = "1 − TV"
    better: ClassVar[Better] = "higher"
    complement = True
    decimals = 4


class CellTotalVariation(SharedMass):
    """Total variation of the joint law of the outputs, on the cells of one partition."""

    @abstractmethod
    def partition(self, oracle: Oracle) -> oracles.Partition:
        """Return the cells of the histogram."""

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        yield None, oracle.total_variation(self.partition(oracle), prediction.samples)


@dataclass(frozen=True)
class EqualMassTotalVariation(CellTotalVariation):
    """Total variation on cells of equal mass along axes derived from the oracle."""

    whitens = True
    seconds_per_sample = 0.03e-6

    cells: int = count(512)
    pilot_samples: int = count(2**17, 100)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cells < 2 or self.cells & (self.cells - 1):
            raise UserError(f"cells must be a power of two >= 2, got {self.cells}")

    central: ClassVar[bool] = False
    """Whether the axes are those of the law's central half, and not of all of it."""

    def partition(self, oracle: Oracle) -> oracles.EqualMassTree:
        return self._of_pilot(oracles.EqualMassTree, oracle)

    def _of_pilot(self, kind: Any, oracle: Oracle) -> Any:
        axes = oracles.central_axes if self.central else tree.principal_axes
        return oracle.of_pilot(kind.from_samples, self.pilot_samples, cells=self.cells, axes=axes)

    def check(self, sampling: Sampling, samples: int) -> None:  # noqa: ARG002
        """Require at least as many pilot samples as cells."""
        pilot = min(sampling.samples, self.pilot_samples)
        if pilot < self.cells:
            raise UserError(
                f"a pilot of {pilot} samples cannot fix {self.cells} cells; raise --samples and "
                "--pilot-samples"
            )


class HeadlineTotalVariation(EqualMassTotalVariation):
    """Total variation in `cells` cells of equal mass along the principal axes of the true law."""

    name = "tv_headline"
    title = "1 − TV, equal-mass cells (headline)"
    about = (
        "Probability mass that the predicted and the true output law share, in cells of equal mass along "
        "the principal axes of the true law. Directions of small and large variance count equally. Read "
        "this table first."
    )
    rank = 10
    primary = True

    convention = "headline"

    @property
    def variant(self) -> str:
        return f"{self.convention}, {self.cells} cells"


class PrincipalTotalVariation(HeadlineTotalVariation):
    """The headline metric for any number of outputs: along all principal axes jointly, and in pairs.

    For at most three outputs it equals the headline metric. It has its own name because existing records of
    the headline with more outputs use the tree alone, which is insensitive to scale there.
    """

    name = "tv_principal"
    about = (
        "Smallest probability mass that the predicted and the true output law share, in cells of equal "
        "mass along all principal axes of the true law, or in bins along two of them. This is the primary "
        "measure for more than three outputs. It is an upper bound: simultaneous errors along many axes "
        "reduce the true shared mass further."
    )
    rank = 35
    seconds_per_sample = 0.2e-6

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        cells = self._of_pilot(oracles.PrincipalCells, oracle)
        yield None, oracle.largest_total_variation(cells, prediction.samples)


@dataclass(frozen=True)
class AxisTotalVariation(CellTotalVariation):
    """Total variation in a regular grid with `bins` bins along each output axis."""

    name = "tv_paper"
    title = "1 − TV, bins along the output axes (paper-like)"
    about = (
        "Probability mass that both laws share in a regular grid along the output axes, as the paper "
        "describes it. A pilot sample fixes the edges. The outputs are nearly linearly dependent, so most "
        "bins are empty, and errors in directions of small variance are not detected. The paper does not "
        "state its bin range, so our values need not agree with the printed ones."
    )
    published = "1-tv"
    rank = 20
    primary = True
    seconds_per_sample = 0.015e-6

    bins: int = count(10)
    bin_range: str = choice("quantiles", "minmax", "joint")
    pilot_samples: int = count(2**17, 100)

    @property
    def variant(self) -> str:
        ranges = {"quantiles": "pilot quantiles", "minmax": "min-max of the pilot", "joint": "joint extremes"}
        return f"paper-like, {self.bins} bins, {ranges[self.bin_range]}"

    @property
    def convention(self) -> str:  # type: ignore[override]
        """The label contains the range, which the paper does not state and which matters most."""
        return {"quantiles": "paper-like", "minmax": "min-max", "joint": "joint extremes"}[self.bin_range]

    @property
    def cells_vary(self) -> bool:  # type: ignore[override]
        return self.bin_range == "joint"

    def partition(self, oracle: Oracle) -> oracles.AxisBins:
        """Return the grid; the range "joint" also depends on the prediction, so it has no grid here."""
        return oracle.of_pilot(
            oracles.AxisBins.from_samples, self.pilot_samples, bins=self.bins, bin_range=self.bin_range
        )

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        if not self.cells_vary:
            yield from super().estimates(oracle, prediction)
            return
        # The only range that depends on the rule. The paper may have used it, but it does not compare rules
        # fairly.
        low, high = oracle.extremes
        samples = prediction.samples.numpy()
        cells = oracles.AxisBins(np.minimum(low, samples.min(0)), np.maximum(high, samples.max(0)), self.bins)
        yield None, oracle.total_variation(cells, prediction.samples)


@dataclass(frozen=True)
class SingleTotalVariation(SharedMass):
    """Mean over the outputs of the total variation in `bins` bins between the joint extremes."""

    name = "tv_single"
    title = "1 − TV of single outputs, joint extremes"
    about = (
        "Probability mass that both laws share in one output, in equal bins between the smallest and the "
        "largest value of both samples, averaged over the outputs. Of all conventions it is closest to the "
        "paper’s numbers for SDP, but not for Monte Carlo estimates and marginal rules. The bins depend on "
        "the rule, so it does not rank rules fairly and has no standard error."
    )
    published = "1-tv"
    rank = 25
    seconds_per_sample = 0.015e-6

    bins: int = count(10, 2)

    convention = "single outputs"
    cells_vary = True

    @property
    def variant(self) -> str:
        return f"{self.convention}, {self.bins} bins, joint extremes"

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        low, high = oracle.extremes
        samples = prediction.samples.numpy()
        low, high = np.minimum(low, samples.min(0)), np.maximum(high, samples.max(0))
        edges = np.linspace(low, high, self.bins + 1)[1:-1].T
        outputs = oracle.total_variations(oracles.OutputBins(edges), prediction.samples)
        # The outputs of a net are strongly correlated, so errors are averaged as if they were equal.
        yield (
            None,
            oracles.Estimate(
                value=float(np.mean([output.value for output in outputs])),
                floor=float(np.mean([output.floor for output in outputs])),
                floor95=float(np.mean([output.floor95 for output in outputs])),
                stderr=float(np.mean([output.stderr for output in outputs])),
            ),
        )


class CentralTotalVariation(EqualMassTotalVariation):
    """Total variation in cells along the principal axes of the central half of the true law."""

    name = "tv_joint"
    title = "1 − TV, equal-mass cells along the principal axes of the central half of the samples"
    about = (
        "Probability mass that both joint laws share, in cells of equal mass along the principal axes of "
        "the central half of the true samples. The covariance of all samples, which defines the axes of "
        "the headline, is determined by a few extreme samples under heavy tails. The outermost cells are "
        "unbounded and contain the tails."
    )
    rank = 30
    primary = True
    central = True


@dataclass(frozen=True)
class OutputTotalVariation(SharedMass):
    """Total variation of each output in `output_bins` bins between true quantiles."""

    name = "tv_output"
    title = "1 − TV of each output by itself"
    about = (
        "Probability mass that both laws share in one output, in bins between the true quantiles; the "
        "outer bins are unbounded. It applies to rules that predict each output separately, too."
    )
    component = "output"
    rank = 40
    seconds_per_sample = 0.05e-6

    output_bins: int = count(100)
    pilot_samples: int = count(2**17, 100)

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        cells = oracle.of_pilot(oracles.OutputBins.from_samples, self.pilot_samples, bins=self.output_bins)
        return by_output(oracle.total_variations(cells, prediction.outputs))


class ClassTotalVariation(CellTotalVariation):
    """Total variation of the distribution of arg max over the outputs."""

    name = "tv_class"
    title = "1 − TV of the decision"
    about = (
        "Probability mass that the predicted and the true distribution of the class (arg max) share. "
        "“pair” is 1 − the largest TV of a difference of two scores, which also shows changes of margins "
        "that do not change the class."
    )
    companion = "tv_difference"
    companion_label = "pair"
    rank = 50
    primary = True
    seconds_per_sample = 0.01e-6

    convention = "decision"
    variant = "decision (class)"

    def partition(self, oracle: Oracle) -> oracles.Classes:
        return oracles.Classes(oracle.resident.shape[1])


@dataclass(frozen=True)
class DifferenceTotalVariation(SharedMass):
    """Total variation of y_i - y_j for each pair of outputs."""

    name = "tv_difference"
    title = "1 − TV of the worst pairwise score difference"
    about = "Shared mass of the score difference of two classes, for the pair where it is smallest."
    largest_only = True
    whitens = True
    rank = 120
    seconds_per_sample = 0.05e-6

    difference_bins: int = count(100)
    pilot_samples: int = count(2**17, 100)

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        """Yield one estimate per pair of classes, labelled ``0-1``."""
        cells = _of_differences(oracle, self.pilot_samples, self.difference_bins)
        estimates = oracle.total_variations(cells, prediction.samples)
        for (i, j), estimate in zip(cells.pairs, estimates, strict=True):
            yield f"{i}-{j}", estimate


@dataclass(frozen=True)
class MarginTotalVariation(Metric):
    """Total variation of the largest output minus the second largest."""

    name = "tv_margin"
    title = "Total variation of the margin"
    label = "TV of the margin"
    about = "Of the highest score less the second highest, in bins of equal mass."
    decimals = 4
    whitens = True
    rank = 70

    margin_bins: int = count(30)
    pilot_samples: int = count(2**17, 100)

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        cells = oracle.of_pilot(logits.Margin.from_samples, self.pilot_samples, bins=self.margin_bins)
        yield None, oracle.total_variation(cells, prediction.samples)


@dataclass(frozen=True)
class PairTotalVariation(Metric):
    """Largest and mean total variation of y_i - y_j over all pairs of outputs."""

    name = "tv_pairs"
    title = "Total variation of the differences of two scores"
    label = "TV of score differences"
    about = "Over all 45 pairs of classes: the largest, and the mean."
    component = "pairs"
    decimals = 4
    whitens = True
    rank = 80
    seconds_per_sample = 50e-6  # for ten outputs, including the redrawn samples of the floor

    margin_bins: int = count(30)
    pilot_samples: int = count(2**17, 100)

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        cells = _of_differences(oracle, self.pilot_samples, self.margin_bins)
        seed = oracle.key.seed("floor pairs")
        summary = logits.pairwise_summary(oracle.samples, prediction.samples, cells, seed=seed)
        yield "largest", summary.largest
        yield "mean", summary.mean


@dataclass(frozen=True)
class SlicedTotalVariation(Metric):
    """Total variation along one direction of the whitened outputs, chosen on half of the samples."""

    name = "tv_sliced"
    title = "Total variation along the worst direction"
    label = "sliced TV"
    about = (
        "Along a direction of the whitened scores without their common shift. The direction is chosen on "
        "one half of the samples and measured on the other."
    )
    decimals = 4
    whitens = True
    rank = 90

    margin_bins: int = count(30)

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        seed, sides = oracle.key.seed("directions"), (oracle.samples, prediction.samples)
        yield None, logits.sliced_total_variation(*sides, bins=self.margin_bins, seed=seed)

    def check(self, sampling: Sampling, samples: int) -> None:  # noqa: ARG002
        """Require at least four samples per bin."""
        if samples < 4 * self.margin_bins:
            raise UserError(
                f"{self.margin_bins} bins of a slice need at least {4 * self.margin_bins} samples, "
                f"got {samples}; raise --samples or lower --margin-bins"
            )


class EnergyDistance(Metric):
    """2 E|X - Y| - E|X - X'| - E|Y - Y'| of the outputs minus their mean over outputs."""

    name = "energy"
    title = label = "Energy distance"
    about = (
        "2 E|X − Y| − E|X − X′| − E|Y − Y′| of the scores without their common shift. It is 0 only for "
        "equal laws, but insensitive to skewness."
    )
    unit = "output"
    needs = "mean"
    rank = 100

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        seed = oracle.key.seed("floor energy")
        yield None, logits.energy_distance(oracle.samples, prediction.samples, seed=seed)


class LogitBures(Metric):
    """Bures distance between the moments of the outputs minus their mean over outputs."""

    name = "bures_logits"
    title = "Bures distance between the moments"
    label = "Bures"
    about = (
        "W2 distance between the Gaussians with the predicted and with the true mean and covariance of the "
        "scores without their common shift, which does not affect a softmax."
    )
    unit = "output"
    needs = "variance"
    rank = 110

    def estimates(self, oracle: Oracle, prediction: Prediction) -> Measurements:
        import torch

        law = prediction.gaussian
        mean, covariance = law.mean.double(), law.covariance.double()
        centring = torch.eye(mean.shape[1], dtype=mean.dtype) - 1 / mean.shape[1]
        centred = unchecked(Gaussian, mean @ centring, centring @ covariance @ centring)
        yield None, oracles.bures(oracle.centred_moments, centred)


def _of_differences(oracle: Oracle, pilot_samples: int, bins: int) -> oracles.ScoreDifferences:
    return oracle.of_pilot(oracles.ScoreDifferences.from_samples, pilot_samples, bins=bins)
