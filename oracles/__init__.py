"""Ground truth: samples of f(x + eps), distances to them, and the uncertainty of these distances."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sdp_ref.lazy import exports

if TYPE_CHECKING:
    from .estimate.estimate import Estimate, Floor, Ratio
    from .estimate.tails import require_mean, require_moments
    from .exact.quadrature import Mixed, exact_total_variation, exact_wasserstein
    from .exact.theorem import Optimality, check_theorem
    from .moments.moments import Moments, bures, gaussian_kl, mean_error, std_ratio
    from .partitions.floors import total_variation_floor
    from .partitions.heavy_tails import OutputBins, central_axes
    from .partitions.partition import (
        AxisBins,
        Classes,
        EqualMassTree,
        Partition,
        ScoreDifferences,
        pairwise_total_variation,
        total_variation,
        total_variation_of_counts,
    )
    from .partitions.principal import (
        PrincipalCells,
        floor_of_largest,
        largest_total_variation,
    )
    from .partitions.quantiles import (
        Quantiles,
        interquartile_ratio,
        largest_quantile_distance,
        mean_quantile_distance,
    )
    from .sampling.outputs import independent_blocks, sample_outputs, standard_normals, stream_outputs
    from .transport.certified import Bracket, certified_wasserstein
    from .transport.large import certified, certified_floor
    from .transport.wasserstein import (
        sliced_wasserstein,
        wasserstein,
        wasserstein_1d,
        wasserstein_floor,
    )
else:
    __getattr__, __dir__ = exports(__name__)

__all__ = [
    "AxisBins",
    "Bracket",
    "Classes",
    "EqualMassTree",
    "Estimate",
    "Floor",
    "Mixed",
    "Moments",
    "Optimality",
    "OutputBins",
    "Partition",
    "PrincipalCells",
    "Quantiles",
    "Ratio",
    "ScoreDifferences",
    "bures",
    "central_axes",
    "certified",
    "certified_floor",
    "certified_wasserstein",
    "check_theorem",
    "exact_total_variation",
    "exact_wasserstein",
    "floor_of_largest",
    "gaussian_kl",
    "independent_blocks",
    "interquartile_ratio",
    "largest_quantile_distance",
    "largest_total_variation",
    "mean_error",
    "mean_quantile_distance",
    "pairwise_total_variation",
    "require_mean",
    "require_moments",
    "sample_outputs",
    "sliced_wasserstein",
    "standard_normals",
    "std_ratio",
    "stream_outputs",
    "total_variation",
    "total_variation_floor",
    "total_variation_of_counts",
    "wasserstein",
    "wasserstein_1d",
    "wasserstein_floor",
]
