"""Distributions ("laws") that rules accept and return: Gaussian, stable, mixtures, samples, quantiles.

The first dimension of every field is the batch, as in torch; the remaining dimensions are the event.
Constructors validate their arguments. Rules build their results with :func:`unchecked`, because a published
rule may return something that is not a distribution (the covariance of DVIA can be slightly indefinite), and
the benchmark has to measure that. :func:`law_of` converts ``torch.distributions`` objects, and any object
with a ``sample`` method, to a law.
"""

from sdp_ref.laws.base import Law, noted, unchecked
from sdp_ref.laws.empirical import Empirical, Quantiles
from sdp_ref.laws.foreign import law_of
from sdp_ref.laws.gaussian import CompressedGaussian, DiagonalGaussian, Edgeworth, Gaussian
from sdp_ref.laws.location_scale import Cauchy, LocationScale, Shape, SplitNormal, SymmetricStable
from sdp_ref.laws.mixture import Mixture, Pieces, PiecewiseGaussian, joined

__all__ = [
    "Cauchy",
    "CompressedGaussian",
    "DiagonalGaussian",
    "Edgeworth",
    "Empirical",
    "Gaussian",
    "Law",
    "LocationScale",
    "Mixture",
    "Pieces",
    "PiecewiseGaussian",
    "Quantiles",
    "Shape",
    "SplitNormal",
    "SymmetricStable",
    "joined",
    "law_of",
    "noted",
    "unchecked",
]
