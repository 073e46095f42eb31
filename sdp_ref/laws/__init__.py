"""The laws that rules take and give: Gaussian, stable and other families, mixtures, draws, quantiles.

One batch dimension comes first in every field, as everywhere in torch; what follows it is the
event. A law is validated once, where a user builds it; rules build their results with
:func:`unchecked`, since a published rule may give what no law has (DVIA's covariance can be
slightly indefinite) and that is for the measurements to show. :func:`law_of` makes a law of what
others have: a distribution of torch's, or any object that can be sampled.
"""

from sdp_ref.laws.base import Law, noted, unchecked
from sdp_ref.laws.empirical import Empirical, Quantiles
from sdp_ref.laws.foreign import law_of
from sdp_ref.laws.gaussian import CompressedGaussian, DiagonalGaussian, Gaussian
from sdp_ref.laws.location_scale import LocationScale, Shape
from sdp_ref.laws.mixture import Mixture, joined
from sdp_ref.laws.piecewise import Pieces, PiecewiseGaussian
from sdp_ref.laws.stable import Cauchy, SymmetricStable

__all__ = [
    "Cauchy",
    "CompressedGaussian",
    "DiagonalGaussian",
    "Empirical",
    "Gaussian",
    "Law",
    "LocationScale",
    "Mixture",
    "Pieces",
    "PiecewiseGaussian",
    "Quantiles",
    "Shape",
    "SymmetricStable",
    "joined",
    "law_of",
    "noted",
    "unchecked",
]
