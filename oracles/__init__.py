"""What is true: samples of f(x + eps), distances to them, and how uncertain those are."""

from oracles.certified import Bracket, certified_wasserstein
from oracles.estimate import Estimate, Floor, Ratio
from oracles.large_transport import certified, certified_floor
from oracles.moments import Moments, bures, gaussian_kl, mean_error, std_ratio
from oracles.partition import (
    AxisBins,
    Classes,
    EqualMassTree,
    Partition,
    ScoreDifferences,
    pairwise_total_variation,
    total_variation,
    total_variation_floor,
    total_variation_of_counts,
)
from oracles.quadrature import Mixed, exact_total_variation, exact_wasserstein
from oracles.quantiles import (
    Quantiles,
    interquartile_ratio,
    largest_quantile_distance,
    mean_quantile_distance,
)
from oracles.robust_partition import OutputBins, central_axes
from oracles.sampling import sample_outputs, standard_normals, stream_outputs
from oracles.tails import require_mean, require_moments
from oracles.theorem import Optimality, check_theorem
from oracles.transport import sliced_wasserstein, wasserstein, wasserstein_1d, wasserstein_floor

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
    "gaussian_kl",
    "interquartile_ratio",
    "largest_quantile_distance",
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
