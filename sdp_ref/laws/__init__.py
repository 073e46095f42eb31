"""Distributions ("laws") that rules accept and return: Gaussian, stable, mixtures, samples, quantiles.

The first dimension of every field is the batch, as in torch; the remaining dimensions are the event.
Constructors validate their arguments. Rules build their results with :func:`unchecked`, because a published
rule may return something that is not a distribution (the covariance of DVIA can be slightly indefinite), and
the benchmark has to measure that. :func:`law_of` converts ``torch.distributions`` objects, and any object
with a ``sample`` method, to a law.
"""

from sdp_ref.laws.base import Law as Law
from sdp_ref.laws.base import noted as noted
from sdp_ref.laws.base import unchecked as unchecked
from sdp_ref.laws.empirical import Empirical as Empirical
from sdp_ref.laws.empirical import Quantiles as Quantiles
from sdp_ref.laws.foreign import law_of as law_of
from sdp_ref.laws.gaussian import CompressedGaussian as CompressedGaussian
from sdp_ref.laws.gaussian import DiagonalGaussian as DiagonalGaussian
from sdp_ref.laws.gaussian import Gaussian as Gaussian
from sdp_ref.laws.location_scale import Cauchy as Cauchy
from sdp_ref.laws.location_scale import LocationScale as LocationScale
from sdp_ref.laws.location_scale import Shape as Shape
from sdp_ref.laws.location_scale import SymmetricStable as SymmetricStable
from sdp_ref.laws.mixture import Mixture as Mixture
from sdp_ref.laws.mixture import Pieces as Pieces
from sdp_ref.laws.mixture import PiecewiseGaussian as PiecewiseGaussian
from sdp_ref.laws.mixture import joined as joined
